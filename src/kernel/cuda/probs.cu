/* Draws from probabilities: one token per row, and chains of drafts. One launch, one pass over the
 * one distribution that matters. */
#include "kernel/cuda/launch.cuh"
#include "kernel/cuda/stream.cuh"

/* A row of weights: probabilities, or what a target has above a draft. Whatever is no positive
 * finite number weighs nothing. */
struct prob_row {
    row_of<f32_row> target;
    const float *draft; /* NULL: the target alone */
    bool aligned;       /* both are, to 16 bytes */

    static __device__ __forceinline__ float clean(float x) {
        return x > 0.0f && x <= FLT_MAX ? x : 0.0f;
    }
    __device__ __forceinline__ float value(int i) const {
        const float x = target.value(i);
        return clean(draft ? x - __ldg(draft + i) : x);
    }
};

__device__ __forceinline__ prob_row open_probs(const float *target, const float *draft, int32_t n,
                                               row_memory memory) {
    prob_row row;
    row.target = open_row<f32_row>(target, n, memory);
    row.draft = draft;
    row.aligned = row.target.aligned && ((uintptr_t)draft & 15) == 0;
    return row;
}

/* Weigh segment s by one warp: its largest weight and its mass, into the row's memory. */
__device__ __forceinline__ void weigh_probs(const prob_row &row, int s) {
    constexpr int each = ALEA_SEGMENT / warp_lanes / 4;
    const int lane = threadIdx.x & 31, first = s * ALEA_SEGMENT + lane * 4;
    uint4 v[each];
#pragma unroll
    for (int i = 0; i < each; i++)
        v[i] = load_vector<f32_row>(row.target.x, row.target.n, first + i * warp_lanes * 4,
                                    row.aligned);
    if (row.draft) {
#pragma unroll
        for (int i = 0; i < each; i++) {
            const uint4 d = load_vector<f32_row>((const uint32_t *)row.draft, row.target.n,
                                                 first + i * warp_lanes * 4, row.aligned);
            v[i] = make_uint4(__float_as_uint(__uint_as_float(v[i].x) - __uint_as_float(d.x)),
                              __float_as_uint(__uint_as_float(v[i].y) - __uint_as_float(d.y)),
                              __float_as_uint(__uint_as_float(v[i].z) - __uint_as_float(d.z)),
                              __float_as_uint(__uint_as_float(v[i].w) - __uint_as_float(d.w)));
        }
    }
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < each; i++) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            most = fmaxf(most, prob_row::clean(f32_row::get(v[i], e)));
    }
    most = __uint_as_float(__reduce_max_sync(whole_warp, __float_as_uint(most)));
    u64 sum = 0;
    if (most > 0.0f) {
        const int32_t exponent = alea__prob_exponent(most);
        const bool plain = exponent >= -80; /* else the scale is no float32 */
        const float scale = ldexpf(1.0f, 40 - (plain ? exponent : 0));
#pragma unroll
        for (int i = 0; i < each; i++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float x = prob_row::clean(f32_row::get(v[i], e));
                sum += plain ? __float2ull_rz(x * scale) : alea__prob_weight(x, exponent);
            }
        }
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        __stcg(row.target.memory.segments + s,
               make_uint4(__float_as_uint(most), 0, (uint32_t)sum, (uint32_t)(sum >> 32)));
    }
}

/* See logit_draw. A weight is below 2^41, a segment's mass below 2^51. */
struct prob_draw {
    prob_row row;
    int32_t exponent; /* of the row */

    __device__ __forceinline__ bool depth(int s, int32_t *d) const {
        const float most = row.target.segment_max(s);
        if (!(most > 0.0f)) return false;
        *d = exponent - alea__prob_exponent(most);
        return *d <= deepest_shift;
    }
    __device__ __forceinline__ u64 sum(int s) const {
        return row.target.segment_mass(s);
    }
    __device__ __forceinline__ u64 align(u64 sum, int32_t d) const {
        return sum >> d;
    }
    __device__ __forceinline__ int32_t n_segments() const {
        return row.target.n_segments;
    }
    __device__ __forceinline__ int32_t n() const {
        return row.target.n;
    }
    __device__ __forceinline__ u64 weight(int i, int32_t d) const {
        return alea__prob_weight(row.value(i), exponent - d);
    }
};

constexpr int held_max = 1024; /* segments whose maxima and masses are held for the draw */

struct pick_scratch {
    block_scratch block;
    float most[held_max];
    u64 mass[held_max];
    int32_t token;
};

