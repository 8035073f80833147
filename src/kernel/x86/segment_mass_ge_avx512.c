/*
 * Sum of the weights of a segment's elements that reach a cut. Cuts are often high: stretches
 * without such an element are not weighed.
 */
#include "kernel/x86/avx512_inline.h"

enum { STRIDE = 64 };

uint64_t alea__segment_mass_ge_avx512(const float *x, int32_t n, float scale, int32_t exponent,
                                      float cut) {
    weigher w;
    if (!weigher_make(&w, scale, exponent)) {
        return alea__segment_mass_ge_ref(x, n, scale, exponent, cut);
    }
    const __m512 least = _mm512_set1_ps(cut);
    __m512i sum = _mm512_setzero_si512();
    int32_t i = 0;
    for (; i + STRIDE <= n; i += STRIDE) {
        __m512 v[4];
        __mmask16 kept[4];
        unsigned any = 0;
        for (int j = 0; j < 4; j++) {
            v[j] = _mm512_loadu_ps(x + i + 16 * j);
            kept[j] = _mm512_cmp_ps_mask(v[j], least, _CMP_GE_OQ);
            any |= kept[j];
        }
        if (!any) continue;
        __m512i four = _mm512_setzero_si512();
        for (int j = 0; j < 4; j++)
            four = _mm512_mask_add_epi32(four, kept[j], four, weigh(&w, v[j]));
        sum = add_wide(sum, four);
    }
    for (; i < n; i += 16) {
        const __m512 v = load_head(x + i, n - i);
        const __mmask16 kept = _mm512_cmp_ps_mask(v, least, _CMP_GE_OQ);
        const __m512i zero = _mm512_setzero_si512();
        sum = add_wide(sum, _mm512_mask_add_epi32(zero, kept, zero, weigh(&w, v)));
    }
    return sum_epu64(sum);
}
