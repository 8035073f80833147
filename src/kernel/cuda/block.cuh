/*
 * One row and one block: everything that can be asked of a row by the threads of a block alone.
 * These are the exact ways that always end; kernels take them where the quick way of finish.cuh
 * does not apply. Any block of whole warps will do.
 */
#ifndef ALEA_KERNEL_CUDA_BLOCK_CUH
#define ALEA_KERNEL_CUDA_BLOCK_CUH

#include "kernel/cuda/device.cuh"

constexpr int tie_slots = 24;

/* What the blocks of a row tell the last of them, and what later launches are told. All zero
 * between calls: whoever reads a row last clears it. */
struct row_state {
    int arrived;   /* blocks that have finished their part */
    int above;     /* entries above the token that was asked about */
    int n_ties;    /* of those, entries so close that only the report can tell */
    int unsettled; /* the quick way did not apply */
    int whole;     /* masks: the row passes as it is */
    float cut;     /* masks */
    float ties[tie_slots];
};

/* A row's part of the workspace. */
struct row_memory {
    uint4 *segments; /* [segments] maximum, 0, mass */
    u64 *extra;      /* [segments] a second mass, or a moment */
    float *lanes;    /* [segments][32] maxima */
    row_state *state;
};

/* The whole workspace, as kernels get it. */
struct workspace_memory {
    char *base;
    int64_t row_bytes;
    int32_t segments;
};

__device__ __forceinline__ row_memory memory_of(const workspace_memory &w, int64_t row) {
    char *at = w.base + row * w.row_bytes;
    row_memory m;
    m.state = (row_state *)at;
    m.segments = (uint4 *)(at + sizeof(row_state));
    m.extra = (u64 *)(m.segments + w.segments);
    m.lanes = (float *)(m.extra + w.segments);
    return m;
}

template <class T> struct row_of {
    const typename T::word *x;
    int32_t n, n_segments;
    bool aligned;
    row_memory memory;

    __device__ __forceinline__ float value(int i) const { return T::widen(__ldg(x + i)); }
    __device__ __forceinline__ float segment_max(int s) const {
        return __uint_as_float(__ldcg(&memory.segments[s].x));
    }
    __device__ __forceinline__ u64 segment_mass(int s) const {
        return __ldcg((const u64 *)&memory.segments[s] + 1);
    }
    __device__ __forceinline__ uint4 vector(int at) const {
        return load_vector<T>(x, n, at, aligned);
    }
};

template <class T>
__device__ __forceinline__ row_of<T> open_row(const void *data, int32_t n, row_memory memory) {
    row_of<T> row;
    row.x = (const typename T::word *)data;
    row.n = n;
    row.n_segments = (n + ALEA_SEGMENT - 1) / ALEA_SEGMENT;
    row.aligned = ((uintptr_t)data & 15) == 0;
    row.memory = memory;
    return row;
}

/* ---- over the block ---------------------------------------------------------------------- */

struct block_scratch {
    u64 word[warp_lanes];
};

template <class Combine>
__device__ __forceinline__ u64 block_reduce(u64 value, block_scratch &scratch, u64 neutral,
                                            Combine combine) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    for (int d = 16; d; d >>= 1)
        value = combine(value, __shfl_xor_sync(whole_warp, value, d));
    __syncthreads(); /* whoever still reads the last result */
    if (lane == 0) scratch.word[warp] = value;
    __syncthreads();
    value = lane < warps ? scratch.word[lane] : neutral;
    for (int d = 16; d; d >>= 1)
        value = combine(value, __shfl_xor_sync(whole_warp, value, d));
    return value;
}

struct add_words {
    __device__ u64 operator()(u64 a, u64 b) const { return a + b; }
};
struct larger_word {
    __device__ u64 operator()(u64 a, u64 b) const { return a > b ? a : b; }
};
struct smaller_word {
    __device__ u64 operator()(u64 a, u64 b) const { return a < b ? a : b; }
};

__device__ __forceinline__ u64 block_sum(u64 value, block_scratch &scratch) {
    return block_reduce(value, scratch, 0, add_words());
}
__device__ __forceinline__ u64 block_max(u64 value, block_scratch &scratch) {
    return block_reduce(value, scratch, 0, larger_word());
}
__device__ __forceinline__ u64 block_min(u64 value, block_scratch &scratch) {
    return block_reduce(value, scratch, ~(u64)0, smaller_word());
}