/* prob_draw from shared memory, which holds all segments. */
struct held_prob_draw : prob_draw {
    const pick_scratch &held;
    __device__ __forceinline__ bool depth(int s, int32_t *d) const {
        if (!(held.most[s] > 0.0f)) return false;
        *d = exponent - alea__prob_exponent(held.most[s]);
        return *d <= deepest_shift;
    }
    __device__ __forceinline__ u64 sum(int s) const {
        return held.mass[s];
    }
};

template <class Draw>
__device__ __forceinline__ int32_t block_draw(const Draw &draw, uint32_t bits,
                                              pick_scratch &scratch) {
    u64 mass = 0;
    for (int s = threadIdx.x; s < draw.n_segments(); s += blockDim.x) {
        int32_t d;
        if (draw.depth(s, &d)) mass += draw.align(draw.sum(s), d);
    }
    mass = block_sum(mass, scratch.block);
    if (threadIdx.x < warp_lanes) {
        const int32_t drawn = warp_draw(draw, bits, mass);
        if (threadIdx.x == 0) scratch.token = drawn;
    }
    __syncthreads();
    return scratch.token;
}

/* The entry that `bits` draw from a row whose segments are weighed; -1: nothing weighs anything.
 * By the block; every thread returns it. */
__device__ inline int32_t block_pick(const prob_row &row, uint32_t bits, pick_scratch &scratch) {
    u64 most = 0;
    for (int s = threadIdx.x; s < row.target.n_segments; s += blockDim.x) {
        const uint4 y = __ldcg(row.target.memory.segments + s);
        most = max(most, (u64)y.x); /* positive floats are in the order of their bits */
        if (s >= held_max) continue;
        scratch.most[s] = __uint_as_float(y.x);
        scratch.mass[s] = (u64)y.w << 32 | y.z;
    }
    const float largest = __uint_as_float((uint32_t)block_max(most, scratch.block));
    if (!(largest > 0.0f)) return -1;
    const prob_draw draw = {row, alea__prob_exponent(largest)};
    if (row.target.n_segments > held_max) return block_draw(draw, bits, scratch);
    return block_draw(held_prob_draw{draw, scratch}, bits, scratch);
}

/* ---- alea_sample_probs ------------------------------------------------------------------- */

struct sample_call {
    row_column tokens, probs;
    draw_source draws;
    int32_t vocab;
};

__global__ void __launch_bounds__(stream_threads, blocks_per_sm)
    sample_probs_kernel(sample_call c, int64_t first, workspace_memory workspace, int parts) {
    __shared__ pick_scratch scratch;
    const int64_t index = blockIdx.x / parts, at = first + index;
    const row_memory memory = memory_of(workspace, index);
    const prob_row row = open_probs(c.probs.at<const float>(at), nullptr, c.vocab, memory);
    const int s = (int)(blockIdx.x % parts) * stream_warps + (int)(threadIdx.x >> 5);
    if (s < row.target.n_segments) weigh_probs(row, s);
    if (!is_last_block(memory.state, parts)) return;
    const int32_t token = block_pick(row, c.draws.bits(at, 0), scratch);
    if (threadIdx.x == 0) c.tokens.put(at, token < 0 ? 0 : token);
    clear_counters(memory.state);
}

/* ---- alea_chain_sample ------------------------------------------------------------------- */

struct chain_call {
    row_column tokens, accepted, draft_probs, draft_tokens, target_probs;
    int64_t token_step, draft_step, draft_token_step, target_step; /* from draft to draft */
    draw_source draws;
    int32_t n_drafts, vocab;

    __device__ __forceinline__ const float *draft_row(int64_t row, int64_t i) const {
        return (const float *)(draft_probs.at<const char>(row) + i * draft_step);
    }
    __device__ __forceinline__ const float *target_row(int64_t row, int64_t i) const {
        return (const float *)(target_probs.at<const char>(row) + i * target_step);
    }
    __device__ __forceinline__ int32_t draft(int64_t row, int64_t i) const {
        return *(const int32_t *)(draft_tokens.at<const char>(row) + i * draft_token_step);
    }

    /* Whether draft i stands; a token that is none does not. */
    __device__ bool stands(int64_t row, int i) const {
        const int32_t token = draft(row, i);
        if (token < 0 || token >= vocab) return false;
        const float draft = __ldg(draft_row(row, i) + token);
        const float target = __ldg(target_row(row, i) + token);
        return (float)draws.bits(row, (uint32_t)i) * 0x1p-24f * draft < target;
    }

