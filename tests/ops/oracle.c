#include <math.h>
#include <stdlib.h>

#include "ops/oracle.h"

typedef struct item {
    float value;
    int32_t position;
} item;

static int by_value(const void *left, const void *right) {
    const item *a = left, *b = right;
    const bool a_nan = isnan(a->value), b_nan = isnan(b->value);
    if (a_nan != b_nan) return a_nan ? -1 : 1;
    if (!a_nan && a->value != b->value) return a->value > b->value ? -1 : 1;
    return a->position < b->position ? -1 : a->position > b->position;
}

static item *sorted(const float *x, int32_t n) {
    item *items = malloc((size_t)n * sizeof *items + 1);
    for (int32_t i = 0; i < n; i++)
        items[i] = (item){x[i], i};
    qsort(items, (size_t)n, sizeof *items, by_value);
    return items;
}

void oracle_order(int32_t *positions, const float *x, int32_t n) {
    item *items = sorted(x, n);
    for (int32_t i = 0; i < n; i++)
        positions[i] = items[i].position;
    free(items);
}

void oracle_topk(uint8_t *fate, const float *x, int32_t n, int32_t k) {
    if (k >= n) {
        for (int32_t i = 0; i < n; i++)
            fate[i] = KEPT;
        return;
    }
    item *items = sorted(x, n);
    const float kth = items[k - 1].value;
    for (int32_t i = 0; i < n; i++)
        fate[i] = x[i] >= kth ? KEPT : DROPPED;
    free(items);
}

void oracle_minp(uint8_t *fate, const float *x, int32_t n, float min_p) {
    float max = -INFINITY;
    for (int32_t i = 0; i < n; i++)
        max = isnan(x[i]) || isnan(max) ? NAN : fmaxf(max, x[i]);
    const float cut = max + (float)logl((long double)min_p);
    for (int32_t i = 0; i < n; i++)
        fate[i] = x[i] < cut ? DROPPED : KEPT;
}

/* Top-p over the entries that are still KEPT. A row without a distribution is left alone. */
static void topp_among(uint8_t *fate, const float *x, int32_t n, float p) {
    item *items = sorted(x, n);
    long double total = 0, above = 0;
    float max = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        if (fate[i] != KEPT) continue;
        if (isnan(x[i])) max = NAN;
        if (x[i] > max) max = x[i];
    }
    if (!isfinite(max)) {
        free(items);
        return;
    }
    for (int32_t i = n; i-- > 0;) {
        if (fate[items[i].position] == KEPT) total += expl((long double)items[i].value - max);
    }
    for (int32_t i = 0; i < n;) {
        long double group = 0;
        int32_t end = i;
        for (; end < n && items[end].value == items[i].value; end++) {
            if (fate[items[end].position] == KEPT)
                group += expl((long double)items[end].value - max);
        }
        const long double distance = above / total - (long double)p;
        for (int32_t j = i; j < end; j++) {
            uint8_t *f = &fate[items[j].position];
            if (*f != KEPT) continue;
            if (p == 0) {
                *f = DROPPED;
            } else if (i > 0 && fabsl(distance) <= ORACLE_MASS_BOUND) {
                *f = NEAR;
            } else {
                *f = distance < 0 ? KEPT : DROPPED;
            }
        }
        above += group;
        i = end;
    }
    free(items);
}

void oracle_topp(uint8_t *fate, const float *x, int32_t n, float p) {
    for (int32_t i = 0; i < n; i++) {
        fate[i] = KEPT;
        if (isnan(x[i])) {
            for (int32_t j = 0; j < n; j++)
                fate[j] = KEPT;
            return;
        }
    }
    topp_among(fate, x, n, p);
}

void oracle_topk_topp(uint8_t *fate, const float *x, int32_t n, int32_t k, float p) {
    oracle_topk(fate, x, n, k);
    for (int32_t i = 0; i < n; i++) {
        if (fate[i] == KEPT && isnan(x[i])) return;
    }
    /* Dropped NaNs stand first in the order and take no part. */
    topp_among(fate, x, n, p);
}

long double oracle_lse(const float *x, int32_t n) {
    float max = -INFINITY;
    long double sum = 0;
    for (int32_t i = 0; i < n; i++)
        max = fmaxf(max, x[i]);
    for (int32_t i = 0; i < n; i++)
        sum += expl((long double)x[i] - max);
    return max + logl(sum);
}

long double oracle_entropy(const float *x, int32_t n) {
    const long double lse = oracle_lse(x, n);
    long double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        const long double logprob = (long double)x[i] - lse;
        if (x[i] > -INFINITY) sum -= expl(logprob) * logprob;
    }
    return sum;
}

void oracle_softmax(long double *probs, const float *x, const uint8_t *fate, int32_t n,
                    float temperature) {
    long double sum = 0;
    float max = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        if (fate[i] == KEPT) max = fmaxf(max, x[i]);
    }
    for (int32_t i = 0; i < n; i++) {
        probs[i] = fate[i] == KEPT ? expl(((long double)x[i] - max) / temperature) : 0;
        sum += probs[i];
    }
    for (int32_t i = 0; i < n; i++)
        probs[i] /= sum;
}

uint32_t oracle_philox(uint64_t seed, uint32_t draw, uint32_t row, uint64_t offset) {
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t c[4] = {draw, row, (uint32_t)offset, (uint32_t)(offset >> 32)};
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)c[0] * 0xd2511f53u;
        const uint64_t p1 = (uint64_t)c[2] * 0xcd9e8d57u;
        const uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ c[1] ^ key[0], (uint32_t)p1,
                                  (uint32_t)(p0 >> 32) ^ c[3] ^ key[1], (uint32_t)p0};
        for (int i = 0; i < 4; i++)
            c[i] = next[i];
        key[0] += 0x9e3779b9u;
        key[1] += 0xbb67ae85u;
    }
    return c[0];
}

float oracle_uniform(uint64_t seed, uint32_t draw, uint32_t row, uint64_t offset) {
    return (float)(oracle_philox(seed, draw, row, offset) >> 8) * 0x1p-24f;
}

int32_t oracle_pick(const float *weights, int32_t n, float u, bool *sure) {
    long double total = 0, running = 0;
    for (int32_t i = 0; i < n; i++)
        total += weights[i];
    const long double point = (long double)u * total;
    int32_t last = -1;
    *sure = true;
    for (int32_t i = 0; i < n; i++) {
        if (!(weights[i] > 0)) continue;
        running += weights[i];
        last = i;
        const long double distance = running - point;
        if (fabsl(distance) <= total * ORACLE_MASS_BOUND) *sure = false;
        if (distance > 0) return i;
    }
    return last;
}
