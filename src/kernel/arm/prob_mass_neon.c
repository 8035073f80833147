/* Sum of a segment's probabilities as integers: an exact product in double, cut to 64 bits. The
 * conversion takes everything below 1 to 0, negative numbers with it. */
#include "kernel/arm/neon_inline.h"

uint64_t alea__prob_mass_neon(const float *probs, int32_t n, int32_t exponent) {
    const uint64_t bits = (uint64_t)(1023 + 40 - exponent) << 52; /* 2^(40 - exponent) */
    const float64x2_t scale = vreinterpretq_f64_u64(vdupq_n_u64(bits));
    uint64x2_t a = vdupq_n_u64(0), b = a;
    int32_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const float32x4_t p = vld1q_f32(probs + i);
        const float64x2_t low = vcvt_f64_f32(vget_low_f32(p)), high = vcvt_high_f64_f32(p);
        a = vaddq_u64(a, vcvtq_u64_f64(vmulq_f64(low, scale)));
        b = vaddq_u64(b, vcvtq_u64_f64(vmulq_f64(high, scale)));
    }
    const uint64_t sum = vaddvq_u64(vaddq_u64(a, b));
    return i < n ? sum + alea__prob_mass_ref(probs + i, n - i, exponent) : sum;
}
