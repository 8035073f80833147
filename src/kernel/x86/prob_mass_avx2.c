/*
 * Sum of a segment's probabilities as integers. There is no conversion to 64-bit integers: an
 * integer below 2^52, added to 2^52, stands in the low bits of the double.
 */
#include "kernel/x86/avx2_inline.h"

static inline __m256i prob_weights(const float *probs, __m256d scale) {
    const __m128 positive = _mm_max_ps(_mm_loadu_ps(probs), _mm_setzero_ps());
    const __m256d whole = _mm256_floor_pd(_mm256_mul_pd(_mm256_cvtps_pd(positive), scale));
    const __m256d base = _mm256_set1_pd(0x1p52);
    return _mm256_castpd_si256(_mm256_xor_pd(_mm256_add_pd(whole, base), base));
}

uint64_t alea__prob_mass_avx2(const float *probs, int32_t n, int32_t exponent) {
    const int64_t bits = (int64_t)(1023 + 40 - exponent) << 52; /* 2^(40 - exponent) */
    const __m256d scale = _mm256_castsi256_pd(_mm256_set1_epi64x(bits));
    __m256i a = _mm256_setzero_si256(), b = a;
    int32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        a = _mm256_add_epi64(a, prob_weights(probs + i, scale));
        b = _mm256_add_epi64(b, prob_weights(probs + i + 4, scale));
    }
    const uint64_t sum = sum_epu64(_mm256_add_epi64(a, b));
    return i < n ? sum + alea__prob_mass_ref(probs + i, n - i, exponent) : sum;
}
