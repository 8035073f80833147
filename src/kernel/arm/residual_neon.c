/* What the target has above the draft. */
#include "kernel/arm/neon_inline.h"

void alea__residual_neon(float *out, const float *target, const float *draft, int32_t n) {
    int32_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const float32x4_t above = vsubq_f32(vld1q_f32(target + i), vld1q_f32(draft + i));
        const uint32x4_t kept = vandq_u32(vreinterpretq_u32_f32(above), vcgtzq_f32(above));
        vst1q_f32(out + i, vreinterpretq_f32_u32(kept));
    }
    if (i < n) alea__residual_ref(out + i, target + i, draft + i, n - i);
}
