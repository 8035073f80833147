/*
 * The quick way to finish a row: the few entries that matter are gathered by way of the maxima that
 * the stream stored, and everything else is decided among them in shared memory. Where there are
 * too many, gathering says so and the caller takes the ways of block.cuh and cut.cuh.
 *
 * Whatever k maxima reach, at least k entries reach: that is the bound, found first among segments
 * (or parts of segments), then among the lanes of those that reach it.
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
    uint32_t bound;
    int n_lanes, n;
    int32_t token;
    u64 word;
    alignas(16) float groups[groups_max];
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

/* The k-th largest of v[m], k <= m, by counting for each how many are larger. v has room for, and
 * gets, three more. */
__device__ inline float block_kth_of_few(float *v, int m, int k, finish_scratch &scratch) {
    __syncthreads();
    if (threadIdx.x == 0) scratch.bound = 0xffffffffu;
    if (threadIdx.x < 3 && (m & 3)) {
        const int at = m + (int)threadIdx.x;
        if (at < ((m + 3) & ~3)) v[at] = -INFINITY;
    }
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

/* Maxima of parts of segments, so many that k of them make a good bound; returns how many. */
template <class T>
__device__ int collect_groups(const row_of<T> &row, int k, int *split, finish_scratch &scratch) {
    int parts = 1;
    while (parts < warp_lanes && row.n_segments * parts < 2 * k &&
           row.n_segments * parts * 2 <= groups_max)
        parts *= 2;
    *split = parts;
    const int n = row.n_segments * parts;
    if (parts == 1) {
        for (int s = threadIdx.x; s < n; s += blockDim.x)
            scratch.groups[s] = row.segment_max(s);
        return n;
    }
    const int each = warp_lanes / parts;
    for (int s = threadIdx.x >> 5; s < row.n_segments; s += blockDim.x >> 5) {
        const int lane = threadIdx.x & 31;
        float most = __ldcg(row.memory.lanes + s * warp_lanes + lane);
        for (int d = 1; d < each; d <<= 1)
            most = fmaxf(most, __shfl_xor_sync(whole_warp, most, d));
        if (lane % each == 0) scratch.groups[s * parts + lane / each] = most;
    }
    return n;
}

/* Lanes whose maximum reaches `bound`, into scratch.lanes; n_lanes counts also those for which
 * there was no room. */
template <class T>
__device__ void collect_lanes(const row_of<T> &row, float bound, finish_scratch &scratch) {
    constexpr int ahead = 8; /* loads in flight */
    const int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    for (int first = threadIdx.x >> 5; first < row.n_segments; first += warps * ahead) {
        float most[ahead];
#pragma unroll
        for (int i = 0; i < ahead; i++) {
            const int s = first + i * warps;
            most[i] = s < row.n_segments ? __ldcg(row.memory.lanes + s * warp_lanes + lane)
                                         : __int_as_float(0x7fffffff);
        }
#pragma unroll
        for (int i = 0; i < ahead; i++) {
            if (!(most[i] >= bound)) continue;
            const int at = atomicAdd(&scratch.n_lanes, 1);
            if (at >= lanes_max) continue;
            scratch.lanes.most[at] = most[i];
            scratch.lanes.at[at] = (first + i * warps) * warp_lanes + lane;
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
 * Gather every entry >= some bound which at least k >= 1 entries reach; with k = 0, every entry >=
 * *bound. `margin` widens the bound before entries are gathered, and *bound is what it then is.
 * Returns how many, in scratch.x and scratch.id in no order; -1: too many. The row holds no NaN.
 */
template <class T, class Margin>
__device__ int gather(const row_of<T> &row, int k, float *bound, Margin margin,
                      finish_scratch &scratch) {
    __syncthreads();
    if (threadIdx.x == 0) scratch.n_lanes = scratch.n = 0;
    float low = *bound;
    if (k > 0) {
        if (row.n_segments > groups_max) return -1;
        int split;
        const int n_groups = collect_groups(row, k, &split, scratch);
        low = n_groups >= k ? block_kth_of_few(scratch.groups, n_groups, k, scratch) : -INFINITY;
    }
    float wide = margin(low);
    __syncthreads();
    collect_lanes(row, wide, scratch);
    __syncthreads();
    const int n_lanes = scratch.n_lanes;
    if (n_lanes > lanes_max) return -1;
    if (k > 0 && n_lanes > k + k / 2) {
        low = block_kth_of_few(scratch.lanes.most, n_lanes, k, scratch);
        wide = margin(low);
    }
    collect_entries(row, wide, scratch);
    __syncthreads();
    *bound = wide;
    return scratch.n <= candidates_max ? scratch.n : -1;
}

struct no_margin {
    __device__ __forceinline__ float operator()(float bound) const { return bound; }
};

/* scratch.sorted: the candidates by id, weighed under the rule. */
template <class T>
__device__ void sort_candidates(const row_of<T> &row, const mass_rule &rule, int n,
                                finish_scratch &scratch) {
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const int32_t id = scratch.id[i];
        int place = 0;
#pragma unroll 4
        for (int j = 0; j < n; j++)
            place += scratch.id[j] < id;
        candidate c = {scratch.x[i], 0, id, -1};
        int32_t exponent;
        if (segment_exponent(rule, row.segment_max(id / ALEA_SEGMENT), &exponent)) {
            c.depth = rule.exponent - exponent;
            c.weight = weigh_above(rule.shifted ? c.x - rule.max : c.x, rule.scale,
                                   ALEA_EXP2_MAGIC - (float)exponent,
                                   alea__weight_floor(rule.scale, exponent));
        }
        scratch.sorted[place] = c;
    }
    __syncthreads();
}

/*
 * The mass of the first n sorted candidates with logit >= cut. base, where not NULL, has the sums
 * of their segments above all candidates, which count but for their own part.
 */
__device__ inline u64 candidate_mass(const candidate *sorted, int n, float cut, const u64 *base) {
    u64 total = 0, sum = 0, before = 0;
    int32_t segment = -1, depth = 0;
#pragma unroll 2
    for (int j = 0; j < n; j++) {
        const candidate c = sorted[j];
        if (c.depth < 0) continue;
        if (c.id / ALEA_SEGMENT != segment) {
            total += align_mass(sum, depth) - before;
            segment = c.id / ALEA_SEGMENT;
            depth = c.depth;
            sum = base ? __ldcg(base + segment) : 0;
            before = base ? align_mass(sum, depth) : 0;
        }
        sum += c.x >= cut ? c.weight : 0;
    }
    return total + align_mass(sum, depth) - before;
}

/* The k-th largest of the n candidates; at least k of them there are. */
__device__ inline float candidate_kth(int n, int k, finish_scratch &scratch) {
    return block_kth_of_few(scratch.x, n, k, scratch);
}

/*
 * The largest of the sorted candidates' logits that tokens of at least the mass `target` reach,
 * `above` being that of what lies above all of them. -inf: none does. Zeros count as +0.
 */
__device__ inline float candidate_cut(int n, u64 target, u64 above, const u64 *base,
                                      finish_scratch &scratch) {
    uint32_t best = order_key(-INFINITY);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const float x = scratch.sorted[i].x;
        if (order_key(x) <= best) continue;
        if (above + candidate_mass(scratch.sorted, n, x, base) >= target) best = order_key(x);
    }
    return key_value((uint32_t)block_max(best, scratch.block)) + 0.0f;
}

/* The candidate that `bits` draw among those with logit >= cut; *kept is their mass. */
__device__ inline int32_t candidate_draw(int n, float cut, uint32_t bits, u64 *kept,
                                         finish_scratch &scratch) {
    const u64 total = candidate_mass(scratch.sorted, n, cut, nullptr);
    const u64 point = drawn_point(bits, total);
    u64 first = ~(u64)0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        if (scratch.sorted[i].x >= cut &&
            candidate_mass(scratch.sorted, i + 1, cut, nullptr) > point) {
            first = (u64)i;
            break;
        }
    }
    *kept = total;
    return scratch.sorted[(int)block_min(first, scratch.block)].id;
}

#endif