/* The row's maximum by its segments'; NaN where one is. */
template <class T>
__device__ float block_row_max(const row_of<T> &row, block_scratch &scratch) {
    uint32_t most = 0;
    for (int s = threadIdx.x; s < row.n_segments; s += blockDim.x)
        most = max(most, order_key(row.segment_max(s)));
    return key_value((uint32_t)block_max(most, scratch));
}

__device__ __forceinline__ bool is_sound(float max) {
    return max >= -FLT_MAX && max <= FLT_MAX;
}

/* ---- masses and counts ------------------------------------------------------------------- */

/* The weights of segment s with logit >= cut, summed over the warp. */
template <class T>
__device__ u64 warp_segment_sum(const row_of<T> &row, const mass_rule &rule, int s,
                                int32_t exponent, float cut) {
    const int lane = threadIdx.x & 31;
    const float magic = ALEA_EXP2_MAGIC - (float)exponent;
    const float floor = alea__weight_floor(rule.scale, exponent);
    const float offset = rule.shifted ? rule.max : 0.0f;
    u64 sum = 0;
    for (int at = lane * T::per_vector; at < ALEA_SEGMENT; at += warp_lanes * T::per_vector) {
        const uint4 v = row.vector(s * ALEA_SEGMENT + at);
#pragma unroll
        for (int e = 0; e < T::per_vector; e++) {
            const float x = T::get(v, e);
            const uint32_t weight =
                weigh_above(rule.shifted ? x - offset : x, rule.scale, magic, floor);
            sum += x >= cut ? weight : 0;
        }
    }
    return warp_sum(sum);
}

/* The mass of the logits >= cut; sums, where not NULL, gets each segment's own. */
template <class T>
__device__ u64 block_mass_ge(const row_of<T> &row, const mass_rule &rule, float cut, u64 *sums,
                             block_scratch &scratch) {
    const int lane = threadIdx.x & 31;
    u64 mass = 0;
    for (int s = threadIdx.x >> 5; s < row.n_segments; s += blockDim.x >> 5) {
        const float most = row.segment_max(s);
        int32_t exponent;
        u64 sum = 0;
        if (most >= cut && segment_exponent(rule, most, &exponent)) {
            sum = warp_segment_sum(row, rule, s, exponent, cut);
            if (lane == 0) mass += align_mass(sum, rule.exponent - exponent);
        }
        if (sums && lane == 0) __stcg(sums + s, sum);
    }
    return block_sum(mass, scratch);
}

/* The row's mass from what the stream stored of its segments; for a rule that is not shifted. */
template <class T>
__device__ u64 block_stored_mass(const row_of<T> &row, const mass_rule &rule, bool extra,
                                 block_scratch &scratch) {
    u64 mass = 0;
    for (int s = threadIdx.x; s < row.n_segments; s += blockDim.x) {
        int32_t exponent;
        if (!segment_exponent(rule, row.segment_max(s), &exponent)) continue;
        const u64 sum = extra ? __ldcg(row.memory.extra + s) : row.segment_mass(s);
        mass += align_mass(sum, rule.exponent - exponent);
    }
    return block_sum(mass, scratch);
}

/* How many logits are >= cut. */
template <class T>
__device__ int32_t block_count_ge(const row_of<T> &row, float cut, block_scratch &scratch) {
    const int lane = threadIdx.x & 31;
    u64 count = 0;
    for (int s = threadIdx.x >> 5; s < row.n_segments; s += blockDim.x >> 5) {
        if (!(row.segment_max(s) >= cut)) continue;
        for (int at = lane * T::per_vector; at < ALEA_SEGMENT; at += warp_lanes * T::per_vector) {
            const int first = s * ALEA_SEGMENT + at;
            const uint4 v = row.vector(first);
#pragma unroll
            for (int e = 0; e < T::per_vector; e++)
                count += T::get(v, e) >= cut && first + e < row.n;
        }
    }
    return (int32_t)block_sum(count, scratch);
}

