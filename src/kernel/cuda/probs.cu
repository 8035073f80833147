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
    __device__ __forceinline__ u64 sum(int s) const { return row.target.segment_mass(s); }
    __device__ __forceinline__ u64 align(u64 sum, int32_t d) const { return sum >> d; }
    __device__ __forceinline__ int32_t n_segments() const { return row.target.n_segments; }
    __device__ __forceinline__ int32_t n() const { return row.target.n; }
    __device__ __forceinline__ u64 weight(int i, int32_t d) const {
        return alea__prob_weight(row.value(i), exponent - d);
    }
};

/* The entry that `bits` draw from a row whose segments are weighed; -1: nothing weighs anything.
 * By the block; every thread returns it. */
__device__ inline int32_t block_pick(const prob_row &row, uint32_t bits, block_scratch &scratch) {
    __shared__ int32_t token;
    const float most = block_row_max(row.target, scratch);
    if (!(most > 0.0f)) return -1;
    const prob_draw draw = {row, alea__prob_exponent(most)};
    u64 mass = 0;
    for (int s = threadIdx.x; s < draw.n_segments(); s += blockDim.x) {
        int32_t d;
        if (draw.depth(s, &d)) mass += draw.align(draw.sum(s), d);
    }
    mass = block_sum(mass, scratch);
    if (threadIdx.x < warp_lanes) {
        const int32_t drawn = warp_draw(draw, bits, mass);
        if (threadIdx.x == 0) token = drawn;
    }
    __syncthreads();
    return token;
}

/* ---- alea_sample_probs ------------------------------------------------------------------- */

__global__ void __launch_bounds__(stream_threads, blocks_per_sm)
    sample_probs_kernel(alea_cuda_call call, int64_t first, workspace_memory workspace, int parts) {
    enum { TOKENS, PROBS, SEED };
    __shared__ block_scratch scratch;
    const int64_t index = blockIdx.x / parts, at = first + index;
    const row_memory memory = memory_of(workspace, index);
    const alea_cuda_view &probs = call.views[PROBS];
    const prob_row row =
        open_probs((const float *)(probs.data + at * probs.step[0]), nullptr, call.vocab, memory);
    const int s = (int)(blockIdx.x % parts) * stream_warps + (int)(threadIdx.x >> 5);
    if (s < row.target.n_segments) weigh_probs(row, s);
    if (!is_last_block(memory.state, parts)) return;
    const int32_t token = block_pick(row, draw_bits_of(call, SEED, at, 0), scratch);
    if (threadIdx.x == 0) {
        const alea_cuda_view &tokens = call.views[TOKENS];
        *(int32_t *)(tokens.data + at * tokens.step[0]) = token < 0 ? 0 : token;
    }
    clear_counters(memory.state);
}

/* ---- alea_chain_sample ------------------------------------------------------------------- */

struct chain_call {
    enum { TOKENS, ACCEPTED, DRAFT_PROBS, DRAFT_TOKENS, TARGET_PROBS, SEED };
    alea_cuda_call call;
    int32_t n_drafts;

    __device__ __forceinline__ const float *probs(int which, int64_t row, int64_t i) const {
        const alea_cuda_view &v = call.views[which];
        return (const float *)(v.data + row * v.step[0] + i * v.step[1]);
    }
    __device__ __forceinline__ int32_t draft(int64_t row, int64_t i) const {
        const alea_cuda_view &v = call.views[DRAFT_TOKENS];
        return *(const int32_t *)(v.data + row * v.step[0] + i * v.step[1]);
    }

    /* Whether draft i stands; a token that is none does not. */
    __device__ bool stands(int64_t row, int i) const {
        const int32_t token = draft(row, i);
        if (token < 0 || token >= call.vocab) return false;
        const float u = (float)draw_bits_of(call, SEED, row, (uint32_t)i) * 0x1p-24f;
        return u * __ldg(probs(DRAFT_PROBS, row, i) + token) <
               __ldg(probs(TARGET_PROBS, row, i) + token);
    }

    /* How many drafts stand; each warp finds out for itself. */
    __device__ int accepted(int64_t row) const {
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
    __shared__ block_scratch scratch;
    const int64_t index = blockIdx.x / parts, at = first + index;
    const row_memory memory = memory_of(workspace, index);
    const int accepted = c.accepted(at);
    const float *target = c.probs(chain_call::TARGET_PROBS, at, accepted);
    const float *draft =
        accepted < c.n_drafts ? c.probs(chain_call::DRAFT_PROBS, at, accepted) : nullptr;
    const prob_row row = open_probs(target, draft, c.call.vocab, memory);
    const int s = (int)(blockIdx.x % parts) * stream_warps + (int)(threadIdx.x >> 5);
    if (s < row.target.n_segments) weigh_probs(row, s);
    if (!is_last_block(memory.state, parts)) return;

    const uint32_t bits = draw_bits_of(c.call, chain_call::SEED, at, (uint32_t)c.n_drafts);
    int32_t token = block_pick(row, bits, scratch);
    if (token < 0 && draft) { /* a residual without mass */
        const prob_row whole = open_probs(target, nullptr, c.call.vocab, memory);
        for (int i = threadIdx.x >> 5; i < whole.target.n_segments; i += stream_warps)
            weigh_probs(whole, i);
        __syncthreads();
        token = block_pick(whole, bits, scratch);
    }
    const alea_cuda_view &tokens = c.call.views[chain_call::TOKENS];
    const alea_cuda_view &counts = c.call.views[chain_call::ACCEPTED];
    for (int i = threadIdx.x; i <= c.n_drafts; i += blockDim.x) {
        const int32_t id = i < accepted ? c.draft(at, i) : i > accepted ? -1 : max(token, 0);
        *(int32_t *)(tokens.data + at * tokens.step[0] + i * tokens.step[1]) = id;
    }
    if (threadIdx.x == 0) *(int32_t *)(counts.data + at * counts.step[0]) = accepted;
    clear_counters(memory.state);
}

/* ---- launches ---------------------------------------------------------------------------- */

static int parts_of(int32_t vocab) {
    const int segments = (vocab + ALEA_SEGMENT - 1) / ALEA_SEGMENT;
    return (segments + stream_warps - 1) / stream_warps;
}

int cuda_run_sample_probs(const alea_cuda_call &call, const alea_cuda_workspace &workspace,
                          cudaStream_t stream) {
    const int parts = parts_of(call.vocab);
    for (int64_t first = 0; first < call.rows; first += workspace.rows) {
        const int64_t n = std::min(call.rows - first, workspace.rows);
        sample_probs_kernel<<<(unsigned)(n * parts), stream_threads, 0, stream>>>(
            call, first, workspace.memory, parts);
        const int error = (int)cudaGetLastError();
        if (error) return error;
    }
    return 0;
}

int cuda_run_chain(const alea_cuda_call &call, const alea_cuda_workspace &workspace,
                   cudaStream_t stream) {
    const int parts = parts_of(call.vocab);
    const chain_call chain = {call, (int32_t)call.views[chain_call::DRAFT_TOKENS].size[1]};
    for (int64_t first = 0; first < call.rows; first += workspace.rows) {
        const int64_t n = std::min(call.rows - first, workspace.rows);
        chain_kernel<<<(unsigned)(n * parts), stream_threads, 0, stream>>>(
            chain, first, workspace.memory, parts);
        const int error = (int)cudaGetLastError();
        if (error) return error;
    }
    return 0;
}
