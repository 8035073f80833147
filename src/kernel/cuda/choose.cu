/*
 * alea_sample_logits: temperature, top-k, top-p, min-p, draw, and the report of what was drawn. The
 * stream weighs a row under the scales that its parameters need; its last block decides among few
 * entries, or by the segments' masses where no filter is set; a second launch settles
 * what that could not.
 */
#include "kernel/cuda/launch.cuh"
#include "kernel/cuda/report.cuh"
#include "kernel/cuda/settle.cuh"
#include "kernel/cuda/stream.cuh"

constexpr int quick_k_max = 512;

enum {
    TOKENS,
    LOGPROBS,
    SAMPLED,
    KEPT,
    VERDICTS,
    LSE,
    RANKS,
    IDS,
    ID_LOGPROBS,
    LOGITS,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    MIN_P,
    SEED
};
enum { ROW_GOOD = 0, ROW_BAD_PARAMETER = -1, ROW_FAILED = -6 }; /* alea_status */

struct choice {
    int32_t token;
    float logprob, sampled, kept;
    int32_t verdict, rank;
    double lse;
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
    int32_t vocab, best; /* alternatives */

    __device__ __forceinline__ bool wants(int which) const {
        return v[which].data != nullptr;
    }
    __device__ __forceinline__ report_job job(int64_t row) const {
        report_job j = {};
        j.n = best;
        j.step = 1;
        j.ids = v[IDS].at<int32_t>(row);
        j.id_logprobs = v[ID_LOGPROBS].at<float>(row);
        return j;
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
        return wants(LOGPROBS) || wants(LSE) || wants(RANKS) || best > 0 ||
               (s.scale == 0.0f && wants(KEPT)) || (s.scale == ALEA_LOG2E_F && needs_all(s));
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
        v[LSE].put(row, c.lse);
        v[RANKS].put(row, c.rank);
    }
    __device__ void fail(int64_t row, int32_t verdict) const {
        write(row, choice{-1, NAN, NAN, NAN, verdict, 0, NAN});
        const report_job j = job(row);
        for (int i = 0; i < best; i++)
            put_alternative(j, i, -1, NAN);
    }
};

__device__ __forceinline__ float min_p_cut(const row_sampling &s, float max) {
    return max + s.temperature * alea__ln_min_p(s.min_p);
}

/* The largest logit; it alone is kept, weighed at temperature 1. */
template <class T>
__device__ choice choose_greedy(const choose_call &call, const row_of<T> &row, int64_t at,
                                const mass_rule &raw, u64 mass, finish_scratch &scratch) {
    const float top = raw.shifted ? 0.0f : raw.max;
    const uint32_t weight = weigh_above(top, raw.scale, ALEA_EXP2_MAGIC - (float)raw.exponent,
                                        alea__weight_floor(raw.scale, raw.exponent));
    const u64 kept = (u64)weight << ALEA_MASS_SHIFT;
    choice c;
    c.token = block_greedy(row, raw.max, scratch.block);
    c.sampled = report_of(raw, raw.max, lse_of(raw, kept));
    c.kept = (float)((double)kept / (double)mass);
    const double lse = lse_of(raw, mass);
    c.logprob = report_of(raw, raw.max, lse);
    c.verdict = ROW_GOOD;
    c.rank = 1;
    c.lse = reported_lse(raw, lse);
    __syncthreads();
    if (call.best > 0) put_best(row, raw, lse, call.job(at), scratch);
    return c;
}

/* A drawn token with what is reported of it. By one thread: logarithms are long. */
template <class T>
__device__ __forceinline__ choice chosen(const row_of<T> &row, const mass_rule &rule, u64 all,
                                         u64 kept, const mass_rule &raw, u64 raw_mass,
                                         int32_t token, int32_t rank) {
    const float x = row.value(token);
    choice c;
    c.token = token;
    const double lse = lse_of(raw, raw_mass);
    c.sampled = report_of(rule, x, lse_of(rule, kept));
    c.kept = (float)((double)kept / (double)all);
    c.logprob = report_of(raw, x, lse);
    c.verdict = ROW_GOOD;
    c.rank = rank;
    c.lse = reported_lse(raw, lse);
    return c;
}

/* Gather for the filters, and for the alternatives of the report; -1: few entries do not decide.
 * The mass of the row is `all`. */
