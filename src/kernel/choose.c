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

/* A row that is chosen from. Masses that no answer needs are never summed. */
typedef struct chooser {
    const alea_sampling *sampling;
    alea_row_scan scan;
    alea_mass_rule rule; /* at the temperature */
    bool has_all;
    uint64_t all; /* the row's mass under `rule` */
} chooser;

static uint64_t mass_of_all(chooser *c) {
    if (!c->has_all) c->all = alea__mass_ge(&c->scan, &c->rule, -INFINITY);
    c->has_all = true;
    return c->all;
}

/* The highest of the cuts that top-k, top-p (of what top-k leaves) and min-p ask for. */
static float sampling_cut(chooser *c) {
    const alea_sampling *sampling = c->sampling;
    float cut = -INFINITY;
    if (sampling->top_k > 0 && sampling->top_k < c->scan.vocab) {
        cut = alea__row_cut(&c->scan, NULL, (uint64_t)sampling->top_k);
    }
    if (sampling->top_p < 1.0f) { /* 1 drops only what weighs nothing */
        const uint64_t still_in =
            cut == -INFINITY ? mass_of_all(c) : alea__mass_ge(&c->scan, &c->rule, cut);
        const uint64_t target = alea__mass_share(sampling->top_p, still_in);
        cut = fmaxf(cut, alea__row_cut_above(&c->scan, &c->rule, target, cut, still_in));
    }
    const float offset = sampling->temperature * alea__ln_min_p(sampling->min_p);
    return fmaxf(cut, c->scan.max + offset);
}

/* Temperature 0: the greedy token alone is kept, weighed at temperature 1. Returns its mass. */
static uint64_t choose_greedy(const chooser *c, int32_t *token) {
    uint32_t weight;
    const float top = c->rule.shifted ? 0.0f : c->scan.max;
    c->scan.kernels->segment_weights(&top, 1, c->rule.scale, c->rule.exponent, &weight);
    *token = alea__row_greedy(&c->scan);
    return (uint64_t)weight << ALEA_MASS_SHIFT; /* its segment has the row's exponent */
}

/* The row's maxima, the raw rule and mass where they are wanted, and the rule at the temperature.
 */
static bool chooser_make(chooser *c, const alea_kernel_table *kernels, alea_pool *pool,
                         const float *logits, int32_t vocab, unsigned wants, alea_mass_rule *raw,
                         uint64_t *raw_mass) {
    const float t = c->sampling->temperature;
    const float scale = t == 0.0f ? ALEA_LOG2E_F : ALEA_LOG2E_F / t;
    const bool needs_all = (wants & ALEA_CHOOSE_KEPT_MASS) != 0 ||
                           (t != 0.0f && c->sampling->top_p < 1.0f && c->sampling->top_k == 0);
    if (wants & ALEA_CHOOSE_LOGPROB) {
        if (!alea__row_weigh(kernels, pool, logits, vocab, 0, NULL, ALEA_LOG2E_F, &c->scan, raw,
                             raw_mass)) {
            return false;
        }
        c->has_all = scale == raw->scale;
        c->all = *raw_mass;
    } else if (needs_all) {
        c->has_all = true;
        if (!alea__row_weigh(kernels, pool, logits, vocab, 0, NULL, scale, &c->scan, &c->rule,
                             &c->all)) {
            return false;
        }
    } else {
        c->has_all = false;
        alea__row_scan(kernels, pool, logits, vocab, 0, NULL, &c->scan);
        if (!alea__row_is_sound(&c->scan)) return false;
    }
    c->rule = alea__mass_rule(&c->scan, scale);
    return true;
}

alea_status alea__row_choose_shared(const alea_kernel_table *kernels, alea_pool *pool,
                                    const float *logits, int32_t vocab,
                                    const alea_sampling *sampling, const alea_draw_at *at,
                                    unsigned wants, alea_choice *choice) {
    if (vocab < 1 || vocab > ALEA_VOCAB_MAX) return ALEA_EINVAL;
    if (alea__sampling_check(sampling, NULL) != ALEA_OK) return ALEA_EINVAL;
    chooser c = {.sampling = sampling};
    alea_mass_rule raw;
    uint64_t raw_mass = 0, kept;
    if (!chooser_make(&c, kernels, pool, logits, vocab, wants, &raw, &raw_mass)) return ALEA_EROW;
    int32_t token;
    if (sampling->temperature == 0.0f) {
        kept = choose_greedy(&c, &token);
    } else {
        const uint32_t bits = alea__draw_bits(at->seed, at->draw, at->row, at->offset);
        token = alea__mass_draw(&c.scan, &c.rule, sampling_cut(&c), bits, &kept);
    }
    const float x = logits[token];
    choice->token = token;
    choice->sampled_logprob = alea__logprob(&c.scan, &c.rule, x, alea__mass_lse(&c.rule, kept));
    choice->kept_mass = choice->logprob = NAN;
    if (wants & ALEA_CHOOSE_KEPT_MASS) {
        choice->kept_mass = (float)((double)kept / (double)mass_of_all(&c));
    }
    if (wants & ALEA_CHOOSE_LOGPROB) {
        choice->logprob = alea__logprob(&c.scan, &raw, x, alea__mass_lse(&raw, raw_mass));
    }
    return ALEA_OK;
}
