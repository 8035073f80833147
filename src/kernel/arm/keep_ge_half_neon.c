/* Mask 16-bit values by their widened ones: two comparisons are narrowed into one mask. */
#include "kernel/arm/neon_inline.h"

void alea__keep_ge_half_neon(uint16_t *out, const uint16_t *in, const float *x, int32_t n,
                             float cut, uint16_t dropped) {
    const float32x4_t least = vdupq_n_f32(cut);
    const uint16x8_t drop = vdupq_n_u16(dropped);
    int32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const uint16x4_t low = vmovn_u32(vcgeq_f32(vld1q_f32(x + i), least));
        const uint16x4_t high = vmovn_u32(vcgeq_f32(vld1q_f32(x + i + 4), least));
        vst1q_u16(out + i, vbslq_u16(vcombine_u16(low, high), vld1q_u16(in + i), drop));
    }
    if (i < n) alea__keep_ge_half_ref(out + i, in + i, x + i, n - i, cut, dropped);
}
