/*
 * The one exponential of the project: constants that every instruction set shares, and nothing
 * else, so that a file compiled for a wide instruction set can include it safely.
 *
 * The weight of a logit x in a segment with exponent E, under a scale L (log2(e) / temperature):
 *
 *     t = fma(x, L, ALEA_EXP2_MAGIC - E)      its low bits hold n = rint(x*L) - E
 *     N = t - (ALEA_EXP2_MAGIC - E)
 *     f = fma(x, L, -N)                       in [-1/2, 1/2]
 *     w = C0 + f*(C1 + f*(C2 + f*(C3 + f*(C4 + f*C5))))     each step one fma; 2^29 * 2^f
 *     W = rint(w * 2^n), an unsigned integer, by adding bits(t) << 23 to bits(w)
 *
 * and W = 0 unless x > alea__weight_floor(L, E), which only spares the exponent from wrapping:
 * every weight below n = -30 rounds to 0 anyway. tools/derive-exp2.py made the coefficients,
 * tests/kernel/prove_exp2.c proves their error: docs/numerics.md.
 */
#ifndef ALEA_KERNEL_EXP2_POLY_H
#define ALEA_KERNEL_EXP2_POLY_H

#include <stdint.h>

#define ALEA_SEGMENT 1024 /* token ids per segment */
#define ALEA_LANES 16     /* lane maxima per segment */

/* W is at most 2^29.57. */
#define ALEA_WEIGHTS_PER_U32 4                  /* weights whose sum fits 32 bits */
#define ALEA_WEIGHT_BITS 29                     /* of the weight of a segment's exponent alone */
#define ALEA_MASS_SHIFT (40 - ALEA_WEIGHT_BITS) /* a row's mass counts in units of 2^(E - 40) */

#define ALEA_EXP2_MAGIC 0x1.8p23f
#define ALEA_EXP2_C0 0x1.000000p+29f
#define ALEA_EXP2_C1 0x1.62e428p+28f
#define ALEA_EXP2_C2 0x1.ebf9bcp+26f
#define ALEA_EXP2_C3 0x1.c6b7c2p+24f
#define ALEA_EXP2_C4 0x1.3ceb70p+22f
#define ALEA_EXP2_C5 0x1.5bba8cp+19f

/* Whether a segment whose scaled maximum is `top` has an exponent, and so a mass. NaN: none. */
static inline _Bool alea__has_exponent(float top) {
    return top >= -0x1p21f && top <= 0x1p21f;
}

/*
 * Logits at or below it weigh nothing; a kernel may raise smaller ones to it instead of testing
 * each. That needs a finite floor. Under a temperature so high that even -FLT_MAX weighs
 * something the floor is -inf, and a kernel must leave the segment to the reference.
 */
static inline float alea__weight_floor(float scale, int32_t exponent) {
    return ((float)exponent - 100.0f) / scale;
}

#endif
