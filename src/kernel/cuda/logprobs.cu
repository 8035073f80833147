/* alea_logprobs and the completion reduction: one launch, one pass, one finisher per row. */
#include "kernel/cuda/cut.cuh"
#include "kernel/cuda/launch.cuh"
#include "kernel/cuda/report.cuh"
#include "kernel/cuda/stream.cuh"

/* What is told of a row but for its alternatives. */
struct row_report {
    double lse;
    float logprob, entropy;
    int32_t rank, verdict, token;
};

/* What the stream must know of the outputs. */
struct report_wants {
    bool best, rank, entropy;
};

/* ---- where rows come from ---------------------------------------------------------------- */

/*
 * A source of rows. open() is read first and says whether the block has anything to do and where
 * its first row lies; columns(), while that is on its way, how many rows there are, and asks() what
 * is asked of each. What is kept between them takes registers from the stream.
 */
struct tensor_rows {
    enum { LSE, LOGPROBS, RANKS, IDS, ID_LOGPROBS, ENTROPY, VERDICTS, LOGITS, TOKENS, GIVEN, N };
    row_column v[N];
    int64_t first;
    int32_t vocab, n;
    report_wants wants;

    struct opened {
        int32_t token;
    };
    __device__ __forceinline__ bool open(int64_t row, opened &own) const {
        own.token = v[TOKENS].data ? __ldg(v[TOKENS].at<const int32_t>(first + row)) : -1;
        return true;
    }
    __device__ __forceinline__ const void *logits(int64_t row, const opened &, int) const {
        return v[LOGITS].at<const char>(first + row);
    }
    __device__ __forceinline__ int columns(int64_t, const opened &) const {
        return 1;
    }
    __device__ __forceinline__ int64_t index_of(int64_t row, int) const {
        return row;
    }
    __device__ __forceinline__ bool asks(const opened &own, int, int32_t *token) const {
        *token = own.token;
        return true;
    }
    __device__ __forceinline__ const int32_t *given(int64_t index) const {
        return v[GIVEN].at<const int32_t>(first + index);
    }
    __device__ __forceinline__ report_job job(int64_t index) const {
        return {n, 1, v[IDS].at<int32_t>(first + index), v[ID_LOGPROBS].at<float>(first + index)};
    }
    __device__ __forceinline__ void put(int64_t index, const row_report &r) const {
        const int64_t row = first + index;
        v[LSE].put(row, r.lse);
        v[LOGPROBS].put(row, r.logprob);
        v[RANKS].put(row, r.rank);
        v[ENTROPY].put(row, r.entropy);
        v[VERDICTS].put(row, r.verdict);
    }
    static constexpr bool keeps_on_failure = false; /* alternatives, where the row is none */
};

/* The lanes of the reduction, and the columns of each in turn: so a lane that asked for nothing
 * costs blocks that leave at once, however many tokens it could have emitted. */
struct completion_rows {
    alea_cuda_reduction r;
    int32_t vocab;
    report_wants wants;

    enum { AT_EPOCH = 1, AT_COUNT = 4, AT_ROLE = 10, AT_FORCED = 12, GIVEN_MAX = 128 };

    struct opened {
        int32_t slot, first_row;
    };

    __device__ __forceinline__ const int64_t *record(int32_t slot) const {
        return r.records + (int64_t)slot * (r.header_words + r.tokens);
    }

    __device__ __forceinline__ bool open(int64_t lane, opened &own) const {
        const int4 head = *(const int4 *)&r.slots[lane];
        own = {head.x, head.z};
        return head.y && head.x >= 0;
    }

    __device__ __forceinline__ bool has_row(int32_t first_row, int column) const {
        const int64_t at = (int64_t)first_row + column;
        return at >= 0 && at < r.rows;
    }

    /* Of a column without a row, some row: it is loaded before it is judged. */
    __device__ __forceinline__ const void *logits(int64_t, const opened &own, int column) const {
        const int64_t at = has_row(own.first_row, column) ? (int64_t)own.first_row + column : 0;
        return (const char *)r.logits + at * r.row_bytes;
    }

    /* Columns that were emitted and offered. Inactive and stale lanes have none, and repeated ones
     * do not ask; alea__reduce names those verdicts. */
    __device__ __forceinline__ int columns(int64_t lane, const opened &own) const {
        const int64_t *at = record(own.slot);
        const int64_t role = at[AT_ROLE], held = at[AT_EPOCH], count = at[AT_COUNT];
        const int64_t epoch = r.slots[lane].epoch;
        const int32_t offered = r.slots[lane].offered;
        if (role == 0 || held != epoch) return 0;
        return (int)max((int64_t)0, min(count, (int64_t)min(offered, r.tokens)));
    }

