/*
 * One row's report. Order and rank are those of reported values, not of logits: distinct logits
 * may report the same. A reported value is monotone in the logit, so "reports more than r" is
 * "reaches some logit", and that logit is found by bisection over the float32 values.
 */
#include <math.h>

#include "kernel/float_key.h"
#include "kernel/mass.h"
#include "kernel/row.h"

/* Elements of one lane of a segment; alea__row_scan says why this bounds the candidates. */
enum { LANE_ELEMENTS = ALEA_SEGMENT / ALEA_LANES, CANDIDATES = LANE_ELEMENTS * (ALEA_TOP_MAX - 1) };

typedef struct reporter {
    const alea_row_scan *scan;
    const alea_mass_rule *rule;
    double lse;
} reporter;

static float report_of(const reporter *r, float x) {
    return alea__logprob(r->scan, r->rule, x, r->lse);
}

/* Whether x reports more than `logprob`, or at least that much. */
static bool reports(const reporter *r, float x, float logprob, bool or_equal) {
    const float reported = report_of(r, x);
    return or_equal ? reported >= logprob : reported > logprob;
}

/* The smallest float32 that reports more than (or at least) `logprob`; false: not even the row's
 * maximum does. Any `near` gives the same; one that reports `logprob` is a few steps away. */
static bool cut_find(const reporter *r, float near, float logprob, bool or_equal, float *cut) {
    if (!reports(r, r->scan->max, logprob, or_equal)) return false;
    if (reports(r, -INFINITY, logprob, or_equal)) {
        *cut = -INFINITY;
        return true;
    }
    int64_t low = alea__float_key(-INFINITY), high = alea__float_key(r->scan->max);
    int64_t at = alea__float_key(near), step = 1;
    while (high - low > 1) {
        if (at <= low || at >= high) at = low + (high - low) / 2;
        if (reports(r, alea__key_float((int32_t)at), logprob, or_equal)) {
            high = at;
            at -= step;
        } else {
            low = at;
            at += step;
        }
        if (step < high - low) step *= 4;
    }
    *cut = alea__key_float((int32_t)high);
    return true;
}

static int32_t rank_of(const reporter *r, float logit, float logprob) {
    float cut;
    return cut_find(r, logit, logprob, false, &cut) ? 1 + alea__row_count_ge(r->scan, cut) : 1;
}

/* Insert into the n best of at most k, in order; returns how many there are now. Entries come by
 * rising id, so an equal one stays behind. */
static int32_t top_insert(alea_alternative *top, int32_t n, int32_t k, alea_alternative entry) {
    if (n == k && !(entry.logprob > top[k - 1].logprob)) return n;
    int32_t i = n < k ? n++ : k - 1;
    for (; i > 0 && entry.logprob > top[i - 1].logprob; i--)
        top[i] = top[i - 1];
    top[i] = entry;
    return n;
}

/* Every token that reports more than `group`'s value: fewer than k lanes hold them. */
static int32_t top_above(const reporter *r, float above, int32_t k, alea_alternative *top) {
    const alea_row_scan *scan = r->scan;
    int32_t n_top = 0, n_ids = 0;
    int32_t ids[CANDIDATES];
    for (int32_t s = 0; s < scan->n_segments && n_ids < CANDIDATES; s++) {
        if (!(scan->segment_max[s] >= above)) continue;
        const int32_t first = s * ALEA_SEGMENT;
        n_ids += scan->kernels->collect_ge(scan->logits + first, alea__segment_length(scan, s),
                                           above, first, ids + n_ids, CANDIDATES - n_ids);
    }
    for (int32_t i = 0; i < n_ids; i++) {
        const alea_alternative entry = {ids[i], report_of(r, scan->logits[ids[i]])};
        n_top = top_insert(top, n_top, k, entry);
    }
    return n_top;
}

