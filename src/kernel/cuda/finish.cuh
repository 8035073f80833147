/*
 * The quick way to finish a row: the few entries that matter are gathered by way of the maxima that
 * the stream stored, and everything else is decided among them in shared memory. Where there are
 * too many, gathering says so and the caller takes the ways of block.cuh and cut.cuh.
 *
 * Whatever k maxima reach, at least k entries reach: that is the bound, found first among segments
 * (or parts of segments), then among the lanes of those that reach it.
 *
 * Masses among them are sums of aligned segments, as everywhere.
 */
#ifndef ALEA_KERNEL_CUDA_FINISH_CUH
#define ALEA_KERNEL_CUDA_FINISH_CUH

#include "kernel/cuda/block.cuh"

constexpr int candidates_max = 1024;
constexpr int groups_max = 1024;
constexpr int lanes_max = 2048;
constexpr int ranked_max = 64; /* candidates that are put in order by comparing each with each */

/* A gathered entry as it is weighed. */
struct alignas(16) candidate {
    float x;
    uint32_t weight;
    int32_t id;
    int32_t depth; /* of its segment; -1: it weighs nothing in the row */
};

struct finish_scratch {
    block_scratch block;
    uint32_t bound, top;
    int n_lanes, n, place, last;
    float maxima[groups_max]; /* segments' */
    alignas(16) float groups[groups_max];
    u64 mass[groups_max]; /* segments', or of what was gathered of them */
    alignas(16) float x[candidates_max];
    int32_t id[candidates_max];
    union {
        struct {
            alignas(16) float most[lanes_max];
            int32_t at[lanes_max]; /* segment * 32 + lane */
        } lanes;
        candidate sorted[ranked_max]; /* by id: a segment's stand together */
        alignas(16) u64 keys[candidates_max];
    };
};

/* ---- the row as a whole ------------------------------------------------------------------ */

