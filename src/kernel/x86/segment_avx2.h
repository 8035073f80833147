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

enum { STRIDE = 64, STEPS = ALEA_SEGMENT / STRIDE };

static inline __m256 unordered(__m256 a, __m256 b) {
    return _mm256_cmp_ps(a, b, _CMP_UNORD_Q);
}

/* Maxima of a whole segment; returns whether it holds a NaN. */
static inline int whole_segment(const float *x, __m256 *low, __m256 *high) {
    __m256 low0 = _mm256_set1_ps(NEGATIVE_INFINITY), high0 = low0, low1 = low0, high1 = low0;
    __m256 nan0 = _mm256_setzero_ps(), nan1 = nan0;
    for (int i = 0; i < STEPS; i++, x += STRIDE) {
        const __m256 a = _mm256_loadu_ps(x), b = _mm256_loadu_ps(x + 8);
        const __m256 c = _mm256_loadu_ps(x + 16), d = _mm256_loadu_ps(x + 24);
        const __m256 e = _mm256_loadu_ps(x + 32), f = _mm256_loadu_ps(x + 40);
        const __m256 g = _mm256_loadu_ps(x + 48), h = _mm256_loadu_ps(x + 56);
        low0 = _mm256_max_ps(low0, _mm256_max_ps(a, c));
        high0 = _mm256_max_ps(high0, _mm256_max_ps(b, d));
        low1 = _mm256_max_ps(low1, _mm256_max_ps(e, g));
        high1 = _mm256_max_ps(high1, _mm256_max_ps(f, h));
        nan0 = _mm256_or_ps(nan0, _mm256_or_ps(unordered(a, b), unordered(c, d)));
        nan1 = _mm256_or_ps(nan1, _mm256_or_ps(unordered(e, f), unordered(g, h)));
    }
    *low = _mm256_max_ps(low0, low1);
    *high = _mm256_max_ps(high0, high1);
    return _mm256_movemask_ps(_mm256_or_ps(nan0, nan1));
}

static int short_segment(const float *x, int32_t n, __m256 *low, __m256 *high) {
    __m256 m[2] = {_mm256_set1_ps(NEGATIVE_INFINITY), _mm256_set1_ps(NEGATIVE_INFINITY)};
    __m256 nan = _mm256_setzero_ps();
    for (int32_t i = 0; i < n; i += 8) {
        const __m256 a = load_head(x + i, n - i);
        m[i / 8 & 1] = _mm256_max_ps(m[i / 8 & 1], a);
        nan = _mm256_or_ps(nan, unordered(a, a));
    }
    *low = m[0];
    *high = m[1];
    return _mm256_movemask_ps(nan);
}

/* The largest lane; for lanes without NaN. */
static inline float max_of_lanes(__m256 v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_shuffle_ps(m, m, 1));
    return _mm_cvtss_f32(m);
}

/* Lane maxima and their maximum, which is returned; 1 <= n <= ALEA_SEGMENT. */
static inline float segment_maxima(const float *x, int32_t n, float *lanes) {
    __m256 low, high;
    const int nan =
        n == ALEA_SEGMENT ? whole_segment(x, &low, &high) : short_segment(x, n, &low, &high);
    if (__builtin_expect(nan != 0, 0)) {
        float most;
        alea__lane_max_ref(x, n, lanes, &most);
        return most;
    }
    low = _mm256_add_ps(low, _mm256_setzero_ps()); /* -0 to +0 */
    high = _mm256_add_ps(high, _mm256_setzero_ps());
    _mm256_storeu_ps(lanes, low);
    _mm256_storeu_ps(lanes + 8, high);
    return max_of_lanes(_mm256_max_ps(low, high));
}

/* An address, not an element: nothing is read where there is nothing. */
static inline void fetch_next_segment(const float *x) {
    const uintptr_t next = (uintptr_t)x + ALEA_SEGMENT * sizeof(float);
    _mm_prefetch((const char *)next, _MM_HINT_T0);
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

/* The mass of a segment; what lies one segment further on is fetched meanwhile. */
static inline uint64_t segment_weigh(const weigher *w, const float *x, int32_t n) {
    enum { BLOCK = 4 * 8 * ALEA_WEIGHTS_PER_U32 };
    __m256i sum = _mm256_setzero_si256();
    int32_t i = 0;
    while (i + 32 <= n) {
        __m256i sums[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                           _mm256_setzero_si256()};
        const int32_t end = n - i < BLOCK ? i + (n - i) / 32 * 32 : i + BLOCK;
        for (; i < end; i += 32) {
            fetch_next_segment(x + i);
            fetch_next_segment(x + i + 16);
            add_weights(w, x + i, sums);
        }
        for (int j = 0; j < 4; j++)
            sum = add_wide(sum, sums[j]);
    }
    for (; i < n; i += 8)
        sum = add_wide(sum, weigh(w, load_head(x + i, n - i)));
    return sum_epu64(sum);
}

#endif
