/*
 * The four filters. Each comes down to one cut, kept iff value >= cut; NaN keeps nothing, and a row
 * that passes whole is copied bit for bit. Three launches: the stream, whose last blocks find the
 * cut among few entries; the settling of rows where that did not do; and the masking.
 */
#include "kernel/cuda/launch.cuh"
#include "kernel/cuda/settle.cuh"
#include "kernel/cuda/stream.cuh"

enum { MASKED, LOGITS, FIRST, SECOND }; /* arguments */

constexpr int quick_k_max = 512;

/* What a row asks for. */
struct mask_ask {
    int32_t k; /* 0: no top-k; else below the vocab */
    float p;   /* of top-p; only where `nucleus` */
    float min_p;
    bool nucleus, minimum;
    bool whole; /* top-k of everything: the row passes, or so does what top-p starts from */
};

struct mask_call {
    row_column masked, x, first_parameter, second_parameter;
    int64_t rows, first;
    int32_t vocab, kind;

    __device__ __forceinline__ const char *logits(int64_t row) const {
        return x.at<const char>(row);
    }
    __device__ mask_ask ask(int64_t row) const {
        mask_ask a = {};
        if (kind == ALEA_CUDA_TOPK_MASK || kind == ALEA_CUDA_TOPK_TOPP_MASK) {
            const int32_t k = max(first_parameter.get<int32_t>(row, 1), 1);
            a.whole = k >= vocab;
            a.k = a.whole ? 0 : k;
        }
        if (kind == ALEA_CUDA_TOPP_MASK || kind == ALEA_CUDA_TOPK_TOPP_MASK) {
            a.nucleus = true;
            const float first = first_parameter.get(row, 1.0f);
            a.p = kind == ALEA_CUDA_TOPP_MASK ? first : second_parameter.get(row, 1.0f);
        }
        if (kind == ALEA_CUDA_MINP_MASK) {
            a.minimum = true;
            a.min_p = first_parameter.get(row, 0.0f);
        }
        return a;
    }
};

__device__ __forceinline__ void settle(row_state *state, float cut, bool whole) {
    __syncthreads();
    if (threadIdx.x != 0) return;
    __stcg(&state->cut, cut);
    __stcg(&state->whole, (int)whole);
}

/* What the maximum alone decides: rows that pass whole, and min-p. */
__device__ __forceinline__ bool settle_by_max(row_state *state, const mask_ask &ask, float max) {
    if (ask.minimum) {
        const float cut = max + alea__ln_min_p(ask.min_p);
        settle(state, cut, !(cut > -INFINITY));
        return true;
    }
    if (ask.k == 0 && (!ask.nucleus || !(max >= -FLT_MAX && max <= FLT_MAX))) {
        settle(state, 0.0f, true);
        return true;
    }
    return false;
}

__device__ __forceinline__ float share_or_one(float p) {
    return p < 1.0f ? p : 1.0f;
}

/* The cut among few entries, if they decide it. */
template <class T>
__device__ bool settle_quickly(const row_of<T> &row, const mask_ask &ask, float max,
                               finish_scratch &scratch) {
    row_state *state = row.memory.state;
    if (max != max || ask.k > quick_k_max) return false;
    const bool nucleus = ask.nucleus && is_sound(max);
    const mass_rule rule = rule_of(max, ALEA_LOG2E_F);
    if (nucleus && rule.shifted) return false;
    u64 all = nucleus && ask.k == 0 ? loaded_mass(row, rule, scratch) : 0;
    int n = ask.k > 0 ? gather(row, ask.k, INFINITY, no_margin(), scratch)
                      : gather_nucleus(row, rule, share_of(share_or_one(ask.p), all), 1,
                                       no_margin(), scratch);
    if (n < 0) return false;
    if (!nucleus) {
        settle(state, block_kth_of_few(scratch.x, n, ask.k, scratch) + 0.0f, false);
        return true;
    }
    if (!(ask.p > 0)) {
        settle(state, NAN, false);
        return true;
    }
    if (ask.k > 0) n = trim(n, ask.k, INFINITY, no_margin(), scratch);
    const float p = share_or_one(ask.p);
    float cut = -INFINITY, least;
    if (n > ranked_max) {
        if (!many_cut(row.n_segments, rule, n, ask.k, true, p, all, &least, scratch)) return false;
    } else {
        rank_candidates(rule, n, scratch);
        if (ask.k > 0) {
            cut = scratch.x[ask.k - 1] + 0.0f;
            all = ranked_mass_ge(n, cut, scratch);
        }
        if (!ranked_cut(n, share_of(p, all), &least, scratch)) return false;
    }
    settle(state, least < cut ? cut : least, false);
    return true;
}

