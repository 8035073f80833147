/*
 * alea_chain_logits: a first launch weighs every row that might be read and says how probable its
 * draft's token is; a second finds out where each chain stops, weighs what the target has above the
 * draft there, and draws. A probability exists in a register and nowhere else.
 */
#include "kernel/cuda/launch.cuh"
#include "kernel/cuda/probs.cuh"

enum { ROW_GOOD = 0, ROW_BAD_PARAMETER = -1, ROW_FAILED = -6 }; /* alea_status */

struct chain_logits_call {
    row_column tokens, accepted, verdicts, draft_logits, draft_tokens, target_logits, temperature;
    int64_t token_step, draft_step, draft_token_step, target_step; /* from position to position */
    draw_source draws;
    int64_t first;
    int32_t n_drafts, vocab, rows_each; /* rows_each: of the workspace, targets before drafts */

    __device__ __forceinline__ bool certain() const {
        return draft_logits.data == nullptr;
    }
    __device__ __forceinline__ int32_t draft(int64_t chain, int i) const {
        return *(const int32_t *)(draft_tokens.at<const char>(chain) + i * draft_token_step);
    }
    __device__ __forceinline__ const char *logits(int64_t chain, int k) const {
        return k <= n_drafts ? target_logits.at<const char>(chain) + k * target_step
                             : draft_logits.at<const char>(chain) + (k - n_drafts - 1) * draft_step;
    }
    /* log2(e) / T; 0: greedy; NaN: no temperature at all. */
    __device__ __forceinline__ float scale(int64_t chain) const {
        const float t = temperature.get(chain, 1.0f);
        const float own = t > 0.0f ? ALEA_LOG2E_F / t : 0.0f;
        return t == 0.0f || (own > 0.0f && own < INFINITY) ? own : NAN;
    }
};

/* ---- rows as distributions --------------------------------------------------------------- */

/* Apart, for it is rare and long. */
__device__ __noinline__ double exact_quotient(double a, double b) {
    return __ddiv_rn(a, b);
}

/* What a segment's weights have in common. */
struct segment_weights {
    float offset, magic, floor;
    int32_t depth;
    double unit; /* the probability of weight 1 */
};

/* A weighed row of logits. */
template <class T> struct distribution {
    row_of<T> row;
    mass_rule rule;
    double mass, inverse;

    __device__ __forceinline__ void open(const row_of<T> &from, float scale, float max, u64 sum) {
        row = from;
        rule = rule_of(max, scale);
        mass = (double)sum;
        inverse = __drcp_rn(mass);
    }

    /* How segment s is weighed; false: nothing in it is probable. */
    __device__ __forceinline__ bool open_segment(int s, segment_weights *w) const {
        int32_t exponent;
        if (!segment_exponent(rule, row.segment_max(s), &exponent)) return false;
        w->offset = rule.shifted ? rule.max : 0.0f;
        w->magic = ALEA_EXP2_MAGIC - (float)exponent;
        w->floor = alea__weight_floor(rule.scale, exponent);
        w->depth = rule.exponent - exponent;
        w->unit = alea__weight_share(1, w->depth) * inverse; /* by a power of two: exact */
        return true;
    }

    /* alea__weight_prob. The product is within three units of the last place of the quotient, which
     * matters only beside a midpoint of two float32 values. No quotient is a denormal. */
    __device__ __forceinline__ float prob(float x, const segment_weights &w) const {
        const uint32_t weight = weigh_above(x - w.offset, rule.scale, w.magic, w.floor);
        double q = __dmul_rn((double)weight, w.unit);
        const uint32_t beside = ((uint32_t)__double2loint(q) - 0x0ffffff8u) & 0x1fffffffu;
        if (beside <= 16) q = exact_quotient(alea__weight_share(weight, w.depth), mass);
        return __double2float_rn(q);
    }

    __device__ __forceinline__ float prob_at(int i) const {
        segment_weights w;
        return open_segment(i / ALEA_SEGMENT, &w) ? prob(row.value(i), w) : 0.0f;
    }
};

