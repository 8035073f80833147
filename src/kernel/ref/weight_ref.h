/* The weight of one logit: the rule of exp2_poly.h written out, for the leaves of this folder. */
#ifndef ALEA_KERNEL_REF_WEIGHT_REF_H
#define ALEA_KERNEL_REF_WEIGHT_REF_H

#include <math.h>

#include "base/half.h"
#include "kernel/exp2_poly.h"

/* 2^29 * 2^f for f in [-1/2, 1/2]. */
static inline float exp2_scaled(float f) {
    float w = ALEA_EXP2_C5;
    w = fmaf(w, f, ALEA_EXP2_C4);
    w = fmaf(w, f, ALEA_EXP2_C3);
    w = fmaf(w, f, ALEA_EXP2_C2);
    w = fmaf(w, f, ALEA_EXP2_C1);
    return fmaf(w, f, ALEA_EXP2_C0);
}

/* A weight with the two parts of its base-2 logarithm; all 0 where the weight is 0 by the floor. */
typedef struct weight_parts {
    uint32_t weight;
    int32_t whole;  /* n = N - E */
    float fraction; /* f */
} weight_parts;

static inline weight_parts weight_of(float x, float scale, int32_t exponent, float floor) {
    if (!(x > floor)) return (weight_parts){0, 0, 0.0f};
    const float magic = ALEA_EXP2_MAGIC - (float)exponent;
    const float t = fmaf(x, scale, magic);
    const float f = fmaf(x, scale, -(t - magic));
    const float w =
        alea__bits_float(alea__float_bits(exp2_scaled(f)) + (alea__float_bits(t) << 23));
    return (weight_parts){(uint32_t)rintf(w), (int32_t)(t - ALEA_EXP2_MAGIC), f};
}

#endif
