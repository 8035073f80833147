/* Mask 16-bit values by their widened ones. */
#include "kernel/x86/avx512_inline.h"

void alea__keep_ge_half_avx512(uint16_t *out, const uint16_t *in, const float *x, int32_t n,
                               float cut, uint16_t dropped) {
    const __m512 least = _mm512_set1_ps(cut);
    const __m256i drop = _mm256_set1_epi16((int16_t)dropped);
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __mmask16 kept = _mm512_cmp_ps_mask(_mm512_loadu_ps(x + i), least, _CMP_GE_OQ);
        const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(in + i));
        _mm256_storeu_si256((__m256i *)(void *)(out + i), _mm256_mask_blend_epi16(kept, drop, v));
    }
    if (i < n) alea__keep_ge_half_ref(out + i, in + i, x + i, n - i, cut, dropped);
}
