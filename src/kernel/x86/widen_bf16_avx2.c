/* bfloat16 to float32. */
#include "kernel/x86/avx2_inline.h"

void alea__widen_bf16_avx2(float *out, const uint16_t *in, int32_t n) {
    int32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(in + i));
        const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16);
        _mm256_storeu_si256((__m256i *)(void *)(out + i), bits);
    }
    if (i < n) alea__widen_bf16_ref(out + i, in + i, n - i);
}
