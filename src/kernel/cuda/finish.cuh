/*
 * The quick way to finish a row: the few entries that matter are gathered by way of the maxima that
 * the stream stored, and everything else is decided among them in shared memory. Where there are
 * too many, gathering says so and the caller takes the ways of block.cuh and cut.cuh.
 *
 * Whatever k maxima reach, at least k entries reach: that is the bound, found first among segments
 * (or parts of segments), then among the lanes of those that reach it.
 *
 * A mass is aligned segment by segment, so it is no sum over tokens. But taken in some order, each
 * token adds what its segment's aligned sum grows by; those steps do add up, and a prefix sum over
 * them answers every question about masses at once.
 */
#ifndef ALEA_KERNEL_CUDA_FINISH_CUH
#define ALEA_KERNEL_CUDA_FINISH_CUH

#include "kernel/cuda/block.cuh"

constexpr int candidates_max = 1024;
constexpr int groups_max = 1024;
constexpr int lanes_max = 2048;

/* A candidate in the order of ids: a segment's stand together. */
struct candidate {
    float x;
    uint32_t weight;
    int32_t id;
    int32_t depth; /* of its segment; -1: it weighs nothing in the row */
};

struct finish_scratch {
    block_scratch block;
    uint32_t bound, top;
    int n_lanes, n, place;
    alignas(16) float groups[groups_max];
    u64 mass[groups_max]; /* segments' masses; then the candidates' steps and their sums */
    alignas(16) float x[candidates_max];
    int32_t id[candidates_max];
    union {
        struct {
            alignas(16) float most[lanes_max];
            int32_t at[lanes_max]; /* segment * 32 + lane */
        } lanes;
        alignas(16) candidate sorted[candidates_max];
        alignas(16) u64 keys[candidates_max];
    };
};

/* ---- the row as a whole ------------------------------------------------------------------ */

/* The row's maximum; scratch.groups and scratch.mass are its segments', where they have room. */
template <class T> __device__ float load_segments(const row_of<T> &row, finish_scratch &scratch) {
    __syncthreads();
    if (threadIdx.x == 0) scratch.top = 0;
    __syncthreads();
    uint32_t most = 0;
    for (int s = threadIdx.x; s < row.n_segments; s += blockDim.x) {
        const uint4 y = __ldcg(row.memory.segments() + s);
        if (s < groups_max) {
            scratch.groups[s] = __uint_as_float(y.x);
            scratch.mass[s] = (u64)y.w << 32 | y.z;
        }
        most = max(most, order_key(__uint_as_float(y.x)));
    }
    most = __reduce_max_sync(whole_warp, most);
    if ((threadIdx.x & 31) == 0) atomicMax(&scratch.top, most);
    __syncthreads();
    return key_value(scratch.top);
}

/* The row's mass by what was loaded; for a rule that is not shifted. */
template <class T>
__device__ u64 loaded_mass(const row_of<T> &row, const mass_rule &rule, finish_scratch &scratch) {
    if (row.n_segments > groups_max) return block_stored_mass(row, rule, false, scratch.block);
    u64 mass = 0;
    for (int s = threadIdx.x; s < row.n_segments; s += blockDim.x) {
        int32_t exponent;
        if (!segment_exponent(rule, scratch.groups[s], &exponent)) continue;
        mass += align_mass(scratch.mass[s], rule.exponent - exponent);
    }
    return block_sum(mass, scratch.block);
}

/* ---- gathering --------------------------------------------------------------------------- */

/* The k-th largest of v[m], k <= m, by counting for each how many are larger. v has room for, and
 * gets, three more. */
__device__ inline float block_kth_of_few(float *v, int m, int k, finish_scratch &scratch) {
    __syncthreads();
    if (threadIdx.x == 0) scratch.bound = 0xffffffffu;
    if (threadIdx.x < 3 && m + (int)threadIdx.x < ((m + 3) & ~3)) v[m + threadIdx.x] = -INFINITY;
    __syncthreads();
    for (int i = threadIdx.x; i < m; i += blockDim.x) {
        const float mine = v[i];
        int larger = 0;
#pragma unroll 4
        for (int j = 0; j < m; j += 4) {
            const float4 y = *(const float4 *)(v + j);
            larger += (y.x > mine) + (y.y > mine) + (y.z > mine) + (y.w > mine);
        }
        if (larger < k) atomicMin(&scratch.bound, order_key(mine));
    }
    __syncthreads();
    return key_value(scratch.bound);
}

