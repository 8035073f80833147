/* What the target has above the draft. */
#include "kernel/x86/avx2_inline.h"

/* max gives its second operand for NaN, and for zeros of either sign. */
static inline __m256 above(__m256 target, __m256 draft) {
    return _mm256_max_ps(_mm256_sub_ps(target, draft), _mm256_setzero_ps());
}

void alea__residual_avx2(float *out, const float *target, const float *draft, int32_t n) {
    int32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, above(_mm256_loadu_ps(target + i), _mm256_loadu_ps(draft + i)));
    if (i < n) alea__residual_ref(out + i, target + i, draft + i, n - i);
}