    __device__ __forceinline__ int64_t index_of(int64_t lane, int column) const {
        return lane * r.tokens + column;
    }
    /* The slot of a row, and its column; 32 bits, for longer divisions take long. */
    __device__ __forceinline__ int32_t slot_of(int64_t index) const {
        return r.slots[(uint32_t)index / (uint32_t)r.tokens].slot;
    }
    __device__ __forceinline__ uint32_t column_of_row(int64_t index) const {
        return (uint32_t)index % (uint32_t)r.tokens;
    }

    __device__ __forceinline__ bool asks(const opened &own, int column, int32_t *token) const {
        const int64_t *at = record(own.slot);
        *token = (int32_t)at[r.header_words + column];
        return has_row(own.first_row, column) && !((uint64_t)at[AT_FORCED] >> column & 1);
    }

    __device__ __forceinline__ int32_t given_count(int32_t slot) const {
        return r.token_id_counts ? r.token_id_counts[slot] : 0;
    }
    __device__ __forceinline__ const int32_t *given(int64_t index) const {
        const int32_t slot = slot_of(index);
        return given_count(slot) > 0 ? r.token_ids + (int64_t)slot * GIVEN_MAX : nullptr;
    }
    __device__ __forceinline__ int32_t *payload(int32_t slot, int64_t index) const {
        return r.logprobs + ((int64_t)slot * r.tokens + column_of_row(index)) * r.words;
    }
    __device__ __forceinline__ report_job job(int64_t index) const {
        const int32_t slot = slot_of(index), n_ids = given_count(slot);
        int32_t *at = payload(slot, index);
        return {n_ids > 0 ? min(n_ids, (int32_t)GIVEN_MAX) : r.alternatives, 2, at + 2,
                (float *)(at + 3)};
    }
    __device__ __forceinline__ void put(int64_t index, const row_report &report) const {
        int32_t *at = payload(slot_of(index), index);
        at[0] = report.token;
        at[1] = __float_as_int(report.logprob);
    }
    static constexpr bool keeps_on_failure = true;
};

/* ---- the finish -------------------------------------------------------------------------- */

template <class Rows> __device__ void put_failure(const Rows &rows, int64_t index, int32_t token) {
    const report_job job = rows.job(index);
    for (int i = threadIdx.x; i < job.n && !Rows::keeps_on_failure; i += blockDim.x)
        put_alternative(job, i, -1, NAN);
    if (threadIdx.x == 0) rows.put(index, row_report{NAN, NAN, NAN, 0, -6 /* ALEA_EROW */, token});
}

/* Two reports of at most this distance below their maximum are told apart by `apart`. */
constexpr float near_max = 64.0f;
/* Logits that differ by this report differently where |logprob| <= near_max + 16: the distance of
 * float32 values there is 2^-17, and this is five of them. */
constexpr float apart = 80.0f * 0x1p-21f;

template <class T>
__device__ int32_t rank_of(const row_of<T> &row, const mass_rule &rule, double lse, float x,
                           float logprob, int above, int n_ties, finish_scratch &scratch) {
    const row_state *state = row.memory.state;
    if (!rule.shifted && rule.max - x <= near_max && n_ties <= tie_slots) {
        int32_t rank = 1 + above;
        for (int i = 0; i < n_ties; i++)
            rank -= !(report_of(rule, __ldcg(&state->ties[i]), lse) > logprob);
        return rank;
    }
    return counted_rank(row, rule, lse, logprob, scratch);
}

/* Moments and masses of a row that counts from its maximum, into its segments. */
template <class T>
__device__ int64_t warp_moment(const row_of<T> &row, const mass_rule &rule, int s,
                               int32_t exponent) {
    const float magic = ALEA_EXP2_MAGIC - (float)exponent;
    const float floor = alea__weight_floor(rule.scale, exponent);
    int64_t sum = 0;
    for (int i = threadIdx.x & 31; i < ALEA_SEGMENT; i += warp_lanes) {
        const int id = s * ALEA_SEGMENT + i;
        if (id >= row.n) break;
        sum += segment_values<T>::entropy_part(row.value(id) - rule.max, rule.scale, magic, floor);
    }
    return (int64_t)warp_sum_any((u64)sum);
}

