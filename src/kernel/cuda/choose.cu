/*
 * alea_sample_logits: temperature, top-k, top-p, min-p, draw. The stream weighs a row under the
 * scales that its parameters need; its last block decides among few entries, or by the segments'
 * masses where no filter is set; a second launch settles by one block what that could not.
 */
#include "kernel/cuda/cut.cuh"
#include "kernel/cuda/launch.cuh"
#include "kernel/cuda/stream.cuh"

constexpr int settle_threads = 1024;
constexpr int nucleus_lanes = 64;
constexpr int quick_k_max = 512;

enum {
    TOKENS, LOGPROBS, SAMPLED, KEPT, VERDICTS, LOGITS, TEMPERATURE, TOP_K, TOP_P, MIN_P, SEED
};
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
    alea_cuda_call call;
    int64_t first;

    template <class V>
    __device__ __forceinline__ V get(int which, int64_t row, V neutral) const {
        const alea_cuda_view &v = call.views[which];
        return v.data ? *(const V *)(v.data + row * v.step[0]) : neutral;
    }
    template <class V> __device__ __forceinline__ void put(int which, int64_t row, V value) const {
        const alea_cuda_view &v = call.views[which];
        if (v.data) *(V *)(v.data + row * v.step[0]) = value;
    }
    __device__ __forceinline__ bool wants(int which) const {
        return call.views[which].data != nullptr;
    }

    __device__ row_sampling sampling(int64_t row) const {
        row_sampling s;
        s.temperature = get(TEMPERATURE, row, 1.0f);
        s.top_p = get(TOP_P, row, 1.0f);
        s.min_p = get(MIN_P, row, 0.0f);
        const int32_t k = get(TOP_K, row, (int32_t)0);
        const float t = s.temperature;
        s.scale = t > 0.0f ? ALEA_LOG2E_F / t : 0.0f;
        s.good = (t == 0.0f || (s.scale > 0.0f && s.scale < INFINITY)) && k >= 0 &&
                 s.top_p > 0.0f && s.top_p <= 1.0f && s.min_p >= 0.0f && s.min_p <= 1.0f;
        s.top_k = k < call.vocab ? k : 0;
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
        put(TOKENS, row, c.token);
        put(LOGPROBS, row, c.logprob);
        put(SAMPLED, row, c.sampled);
        put(KEPT, row, c.kept);
        put(VERDICTS, row, c.verdict);
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
    const uint32_t weight =
        weigh_above(top, raw.scale, ALEA_EXP2_MAGIC - (float)raw.exponent,
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
    float bound = floor;
    const int n = gather(row, lanes, &bound, no_margin(), scratch);
    if (n < 0 || n < s.top_k) return false;
    float cut = s.top_k > 0 ? candidate_kth(n, s.top_k, scratch) + 0.0f : -INFINITY;
    sort_candidates(row, rule, n, scratch);
    if (s.top_p < 1.0f) {
        const u64 still_in =
            s.top_k > 0 ? candidate_mass(scratch.sorted, n, cut, nullptr) : all;
        const u64 target = share_of(s.top_p, still_in);
        if (candidate_mass(scratch.sorted, n, -INFINITY, nullptr) < target) return false;
        cut = fmaxf(cut, candidate_cut(n, target, 0, nullptr, scratch));
    }
    cut = fmaxf(cut, floor);
    *token = candidate_draw(n, cut, bits, kept, scratch);
    return true;
}

template <class T>
__device__ bool choose_quickly(const choose_call &c, const row_of<T> &row, const row_sampling &s,
                               int64_t at, finish_scratch &scratch) {
    __shared__ int32_t drawn;
    const float max = block_row_max(row, scratch.block);
    if (!is_sound(max)) {
        if (threadIdx.x == 0) c.fail(at, ROW_FAILED);
        return true;
    }
    const mass_rule raw = rule_of(max, ALEA_LOG2E_F);
    if (raw.shifted) return false;
    const u64 raw_mass = c.needs_raw(s) ? block_stored_mass(row, raw, false, scratch.block) : 1;
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
    const uint32_t bits = draw_bits_of(c.call, SEED, at, 0);
    int32_t token;
    u64 kept = all;
    if (s.top_k == 0 && s.top_p == 1.0f && s.min_p == 0.0f) {
        const u64 *sums = own ? row.memory.extra : nullptr;
        if (threadIdx.x < warp_lanes) {
            if (own) {
                token = warp_draw(logit_draw<T>{row, rule, -INFINITY, sums}, bits, all);
            } else {
                token = warp_draw(stored_draw<T>{{row, rule, -INFINITY, sums}}, bits, all);
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
    const alea_cuda_view &logits = c.call.views[LOGITS];
    const row_of<T> row = open_row<T>(logits.data + at * logits.step[0], c.call.vocab, memory);
    const row_sampling s = c.sampling(at);
    stream_plan plan = {};
    plan.scale = c.needs_raw(s) ? ALEA_LOG2E_F : 0.0f;
    plan.second = c.needs_all(s) && s.scale != ALEA_LOG2E_F ? s.scale : 0.0f;
    plan.lanes = true;
    stream_part<T, per_warp>(row, plan, (int)(blockIdx.x % parts));
    if (!is_last_block(memory.state, parts)) return;
    if (!s.good) {
        if (threadIdx.x == 0) c.fail(at, ROW_BAD_PARAMETER);
    } else if (!choose_quickly(c, row, s, at, scratch)) {
        if (threadIdx.x == 0) __stcg(&memory.state->unsettled, 1);
    }
    clear_counters(memory.state);
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
    const alea_cuda_view &logits = c.call.views[LOGITS];
    const row_of<T> row = open_row<T>(logits.data + at * logits.step[0], c.call.vocab, memory);
    const row_sampling s = c.sampling(at);
    const float max = block_row_max(row, scratch.block);
    __syncthreads();
    if (threadIdx.x == 0) __stcg(&memory.state->unsettled, 0);

    const mass_rule raw = rule_of(max, ALEA_LOG2E_F);
    const u64 raw_mass = block_mass_ge(row, raw, -INFINITY, (u64 *)nullptr, scratch.block);
    if (s.scale == 0.0f) {
        const choice greedy = choose_greedy(row, raw, raw_mass, scratch);
        if (threadIdx.x == 0) c.write(at, greedy);
        return;
    }
    const mass_rule rule = rule_of(max, s.scale);
    const u64 all = block_mass_ge(row, rule, -INFINITY, (u64 *)nullptr, scratch.block);
    float cut = -INFINITY;
    if (s.top_k > 0) {
        cut = block_cut(row, (const mass_rule *)nullptr, (u64)s.top_k, -INFINITY, ~(u64)0, scratch);
    }
    if (s.top_p < 1.0f) {
        const u64 still_in = cut == -INFINITY ? all
                                              : block_mass_ge(row, rule, cut, (u64 *)nullptr,
                                                              scratch.block);
        const u64 target = share_of(s.top_p, still_in);
        cut = fmaxf(cut, block_cut(row, &rule, target, cut, still_in, scratch));
    }
    cut = fmaxf(cut, min_p_cut(s, max));
    const u64 kept = block_mass_ge(row, rule, cut, memory.extra, scratch.block);
    __syncthreads();
    if (threadIdx.x < warp_lanes) {
        const int32_t token = warp_draw(logit_draw<T>{row, rule, cut, memory.extra},
                                        draw_bits_of(c.call, SEED, at, 0), kept);
        if (threadIdx.x == 0) drawn = token;
    }
    __syncthreads();
    if (threadIdx.x == 0) c.write(at, chosen(row, rule, all, kept, raw, raw_mass, drawn));
}

template <class T>
static int run_choices(choose_call c, const alea_cuda_workspace &workspace, cudaStream_t stream) {
    for (; c.first < c.call.rows; c.first += workspace.rows) {
        const int64_t n = std::min(c.call.rows - c.first, workspace.rows);
        const stream_shape shape = stream_shape_of<T>(n, c.call.vocab);
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
        return run_choices<decltype(dtype)>(choose_call{call, 0}, workspace, stream);
    });
}
