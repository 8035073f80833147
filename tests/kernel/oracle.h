/*
 * Answers by definition, in long double and by sorting: slow, and sharing nothing with the code
 * under test but the float32 logits. Rows are sound: no NaN, no +inf, something finite.
 */
#ifndef ALEA_TESTS_KERNEL_ORACLE_H
#define ALEA_TESTS_KERNEL_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

/* ln of the sum of exp(x/T), less max/T: in [0, ln n]. */
long double oracle_lse(const float *x, int32_t n, long double temperature);

/* ln of the probability of token i. */
long double oracle_logprob(const float *x, int32_t n, long double temperature, int32_t i);

/* In nats, at temperature 1. */
long double oracle_entropy(const float *x, int32_t n);

/* The probability of all tokens with a logit > v (or >= v). */
long double oracle_share(const float *x, int32_t n, long double temperature, float v,
                         bool or_equal);

/* Ids ordered by value downward, then id upward. */
void oracle_order(const float *values, int32_t n, int32_t *ids);

/*
 * The chi-square statistic of counts against probabilities of the same tokens, bins of less than
 * 8 expected draws pooled, as a multiple of the value that a true hypothesis exceeds once in a
 * million times: above 1 means that the draws do not follow the probabilities. A count where the
 * probability is 0 gives infinity.
 */
double oracle_chi_square(const int32_t *counts, const double *probs, int32_t n, int32_t draws);

#endif
