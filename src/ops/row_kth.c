/*
 * Exact order statistics of a row. Sixteen maxima stand for every 1024 values, so whatever `rank`
 * maxima reach, at least `rank` values reach: that bound is found among few numbers, and segments
 * below it are not read again. Where the rank is too deep for that, a sample gives the bound.
 * What is left is bisected in the order of float bits: at most 32 counts, whatever the data.
 */
#include <math.h>

#include "kernel/float_key.h"
#include "ops/row_scratch.h"

/* The next value up; +inf stays, both zeros step to the smallest denormal. */
static float float_above(float value) {
    if (value == INFINITY) return value;
    return value == 0 ? 0x1p-149f : alea__key_float(alea__float_key(value) + 1);
}

int32_t alea__row_collect(alea_row_scratch *scratch, float low) {
    const alea_row_scan *scan = &scratch->scan;
    int32_t count = 0;
    for (int32_t s = 0; s < scan->n_segments; s++) {
        if (!(scan->segment_max[s] >= low)) continue;
        const int32_t first = s * ALEA_SEGMENT;
        count +=
            scratch->kernels->collect_ge(scan->logits + first, alea__segment_length(scan, s), low,
                                         first, scratch->ids + count, scan->vocab - count);
    }
    for (int32_t i = 0; i < count; i++)
        scratch->values[i] = scan->logits[scratch->ids[i]];
    return count;
}

/*
 * The largest value that at least `rank` of v reach, or one below it that fewer than rank + slack
 * reach. Domain: at least rank of them reach low, and none is above high.
 */
static float bisect(const alea_kernel_table *kernels, const float *v, int32_t n, int32_t rank,
                    int32_t slack, float low, float high) {
    int64_t below = alea__float_key(low), above = alea__float_key(high);
    while (below < above) {
        const int64_t middle = below + (above - below + 1) / 2;
        const int32_t count = kernels->count_ge(v, n, alea__key_float((int32_t)middle));
        if (count < rank) {
            above = middle - 1;
        } else {
            below = middle;
            if (count - rank < slack) break;
        }
    }
    return alea__key_float((int32_t)below);
}

/* One of each stretch of the row, at a place that no period of the data can follow. */
static void take_sample(const float *x, int32_t n, int32_t n_sample, float *sample) {
    uint32_t state = 1;
    for (int32_t i = 0; i < n_sample; i++) {
        const int32_t first = (int32_t)((int64_t)n * i / n_sample);
        const int32_t next = (int32_t)((int64_t)n * (i + 1) / n_sample);
        state = state * 1664525u + 1013904223u;
        sample[i] = x[first + (int32_t)((uint64_t)state * (uint32_t)(next - first) >> 32)];
    }
}

/* A bound that a sample says about rank values reach, and a few standard deviations more; -inf
 * where the row is too short or the rank too deep for one. */
static float sampled_bound(alea_row_scratch *scratch, int32_t rank) {
    enum { SAMPLE = 2048 };
    const int32_t n = scratch->scan.vocab;
    if (n < 8 * SAMPLE) return -INFINITY;
    take_sample(scratch->scan.logits, n, SAMPLE, scratch->values);
    const double share = (double)rank / n;
    const double aim = SAMPLE * share + 4 * sqrt(SAMPLE * share * (1 - share)) + 4;
    if (aim >= SAMPLE) return -INFINITY;
    return bisect(scratch->kernels, scratch->values, SAMPLE, (int32_t)aim, 4, -INFINITY,
                  scratch->scan.max);
}

alea_kth alea__row_kth(alea_row_scratch *scratch, int32_t rank) {
    const alea_kernel_table *kernels = scratch->kernels;
    const float max = scratch->scan.max;
    const int32_t n = scratch->scan.vocab;
    const int32_t n_lanes = scratch->scan.n_segments * ALEA_LANES;
    if (rank == 1) return (alea_kth){max, -1};

    float low = -INFINITY;
    if (n > 2 * ALEA_SEGMENT && rank <= n_lanes / 2) {
        low = bisect(kernels, scratch->lanes, n_lanes, rank, rank / 8 + 1, low, max);
    } else {
        low = sampled_bound(scratch, rank);
    }
    if (low > -INFINITY) {
        const int32_t count = alea__row_collect(scratch, low);
        if (count >= rank) {
            /* Ties at the bound are common, and then there may be very many of them. */
            const float above = float_above(low);
            if (low == INFINITY || kernels->count_ge(scratch->values, count, above) < rank) {
                return (alea_kth){low, count};
            }
            return (alea_kth){bisect(kernels, scratch->values, count, rank, 0, above, max), count};
        }
    }
    return (alea_kth){bisect(kernels, scratch->scan.logits, n, rank, 0, -INFINITY, max), -1};
}