/* What is drawn from: a target, less its draft where one was rejected. See probs.cuh. */
template <class T> struct residual_row {
    row_of<T> target;
    distribution<T> p, q;
    bool drafted;     /* q counts */
    int32_t rejected; /* a certain draft's token; -1: none */

    /* Where lanes' maxima would lie: the first launch needs none. */
    __device__ __forceinline__ uint4 *segments() const {
        return (uint4 *)target.memory.lanes();
    }
    __device__ __forceinline__ float value(int i) const {
        if (i == rejected) return 0.0f;
        return clean_weight(drafted ? p.prob_at(i) - q.prob_at(i) : p.prob_at(i));
    }
};

/* One segment of one distribution into the lanes of a warp: added, or taken away. */
template <class T>
__device__ __forceinline__ void add_probs(const distribution<T> &d, int s, bool minus,
                                          float (&x)[lane_entries]) {
    segment_values<T> segment;
    segment.load(d.row, s, threadIdx.x & 31);
    segment_weights w;
    if (!d.open_segment(s, &w)) return;
#pragma unroll
    for (int i = 0; i < lane_entries; i++) {
        const float prob = d.prob(T::get(segment.v[i / T::per_vector], i % T::per_vector), w);
        x[i] = minus ? x[i] - prob : prob;
    }
}

template <class T> __device__ __forceinline__ void weigh_residual(const residual_row<T> &r, int s) {
    float x[lane_entries];
#pragma unroll
    for (int i = 0; i < lane_entries; i++)
        x[i] = 0.0f;
    add_probs(r.p, s, false, x);
    if (r.drafted) add_probs(r.q, s, true, x);
    const int own = s * ALEA_SEGMENT + (int)(threadIdx.x & 31) * T::per_vector;
#pragma unroll
    for (int i = 0; i < lane_entries; i++) {
        const int id = own + i / T::per_vector * (warp_lanes * T::per_vector) + i % T::per_vector;
        x[i] = id == r.rejected ? 0.0f : clean_weight(x[i]);
    }
    weigh_held(x, r.segments() + s);
}

/* ---- the first launch -------------------------------------------------------------------- */

template <class T>
__device__ void finish_weighing(const chain_logits_call &c, const row_of<T> &row, int64_t chain,
                                int k, float scale, block_scratch &scratch) {
    weighed_row own = {};
    own.max = block_row_max(row, scratch);
    own.sound = is_sound(own.max);
    const int i = k <= c.n_drafts ? k : k - c.n_drafts - 1;
    if (own.sound && scale == 0.0f) {
        own.greedy = block_greedy(row, own.max, scratch);
    } else if (own.sound && scale > 0.0f) {
        const mass_rule rule = rule_of(own.max, scale);
        own.mass = rule.shifted ? block_mass_ge(row, rule, -INFINITY, (u64 *)nullptr, scratch)
                                : block_stored_mass(row, rule, false, scratch);
        const int32_t token = i < c.n_drafts ? c.draft(chain, i) : -1;
        distribution<T> d;
        d.open(row, scale, own.max, own.mass);
        if (token >= 0 && token < c.vocab) own.prob = d.prob_at(token);
    }
    if (threadIdx.x == 0) row.memory.state->weighed = own;
}

template <class T, int per_warp>
__global__ void __launch_bounds__(stream_threads, blocks_per_sm)
    chain_weigh_kernel(chain_logits_call c, workspace_memory workspace, int parts) {
    __shared__ block_scratch scratch;
    const int64_t index = blockIdx.x / parts, chain = c.first + index / c.rows_each;
    const int k = (int)(index % c.rows_each);
    const row_memory memory = memory_of(workspace, index);
    const row_of<T> row = open_row<T>(c.logits(chain, k), c.vocab, memory);
    float scale = 0.0f;
    stream_part<T, per_warp>(row, (int)(blockIdx.x % parts), [&] {
        scale = c.scale(chain);
        stream_plan plan = {};
        plan.scale = scale > 0.0f ? scale : 0.0f;
        return plan;
    });
    if (!is_last_block(memory.state, parts)) return;
    finish_weighing(c, row, chain, k, scale, scratch);
    if (threadIdx.x == 0) memory.state->arrived = 0;
}