/* The lanes' maxima of the first segments of each warp, on their way while the bound is found. */
struct first_lanes {
    static constexpr int each = 16;
    float most[each];

    template <class T> __device__ __forceinline__ void load(const row_of<T> &row, int first) {
        const int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
#pragma unroll
        for (int i = 0; i < each; i++) {
            const int s = first + (int)(threadIdx.x >> 5) + i * warps;
            most[i] = s < row.n_segments ? __ldcg(row.memory.lanes() + s * warp_lanes + lane)
                                         : __int_as_float(0x7fffffff);
        }
    }
};

/* Maxima of parts of segments, so many that k of them make a good bound; returns how many. */
template <class T>
__device__ int collect_groups(const row_of<T> &row, int k, first_lanes lanes,
                              finish_scratch &scratch) {
    int parts = 1;
    while (parts < warp_lanes && row.n_segments * parts < 2 * k &&
           row.n_segments * parts * 2 <= groups_max)
        parts *= 2;
    if (parts == 1) return row.n_segments; /* load_segments put them there */
    const int each = warp_lanes / parts, lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    __syncthreads();
    for (int first = 0; first < row.n_segments; first += warps * first_lanes::each) {
        if (first > 0) lanes.load(row, first);
#pragma unroll
        for (int i = 0; i < first_lanes::each; i++) {
            const int s = first + (int)(threadIdx.x >> 5) + i * warps;
            float most = lanes.most[i];
            for (int d = 1; d < each; d <<= 1)
                most = fmaxf(most, __shfl_xor_sync(whole_warp, most, d));
            if (lane % each == 0 && s < row.n_segments)
                scratch.groups[s * parts + lane / each] = most;
        }
    }
    return row.n_segments * parts;
}

/* Lanes whose maximum reaches `bound`, into scratch.lanes; n_lanes counts also those for which
 * there was no room. */
template <class T>
__device__ void collect_lanes(const row_of<T> &row, first_lanes lanes, float bound,
                              finish_scratch &scratch) {
    const int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    for (int first = 0; first < row.n_segments; first += warps * first_lanes::each) {
        if (first > 0) lanes.load(row, first);
#pragma unroll
        for (int i = 0; i < first_lanes::each; i++) {
            if (!(lanes.most[i] >= bound)) continue;
            const int at = atomicAdd(&scratch.n_lanes, 1);
            if (at >= lanes_max) continue;
            scratch.lanes.most[at] = lanes.most[i];
            scratch.lanes.at[at] =
                (first + (int)(threadIdx.x >> 5) + i * warps) * warp_lanes + lane;
        }
    }
}

/* The entries >= bound of the collected lanes. */
template <class T>
__device__ void collect_entries(const row_of<T> &row, float bound, finish_scratch &scratch) {
    constexpr int vectors = ALEA_SEGMENT / warp_lanes / T::per_vector;
    const int n_lanes = scratch.n_lanes;
    for (int q = threadIdx.x; q < n_lanes * vectors; q += blockDim.x) {
        if (!(scratch.lanes.most[q / vectors] >= bound)) continue;
        const int where = scratch.lanes.at[q / vectors], i = q % vectors;
        const int at = (where / warp_lanes) * ALEA_SEGMENT +
                       (i * warp_lanes + where % warp_lanes) * T::per_vector;
        if (at >= row.n) continue;
        const uint4 v = row.vector(at);
#pragma unroll
        for (int e = 0; e < T::per_vector; e++) {
            const float x = T::get(v, e);
            if (!(x >= bound) || at + e >= row.n) continue;
            const int to = atomicAdd(&scratch.n, 1);
            if (to >= candidates_max) continue;
            scratch.x[to] = x;
            scratch.id[to] = at + e;
        }
    }
}

/*
 * Gather every entry >= some bound that is at most `reach` and that, with k >= 1, at least k
 * entries reach. `margin` widens it before entries are gathered. Returns how many, in scratch.x and
 * scratch.id in no order; -1: too many. The row's segments are loaded and hold no NaN.
 */
