/* alea_logprobs and the completion reduction: one launch, one pass, one finisher per row. */
#include "kernel/cuda/cut.cuh"
#include "kernel/cuda/launch.cuh"
#include "kernel/cuda/stream.cuh"

/* The row that a report is about. */
struct report_input {
    const void *x;
    int32_t vocab;
    int32_t token; /* -1: none */
};

/* Where its parts go; NULL parts are not wanted. */
struct report_job {
    int32_t token, n;     /* alternatives or given ids */
    const int32_t *given; /* ids in the caller's order; NULL: the best are the alternatives */
    int32_t step;         /* words from one alternative to the next */
    int32_t *ids;
    float *id_logprobs;
    double *lse;
    float *logprob, *entropy;
    int32_t *rank, *verdict, *token_out;
    bool keep_on_failure; /* alternatives stay as they are where the row is no distribution */
};

/* What the stream must know before it knows the job. */
struct report_wants {
    bool best, rank, entropy;
};

/* ---- where rows come from ---------------------------------------------------------------- */

struct tensor_rows {
    enum { LSE, LOGPROBS, RANKS, IDS, ID_LOGPROBS, ENTROPY, VERDICTS, LOGITS, TOKENS, GIVEN, N };
    row_column v[N];
    int64_t first;
    int32_t vocab, n;
    report_wants wants;

    struct view {
        int columns;
    };
    __device__ __forceinline__ view begin(int64_t) const {
        return {1};
    }
    __device__ __forceinline__ int64_t index_of(int64_t row, int) const {
        return row;
    }
    __device__ __forceinline__ bool open(const view &, int64_t index, int, report_input &in) const {
        const int64_t row = first + index;
        in.x = v[LOGITS].at<const char>(row);
        in.vocab = vocab;
        in.token = v[TOKENS].data ? __ldg(v[TOKENS].at<const int32_t>(row)) : -1;
        return true;
    }
    __device__ __forceinline__ void open_outputs(int64_t index, report_job &job) const {
        const int64_t row = first + index;
        job.given = v[GIVEN].at<const int32_t>(row);
        job.ids = v[IDS].at<int32_t>(row);
        job.id_logprobs = v[ID_LOGPROBS].at<float>(row);
        job.n = n;
        job.step = 1;
        job.lse = v[LSE].at<double>(row);
        job.logprob = v[LOGPROBS].at<float>(row);
        job.entropy = v[ENTROPY].at<float>(row);
        job.rank = v[RANKS].at<int32_t>(row);
        job.verdict = v[VERDICTS].at<int32_t>(row);
        job.token_out = nullptr;
        job.keep_on_failure = false;
    }
};

/* The lanes of the reduction, and the columns of each in turn: so a lane that asked for nothing
 * costs blocks that leave at once, however many tokens it could have emitted. */
struct completion_rows {
    alea_cuda_reduction r;
    report_wants wants;

    enum { AT_EPOCH = 1, AT_COUNT = 4, AT_ROLE = 10, AT_FORCED = 12, GIVEN_MAX = 128 };
    enum { REDUCED, GATED, INACTIVE, STALE, DUPLICATE }; /* alea_reduce_verdict */

    /* A lane, read once: its columns are those that were emitted and have a row. */
    struct view {
        int columns;
        int32_t first_row;
        uint64_t forced;
        const int64_t *tokens;
    };

    __device__ view begin(int64_t index) const {
        const int lane = (int)index;
        view own = {0, 0, 0, nullptr};
        const int verdict = judge(lane, own);
        if (r.verdicts && threadIdx.x == 0) r.verdicts[lane] = verdict;
        if (verdict != REDUCED) own.columns = 0;
        return own;
    }