/* ---- the second launch ------------------------------------------------------------------- */

enum stop { STANDS, FALLS, FAILED };

/* Whether draft i stands; i = N: whether the last target row can be drawn from. */
__device__ inline stop test_draft(const chain_logits_call &c, const workspace_memory &workspace,
                                  int64_t index, int64_t chain, float scale, int i) {
    const int64_t base = index * c.rows_each;
    const weighed_row target = memory_of(workspace, base + i).state->weighed;
    if (!target.sound) return FAILED;
    if (i == c.n_drafts) return FALLS;
    if (scale == 0.0f) return target.greedy == c.draft(chain, i) ? STANDS : FALLS;
    float draft = 1.0f;
    if (!c.certain()) {
        const weighed_row d = memory_of(workspace, base + c.n_drafts + 1 + i).state->weighed;
        if (!d.sound) return FAILED;
        draft = d.prob;
    }
    const float u = (float)c.draws.bits(chain, (uint32_t)i) * 0x1p-24f;
    return u * draft < target.prob ? STANDS : FALLS;
}

/* The first position that does not stand; each warp finds out for itself. */
__device__ inline int stopped_at(const chain_logits_call &c, const workspace_memory &workspace,
                                 int64_t index, int64_t chain, float scale, stop *why) {
    for (int base = 0;; base += warp_lanes) { /* position N never stands */
        const int i = base + (int)(threadIdx.x & 31);
        const stop own = i <= c.n_drafts ? test_draft(c, workspace, index, chain, scale, i) : FALLS;
        const unsigned stops = __ballot_sync(whole_warp, own != STANDS);
        if (!stops) continue;
        *why = (stop)__shfl_sync(whole_warp, (int)own, __ffs(stops) - 1);
        return base + __ffs(stops) - 1;
    }
}

__device__ inline void write_chain(const chain_logits_call &c, int64_t chain, int accepted,
                                   int32_t token, int32_t verdict) {
    for (int i = threadIdx.x; i <= c.n_drafts; i += blockDim.x) {
        const int32_t id = i < accepted ? c.draft(chain, i) : i > accepted ? -1 : token;
        *(int32_t *)(c.tokens.at<char>(chain) + i * c.token_step) = id;
    }
    if (threadIdx.x != 0) return;
    c.accepted.put(chain, accepted);
    c.verdicts.put(chain, verdict);
}

template <class T>
__device__ residual_row<T> open_residual(const chain_logits_call &c,
                                         const workspace_memory &workspace, int64_t index,
                                         int64_t chain, float scale, int at) {
    const int64_t base = index * c.rows_each;
    residual_row<T> r;
    const row_memory memory = memory_of(workspace, base + at);
    r.target = open_row<T>(c.logits(chain, at), c.vocab, memory);
    r.p.open(r.target, scale, memory.state->weighed.max, memory.state->weighed.mass);
    r.drafted = at < c.n_drafts && !c.certain();
    r.rejected = at < c.n_drafts && c.certain() ? c.draft(chain, at) : -1;
    r.q = r.p;
    if (r.drafted) {
        const int k = c.n_drafts + 1 + at;
        const row_memory own = memory_of(workspace, base + k);
        r.q.open(open_row<T>(c.logits(chain, k), c.vocab, own), scale, own.state->weighed.max,
                 own.state->weighed.mass);
    }
    return r;
}

