/*
 * The one pass over memory. A warp takes a segment: it loads it whole, finds its maximum, weighs it
 * against its own power of two and stores both; nothing waits for anything outside the segment.
 * The last block of a row to finish is told so and finishes the row. Blocks are as many as the data
 * has and live once: late ones cannot then be last for every row that follows.
 */
#ifndef ALEA_KERNEL_CUDA_STREAM_CUH
#define ALEA_KERNEL_CUDA_STREAM_CUH

#include "kernel/cuda/block.cuh"

constexpr int stream_threads = 256;
constexpr int stream_warps = stream_threads / warp_lanes;
constexpr int blocks_per_sm = 4;        /* 64 registers a thread */
constexpr int filter_blocks_per_sm = 3; /* few rows: ordering candidates needs more of them */

/* What is asked of a row's segments. */
struct stream_plan {
    float scale;  /* of the mass; 0: none */
    float second; /* of another mass, into extra; 0: none */
    bool moment;  /* the moment of the entropy, into extra, under `scale` */
    bool lanes;   /* store the lanes' maxima */
    bool count;   /* count what is above */
    float above;  /* the value to count above */
    float surely; /* above this the report is surely greater too */
};

/* Count what is above in one segment, and remember what only the report can tell apart. */
template <class T>
__device__ __forceinline__ void count_above(const segment_values<T> &segment,
                                            const stream_plan &plan, row_state *state, int lane) {
    int above = 0, surely = 0;
#pragma unroll
    for (int i = 0; i < segment_values<T>::vectors; i++) {
#pragma unroll
        for (int e = 0; e < T::per_vector; e++) {
            const float x = T::get(segment.v[i], e);
            above += x > plan.above;
            surely += x > plan.surely;
        }
    }
    if (above != surely) {
#pragma unroll
        for (int i = 0; i < segment_values<T>::vectors; i++) {
#pragma unroll
            for (int e = 0; e < T::per_vector; e++) {
                const float x = T::get(segment.v[i], e);
                if (!(x > plan.above) || x > plan.surely) continue;
                const int at = atomicAdd(&state->n_ties, 1);
                if (at < tie_slots) __stcg(&state->ties[at], x);
            }
        }
    }
    above = __reduce_add_sync(whole_warp, above);
    if (lane == 0 && above) atomicAdd(&state->above, above);
}

/* The segments of one block, `per_warp` for each warp: on their way when this returns. */
template <class T, int per_warp>
__device__ __forceinline__ void load_part(const row_of<T> &row, int part,
                                          segment_values<T> (&segments)[per_warp]) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
    for (int k = 0; k < per_warp; k++) {
        const int s = (part * per_warp + k) * stream_warps + warp;
        if (s < row.n_segments) segments[k].load(row, s, lane);
    }
}

/* What the plan asks of them. */
template <class T, int per_warp>
__device__ __forceinline__ void weigh_part(const row_of<T> &row, int part, const stream_plan &plan,
                                           const segment_values<T> (&segments)[per_warp]) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
    for (int k = 0; k < per_warp; k++) {
        const int s = (part * per_warp + k) * stream_warps + warp;
        if (s >= row.n_segments) continue;
        const float mine = segments[k].most();
        if (plan.lanes) __stcg(row.memory.lanes() + s * warp_lanes + lane, mine);
        const float most = key_value(__reduce_max_sync(whole_warp, order_key(mine)));
        const float top = most * plan.scale;
        u64 mass = 0;
        if (plan.scale > 0 && alea__has_exponent(top)) {
            mass = segments[k].mass(plan.scale, (int32_t)rintf(top));
        }
        if (lane == 0) {
            __stcg(row.memory.segments() + s,
                   make_uint4(__float_as_uint(most), 0, (uint32_t)mass, (uint32_t)(mass >> 32)));
        }
        if (plan.second > 0) {
            const float at = most * plan.second;
            u64 sum = 0;
            if (alea__has_exponent(at)) sum = segments[k].mass(plan.second, (int32_t)rintf(at));
            if (lane == 0) __stcg(row.memory.extra() + s, sum);
        }
        if (plan.moment) {
            int64_t sum = 0;
            if (alea__has_exponent(top)) sum = segments[k].moment(plan.scale, (int32_t)rintf(top));
            if (lane == 0) __stcg(row.memory.extra() + s, (u64)sum);
        }
        if (plan.count && most > plan.above) {
            count_above(segments[k], plan, row.memory.state, lane);
        }
    }
}

template <class T, int per_warp, class MakePlan>
__device__ __forceinline__ void stream_part(const row_of<T> &row, int part, MakePlan make_plan) {
    segment_values<T> segments[per_warp];
    load_part(row, part, segments);
    const stream_plan plan = make_plan();
    weigh_part(row, part, plan, segments);
}

/* Whether this block is the row's last, in which case everything the others stored is seen. */
__device__ __forceinline__ bool is_last_block(row_state *state, int parts) {
    __shared__ int last;
    __syncthreads();
    if (threadIdx.x == 0) {
        int before;
        asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;"
                     : "=r"(before)
                     : "l"(&state->arrived)
                     : "memory");
        last = before == parts - 1;
    }
    __syncthreads();
    return last;
}

/* The counters as the next call wants them; by the last block, after it has read them. */
__device__ __forceinline__ void clear_counters(row_state *state) {
    __syncthreads();
    if (threadIdx.x == 0) {
        state->arrived = 0;
        state->above = 0;
        state->n_ties = 0;
    }
}

/* ---- launches ---------------------------------------------------------------------------- */

/* Whether a launch is long enough for the passing of its data to matter more than its end; blocks
 * that a row takes, and segments a warp: two where that still fills the machine. */
struct stream_shape {
    bool large;
    int per_warp, parts;
};

template <class T> constexpr int large_per_warp = sizeof(typename T::word) == 2 ? 2 : 1;

template <class T> inline stream_shape stream_shape_of(int64_t rows, int32_t vocab) {
    const int segments = (vocab + ALEA_SEGMENT - 1) / ALEA_SEGMENT;
    stream_shape shape;
    shape.large = rows * segments >= 128 * 128;
    shape.per_warp = shape.large ? large_per_warp<T> : 1;
    const int each = stream_warps * shape.per_warp;
    shape.parts = (segments + each - 1) / each;
    return shape;
}

#endif