    /* Loads that do not depend on each other come before the branches that would order them. */
    __device__ int judge(int lane, view &own) const {
        const int32_t slot = r.lane_slots[lane], offered = r.lane_rows[2 * lane + 1];
        const int64_t epoch = r.lane_epochs[lane];
        const int mine = threadIdx.x & 31; /* each warp looks for duplicates by itself */
        const bool has_earlier = mine < lane;
        const int32_t earlier_slot = has_earlier ? r.lane_slots[mine] : -1;
        const int64_t earlier_epoch = has_earlier ? r.lane_epochs[mine] : 0;
        own.first_row = r.lane_rows[2 * lane];
        if (slot < 0 || slot >= r.capacity) return INACTIVE;
        const int64_t *record = r.records + (int64_t)slot * (r.header_words + r.tokens);
        const int32_t wanted = r.requested[slot];
        const int64_t role = record[AT_ROLE], held = record[AT_EPOCH], count = record[AT_COUNT];
        own.forced = (uint64_t)record[AT_FORCED];
        own.tokens = record + r.header_words;
        own.columns = (int)max((int64_t)0, min(count, (int64_t)min(offered, r.tokens)));
        if (!wanted) return GATED;
        if (role == 0) return INACTIVE;
        if (held != epoch) return STALE;
        if (count == 0) return INACTIVE;
        bool taken = earlier_slot == slot && earlier_epoch == epoch;
        for (int i = mine + warp_lanes; i < lane; i += warp_lanes)
            taken |= r.lane_slots[i] == slot && r.lane_epochs[i] == epoch;
        return __any_sync(whole_warp, taken) ? DUPLICATE : REDUCED;
    }

    __device__ __forceinline__ int64_t index_of(int64_t lane, int column) const {
        return lane * r.tokens + column;
    }

    __device__ __forceinline__ bool open(const view &own, int64_t, int column,
                                         report_input &in) const {
        if (own.forced >> column & 1) return false;
        const int64_t at = (int64_t)own.first_row + column;
        if (at < 0 || at >= r.rows) return false;
        in.x = (const char *)r.logits + at * r.row_bytes;
        in.vocab = r.vocab;
        in.token = (int32_t)own.tokens[column];
        return true;
    }

    __device__ void open_outputs(int64_t index, report_job &job) const {
        const int32_t slot = r.lane_slots[index / r.tokens];
        const int32_t n_ids = r.token_id_counts ? r.token_id_counts[slot] : 0;
        int32_t *payload = r.logprobs + ((int64_t)slot * r.tokens + index % r.tokens) * r.words;
        job.given = n_ids > 0 ? r.token_ids + (int64_t)slot * GIVEN_MAX : nullptr;
        job.n = n_ids > 0 ? min(n_ids, (int32_t)GIVEN_MAX) : r.alternatives;
        job.step = 2;
        job.token_out = payload;
        job.logprob = (float *)(payload + 1);
        job.ids = payload + 2;
        job.id_logprobs = (float *)(payload + 3);
        job.lse = nullptr;
        job.entropy = nullptr;
        job.rank = job.verdict = nullptr;
        job.keep_on_failure = true;
    }
};

/* ---- the finish -------------------------------------------------------------------------- */

__device__ __forceinline__ void put_alternative(const report_job &job, int i, int32_t id,
                                                float logprob) {
    if (job.ids) job.ids[i * job.step] = id;
    if (job.id_logprobs) job.id_logprobs[i * job.step] = logprob;
}

__device__ inline void put_failure(const report_job &job) {
    for (int i = threadIdx.x; i < job.n && !job.keep_on_failure; i += blockDim.x)
        put_alternative(job, i, -1, NAN);
    if (threadIdx.x != 0) return;
    if (job.lse) *job.lse = NAN;
    if (job.logprob) *job.logprob = NAN;
    if (job.rank) *job.rank = 0;
    if (job.entropy) *job.entropy = NAN;
    if (job.verdict) *job.verdict = -6; /* ALEA_EROW */
    if (job.token_out) *job.token_out = job.token;
}

/* Two reports of at most this distance below their maximum are told apart by `apart`. */
constexpr float near_max = 64.0f;
/* Logits that differ by this report differently where |logprob| <= near_max + 16: the distance of
 * float32 values there is 2^-17, and this is five of them. */
constexpr float apart = 80.0f * 0x1p-21f;

