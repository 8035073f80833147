/*
 * Rows that their last block could not settle among few entries, such as flat ones under top-p.
 * They stand on a list; the blocks of one launch take them in turn, some for each row, which make
 * its team. A row takes two looks by the whole team: a histogram says about where the cut is, then
 * what is above that is summed and what is near is gathered, and the last block decides exactly.
 * Where that fails the last block goes the long way of cut.cuh alone.
 *
 * Nobody waits for a block that might not be running: parts are handed out by a counter, so those
 * of a row that come later belong to blocks that are free to take them.
 */
#ifndef ALEA_KERNEL_CUDA_SETTLE_CUH
#define ALEA_KERNEL_CUDA_SETTLE_CUH

#include "kernel/cuda/cut.cuh"

constexpr int settle_threads = 512;
constexpr int settle_blocks_per_sm = 1; /* with fewer registers it would spill */
constexpr int team_max = 16;
static_assert(2 * candidates_max <= row_bins, "candidates lie where the bins were");
static_assert(cut_bins <= row_bins && cut_bins % settle_threads == 0, "one histogram");

/* By the last block of a row's stream. */
__device__ __forceinline__ void leave_unsettled(const workspace_memory &workspace,
                                                const row_memory &memory, int64_t index) {
    if (threadIdx.x != 0) return;
    memory.state->team = team_state{};
    workspace.unsettled->rows[atomicAdd(&workspace.unsettled->n, 1)] = (int)index;
}

/* A part of a row's team. */
struct team_part {
    int row; /* of the workspace; -1: there is no more to do */
    int part, parts;
};

/* The next part for this block. */
__device__ inline team_part take_part(settle_list *list, int n) {
    __shared__ int ticket;
    const int parts = min(max((int)gridDim.x / n, 1), team_max);
    __syncthreads();
    if (threadIdx.x == 0) ticket = atomicAdd(&list->ticket, 1);
    __syncthreads();
    if (ticket >= n * parts) return {-1, 0, 0};
    return {list->rows[ticket / parts], ticket % parts, parts};
}

/* After a block's last part. */
__device__ inline void leave_list(settle_list *list) {
    if (threadIdx.x != 0 || atomicAdd(&list->done, 1) < (int)gridDim.x - 1) return;
    list->n = list->ticket = list->done = 0;
}

/* How many of the team have come so far, this block among them; what they stored is seen. */
__device__ inline int team_arrive(row_state *state) {
    __shared__ int before;
    __syncthreads();
    if (threadIdx.x == 0)
        asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;"
                     : "=r"(before)
                     : "l"(&state->team.arrived)
                     : "memory");
    __syncthreads();
    return before + 1;
}

__device__ inline void team_wait(row_state *state) {
    if (threadIdx.x == 0) {
        int there;
        do {
            asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                         : "=r"(there)
                         : "l"(&state->team.bracketed)
                         : "memory");
            if (!there) __nanosleep(64);
        } while (!there);
    }
    __syncthreads();
}

template <class T>
struct team_search {
    const row_of<T> &row;
    const mass_rule *rule; /* NULL: entries are counted */
    u64 target, all;       /* all: the mass of the row */
    float max;
    team_part team;
    finish_scratch &scratch;

    __device__ __forceinline__ int first_segment() const {
        return team.part * (int)(blockDim.x >> 5) + (int)(threadIdx.x >> 5);
    }
    __device__ __forceinline__ int step() const {
        return team.parts * (int)(blockDim.x >> 5);
    }

    /* Logits from the maximum down to where the cut can be: what is below it weighs 1 - share of
     * the row at least, and is no more than all entries. */
    __device__ float reach() const {
        if (!rule) return (float)cut_octaves * 0.7f;
        const double share = (double)target / (double)all;
        const float rest = (float)fmax(1.0 - share, 1e-7) / (float)row.n;
        const float top = (float)all * exp2f(-40.0f); /* in units of the maximum's weight */
        return fminf((float)cut_octaves, fmaxf(2.0f, 1.0f - log2f(top * rest))) / rule->scale;
    }

