/*
 * Sum of the weights of a segment's elements that reach a cut. Cuts are often high: stretches
 * without such an element are not weighed.
 */
#include "kernel/arm/neon_inline.h"

uint64_t alea__segment_mass_ge_neon(const float *x, int32_t n, float scale, int32_t exponent,
                                    float cut) {
    weigher w;
    if (!weigher_make(&w, scale, exponent)) {
        return alea__segment_mass_ge_ref(x, n, scale, exponent, cut);
    }
    const float32x4_t least = vdupq_n_f32(cut);
    uint64x2_t sum = vdupq_n_u64(0);
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        float32x4_t v[4];
        uint32x4_t kept[4];
        for (int j = 0; j < 4; j++) {
            v[j] = vld1q_f32(x + i + 4 * j);
            kept[j] = vcgeq_f32(v[j], least);
        }
        const uint32x4_t any = vorrq_u32(vorrq_u32(kept[0], kept[1]), vorrq_u32(kept[2], kept[3]));
        if (vmaxvq_u32(any) == 0) continue;
        for (int j = 0; j < 4; j++)
            sum = vpadalq_u32(sum, vandq_u32(weigh(&w, v[j]), kept[j]));
    }
    const uint64_t whole = vaddvq_u64(sum);
    return i < n ? whole + alea__segment_mass_ge_ref(x + i, n - i, scale, exponent, cut) : whole;
}
