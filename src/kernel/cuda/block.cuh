/*
 * One row and one block: everything that can be asked of a row by the threads of a block alone.
 * These are the exact ways that always end; kernels take them where the quick way of finish.cuh
 * does not apply. Any block of whole warps will do.
 */
#ifndef ALEA_KERNEL_CUDA_BLOCK_CUH
#define ALEA_KERNEL_CUDA_BLOCK_CUH

#include "kernel/cuda/device.cuh"

constexpr int tie_slots = 24;

/* What a chain's first launch tells its second of a row. */
struct weighed_row {
    u64 mass;
    float max, prob; /* of the draft's token */
    int32_t greedy;
    int32_t sound;
};

/* What the blocks that settle a row together tell each other; see settle.cuh. Zero when the row is
 * put on the list. */
struct team_state {
    u64 above;       /* mass, or number, of what is at or above `high` */
    float low, high; /* the cut lies in [low, high) */
    int arrived;     /* of both phases */
    int between;     /* entries found in [low, high) */
    int bracketed;   /* low and high are there */
};

/* What the blocks of a row tell the last of them, and what later launches are told. The counters
 * are zero between calls: whoever reads a row last clears them. */
struct alignas(128) row_state {
    int arrived; /* blocks that have finished their part */
    int above;   /* entries above the token that was asked about */
    int n_ties;  /* of those, entries so close that only the report can tell */
    int whole;   /* masks: the row passes as it is */
    float cut;   /* masks */
    union {
        float ties[tie_slots];
        weighed_row weighed;
        team_state team;
    };
};

/* An argument of a call: its first row, and the bytes to the next; NULL: not given. */
struct row_column {
    char *data;
    int64_t step;
    template <class V> __device__ __forceinline__ V *at(int64_t row) const {
        return data ? (V *)(data + row * step) : nullptr;
    }
    template <class V> __device__ __forceinline__ V get(int64_t row, V neutral) const {
        return data ? *(const V *)(data + row * step) : neutral;
    }
    template <class V> __device__ __forceinline__ void put(int64_t row, V value) const {
        if (data) *(V *)(data + row * step) = value;
    }
};

/* A row's part of the workspace: one address, from which its arrays follow. */
struct row_memory {
    row_state *state;
    int32_t room; /* segments */

    /* [room] maximum, 0, mass */
    __device__ __forceinline__ uint4 *segments() const {
        return (uint4 *)(state + 1);
    }
    /* [room][32] maxima; 16-byte aligned */
    __device__ __forceinline__ float *lanes() const {
        return (float *)(segments() + room);
    }
    /* [room] a second mass, or a moment */
    __device__ __forceinline__ u64 *extra() const {
        return (u64 *)(lanes() + room * warp_lanes);
    }
    /* [row_bins] zero between calls; a histogram, then candidates, (bits, id) each */
    __device__ __forceinline__ uint32_t *bins() const {
        return (uint32_t *)(extra() + room);
    }
};

constexpr int row_bins = 2048;

/* The rows that their last blocks could not settle. All zero between launches. */
struct alignas(128) settle_list {
    int n, ticket, done;
    int rows[1]; /* as many as the workspace has */
};

/* The whole workspace, as kernels get it. */
struct workspace_memory {
    char *base;
    int64_t row_bytes;
    int32_t segments;
    settle_list *unsettled; /* NULL where nothing is ever left unsettled */
};

__device__ __forceinline__ row_memory memory_of(const workspace_memory &w, int64_t row) {
    return {(row_state *)(w.base + row * w.row_bytes), w.segments};
}

