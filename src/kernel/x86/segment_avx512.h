/*
 * One segment at a time: its maxima and its mass, for the leaves that need one of them or both.
 *
 * Maxima: sixteen lanes are one register. The instruction drops NaN, so pairs of registers are
 * tested for it, and a segment that holds one is left to the reference.
 * Mass: four accumulators of 32 bits take four weights each, then go into one of 64 bits.
 */
#ifndef ALEA_KERNEL_X86_SEGMENT_AVX512_H
#define ALEA_KERNEL_X86_SEGMENT_AVX512_H

#include "kernel/x86/avx512_inline.h"

enum { STRIDE = 128, STEPS = ALEA_SEGMENT / STRIDE };

static inline __mmask16 any_nan(__m512 a, __m512 b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
}

/* Maxima of a whole segment; returns whether it holds a NaN. */
static inline unsigned whole_segment(const float *x, __m512 *lanes) {
    __m512 m0 = _mm512_set1_ps(NEGATIVE_INFINITY), m1 = m0, m2 = m0, m3 = m0;
    unsigned nan = 0;
    for (int i = 0; i < STEPS; i++, x += STRIDE) {
        const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
        const __m512 c = _mm512_loadu_ps(x + 32), d = _mm512_loadu_ps(x + 48);
        const __m512 e = _mm512_loadu_ps(x + 64), f = _mm512_loadu_ps(x + 80);
        const __m512 g = _mm512_loadu_ps(x + 96), h = _mm512_loadu_ps(x + 112);
        m0 = _mm512_max_ps(m0, _mm512_max_ps(a, b));
        m1 = _mm512_max_ps(m1, _mm512_max_ps(c, d));
        m2 = _mm512_max_ps(m2, _mm512_max_ps(e, f));
        m3 = _mm512_max_ps(m3, _mm512_max_ps(g, h));
        nan |=
            (unsigned)(any_nan(a, b) | any_nan(c, d)) | (unsigned)(any_nan(e, f) | any_nan(g, h));
    }
    *lanes = _mm512_max_ps(_mm512_max_ps(m0, m1), _mm512_max_ps(m2, m3));
    return nan;
}

static unsigned short_segment(const float *x, int32_t n, __m512 *lanes) {
    __m512 m = _mm512_set1_ps(NEGATIVE_INFINITY);
    unsigned nan = 0;
    for (int32_t i = 0; i < n; i += 16) {
        const __m512 a = load_head(x + i, n - i);
        m = _mm512_max_ps(m, a);
        nan |= any_nan(a, a);
    }
    *lanes = m;
    return nan;
}

/* Lane maxima and their maximum, which is returned; 1 <= n <= ALEA_SEGMENT. */
static inline float segment_maxima(const float *x, int32_t n, float *lanes) {
    __m512 m;
    const unsigned nan = n == ALEA_SEGMENT ? whole_segment(x, &m) : short_segment(x, n, &m);
    if (__builtin_expect(nan != 0, 0)) {
        float most;
        alea__lane_max_ref(x, n, lanes, &most);
        return most;
    }
    m = _mm512_add_ps(m, _mm512_setzero_ps()); /* -0 to +0 */
    _mm512_storeu_ps(lanes, m);
    return max_of_lanes(m);
}

/* An address, not an element: nothing is read where there is nothing. */
static inline void fetch_next_segment(const float *x) {
    const uintptr_t next = (uintptr_t)x + ALEA_SEGMENT * sizeof(float);
    _mm_prefetch((const char *)next, _MM_HINT_T0);
}

/* The mass of a segment; what lies one segment further on is fetched meanwhile. */
static inline uint64_t segment_weigh(const weigher *w, const float *x, int32_t n) {
    enum { SUMS = 4, BLOCK = SUMS * 16 * ALEA_WEIGHTS_PER_U32 };
    __m512i sum = _mm512_setzero_si512();
    int32_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        __m512i sums[SUMS] = {_mm512_setzero_si512(), _mm512_setzero_si512(),
                              _mm512_setzero_si512(), _mm512_setzero_si512()};
        for (int k = 0; k < ALEA_WEIGHTS_PER_U32; k++) {
            for (int j = 0; j < SUMS; j++) {
                const float *p = x + i + 16 * (SUMS * k + j);
                fetch_next_segment(p);
                sums[j] = _mm512_add_epi32(sums[j], weigh(w, _mm512_loadu_ps(p)));
            }
        }
        for (int j = 0; j < SUMS; j++)
            sum = add_wide(sum, sums[j]);
    }
    for (; i < n; i += 16)
        sum = add_wide(sum, weigh(w, load_head(x + i, n - i)));
    return sum_epu64(sum);
}

#endif
