/* Sum of a segment's probabilities as integers: an exact product in double, cut to 64 bits. */
#include "kernel/x86/avx512_inline.h"

static inline __m512i prob_weights(__m256 probs, __m512d scale) {
    const __m256 positive = _mm256_max_ps(probs, _mm256_setzero_ps());
    return _mm512_cvttpd_epi64(_mm512_mul_pd(_mm512_cvtps_pd(positive), scale));
}

uint64_t alea__prob_mass_avx512(const float *probs, int32_t n, int32_t exponent) {
    const int64_t bits = (int64_t)(1023 + 40 - exponent) << 52; /* 2^(40 - exponent) */
    const __m512d scale = _mm512_castsi512_pd(_mm512_set1_epi64(bits));
    __m512i a = _mm512_setzero_si512(), b = a;
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        a = _mm512_add_epi64(a, prob_weights(_mm256_loadu_ps(probs + i), scale));
        b = _mm512_add_epi64(b, prob_weights(_mm256_loadu_ps(probs + i + 8), scale));
    }
    const uint64_t sum = sum_epu64(_mm512_add_epi64(a, b));
    return i < n ? sum + alea__prob_mass_ref(probs + i, n - i, exponent) : sum;
}
