/*
 * AVX-512 on any processor, so that its leaves are proved where the machine has none: SIMDe, and
 * what SIMDe 0.7.4 lacks, one lane at a time. Included by src/kernel/x86/avx512_inline.h in place
 * of the compiler's own header.
 */
#ifndef ALEA_TESTS_KERNEL_SIMDE_AVX512_H
#define ALEA_TESTS_KERNEL_SIMDE_AVX512_H

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

#include <math.h>
#include <string.h>

#include "base/half.h"

#define __mmask16 simde__mmask16

/* Its multiply-adds round twice where the target has no such instruction. */
#undef _mm512_fmadd_ps
#undef _mm512_fmsub_ps
#define _mm512_fmadd_ps emulated_fmadd
#define _mm512_fmsub_ps emulated_fmsub
#define _mm512_cvtps_epi32 emulated_cvtps_epi32
#define _mm512_mask_loadu_ps emulated_mask_loadu_ps
#define _mm512_mask_storeu_ps emulated_mask_storeu_ps
#define _mm512_mask_storeu_epi32 emulated_mask_storeu_epi32
#define _mm512_cvtph_ps emulated_cvtph_ps
#define _mm512_cvtepu16_epi32 emulated_cvtepu16_epi32
#define _mm512_cvtps_pd emulated_cvtps_pd
#define _mm512_cvttpd_epi64 emulated_cvttpd_epi64

static inline __m512 emulated_fmadd(__m512 a, __m512 b, __m512 c) {
    float x[16], y[16], z[16];
    _mm512_storeu_ps(x, a);
    _mm512_storeu_ps(y, b);
    _mm512_storeu_ps(z, c);
    for (int i = 0; i < 16; i++)
        x[i] = fmaf(x[i], y[i], z[i]);
    return _mm512_loadu_ps(x);
}

static inline __m512 emulated_fmsub(__m512 a, __m512 b, __m512 c) {
    float x[16], y[16], z[16];
    _mm512_storeu_ps(x, a);
    _mm512_storeu_ps(y, b);
    _mm512_storeu_ps(z, c);
    for (int i = 0; i < 16; i++)
        x[i] = fmaf(x[i], y[i], -z[i]);
    return _mm512_loadu_ps(x);
}

static inline __m512i emulated_cvtps_epi32(__m512 a) {
    float x[16];
    int32_t y[16];
    _mm512_storeu_ps(x, a);
    for (int i = 0; i < 16; i++) {
        const float whole = rintf(x[i]);
        y[i] = whole >= -0x1p31f && whole < 0x1p31f ? (int32_t)whole : INT32_MIN;
    }
    return _mm512_loadu_si512(y);
}

static inline __m512 emulated_mask_loadu_ps(__m512 other, __mmask16 mask, const float *p) {
    float x[16];
    _mm512_storeu_ps(x, other);
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) x[i] = p[i];
    return _mm512_loadu_ps(x);
}

static inline void emulated_mask_storeu_epi32(void *p, __mmask16 mask, __m512i a) {
    int32_t x[16];
    _mm512_storeu_si512(x, a);
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) memcpy((char *)p + 4 * i, x + i, 4);
}

static inline void emulated_mask_storeu_ps(float *p, __mmask16 mask, __m512 a) {
    emulated_mask_storeu_epi32(p, mask, _mm512_castps_si512(a));
}

static inline __m512 emulated_cvtph_ps(__m256i a) {
    uint16_t x[16];
    float y[16];
    memcpy(x, &a, sizeof x);
    for (int i = 0; i < 16; i++)
        y[i] = alea__f16_widen(x[i]);
    return _mm512_loadu_ps(y);
}

static inline __m512i emulated_cvtepu16_epi32(__m256i a) {
    uint16_t x[16];
    int32_t y[16];
    memcpy(x, &a, sizeof x);
    for (int i = 0; i < 16; i++)
        y[i] = x[i];
    return _mm512_loadu_si512(y);
}

static inline __m512d emulated_cvtps_pd(__m256 a) {
    float x[8];
    double y[8];
    memcpy(x, &a, sizeof x);
    for (int i = 0; i < 8; i++)
        y[i] = (double)x[i];
    return _mm512_loadu_pd(y);
}

static inline __m512i emulated_cvttpd_epi64(__m512d a) {
    double x[8];
    int64_t y[8];
    _mm512_storeu_pd(x, a);
    for (int i = 0; i < 8; i++)
        y[i] = (int64_t)x[i];
    return _mm512_loadu_si512(y);
}

#endif
