/* Each weight of a segment. */
#include "kernel/x86/avx512_inline.h"

void alea__segment_weights_avx512(const float *x, int32_t n, float scale, int32_t exponent,
                                  uint32_t *weights) {
    weigher w;
    if (!weigher_make(&w, scale, exponent)) {
        alea__segment_weights_ref(x, n, scale, exponent, weights);
        return;
    }
    int32_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_si512(weights + i, weigh(&w, _mm512_loadu_ps(x + i)));
    if (i < n) {
        const __m512i last = weigh(&w, load_head(x + i, n - i));
        _mm512_mask_storeu_epi32(weights + i, head_mask(n - i), last);
    }
}
