/*
 * What is told of a row: its best tokens in the order of reports, and where a token ranks. Used by
 * what reports on a given token and by what draws one.
 *
 * Order is that of reported values, not of logits: distinct logits may report the same.
 */
#ifndef ALEA_KERNEL_CUDA_REPORT_CUH
#define ALEA_KERNEL_CUDA_REPORT_CUH

#include "kernel/cuda/finish.cuh"

/* Where alternatives go; NULL parts are not wanted. */
struct report_job {
    int32_t n;
    int32_t step; /* words from one to the next */
    int32_t *ids;
    float *id_logprobs;
};

__device__ __forceinline__ void put_alternative(const report_job &job, int i, int32_t id,
                                                float logprob) {
    if (job.ids) job.ids[i * job.step] = id;
    if (job.id_logprobs) job.id_logprobs[i * job.step] = logprob;
}

/* The smallest float32 whose report is above `logprob`; false: not even the maximum's is. */
__device__ inline bool cut_above(const mass_rule &rule, double lse, float logprob, float *cut) {
    if (!(report_of(rule, rule.max, lse) > logprob)) return false;
    int32_t low = walk_key(-INFINITY), high = walk_key(rule.max);
    while ((int64_t)high - low > 1) {
        const int32_t middle = low + (int32_t)(((int64_t)high - low) / 2);
        if (report_of(rule, walk_value(middle), lse) > logprob) {
            high = middle;
        } else {
            low = middle;
        }
    }
    *cut = walk_value(high);
    return true;
}

/* Wide enough that whatever reports the same as the bound is gathered too: |logprob| is at most the
 * distance from the maximum and ln of the vocabulary, and this is two of its last places. */
struct report_margin {
    float max;
    __device__ __forceinline__ float operator()(float bound) const {
        return bound - (((max - bound) + 16.0f) * 0x1p-21f + 1e-6f);
    }
};

/* The best k by logprob downward, then id upward, one after the other: k passes over the row. For
 * rows in which very many entries report the same. */
template <class T>
__device__ void rank_slowly(const row_of<T> &row, const mass_rule &rule, double lse,
                            const report_job &job, finish_scratch &scratch) {
    u64 last = ~(u64)0;
    for (int k = 0; k < job.n; k++) {
        u64 best = 0;
        for (int i = threadIdx.x; i < row.n; i += blockDim.x) {
            const float logprob = report_of(rule, row.value(i), lse);
            const u64 key = (u64)order_key(logprob) << 32 | (uint32_t)~i;
            if (key < last && key > best) best = key;
        }
        best = block_max(best, scratch.block);
        if (threadIdx.x == 0) {
            const bool there = k < row.n;
            put_alternative(job, k, there ? (int32_t) ~(uint32_t)best : -1,
                            there ? key_value((uint32_t)(best >> 32)) : NAN);
        }
        last = best;
    }
}

/* The best k of the n gathered candidates, which hold all that report as much as the k-th. */
__device__ inline void put_gathered(const mass_rule &rule, double lse, int n, int k,
                                    const report_job &job, finish_scratch &scratch) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const float logprob = report_of(rule, scratch.x[i], lse);
        scratch.keys[i] = (u64)order_key(logprob) << 32 | (uint32_t)~scratch.id[i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const u64 mine = scratch.keys[i];
        int place = 0;
#pragma unroll 4
        for (int j = 0; j < n; j++)
            place += scratch.keys[j] > mine;
        if (place < k) {
            put_alternative(job, place, (int32_t) ~(uint32_t)mine,
                            key_value((uint32_t)(mine >> 32)));
        }
    }
    for (int i = k + threadIdx.x; i < job.n; i += blockDim.x)
        put_alternative(job, i, -1, NAN);
}

template <class T>
__device__ void put_best(const row_of<T> &row, const mass_rule &rule, double lse,
                         const report_job &job, finish_scratch &scratch) {
    const int k = min(job.n, row.n);
    const report_margin margin = {rule.max};
    const int n = rule.shifted ? -1
                               : trim(gather(row, k, INFINITY, margin, scratch), k, INFINITY,
                                      margin, scratch);
    if (n < 0) {
        rank_slowly(row, rule, lse, job, scratch);
    } else {
        put_gathered(rule, lse, n, k, job, scratch);
    }
}

/* The rank of what reports `logprob`, by counting the row. */
template <class T>
__device__ int32_t counted_rank(const row_of<T> &row, const mass_rule &rule, double lse,
                                float logprob, finish_scratch &scratch) {
    float cut;
    if (!cut_above(rule, lse, logprob, &cut)) return 1;
    return 1 + block_count_ge(row, cut, scratch.block);
}

/* ln of the sum of exponentials, from the maximum, so that the rounding of the scale cancels. */
__device__ __forceinline__ double reported_lse(const mass_rule &rule, double lse) {
    const double from = rule.shifted ? 0.0 : (double)rule.max;
    return (double)rule.max - fma(from, rule.slope, -lse);
}

#endif
