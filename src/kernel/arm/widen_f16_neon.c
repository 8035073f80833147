/* float16 to float32. */
#include "kernel/arm/neon_inline.h"

void alea__widen_f16_neon(float *out, const uint16_t *in, int32_t n) {
    int32_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_f32(out + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(in + i))));
    if (i < n) alea__widen_f16_ref(out + i, in + i, n - i);
}
