/* Mask 16-bit values by their widened ones: two comparisons are packed into one mask. */
#include "kernel/x86/avx2_inline.h"

static inline __m256i reaches(const float *x, __m256 least) {
    return _mm256_castps_si256(_mm256_cmp_ps(_mm256_loadu_ps(x), least, _CMP_GE_OQ));
}

void alea__keep_ge_half_avx2(uint16_t *out, const uint16_t *in, const float *x, int32_t n,
                             float cut, uint16_t dropped) {
    const __m256 least = _mm256_set1_ps(cut);
    const __m256i drop = _mm256_set1_epi16((int16_t)dropped);
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m256i packed = _mm256_packs_epi32(reaches(x + i, least), reaches(x + i + 8, least));
        const __m256i kept = _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0));
        const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(in + i));
        _mm256_storeu_si256((__m256i *)(void *)(out + i), _mm256_blendv_epi8(drop, v, kept));
    }
    if (i < n) alea__keep_ge_half_ref(out + i, in + i, x + i, n - i, cut, dropped);
}
