/* Operators on raw logits: log-probabilities, and the choice of a token. */
#include <math.h>

#include "kernel/row.h"
#include "ops/cpu.h"

const float *alea__call_logits(const alea_cpu_call *call, const alea_view *view,
                               alea_row_scratch *scratch, int64_t row) {
    const void *x = alea__at(view, row);
    if (view->dtype_bit == ALEA_BIT_F32) return x;
    alea__row_widen(scratch, x, call->vocab, view->dtype_bit);
    return scratch->row;
}

static void put_f32(const alea_view *view, int64_t row, float value) {
    if (view->data) *(float *)alea__at(view, row) = value;
}

static void put_i32(const alea_view *view, int64_t row, int32_t value) {
    if (view->data) *(int32_t *)alea__at(view, row) = value;
}

/* Arguments of alea_logprobs. */
enum { LSE, LOGPROBS, RANKS, IDS, ID_LOGPROBS, ENTROPY, VERDICTS, LOGITS, TOKENS, GIVEN };

static void put_alternative(const alea_cpu_call *call, int64_t row, int64_t i, int32_t id,
                            float logprob) {
    const alea_view *ids = &call->views[IDS], *logprobs = &call->views[ID_LOGPROBS];
    if (ids->data) *(int32_t *)alea__at2(ids, row, i) = id;
    if (logprobs->data) *(float *)alea__at2(logprobs, row, i) = logprob;
}

static int64_t alternatives_of(const alea_cpu_call *call) {
    const alea_view *view = &call->views[IDS];
    if (!view->data) view = &call->views[ID_LOGPROBS];
    return view->data ? view->size[1] : 0;
}

/* How a report weighed its row: all of the scan that alea__logprob reads is the maximum. */
static alea_mass_rule report_rule(alea_row_scratch *scratch, const float *x,
                                  const alea_row_report *report) {
    scratch->scan.max = x[report->greedy];
    return alea__mass_rule(&scratch->scan, ALEA_LOG2E_F);
}

/* The caller's ids in the caller's order, by the report's own normalization. */
static void put_given(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row,
                      const float *x, const alea_row_report *report) {
    const alea_mass_rule rule = report_rule(scratch, x, report);
    for (int64_t i = 0; i < alternatives_of(call); i++) {
        const int32_t id = *(const int32_t *)alea__at2(&call->views[GIVEN], row, i);
        const float logprob =
            id < 0 ? NAN : alea__logprob(&scratch->scan, &rule, x[id], report->lse);
        put_alternative(call, row, i, id < 0 ? -1 : id, logprob);
    }
}

/* The report's normalization carries the rounding of its scale, which a report cancels. Seen from
 * the maximum, whose distance to it is small, the rounding is gone. */
static void put_lse(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row,
                    const float *x, const alea_row_report *report) {
    if (!call->views[LSE].data) return;
    const alea_mass_rule rule = report_rule(scratch, x, report);
    const double max = scratch->scan.max;
    const double from = rule.shifted ? 0.0 : max;
    *(double *)alea__at(&call->views[LSE], row) = max - fma(from, rule.slope, -report->lse);
}

static void put_failure(const alea_cpu_call *call, int64_t row, alea_status verdict) {
    const alea_view *v = call->views;
    if (v[LSE].data) *(double *)alea__at(&v[LSE], row) = NAN;
    put_f32(&v[LOGPROBS], row, NAN);
    put_i32(&v[RANKS], row, 0);
    for (int64_t i = 0; i < alternatives_of(call); i++)
        put_alternative(call, row, i, -1, NAN);
    put_f32(&v[ENTROPY], row, NAN);
    put_i32(&v[VERDICTS], row, verdict);
}

void alea__run_logprobs(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row) {
    const alea_view *v = call->views;
    const float *x = alea__call_logits(call, &v[LOGITS], scratch, row);
    const int32_t token = v[TOKENS].data ? alea__i32_at(&v[TOKENS], row) : -1;
    const bool given = v[GIVEN].data != NULL;
    const int64_t n = alternatives_of(call);
    alea_row_report report;
    const alea_status status =
        alea__row_report(scratch->kernels, x, call->vocab, token, given ? 0 : (int32_t)n,
                         v[ENTROPY].data != NULL, &report);
    if (status < 0) {
        put_failure(call, row, status);
        return;
    }
    put_lse(call, scratch, row, x, &report);
    put_f32(&v[LOGPROBS], row, report.logprob);
    put_i32(&v[RANKS], row, report.rank);
    put_f32(&v[ENTROPY], row, report.entropy);
    put_i32(&v[VERDICTS], row, ALEA_OK);
    if (given) {
        put_given(call, scratch, row, x, &report);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const bool there = i < report.n_top;
        put_alternative(call, row, i, there ? report.top[i].token : -1,
                        there ? report.top[i].logprob : NAN);
    }
}

void alea__run_sample_logits(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row) {
    enum { CHOSEN, RAW, SAMPLED, KEPT, VERDICT, X, TEMPERATURE, TOP_K, TOP_P, MIN_P, SEED };
    const alea_view *v = call->views;
    const float *x = alea__call_logits(call, &v[X], scratch, row);
    const alea_sampling sampling = {
        .temperature = v[TEMPERATURE].data ? alea__f32_at(&v[TEMPERATURE], row) : 1,
        .top_k = v[TOP_K].data ? alea__i32_at(&v[TOP_K], row) : 0,
        .top_p = v[TOP_P].data ? alea__f32_at(&v[TOP_P], row) : 1,
        .min_p = v[MIN_P].data ? alea__f32_at(&v[MIN_P], row) : 0,
    };
    const alea_draw_at at = alea__call_draw(call, SEED, row, 0);
    alea_choice choice;
    const alea_status status =
        alea__row_choose(scratch->kernels, x, call->vocab, &sampling, &at, &choice);
    if (status < 0) choice = (alea_choice){-1, NAN, NAN, NAN};
    put_i32(&v[CHOSEN], row, choice.token);
    put_f32(&v[RAW], row, choice.logprob);
    put_f32(&v[SAMPLED], row, choice.sampled_logprob);
    put_f32(&v[KEPT], row, choice.kept_mass);
    put_i32(&v[VERDICT], row, status < 0 ? status : ALEA_OK);
}
