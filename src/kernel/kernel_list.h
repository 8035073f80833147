/*
 * The leaves: the loops that exist once per instruction set. This is the only place where one is
 * named; the table, the reference prototypes, selection, reports and tests all walk this list.
 *
 * A leaf never allocates, fails or looks at anything but its arguments, and every version gives
 * the bits of ref/. `n` >= 1 unless said; arrays need only their element's alignment; nothing
 * outside [0, n) is read or written; outputs and inputs are the same array or apart. A segment
 * leaf has n <= 1024. Comparisons are IEEE's: with NaN they are false.
 *
 * lane_max          x[n] -> for each segment s of x: lanes[s][16], the maxima of its elements
 *                   congruent to j modulo 16 (-inf where there is none), and segments[s], their
 *                   maximum. A NaN makes its lane and segment the NaN 0x7fc00000; zeros come out
 *                   positive
 * lane_max_mass     lane_max, and in the same pass masses[s]: the segment_mass of segment s under
 *                   its own exponent rint(segments[s]*scale); 0 where that is not in
 *                   [-2^21, 2^21]. scale > 0
 * segment_mass      sum of the weights (exp2_poly.h) of a segment. Domain of this and of the
 *                   next three: |exponent| <= 2^21, scale > 0, every x*scale <= exponent
 *                   + 3/4, so that four weights fit 32 bits; NaN weighs 0
 * segment_mass_ge   the same over the elements >= cut
 * segment_weights   each weight of a segment
 * segment_entropy   mass and moment of a segment: sums of W and of W*q, where with n = N - E
 *                   q = n*2^24 + rint(f*2^24)
 * count_ge          how many elements are >= cut
 * collect_ge        first_id + i for the first `capacity` of the elements >= cut, upward; returns
 *                   how many were written. ids[capacity]; what lies behind the last is unspecified
 * keep_ge           out = x where x >= cut, else -inf; kept bits are copied
 * keep_ge_half      the same for float16 or bfloat16: x is `in` widened, `dropped` the bits of -inf
 * widen_f16         float16 to float32; a signalling NaN comes out quiet
 * widen_bf16        bfloat16 to float32
 * prob_mass         sum of floor(p * 2^(40 - exponent)) over a segment; p <= 0 counts as 0.
 *                   Domain: every p < 2^(exponent + 1), no NaN; exponent in [-149, 127]
 * residual          out = max(0, target - draft); NaN gives 0, and zeros are positive
 */
#ifndef ALEA_KERNEL_KERNEL_LIST_H
#define ALEA_KERNEL_KERNEL_LIST_H

/* clang-format off */
#define ALEA_KERNEL_LIST(K)                                                                        \
    K(lane_max, void, (const float *x, int32_t n, float *lanes, float *segments))                  \
    K(lane_max_mass, void,                                                                         \
      (const float *x, int32_t n, float scale, float *lanes, float *segments, uint64_t *masses))   \
    K(segment_mass, uint64_t, (const float *x, int32_t n, float scale, int32_t exponent))          \
    K(segment_mass_ge, uint64_t,                                                                   \
      (const float *x, int32_t n, float scale, int32_t exponent, float cut))                       \
    K(segment_weights, void,                                                                       \
      (const float *x, int32_t n, float scale, int32_t exponent, uint32_t *weights))               \
    K(segment_entropy, void,                                                                       \
      (const float *x, int32_t n, float scale, int32_t exponent, alea_entropy_sums *sums))         \
    K(count_ge, int32_t, (const float *x, int32_t n, float cut))                                   \
    K(collect_ge, int32_t,                                                                         \
      (const float *x, int32_t n, float cut, int32_t first_id, int32_t *ids, int32_t capacity))    \
    K(keep_ge, void, (float *out, const float *x, int32_t n, float cut))                           \
    K(keep_ge_half, void,                                                                          \
      (uint16_t *out, const uint16_t *in, const float *x, int32_t n, float cut, uint16_t dropped)) \
    K(widen_f16, void, (float *out, const uint16_t *in, int32_t n))                                \
    K(widen_bf16, void, (float *out, const uint16_t *in, int32_t n))                               \
    K(prob_mass, uint64_t, (const float *probs, int32_t n, int32_t exponent))                      \
    K(residual, void, (float *out, const float *target, const float *draft, int32_t n))
/* clang-format on */

#endif
