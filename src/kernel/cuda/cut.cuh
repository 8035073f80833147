/*
 * The cut that keeps a given number or mass of a row's largest logits, by one block that reads the
 * row as often as it takes. A histogram says about where it is; then the bracket is counted, never
 * guessed, so it always ends: by value while that makes progress and by the order of float bits
 * every other time.
 */
#ifndef ALEA_KERNEL_CUDA_CUT_CUH
#define ALEA_KERNEL_CUDA_CUT_CUH

#include "kernel/cuda/finish.cuh"

constexpr int cut_bins = 1024;
constexpr int cut_octaves = 32; /* below the maximum, over which the bins are spread */
static_assert(cut_bins * sizeof(uint32_t) <= sizeof(u64) * candidates_max, "there is room");

/* Bins of a histogram, both ends among them. */
struct bin_range {
    int first, last;
};

/* low reaches the target, high does not. */
struct cut_bracket {
    float low, high;
    reached at_low, at_high;

    __device__ __forceinline__ int32_t between() const {
        return at_low.count - at_high.count;
    }
};

template <class T>
struct cut_search {
    const row_of<T> &row;
    const mass_rule *rule; /* NULL: entries are counted */
    u64 target;
    finish_scratch &scratch;

    __device__ __forceinline__ u64 measure_of(const reached &r) const {
        return rule ? r.mass : (u64)r.count;
    }

    /* Let a measured cut take the place of the bound that it improves. */
    __device__ bool take(cut_bracket &b, float cut, const reached &at) const {
        const bool enough = measure_of(at) >= target;
        if (enough && cut > b.low) {
            b.low = cut;
            b.at_low = at;
        }
        if (!enough && cut <= b.high) { /* the maximum itself may be taken */
            b.high = cut;
            b.at_high = at;
        }
        return enough;
    }

    __device__ bool attempt(cut_bracket &b, float cut) const {
        const float cuts[1] = {cut};
        reached at[1];
        block_measure(row, rule, cuts, at, scratch.block);
        return take(b, cut, at[0]);
    }

    /* Logits that halve the weight. */
    __device__ __forceinline__ float octave() const {
        return rule ? 1.0f / rule->scale : 0.7f;
    }

    /* How many entries lie in each bin below the maximum. */
    __device__ void count_bins(float max) const {
        uint32_t *bins = (uint32_t *)scratch.keys;
        const float per_logit = (float)cut_bins / ((float)cut_octaves * octave());
        __syncthreads();
        for (int i = threadIdx.x; i < cut_bins; i += blockDim.x)
            bins[i] = 0;
        __syncthreads();
        for (int s = threadIdx.x >> 5; s < row.n_segments; s += blockDim.x >> 5) {
            segment_values<T> segment;
            segment.load(row, s, threadIdx.x & 31);
#pragma unroll
            for (int i = 0; i < segment_values<T>::vectors; i++) {
#pragma unroll
                for (int e = 0; e < T::per_vector; e++) {
                    const float at = (max - T::get(segment.v[i], e)) * per_logit;
                    if (at >= 0.0f && at < (float)cut_bins) atomicAdd(bins + (int)at, 1);
                }
            }
        }
        __syncthreads();
    }

    /* What the target is in weights of the maximum, or entries. */
    __device__ __forceinline__ float goal(float max) const {
        if (!rule) return (float)target;
        return (float)((double)target * 0x1p-40) * exp2f((float)rule->exponent - max * rule->scale);
    }

    /* Where the goal is reached if entries weigh what their bin's middle does: the first and the
     * last bin that it can well be. An entry is off by half a bin at most, 0.29 of one in the mean
     * square, and many make up for each other; this is four times what is left. */
    __device__ bin_range likely_bins(float goal, float octaves) const {
        const uint32_t *bins = (const uint32_t *)scratch.keys;
        const float fade = octaves / (float)cut_bins; /* octaves a bin */
        const int each = cut_bins / (int)blockDim.x, first = (int)threadIdx.x * each;
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        float2 *warps = (float2 *)scratch.mass;
        if (threadIdx.x == 0) scratch.place = scratch.last = cut_bins - 1;
        float own = 0, squares = 0;
        for (int i = first; i < first + each; i++) {
            const float weight = weight_of(bins[i], fade, i);
            own += weight;
            if (weight > 0) squares += weight * weight / (float)bins[i];
        }
        float running = own;
        for (int d = 1; d < warp_lanes; d <<= 1) {
            const float before = __shfl_up_sync(whole_warp, running, d);
            if (lane >= d) running += before;
            squares += __shfl_xor_sync(whole_warp, squares, d);
        }
        if (lane == 31) warps[warp] = make_float2(running, squares);
        __syncthreads();
        squares = 0;
        for (int i = 0; i < (int)blockDim.x / warp_lanes; i++) {
            if (i < warp) running += warps[i].x;
            squares += warps[i].y;
        }
        const float off = (rule ? 1.16f * (float)ALEA_LN2 * fade * sqrtf(squares) : 0.0f) +
                          goal * 1e-5f; /* the sums are rounded */
        float sum = running - own;
        for (int i = first; i < first + each; i++) {
            sum += weight_of(bins[i], fade, i);
            if (sum >= goal - off) atomicMin(&scratch.place, i);
            if (sum >= goal + off) atomicMin(&scratch.last, i);
        }
        __syncthreads();
        return {scratch.place, scratch.last};
    }

