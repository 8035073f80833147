/*
 * Sum of the weights of a segment. Four accumulators of 32 bits take eight weights each, then go
 * into one of 64 bits.
 */
#include "kernel/x86/avx2_inline.h"

enum { STRIDE = 32, WEIGHTS = 8 };

uint64_t alea__segment_mass_avx2(const float *x, int32_t n, float scale, int32_t exponent) {
    weigher w;
    if (!weigher_make(&w, scale, exponent)) return alea__segment_mass_ref(x, n, scale, exponent);
    __m256i sum = _mm256_setzero_si256();
    int32_t i = 0;
    while (i + STRIDE <= n) {
        __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
        for (int j = 0; j < WEIGHTS && i + STRIDE <= n; j++, i += STRIDE) {
            a = _mm256_add_epi32(a, weigh(&w, _mm256_loadu_ps(x + i)));
            b = _mm256_add_epi32(b, weigh(&w, _mm256_loadu_ps(x + i + 8)));
            c = _mm256_add_epi32(c, weigh(&w, _mm256_loadu_ps(x + i + 16)));
            d = _mm256_add_epi32(d, weigh(&w, _mm256_loadu_ps(x + i + 24)));
        }
        sum = add_wide(add_wide(add_wide(add_wide(sum, a), b), c), d);
    }
    for (; i < n; i += 8)
        sum = add_wide(sum, weigh(&w, load_head(x + i, n - i)));
    return sum_epu64(sum);
}