template <class T> struct row_of {
    const typename T::word *x;
    int32_t n, n_segments;
    bool aligned;
    row_memory memory;

    __device__ __forceinline__ float value(int i) const {
        return T::widen(__ldg(x + i));
    }
    __device__ __forceinline__ float segment_max(int s) const {
        return __uint_as_float(__ldcg(&memory.segments()[s].x));
    }
    __device__ __forceinline__ u64 segment_mass(int s) const {
        return __ldcg((const u64 *)&memory.segments()[s] + 1);
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

struct larger_word {
    __device__ u64 operator()(u64 a, u64 b) const {
        return a > b ? a : b;
    }
};
struct smaller_word {
    __device__ u64 operator()(u64 a, u64 b) const {
        return a < b ? a : b;
    }
};

/* Modulo 2^64. */
__device__ __forceinline__ u64 block_sum(u64 value, block_scratch &scratch) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    value = warp_sum_any(value);
    __syncthreads(); /* whoever still reads the last result */
    if (lane == 0) scratch.word[warp] = value;
    __syncthreads();
    return warp_sum_any(lane < warps ? scratch.word[lane] : 0);
}
/* Running sum over the threads of the block; *total: of all. */
__device__ inline u64 block_prefix(u64 value, block_scratch &scratch, u64 *total) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    value = warp_prefix(value, lane);
    __syncthreads();
    if (lane == 31) scratch.word[warp] = value;
    __syncthreads();
    const u64 sums = warp_prefix(lane < warps ? scratch.word[lane] : 0, lane);
    const u64 before = __shfl_sync(whole_warp, sums, max(warp - 1, 0));
    *total = __shfl_sync(whole_warp, sums, 31);
    return warp > 0 ? before + value : value;
}
__device__ __forceinline__ u64 block_max(u64 value, block_scratch &scratch) {
    return block_reduce(value, scratch, 0, larger_word());
}
__device__ __forceinline__ u64 block_min(u64 value, block_scratch &scratch) {
    return block_reduce(value, scratch, ~(u64)0, smaller_word());
}

/* The row's maximum by its segments'; NaN where one is. */
template <class T> __device__ float block_row_max(const row_of<T> &row, block_scratch &scratch) {
    uint32_t most = 0;
    for (int s = threadIdx.x; s < row.n_segments; s += blockDim.x)
        most = max(most, order_key(row.segment_max(s)));
    return key_value((uint32_t)block_max(most, scratch));
}

__device__ __forceinline__ bool is_sound(float max) {
    return max >= -FLT_MAX && max <= FLT_MAX;
}

/* ---- a segment in a warp ----------------------------------------------------------------- */

template <class T> struct segment_values {
    static constexpr int vectors = ALEA_SEGMENT / warp_lanes / T::per_vector;
    uint4 v[vectors];

    __device__ __forceinline__ void load(const row_of<T> &row, int s, int lane) {
        const int first = s * ALEA_SEGMENT + lane * T::per_vector;
        if (row.aligned && (s + 1) * ALEA_SEGMENT <= row.n) {
#pragma unroll
            for (int i = 0; i < vectors; i++)
                v[i] = load_once(row.x + first + i * warp_lanes * T::per_vector);
        } else {
#pragma unroll
            for (int i = 0; i < vectors; i++)
                v[i] = row.vector(first + i * warp_lanes * T::per_vector);
        }
    }

    __device__ __forceinline__ float most() const {
        float most = T::most(v[0]);
#pragma unroll
        for (int i = 1; i < vectors; i++)
            most = max_or_nan(most, T::most(v[i]));
        return most + 0.0f; /* -0 becomes +0: which zero wins is never seen */
    }

    /* Sum of the weights; a finite floor lets values be clamped instead of tested. */
    __device__ __forceinline__ u64 mass(float scale, int32_t exponent) const {
        const float magic = ALEA_EXP2_MAGIC - (float)exponent;
        const float floor = alea__weight_floor(scale, exponent);
        u64 sum = 0;
        if (floor >= -FLT_MAX && abs(exponent) <= T::clamp_exponent_max) {
#pragma unroll
            for (int i = 0; i < vectors; i++) {
                const uint4 y = T::clamp(v[i], floor);
                uint32_t part = 0;
#pragma unroll
                for (int e = 0; e < T::per_vector; e++) {
                    part += weigh(clamped(T::get(y, e), floor), scale, magic);
                    if (e % ALEA_WEIGHTS_PER_U32 == ALEA_WEIGHTS_PER_U32 - 1) {
                        sum += part;
                        part = 0;
                    }
                }
            }
        } else {
#pragma unroll
            for (int i = 0; i < vectors; i++) {
#pragma unroll
                for (int e = 0; e < T::per_vector; e++)
                    sum += weigh_above(T::get(v[i], e), scale, magic, floor);
            }
        }
        return warp_sum(sum);
    }

    /* T::clamp leaves float16 alone. */
    static __device__ __forceinline__ float clamped(float x, float floor) {
        return sizeof(typename T::word) == 2 && T::dropped == 0xfc00 ? fmaxf(x, floor) : x;
    }

    /* Sum of W * q, see segment_entropy in kernel_list.h. */
    __device__ __forceinline__ int64_t moment(float scale, int32_t exponent) const {
        const float magic = ALEA_EXP2_MAGIC - (float)exponent;
        const float floor = alea__weight_floor(scale, exponent);
        int64_t sum = 0;
#pragma unroll
        for (int i = 0; i < vectors; i++) {
#pragma unroll
            for (int e = 0; e < T::per_vector; e++)
                sum += entropy_part(T::get(v[i], e), scale, magic, floor);
        }
        return (int64_t)warp_sum_any((u64)sum);
    }

    static __device__ __forceinline__ int64_t entropy_part(float x, float scale, float magic,
                                                           float floor) {
        const weight_parts parts = weigh_parts(x > floor ? x : 0.0f, scale, magic);
        const int32_t q = (int32_t)(parts.t - ALEA_EXP2_MAGIC) * (1 << 24) +
                          (int32_t)rintf(parts.fraction * 0x1p24f);
        return x > floor ? (int64_t)parts.weight * q : 0;
    }
};