    __device__ void count_bins(float per_logit) const {
        uint32_t *bins = (uint32_t *)scratch.keys;
        __syncthreads();
        for (int i = threadIdx.x; i < cut_bins; i += blockDim.x)
            bins[i] = 0;
        __syncthreads();
        for (int s = first_segment(); s < row.n_segments; s += step()) {
            segment_values<T> segment;
            segment.load(row, s, threadIdx.x & 31);
#pragma unroll
            for (int i = 0; i < lane_values; i++) {
                const float x = T::get(segment.v[i / T::per_vector], i % T::per_vector);
                const float at = (max - x) * per_logit;
                if (at >= 0.0f && at < (float)cut_bins) atomicAdd(bins + (int)at, 1);
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < cut_bins; i += blockDim.x)
            if (bins[i]) atomicAdd(row.memory.bins() + i, bins[i]);
    }

    /* The whole histogram, and zeros where it lay. */
    __device__ void merge_bins() const {
        uint32_t *bins = (uint32_t *)scratch.keys;
        for (int i = threadIdx.x; i < cut_bins; i += blockDim.x) {
            bins[i] = __ldcg(row.memory.bins() + i);
            __stcg(row.memory.bins() + i, 0u);
        }
        __syncthreads();
    }

    /* The cut's bracket, by the block that came last; every part gets it. */
    __device__ void bracket(float *low, float *high) const {
        team_state *state = &row.memory.state->team;
        const float logits = reach(), width = logits / (float)cut_bins;
        count_bins((float)cut_bins / logits);
        if (team_arrive(row.memory.state) == team.parts) {
            merge_bins();
            const cut_search<T> search = {row, rule, target, scratch};
            const bin_range bins =
                search.likely_bins(search.goal(max), rule ? logits * rule->scale : 0.0f);
            if (threadIdx.x == 0) { /* a tenth of a bin more, for the edges are rounded */
                state->high = bins.first > 0 ? max - ((float)bins.first - 0.1f) * width : INFINITY;
                state->low = max - ((float)bins.last + 1.1f) * width;
                asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(&state->bracketed)
                             : "memory");
            }
        }
        team_wait(row.memory.state);
        *low = __ldcg(&state->low);
        *high = __ldcg(&state->high);
    }

    /* This part's share of what is above and what is between. */
    __device__ void gather(float low, float high) const {
        team_state *state = &row.memory.state->team;
        const int lane = threadIdx.x & 31;
        u64 above = 0;
        for (int s = first_segment(); s < row.n_segments; s += step()) {
            const float most = row.segment_max(s);
            int32_t exponent = 0;
            u64 sum = 0;
            if (most >= low) {
                const bool weighs = rule && segment_exponent(*rule, most, &exponent);
                sum = gather_segment(s, weighs, exponent, low, high);
                above += rule ? weighs ? align_mass(sum, rule->exponent - exponent) : 0 : sum;
            }
            if (rule && lane == 0) __stcg(row.memory.extra() + s, sum);
        }
        above = block_sum(lane == 0 ? above : 0, scratch.block);
        if (threadIdx.x == 0 && above) atomicAdd(&state->above, above);
    }

    __device__ u64 gather_segment(int s, bool weighs, int32_t exponent, float low,
                                  float high) const {
        const int lane = threadIdx.x & 31;
        segment_values<T> segment;
        segment.load(row, s, lane);
        const float scale = rule ? rule->scale : 1.0f;
        const float magic = ALEA_EXP2_MAGIC - (float)exponent;
        const float floor = alea__weight_floor(scale, exponent);
        u64 sum = 0;
        int near = 0;
#pragma unroll
        for (int i = 0; i < lane_values; i++) {
            const float x = T::get(segment.v[i / T::per_vector], i % T::per_vector);
            if (x >= high) sum += !rule ? 1 : weighs ? weigh_above(x, scale, magic, floor) : 0;
            near += x >= low && x < high;
        }
        if (__any_sync(whole_warp, near)) append(segment, s, low, high, near, lane);
        return warp_sum_any(sum);
    }

