/* Each weight of a segment. */
#include "kernel/x86/avx2_inline.h"

void alea__segment_weights_avx2(const float *x, int32_t n, float scale, int32_t exponent,
                                uint32_t *weights) {
    weigher w;
    int32_t i = 0;
    if (weigher_make(&w, scale, exponent)) {
        for (; i + 8 <= n; i += 8) {
            _mm256_storeu_si256((__m256i *)(void *)(weights + i),
                                weigh(&w, _mm256_loadu_ps(x + i)));
        }
    }
    if (i < n) alea__segment_weights_ref(x + i, n - i, scale, exponent, weights + i);
}
