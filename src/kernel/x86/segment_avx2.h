/*
 * One segment at a time: its maxima and its mass, for the leaves that need one of them or both.
 *
 * Maxima: sixteen lanes are two registers, the low and the high half. The instruction drops NaN,
 * so pairs of registers are tested for it, and a segment that holds one is left to the reference.
 * Mass: four accumulators of 32 bits take four weights each, then go into one of 64 bits.
 */
#ifndef ALEA_KERNEL_X86_SEGMENT_AVX2_H
#define ALEA_KERNEL_X86_SEGMENT_AVX2_H

#include "kernel/x86/avx2_inline.h"

enum { STRIDE = 32 };

static inline __m256 unordered(__m256 a, __m256 b) {
    return _mm256_cmp_ps(a, b, _CMP_UNORD_Q);
}

/* The maxima of a segment on the way. */
typedef struct scanner {
    __m256 low, high, nan;
} scanner;

static inline scanner scanner_none(void) {
    const __m256 none = _mm256_set1_ps(NEGATIVE_INFINITY);
    return (scanner){none, none, _mm256_setzero_ps()};
}

static inline void scanner_add(scanner *s, const float *x) {
    const __m256 a = _mm256_loadu_ps(x), b = _mm256_loadu_ps(x + 8);
    const __m256 c = _mm256_loadu_ps(x + 16), d = _mm256_loadu_ps(x + 24);
    s->low = _mm256_max_ps(s->low, _mm256_max_ps(a, c));
    s->high = _mm256_max_ps(s->high, _mm256_max_ps(b, d));
    s->nan = _mm256_or_ps(s->nan, _mm256_or_ps(unordered(a, b), unordered(c, d)));
}

/* The largest lane; for lanes without NaN. */
static inline float max_of_lanes(__m256 v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_shuffle_ps(m, m, 1));
    return _mm_cvtss_f32(m);
}

/* Lane maxima of the segment x, and their maximum, which is returned. */
static inline float scanner_end(const scanner *s, const float *x, int32_t n, float *lanes) {
    if (__builtin_expect(_mm256_movemask_ps(s->nan) != 0, 0)) {
        float most;
        alea__lane_max_ref(x, n, lanes, &most);
        return most;
    }
    const __m256 low = _mm256_add_ps(s->low, _mm256_setzero_ps()); /* -0 to +0 */
    const __m256 high = _mm256_add_ps(s->high, _mm256_setzero_ps());
    _mm256_storeu_ps(lanes, low);
    _mm256_storeu_ps(lanes + 8, high);
    return max_of_lanes(_mm256_max_ps(low, high));
}

/* The same from its beginning; 1 <= n <= ALEA_SEGMENT. */
static inline scanner segment_scan(const float *x, int32_t n) {
    scanner s = scanner_none();
    int32_t i = 0;
    for (; i + STRIDE <= n; i += STRIDE)
        scanner_add(&s, x + i);
    for (; i < n; i += 8) {
        const __m256 a = load_head(x + i, n - i);
        __m256 *half = i / 8 & 1 ? &s.high : &s.low;
        *half = _mm256_max_ps(*half, a);
        s.nan = _mm256_or_ps(s.nan, unordered(a, a));
    }
    return s;
}

/*
 * The weights of 32 logits added to four sums. Four chains step by step: written one after the
 * other they wait for each other in the processor's window.
 */
static inline void add_weights(const weigher *w, const float *x, __m256i *sums) {
    enum { CHAINS = 4 };
    __m256 t[CHAINS], f[CHAINS], p[CHAINS];
    for (int j = 0; j < CHAINS; j++)
        f[j] = _mm256_max_ps(_mm256_loadu_ps(x + 8 * j), w->floor);
    for (int j = 0; j < CHAINS; j++)
        t[j] = _mm256_fmadd_ps(f[j], w->scale, w->magic);
    for (int j = 0; j < CHAINS; j++)
        f[j] = _mm256_fmsub_ps(f[j], w->scale, _mm256_sub_ps(t[j], w->magic));
    for (int j = 0; j < CHAINS; j++)
        p[j] = _mm256_fmadd_ps(_mm256_set1_ps(ALEA_EXP2_C5), f[j], _mm256_set1_ps(ALEA_EXP2_C4));
    for (int j = 0; j < CHAINS; j++)
        p[j] = _mm256_fmadd_ps(p[j], f[j], _mm256_set1_ps(ALEA_EXP2_C3));
    for (int j = 0; j < CHAINS; j++)
        p[j] = _mm256_fmadd_ps(p[j], f[j], _mm256_set1_ps(ALEA_EXP2_C2));
    for (int j = 0; j < CHAINS; j++)
        p[j] = _mm256_fmadd_ps(p[j], f[j], _mm256_set1_ps(ALEA_EXP2_C1));
    for (int j = 0; j < CHAINS; j++)
        p[j] = _mm256_fmadd_ps(p[j], f[j], _mm256_set1_ps(ALEA_EXP2_C0));
    for (int j = 0; j < CHAINS; j++)
        sums[j] = _mm256_add_epi32(sums[j], weigh_scale(t[j], p[j]));
}

/*
 * The mass of a segment. With `ahead`, the next one, a whole one, is scanned on the way: comparing
 * waits for the second cache and weighing for the multipliers.
 */
static inline __attribute__((always_inline)) uint64_t
segment_weigh(const weigher *w, const float *x, int32_t n, scanner *ahead) {
    enum { BLOCK = STRIDE * ALEA_WEIGHTS_PER_U32 };
    __m256i sum = _mm256_setzero_si256();
    int32_t i = 0;
    while (i + STRIDE <= n) {
        __m256i sums[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                           _mm256_setzero_si256()};
        const int32_t end = n - i < BLOCK ? i + (n - i) / STRIDE * STRIDE : i + BLOCK;
        for (int32_t j = i; j < end; j += STRIDE)
            add_weights(w, x + j, sums);
        for (int32_t j = i; ahead && j < end; j += STRIDE)
            scanner_add(ahead, x + j + ALEA_SEGMENT);
        i = end;
        for (int j = 0; j < 4; j++)
            sum = add_wide(sum, sums[j]);
    }
    for (; i < n; i += 8)
        sum = add_wide(sum, weigh(w, load_head(x + i, n - i)));
    return sum_epu64(sum);
}

#endif
