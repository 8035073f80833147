/* Draws from probabilities: one token per row, and chains of drafts. One launch, one pass over the
 * one distribution that matters. */
#include "kernel/cuda/launch.cuh"
#include "kernel/cuda/probs.cuh"

/* A row of weights: probabilities, or what a target has above a draft. */
struct prob_row {
    row_of<f32_row> target;
    const float *draft; /* NULL: the target alone */
    bool aligned;       /* both are, to 16 bytes */

    __device__ __forceinline__ uint4 *segments() const {
        return target.memory.segments();
    }
    __device__ __forceinline__ float value(int i) const {
        const float x = target.value(i);
        return clean_weight(draft ? x - __ldg(draft + i) : x);
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
    constexpr int each = lane_entries / 4;
    const int first = s * ALEA_SEGMENT + (int)(threadIdx.x & 31) * 4;
    uint4 v[each];
    float x[lane_entries];
#pragma unroll
    for (int i = 0; i < each; i++)
        v[i] = load_vector<f32_row>(row.target.x, row.target.n, first + i * warp_lanes * 4,
                                    row.aligned);
#pragma unroll
    for (int i = 0; i < lane_entries; i++)
        x[i] = f32_row::get(v[i / 4], i % 4);
    if (row.draft) {
#pragma unroll
        for (int i = 0; i < each; i++)
            v[i] = load_vector<f32_row>((const uint32_t *)row.draft, row.target.n,
                                        first + i * warp_lanes * 4, row.aligned);
#pragma unroll
        for (int i = 0; i < lane_entries; i++)
            x[i] -= f32_row::get(v[i / 4], i % 4);
    }
#pragma unroll
    for (int i = 0; i < lane_entries; i++)
        x[i] = clean_weight(x[i]);
    weigh_held(x, row.segments() + s);
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