    /* Of the entries in a bin. */
    __device__ __forceinline__ float weight_of(uint32_t entries, float fade, int bin) const {
        if (!rule || entries == 0) return (float)entries;
        return (float)entries * exp2f(-fade * ((float)bin + 0.5f));
    }

    /* Two bounds around the likely bin, measured in one pass. */
    __device__ void open(cut_bracket &b) const {
        const float max = b.high, width = (float)cut_octaves * octave() / (float)cut_bins;
        count_bins(max);
        const bin_range bins = likely_bins(goal(max), (float)cut_octaves);
        const float cuts[2] = {max - fmaxf((float)bins.first - 0.1f, 0.0f) * width,
                               max - ((float)bins.last + 1.1f) * width};
        reached at[2];
        if (!(cuts[1] > b.low)) return;
        block_measure(row, rule, cuts, at, scratch.block);
        (void)take(b, cuts[1], at[1]);
        (void)take(b, cuts[0], at[0]);
    }

    __device__ float middle(const cut_bracket &b, int turn) const {
        const float half = b.low * 0.5f + b.high * 0.5f;
        if (turn % 2 == 0 && half > b.low && half < b.high) return half;
        const int32_t low = walk_key(b.low), high = walk_key(b.high);
        return walk_value(low + (int32_t)(((int64_t)high - low) / 2));
    }

    /* Gather the entries in [low, high). */
    __device__ void gather_between(const cut_bracket &b) const {
        const int lane = threadIdx.x & 31;
        __syncthreads();
        if (threadIdx.x == 0) scratch.n = 0;
        __syncthreads();
        for (int s = threadIdx.x >> 5; s < row.n_segments; s += blockDim.x >> 5) {
            if (!(row.segment_max(s) >= b.low)) continue;
            segment_values<T> segment;
            segment.load(row, s, lane);
#pragma unroll
            for (int i = 0; i < segment_values<T>::vectors * T::per_vector; i++) {
                const int vector = i / T::per_vector, e = i % T::per_vector;
                const float x = T::get(segment.v[vector], e);
                if (!(x >= b.low && x < b.high)) continue;
                const int id = s * ALEA_SEGMENT + (vector * warp_lanes + lane) * T::per_vector + e;
                const int to = id < row.n ? atomicAdd(&scratch.n, 1) : candidates_max;
                if (to >= candidates_max) continue;
                scratch.x[to] = x;
                scratch.id[to] = id;
            }
        }
        __syncthreads();
    }

    /* The few entries in [low, high), decided one by one; false: they do not decide it. */
    __device__ bool among(const cut_bracket &b, float *cut) const {
        gather_between(b);
        const int n = scratch.n;
        if (!rule) {
            const int k = (int)(target - (u64)b.at_high.count);
            *cut = block_kth_of_few(scratch.x, n, k, scratch) + 0.0f;
            return true;
        }
        sort_candidates(n, scratch);
        return sorted_cut(stored_maxima<T>{row}, *rule, n, b.at_high.mass, target, cut, scratch);
    }
};

/*
 * The largest cut that at least `target` >= 1 entries, or with a rule tokens of at least that mass,
 * reach. low is known to reach it, with the mass `mass`; -inf: all do. The row's segments hold no
 * NaN.
 */
template <class T>
__device__ float block_cut(const row_of<T> &row, const mass_rule *rule, u64 target, float low,
                           u64 mass, finish_scratch &scratch) {
    const float max = block_row_max(row, scratch.block);
    if (max == -INFINITY) return max;
    const cut_search<T> search = {row, rule, target, scratch};
    cut_bracket b;
    b.low = low;
    b.high = max;
    b.at_low = {mass, low > -INFINITY ? block_count_ge(row, low, scratch.block) : row.n};
    b.at_high = {0, 0};
    if (search.attempt(b, max)) return max;
    if (b.between() > candidates_max) search.open(b);
    bool gathered = false;
    for (int turn = 0;; turn++) {
        float cut;
        if (b.between() <= candidates_max && !gathered) {
            gathered = true;
            if (search.among(b, &cut)) return cut;
        }
        cut = search.middle(b, turn);
        if (walk_key(cut) == walk_key(b.low)) return b.low;
        (void)search.attempt(b, cut);
    }
}

#endif