/* The row's maximum; scratch.maxima, groups and mass are its segments', where they have room. */
template <class T> __device__ float load_segments(const row_of<T> &row, finish_scratch &scratch) {
    __syncthreads();
    if (threadIdx.x == 0) scratch.top = 0;
    __syncthreads();
    uint32_t most = 0;
    for (int s = threadIdx.x; s < row.n_segments; s += blockDim.x) {
        const uint4 y = __ldcg(row.memory.segments() + s);
        if (s < groups_max) {
            scratch.maxima[s] = scratch.groups[s] = __uint_as_float(y.x);
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
        if (!segment_exponent(rule, scratch.maxima[s], &exponent)) continue;
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

/* The entries >= bound of the collected lanes: some vectors are on their way while others are
 * looked at. */
template <class T>
__device__ void collect_entries(const row_of<T> &row, float bound, finish_scratch &scratch) {
    constexpr int vectors = ALEA_SEGMENT / warp_lanes / T::per_vector, ahead = 4;
    const int n = scratch.n_lanes * vectors;
    for (int base = threadIdx.x; base < n; base += ahead * blockDim.x) {
        uint4 v[ahead];
        int at[ahead];
#pragma unroll
        for (int a = 0; a < ahead; a++) {
            const int q = base + a * (int)blockDim.x;
            at[a] = row.n;
            if (q >= n || !(scratch.lanes.most[q / vectors] >= bound)) continue;
            const int where = scratch.lanes.at[q / vectors], i = q % vectors;
            at[a] = (where / warp_lanes) * ALEA_SEGMENT +
                    (i * warp_lanes + where % warp_lanes) * T::per_vector;
            if (at[a] < row.n) v[a] = row.vector(at[a]);
        }
#pragma unroll
        for (int a = 0; a < ahead; a++) {
            if (at[a] >= row.n) continue;
#pragma unroll
            for (int e = 0; e < T::per_vector; e++) {
                const float x = T::get(v[a], e);
                if (!(x >= bound) || at[a] + e >= row.n) continue;
                const int to = atomicAdd(&scratch.n, 1);
                if (to >= candidates_max) continue;
                scratch.x[to] = x;
                scratch.id[to] = at[a] + e;
            }
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

/* Of n gathered entries those that the k largest need, where it pays; returns how many. */
template <class Margin>
__device__ int trim(int n, int k, float reach, Margin margin, finish_scratch &scratch) {
    if (n <= ranked_max) return n;
    const float bound = margin(fminf(block_kth_of_few(scratch.x, n, k, scratch), reach));
    constexpr int each = candidates_max / 256;
    float x[each];
    int32_t id[each];
#pragma unroll
    for (int q = 0; q < each; q++) {
        const int i = (int)threadIdx.x + q * (int)blockDim.x;
        x[q] = i < n ? scratch.x[i] : -INFINITY;
        id[q] = i < n ? scratch.id[i] : -1;
    }
    __syncthreads();
    if (threadIdx.x == 0) scratch.n = 0;
    __syncthreads();
#pragma unroll
    for (int q = 0; q < each; q++) {
        if (id[q] < 0 || !(x[q] >= bound)) continue;
        const int to = atomicAdd(&scratch.n, 1);
        scratch.x[to] = x[q];
        scratch.id[to] = id[q];
    }
    __syncthreads();
    return scratch.n;
}

/* A bound that at most `aim` of the lanes' maxima reach, of which it lets through what it can. */
template <class T>
__device__ float bound_of_lanes(const row_of<T> &row, float max, float octave, int aim,
                                finish_scratch &scratch) {
    constexpr int bins = 256, octaves = 16;
    uint32_t *counts = (uint32_t *)scratch.groups;
    const float width = octave * (float)octaves / (float)bins;
    __syncthreads();
    for (int i = threadIdx.x; i < bins; i += blockDim.x)
        counts[i] = 0;
    __syncthreads();
    const int warps = blockDim.x >> 5;
    for (int first = 0; first < row.n_segments; first += warps * first_lanes::each) {
        first_lanes lanes;
        lanes.load(row, first);
#pragma unroll
        for (int i = 0; i < first_lanes::each; i++) {
            const float at = (max - lanes.most[i]) / width;
            if (at < (float)bins) atomicAdd(counts + (int)at, 1);
        }
    }
    __syncthreads();
    int place = 0;
    u64 before = 0;
    for (int first = 0; first < bins; first += blockDim.x) {
        const int i = first + (int)threadIdx.x;
        u64 total;
        const u64 own = i < bins ? counts[i] : (u64)aim + 1;
        const u64 running = before + block_prefix(own, scratch.block, &total);
        place += __syncthreads_count(running <= (u64)aim);
        before += total;
    }
    return max - (float)place * width;
}

struct no_margin {
    __device__ __forceinline__ float operator()(float bound) const {
        return bound;
    }
};

/* ---- masses among candidates ------------------------------------------------------------- */

/* Segments' maxima where load_segments put them, or where the stream did. */
struct held_maxima {
    const finish_scratch &scratch;
    __device__ __forceinline__ float operator()(int s) const {
        return scratch.maxima[s];
    }
};
template <class T> struct stored_maxima {
    const row_of<T> &row;
    __device__ __forceinline__ float operator()(int s) const {
        return row.segment_max(s);
    }
};

template <class Maxima>
__device__ __forceinline__ candidate weigh_candidate(Maxima maxima, const mass_rule &rule, float x,
                                                     int32_t id) {
    candidate c = {x, 0, id, -1};
    int32_t exponent;
    if (segment_exponent(rule, maxima(id / ALEA_SEGMENT), &exponent)) {
        c.depth = rule.exponent - exponent;
        c.weight = weigh_above(rule.shifted ? x - rule.max : x, rule.scale,
                               ALEA_EXP2_MAGIC - (float)exponent,
                               alea__weight_floor(rule.scale, exponent));
    }
    return c;
}

/* No less than the mass of the n gathered entries, and hardly more. It costs less than ranking
 * them. */
__device__ inline u64 gathered_mass(const mass_rule &rule, int n, finish_scratch &scratch) {
    u64 most = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const candidate c =
            weigh_candidate(held_maxima{scratch}, rule, scratch.x[i], scratch.id[i]);
        if (c.depth >= 0) most += align_mass(c.weight, c.depth) + 1;
    }
    return block_sum(most, scratch.block);
}

/* Gather entries that might hold the mass `target`, `least` of the best among them: few at first,
 * for a nucleus is small in most rows, then as many as have room where those came near. -1: they
 * do not. */
template <class T, class Margin>
__device__ int gather_nucleus(const row_of<T> &row, const mass_rule &rule, u64 target, int least,
                              Margin margin, finish_scratch &scratch) {
    float reach = INFINITY;
    for (int k = max(48, least), before = 0;; k = 0) {
        const int n = gather(row, k, reach, margin, scratch);
        if (n <= before) return -1; /* too many, or no more than what did not do */
        const u64 mass = gathered_mass(rule, n, scratch);
        if (mass >= target) return n;
        if (k == 0 || mass < target / 4 * 3) return -1;
        before = n;
        reach = bound_of_lanes(row, rule.max, 1.0f / rule.scale, 384, scratch);
    }
}

/* ---- few candidates ---------------------------------------------------------------------- */

/* What candidate `j` of the sorted ones adds to its segment's aligned mass, when it comes after
 * those of its segment for which before(other) holds, without a branch: such steps add up, as
 * masses of segments' parts do not. */
template <class Before>
__device__ __forceinline__ u64 candidate_step(const candidate *sorted, int n, int j,
                                              Before before) {
    const candidate own = sorted[j];
    if (own.depth < 0 || own.weight == 0) return 0;
    const int32_t segment = own.id / ALEA_SEGMENT;
    u64 sum = 0;
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

/* n <= ranked_max candidates by id in scratch.sorted, weighed under the rule; scratch.x by value
 * downward, and scratch.mass[i] the mass of the i + 1 largest of them. */
__device__ inline void rank_candidates(const mass_rule &rule, int n, finish_scratch &scratch) {
    const int i = (int)threadIdx.x;
    int rank = 0, place = 0;
    candidate own = {};
    __syncthreads();
    if (i < n) {
        own = weigh_candidate(held_maxima{scratch}, rule, scratch.x[i], scratch.id[i]);
#pragma unroll 4
        for (int j = 0; j < n; j++) {
            const float y = scratch.x[j];
            const bool earlier = scratch.id[j] < own.id;
            place += earlier;
            rank += (int)(y > own.x) | ((int)(y == own.x) & (int)earlier);
        }
        scratch.sorted[place] = own;
    }
    __syncthreads();
    if (i < n) {
        scratch.mass[rank] = candidate_step(scratch.sorted, n, place, [=](const candidate &c) {
            return (int)(c.x > own.x) | ((int)(c.x == own.x) & (int)(c.id < own.id));
        });
        scratch.x[rank] = own.x;
    }
    sum_steps(n, scratch);
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

/* The ranked candidate that `bits` draw among those with logit >= cut; *kept is their mass. What
 * was known of their masses is lost. */
__device__ inline int32_t ranked_draw(int n, float cut, uint32_t bits, u64 *kept,
                                      finish_scratch &scratch) {
    __syncthreads();
    for (int j = threadIdx.x; j < n; j += blockDim.x) {
        const candidate own = scratch.sorted[j];
        scratch.mass[j] = own.x >= cut
                              ? candidate_step(scratch.sorted, n, j,
                                               [=](const candidate &c) {
                                                   return (int)(c.id < own.id) & (int)(c.x >= cut);
                                               })
                              : 0;
    }
    sum_steps(n, scratch);
    *kept = scratch.mass[n - 1];
    const u64 point = drawn_point(bits, *kept);
    const int i = first_place(
        n, [&](int j) { return scratch.mass[j] > point; }, scratch);
    return scratch.sorted[min(i, n - 1)].id;
}

/* ---- many candidates --------------------------------------------------------------------- */

/* The gathered entries by value downward, in scratch.keys: order_key, then id. Steps of up to a
 * warp's keys stay within that warp. */
__device__ inline void sort_candidates(int n, finish_scratch &scratch) {
    __syncthreads();
    int size = 2 * warp_lanes;
    while (size < n)
        size *= 2;
    for (int i = threadIdx.x; i < size; i += blockDim.x)
        scratch.keys[i] = i < n ? (u64)order_key(scratch.x[i]) << 32 | (uint32_t)scratch.id[i] : 0;
    __syncthreads();
    for (int run = 2; run <= size; run *= 2) {
        for (int step = run / 2; step > 0; step /= 2) {
            if (step >= warp_lanes) __syncthreads();
            __syncwarp();
            for (int i = threadIdx.x; i < size / 2; i += blockDim.x) {
                const int a = 2 * i - (i & (step - 1)), b = a + step;
                const u64 x = scratch.keys[a], y = scratch.keys[b];
                if ((x < y) != ((a & run) == 0)) continue;
                scratch.keys[a] = y;
                scratch.keys[b] = x;
            }
        }
    }
    __syncthreads();
}

/* The i-th of the sorted logits, from 0; +0 for both zeros. */
__device__ __forceinline__ float sorted_value(int i, const finish_scratch &scratch) {
    return key_value((uint32_t)(scratch.keys[i] >> 32)) + 0.0f;
}

/*
 * The largest of the sorted logits that tokens of at least the mass `target` reach, +0 for both
 * zeros; above: the mass of what is larger than all of them. Next to others of its segment a token
 * adds its aligned weight or one more, so two running sums say where the target is reached. false:
 * they do not reach it together, or the sums cannot tell, which is very rare.
 */
template <class Maxima>
__device__ bool sorted_cut(Maxima maxima, const mass_rule &rule, int n, u64 above, u64 target,
                           float *cut, finish_scratch &scratch) {
    constexpr int each_max = candidates_max / 256;
    const int each = (n + (int)blockDim.x - 1) / (int)blockDim.x;
    const int first = (int)threadIdx.x * each;
    u64 mass[each_max], sum = 0, all;
    unsigned inexact = 0; /* bits: whether it may add one more */
#pragma unroll
    for (int q = 0; q < each_max; q++) {
        mass[q] = 0;
        if (q >= each || first + q >= n) continue;
        const u64 key = scratch.keys[first + q];
        const candidate c =
            weigh_candidate(maxima, rule, key_value((uint32_t)(key >> 32)), (int32_t)key);
        if (c.depth < 0) continue;
        mass[q] = align_mass(c.weight, c.depth);
        inexact |= (unsigned)(mass[q] << c.depth != (u64)c.weight << ALEA_MASS_SHIFT) << q;
        sum += mass[q];
    }
    if (threadIdx.x == 0) scratch.place = scratch.last = n;
    u64 running = above + block_prefix(sum, scratch.block, &all) - sum;
    u64 extra = block_prefix(__popc(inexact), scratch.block, &all) - __popc(inexact);
#pragma unroll
    for (int q = 0; q < each_max; q++) {
        if (q >= each || first + q >= n) continue;
        const bool reached = running < target;
        const bool might = running + extra < target;
        running += mass[q];
        extra += inexact >> q & 1;
        if (might && running + extra >= target) scratch.place = first + q;
        if (reached && running >= target) scratch.last = first + q;
    }
    __syncthreads();
    if (scratch.last >= n || scratch.place >= n) return false;
    *cut = sorted_value(scratch.last, scratch);
    return sorted_value(scratch.place, scratch) == *cut;
}

/* The mass of the gathered entries >= cut, for a rule that is not shifted; scratch.mass has their
 * segments' sums. */
__device__ __noinline__ inline u64 summed_mass(int n_segments, mass_rule rule, int n, float cut,
                                               finish_scratch &scratch) {
    uint2 *halves = (uint2 *)scratch.mass; /* of 16 bits of each weight */
    __syncthreads();
    for (int s = threadIdx.x; s < n_segments; s += blockDim.x)
        halves[s] = make_uint2(0, 0);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        if (!(scratch.x[i] >= cut)) continue;
        const int32_t id = scratch.id[i];
        const candidate c = weigh_candidate(held_maxima{scratch}, rule, scratch.x[i], id);
        atomicAdd(&halves[id / ALEA_SEGMENT].x, c.weight & 0xffffu);
        atomicAdd(&halves[id / ALEA_SEGMENT].y, c.weight >> 16);
    }
    __syncthreads();
    u64 mass = 0;
    for (int s = threadIdx.x; s < n_segments; s += blockDim.x) {
        const uint2 half = halves[s];
        scratch.mass[s] = ((u64)half.y << 16) + half.x;
        int32_t exponent;
        if (segment_exponent(rule, scratch.maxima[s], &exponent))
            mass += align_mass(scratch.mass[s], rule.exponent - exponent);
    }
    return block_sum(mass, scratch.block);
}

/* The cut of top-k (0: none) and then, where `nucleus`, of top-p among many gathered entries; `all`
 * is the mass of the row. false: they do not decide it. Apart, for rows need it rarely and it would
 * take registers from the others. */
__device__ __noinline__ inline bool many_cut(int n_segments, mass_rule rule, int n, int k,
                                             bool nucleus, float p, u64 all, float *cut,
                                             finish_scratch &scratch) {
    sort_candidates(n, scratch);
    float kth = -INFINITY, least = -INFINITY;
    if (k > 0) kth = sorted_value(k - 1, scratch);
    if (nucleus) {
        if (k > 0) all = summed_mass(n_segments, rule, n, kth, scratch);
        const u64 target = share_of(p, all);
        if (!sorted_cut(held_maxima{scratch}, rule, n, 0, target, &least, scratch)) return false;
    }
    *cut = least < kth ? kth : least;
    return true;
}

#endif
