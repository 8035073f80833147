/*
 * The four filters. Each comes down to one cut, kept iff value >= cut; NaN keeps nothing, and a row
 * that passes whole is copied bit for bit. Three launches: the stream, whose last blocks find the
 * cut among few entries; one block for each row where that did not do; and the masking.
 */
#include "kernel/cuda/cut.cuh"
#include "kernel/cuda/launch.cuh"
#include "kernel/cuda/stream.cuh"

enum { MASKED, LOGITS, FIRST, SECOND }; /* arguments */

constexpr int settle_threads = 1024;
constexpr int nucleus_lanes = 64; /* lanes to look for a nucleus in, before the whole row */
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
    alea_cuda_call call;
    int64_t first;
    int32_t kind;

    __device__ __forceinline__ const char *logits(int64_t row) const {
        return call.views[LOGITS].data + row * call.views[LOGITS].step[0];
    }
    __device__ __forceinline__ float f32_at(int which, int64_t row) const {
        const alea_cuda_view &v = call.views[which];
        return *(const float *)(v.data + row * v.step[0]);
    }
    __device__ mask_ask ask(int64_t row) const {
        mask_ask a = {};
        if (kind == ALEA_CUDA_TOPK_MASK || kind == ALEA_CUDA_TOPK_TOPP_MASK) {
            const alea_cuda_view &v = call.views[FIRST];
            const int32_t k = max(*(const int32_t *)(v.data + row * v.step[0]), 1);
            a.whole = k >= call.vocab;
            a.k = a.whole ? 0 : k;
        }
        if (kind == ALEA_CUDA_TOPP_MASK || kind == ALEA_CUDA_TOPK_TOPP_MASK) {
            a.nucleus = true;
            a.p = f32_at(kind == ALEA_CUDA_TOPP_MASK ? FIRST : SECOND, row);
        }
        if (kind == ALEA_CUDA_MINP_MASK) {
            a.minimum = true;
            a.min_p = f32_at(FIRST, row);
        }
        return a;
    }
};

__device__ __forceinline__ void settle(row_state *state, float cut, bool whole) {
    __syncthreads();
    if (threadIdx.x != 0) return;
    __stcg(&state->cut, cut);
    __stcg(&state->whole, (int)whole);
    __stcg(&state->unsettled, 0);
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
    float bound = -INFINITY;
    const int n = gather(row, ask.k > 0 ? ask.k : nucleus_lanes, &bound, no_margin(), scratch);
    if (n < 0 || (ask.k > 0 && n < ask.k)) return false;
    float cut = ask.k > 0 ? candidate_kth(n, ask.k, scratch) + 0.0f : -INFINITY;
    if (ask.nucleus && is_sound(max)) {
        const mass_rule rule = rule_of(max, ALEA_LOG2E_F);
        if (rule.shifted) return false;
        sort_candidates(row, rule, n, scratch);
        const u64 all = ask.k > 0 ? candidate_mass(scratch.sorted, n, cut, nullptr)
                                  : block_stored_mass(row, rule, false, scratch.block);
        const u64 target = share_of(share_or_one(ask.p), all);
        if (!(ask.p > 0) || target == 0) {
            settle(state, NAN, false);
            return true;
        }
        if (candidate_mass(scratch.sorted, n, -INFINITY, nullptr) < target) return false;
        const float nucleus = candidate_cut(n, target, 0, nullptr, scratch);
        cut = nucleus < cut ? cut : nucleus;
    }
    settle(state, cut, false);
    return true;
}

template <class T, int per_warp>
__global__ void __launch_bounds__(stream_threads, blocks_per_sm)
    mask_stream_kernel(mask_call c, workspace_memory workspace, int parts) {
    __shared__ finish_scratch scratch;
    const int64_t index = blockIdx.x / parts, at = c.first + index;
    const row_memory memory = memory_of(workspace, index);
    const row_of<T> row = open_row<T>(c.logits(at), c.call.vocab, memory);
    const mask_ask ask = c.ask(at);
    stream_plan plan = {};
    plan.scale = ask.nucleus && ask.k == 0 ? ALEA_LOG2E_F : 0.0f;
    plan.lanes = !ask.minimum;
    stream_part<T, per_warp>(row, plan, (int)(blockIdx.x % parts));
    if (!is_last_block(memory.state, parts)) return;
    const float max = block_row_max(row, scratch.block);
    if (!settle_by_max(memory.state, ask, max) && !settle_quickly(row, ask, max, scratch)) {
        if (threadIdx.x == 0) __stcg(&memory.state->unsettled, 1);
    }
    clear_counters(memory.state);
}

