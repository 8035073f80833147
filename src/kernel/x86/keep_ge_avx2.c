/* Mask what does not reach a cut; what stays is moved, not computed, so its bits stay. */
#include "kernel/x86/avx2_inline.h"

static inline __m256 keep(__m256 v, __m256 least) {
    const __m256 kept = _mm256_cmp_ps(v, least, _CMP_GE_OQ);
    return _mm256_blendv_ps(_mm256_set1_ps(NEGATIVE_INFINITY), v, kept);
}

void alea__keep_ge_avx2(float *out, const float *x, int32_t n, float cut) {
    const __m256 least = _mm256_set1_ps(cut);
    int32_t i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + 8);
        const __m256 c = _mm256_loadu_ps(x + i + 16), d = _mm256_loadu_ps(x + i + 24);
        _mm256_storeu_ps(out + i, keep(a, least));
        _mm256_storeu_ps(out + i + 8, keep(b, least));
        _mm256_storeu_ps(out + i + 16, keep(c, least));
        _mm256_storeu_ps(out + i + 24, keep(d, least));
    }
    if (i < n) alea__keep_ge_ref(out + i, x + i, n - i, cut);
}