    __device__ void append(const segment_values<T> &segment, int s, float low, float high, int near,
                           int lane) const {
        const int running = (int)warp_prefix((u64)near, lane);
        int to = 0;
        if (lane == 31) to = atomicAdd(&row.memory.state->team.between, running);
        to = __shfl_sync(whole_warp, to, 31) + running - near;
#pragma unroll
        for (int i = 0; i < lane_values; i++) {
            const float x = T::get(segment.v[i / T::per_vector], i % T::per_vector);
            if (!(x >= low && x < high)) continue;
            const int id = s * ALEA_SEGMENT +
                           (i / T::per_vector * warp_lanes + lane) * T::per_vector +
                           i % T::per_vector;
            if (to < candidates_max)
                __stcg((uint2 *)row.memory.bins() + to,
                       make_uint2(__float_as_uint(x), (uint32_t)id));
            to++;
        }
    }

    /* The exact cut among what was gathered; false: it is not there. Leaves the bins zero. */
    __device__ bool decide(float *cut) const {
        const team_state *state = &row.memory.state->team;
        const int n = __ldcg(&state->between);
        const u64 above = __ldcg(&state->above);
        for (int i = threadIdx.x; i < min(n, candidates_max); i += blockDim.x) {
            const uint2 entry = __ldcg((const uint2 *)row.memory.bins() + i);
            scratch.x[i] = __uint_as_float(entry.x);
            scratch.id[i] = (int32_t)entry.y;
            __stcg((uint2 *)row.memory.bins() + i, make_uint2(0, 0));
        }
        __syncthreads();
        if (n > candidates_max || n == 0 || above >= target) return false;
        if (!rule) {
            if (target - above > (u64)n) return false;
            *cut = block_kth_of_few(scratch.x, n, (int)(target - above), scratch) + 0.0f;
            return true;
        }
        sort_candidates(n, scratch);
        return sorted_cut(stored_maxima<T>{row}, *rule, n, above, target, cut, scratch);
    }

    /* The sums of each segment's weights at or above the cut, into extra; then all of their mass.
     */
    __device__ u64 complete_sums(float cut) const {
        const int n = __ldcg(&row.memory.state->team.between);
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            const float x = scratch.x[i];
            if (!(x >= cut)) continue;
            const int32_t id = scratch.id[i];
            const candidate c = weigh_candidate(stored_maxima<T>{row}, *rule, x, id);
            atomicAdd(row.memory.extra() + id / ALEA_SEGMENT, (u64)c.weight);
        }
        __syncthreads();
        return block_stored_mass(row, *rule, true, scratch.block);
    }

    /* Whether this is the block to go on: then *found says whether *cut is there. */
    __device__ bool run(bool *found, float *cut) const {
        float low, high;
        bracket(&low, &high);
        gather(low, high);
        if (team_arrive(row.memory.state) < 2 * team.parts) return false;
        *found = decide(cut);
        return true;
    }

    static constexpr int lane_values = segment_values<T>::vectors * T::per_vector;
};

/* Blocks for a launch that may have to settle so many rows: as many as run at once, if there are
 * parts for them. */
inline unsigned settle_blocks(int64_t rows) {
    static const unsigned blocks = [] {
        int device = 0, processors = 0;
        if (cudaGetDevice(&device) != cudaSuccess ||
            cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) !=
                cudaSuccess)
            return (unsigned)team_max;
        return std::max((unsigned)(processors * settle_blocks_per_sm), (unsigned)team_max);
    }();
    return rows < (int64_t)blocks / team_max ? (unsigned)rows * team_max : blocks;
}

#endif