template <class T, int per_warp, int blocks>
__global__ void __launch_bounds__(stream_threads, blocks)
    mask_stream_kernel(mask_call c, workspace_memory workspace, int parts) {
    __shared__ finish_scratch scratch;
    const int64_t index = blockIdx.x / parts, at = c.first + index;
    const row_memory memory = memory_of(workspace, index);
    const row_of<T> row = open_row<T>(c.logits(at), c.vocab, memory);
    mask_ask ask;
    stream_part<T, per_warp>(row, (int)(blockIdx.x % parts), [&] {
        ask = c.ask(at);
        stream_plan plan = {};
        plan.scale = ask.nucleus && ask.k == 0 ? ALEA_LOG2E_F : 0.0f;
        plan.lanes = !ask.minimum;
        return plan;
    });
    if (!is_last_block(memory.state, parts)) return;
    const float max = load_segments(row, scratch);
    if (!settle_by_max(memory.state, ask, max) && !settle_quickly(row, ask, max, scratch)) {
        leave_unsettled(workspace, memory, index);
    }
    clear_counters(memory.state);
}

/* Segment maxima as if NaN were -inf; returns how many there are. */
template <class T> __device__ int32_t drop_nans(const row_of<T> &row, block_scratch &scratch) {
    u64 n_nan = 0;
    for (int s = threadIdx.x >> 5; s < row.n_segments; s += blockDim.x >> 5) {
        float most = -INFINITY;
        for (int i = threadIdx.x & 31; i < ALEA_SEGMENT && s * ALEA_SEGMENT + i < row.n;
             i += warp_lanes) {
            const float x = row.value(s * ALEA_SEGMENT + i);
            n_nan += x != x;
            most = fmaxf(most, x); /* drops NaN */
        }
        most = key_value(__reduce_max_sync(whole_warp, order_key(most))) + 0.0f;
        if ((threadIdx.x & 31) == 0) {
            __stcg(row.memory.segments() + s, make_uint4(__float_as_uint(most), 0, 0, 0));
        }
    }
    return (int32_t)block_sum(n_nan, scratch);
}

/* The cut of a row by one block, whatever it holds. */
template <class T>
__device__ void settle_alone(const row_of<T> &row, const mask_ask &ask, float max,
                             finish_scratch &scratch) {
    row_state *state = row.memory.state;
    float cut = -INFINITY;
    if (ask.k > 0) {
        int32_t k = ask.k;
        if (max != max) {
            const int32_t n_nan = drop_nans(row, scratch.block);
            if (k <= n_nan) {
                settle(state, NAN, false);
                return;
            }
            k -= n_nan;
            __syncthreads();
            max = block_row_max(row, scratch.block);
        }
        cut = block_cut(row, (const mass_rule *)nullptr, (u64)k, -INFINITY, ~(u64)0, scratch);
    }
    if (ask.nucleus && is_sound(max)) {
        const mass_rule rule = rule_of(max, ALEA_LOG2E_F);
        const u64 all = ask.k == 0 && !rule.shifted
                            ? block_stored_mass(row, rule, false, scratch.block)
                            : block_mass_ge(row, rule, cut, (u64 *)nullptr, scratch.block);
        const u64 target = share_of(share_or_one(ask.p), all);
        if (!(ask.p > 0) || target == 0) {
            settle(state, NAN, false);
            return;
        }
        const float nucleus = block_cut(row, &rule, target, cut, all, scratch);
        cut = nucleus < cut ? cut : nucleus;
    }
    settle(state, cut, false);
}

/* One part of a team. */
template <class T>
__device__ void settle_mask(const mask_call &c, const workspace_memory &workspace,
                            const team_part &team, finish_scratch &scratch) {
    const row_memory memory = memory_of(workspace, team.row);
    const int64_t at = c.first + team.row;
    const row_of<T> row = open_row<T>(c.logits(at), c.vocab, memory);
    const mask_ask ask = c.ask(at);
    const float max = block_row_max(row, scratch.block);
    const mass_rule rule = rule_of(max, ALEA_LOG2E_F);
    const bool by_mass = ask.nucleus && ask.k == 0 && is_sound(max) && !rule.shifted && ask.p > 0;
    const bool by_count = !ask.nucleus && ask.k > 0 && max == max;
    if (by_mass || by_count) {
        const u64 all = by_mass ? block_stored_mass(row, rule, false, scratch.block) : 0;
        const u64 target = by_mass ? share_of(share_or_one(ask.p), all) : (u64)ask.k;
        const team_search<T> search = {row,    by_mass ? &rule : nullptr, target, all, max, team,
                                       scratch};
        bool found;
        float cut;
        if (!search.run(&found, &cut)) return;
        if (found) {
            settle(memory.state, cut, false);
            return;
        }
    } else if (team.part > 0) {
        return;
    }
    settle_alone(row, ask, max, scratch);
}

template <class T>
__global__ void __launch_bounds__(settle_threads, settle_blocks_per_sm)
    mask_settle_kernel(mask_call c, workspace_memory workspace) {
    __shared__ finish_scratch scratch;
    const int n = __ldcg(&workspace.unsettled->n);
    if (n == 0) return;
    for (;;) {
        const team_part team = take_part(workspace.unsettled, n);
        if (team.row < 0) break;
        settle_mask<T>(c, workspace, team, scratch);
    }
    leave_list(workspace.unsettled);
}

/* ---- the masking ------------------------------------------------------------------------- */

