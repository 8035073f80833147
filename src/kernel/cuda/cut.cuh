/*
 * The cut that keeps a given number or mass of a row's largest logits, by one block that reads the
 * row as often as it takes. The bracket is counted, never guessed, so it always ends: by value
 * while that makes progress and by the order of float bits every other time.
 */
#ifndef ALEA_KERNEL_CUDA_CUT_CUH
#define ALEA_KERNEL_CUDA_CUT_CUH

#include "kernel/cuda/finish.cuh"

/* low reaches the target, high does not. */
struct cut_bracket {
    float low, high;
    int32_t count_low, count_high;
    u64 reached_low, reached_high;
};

template <class T> struct cut_search {
    const row_of<T> &row;
    const mass_rule *rule; /* NULL: entries are counted */
    u64 target;
    finish_scratch &scratch;

    __device__ bool attempt(cut_bracket &b, float cut) const {
        const int32_t count = block_count_ge(row, cut, scratch.block);
        const u64 reached =
            rule ? block_mass_ge(row, *rule, cut, (u64 *)nullptr, scratch.block) : (u64)count;
        if (reached >= target) {
            b.low = cut;
            b.count_low = count;
            b.reached_low = reached;
            return true;
        }
        b.high = cut;
        b.count_high = count;
        b.reached_high = reached;
        return false;
    }

    /* From the maximum downward in growing steps, until one reaches the target. */
    __device__ void open(cut_bracket &b) const {
        const float known = b.low, max = b.high;
        float step = rule ? 1.0f / rule->scale : 1.0f;
        for (int i = 0; i < 16 && b.count_low - b.count_high > candidates_max; i++, step *= 2.0f) {
            const float cut = max - step;
            if (!(cut > known)) return;
            if (cut < b.high && attempt(b, cut)) return;
        }
    }

    __device__ float middle(const cut_bracket &b, int turn) const {
        const float half = b.low * 0.5f + b.high * 0.5f;
        if (turn % 2 == 0 && half > b.low && half < b.high) return half;
        const int32_t low = walk_key(b.low), high = walk_key(b.high);
        return walk_value(low + (int32_t)(((int64_t)high - low) / 2));
    }

    /* The few entries in [low, high), decided one by one. */
    __device__ float among(const cut_bracket &b) const {
        if (rule) (void)block_mass_ge(row, *rule, b.high, row.memory.extra, scratch.block);
        __syncthreads();
        if (threadIdx.x == 0) scratch.n = 0;
        __syncthreads();
        for (int s = threadIdx.x >> 5; s < row.n_segments; s += blockDim.x >> 5) {
            if (!(row.segment_max(s) >= b.low)) continue;
            for (int i = threadIdx.x & 31; i < ALEA_SEGMENT; i += warp_lanes) {
                const int id = s * ALEA_SEGMENT + i;
                if (id >= row.n) break;
                const float x = row.value(id);
                if (!(x >= b.low && x < b.high)) continue;
                const int to = atomicAdd(&scratch.n, 1);
                scratch.x[to] = x;
                scratch.id[to] = id;
            }
        }
        __syncthreads();
        const int n = scratch.n;
        if (!rule) return candidate_kth(n, (int)(target - b.reached_high), scratch) + 0.0f;
        sort_candidates(row, *rule, n, scratch);
        const float cut =
            candidate_cut(n, target, b.reached_high, row.memory.extra, scratch);
        __syncthreads();
        return cut > b.low ? cut : b.low;
    }
};

/*
 * The largest cut that at least `target` >= 1 entries, or with a rule tokens of at least that mass,
 * reach. low is known to reach it, with the mass `reached`; -inf: all do. The row's segments hold
 * no NaN. Uses row.memory.extra.
 */
template <class T>
__device__ float block_cut(const row_of<T> &row, const mass_rule *rule, u64 target, float low,
                           u64 reached, finish_scratch &scratch) {
    const float max = block_row_max(row, scratch.block);
    const cut_search<T> search = {row, rule, target, scratch};
    cut_bracket b;
    b.low = low;
    b.high = max;
    b.count_low = low > -INFINITY ? block_count_ge(row, low, scratch.block) : row.n;
    b.count_high = 0;
    b.reached_low = reached;
    b.reached_high = 0;
    if (search.attempt(b, max)) return max;
    if (b.count_low - b.count_high > candidates_max) search.open(b);
    for (int turn = 0; b.count_low - b.count_high > candidates_max; turn++) {
        const float cut = search.middle(b, turn);
        if (walk_key(cut) == walk_key(b.low)) return b.low;
        (void)search.attempt(b, cut);
    }
    return search.among(b);
}

#endif
