/*
 * What the AVX-512 leaves share: masked ends of arrays, the weight of sixteen logits, sums over
 * lanes. F, BW, DQ and VL, nothing newer. For files of this folder compiled for AVX-512 alone.
 */
#ifndef ALEA_KERNEL_X86_AVX512_INLINE_H
#define ALEA_KERNEL_X86_AVX512_INLINE_H

#ifdef ALEA_SIMDE /* the same sources on any processor: tests/kernel/simde_avx512.h */
#include "kernel/simde_avx512.h"
#else
#include <immintrin.h>
#endif

#include "kernel/exp2_poly.h"
#include "kernel/x86/leaves_x86.h"

#define NEGATIVE_INFINITY (-__builtin_inff())

/* The first n of sixteen lanes, 0 <= n <= 16. */
static inline __mmask16 head_mask(int32_t n) {
    return (__mmask16)((1u << n) - 1u);
}

/* The first min(n, 16) elements, n >= 1, and -inf behind them. */
static inline __m512 load_head(const float *x, int32_t n) {
    if (n >= 16) return _mm512_loadu_ps(x);
    return _mm512_mask_loadu_ps(_mm512_set1_ps(NEGATIVE_INFINITY), head_mask(n), x);
}

/* The rule of exp2_poly.h with its constants spread over the lanes. */
typedef struct weigher {
    __m512 scale, magic, floor;
} weigher;

/* False where the floor is -inf: then clamping cannot stand for testing. */
static inline bool weigher_make(weigher *w, float scale, int32_t exponent) {
    const float floor = alea__weight_floor(scale, exponent);
    w->scale = _mm512_set1_ps(scale);
    w->magic = _mm512_set1_ps(ALEA_EXP2_MAGIC - (float)exponent);
    w->floor = _mm512_set1_ps(floor);
    return floor > NEGATIVE_INFINITY;
}

/* t of each lane, whose low bits hold n; *f, the fraction. NaN and what is low become the floor. */
static inline __m512 weigh_split(const weigher *w, __m512 x, __m512 *f) {
    const __m512 y = _mm512_max_ps(x, w->floor); /* the second operand where x is NaN */
    const __m512 t = _mm512_fmadd_ps(y, w->scale, w->magic);
    *f = _mm512_fmsub_ps(y, w->scale, _mm512_sub_ps(t, w->magic));
    return t;
}

/* The polynomial moved to its exponent, and rounded. */
static inline __m512i weigh_scale(__m512 t, __m512 p) {
    const __m512i power = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    const __m512i bits = _mm512_add_epi32(_mm512_castps_si512(p), power);
    return _mm512_cvtps_epi32(_mm512_castsi512_ps(bits));
}

static inline __m512i weigh_join(__m512 t, __m512 f) {
    __m512 p = _mm512_set1_ps(ALEA_EXP2_C5);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(ALEA_EXP2_C4));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(ALEA_EXP2_C3));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(ALEA_EXP2_C2));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(ALEA_EXP2_C1));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(ALEA_EXP2_C0));
    return weigh_scale(t, p);
}

static inline __m512i weigh(const weigher *w, __m512 x) {
    __m512 f;
    const __m512 t = weigh_split(w, x, &f);
    return weigh_join(t, f);
}

/* Sixteen uint32 added to eight uint64. */
static inline __m512i add_wide(__m512i sum, __m512i narrow) {
    const __m512i low = _mm512_and_si512(narrow, _mm512_set1_epi64(0xffffffff));
    return _mm512_add_epi64(sum, _mm512_add_epi64(low, _mm512_srli_epi64(narrow, 32)));
}

static inline uint64_t sum_epu64(__m512i v) {
    uint64_t lanes[8], sum = 0;
    _mm512_storeu_si512(lanes, v);
    for (int i = 0; i < 8; i++)
        sum += lanes[i];
    return sum;
}

/* The largest lane; for lanes without NaN. */
static inline float max_of_lanes(__m512 v) {
    const __m256d upper = _mm512_extractf64x4_pd(_mm512_castps_pd(v), 1);
    const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(v), _mm256_castpd_ps(upper));
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_shuffle_ps(m, m, 1));
    return _mm_cvtss_f32(m);
}

#endif