/* Fill up with the smallest ids among the equals: logit in [from, above). */
static void top_fill(const reporter *r, float from, float above, float logprob, int32_t n_top,
                     int32_t k, alea_alternative *top) {
    const alea_row_scan *scan = r->scan;
    for (int32_t s = 0; s < scan->n_segments && n_top < k; s++) {
        if (!(scan->segment_max[s] >= from)) continue;
        int32_t ids[ALEA_SEGMENT];
        const int32_t first = s * ALEA_SEGMENT;
        const int32_t n = scan->kernels->collect_ge(
            scan->logits + first, alea__segment_length(scan, s), from, first, ids, ALEA_SEGMENT);
        for (int32_t i = 0; i < n && n_top < k; i++) {
            if (scan->logits[ids[i]] >= above) continue;
            top[n_top++] = (alea_alternative){ids[i], logprob};
        }
    }
}

static void top_find(const reporter *r, float group, int32_t k, alea_alternative *top) {
    const float logprob = report_of(r, group);
    float above = NAN, from = -INFINITY; /* NAN: nothing reports more */
    int32_t n_top = 0;
    if (cut_find(r, group, logprob, false, &above)) n_top = top_above(r, above, k, top);
    if (n_top == k) return;
    /* The group's own logit is there, so it succeeds. */
    (void)cut_find(r, group, logprob, true, &from);
    top_fill(r, from, above, logprob, n_top, k, top);
}

alea_status alea__row_report_shared(const alea_kernel_table *kernels, alea_pool *pool,
                                    const float *logits, int32_t vocab, int32_t token, int32_t k,
                                    bool want_entropy, alea_row_report *report) {
    if (vocab < 1 || vocab > ALEA_VOCAB_MAX || k < 0 || k > ALEA_TOP_MAX) return ALEA_EINVAL;
    if (token < -1 || token >= vocab) return ALEA_EINVAL;
    const int32_t n_top = k < vocab ? k : vocab;
    alea_row_scan scan;
    float group = -INFINITY;
    alea_mass_rule rule;
    uint64_t mass;
    if (!alea__row_weigh(kernels, pool, logits, vocab, n_top, &group, ALEA_LOG2E_F, &scan, &rule,
                         &mass)) {
        return ALEA_EROW;
    }
    const reporter r = {&scan, &rule, alea__mass_lse(&rule, mass)};

    report->token = token;
    report->logprob = token < 0 ? NAN : report_of(&r, logits[token]);
    report->rank = token < 0 ? 0 : rank_of(&r, logits[token], report->logprob);
    report->greedy = alea__row_greedy(&scan);
    report->entropy = want_entropy ? alea__mass_entropy(&scan, &rule, mass) : 0.0f;
    /* From the maximum, so that the rounding of the scale cancels as it does in a report. */
    const double from = rule.shifted ? 0.0 : (double)scan.max;
    report->lse = (double)scan.max - fma(from, rule.slope, -r.lse);
    report->n_top = n_top;
    if (n_top) top_find(&r, group, n_top, report->top);
    return ALEA_OK;
}

alea_status alea__row_selected(const alea_kernel_table *kernels, const float *logits, int32_t vocab,
                               const int32_t *tokens, int32_t n_tokens, float *logprobs) {
    if (vocab < 1 || vocab > ALEA_VOCAB_MAX) return ALEA_EINVAL;
    if (n_tokens < 1 || n_tokens > ALEA_SELECTED_MAX) return ALEA_EINVAL;
    for (int32_t i = 0; i < n_tokens; i++) {
        if (tokens[i] < 0 || tokens[i] >= vocab) return ALEA_EINVAL;
    }
    alea_row_scan scan;
    alea_mass_rule rule;
    uint64_t mass;
    if (!alea__row_weigh(kernels, NULL, logits, vocab, 0, NULL, ALEA_LOG2E_F, &scan, &rule,
                         &mass)) {
        return ALEA_EROW;
    }
    const double lse = alea__mass_lse(&rule, mass);
    for (int32_t i = 0; i < n_tokens; i++) {
        logprobs[i] = alea__logprob(&scan, &rule, logits[tokens[i]], lse);
    }
    return ALEA_OK;
}
