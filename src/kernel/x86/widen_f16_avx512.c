/* float16 to float32. */
#include "kernel/x86/avx512_inline.h"

void alea__widen_f16_avx512(float *out, const uint16_t *in, int32_t n) {
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(in + i));
        _mm512_storeu_ps(out + i, _mm512_cvtph_ps(v));
    }
    if (i < n) alea__widen_f16_ref(out + i, in + i, n - i);
}