template <class T>
__device__ __forceinline__ int gather_few(const choose_call &c, const row_of<T> &row,
                                          const row_sampling &s, const mass_rule &rule, u64 all,
                                          finish_scratch &scratch) {
    const int best = min(c.best, c.vocab);
    const report_margin margin = {rule.max};
    if (s.top_k > 0) {
        const int k = max(s.top_k, best);
        return trim(gather(row, k, INFINITY, margin, scratch), k, INFINITY, margin, scratch);
    }
    if (!(s.top_p < 1.0f)) {
        const float reach = s.min_p > 0.0f ? min_p_cut(s, rule.max) : INFINITY;
        return gather(row, best, reach, margin, scratch);
    }
    return gather_nucleus(row, rule, share_of(s.top_p, all), best, margin, scratch);
}

/* Among few entries, which are gathered; false: they do not decide it. */
__device__ inline bool choose_among_few(const row_sampling &s, const mass_rule &rule, u64 all,
                                        uint32_t bits, int n, int32_t *token, u64 *kept,
                                        finish_scratch &scratch) {
    const float floor = min_p_cut(s, rule.max);
    rank_candidates(rule, n, scratch);
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

/* The rank of a gathered entry that reports `logprob`. */
__device__ inline int32_t gathered_rank(const mass_rule &raw, double lse, float logprob, int n,
                                        finish_scratch &scratch) {
    u64 above = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        above += report_of(raw, scratch.x[i], lse) > logprob;
    return 1 + (int32_t)block_sum(above, scratch.block);
}

template <class T>
__device__ bool choose_quickly(const choose_call &c, const row_of<T> &row, const row_sampling &s,
                               int64_t at, finish_scratch &scratch) {
    const float max = load_segments(row, scratch);
    if (!is_sound(max)) {
        if (threadIdx.x == 0) c.fail(at, ROW_FAILED);
        return true;
    }
    const mass_rule raw = rule_of(max, ALEA_LOG2E_F);
    if (raw.shifted) return false;
    const u64 raw_mass = c.needs_raw(s) ? loaded_mass(row, raw, scratch) : 1;
    if (s.scale == 0.0f) {
        const choice greedy = choose_greedy(c, row, at, raw, raw_mass, scratch);
        if (threadIdx.x == 0) c.write(at, greedy);
        return true;
    }
    const mass_rule rule = rule_of(max, s.scale);
    if (rule.shifted) return false;
    const bool own = s.scale != ALEA_LOG2E_F;
    const bool filtered = s.top_k > 0 || s.top_p < 1.0f || s.min_p > 0.0f;
    if (s.top_k > quick_k_max || row.n_segments > groups_max) return false;
    u64 all = raw_mass;
    if (c.needs_all(s) && own) {
        __syncthreads();
        for (int i = threadIdx.x; i < row.n_segments; i += blockDim.x)
            scratch.mass[i] = __ldcg(row.memory.extra() + i);
        all = loaded_mass(row, rule, scratch);
    }
    const uint32_t bits = c.draws.bits(at, 0);
    const double lse = c.best > 0 || c.wants(RANKS) ? lse_of(raw, raw_mass) : 0.0;
    int n = 0;
    if (filtered || c.best > 0) {
        n = gather_few(c, row, s, rule, all, scratch);
        if (n < 0) return false;
        if (c.best > 0) put_gathered(raw, lse, n, min(c.best, row.n), c.job(at), scratch);
    }
    int32_t token;
    u64 kept = all;
    if (filtered && n <= ranked_max) {
        if (!choose_among_few(s, rule, all, bits, n, &token, &kept, scratch)) return false;
    } else {
        float cut = -INFINITY;
        if (filtered) {
            if (!many_cut(row.n_segments, rule, n, s.top_k, s.top_p < 1.0f, s.top_p, all, &cut,
                          scratch))
                return false;
            cut = fmaxf(cut, min_p_cut(s, max));
            kept = summed_mass(row.n_segments, rule, n, cut, scratch);
        }
        const logit_draw<T> draw = {row, rule, cut, nullptr};
        token =
            block_draw(held_draw<T>{draw, scratch.maxima, scratch.mass}, bits, kept, scratch.block);
    }
    int32_t rank = 0;
    if (c.wants(RANKS)) {
        const float logprob = report_of(raw, row.value(token), lse);
        rank = filtered ? gathered_rank(raw, lse, logprob, n, scratch)
                        : counted_rank(row, raw, lse, logprob, scratch);
    }
    if (threadIdx.x == 0) c.write(at, chosen(row, rule, all, kept, raw, raw_mass, token, rank));
    return true;
}

template <class T, int per_warp, int blocks>
__global__ void __launch_bounds__(stream_threads, blocks)
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
        leave_unsettled(workspace, memory, index);
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

/* The cut of a sound row, by one block, whatever its parameters are; min-p's not yet. */
template <class T>
__device__ float settled_cut(const row_of<T> &row, const row_sampling &s, const mass_rule &rule,
                             u64 all, finish_scratch &scratch) {
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
    return cut;
}

/* One part of a team at a sound row with good parameters. */
template <class T>
__device__ void settle_choice(const choose_call &c, const workspace_memory &workspace,
                              const team_part &team, finish_scratch &scratch) {
    const row_memory memory = memory_of(workspace, team.row);
    const int64_t at = c.first + team.row;
    const row_of<T> row = open_row<T>(c.v[LOGITS].at<const char>(at), c.vocab, memory);
    const row_sampling s = c.sampling(at);
    const float max = block_row_max(row, scratch.block);
    const mass_rule raw = rule_of(max, ALEA_LOG2E_F), rule = rule_of(max, s.scale);
    const bool by_mass = s.scale > 0.0f && !rule.shifted && s.top_k == 0 && s.top_p < 1.0f;
    const bool by_count = s.scale > 0.0f && s.top_k > 0 && s.top_p == 1.0f;
    if (!by_mass && !by_count && team.part > 0) return;

    const u64 raw_mass = settled_mass(row, raw, false, c.needs_raw(s), scratch);
    if (s.scale == 0.0f) {
        const choice greedy = choose_greedy(c, row, at, raw, raw_mass, scratch);
        if (threadIdx.x == 0) c.write(at, greedy);
        return;
    }
    const u64 all =
        s.scale == ALEA_LOG2E_F ? raw_mass : settled_mass(row, rule, true, c.needs_all(s), scratch);
    const u64 target = by_mass ? share_of(s.top_p, all) : (u64)s.top_k;
    const team_search<T> search = {row, by_mass ? &rule : nullptr, target, all, max, team, scratch};
    bool found = false;
    float cut;
    if ((by_mass || by_count) && !search.run(&found, &cut)) return;
    if (!found) cut = settled_cut(row, s, rule, all, scratch);
    const float floor = min_p_cut(s, max);
    const u64 kept =
        found && by_mass && floor <= cut
            ? search.complete_sums(cut)
            : block_mass_ge(row, rule, fmaxf(cut, floor), memory.extra(), scratch.block);
    __syncthreads();
    const logit_draw<T> draw = {row, rule, fmaxf(cut, floor), memory.extra()};
    const int32_t token = block_draw(draw, c.draws.bits(at, 0), kept, scratch.block);
    const double lse = c.best > 0 || c.wants(RANKS) ? lse_of(raw, raw_mass) : 0.0;
    int32_t rank = 0;
    if (c.wants(RANKS)) {
        rank = counted_rank(row, raw, lse, report_of(raw, row.value(token), lse), scratch);
    }
    if (c.best > 0) {
        (void)load_segments(row, scratch);
        put_best(row, raw, lse, c.job(at), scratch);
    }
    if (threadIdx.x == 0) c.write(at, chosen(row, rule, all, kept, raw, raw_mass, token, rank));
}

template <class T>
__global__ void __launch_bounds__(settle_threads, settle_blocks_per_sm)
    choose_settle_kernel(choose_call c, workspace_memory workspace) {
    __shared__ finish_scratch scratch;
    const int n = __ldcg(&workspace.unsettled->n);
    if (n == 0) return;
    for (;;) {
        const team_part team = take_part(workspace.unsettled, n);
        if (team.row < 0) break;
        settle_choice<T>(c, workspace, team, scratch);
    }
    leave_list(workspace.unsettled);
}

template <class T>
static int run_choices(choose_call c, const alea_cuda_workspace &workspace, cudaStream_t stream) {
    for (; c.first < c.rows; c.first += workspace.rows) {
        const int64_t n = std::min(c.rows - c.first, workspace.rows);
        const stream_shape shape = stream_shape_of<T>(n, c.vocab);
        const unsigned blocks = (unsigned)(n * shape.parts);
        if (shape.large) {
            choose_stream_kernel<T, large_per_warp<T>, blocks_per_sm>
                <<<blocks, stream_threads, 0, stream>>>(c, workspace.memory, shape.parts);
        } else {
            choose_stream_kernel<T, 1, filter_blocks_per_sm>
                <<<blocks, stream_threads, 0, stream>>>(c, workspace.memory, shape.parts);
        }
        choose_settle_kernel<T>
            <<<settle_blocks(n), settle_threads, 0, stream>>>(c, workspace.memory);
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
        const alea_cuda_view &best = call.views[call.views[IDS].data ? IDS : ID_LOGPROBS];
        c.draws = draw_source_of(call, SEED);
        c.rows = call.rows;
        c.first = 0;
        c.vocab = call.vocab;
        c.best = best.data ? (int32_t)best.size[1] : 0;
        return run_choices<decltype(dtype)>(c, workspace, stream);
    });
}