template <class T>
__global__ void __launch_bounds__(stream_threads, sizeof(typename T::word) == 2 ? 3 : 2)
    chain_place_kernel(chain_logits_call c, workspace_memory workspace, int parts) {
    __shared__ pick_scratch scratch;
    const int64_t index = blockIdx.x / parts, chain = c.first + index;
    const int part = (int)(blockIdx.x % parts);
    const float scale = c.scale(chain);
    const bool good = scale == scale;
    stop why = FAILED;
    const int at = good ? stopped_at(c, workspace, index, chain, scale, &why) : 0;
    if (why == FAILED || scale == 0.0f) { /* nothing to draw */
        if (part > 0) return;
        const int32_t greedy =
            why == FAILED ? -1
                          : memory_of(workspace, index * c.rows_each + at).state->weighed.greedy;
        write_chain(c, chain, at, greedy,
                    !good           ? ROW_BAD_PARAMETER
                    : why == FAILED ? ROW_FAILED
                                    : ROW_GOOD);
        return;
    }
    residual_row<T> r = open_residual<T>(c, workspace, index, chain, scale, at);
    const int s = part * stream_warps + (int)(threadIdx.x >> 5);
    if (s < r.target.n_segments) weigh_residual(r, s);
    row_state *state = r.target.memory.state;
    if (!is_last_block(state, parts)) return;

    const uint32_t bits = c.draws.bits(chain, (uint32_t)c.n_drafts);
    int32_t token = block_pick(r, bits, scratch);
    if (token < 0 && r.drafted) { /* a residual without mass */
        r.drafted = false;
        for (int i = threadIdx.x >> 5; i < r.target.n_segments; i += stream_warps)
            weigh_residual(r, i);
        __syncthreads();
        token = block_pick(r, bits, scratch);
    }
    write_chain(c, chain, at, max(token, 0), ROW_GOOD);
    if (threadIdx.x == 0) state->arrived = 0;
}

/* ---- launches ---------------------------------------------------------------------------- */

template <class T>
static int run_chains(chain_logits_call c, int64_t chains, const alea_cuda_workspace &workspace,
                      cudaStream_t stream) {
    const int64_t at_once = workspace.rows / c.rows_each;
    if (at_once < 1) return (int)cudaErrorInvalidValue;
    const int place_parts =
        (c.vocab + ALEA_SEGMENT * stream_warps - 1) / (ALEA_SEGMENT * stream_warps);
    for (; c.first < chains; c.first += at_once) {
        const int64_t n = std::min(chains - c.first, at_once);
        const stream_shape shape = stream_shape_of<T>(n * c.rows_each, c.vocab);
        const unsigned blocks = (unsigned)(n * c.rows_each * shape.parts);
        if (shape.large) {
            chain_weigh_kernel<T, large_per_warp<T>>
                <<<blocks, stream_threads, 0, stream>>>(c, workspace.memory, shape.parts);
        } else {
            chain_weigh_kernel<T, 1>
                <<<blocks, stream_threads, 0, stream>>>(c, workspace.memory, shape.parts);
        }
        chain_place_kernel<T><<<(unsigned)(n * place_parts), stream_threads, 0, stream>>>(
            c, workspace.memory, place_parts);
        const int error = (int)cudaGetLastError();
        if (error) return error;
    }
    return 0;
}

int cuda_run_chain_logits(const alea_cuda_call &call, const alea_cuda_workspace &workspace,
                          cudaStream_t stream) {
    enum { TOKENS, ACCEPTED, VERDICTS, DRAFTS, DRAFT_TOKENS, TARGETS, TEMPERATURE, SEED };
    const alea_cuda_view *v = call.views;
    chain_logits_call c;
    c.tokens = column_of(v[TOKENS]);
    c.accepted = column_of(v[ACCEPTED]);
    c.verdicts = column_of(v[VERDICTS]);
    c.draft_logits = column_of(v[DRAFTS]);
    c.draft_tokens = column_of(v[DRAFT_TOKENS]);
    c.target_logits = column_of(v[TARGETS]);
    c.temperature = column_of(v[TEMPERATURE]);
    c.token_step = v[TOKENS].step[1];
    c.draft_step = v[DRAFTS].step[1];
    c.draft_token_step = v[DRAFT_TOKENS].step[1];
    c.target_step = v[TARGETS].step[1];
    c.draws = draw_source_of(call, SEED);
    c.first = 0;
    c.n_drafts = (int32_t)v[DRAFT_TOKENS].size[1];
    c.vocab = call.vocab;
    const int64_t rows_each = (v[DRAFTS].data ? 2 : 1) * (int64_t)c.n_drafts + 1;
    if (rows_each > workspace.rows) return (int)cudaErrorInvalidValue;
    c.rows_each = (int32_t)rows_each;
    return by_dtype(call.dtype, [&](auto dtype) {
        return run_chains<decltype(dtype)>(c, call.rows, workspace, stream);
    });
}
