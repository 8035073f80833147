/*
 * Draws from rows whose entries are probabilities, wherever those come from. A Row has value(i),
 * never negative, its size in `target`, and segments(), which get largest weights and masses.
 */
#ifndef ALEA_KERNEL_CUDA_PROBS_CUH
#define ALEA_KERNEL_CUDA_PROBS_CUH

#include "kernel/cuda/stream.cuh"

/* Whatever is no positive finite number weighs nothing. */
__device__ __forceinline__ float clean_weight(float x) {
    return x > 0.0f && x <= FLT_MAX ? x : 0.0f;
}

constexpr int lane_entries = ALEA_SEGMENT / warp_lanes;

/* Weigh a segment whose clean values the lanes of a warp hold, in any order; lane 0 stores. */
__device__ __forceinline__ void weigh_held(const float (&x)[lane_entries], uint4 *segment) {
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < lane_entries; i++)
        most = fmaxf(most, x[i]);
    most = __uint_as_float(__reduce_max_sync(whole_warp, __float_as_uint(most)));
    u64 sum = 0;
    if (most > 0.0f) {
        const int32_t exponent = alea__prob_exponent(most);
        const bool plain = exponent >= -80; /* else the scale is no float32 */
        if (plain) {
            const float scale = ldexpf(1.0f, 40 - exponent);
#pragma unroll
            for (int i = 0; i < lane_entries; i++)
                sum += __float2ull_rz(x[i] * scale);
        } else {
#pragma unroll
            for (int i = 0; i < lane_entries; i++)
                sum += alea__prob_weight(x[i], exponent);
        }
    }
    sum = warp_sum(sum);
    if ((threadIdx.x & 31) == 0) {
        __stcg(segment, make_uint4(__float_as_uint(most), 0, (uint32_t)sum, (uint32_t)(sum >> 32)));
    }
}

/* See logit_draw. A weight is below 2^41, a segment's mass below 2^51. */
template <class Row> struct prob_draw {
    Row row;
    int32_t exponent; /* of the row */

    __device__ __forceinline__ bool depth(int s, int32_t *d) const {
        const float most = __uint_as_float(__ldcg(&row.segments()[s].x));
        if (!(most > 0.0f)) return false;
        *d = exponent - alea__prob_exponent(most);
        return *d <= deepest_shift;
    }
    __device__ __forceinline__ u64 sum(int s) const {
        return __ldcg((const u64 *)&row.segments()[s] + 1);
    }
    __device__ __forceinline__ u64 align(u64 sum, int32_t d) const {
        return sum >> d;
    }
    __device__ __forceinline__ int32_t n_segments() const {
        return row.target.n_segments;
    }
    __device__ __forceinline__ int32_t n() const {
        return row.target.n;
    }
    __device__ __forceinline__ u64 weight(int i, int32_t d) const {
        return alea__prob_weight(row.value(i), exponent - d);
    }
};

constexpr int held_max = 1024; /* segments whose maxima and masses are held for the draw */

struct pick_scratch {
    block_scratch block;
    float most[held_max];
    u64 mass[held_max];
};

/* prob_draw from shared memory, which holds all segments. */
template <class Row> struct held_prob_draw : prob_draw<Row> {
    const pick_scratch &held;
    __device__ __forceinline__ bool depth(int s, int32_t *d) const {
        if (!(held.most[s] > 0.0f)) return false;
        *d = this->exponent - alea__prob_exponent(held.most[s]);
        return *d <= deepest_shift;
    }
    __device__ __forceinline__ u64 sum(int s) const {
        return held.mass[s];
    }
};

template <class Draw>
__device__ __forceinline__ int32_t draw_from(const Draw &draw, uint32_t bits,
                                             block_scratch &scratch) {
    u64 mass = 0;
    for (int s = threadIdx.x; s < draw.n_segments(); s += blockDim.x) {
        int32_t d;
        if (draw.depth(s, &d)) mass += draw.align(draw.sum(s), d);
    }
    mass = block_sum(mass, scratch);
    return block_draw(draw, bits, mass, scratch);
}

/* The entry that `bits` draw from a row whose segments are weighed; -1: nothing weighs anything.
 * By the block; every thread returns it. */
template <class Row>
__device__ int32_t block_pick(const Row &row, uint32_t bits, pick_scratch &scratch) {
    u64 most = 0;
    for (int s = threadIdx.x; s < row.target.n_segments; s += blockDim.x) {
        const uint4 y = __ldcg(row.segments() + s);
        most = max(most, (u64)y.x); /* positive floats are in the order of their bits */
        if (s >= held_max) continue;
        scratch.most[s] = __uint_as_float(y.x);
        scratch.mass[s] = (u64)y.w << 32 | y.z;
    }
    const float largest = __uint_as_float((uint32_t)block_max(most, scratch.block));
    if (!(largest > 0.0f)) return -1;
    const prob_draw<Row> draw = {row, alea__prob_exponent(largest)};
    if (row.target.n_segments > held_max) return draw_from(draw, bits, scratch.block);
    return draw_from(held_prob_draw<Row>{draw, scratch}, bits, scratch.block);
}

#endif
