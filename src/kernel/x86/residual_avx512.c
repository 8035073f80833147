/* What the target has above the draft. */
#include "kernel/x86/avx512_inline.h"

/* max gives its second operand for NaN, and for zeros of either sign. */
static inline __m512 above(__m512 target, __m512 draft) {
    return _mm512_max_ps(_mm512_sub_ps(target, draft), _mm512_setzero_ps());
}

void alea__residual_avx512(float *out, const float *target, const float *draft, int32_t n) {
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        _mm512_storeu_ps(out + i, above(_mm512_loadu_ps(target + i), _mm512_loadu_ps(draft + i)));
    }
    if (i < n) alea__residual_ref(out + i, target + i, draft + i, n - i);
}