/* Segment maxima as if NaN were -inf; returns how many there are. */
template <class T>
__device__ int32_t drop_nans(const row_of<T> &row, block_scratch &scratch) {
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
            __stcg(row.memory.segments + s, make_uint4(__float_as_uint(most), 0, 0, 0));
        }
    }
    return (int32_t)block_sum(n_nan, scratch);
}

/* One block, one row, whatever it holds. */
template <class T>
__global__ void __launch_bounds__(settle_threads, 1)
    mask_settle_kernel(mask_call c, workspace_memory workspace) {
    __shared__ finish_scratch scratch;
    const row_memory memory = memory_of(workspace, blockIdx.x);
    if (!__ldcg(&memory.state->unsettled)) return;
    const int64_t at = c.first + blockIdx.x;
    const row_of<T> row = open_row<T>(c.logits(at), c.call.vocab, memory);
    const mask_ask ask = c.ask(at);
    float max = block_row_max(row, scratch.block);
    float cut = -INFINITY;
    if (ask.k > 0) {
        int32_t k = ask.k;
        if (max != max) {
            const int32_t n_nan = drop_nans(row, scratch.block);
            if (k <= n_nan) {
                settle(memory.state, NAN, false);
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
        const u64 all = block_mass_ge(row, rule, cut, (u64 *)nullptr, scratch.block);
        const u64 target = share_of(share_or_one(ask.p), all);
        if (!(ask.p > 0) || target == 0) {
            settle(memory.state, NAN, false);
            return;
        }
        const float nucleus = block_cut(row, &rule, target, cut, all, scratch);
        cut = nucleus < cut ? cut : nucleus;
    }
    settle(memory.state, cut, false);
}

/* ---- the masking ------------------------------------------------------------------------- */

template <class T> __device__ __forceinline__ uint32_t masked_pair(uint32_t pair, float cut) {
    const uint32_t low = T::widen((typename T::word)(pair & 0xffffu)) >= cut ? pair & 0xffffu
                                                                            : (uint32_t)T::dropped;
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
    const alea_cuda_view &out = c.call.views[MASKED];
    const word *from = (const word *)c.logits(at);
    word *to = (word *)(out.data + at * out.step[0]);
    const float cut = __ldcg(&state->cut);
    const bool whole = __ldcg(&state->whole) != 0;
    if (whole && from == to) return;
    const int n = c.call.vocab;
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
    for (; c.first < c.call.rows; c.first += workspace.rows) {
        const int64_t n = std::min(c.call.rows - c.first, workspace.rows);
        const stream_shape shape = stream_shape_of<T>(n, c.call.vocab);
        const unsigned blocks = (unsigned)(n * shape.parts);
        if (shape.per_warp == 2) {
            mask_stream_kernel<T, sizeof(typename T::word) == 2 ? 2 : 1>
                <<<blocks, stream_threads, 0, stream>>>(c, workspace.memory, shape.parts);
        } else {
            mask_stream_kernel<T, 1>
                <<<blocks, stream_threads, 0, stream>>>(c, workspace.memory, shape.parts);
        }
        if (c.kind != ALEA_CUDA_MINP_MASK) {
            mask_settle_kernel<T>
                <<<(unsigned)n, settle_threads, 0, stream>>>(c, workspace.memory);
        }
        constexpr int each = mask_threads * mask_vectors * T::per_vector;
        const int parts = (c.call.vocab + each - 1) / each;
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
        return run_masks<decltype(dtype)>(mask_call{call, 0, kind}, workspace, stream);
    });
}
