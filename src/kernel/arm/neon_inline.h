/*
 * What the NEON leaves share: the weight of four logits, and one segment's maxima and mass. For
 * files of this folder alone. Ends of arrays are left to the reference.
 */
#ifndef ALEA_KERNEL_ARM_NEON_INLINE_H
#define ALEA_KERNEL_ARM_NEON_INLINE_H

#include <arm_neon.h>

#include "kernel/arm/leaves_arm.h"
#include "kernel/exp2_poly.h"

#define NEGATIVE_INFINITY (-__builtin_inff())

/* The rule of exp2_poly.h with its constants spread over the lanes. */
typedef struct weigher {
    float32x4_t scale, magic, floor;
} weigher;

/* False where the floor is -inf: then clamping cannot stand for testing. */
static inline bool weigher_make(weigher *w, float scale, int32_t exponent) {
    const float floor = alea__weight_floor(scale, exponent);
    w->scale = vdupq_n_f32(scale);
    w->magic = vdupq_n_f32(ALEA_EXP2_MAGIC - (float)exponent);
    w->floor = vdupq_n_f32(floor);
    return floor > NEGATIVE_INFINITY;
}

/* t of each lane, whose low bits hold n; *f, the fraction. NaN and what is low become the floor:
 * by comparison, for the instruction that prefers numbers still returns signalling NaNs. */
static inline float32x4_t weigh_split(const weigher *w, float32x4_t x, float32x4_t *f) {
    const float32x4_t y = vbslq_f32(vcgtq_f32(x, w->floor), x, w->floor);
    const float32x4_t t = vfmaq_f32(w->magic, y, w->scale);
    *f = vfmaq_f32(vsubq_f32(w->magic, t), y, w->scale);
    return t;
}

static inline uint32x4_t weigh_join(float32x4_t t, float32x4_t f) {
    float32x4_t p = vdupq_n_f32(ALEA_EXP2_C5);
    p = vfmaq_f32(vdupq_n_f32(ALEA_EXP2_C4), p, f);
    p = vfmaq_f32(vdupq_n_f32(ALEA_EXP2_C3), p, f);
    p = vfmaq_f32(vdupq_n_f32(ALEA_EXP2_C2), p, f);
    p = vfmaq_f32(vdupq_n_f32(ALEA_EXP2_C1), p, f);
    p = vfmaq_f32(vdupq_n_f32(ALEA_EXP2_C0), p, f);
    const uint32x4_t power = vshlq_n_u32(vreinterpretq_u32_f32(t), 23);
    return vcvtnq_u32_f32(vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(p), power)));
}

static inline uint32x4_t weigh(const weigher *w, float32x4_t x) {
    float32x4_t f;
    const float32x4_t t = weigh_split(w, x, &f);
    return weigh_join(t, f);
}

/* Lane maxima and their maximum, which is returned. The instruction carries NaN through, though
 * not as the one bit pattern that is asked for. */
static inline float segment_maxima(const float *x, int32_t n, float *lanes) {
    float32x4_t m[4];
    for (int j = 0; j < 4; j++)
        m[j] = vdupq_n_f32(NEGATIVE_INFINITY);
    for (int32_t i = 0; i + 16 <= n; i += 16) {
        for (int j = 0; j < 4; j++)
            m[j] = vmaxq_f32(m[j], vld1q_f32(x + i + 4 * j));
    }
    float most = vmaxvq_f32(vmaxq_f32(vmaxq_f32(m[0], m[1]), vmaxq_f32(m[2], m[3])));
    if (most != most || n % 16 != 0) {
        alea__lane_max_ref(x, n, lanes, &most);
        return most;
    }
    for (int j = 0; j < 4; j++)
        vst1q_f32(lanes + 4 * j, vaddq_f32(m[j], vdupq_n_f32(0.0f))); /* -0 to +0 */
    return most + 0.0f;
}

static inline uint64_t segment_weigh(const float *x, int32_t n, float scale, int32_t exponent) {
    weigher w;
    if (!weigher_make(&w, scale, exponent)) return alea__segment_mass_ref(x, n, scale, exponent);
    uint64x2_t sums[4];
    for (int j = 0; j < 4; j++)
        sums[j] = vdupq_n_u64(0);
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (int j = 0; j < 4; j++)
            sums[j] = vpadalq_u32(sums[j], weigh(&w, vld1q_f32(x + i + 4 * j)));
    }
    const uint64x2_t sum = vaddq_u64(vaddq_u64(sums[0], sums[1]), vaddq_u64(sums[2], sums[3]));
    const uint64_t whole = vaddvq_u64(sum);
    return i < n ? whole + alea__segment_mass_ref(x + i, n - i, scale, exponent) : whole;
}

#endif
