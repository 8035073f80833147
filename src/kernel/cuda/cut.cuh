/*
 * The cut that keeps a given number or mass of a row's largest logits, by one block that reads the
 * row as often as it takes. A histogram says about where it is; then the bracket is counted, never
 * guessed, so it always ends: by value while that makes progress and by the order of float bits
 * every other time.
 */
#ifndef ALEA_KERNEL_CUDA_CUT_CUH
#define ALEA_KERNEL_CUDA_CUT_CUH

#include "kernel/cuda/finish.cuh"

constexpr int cut_bins = 2048;
constexpr int cut_octaves = 32; /* below the maximum, over which the bins are spread */
static_assert(cut_bins * sizeof(uint32_t) <= sizeof(candidate) * candidates_max, "there is room");

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
        uint32_t *bins = (uint32_t *)scratch.sorted;
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

    /* The bin in which the goal is reached, if entries weigh what their bin's middle does. */
    __device__ int likely_bin(float goal, float octaves) const {
        const uint32_t *bins = (const uint32_t *)scratch.sorted;
        constexpr int each = cut_bins / warp_lanes;
        const float fade = octaves / (float)cut_bins;
        if (threadIdx.x < warp_lanes) {
            const int first = (int)threadIdx.x * each;
            float own = 0;
            for (int i = 0; i < each; i++)
                own += weight_of(bins[first + i], fade, first + i);
            float running = own;
            for (int d = 1; d < warp_lanes; d <<= 1) {
                const float before = __shfl_up_sync(whole_warp, running, d);
                if ((int)threadIdx.x >= d) running += before;
            }
            const unsigned there = __ballot_sync(whole_warp, running >= goal);
            if ((int)threadIdx.x == (there ? __ffs(there) : warp_lanes) - 1) {
                float sum = running - own;
                int i = 0;
                for (; i < each - 1; i++) {
                    sum += weight_of(bins[first + i], fade, first + i);
                    if (sum >= goal) break;
                }
                scratch.place = first + i;
            }
        }
        __syncthreads();
        return scratch.place;
    }

    /* Of the entries in a bin; fade: octaves a bin. */
    __device__ __forceinline__ float weight_of(uint32_t entries, float fade, int bin) const {
        return (float)entries * (rule ? exp2f(-fade * ((float)bin + 0.5f)) : 1.0f);
    }

    /* Two bounds around the likely bin, measured in one pass. */
    __device__ void open(cut_bracket &b) const {
        const float max = b.high, width = (float)cut_octaves * octave() / (float)cut_bins;
        if (threadIdx.x == 0) scratch.place = 0;
        count_bins(max);
        const int bin = likely_bin(goal(max), (float)cut_octaves);
        const float cuts[2] = {max - (float)max_bin(bin - 2) * width,
                               max - (float)(bin + 3) * width};
        reached at[2];
        if (!(cuts[1] > b.low)) return;
        block_measure(row, rule, cuts, at, scratch.block);
        (void)take(b, cuts[1], at[1]);
        (void)take(b, cuts[0], at[0]);
    }

    static __device__ __forceinline__ int max_bin(int bin) {
        return bin > 0 ? bin : 0;
    }

    __device__ float middle(const cut_bracket &b, int turn) const {
        const float half = b.low * 0.5f + b.high * 0.5f;
        if (turn % 2 == 0 && half > b.low && half < b.high) return half;
        const int32_t low = walk_key(b.low), high = walk_key(b.high);
        return walk_value(low + (int32_t)(((int64_t)high - low) / 2));
    }

    /* Gather the entries in [low, high), and the sums of what is above them. */
    __device__ void gather_between(const cut_bracket &b) const {
        const int lane = threadIdx.x & 31;
        __syncthreads();
        if (threadIdx.x == 0) scratch.n = 0;
        __syncthreads();
        const float cuts[1] = {b.high};
        for (int s = threadIdx.x >> 5; s < row.n_segments; s += blockDim.x >> 5) {
            const float most = row.segment_max(s);
            int32_t exponent = 0;
            reached above[1] = {{0, 0}};
            if (most >= b.high && rule && segment_exponent(*rule, most, &exponent)) {
                warp_measure(row, rule, s, true, exponent, cuts, above);
            }
            if (rule && lane == 0) __stcg(row.memory.extra() + s, above[0].mass);
            if (!(most >= b.low)) continue;
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

    /* The few entries in [low, high), decided one by one. */
    __device__ float among(const cut_bracket &b) const {
        gather_between(b);
        const int n = scratch.n;
        if (!rule) {
            const int k = (int)(target - (u64)b.at_high.count);
            return block_kth_of_few(scratch.x, n, k, scratch) + 0.0f;
        }
        float cut;
        rank_candidates(row, *rule, n, row.memory.extra(), b.at_high.mass, scratch);
        return ranked_cut(n, target, &cut, scratch) ? cut : b.low;
    }
};

/*
 * The largest cut that at least `target` >= 1 entries, or with a rule tokens of at least that mass,
 * reach. low is known to reach it, with the mass `mass`; -inf: all do. The row's segments hold no
 * NaN. Uses row.memory.extra().
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
    for (int turn = 0; b.between() > candidates_max; turn++) {
        const float cut = search.middle(b, turn);
        if (walk_key(cut) == walk_key(b.low)) return b.low;
        (void)search.attempt(b, cut);
    }
    return search.among(b);
}

#endif