/* ---- masses and counts ------------------------------------------------------------------- */

/* What reaches a cut. */
struct reached {
    u64 mass; /* of a segment: the sum of weights */
    int32_t count;
};

/* One segment's by each of N cuts, summed over the warp; without a rule only counts. -inf entries
 * beyond the row's end count for no cut above -inf. */
template <class T, int N>
__device__ __forceinline__ void warp_measure(const row_of<T> &row, const mass_rule *rule, int s,
                                             bool weighs, int32_t exponent, const float (&cuts)[N],
                                             reached (&out)[N]) {
    const int lane = threadIdx.x & 31;
    segment_values<T> segment;
    segment.load(row, s, lane);
    const float scale = rule ? rule->scale : 1.0f, magic = ALEA_EXP2_MAGIC - (float)exponent;
    const float floor = alea__weight_floor(scale, exponent);
    u64 sums[N] = {};
    int32_t counts[N] = {};
    const bool shifted = rule && rule->shifted;
    const float offset = shifted ? rule->max : 0.0f;
#pragma unroll
    for (int i = 0; i < segment_values<T>::vectors; i++) {
        uint32_t parts[N] = {};
#pragma unroll
        for (int e = 0; e < T::per_vector; e++) {
            const float x = T::get(segment.v[i], e);
            const uint32_t weight =
                weighs ? weigh_above(shifted ? x - offset : x, scale, magic, floor) : 0;
#pragma unroll
            for (int c = 0; c < N; c++) {
                parts[c] += x >= cuts[c] ? weight : 0;
                counts[c] += x >= cuts[c];
                if (e % ALEA_WEIGHTS_PER_U32 == ALEA_WEIGHTS_PER_U32 - 1) {
                    sums[c] += parts[c];
                    parts[c] = 0;
                }
            }
        }
    }
#pragma unroll
    for (int c = 0; c < N; c++) {
        out[c].mass = warp_sum(sums[c]);
        out[c].count = (int32_t)__reduce_add_sync(whole_warp, counts[c]);
    }
}

/* The weights of segment s with logit >= cut, summed over the warp. */
template <class T>
__device__ __forceinline__ u64 warp_segment_sum(const row_of<T> &row, const mass_rule &rule, int s,
                                                int32_t exponent, float cut) {
    const float cuts[1] = {cut};
    reached out[1];
    warp_measure(row, &rule, s, true, exponent, cuts, out);
    return out[0].mass;
}

/* What reaches each of N cuts above -inf, over the row. */
template <class T, int N>
__device__ void block_measure(const row_of<T> &row, const mass_rule *rule, const float (&cuts)[N],
                              reached (&out)[N], block_scratch &scratch) {
    u64 masses[N] = {}, counts[N] = {};
    float least = cuts[0];
#pragma unroll
    for (int c = 1; c < N; c++)
        least = fminf(least, cuts[c]);
    for (int s = threadIdx.x >> 5; s < row.n_segments; s += blockDim.x >> 5) {
        const float most = row.segment_max(s);
        int32_t exponent = 0;
        if (!(most >= least)) continue;
        const bool weighs = rule && segment_exponent(*rule, most, &exponent);
        reached here[N];
        warp_measure(row, rule, s, weighs, exponent, cuts, here);
#pragma unroll
        for (int c = 0; c < N; c++) {
            if (weighs) masses[c] += align_mass(here[c].mass, rule->exponent - exponent);
            counts[c] += (u64)here[c].count;
        }
    }
    const bool first = (threadIdx.x & 31) == 0; /* a warp's lanes hold the same */
#pragma unroll
    for (int c = 0; c < N; c++) {
        out[c].mass = block_sum(first ? masses[c] : 0, scratch);
        out[c].count = (int32_t)block_sum(first ? counts[c] : 0, scratch);
    }
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
        const u64 sum = extra ? __ldcg(row.memory.extra() + s) : row.segment_mass(s);
        mass += align_mass(sum, rule.exponent - exponent);
    }
    return block_sum(mass, scratch);
}

