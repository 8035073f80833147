/*
 * alea_sample_logits: temperature, top-k, top-p, min-p, draw. The stream weighs a row under the
 * scales that its parameters need; its last block decides among few entries, or by the segments'
 * masses where no filter is set; a second launch settles by one block what that could not.
 */
#include "kernel/cuda/cut.cuh"
#include "kernel/cuda/launch.cuh"
#include "kernel/cuda/stream.cuh"

constexpr int settle_threads = 1024;
constexpr int nucleus_lanes = 96;
constexpr int quick_k_max = 512;

enum { TOKENS, LOGPROBS, SAMPLED, KEPT, VERDICTS, LOGITS, TEMPERATURE, TOP_K, TOP_P, MIN_P, SEED };
enum { ROW_GOOD = 0, ROW_BAD_PARAMETER = -1, ROW_FAILED = -6 }; /* alea_status */

struct choice {
    int32_t token;
    float logprob, sampled, kept;
    int32_t verdict;
};

/* One row's parameters. */
struct row_sampling {
    float temperature, top_p, min_p, scale; /* scale 0: greedy */
    int32_t top_k;                          /* 0: all */
    bool good;
};

struct choose_call {
    row_column v[SEED];
    draw_source draws;
    int64_t rows, first;
    int32_t vocab;

    __device__ __forceinline__ bool wants(int which) const {
        return v[which].data != nullptr;
    }

    __device__ row_sampling sampling(int64_t row) const {
        row_sampling s;
        s.temperature = v[TEMPERATURE].get(row, 1.0f);
        s.top_p = v[TOP_P].get(row, 1.0f);
        s.min_p = v[MIN_P].get(row, 0.0f);
        const int32_t k = v[TOP_K].get(row, (int32_t)0);
        const float t = s.temperature;
        s.scale = t > 0.0f ? ALEA_LOG2E_F / t : 0.0f;
        s.good = (t == 0.0f || (s.scale > 0.0f && s.scale < INFINITY)) && k >= 0 &&
                 s.top_p > 0.0f && s.top_p <= 1.0f && s.min_p >= 0.0f && s.min_p <= 1.0f;
        s.top_k = k < vocab ? k : 0;
        return s;
    }

    /* Whether the mass of the whole row at the raw scale, or at the row's own, is needed. */
    __device__ __forceinline__ bool needs_raw(const row_sampling &s) const {
        return wants(LOGPROBS) || (s.scale == 0.0f && wants(KEPT)) ||
               (s.scale == ALEA_LOG2E_F && needs_all(s));
    }
    __device__ __forceinline__ bool needs_all(const row_sampling &s) const {
        return s.scale > 0.0f && (wants(KEPT) || s.top_k == 0);
    }

    __device__ void write(int64_t row, const choice &c) const {
        v[TOKENS].put(row, c.token);
        v[LOGPROBS].put(row, c.logprob);
        v[SAMPLED].put(row, c.sampled);
        v[KEPT].put(row, c.kept);
        v[VERDICTS].put(row, c.verdict);
    }
    __device__ void fail(int64_t row, int32_t verdict) const {
        write(row, choice{-1, NAN, NAN, NAN, verdict});
    }
};

__device__ __forceinline__ float min_p_cut(const row_sampling &s, float max) {
    return max + s.temperature * alea__ln_min_p(s.min_p);
}

/* The largest logit; it alone is kept, weighed at temperature 1. */
template <class T>
__device__ choice choose_greedy(const row_of<T> &row, const mass_rule &raw, u64 mass,
                                finish_scratch &scratch) {
    const float top = raw.shifted ? 0.0f : raw.max;
    const uint32_t weight = weigh_above(top, raw.scale, ALEA_EXP2_MAGIC - (float)raw.exponent,
                                        alea__weight_floor(raw.scale, raw.exponent));
    const u64 kept = (u64)weight << ALEA_MASS_SHIFT;
    choice c;
    c.token = block_greedy(row, raw.max, scratch.block);
    c.sampled = report_of(raw, raw.max, lse_of(raw, kept));
    c.kept = (float)((double)kept / (double)mass);
    c.logprob = report_of(raw, raw.max, lse_of(raw, mass));
    c.verdict = ROW_GOOD;
    return c;
}

/* A drawn token with what is reported of it. */
template <class T>
__device__ __forceinline__ choice chosen(const row_of<T> &row, const mass_rule &rule, u64 all,
                                         u64 kept, const mass_rule &raw, u64 raw_mass,
                                         int32_t token) {
    const float x = row.value(token);
    choice c;
    c.token = token;
    c.sampled = report_of(rule, x, lse_of(rule, kept));
    c.kept = (float)((double)kept / (double)all);
    c.logprob = report_of(raw, x, lse_of(raw, raw_mass));
    c.verdict = ROW_GOOD;
    return c;
}

