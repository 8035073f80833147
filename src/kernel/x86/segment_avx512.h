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

enum { STRIDE = 64 };

static inline __mmask16 any_nan(__m512 a, __m512 b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
}

/* The maxima of a segment on the way. */
typedef struct scanner {
    __m512 most[2];
    unsigned nan;
} scanner;

static inline scanner scanner_none(void) {
    const __m512 none = _mm512_set1_ps(NEGATIVE_INFINITY);
    return (scanner){{none, none}, 0};
}

static inline void scanner_add(scanner *s, const float *x) {
    const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    const __m512 c = _mm512_loadu_ps(x + 32), d = _mm512_loadu_ps(x + 48);
    s->most[0] = _mm512_max_ps(s->most[0], _mm512_max_ps(a, b));
    s->most[1] = _mm512_max_ps(s->most[1], _mm512_max_ps(c, d));
    s->nan |= (unsigned)(any_nan(a, b) | any_nan(c, d));
}

/* Lane maxima of the segment x, and their maximum, which is returned. */
static inline float scanner_end(const scanner *s, const float *x, int32_t n, float *lanes) {
    if (__builtin_expect(s->nan != 0, 0)) {
        float most;
        alea__lane_max_ref(x, n, lanes, &most);
        return most;
    }
    __m512 m = _mm512_max_ps(s->most[0], s->most[1]);
    m = _mm512_add_ps(m, _mm512_setzero_ps()); /* -0 to +0 */
    _mm512_storeu_ps(lanes, m);
    return max_of_lanes(m);
}

static inline scanner segment_scan(const float *x, int32_t n) {
    scanner s = scanner_none();
    int32_t i = 0;
    for (; i + STRIDE <= n; i += STRIDE)
        scanner_add(&s, x + i);
    for (; i < n; i += 16) {
        const __m512 a = load_head(x + i, n - i);
        s.most[0] = _mm512_max_ps(s.most[0], a);
        s.nan |= any_nan(a, a);
    }
    return s;
}

/*
 * The mass of a segment. With `ahead`, the next one, a whole one, is scanned on the way: comparing
 * waits for the second cache and weighing for the multipliers, so that together they take little
 * longer than the weighing alone.
 */
static inline __attribute__((always_inline)) uint64_t
segment_weigh(const weigher *w, const float *x, int32_t n, scanner *ahead) {
    enum { SUMS = STRIDE / 16, BLOCK = STRIDE * ALEA_WEIGHTS_PER_U32 };
    __m512i sum = _mm512_setzero_si512();
    int32_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        __m512i sums[SUMS] = {_mm512_setzero_si512(), _mm512_setzero_si512(),
                              _mm512_setzero_si512(), _mm512_setzero_si512()};
        for (int k = 0; k < ALEA_WEIGHTS_PER_U32; k++) {
            const float *p = x + i + STRIDE * k;
            for (int j = 0; j < SUMS; j++)
                sums[j] = _mm512_add_epi32(sums[j], weigh(w, _mm512_loadu_ps(p + 16 * j)));
            if (ahead) scanner_add(ahead, p + ALEA_SEGMENT);
        }
        for (int j = 0; j < SUMS; j++)
            sum = add_wide(sum, sums[j]);
    }
    for (; i < n; i += 16)
        sum = add_wide(sum, weigh(w, load_head(x + i, n - i)));
    return sum_epu64(sum);
}

#endif