/* The smallest float32 whose report is above `logprob`; false: not even the maximum's is. */
__device__ inline bool cut_above(const mass_rule &rule, double lse, float logprob, float *cut) {
    if (!(report_of(rule, rule.max, lse) > logprob)) return false;
    int32_t low = walk_key(-INFINITY), high = walk_key(rule.max);
    while ((int64_t)high - low > 1) {
        const int32_t middle = low + (int32_t)(((int64_t)high - low) / 2);
        if (report_of(rule, walk_value(middle), lse) > logprob) {
            high = middle;
        } else {
            low = middle;
        }
    }
    *cut = walk_value(high);
    return true;
}

template <class T>
__device__ int32_t rank_of(const row_of<T> &row, const mass_rule &rule, double lse, float x,
                           float logprob, finish_scratch &scratch) {
    const row_state *state = row.memory.state;
    const int n_ties = __ldcg(&state->n_ties);
    if (!rule.shifted && rule.max - x <= near_max && n_ties <= tie_slots) {
        int32_t rank = 1 + __ldcg(&state->above);
        for (int i = 0; i < n_ties; i++)
            rank -= !(report_of(rule, __ldcg(&state->ties[i]), lse) > logprob);
        return rank;
    }
    float cut;
    if (!cut_above(rule, lse, logprob, &cut)) return 1;
    return 1 + block_count_ge(row, cut, scratch.block);
}

/* Wide enough that whatever reports the same as the bound is gathered too: |logprob| is at most the
 * distance from the maximum and ln of the vocabulary, and this is two of its last places. */
struct report_margin {
    float max;
    __device__ __forceinline__ float operator()(float bound) const {
        return bound - (((max - bound) + 16.0f) * 0x1p-21f + 1e-6f);
    }
};

/* The best k by logprob downward, then id upward, one after the other: k passes over the row. For
 * rows in which very many entries report the same. */
template <class T>
__device__ void rank_slowly(const row_of<T> &row, const mass_rule &rule, double lse,
                            const report_job &job, finish_scratch &scratch) {
    u64 last = ~(u64)0;
    for (int k = 0; k < job.n; k++) {
        u64 best = 0;
        for (int i = threadIdx.x; i < row.n; i += blockDim.x) {
            const float logprob = report_of(rule, row.value(i), lse);
            const u64 key = (u64)order_key(logprob) << 32 | (uint32_t)~i;
            if (key < last && key > best) best = key;
        }
        best = block_max(best, scratch.block);
        if (threadIdx.x == 0) {
            const bool there = k < row.n;
            put_alternative(job, k, there ? (int32_t) ~(uint32_t)best : -1,
                            there ? key_value((uint32_t)(best >> 32)) : NAN);
        }
        last = best;
    }
}

