/*
 * The next token of one row. Every filter keeps the logits above some cut, so their order comes
 * down to one number: the highest cut.
 */
#include <math.h>

#include "kernel/mass.h"
#include "kernel/philox.h"
#include "kernel/row.h"

alea_status alea__sampling_check(const alea_sampling *sampling, alea_error *error) {
    const float t = sampling->temperature;
    const float scale = t > 0.0f ? ALEA_LOG2E_F / t : 0.0f;
    if (!(t == 0.0f || (scale > 0.0f && scale < INFINITY))) {
        return alea_error_set(error, ALEA_EINVAL,
                              "temperature is %g; use 0 or a number from 1e-38 to 1e38", (double)t);
    }
    if (sampling->top_k < 0) {
        return alea_error_set(error, ALEA_EINVAL, "top_k is %d; use 0 for all tokens, or more",
                              (int)sampling->top_k);
    }
    if (!(sampling->top_p > 0.0f && sampling->top_p <= 1.0f)) {
        return alea_error_set(error, ALEA_EINVAL, "top_p is %g; the range is above 0 up to 1",
                              (double)sampling->top_p);
    }
    if (!(sampling->min_p >= 0.0f && sampling->min_p <= 1.0f)) {
        return alea_error_set(error, ALEA_EINVAL, "min_p is %g; the range is 0 to 1",
                              (double)sampling->min_p);
    }
    return ALEA_OK;
}

/* The highest of the cuts that top-k, top-p (of what top-k leaves) and min-p ask for. */
static float sampling_cut(const alea_row_scan *scan, const alea_mass_rule *rule,
                          const alea_sampling *sampling, uint64_t all) {
    float cut = -INFINITY;
    if (sampling->top_k > 0 && sampling->top_k < scan->vocab) {
        cut = alea__row_cut(scan, NULL, (uint64_t)sampling->top_k);
    }
    if (sampling->top_p < 1.0f) { /* 1 drops only what weighs nothing */
        const uint64_t still_in = cut == -INFINITY ? all : alea__mass_ge(scan, rule, cut);
        const uint64_t target = alea__mass_share(sampling->top_p, still_in);
        cut = fmaxf(cut, alea__row_cut_above(scan, rule, target, cut, still_in));
    }
    const float offset = sampling->temperature * alea__ln_min_p(sampling->min_p);
    return fmaxf(cut, scan->max + offset);
}

/* Temperature 0: the greedy token alone is kept, weighed at temperature 1. */
static void choose_greedy(const alea_row_scan *scan, const alea_mass_rule *rule, uint64_t all,
                          alea_choice *choice) {
    uint32_t weight;
    const float top = rule->shifted ? 0.0f : scan->max;
    scan->kernels->segment_weights(&top, 1, rule->scale, rule->exponent, &weight);
    const uint64_t kept = (uint64_t)weight
                          << ALEA_MASS_SHIFT; /* its segment has the row's exponent */
    choice->token = alea__row_greedy(scan);
    choice->sampled_logprob = alea__logprob(scan, rule, scan->max, alea__mass_lse(rule, kept));
    choice->kept_mass = (float)((double)kept / (double)all);
}

alea_status alea__row_choose(const alea_kernel_table *kernels, const float *logits, int32_t vocab,
                             const alea_sampling *sampling, const alea_draw_at *at,
                             alea_choice *choice) {
    if (vocab < 1 || vocab > ALEA_VOCAB_MAX) return ALEA_EINVAL;
    if (alea__sampling_check(sampling, NULL) != ALEA_OK) return ALEA_EINVAL;
    alea_row_scan scan;
    alea_mass_rule raw;
    uint64_t raw_mass;
    if (!alea__row_weigh(kernels, logits, vocab, 0, NULL, ALEA_LOG2E_F, &scan, &raw, &raw_mass)) {
        return ALEA_EROW;
    }
    if (sampling->temperature == 0.0f) {
        choose_greedy(&scan, &raw, raw_mass, choice);
    } else {
        const alea_mass_rule rule = alea__mass_rule(&scan, ALEA_LOG2E_F / sampling->temperature);
        const uint64_t all =
            rule.scale == raw.scale ? raw_mass : alea__mass_ge(&scan, &rule, -INFINITY);
        const float cut = sampling_cut(&scan, &rule, sampling, all);
        const uint32_t bits = alea__draw_bits(at->seed, at->draw, at->row, at->offset);
        uint64_t kept;
        choice->token = alea__mass_draw(&scan, &rule, cut, bits, &kept);
        const float x = logits[choice->token];
        choice->sampled_logprob = alea__logprob(&scan, &rule, x, alea__mass_lse(&rule, kept));
        choice->kept_mass = (float)((double)kept / (double)all);
    }
    choice->logprob =
        alea__logprob(&scan, &raw, logits[choice->token], alea__mass_lse(&raw, raw_mass));
    return ALEA_OK;
}
