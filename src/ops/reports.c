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

/* The caller's ids in the caller's order; empty slots are left out of the question. */
static void put_given(const alea_cpu_call *call, const alea_row_scratch *scratch, int64_t row,
                      const float *x) {
    int32_t ids[ALEA_OP_GIVEN_MAX], n_ids = 0;
    float logprobs[ALEA_OP_GIVEN_MAX];
    for (int64_t i = 0; i < alternatives_of(call); i++) {
        const int32_t id = *(const int32_t *)alea__at2(&call->views[GIVEN], row, i);
        if (id >= 0) ids[n_ids++] = id;
    }
    /* It cannot fail: the row was reported on before. */
    if (n_ids > 0 &&
        alea__row_selected(scratch->kernels, x, call->vocab, ids, n_ids, logprobs) < 0) {
        return;
    }
    n_ids = 0;
    for (int64_t i = 0; i < alternatives_of(call); i++) {
        const int32_t id = *(const int32_t *)alea__at2(&call->views[GIVEN], row, i);
        put_alternative(call, row, i, id < 0 ? -1 : id, id < 0 ? NAN : logprobs[n_ids++]);
    }
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
        alea__row_report_shared(scratch->kernels, scratch->pool, x, call->vocab, token,
                                given ? 0 : (int32_t)n, v[ENTROPY].data != NULL, &report);
    if (status < 0) {
        put_failure(call, row, status);
        return;
    }
    if (v[LSE].data) *(double *)alea__at(&v[LSE], row) = report.lse;
    put_f32(&v[LOGPROBS], row, report.logprob);
    put_i32(&v[RANKS], row, report.rank);
    put_f32(&v[ENTROPY], row, report.entropy);
    put_i32(&v[VERDICTS], row, ALEA_OK);
    if (given) {
        put_given(call, scratch, row, x);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const bool there = i < report.n_top;
        put_alternative(call, row, i, there ? report.top[i].token : -1,
                        there ? report.top[i].logprob : NAN);
    }
}

/* Arguments of alea_sample_logits. */
enum {
    CHOSEN,
    RAW,
    SAMPLED,
    KEPT,
    VERDICT,
    ROW_LSE,
    RANK,
    BEST,
    BEST_LOGPROBS,
    X,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    MIN_P,
    SEED
};

static bool wants_report(const alea_cpu_call *call) {
    bool wants = false;
    for (int i = ROW_LSE; i <= BEST_LOGPROBS; i++)
        wants |= call->views[i].data != NULL;
    return wants;
}

/* What alea_logprobs says of the row and the chosen token; returns the token's logprob. */
static float put_report(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row,
                        const float *x, int32_t token) {
    const alea_view *v = call->views;
    const alea_view *best = &v[v[BEST].data ? BEST : BEST_LOGPROBS];
    const int32_t k = best->data ? (int32_t)best->size[1] : 0;
    alea_row_report report = {.lse = NAN, .logprob = NAN};
    if (token < 0 || alea__row_report_shared(scratch->kernels, scratch->pool, x, call->vocab, token,
                                             k, false, &report) < 0) {
        report.n_top = 0; /* a failed row has none */
    }
    if (v[ROW_LSE].data) *(double *)alea__at(&v[ROW_LSE], row) = report.lse;
    put_i32(&v[RANK], row, report.rank);
    for (int32_t i = 0; i < k; i++) {
        const bool there = i < report.n_top;
        if (v[BEST].data)
            *(int32_t *)alea__at2(&v[BEST], row, i) = there ? report.top[i].token : -1;
        if (v[BEST_LOGPROBS].data)
            *(float *)alea__at2(&v[BEST_LOGPROBS], row, i) = there ? report.top[i].logprob : NAN;
    }
    return report.logprob;
}

void alea__run_sample_logits(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row) {
    const alea_view *v = call->views;
    const float *x = alea__call_logits(call, &v[X], scratch, row);
    const alea_sampling sampling = {
        .temperature = v[TEMPERATURE].data ? alea__f32_at(&v[TEMPERATURE], row) : 1,
        .top_k = v[TOP_K].data ? alea__i32_at(&v[TOP_K], row) : 0,
        .top_p = v[TOP_P].data ? alea__f32_at(&v[TOP_P], row) : 1,
        .min_p = v[MIN_P].data ? alea__f32_at(&v[MIN_P], row) : 0,
    };
    const alea_draw_at at = alea__call_draw(call, SEED, row, 0);
    const bool reported = wants_report(call); /* then the report brings the logprob too */
    const unsigned wants = (v[RAW].data && !reported ? ALEA_CHOOSE_LOGPROB : 0) |
                           (v[KEPT].data ? ALEA_CHOOSE_KEPT_MASS : 0);
    alea_choice choice;
    const alea_status status = alea__row_choose_shared(scratch->kernels, scratch->pool, x,
                                                       call->vocab, &sampling, &at, wants, &choice);
    if (status < 0) choice = (alea_choice){-1, NAN, NAN, NAN};
    if (reported) choice.logprob = put_report(call, scratch, row, x, choice.token);
    put_i32(&v[CHOSEN], row, choice.token);
    put_f32(&v[RAW], row, choice.logprob);
    put_f32(&v[SAMPLED], row, choice.sampled_logprob);
    put_f32(&v[KEPT], row, choice.kept_mass);
    put_i32(&v[VERDICT], row, status < 0 ? status : ALEA_OK);
}