template <class T> __device__ __forceinline__ uint32_t masked_pair(uint32_t pair, float cut) {
    const uint32_t low =
        T::widen((typename T::word)(pair & 0xffffu)) >= cut ? pair & 0xffffu : (uint32_t)T::dropped;
    const uint32_t high =
        T::widen((typename T::word)(pair >> 16)) >= cut ? pair >> 16 : (uint32_t)T::dropped;
    return low | high << 16;
}

template <class T> __device__ __forceinline__ uint4 masked_vector(uint4 v, float cut) {
    if (sizeof(typename T::word) == 2) {
        return make_uint4(masked_pair<T>(v.x, cut), masked_pair<T>(v.y, cut),
                          masked_pair<T>(v.z, cut), masked_pair<T>(v.w, cut));
    }
    return make_uint4(__uint_as_float(v.x) >= cut ? v.x : (uint32_t)T::dropped,
                      __uint_as_float(v.y) >= cut ? v.y : (uint32_t)T::dropped,
                      __uint_as_float(v.z) >= cut ? v.z : (uint32_t)T::dropped,
                      __uint_as_float(v.w) >= cut ? v.w : (uint32_t)T::dropped);
}

constexpr int mask_threads = 256;
constexpr int mask_vectors = 4; /* in flight for a thread */

/* The input may be the output, so these loads do not go through the read-only path. */
template <class T>
__global__ void __launch_bounds__(mask_threads)
    mask_write_kernel(mask_call c, workspace_memory workspace, int parts) {
    typedef typename T::word word;
    const int64_t index = blockIdx.x / parts, at = c.first + index;
    const row_state *state = memory_of(workspace, index).state;
    const word *from = (const word *)c.logits(at);
    word *to = c.masked.at<word>(at);
    const float cut = __ldcg(&state->cut);
    const bool whole = __ldcg(&state->whole) != 0;
    if (whole && from == to) return;
    const int n = c.vocab;
    constexpr int each = mask_threads * mask_vectors * T::per_vector;
    const int first = (int)(blockIdx.x % parts) * each;
    if ((((uintptr_t)from | (uintptr_t)to) & 15) == 0) {
        uint4 v[mask_vectors];
#pragma unroll
        for (int i = 0; i < mask_vectors; i++) {
            const int here = first + (i * mask_threads + (int)threadIdx.x) * T::per_vector;
            if (here + T::per_vector <= n) v[i] = *(const uint4 *)(from + here);
        }
#pragma unroll
        for (int i = 0; i < mask_vectors; i++) {
            const int here = first + (i * mask_threads + (int)threadIdx.x) * T::per_vector;
            if (here + T::per_vector <= n) {
                *(uint4 *)(to + here) = whole ? v[i] : masked_vector<T>(v[i], cut);
            } else {
                for (int j = here; j < n; j++)
                    to[j] = whole || T::widen(from[j]) >= cut ? from[j] : T::dropped;
            }
        }
        return;
    }
    for (int j = first + (int)threadIdx.x; j < min(first + each, n); j += mask_threads)
        to[j] = whole || T::widen(from[j]) >= cut ? from[j] : T::dropped;
}

/* ---- launches ---------------------------------------------------------------------------- */

template <class T>
static int run_masks(mask_call c, const alea_cuda_workspace &workspace, cudaStream_t stream) {
    for (; c.first < c.rows; c.first += workspace.rows) {
        const int64_t n = std::min(c.rows - c.first, workspace.rows);
        const stream_shape shape = stream_shape_of<T>(n, c.vocab);
        const unsigned blocks = (unsigned)(n * shape.parts);
        if (shape.large) {
            mask_stream_kernel<T, large_per_warp<T>, blocks_per_sm>
                <<<blocks, stream_threads, 0, stream>>>(c, workspace.memory, shape.parts);
        } else {
            mask_stream_kernel<T, 1, filter_blocks_per_sm>
                <<<blocks, stream_threads, 0, stream>>>(c, workspace.memory, shape.parts);
        }
        if (c.kind != ALEA_CUDA_MINP_MASK) {
            mask_settle_kernel<T>
                <<<settle_blocks(n), settle_threads, 0, stream>>>(c, workspace.memory);
        }
        constexpr int each = mask_threads * mask_vectors * T::per_vector;
        const int parts = (c.vocab + each - 1) / each;
        mask_write_kernel<T>
            <<<(unsigned)(n * parts), mask_threads, 0, stream>>>(c, workspace.memory, parts);
        const int error = (int)cudaGetLastError();
        if (error) return error;
    }
    return 0;
}

int cuda_run_mask(int32_t kind, const alea_cuda_call &call, const alea_cuda_workspace &workspace,
                  cudaStream_t stream) {
    return by_dtype(call.dtype, [&](auto dtype) {
        const mask_call c = {column_of(call.views[MASKED]),
                             column_of(call.views[LOGITS]),
                             column_of(call.views[FIRST]),
                             column_of(call.views[SECOND]),
                             call.rows,
                             0,
                             call.vocab,
                             kind};
        return run_masks<decltype(dtype)>(c, workspace, stream);
    });
}