    /* How many drafts stand; each warp finds out for itself. */
    __device__ int prefix(int64_t row) const {
        for (int base = 0; base < n_drafts; base += warp_lanes) {
            const int i = base + (int)(threadIdx.x & 31);
            const unsigned falls = __ballot_sync(whole_warp, i < n_drafts && !stands(row, i));
            if (falls) return base + __ffs(falls) - 1;
        }
        return n_drafts;
    }
};

__global__ void __launch_bounds__(stream_threads, blocks_per_sm)
    chain_kernel(chain_call c, int64_t first, workspace_memory workspace, int parts) {
    __shared__ pick_scratch scratch;
    const int64_t index = blockIdx.x / parts, at = first + index;
    const row_memory memory = memory_of(workspace, index);
    const int accepted = c.prefix(at);
    const float *target = c.target_row(at, accepted);
    const float *draft = accepted < c.n_drafts ? c.draft_row(at, accepted) : nullptr;
    const prob_row row = open_probs(target, draft, c.vocab, memory);
    const int s = (int)(blockIdx.x % parts) * stream_warps + (int)(threadIdx.x >> 5);
    if (s < row.target.n_segments) weigh_probs(row, s);
    if (!is_last_block(memory.state, parts)) return;

    const uint32_t bits = c.draws.bits(at, (uint32_t)c.n_drafts);
    int32_t token = block_pick(row, bits, scratch);
    if (token < 0 && draft) { /* a residual without mass */
        const prob_row whole = open_probs(target, nullptr, c.vocab, memory);
        for (int i = threadIdx.x >> 5; i < whole.target.n_segments; i += stream_warps)
            weigh_probs(whole, i);
        __syncthreads();
        token = block_pick(whole, bits, scratch);
    }
    for (int i = threadIdx.x; i <= c.n_drafts; i += blockDim.x) {
        const int32_t id = i < accepted ? c.draft(at, i) : i > accepted ? -1 : max(token, 0);
        *(int32_t *)(c.tokens.at<char>(at) + i * c.token_step) = id;
    }
    if (threadIdx.x == 0) c.accepted.put(at, accepted);
    clear_counters(memory.state);
}

/* ---- launches ---------------------------------------------------------------------------- */

static int parts_of(int32_t vocab) {
    const int segments = (vocab + ALEA_SEGMENT - 1) / ALEA_SEGMENT;
    return (segments + stream_warps - 1) / stream_warps;
}

int cuda_run_sample_probs(const alea_cuda_call &call, const alea_cuda_workspace &workspace,
                          cudaStream_t stream) {
    enum { TOKENS, PROBS, SEED };
    const int parts = parts_of(call.vocab);
    const sample_call c = {column_of(call.views[TOKENS]), column_of(call.views[PROBS]),
                           draw_source_of(call, SEED), call.vocab};
    for (int64_t first = 0; first < call.rows; first += workspace.rows) {
        const int64_t n = std::min(call.rows - first, workspace.rows);
        sample_probs_kernel<<<(unsigned)(n * parts), stream_threads, 0, stream>>>(
            c, first, workspace.memory, parts);
        const int error = (int)cudaGetLastError();
        if (error) return error;
    }
    return 0;
}

int cuda_run_chain(const alea_cuda_call &call, const alea_cuda_workspace &workspace,
                   cudaStream_t stream) {
    enum { TOKENS, ACCEPTED, DRAFT_PROBS, DRAFT_TOKENS, TARGET_PROBS, SEED };
    const alea_cuda_view *v = call.views;
    const int parts = parts_of(call.vocab);
    chain_call c;
    c.tokens = column_of(v[TOKENS]);
    c.accepted = column_of(v[ACCEPTED]);
    c.draft_probs = column_of(v[DRAFT_PROBS]);
    c.draft_tokens = column_of(v[DRAFT_TOKENS]);
    c.target_probs = column_of(v[TARGET_PROBS]);
    c.token_step = v[TOKENS].step[1];
    c.draft_step = v[DRAFT_PROBS].step[1];
    c.draft_token_step = v[DRAFT_TOKENS].step[1];
    c.target_step = v[TARGET_PROBS].step[1];
    c.draws = draw_source_of(call, SEED);
    c.n_drafts = (int32_t)v[DRAFT_TOKENS].size[1];
    c.vocab = call.vocab;
    for (int64_t first = 0; first < call.rows; first += workspace.rows) {
        const int64_t n = std::min(call.rows - first, workspace.rows);
        chain_kernel<<<(unsigned)(n * parts), stream_threads, 0, stream>>>(c, first,
                                                                           workspace.memory, parts);
        const int error = (int)cudaGetLastError();
        if (error) return error;
    }
    return 0;
}
