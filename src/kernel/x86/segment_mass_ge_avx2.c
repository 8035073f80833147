/*
 * Sum of the weights of a segment's elements that reach a cut. Cuts are often high: stretches
 * without such an element are not weighed.
 */
#include "kernel/x86/avx2_inline.h"

enum { STRIDE = 32 };

static inline __m256 reaches(__m256 v, __m256 least) {
    return _mm256_cmp_ps(v, least, _CMP_GE_OQ);
}

static inline __m256i weigh_kept(const weigher *w, __m256 v, __m256 kept) {
    return _mm256_and_si256(weigh(w, v), _mm256_castps_si256(kept));
}

uint64_t alea__segment_mass_ge_avx2(const float *x, int32_t n, float scale, int32_t exponent,
                                    float cut) {
    weigher w;
    if (!weigher_make(&w, scale, exponent)) {
        return alea__segment_mass_ge_ref(x, n, scale, exponent, cut);
    }
    const __m256 least = _mm256_set1_ps(cut);
    __m256i sum = _mm256_setzero_si256();
    int32_t i = 0;
    for (; i + STRIDE <= n; i += STRIDE) {
        const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + 8);
        const __m256 c = _mm256_loadu_ps(x + i + 16), d = _mm256_loadu_ps(x + i + 24);
        const __m256 in_a = reaches(a, least), in_b = reaches(b, least);
        const __m256 in_c = reaches(c, least), in_d = reaches(d, least);
        const __m256 any = _mm256_or_ps(_mm256_or_ps(in_a, in_b), _mm256_or_ps(in_c, in_d));
        if (!_mm256_movemask_ps(any)) continue;
        const __m256i ab = _mm256_add_epi32(weigh_kept(&w, a, in_a), weigh_kept(&w, b, in_b));
        const __m256i cd = _mm256_add_epi32(weigh_kept(&w, c, in_c), weigh_kept(&w, d, in_d));
        sum = add_wide(sum, _mm256_add_epi32(ab, cd));
    }
    for (; i < n; i += 8) { /* the padding weighs nothing, whatever the cut */
        const __m256 v = load_head(x + i, n - i);
        sum = add_wide(sum, weigh_kept(&w, v, reaches(v, least)));
    }
    return sum_epu64(sum);
}