template <class T, class Margin>
__device__ int gather(const row_of<T> &row, int k, float reach, Margin margin,
                      finish_scratch &scratch) {
    if (k > 0 && row.n_segments > groups_max) return -1;
    first_lanes lanes;
    lanes.load(row, 0);
    float bound = reach;
    if (threadIdx.x == 0) scratch.n_lanes = scratch.n = 0;
    if (k > 0) {
        const int n_groups = collect_groups(row, k, lanes, scratch);
        bound = n_groups >= k ? block_kth_of_few(scratch.groups, n_groups, k, scratch) : -INFINITY;
        bound = fminf(bound, reach);
    }
    __syncthreads();
    collect_lanes(row, lanes, margin(bound), scratch);
    __syncthreads();
    const int n_lanes = scratch.n_lanes;
    if (n_lanes > lanes_max) return -1;
    if (k > 0 && n_lanes > k + k / 2) {
        bound = fminf(block_kth_of_few(scratch.lanes.most, n_lanes, k, scratch), reach);
    }
    collect_entries(row, margin(bound), scratch);
    __syncthreads();
    return scratch.n <= candidates_max ? scratch.n : -1;
}

struct no_margin {
    __device__ __forceinline__ float operator()(float bound) const {
        return bound;
    }
};

/* ---- masses among candidates ------------------------------------------------------------- */

/* What candidate `j` of the sorted ones adds to its segment's aligned mass, when it comes after
 * those of its segment for which before(other) holds. base: what the segment has without them. */
template <class Before>
__device__ __forceinline__ u64 candidate_step(const candidate *sorted, int n, int j, u64 base,
                                              Before before) {
    const candidate own = sorted[j];
    if (own.depth < 0 || own.weight == 0) return 0;
    const int32_t segment = own.id / ALEA_SEGMENT;
    u64 sum = base;
    for (int i = j - 1; i >= 0 && sorted[i].id / ALEA_SEGMENT == segment; i--)
        sum += before(sorted[i]) ? sorted[i].weight : 0;
    for (int i = j + 1; i < n && sorted[i].id / ALEA_SEGMENT == segment; i++)
        sum += before(sorted[i]) ? sorted[i].weight : 0;
    return align_mass(sum + own.weight, own.depth) - align_mass(sum, own.depth);
}

/* scratch.mass[n] becomes its running sum; by the first warp, between barriers. */
__device__ inline void sum_steps(int n, finish_scratch &scratch) {
    __syncthreads();
    if (threadIdx.x < warp_lanes) {
        u64 before = 0;
        for (int first = 0; first < n; first += warp_lanes) {
            const int i = first + (int)threadIdx.x;
            const u64 sum = before + warp_prefix(i < n ? scratch.mass[i] : 0, threadIdx.x);
            if (i < n) scratch.mass[i] = sum;
            before = __shfl_sync(whole_warp, sum, 31);
        }
    }
    __syncthreads();
}

/* The first i < n for which holds(i), n where there is none. holds is monotone. */
template <class Holds> __device__ int first_place(int n, Holds holds, finish_scratch &scratch) {
    __syncthreads();
    if (threadIdx.x == 0) scratch.place = n;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        if (holds(i) && (i == 0 || !holds(i - 1))) scratch.place = i;
    }
    __syncthreads();
    return scratch.place;
}

/*
 * The candidates by id in scratch.sorted, weighed under the rule; scratch.x by value downward, and
 * scratch.mass[i] the mass of the i + 1 largest of them, `above` included. base, where not NULL,
 * has the sums of the row's segments without the candidates, of which `above` is the mass.
 */
