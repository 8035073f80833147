/* Draws from probabilities: one token per row, and chains of drafts. */
#include <math.h>

#include "kernel/philox.h"
#include "ops/cpu.h"

alea_draw_at alea__call_draw(const alea_cpu_call *call, int32_t first, int64_t row, uint32_t draw) {
    const alea_view *seeds = &call->views[first], *offsets = &call->views[first + 1];
    const alea_view *words = &call->views[first + 2];
    const bool own_seed = seeds->size[0] > 1, own_offset = offsets->size[0] > 1;
    const int64_t seed = *(const int64_t *)alea__at(seeds, own_seed ? row : 0);
    const int64_t offset = *(const int64_t *)alea__at(offsets, own_offset ? row : 0);
    uint32_t word = own_seed || own_offset ? 0 : (uint32_t)row;
    if (words->data) word = (uint32_t)alea__i32_at(words, row);
    return (alea_draw_at){(uint64_t)seed, draw, word, (uint64_t)offset};
}

static uint32_t call_bits(const alea_cpu_call *call, int32_t first, int64_t row, uint32_t draw) {
    const alea_draw_at at = alea__call_draw(call, first, row, draw);
    return alea__draw_bits(at.seed, at.draw, at.row, at.offset);
}

void alea__run_sample_probs(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row) {
    enum { TOKENS, PROBS, SEED };
    const uint32_t bits = call_bits(call, SEED, row, 0);
    int32_t token;
    (void)alea__row_pick(scratch, alea__at(&call->views[PROBS], row), call->vocab, bits, &token);
    *(int32_t *)alea__at(&call->views[TOKENS], row) = token;
}

enum { TOKENS, ACCEPTED, DRAFT_PROBS, DRAFT_TOKENS, TARGET_PROBS, SEED };

/* How many drafts stand: the float32 comparison u * draft < target, one by one. */
static int32_t accepted_prefix(const alea_cpu_call *call, int64_t row, int32_t n_drafts) {
    for (int32_t i = 0; i < n_drafts; i++) {
        const int32_t token = *(const int32_t *)alea__at2(&call->views[DRAFT_TOKENS], row, i);
        const float *draft = alea__at2(&call->views[DRAFT_PROBS], row, i);
        const float *target = alea__at2(&call->views[TARGET_PROBS], row, i);
        const float u = (float)call_bits(call, SEED, row, (uint32_t)i) * 0x1p-24f;
        if (!(u * draft[token] < target[token])) return i;
    }
    return n_drafts;
}

void alea__run_chain_sample(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row) {
    const int32_t n_drafts = (int32_t)call->views[DRAFT_TOKENS].size[1];
    const int32_t accepted = accepted_prefix(call, row, n_drafts);
    const uint32_t bits = call_bits(call, SEED, row, (uint32_t)n_drafts);
    const float *target = alea__at2(&call->views[TARGET_PROBS], row, accepted);
    int32_t token = 0;
    bool placed = false;
    if (accepted < n_drafts) {
        const float *draft = alea__at2(&call->views[DRAFT_PROBS], row, accepted);
        scratch->kernels->residual(scratch->row, target, draft, call->vocab);
        placed = alea__row_pick(scratch, scratch->row, call->vocab, bits, &token);
    }
    if (!placed) (void)alea__row_pick(scratch, target, call->vocab, bits, &token);

    int32_t *out = alea__at(&call->views[TOKENS], row); /* contiguous along drafts */
    for (int32_t i = 0; i < accepted; i++)
        out[i] = *(const int32_t *)alea__at2(&call->views[DRAFT_TOKENS], row, i);
    out[accepted] = token;
    for (int32_t i = accepted + 1; i <= n_drafts; i++)
        out[i] = -1;
    *(int32_t *)alea__at(&call->views[ACCEPTED], row) = accepted;
}
