/* A probability as an integer: the weights of draws from given probabilities (docs/numerics.md). */
#ifndef ALEA_KERNEL_PROB_WEIGHT_H
#define ALEA_KERNEL_PROB_WEIGHT_H

#include <stdint.h>
#include <string.h>

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

#endif
