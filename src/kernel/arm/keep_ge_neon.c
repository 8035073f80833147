/* Mask what does not reach a cut; what stays is moved, not computed, so its bits stay. */
#include "kernel/arm/neon_inline.h"

void alea__keep_ge_neon(float *out, const float *x, int32_t n, float cut) {
    const float32x4_t least = vdupq_n_f32(cut), dropped = vdupq_n_f32(NEGATIVE_INFINITY);
    int32_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const float32x4_t v = vld1q_f32(x + i);
        vst1q_f32(out + i, vbslq_f32(vcgeq_f32(v, least), v, dropped));
    }
    if (i < n) alea__keep_ge_ref(out + i, x + i, n - i, cut);
}
