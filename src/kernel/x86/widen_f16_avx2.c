/* float16 to float32. */
#include "kernel/x86/avx2_inline.h"

void alea__widen_f16_avx2(float *out, const uint16_t *in, int32_t n) {
    int32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(in + i));
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(v));
    }
    if (i < n) alea__widen_f16_ref(out + i, in + i, n - i);
}
