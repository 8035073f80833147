/*
 * Chains of drafts verified by raw logits. A test needs the mass of a row and the weight of one
 * token, so rows of probabilities exist only where a draft was rejected, and then in the scratch.
 */
#include <math.h>

#include "kernel/mass.h"
#include "kernel/philox.h"
#include "kernel/prob_weight.h"
#include "ops/cpu.h"

enum { TOKENS, ACCEPTED, VERDICTS, DRAFT_LOGITS, DRAFT_TOKENS, TARGET_LOGITS, TEMPERATURE, SEED };

/* One chain at work. */
typedef struct chain {
    const alea_cpu_call *call;
    alea_row_scratch *scratch;
    int64_t row;
    float scale; /* log2(e) / temperature; 0: greedy */
    alea_mass_rule rule;
    uint64_t mass; /* of the row that was opened last, whose scan the scratch has */
} chain;

/* Row i of one model, weighed; false: it is no distribution. */
static bool open_row(chain *c, int32_t argument, int64_t i) {
    const alea_view *view = &c->call->views[argument];
    const float *x = alea__at2(view, c->row, i);
    if (view->dtype_bit != ALEA_BIT_F32) {
        alea__row_widen(c->scratch, x, c->call->vocab, view->dtype_bit);
        x = c->scratch->row;
    }
    return alea__row_weigh(c->scratch->kernels, c->scratch->pool, x, c->call->vocab, 0, NULL,
                           c->scale > 0 ? c->scale : ALEA_LOG2E_F, &c->scratch->scan, &c->rule,
                           &c->mass);
}

/* Probabilities of n logits from x on, which lie in segment s of the open row. out may be x. */
static void put_probs(const chain *c, int32_t s, const float *x, int32_t n, float *out) {
    const alea_row_scan *scan = &c->scratch->scan;
    int32_t exponent;
    if (!alea__segment_exponent(scan, &c->rule, s, &exponent)) {
        for (int32_t i = 0; i < n; i++)
            out[i] = 0;
        return;
    }
    float shifted[ALEA_SEGMENT];
    for (int32_t i = 0; i < n && c->rule.shifted; i++)
        shifted[i] = x[i] - scan->max;
    uint32_t weights[ALEA_SEGMENT];
    scan->kernels->segment_weights(c->rule.shifted ? shifted : x, n, c->rule.scale, exponent,
                                   weights);
    for (int32_t i = 0; i < n; i++)
        out[i] = alea__weight_prob(weights[i], c->rule.exponent - exponent, c->mass);
}

static float prob_of(const chain *c, int32_t token) {
    float prob;
    put_probs(c, token / ALEA_SEGMENT, c->scratch->scan.logits + token, 1, &prob);
    return prob;
}

static void put_row(const chain *c, float *out) {
    const alea_row_scan *scan = &c->scratch->scan;
    for (int32_t s = 0; s < scan->n_segments; s++)
        put_probs(c, s, scan->logits + s * ALEA_SEGMENT, alea__segment_length(scan, s),
                  out + s * ALEA_SEGMENT);
}

typedef enum verdict { STANDS, FALLS, FAILED } verdict;

static verdict test(chain *c, int32_t i, int32_t token) {
    if (!open_row(c, TARGET_LOGITS, i)) return FAILED;
    if (c->scale == 0) return alea__row_greedy(&c->scratch->scan) == token ? STANDS : FALLS;
    const float target = prob_of(c, token);
    float draft = 1;
    if (c->call->views[DRAFT_LOGITS].data) {
        if (!open_row(c, DRAFT_LOGITS, i)) return FAILED;
        draft = prob_of(c, token);
    }
    const alea_draw_at at = alea__call_draw(c->call, SEED, c->row, (uint32_t)i);
    const float u = (float)alea__draw_bits(at.seed, at.draw, at.row, at.offset) * 0x1p-24f;
    return u * draft < target ? STANDS : FALLS;
}

/* The token at position i, after a draft that fell there (rejected), or after all (-1). */
static bool place(chain *c, int32_t i, int32_t rejected, int32_t n_drafts, int32_t *token) {
    alea_row_scratch *scratch = c->scratch;
    const bool residual = rejected >= 0 && c->scale > 0;
    const bool certain = !c->call->views[DRAFT_LOGITS].data;
    if (residual && !certain) {
        if (!open_row(c, DRAFT_LOGITS, i)) return false;
        put_row(c, scratch->clean);
    }
    if (!open_row(c, TARGET_LOGITS, i)) return false;
    if (c->scale == 0) {
        *token = alea__row_greedy(&scratch->scan);
        return true;
    }
    const alea_draw_at at = alea__call_draw(c->call, SEED, c->row, (uint32_t)n_drafts);
    const uint32_t bits = alea__draw_bits(at.seed, at.draw, at.row, at.offset);
    const int32_t n = c->call->vocab;
    put_row(c, scratch->row);
    if (residual && certain) {
        scratch->row[rejected] = 0; /* max(0, target - 1); it fell, so others have mass */
    } else if (residual) {
        scratch->kernels->residual(scratch->row, scratch->row, scratch->clean, n);
    }
    if (alea__row_pick(scratch, scratch->row, n, bits, token)) return true;
    if (!open_row(c, TARGET_LOGITS, i)) return false; /* a residual without mass */
    put_row(c, scratch->row);
    return alea__row_pick(scratch, scratch->row, n, bits, token);
}

void alea__run_chain_logits(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row) {
    const alea_view *v = call->views;
    const int32_t n_drafts = (int32_t)v[DRAFT_TOKENS].size[1];
    const int32_t *drafts = alea__at(&v[DRAFT_TOKENS], row); /* contiguous along drafts */
    const float t = v[TEMPERATURE].data ? alea__f32_at(&v[TEMPERATURE], row) : 1;
    chain c = {.call = call, .scratch = scratch, .row = row};
    c.scale = t > 0 ? ALEA_LOG2E_F / t : 0;

    verdict last = STANDS;
    int32_t accepted = 0, token = -1;
    for (; accepted < n_drafts; accepted++) {
        last = test(&c, accepted, drafts[accepted]);
        if (last != STANDS) break;
    }
    bool good = last != FAILED;
    const int32_t rejected = last == FALLS ? drafts[accepted] : -1;
    if (good) good = place(&c, accepted, rejected, n_drafts, &token);

    int32_t *out = alea__at(&v[TOKENS], row);
    for (int32_t i = 0; i <= n_drafts; i++)
        out[i] = i < accepted ? drafts[i] : i == accepted && good ? token : -1;
    *(int32_t *)alea__at(&v[ACCEPTED], row) = accepted;
    if (v[VERDICTS].data) *(int32_t *)alea__at(&v[VERDICTS], row) = good ? ALEA_OK : ALEA_EROW;
}
