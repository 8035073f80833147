/*
 * Sum of the weights of a segment. Eight accumulators of 32 bits take at most eight weights below
 * 2^29 each, then go into one of 64; four chains are enough for the units, eight hide the rest.
 */
#include "kernel/x86/avx512_inline.h"

enum { STRIDE = 128 };

uint64_t alea__segment_mass_avx512(const float *x, int32_t n, float scale, int32_t exponent) {
    weigher w;
    if (!weigher_make(&w, scale, exponent)) return alea__segment_mass_ref(x, n, scale, exponent);
    __m512i sums[8] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                       _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                       _mm512_setzero_si512(), _mm512_setzero_si512()};
    int32_t i = 0;
    for (; i + STRIDE <= n; i += STRIDE) {
        for (int j = 0; j < 8; j++) {
            const __m512i v = weigh(&w, _mm512_loadu_ps(x + i + 16 * j));
            sums[j] = _mm512_add_epi32(sums[j], v);
        }
    }
    __m512i sum = _mm512_setzero_si512();
    for (int j = 0; j < 8; j++)
        sum = add_wide(sum, sums[j]);
    for (; i < n; i += 16)
        sum = add_wide(sum, weigh(&w, load_head(x + i, n - i)));
    return sum_epu64(sum);
}
