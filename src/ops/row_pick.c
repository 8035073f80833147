/*
 * A draw from a row of probabilities: masses of segments, the segment that holds the drawn point,
 * then its entries one by one. One pass over the row, and 1024 entries more.
 */
#include <float.h>
#include <math.h>

#include "kernel/prob_weight.h"
#include "ops/row_scratch.h"

/* Below 2^51 before it is aligned, so this shift leaves nothing. */
enum { DEEPEST_SHIFT = 51 };

/* A segment that the leaves may read: `x` itself, or a copy in which only weights are left. */
static const float *clean_segment(const float *x, int32_t n, float max, float *copy) {
    if (max <= FLT_MAX) return x;
    for (int32_t i = 0; i < n; i++)
        copy[i] = x[i] > 0 && x[i] <= FLT_MAX ? x[i] : 0;
    return copy;
}

static float largest(const float *x, int32_t n) {
    float max = 0;
    for (int32_t i = 0; i < n; i++) {
        if (x[i] > max) max = x[i];
    }
    return max;
}

static void weigh_segment(alea_row_scratch *scratch, int32_t s) {
    const int32_t n = alea__segment_length(&scratch->scan, s);
    float copy[ALEA_SEGMENT];
    float *max = &scratch->scan.segment_max[s];
    const float *x = clean_segment(scratch->scan.logits + (int64_t)s * ALEA_SEGMENT, n, *max, copy);
    if (x == copy) *max = largest(copy, n);
    scratch->masses[s] =
        *max > 0 ? scratch->kernels->prob_mass(x, n, alea__prob_exponent(*max)) : 0;
}

static void run_weigh(void *user, int32_t index) {
    alea_row_scratch *scratch = user;
    const int32_t first = index * (ALEA_ROW_CHUNK / ALEA_SEGMENT);
    const int32_t start = index * ALEA_ROW_CHUNK;
    const int32_t left = scratch->scan.vocab - start;
    const int32_t length = left < ALEA_ROW_CHUNK ? left : ALEA_ROW_CHUNK;
    scratch->kernels->lane_max(scratch->scan.logits + start, length,
                               scratch->lanes + first * ALEA_LANES,
                               scratch->scan.segment_max + first);
    for (int32_t s = first; s * ALEA_SEGMENT < start + length; s++)
        weigh_segment(scratch, s);
}

static uint64_t aligned(uint64_t mass, int32_t depth) {
    return depth < DEEPEST_SHIFT ? mass >> depth : 0;
}

static int32_t pick_in_segment(const alea_row_scratch *scratch, int32_t s, int32_t depth,
                               uint64_t left) {
    const float *x = scratch->scan.logits + s * ALEA_SEGMENT;
    const int32_t n = alea__segment_length(&scratch->scan, s);
    const int32_t exponent = alea__prob_exponent(scratch->scan.segment_max[s]);
    uint64_t sum = 0;
    int32_t i = 0;
    for (; i < n - 1; i++) {
        if (x[i] <= FLT_MAX) sum += alea__prob_weight(x[i], exponent);
        if (aligned(sum, depth) > left) break;
    }
    return s * ALEA_SEGMENT + i;
}

bool alea__row_pick(alea_row_scratch *scratch, const float *x, int32_t n, uint32_t bits,
                    int32_t *token) {
    alea_row_scan *scan = &scratch->scan;
    scan->logits = x;
    scan->vocab = n;
    scan->n_segments = (n + ALEA_SEGMENT - 1) / ALEA_SEGMENT;
    *token = 0;
    alea__pool_run(scratch->pool, run_weigh, scratch, (n + ALEA_ROW_CHUNK - 1) / ALEA_ROW_CHUNK);
    float max = 0;
    for (int32_t s = 0; s < scan->n_segments; s++) {
        if (scan->segment_max[s] > max) max = scan->segment_max[s];
    }
    if (!(max > 0)) return false;

    const int32_t exponent = alea__prob_exponent(max);
    uint64_t total = 0;
    for (int32_t s = 0; s < scan->n_segments; s++) {
        if (scratch->masses[s] == 0) continue;
        total += aligned(scratch->masses[s], exponent - alea__prob_exponent(scan->segment_max[s]));
    }
    __extension__ typedef unsigned __int128 wide;
    uint64_t left = (uint64_t)((wide)bits * total >> 24); /* below total, as bits < 2^24 */
    for (int32_t s = 0; s < scan->n_segments; s++) {
        if (scratch->masses[s] == 0) continue;
        const int32_t depth = exponent - alea__prob_exponent(scan->segment_max[s]);
        const uint64_t part = aligned(scratch->masses[s], depth);
        if (part > left) {
            *token = pick_in_segment(scratch, s, depth, left);
            return true;
        }
        left -= part;
    }
    return false; /* never: left began below the sum of the parts */
}