/* The smallest id whose logit is the maximum of a sound row. */
template <class T>
__device__ int32_t block_greedy(const row_of<T> &row, float max, block_scratch &scratch) {
    u64 first = ~(u64)0;
    for (int s = threadIdx.x; s < row.n_segments; s += blockDim.x) {
        if (row.segment_max(s) == max) first = min(first, (u64)s);
    }
    const int s = (int)block_min(first, scratch);
    first = ~(u64)0;
    for (int i = threadIdx.x; i < ALEA_SEGMENT && s * ALEA_SEGMENT + i < row.n; i += blockDim.x) {
        if (row.value(s * ALEA_SEGMENT + i) == max) first = min(first, (u64)i);
    }
    return s * ALEA_SEGMENT + (int32_t)block_min(first, scratch);
}

/* ---- draws ------------------------------------------------------------------------------- */

/* How a segment's entries weigh in a draw from logits; in a draw from probabilities there is a
 * struct of the same members. */
template <class T> struct logit_draw {
    row_of<T> row;
    mass_rule rule;
    float cut;
    const u64 *sums; /* each segment's, by the same cut */

    __device__ __forceinline__ bool depth(int s, int32_t *d) const {
        int32_t exponent;
        if (!segment_exponent(rule, row.segment_max(s), &exponent)) return false;
        *d = rule.exponent - exponent;
        return true;
    }
    __device__ __forceinline__ u64 sum(int s) const { return __ldcg(sums + s); }
    __device__ __forceinline__ u64 align(u64 sum, int32_t d) const { return align_mass(sum, d); }
    __device__ __forceinline__ int32_t n_segments() const { return row.n_segments; }
    __device__ __forceinline__ int32_t n() const { return row.n; }
    __device__ __forceinline__ u64 weight(int i, int32_t d) const {
        const float x = row.value(i);
        const int32_t exponent = rule.exponent - d;
        const uint32_t w = weigh_above(rule.shifted ? x - rule.max : x, rule.scale,
                                       ALEA_EXP2_MAGIC - (float)exponent,
                                       alea__weight_floor(rule.scale, exponent));
        return x >= cut ? w : 0;
    }
};

/* The same by the masses that the stream stored with the segments. */
template <class T> struct stored_draw : logit_draw<T> {
    __device__ __forceinline__ u64 sum(int s) const { return this->row.segment_mass(s); }
};

/* The entry of segment s at which the running aligned mass first exceeds `left`; by one warp. */
template <class Draw> __device__ int32_t warp_draw_in(const Draw &draw, int s, int32_t d, u64 left) {
    const int lane = threadIdx.x & 31;
    u64 before = 0;
    for (int first = 0; first < ALEA_SEGMENT; first += warp_lanes) {
        const int i = s * ALEA_SEGMENT + first + lane;
        const u64 running = before + warp_prefix(i < draw.n() ? draw.weight(i, d) : 0, lane);
        const unsigned beyond = __ballot_sync(whole_warp, draw.align(running, d) > left);
        if (beyond) return s * ALEA_SEGMENT + first + __ffs(beyond) - 1;
        before = __shfl_sync(whole_warp, running, 31);
    }
    return min((s + 1) * ALEA_SEGMENT, draw.n()) - 1;
}

/* The token that `bits` draw from a mass `total` > 0, by one warp; all lanes return it. */
template <class Draw> __device__ int32_t warp_draw(const Draw &draw, uint32_t bits, u64 total) {
    const int lane = threadIdx.x & 31;
    const u64 point = drawn_point(bits, total);
    u64 before = 0;
    for (int first = 0; first < draw.n_segments(); first += warp_lanes) {
        const int s = first + lane;
        int32_t d = 0;
        const u64 part =
            s < draw.n_segments() && draw.depth(s, &d) ? draw.align(draw.sum(s), d) : 0;
        const u64 running = before + warp_prefix(part, lane);
        const unsigned beyond = __ballot_sync(whole_warp, running > point);
        if (beyond) {
            const int from = __ffs(beyond) - 1;
            const u64 left = point - __shfl_sync(whole_warp, running - part, from);
            return warp_draw_in(draw, first + from, __shfl_sync(whole_warp, d, from), left);
        }
        before = __shfl_sync(whole_warp, running, 31);
    }
    return draw.n() - 1; /* never: the point is below the total */
}

#endif