template <class T>
__device__ float entropy_of(const row_of<T> &row, const mass_rule &rule, u64 mass,
                            finish_scratch &scratch) {
    if (rule.shifted) { /* the stream weighed what does not count from the maximum */
        for (int s = threadIdx.x >> 5; s < row.n_segments; s += blockDim.x >> 5) {
            const float most = row.segment_max(s);
            int32_t exponent;
            if (!segment_exponent(rule, most, &exponent)) continue;
            const int64_t moment = warp_moment(row, rule, s, exponent);
            const u64 sum = warp_segment_sum(row, rule, s, exponent, -INFINITY);
            if ((threadIdx.x & 31) == 0) {
                __stcg(row.memory.extra() + s, (u64)moment);
                __stcg(row.memory.segments() + s,
                       make_uint4(__float_as_uint(most), 0, (uint32_t)sum, (uint32_t)(sum >> 32)));
            }
        }
        __syncthreads();
    }
    int64_t high = 0; /* the moments' sum is high * 2^32 + low, as 64 bits cannot hold it */
    u64 low = 0, depths = 0;
    for (int s = threadIdx.x; s < row.n_segments; s += blockDim.x) {
        int32_t exponent;
        if (!segment_exponent(rule, row.segment_max(s), &exponent)) continue;
        const int depth = rule.exponent - exponent;
        const int64_t moment = (int64_t)__ldcg(row.memory.extra() + s) >> depth;
        high += moment >> 32;
        low += (uint32_t)moment;
        depths += align_mass(row.segment_mass(s), depth) * (u64)depth;
    }
    high = (int64_t)block_sum((u64)high, scratch.block);
    low = block_sum(low, scratch.block);
    depths = block_sum(depths, scratch.block);
    const __int128 moments = ((__int128)high << 32) + (__int128)low;
    const double shares = (double)moments * (0x1p-24 * (1 << ALEA_MASS_SHIFT)) - (double)depths;
    const double log_mass = alea__ln((double)mass * 0x1p-40);
    const float entropy = (float)(log_mass - ALEA_LN2 * shares / (double)mass);
    return entropy > 0.0f ? entropy : 0.0f;
}

/* Addresses of outputs are found when they are written: registers are short until then. */
template <class T, class Rows>
__device__ __forceinline__ void finish_report(const Rows &rows, const row_of<T> &row, int64_t index,
                                              int32_t token, float x, finish_scratch &scratch) {
    const int32_t *given = rows.given(index);
    const int above = __ldcg(&row.memory.state->above), n_ties = __ldcg(&row.memory.state->n_ties);
    const float max = load_segments(row, scratch);
    if (!is_sound(max)) {
        put_failure(rows, index, token);
        return;
    }
    const mass_rule rule = rule_of(max, ALEA_LOG2E_F);
    const u64 mass = rule.shifted
                         ? block_mass_ge(row, rule, -INFINITY, (u64 *)nullptr, scratch.block)
                         : loaded_mass(row, rule, scratch);
    const double lse = lse_of(rule, mass);
    if (given) {
        const report_job job = rows.job(index);
        for (int i = threadIdx.x; i < job.n; i += blockDim.x) {
            const int32_t id = given[i];
            const bool there = id >= 0 && id < row.n;
            put_alternative(job, i, there ? id : -1,
                            there ? report_of(rule, row.value(id), lse) : NAN);
        }
    } else if (rows.wants.best) {
        put_best(row, rule, lse, rows.job(index), scratch);
    }
    row_report report;
    report.logprob = token < 0 ? NAN : report_of(rule, x, lse);
    report.rank = token < 0 || !rows.wants.rank
                      ? 0
                      : rank_of(row, rule, lse, x, report.logprob, above, n_ties, scratch);
    report.entropy = rows.wants.entropy ? entropy_of(row, rule, mass, scratch) : 0.0f;
    report.lse = reported_lse(rule, lse);
    report.verdict = 0;
    report.token = token;
    if (threadIdx.x == 0) rows.put(index, report);
}

/* One row, whose segments are on their way. */
template <class T, int per_warp, class Rows>
__device__ __forceinline__ void report_row(const Rows &rows, const row_of<T> &row, int64_t index,
                                           int32_t token,
                                           const segment_values<T> (&segments)[per_warp], int part,
                                           int parts, finish_scratch &scratch) {
    if (token >= row.n) token = -1;
    const float x = token >= 0 ? row.value(token) : NAN;
    stream_plan plan = {};
    plan.scale = ALEA_LOG2E_F;
    plan.moment = rows.wants.entropy;
    plan.lanes = rows.wants.best;
    plan.count = rows.wants.rank && token >= 0;
    plan.above = x;
    plan.surely = x + apart;
    weigh_part(row, part, plan, segments);
    if (!is_last_block(row.memory.state, parts)) return;
    finish_report(rows, row, index, token, x, scratch);
    clear_counters(row.memory.state);
}

