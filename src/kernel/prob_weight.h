/* Between probabilities and integers (docs/numerics.md): the weight of a given probability in a
 * draw, and the probability of a weighed logit. */
#ifndef ALEA_KERNEL_PROB_WEIGHT_H
#define ALEA_KERNEL_PROB_WEIGHT_H

#include <stdint.h>
#include <string.h>

#include "kernel/exp2_poly.h"

/* floor(log2(p)) of a positive finite float32, denormals included: -149..127. */
static inline int32_t alea__prob_exponent(float p) {
    const double wide = p; /* every float32 is a normal double */
    uint64_t bits;
    memcpy(&bits, &wide, sizeof bits);
    return (int32_t)(bits >> 52 & 0x7ff) - 1023;
}

/* floor(p * 2^(40 - exponent)), below 2^41 where p < 2^(exponent + 1); 0 for p <= 0. */
static inline uint64_t alea__prob_weight(float p, int32_t exponent) {
    if (!(p > 0.0f)) return 0;
    const uint64_t bits = (uint64_t)(1023 + 40 - exponent) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return (uint64_t)((double)p * scale); /* the product is exact, the cast truncates */
}

/* A logit's weight in units of its row's mass, exactly; depth: of its segment, 0..50. */
static inline double alea__weight_share(uint32_t weight, int32_t depth) {
    const uint64_t bits = (uint64_t)(1023 + ALEA_MASS_SHIFT - depth) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return (double)weight * scale;
}

/* The probability of a logit in a row of `mass` > 0: at most 1. */
static inline float alea__weight_prob(uint32_t weight, int32_t depth, uint64_t mass) {
    return (float)(alea__weight_share(weight, depth) / (double)mass);
}

#endif
