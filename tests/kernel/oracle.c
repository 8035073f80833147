/* Definitions written out; see oracle.h. */
#include <math.h>
#include <stdlib.h>

#include "kernel/oracle.h"

static float row_max(const float *x, int32_t n) {
    float most = x[0];
    for (int32_t i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

long double oracle_lse(const float *x, int32_t n, long double temperature) {
    const long double most = row_max(x, n);
    long double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += expl(((long double)x[i] - most) / temperature);
    return logl(sum);
}

long double oracle_logprob(const float *x, int32_t n, long double temperature, int32_t i) {
    const long double most = row_max(x, n);
    return ((long double)x[i] - most) / temperature - oracle_lse(x, n, temperature);
}

long double oracle_entropy(const float *x, int32_t n) {
    const long double most = row_max(x, n), lse = oracle_lse(x, n, 1);
    long double entropy = 0;
    for (int32_t i = 0; i < n; i++) {
        const long double logprob = (long double)x[i] - most - lse;
        if (isfinite(x[i])) entropy -= expl(logprob) * logprob;
    }
    return entropy;
}

long double oracle_share(const float *x, int32_t n, long double temperature, float v,
                         bool or_equal) {
    const long double most = row_max(x, n);
    long double part = 0, whole = 0;
    for (int32_t i = 0; i < n; i++) {
        const long double weight = expl(((long double)x[i] - most) / temperature);
        whole += weight;
        if (x[i] > v || (or_equal && x[i] == v)) part += weight;
    }
    return part / whole;
}

static const float *order_values;

static int order_compare(const void *a, const void *b) {
    const int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    const float x = order_values[i], y = order_values[j];
    if (x != y) return x > y ? -1 : 1;
    return (i > j) - (i < j);
}

void oracle_order(const float *values, int32_t n, int32_t *ids) {
    for (int32_t i = 0; i < n; i++)
        ids[i] = i;
    order_values = values;
    qsort(ids, (size_t)n, sizeof *ids, order_compare);
}

/* The value that chi-square with `freedom` degrees exceeds with probability 1e-6, by the cube
 * root approximation of Wilson and Hilferty. */
static double chi_square_limit(double freedom) {
    const double spread = 2.0 / (9.0 * freedom);
    return freedom * pow(1.0 - spread + 4.7534 * sqrt(spread), 3);
}

double oracle_chi_square(const int32_t *counts, const double *probs, int32_t n, int32_t draws) {
    double statistic = 0, pooled_expected = 0, pooled_count = 0;
    int32_t bins = 0;
    for (int32_t i = 0; i < n; i++) {
        const double expected = probs[i] * draws;
        if (probs[i] == 0 && counts[i] > 0) return INFINITY;
        if (expected < 8) {
            pooled_expected += expected;
            pooled_count += counts[i];
            continue;
        }
        statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
        bins++;
    }
    if (pooled_expected >= 8) {
        const double off = pooled_count - pooled_expected;
        statistic += off * off / pooled_expected;
        bins++;
    }
    return bins < 2 ? 0 : statistic / chi_square_limit(bins - 1);
}