/* How many logits are >= cut, above -inf. */
template <class T>
__device__ int32_t block_count_ge(const row_of<T> &row, float cut, block_scratch &scratch) {
    const float cuts[1] = {cut};
    reached out[1];
    block_measure(row, (const mass_rule *)nullptr, cuts, out, scratch);
    return out[0].count;
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
    __device__ __forceinline__ u64 sum(int s) const {
        return __ldcg(sums + s);
    }
    __device__ __forceinline__ u64 align(u64 sum, int32_t d) const {
        return align_mass(sum, d);
    }
    __device__ __forceinline__ int32_t n_segments() const {
        return row.n_segments;
    }
    __device__ __forceinline__ int32_t n() const {
        return row.n;
    }
    __device__ __forceinline__ u64 weight(int i, int32_t d) const {
        const float x = row.value(i);
        const int32_t exponent = rule.exponent - d;
        const uint32_t w = weigh_above(rule.shifted ? x - rule.max : x, rule.scale,
                                       ALEA_EXP2_MAGIC - (float)exponent,
                                       alea__weight_floor(rule.scale, exponent));
        return x >= cut ? w : 0;
    }
};

/* The same by segments' maxima and masses that lie in shared memory. */
template <class T> struct held_draw : logit_draw<T> {
    const float *maxima;
    const u64 *masses;

    __device__ __forceinline__ bool depth(int s, int32_t *d) const {
        int32_t exponent;
        if (!segment_exponent(this->rule, maxima[s], &exponent)) return false;
        *d = this->rule.exponent - exponent;
        return true;
    }
    __device__ __forceinline__ u64 sum(int s) const {
        return masses[s];
    }
};

/* What the threads of a block tell each other of a draw. */
struct draw_scratch {
    u64 left; /* of the point, where its segment begins */
    int32_t segment, depth, token;
};

/* The token that `bits` draw from a mass `total` > 0: the entry at which the running aligned mass
 * first exceeds the point, first among segments, then in the one where that is. Every thread of the
 * block returns it. */
template <class Draw>
__device__ int32_t block_draw(const Draw &draw, uint32_t bits, u64 total, block_scratch &scratch) {
    __shared__ draw_scratch found;
    const u64 point = drawn_point(bits, total);
    u64 before = 0;
    __syncthreads();
    if (threadIdx.x == 0) found = {0, draw.n_segments() - 1, 0, draw.n() - 1};
    for (int first = 0; before <= point && first < draw.n_segments(); first += blockDim.x) {
        const int s = first + (int)threadIdx.x;
        int32_t d = 0;
        const u64 part =
            s < draw.n_segments() && draw.depth(s, &d) ? draw.align(draw.sum(s), d) : 0;
        u64 all;
        const u64 running = before + block_prefix(part, scratch, &all);
        before += all;
        if (running > point && running - part <= point)
            found = {point - (running - part), s, d, min((s + 1) * ALEA_SEGMENT, draw.n()) - 1};
    }
    __syncthreads();
    const u64 left = found.left;
    const int32_t d = found.depth, own = ALEA_SEGMENT / (int)blockDim.x;
    const int first = found.segment * ALEA_SEGMENT + (int)threadIdx.x * own;
    u64 sum = 0, all;
    for (int i = first; i < min(first + own, draw.n()); i++)
        sum += draw.weight(i, d);
    const u64 end = block_prefix(sum, scratch, &all);
    if (draw.align(end, d) > left && draw.align(end - sum, d) <= left) {
        u64 running = end - sum;
        int i = first;
        while (draw.align(running += draw.weight(i, d), d) <= left)
            i++;
        found.token = i;
    }
    __syncthreads();
    return found.token;
}

#endif
