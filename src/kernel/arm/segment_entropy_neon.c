/* Mass of a segment and the sum of W*q, 32-bit pairs multiplied to 64 bits. */
#include "kernel/arm/neon_inline.h"

void alea__segment_entropy_neon(const float *x, int32_t n, float scale, int32_t exponent,
                                alea_entropy_sums *sums) {
    weigher w;
    alea_entropy_sums rest = {0, 0};
    uint64x2_t mass = vdupq_n_u64(0);
    int64x2_t moment = vdupq_n_s64(0);
    int32_t i = 0;
    if (weigher_make(&w, scale, exponent)) {
        for (; i + 4 <= n; i += 4) {
            float32x4_t f;
            const float32x4_t t = weigh_split(&w, vld1q_f32(x + i), &f);
            const uint32x4_t weight = weigh_join(t, f);
            /* t holds n above zeros in its low 24 bits, so n*2^24 is a shift. */
            const int32x4_t whole = vshlq_n_s32(vreinterpretq_s32_f32(t), 24);
            const int32x4_t part = vcvtnq_s32_f32(vmulq_f32(f, vdupq_n_f32(0x1p24f)));
            const int32x4_t q = vaddq_s32(whole, part);
            mass = vpadalq_u32(mass, weight);
            const int32x4_t signed_weight = vreinterpretq_s32_u32(weight); /* below 2^30 */
            moment = vmlal_s32(moment, vget_low_s32(signed_weight), vget_low_s32(q));
            moment = vmlal_high_s32(moment, signed_weight, q);
        }
    }
    if (i < n) alea__segment_entropy_ref(x + i, n - i, scale, exponent, &rest);
    sums->mass = rest.mass + vaddvq_u64(mass);
    sums->moment = rest.moment + vaddvq_s64(moment);
}