/* The columns after the first, apart: in a loop with it the first would have no registers left. */
template <class T, int per_warp, class Rows>
__device__ __noinline__ void report_more(const Rows &rows, const workspace_memory &workspace,
                                         int64_t base, int columns, int parts,
                                         finish_scratch &scratch) {
    typename Rows::opened opened;
    (void)rows.open(base, opened);
    const int part = (int)(blockIdx.x % parts);
    for (int column = 1; column < columns; column++) {
        const int64_t index = rows.index_of(base, column);
        const row_of<T> row =
            open_row<T>(rows.logits(base, opened, column), rows.vocab, memory_of(workspace, index));
        int32_t token;
        if (!rows.asks(opened, column, &token)) continue;
        segment_values<T> segments[per_warp];
        load_part(row, part, segments);
        report_row(rows, row, index, token, segments, part, parts, scratch);
    }
}

template <class T, int per_warp, class Rows>
__global__ void __launch_bounds__(stream_threads, blocks_per_sm)
    report_kernel(const __grid_constant__ Rows rows,
                  const __grid_constant__ workspace_memory workspace, int parts) {
    __shared__ finish_scratch scratch;
    const int64_t base = blockIdx.x / parts;
    const int part = (int)(blockIdx.x % parts);
    typename Rows::opened opened;
    if (!rows.open(base, opened)) return;
    const int64_t index = rows.index_of(base, 0);
    const row_of<T> row =
        open_row<T>(rows.logits(base, opened, 0), rows.vocab, memory_of(workspace, index));
    segment_values<T> segments[per_warp];
    load_part(row, part, segments);
    const int columns = rows.columns(base, opened);
    int32_t token;
    if (columns > 0 && rows.asks(opened, 0, &token))
        report_row(rows, row, index, token, segments, part, parts, scratch);
    if (columns > 1) report_more<T, per_warp>(rows, workspace, base, columns, parts, scratch);
}

template <class T, class Rows>
static int launch_report(const Rows &rows, int64_t n_rows, int32_t vocab,
                         const workspace_memory &workspace, cudaStream_t stream) {
    const stream_shape shape = stream_shape_of<T>(n_rows, vocab);
    const unsigned blocks = (unsigned)(n_rows * shape.parts);
    if (shape.large) {
        report_kernel<T, large_per_warp<T>>
            <<<blocks, stream_threads, 0, stream>>>(rows, workspace, shape.parts);
    } else {
        report_kernel<T, 1><<<blocks, stream_threads, 0, stream>>>(rows, workspace, shape.parts);
    }
    return (int)cudaGetLastError();
}

static tensor_rows rows_of(const alea_cuda_call &call) {
    tensor_rows rows = {};
    const alea_cuda_view *v = call.views;
    for (int i = 0; i < tensor_rows::N; i++)
        rows.v[i] = column_of(v[i]);
    const alea_cuda_view &named =
        v[v[tensor_rows::IDS].data ? tensor_rows::IDS : tensor_rows::ID_LOGPROBS];
    rows.n = named.data ? (int32_t)named.size[1] : 0;
    rows.vocab = call.vocab;
    rows.wants.best = rows.n > 0 && !v[tensor_rows::GIVEN].data;
    rows.wants.rank = v[tensor_rows::RANKS].data != nullptr;
    rows.wants.entropy = v[tensor_rows::ENTROPY].data != nullptr;
    return rows;
}

template <class T>
static int run_reports(const alea_cuda_call &call, const alea_cuda_workspace &workspace,
                       cudaStream_t stream) {
    tensor_rows rows = rows_of(call);
    for (; rows.first < call.rows; rows.first += workspace.rows) {
        const int64_t n = std::min(call.rows - rows.first, workspace.rows);
        const int error = launch_report<T>(rows, n, call.vocab, workspace.memory, stream);
        if (error) return error;
    }
    return 0;
}

int cuda_run_logprobs(const alea_cuda_call &call, const alea_cuda_workspace &workspace,
                      cudaStream_t stream) {
    return by_dtype(call.dtype, [&](auto dtype) {
        return run_reports<decltype(dtype)>(call, workspace, stream);
    });
}

int cuda_reduce(const alea_cuda_reduction &r, const alea_cuda_workspace &workspace,
                cudaStream_t stream) {
    if (r.lanes == 0) return 0;
    if ((int64_t)r.lanes * r.tokens > workspace.rows || workspace.rows > INT32_MAX)
        return (int)cudaErrorInvalidValue;
    return by_dtype(r.dtype, [&](auto dtype) {
        return launch_report<decltype(dtype)>(completion_rows{r, r.vocab, {true, false, false}},
                                              r.lanes, r.vocab, workspace.memory, stream);
    });
}
