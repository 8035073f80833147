/*
 * What the AVX2 leaves share: the ends of arrays, the weight of eight logits, sums over lanes.
 * AVX2, FMA and F16C. For files of this folder compiled for AVX2 alone.
 */
#ifndef ALEA_KERNEL_X86_AVX2_INLINE_H
#define ALEA_KERNEL_X86_AVX2_INLINE_H

#include <immintrin.h>

#include "kernel/exp2_poly.h"
#include "kernel/x86/leaves_x86.h"

#define NEGATIVE_INFINITY (-__builtin_inff())

/* The first min(n, 8) elements, n >= 1, and -inf behind them. */
static inline __m256 load_head(const float *x, int32_t n) {
    static const int32_t lanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    if (n >= 8) return _mm256_loadu_ps(x);
    const __m256i head = _mm256_loadu_si256((const __m256i *)(const void *)(lanes + 8 - n));
    return _mm256_blendv_ps(_mm256_set1_ps(NEGATIVE_INFINITY), _mm256_maskload_ps(x, head),
                            _mm256_castsi256_ps(head));
}

/* The rule of exp2_poly.h with its constants spread over the lanes. */
typedef struct weigher {
    __m256 scale, magic, floor;
} weigher;

/* False where the floor is -inf: then clamping cannot stand for testing. */
static inline bool weigher_make(weigher *w, float scale, int32_t exponent) {
    const float floor = alea__weight_floor(scale, exponent);
    w->scale = _mm256_set1_ps(scale);
    w->magic = _mm256_set1_ps(ALEA_EXP2_MAGIC - (float)exponent);
    w->floor = _mm256_set1_ps(floor);
    return floor > NEGATIVE_INFINITY;
}

/* t of each lane, whose low bits hold n; *f, the fraction. NaN and what is low become the floor. */
static inline __m256 weigh_split(const weigher *w, __m256 x, __m256 *f) {
    const __m256 y = _mm256_max_ps(x, w->floor); /* the second operand where x is NaN */
    const __m256 t = _mm256_fmadd_ps(y, w->scale, w->magic);
    *f = _mm256_fmsub_ps(y, w->scale, _mm256_sub_ps(t, w->magic));
    return t;
}

/* The polynomial moved to its exponent, and rounded. */
static inline __m256i weigh_scale(__m256 t, __m256 p) {
    const __m256i power = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    const __m256i bits = _mm256_add_epi32(_mm256_castps_si256(p), power);
    return _mm256_cvtps_epi32(_mm256_castsi256_ps(bits));
}

static inline __m256i weigh_join(__m256 t, __m256 f) {
    __m256 p = _mm256_set1_ps(ALEA_EXP2_C5);
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(ALEA_EXP2_C4));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(ALEA_EXP2_C3));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(ALEA_EXP2_C2));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(ALEA_EXP2_C1));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(ALEA_EXP2_C0));
    return weigh_scale(t, p);
}

static inline __m256i weigh(const weigher *w, __m256 x) {
    __m256 f;
    const __m256 t = weigh_split(w, x, &f);
    return weigh_join(t, f);
}

/* Eight uint32 added to four uint64. */
static inline __m256i add_wide(__m256i sum, __m256i narrow) {
    const __m256i low = _mm256_and_si256(narrow, _mm256_set1_epi64x(0xffffffff));
    return _mm256_add_epi64(sum, _mm256_add_epi64(low, _mm256_srli_epi64(narrow, 32)));
}

static inline uint64_t sum_epu64(__m256i v) {
    uint64_t lanes[4];
    _mm256_storeu_si256((__m256i *)(void *)lanes, v);
    return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

#endif