/* Among few entries; false: they do not decide it. */
template <class T>
__device__ bool choose_among_few(const row_of<T> &row, const row_sampling &s, const mass_rule &rule,
                                 u64 all, uint32_t bits, int32_t *token, u64 *kept,
                                 finish_scratch &scratch) {
    if (s.top_k > quick_k_max) return false;
    const float floor = min_p_cut(s, rule.max);
    const int lanes = s.top_k > 0 ? s.top_k : s.top_p < 1.0f ? nucleus_lanes : 0;
    const int n = gather(row, lanes, floor, no_margin(), scratch);
    if (n < 0) return false;
    rank_candidates(row, rule, n, nullptr, 0, scratch);
    float cut = s.top_k > 0 ? scratch.x[s.top_k - 1] + 0.0f : -INFINITY;
    if (s.top_p < 1.0f) {
        const u64 still_in = s.top_k > 0 ? ranked_mass_ge(n, cut, scratch) : all;
        float nucleus;
        if (!ranked_cut(n, share_of(s.top_p, still_in), &nucleus, scratch)) return false;
        cut = fmaxf(cut, nucleus);
    }
    *token = ranked_draw(n, fmaxf(cut, floor), bits, kept, scratch);
    return true;
}

template <class T>
__device__ bool choose_quickly(const choose_call &c, const row_of<T> &row, const row_sampling &s,
                               int64_t at, finish_scratch &scratch) {
    __shared__ int32_t drawn;
    const float max = load_segments(row, scratch);
    if (!is_sound(max)) {
        if (threadIdx.x == 0) c.fail(at, ROW_FAILED);
        return true;
    }
    const mass_rule raw = rule_of(max, ALEA_LOG2E_F);
    if (raw.shifted) return false;
    const u64 raw_mass = c.needs_raw(s) ? loaded_mass(row, raw, scratch) : 1;
    if (s.scale == 0.0f) {
        const choice greedy = choose_greedy(row, raw, raw_mass, scratch);
        if (threadIdx.x == 0) c.write(at, greedy);
        return true;
    }
    const mass_rule rule = rule_of(max, s.scale);
    if (rule.shifted) return false;
    const bool own = s.scale != ALEA_LOG2E_F;
    const u64 all = !c.needs_all(s) ? 1
                    : own           ? block_stored_mass(row, rule, true, scratch.block)
                                    : raw_mass;
    const uint32_t bits = c.draws.bits(at, 0);
    int32_t token;
    u64 kept = all;
    if (s.top_k == 0 && s.top_p == 1.0f && s.min_p == 0.0f) {
        if (!own && row.n_segments > groups_max) return false;
        if (threadIdx.x < warp_lanes) {
            const logit_draw<T> draw = {row, rule, -INFINITY, row.memory.extra};
            if (own) {
                token = warp_draw(draw, bits, all);
            } else {
                token = warp_draw(held_draw<T>{draw, scratch.groups, scratch.mass}, bits, all);
            }
            if (threadIdx.x == 0) drawn = token;
        }
        __syncthreads();
        token = drawn;
    } else if (!choose_among_few(row, s, rule, all, bits, &token, &kept, scratch)) {
        return false;
    }
    if (threadIdx.x == 0) c.write(at, chosen(row, rule, all, kept, raw, raw_mass, token));
    return true;
}

template <class T, int per_warp>
__global__ void __launch_bounds__(stream_threads, blocks_per_sm)
    choose_stream_kernel(choose_call c, workspace_memory workspace, int parts) {
    __shared__ finish_scratch scratch;
    const int64_t index = blockIdx.x / parts, at = c.first + index;
    const row_memory memory = memory_of(workspace, index);
    const row_of<T> row = open_row<T>(c.v[LOGITS].at<const char>(at), c.vocab, memory);
    row_sampling s;
    stream_part<T, per_warp>(row, (int)(blockIdx.x % parts), [&] {
        s = c.sampling(at);
        stream_plan plan = {};
        plan.scale = c.needs_raw(s) ? ALEA_LOG2E_F : 0.0f;
        plan.second = c.needs_all(s) && s.scale != ALEA_LOG2E_F ? s.scale : 0.0f;
        plan.lanes = true;
        return plan;
    });
    if (!is_last_block(memory.state, parts)) return;
    if (!s.good) {
        if (threadIdx.x == 0) c.fail(at, ROW_BAD_PARAMETER);
    } else if (!choose_quickly(c, row, s, at, scratch)) {
        if (threadIdx.x == 0) __stcg(&memory.state->unsettled, 1);
    }
    clear_counters(memory.state);
}

