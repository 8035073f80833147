/* Each weight of a segment. */
#include "kernel/arm/neon_inline.h"

void alea__segment_weights_neon(const float *x, int32_t n, float scale, int32_t exponent,
                                uint32_t *weights) {
    weigher w;
    int32_t i = 0;
    if (weigher_make(&w, scale, exponent)) {
        for (; i + 4 <= n; i += 4)
            vst1q_u32(weights + i, weigh(&w, vld1q_f32(x + i)));
    }
    if (i < n) alea__segment_weights_ref(x + i, n - i, scale, exponent, weights + i);
}
