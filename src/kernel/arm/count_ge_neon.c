/* How many elements reach a cut: a true comparison is the integer -1. */
#include "kernel/arm/neon_inline.h"

int32_t alea__count_ge_neon(const float *x, int32_t n, float cut) {
    const float32x4_t least = vdupq_n_f32(cut);
    uint32x4_t counts[4];
    for (int j = 0; j < 4; j++)
        counts[j] = vdupq_n_u32(0);
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (int j = 0; j < 4; j++)
            counts[j] = vsubq_u32(counts[j], vcgeq_f32(vld1q_f32(x + i + 4 * j), least));
    }
    const uint32x4_t sum =
        vaddq_u32(vaddq_u32(counts[0], counts[1]), vaddq_u32(counts[2], counts[3]));
    const int32_t whole = (int32_t)vaddvq_u32(sum);
    return i < n ? whole + alea__count_ge_ref(x + i, n - i, cut) : whole;
}