template <class T>
__device__ void put_best(const row_of<T> &row, const mass_rule &rule, double lse,
                         const report_job &job, finish_scratch &scratch) {
    const int k = min(job.n, row.n);
    const report_margin margin = {rule.max};
    const int n = rule.shifted ? -1 : gather(row, k, -INFINITY, margin, scratch);
    if (n < 0) {
        rank_slowly(row, rule, lse, job, scratch);
        return;
    }
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const float logprob = report_of(rule, scratch.x[i], lse);
        scratch.keys[i] = (u64)order_key(logprob) << 32 | (uint32_t)~scratch.id[i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const u64 mine = scratch.keys[i];
        int place = 0;
#pragma unroll 4
        for (int j = 0; j < n; j++)
            place += scratch.keys[j] > mine;
        if (place < k) {
            put_alternative(job, place, (int32_t) ~(uint32_t)mine,
                            key_value((uint32_t)(mine >> 32)));
        }
    }
    for (int i = k + threadIdx.x; i < job.n; i += blockDim.x)
        put_alternative(job, i, -1, NAN);
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
                __stcg(row.memory.extra + s, (u64)moment);
                __stcg(row.memory.segments + s,
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
        const int64_t moment = (int64_t)__ldcg(row.memory.extra + s) >> depth;
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

template <class T>
__device__ void finish_report(const row_of<T> &row, const report_job &job, float x,
                              finish_scratch &scratch) {
    const float max = load_segments(row, scratch);
    if (!is_sound(max)) {
        put_failure(job);
        return;
    }
    const mass_rule rule = rule_of(max, ALEA_LOG2E_F);
    const u64 mass = rule.shifted
                         ? block_mass_ge(row, rule, -INFINITY, (u64 *)nullptr, scratch.block)
                         : loaded_mass(row, rule, scratch);
    const double lse = lse_of(rule, mass);
    if (job.given) {
        for (int i = threadIdx.x; i < job.n; i += blockDim.x) {
            const int32_t id = job.given[i];
            const bool there = id >= 0 && id < row.n;
            put_alternative(job, i, there ? id : -1,
                            there ? report_of(rule, row.value(id), lse) : NAN);
        }
    } else if (job.n > 0) {
        put_best(row, rule, lse, job, scratch);
    }
    const float logprob = job.token < 0 ? NAN : report_of(rule, x, lse);
    const int32_t rank =
        job.token < 0 || !job.rank ? 0 : rank_of(row, rule, lse, x, logprob, scratch);
    const float entropy = job.entropy ? entropy_of(row, rule, mass, scratch) : 0.0f;
    if (threadIdx.x != 0) return;
    const double from = rule.shifted ? 0.0 : (double)max;
    if (job.lse) *job.lse = (double)max - fma(from, rule.slope, -lse);
    if (job.logprob) *job.logprob = logprob;
    if (job.rank) *job.rank = rank;
    if (job.entropy) *job.entropy = entropy;
    if (job.verdict) *job.verdict = 0;
    if (job.token_out) *job.token_out = job.token;
}

template <class T, int per_warp, class Rows>
__global__ void __launch_bounds__(stream_threads, blocks_per_sm)
    report_kernel(Rows rows, workspace_memory workspace, int parts) {
    __shared__ finish_scratch scratch;
    const int64_t base = blockIdx.x / parts;
    const int part = (int)(blockIdx.x % parts);
    const typename Rows::view own = rows.begin(base);
    for (int column = 0; column < own.columns; column++) {
        const int64_t index = rows.index_of(base, column);
        report_input in;
        if (!rows.open(own, index, column, in)) continue;
        const row_memory memory = memory_of(workspace, index);
        const row_of<T> row = open_row<T>(in.x, in.vocab, memory);
        float x = NAN;
        stream_part<T, per_warp>(row, part, [&] {
            if (in.token >= in.vocab) in.token = -1;
            if (in.token >= 0) x = row.value(in.token);
            stream_plan plan = {};
            plan.scale = ALEA_LOG2E_F;
            plan.moment = rows.wants.entropy;
            plan.lanes = rows.wants.best;
            plan.count = rows.wants.rank && in.token >= 0;
            plan.above = x;
            plan.surely = x + apart;
            return plan;
        });
        if (!is_last_block(memory.state, parts)) continue;
        report_job job;
        rows.open_outputs(index, job);
        job.token = in.token;
        finish_report(row, job, x, scratch);
        clear_counters(memory.state);
    }
}

template <class T, class Rows>
static int launch_report(const Rows &rows, int64_t n_rows, int32_t vocab,
                         const workspace_memory &workspace, cudaStream_t stream) {
    const stream_shape shape = stream_shape_of<T>(n_rows, vocab);
    const unsigned blocks = (unsigned)(n_rows * shape.parts);
    if (shape.per_warp == 2) {
        report_kernel<T, sizeof(typename T::word) == 2 ? 2 : 1>
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
    if ((int64_t)r.lanes * r.tokens > workspace.rows) return (int)cudaErrorInvalidValue;
    return by_dtype(r.dtype, [&](auto dtype) {
        return launch_report<decltype(dtype)>(completion_rows{r, {true, false, false}}, r.lanes,
                                              r.vocab, workspace.memory, stream);
    });
}
