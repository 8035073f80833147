/*
 * The integer rules of docs/numerics.md written out once more, token by token: exponents and
 * aligned masses from the reference weights, filters by looking at every token, draws by walking.
 * Quadratic in places; for rows of a few thousand tokens.
 */
#ifndef ALEA_TESTS_KERNEL_BY_DEFINITION_H
#define ALEA_TESTS_KERNEL_BY_DEFINITION_H

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "kernel/exp2_poly.h"
#include "kernel/kernel_table.h"

enum { DEFINED_MAX = 8192 };

/* A row weighed under one scale. */
typedef struct defined_row {
    const float *x;
    int32_t n;
    float max;
    int32_t exponent;
    int32_t exponents[DEFINED_MAX / ALEA_SEGMENT];
    bool counts[DEFINED_MAX / ALEA_SEGMENT]; /* the segment is not too deep to matter */
    uint32_t weights[DEFINED_MAX];
} defined_row;

static inline float defined_max(const float *x, int32_t n) {
    float most = -INFINITY;
    for (int32_t i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

static inline void defined_weigh(defined_row *row, const float *x, int32_t n, float scale) {
    row->x = x;
    row->n = n;
    row->max = defined_max(x, n);
    const bool shifted = !(fabsf(row->max * scale) <= 1572864.0f);
    row->exponent = shifted ? 0 : (int32_t)rintf(row->max * scale);
    for (int32_t s = 0; s * ALEA_SEGMENT < n; s++) {
        const int32_t first = s * ALEA_SEGMENT;
        const int32_t length = n - first < ALEA_SEGMENT ? n - first : ALEA_SEGMENT;
        float moved[ALEA_SEGMENT];
        for (int32_t i = 0; i < length; i++)
            moved[i] = x[first + i] - (shifted ? row->max : 0.0f);
        const float top = rintf(defined_max(moved, length) * scale);
        row->counts[s] = top >= -3e6f && (float)row->exponent - top < 64.0f;
        row->exponents[s] = row->counts[s] ? (int32_t)top : 0;
        if (row->counts[s]) {
            alea__segment_weights_ref(moved, length, scale, row->exponents[s],
                                      row->weights + first);
        }
    }
}

/* mu of the tokens that `kept` marks. */
static inline uint64_t defined_mass(const defined_row *row, const bool *kept) {
    uint64_t mass = 0;
    for (int32_t s = 0; s * ALEA_SEGMENT < row->n; s++) {
        uint64_t sum = 0;
        for (int32_t i = s * ALEA_SEGMENT; i < row->n && i < (s + 1) * ALEA_SEGMENT; i++) {
            if (kept[i]) sum += row->counts[s] ? row->weights[i] : 0;
        }
        if (row->counts[s]) mass += (sum << 11) >> (row->exponent - row->exponents[s]);
    }
    return mass;
}

/* The token at which the running mass of the kept tokens first exceeds r. */
static inline int32_t defined_draw(const defined_row *row, const bool *kept, uint64_t r) {
    for (int32_t s = 0; s * ALEA_SEGMENT < row->n; s++) {
        if (!row->counts[s]) continue;
        const int32_t depth = row->exponent - row->exponents[s];
        uint64_t sum = 0;
        for (int32_t i = s * ALEA_SEGMENT; i < row->n && i < (s + 1) * ALEA_SEGMENT; i++) {
            if (kept[i]) sum += row->weights[i];
            if ((sum << 11) >> depth > r) return i;
        }
        r -= (sum << 11) >> depth;
    }
    return -1;
}

static inline int defined_downward(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* Keep what at most k - 1 tokens exceed. */
static inline void defined_top_k(const defined_row *row, int32_t k, bool *kept) {
    if (k <= 0 || k >= row->n) return;
    float sorted[DEFINED_MAX];
    for (int32_t i = 0; i < row->n; i++)
        sorted[i] = row->x[i];
    qsort(sorted, (size_t)row->n, sizeof *sorted, defined_downward);
    for (int32_t i = 0; i < row->n; i++)
        kept[i] = kept[i] && row->x[i] >= sorted[k - 1];
}

/* Keep i where the kept tokens above it have less than `threshold`; one mass per distinct logit. */
static inline void defined_top_p(const defined_row *row, uint64_t threshold, bool *kept) {
    float sorted[DEFINED_MAX];
    bool above[DEFINED_MAX];
    for (int32_t i = 0; i < row->n; i++)
        sorted[i] = row->x[i];
    qsort(sorted, (size_t)row->n, sizeof *sorted, defined_downward);
    float last = INFINITY; /* the smallest logit that stays */
    for (int32_t at = 0; at < row->n; at++) {
        if (at && sorted[at] == sorted[at - 1]) continue;
        for (int32_t i = 0; i < row->n; i++)
            above[i] = kept[i] && row->x[i] > sorted[at];
        if (defined_mass(row, above) >= threshold) break;
        last = sorted[at];
    }
    for (int32_t i = 0; i < row->n; i++)
        kept[i] = kept[i] && row->x[i] >= last;
}

#endif
