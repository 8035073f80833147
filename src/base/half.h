/*
 * float16 and bfloat16 to float32 and back, one value at a time, without libm or intrinsics.
 *
 * Widening is exact. A NaN keeps its sign and payload; a signalling float16 NaN comes out quiet,
 * as the conversion instructions of x86 and ARM have it. Narrowing rounds to nearest even.
 */
#ifndef ALEA_BASE_HALF_H
#define ALEA_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t alea__float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float alea__bits_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float alea__bf16_widen(uint16_t half) {
    return alea__bits_float((uint32_t)half << 16);
}

static inline float alea__f16_widen(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t exponent = (half >> 10) & 0x1fu;
    const uint32_t fraction = half & 0x3ffu;
    if (exponent == 0x1f) { /* infinity, or NaN made quiet */
        const uint32_t quiet = fraction ? 0x400000u : 0;
        return alea__bits_float(sign | 0x7f800000u | quiet | fraction << 13);
    }
    if (exponent == 0) { /* zero or denormal: fraction * 2^-24, exact */
        return alea__bits_float(sign | alea__float_bits((float)fraction * 0x1p-24f));
    }
    return alea__bits_float(sign | (exponent + 112) << 23 | fraction << 13);
}

static inline uint16_t alea__bf16_narrow(float value) {
    const uint32_t bits = alea__float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static inline uint16_t alea__f16_narrow(float value) {
    const uint32_t bits = alea__float_bits(value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 rounds to infinity */
    if (magnitude < 0x38800000u) { /* below 2^-14: adding 1/2 leaves units of 2^-24, rounded once */
        const float aligned = alea__bits_float(magnitude) + 0.5f;
        return (uint16_t)(sign | (alea__float_bits(aligned) - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
}

#endif
