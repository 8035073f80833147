/* How many elements reach a cut: a true comparison is the integer -1. */
#include "kernel/x86/avx2_inline.h"

static inline __m256i count(__m256i sum, __m256 v, __m256 least) {
    return _mm256_sub_epi32(sum, _mm256_castps_si256(_mm256_cmp_ps(v, least, _CMP_GE_OQ)));
}

int32_t alea__count_ge_avx2(const float *x, int32_t n, float cut) {
    const __m256 least = _mm256_set1_ps(cut);
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    int32_t i = 0;
    for (; i + 32 <= n; i += 32) {
        a = count(a, _mm256_loadu_ps(x + i), least);
        b = count(b, _mm256_loadu_ps(x + i + 8), least);
        c = count(c, _mm256_loadu_ps(x + i + 16), least);
        d = count(d, _mm256_loadu_ps(x + i + 24), least);
    }
    for (; i + 8 <= n; i += 8)
        a = count(a, _mm256_loadu_ps(x + i), least);
    int32_t lanes[8];
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
    _mm256_storeu_si256((__m256i *)(void *)lanes, sum);
    const int32_t total =
        lanes[0] + lanes[1] + lanes[2] + lanes[3] + lanes[4] + lanes[5] + lanes[6] + lanes[7];
    return i < n ? total + alea__count_ge_ref(x + i, n - i, cut) : total;
}