/* The mass of a sound row, from what the stream stored of it where it did. */
template <class T>
__device__ u64 settled_mass(const row_of<T> &row, const mass_rule &rule, bool extra, bool stored,
                            finish_scratch &scratch) {
    if (stored && !rule.shifted) return block_stored_mass(row, rule, extra, scratch.block);
    return block_mass_ge(row, rule, -INFINITY, (u64 *)nullptr, scratch.block);
}

/* One block, one sound row, good parameters, whatever they are. */
template <class T>
__global__ void __launch_bounds__(settle_threads, 1)
    choose_settle_kernel(choose_call c, workspace_memory workspace) {
    __shared__ finish_scratch scratch;
    __shared__ int32_t drawn;
    const row_memory memory = memory_of(workspace, blockIdx.x);
    if (!__ldcg(&memory.state->unsettled)) return;
    const int64_t at = c.first + blockIdx.x;
    const row_of<T> row = open_row<T>(c.v[LOGITS].at<const char>(at), c.vocab, memory);
    const row_sampling s = c.sampling(at);
    const float max = block_row_max(row, scratch.block);
    __syncthreads();
    if (threadIdx.x == 0) __stcg(&memory.state->unsettled, 0);

    const mass_rule raw = rule_of(max, ALEA_LOG2E_F);
    const u64 raw_mass = settled_mass(row, raw, false, c.needs_raw(s), scratch);
    if (s.scale == 0.0f) {
        const choice greedy = choose_greedy(row, raw, raw_mass, scratch);
        if (threadIdx.x == 0) c.write(at, greedy);
        return;
    }
    const mass_rule rule = rule_of(max, s.scale);
    const u64 all =
        s.scale == ALEA_LOG2E_F ? raw_mass : settled_mass(row, rule, true, c.needs_all(s), scratch);
    float cut = -INFINITY;
    if (s.top_k > 0) {
        cut = block_cut(row, (const mass_rule *)nullptr, (u64)s.top_k, -INFINITY, ~(u64)0, scratch);
    }
    if (s.top_p < 1.0f) {
        const u64 still_in =
            cut == -INFINITY ? all : block_mass_ge(row, rule, cut, (u64 *)nullptr, scratch.block);
        const u64 target = share_of(s.top_p, still_in);
        cut = fmaxf(cut, block_cut(row, &rule, target, cut, still_in, scratch));
    }
    cut = fmaxf(cut, min_p_cut(s, max));
    const u64 kept = block_mass_ge(row, rule, cut, memory.extra, scratch.block);
    __syncthreads();
    if (threadIdx.x < warp_lanes) {
        const int32_t token =
            warp_draw(logit_draw<T>{row, rule, cut, memory.extra}, c.draws.bits(at, 0), kept);
        if (threadIdx.x == 0) drawn = token;
    }
    __syncthreads();
    if (threadIdx.x == 0) c.write(at, chosen(row, rule, all, kept, raw, raw_mass, drawn));
}

template <class T>
static int run_choices(choose_call c, const alea_cuda_workspace &workspace, cudaStream_t stream) {
    for (; c.first < c.rows; c.first += workspace.rows) {
        const int64_t n = std::min(c.rows - c.first, workspace.rows);
        const stream_shape shape = stream_shape_of<T>(n, c.vocab);
        const unsigned blocks = (unsigned)(n * shape.parts);
        if (shape.per_warp == 2) {
            choose_stream_kernel<T, sizeof(typename T::word) == 2 ? 2 : 1>
                <<<blocks, stream_threads, 0, stream>>>(c, workspace.memory, shape.parts);
        } else {
            choose_stream_kernel<T, 1>
                <<<blocks, stream_threads, 0, stream>>>(c, workspace.memory, shape.parts);
        }
        choose_settle_kernel<T><<<(unsigned)n, settle_threads, 0, stream>>>(c, workspace.memory);
        const int error = (int)cudaGetLastError();
        if (error) return error;
    }
    return 0;
}

int cuda_run_sample_logits(const alea_cuda_call &call, const alea_cuda_workspace &workspace,
                           cudaStream_t stream) {
    return by_dtype(call.dtype, [&](auto dtype) {
        choose_call c;
        for (int i = 0; i < SEED; i++)
            c.v[i] = column_of(call.views[i]);
        c.draws = draw_source_of(call, SEED);
        c.rows = call.rows;
        c.first = 0;
        c.vocab = call.vocab;
        return run_choices<decltype(dtype)>(c, workspace, stream);
    });
}
