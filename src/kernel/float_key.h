/* float32 values as integers of the same order, to search among all of them by bisection. */
#ifndef ALEA_KERNEL_FLOAT_KEY_H
#define ALEA_KERNEL_FLOAT_KEY_H

#include "base/half.h"

/* Ordered like the floats, -0 just below +0; for anything but NaN. */
static inline int32_t alea__float_key(float value) {
    const int32_t bits = (int32_t)alea__float_bits(value);
    return bits < 0 ? bits ^ 0x7fffffff : bits;
}

static inline float alea__key_float(int32_t key) {
    return alea__bits_float((uint32_t)(key < 0 ? key ^ 0x7fffffff : key));
}

/* Halfway from low to high, low <= high, without overflow; below high if they differ. */
static inline int32_t alea__key_middle(int32_t low, int32_t high) {
    return low + (int32_t)(((int64_t)high - low) / 2);
}

#endif