template <class T>
__device__ void rank_candidates(const row_of<T> &row, const mass_rule &rule, int n, const u64 *base,
                                u64 above, finish_scratch &scratch) {
    constexpr int each = 4; /* candidates a thread, at 256 threads */
    int rank[each], place[each];
    float value[each];
    __syncthreads();
#pragma unroll
    for (int q = 0; q < each; q++) {
        const int i = (int)threadIdx.x + q * (int)blockDim.x;
        if (i >= n) break;
        const float x = scratch.x[i];
        const int32_t id = scratch.id[i];
        rank[q] = place[q] = 0;
        value[q] = x;
#pragma unroll 4
        for (int j = 0; j < n; j++) {
            const float y = scratch.x[j];
            const bool earlier = scratch.id[j] < id;
            place[q] += earlier;
            rank[q] += y > x || (y == x && earlier);
        }
        candidate c = {x, 0, id, -1};
        int32_t exponent;
        if (segment_exponent(rule, row.segment_max(id / ALEA_SEGMENT), &exponent)) {
            c.depth = rule.exponent - exponent;
            c.weight = weigh_above(rule.shifted ? x - rule.max : x, rule.scale,
                                   ALEA_EXP2_MAGIC - (float)exponent,
                                   alea__weight_floor(rule.scale, exponent));
        }
        scratch.sorted[place[q]] = c;
    }
    __syncthreads();
#pragma unroll
    for (int q = 0; q < each; q++) {
        if ((int)threadIdx.x + q * (int)blockDim.x >= n) break;
        const candidate own = scratch.sorted[place[q]];
        const u64 sum = base ? __ldcg(base + own.id / ALEA_SEGMENT) : 0;
        const u64 step = candidate_step(scratch.sorted, n, place[q], sum, [=](const candidate &c) {
            return c.x > own.x || (c.x == own.x && c.id < own.id);
        });
        scratch.mass[rank[q]] = step + (rank[q] == 0 ? above : 0);
        scratch.x[rank[q]] = value[q];
    }
    sum_steps(n, scratch);
}

/* No less than the mass of the n gathered entries, and hardly more. It costs less than ranking
 * them. */
template <class T>
__device__ u64 gathered_mass(const row_of<T> &row, const mass_rule &rule, int n,
                             finish_scratch &scratch) {
    u64 most = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        int32_t exponent;
        if (!segment_exponent(rule, row.segment_max(scratch.id[i] / ALEA_SEGMENT), &exponent))
            continue;
        const uint32_t weight =
            weigh_above(scratch.x[i], rule.scale, ALEA_EXP2_MAGIC - (float)exponent,
                        alea__weight_floor(rule.scale, exponent));
        most += align_mass(weight, rule.exponent - exponent) + 1;
    }
    return block_sum(most, scratch.block);
}

/* Gather entries that might hold the mass `target`, `least` of the best among them: few at first,
 * for a nucleus is small in most rows, then some more where that came near. -1: they do not. */
template <class T, class Margin>
__device__ int gather_nucleus(const row_of<T> &row, const mass_rule &rule, u64 target, int least,
                              Margin margin, finish_scratch &scratch) {
    for (int lanes = 48; lanes <= 192; lanes *= 4) {
        const int n = gather(row, max(lanes, least), INFINITY, margin, scratch);
        if (n < 0) return -1;
        const u64 mass = gathered_mass(row, rule, n, scratch);
        if (mass >= target) return n;
        if (mass < target / 8 * 5) return -1;
    }
    return -1;
}

/* The mass of the ranked candidates with logit >= cut. */
__device__ inline u64 ranked_mass_ge(int n, float cut, finish_scratch &scratch) {
    const int below = first_place(
        n, [&](int i) { return !(scratch.x[i] >= cut); }, scratch);
    return below > 0 ? scratch.mass[below - 1] : 0;
}

/* The largest of the ranked logits that tokens of at least the mass `target` reach, +0 for both
 * zeros; false: they do not reach it together. */
__device__ inline bool ranked_cut(int n, u64 target, float *cut, finish_scratch &scratch) {
    const int i = first_place(
        n, [&](int j) { return scratch.mass[j] >= target; }, scratch);
    if (i == n) return false;
    *cut = scratch.x[i] + 0.0f;
    return true;
}

/* The candidate that `bits` draw among those with logit >= cut; *kept is their mass. They must be
 * ranked; what was known of their masses is lost. */
__device__ inline int32_t ranked_draw(int n, float cut, uint32_t bits, u64 *kept,
                                      finish_scratch &scratch) {
    __syncthreads();
    for (int j = threadIdx.x; j < n; j += blockDim.x) {
        const candidate own = scratch.sorted[j];
        scratch.mass[j] =
            own.x >= cut
                ? candidate_step(scratch.sorted, n, j, 0,
                                 [=](const candidate &c) { return c.id < own.id && c.x >= cut; })
                : 0;
    }
    sum_steps(n, scratch);
    *kept = scratch.mass[n - 1];
    const u64 point = drawn_point(bits, *kept);
    const int i = first_place(
        n, [&](int j) { return scratch.mass[j] > point; }, scratch);
    return scratch.sorted[min(i, n - 1)].id;
}

#endif
