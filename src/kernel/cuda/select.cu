/*
 * alea_topk_select. A sample says about where a window's cut is; one pass collects what reaches
 * that bound, and the exact cut is found in shared memory. Where the sample was wrong, or k is
 * beyond what shared memory holds, the window is read again digit by digit. One block for each
 * window; where windows are few and long, several share the pass and the last of them goes on.
 *
 * A score's key is an integer in the order of scores: NaN first, both zeros equal.
 */
#include "kernel/cuda/block.cuh"
#include "kernel/cuda/launch.cuh"

constexpr int select_threads = 512; /* more in a block, and blocks cannot fill each other's gaps */
constexpr int select_blocks = 3;    /* on a processor */
constexpr int held_max =
    6144; /* collected entries; 48 KB, so that three blocks share a processor */
constexpr int sample_size = 2048;
constexpr int sample_run = 8; /* neighbours: one sector of memory */
constexpr int digits = 256;

__device__ __forceinline__ uint32_t select_key(float x) {
    if (x != x) return 0xffffffffu;
    return order_key(x + 0.0f);
}

struct select_scratch {
    block_scratch block;
    uint32_t histogram[digits];
    uint32_t digit, above; /* the digit of the cut, and how many have a larger one */
    uint32_t low, high;
    int n, used;
    uint32_t counts[select_threads / warp_lanes];
};

/* Dynamic: the sample first, then what was collected. */
struct held_entries {
    uint32_t key[held_max];
    int32_t at[held_max];
};
static_assert(sizeof(held_entries) + sizeof(select_scratch) + 1024 <= 99 * 1024,
              "what a block of compute capability 8.6, 8.9 or 12.0 can have");

/* One window and where its positions go. */
struct select_window {
    const char *scores; /* at the window's start */
    int64_t step;
    int32_t start, n;
    char *out;
    int64_t out_step;
    int32_t k;

    __device__ __forceinline__ float score(int i) const {
        return __ldg((const float *)(scores + i * step));
    }
    __device__ __forceinline__ void put(int slot, int32_t position) const {
        *(int32_t *)(out + slot * out_step) = position;
    }
};

/* The digit in which the k-th largest lies, by the histogram; *k becomes its rank among the entries
 * of that digit. */
__device__ inline uint32_t digit_of(select_scratch &scratch, int *k) {
    __syncthreads();
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const uint32_t digit = digits - 1 - threadIdx.x;
    const uint32_t count = threadIdx.x < digits ? scratch.histogram[digit] : 0;
    uint32_t running = count;
    for (int d = 1; d < warp_lanes; d <<= 1) {
        const uint32_t before = __shfl_up_sync(whole_warp, running, d);
        if (lane >= d) running += before;
    }
    if (lane == 31 && threadIdx.x < digits) scratch.counts[warp] = running;
    __syncthreads();
    if (threadIdx.x < digits) {
        for (int i = 0; i < warp; i++)
            running += scratch.counts[i];
        if (running >= (uint32_t)*k && running - count < (uint32_t)*k) {
            scratch.digit = digit;
            scratch.above = running - count;
        }
    }
    __syncthreads();
    *k -= (int)scratch.above;
    return scratch.digit;
}

/* The k-th largest of the keys that key(i), i < n, gives, but for its lowest `loose` bits, which
 * are zero; above: how many are larger, of which it knows as much. */
template <class Key>
__device__ uint32_t block_kth_key(Key key, int n, int k, int loose, int *above,
                                  select_scratch &scratch) {
    uint32_t low = 0xffffffffu, high = 0;
    if (threadIdx.x == 0) {
        scratch.low = low;
        scratch.high = high;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const uint32_t value = key(i);
        low = min(low, value);
        high = max(high, value);
    }
    low = __reduce_min_sync(whole_warp, low);
    high = __reduce_max_sync(whole_warp, high);
    if ((threadIdx.x & 31) == 0) {
        atomicMin(&scratch.low, low);
        atomicMax(&scratch.high, high);
    }
    __syncthreads();
    low = scratch.low;
    high = scratch.high;
    const uint32_t differing = low ^ high;
    int width = differing ? 32 - __clz(differing) : 0; /* bits that are not yet known */
    uint32_t prefix = width < 32 ? high >> width : 0;  /* those above them */
    int rank = k;
    while (width > loose) {
        const int shift = max(width - 8, 0);
        for (int i = threadIdx.x; i < digits; i += blockDim.x)
            scratch.histogram[i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            const uint32_t value = key(i);
            if (width < 32 && value >> width != prefix) continue;
            atomicAdd(&scratch.histogram[value >> shift & ((1u << (width - shift)) - 1)], 1);
        }
        const uint32_t digit = digit_of(scratch, &rank);
        prefix = (width < 32 ? prefix << (width - shift) : 0) | digit;
        width = shift;
    }
    *above = k - rank;
    return width < 32 ? prefix << width : 0;
}

/* A bound that about k entries and a few standard deviations more reach; 0: none is known. */
__device__ inline uint32_t sampled_bound(const select_window &w, uint32_t *sample,
                                         select_scratch &scratch) {
    constexpr int runs = sample_size / sample_run;
    if (w.n < 4 * sample_size || w.k > held_max / 2) return 0;
    for (int i = threadIdx.x; i < sample_size; i += blockDim.x) {
        const uint32_t run = (uint32_t)i / sample_run;
        const int first = (int)((int64_t)w.n * run / runs);
        const int room = (int)((int64_t)w.n * (run + 1) / runs) - first - sample_run;
        const uint32_t mixed = (run * 2654435761u) ^ (run * 40503u << 16);
        const int skip = (int)((u64)mixed * (uint32_t)(room + 1) >> 32) & ~(sample_run - 1);
        sample[i] = select_key(w.score(first + skip + i % sample_run));
    }
    __syncthreads();
    const float share = (float)w.k / (float)w.n;
    const float aim =
        sample_size * share + 4.0f * sqrtf(sample_size * share * (1.0f - share)) + 4.0f;
    if (aim >= (float)sample_size) return 0;
    int above;
    constexpr int loose = 14; /* a bound need not be a key: a few more reach it */
    return block_kth_key([=](int i) { return sample[i]; }, sample_size, (int)aim, loose, &above,
                         scratch);
}

/* Entries first..end whose key reaches the bound, as far as there is room; returns how many reach
 * it. first is a multiple of four. */
__device__ inline int collect_held(const select_window &w, int first, int end, uint32_t bound,
                                   held_entries &held, select_scratch &scratch) {
    if (threadIdx.x == 0) scratch.n = 0;
    __syncthreads();
    const bool plain = w.step == (int64_t)sizeof(float) && ((uintptr_t)w.scores & 15) == 0;
    constexpr int ahead = 4;
    const int stride = blockDim.x * 4;
    for (int base = first; base < end; base += stride * ahead) {
        uint4 v[ahead];
#pragma unroll
        for (int i = 0; i < ahead; i++) {
            const int at = base + i * stride + (int)threadIdx.x * 4;
            if (plain) {
                v[i] = load_vector<f32_row>((const uint32_t *)w.scores, end, at, true);
            } else {
                v[i] = make_uint4(at < end ? __float_as_uint(w.score(at)) : 0,
                                  at + 1 < end ? __float_as_uint(w.score(at + 1)) : 0,
                                  at + 2 < end ? __float_as_uint(w.score(at + 2)) : 0,
                                  at + 3 < end ? __float_as_uint(w.score(at + 3)) : 0);
            }
        }
#pragma unroll
        for (int i = 0; i < ahead; i++) {
            const int at = base + i * stride + (int)threadIdx.x * 4;
            uint32_t key[4];
            int mine = 0;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                key[e] = select_key(f32_row::get(v[i], e));
                mine += key[e] >= bound && at + e < end;
            }
            if (mine == 0) continue;
            int to = atomicAdd(&scratch.n, mine);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                if (!(key[e] >= bound) || at + e >= end) continue;
                if (to < held_max) {
                    held.key[to] = key[e];
                    held.at[to] = at + e;
                }
                to++;
            }
        }
    }
    __syncthreads();
    return scratch.n;
}

/* The k best of the n held entries. Of equals the smaller positions. */
__device__ inline void put_held(const select_window &w, const held_entries &held, int n,
                                select_scratch &scratch) {
    int above;
    const uint32_t cut =
        block_kth_key([&](int i) { return held.key[i]; }, n, w.k, 0, &above, scratch);
    __syncthreads();
    if (threadIdx.x == 0) scratch.used = 0;
    __syncthreads();
    u64 equals = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        equals += held.key[i] == cut;
        if (held.key[i] > cut) w.put(atomicAdd(&scratch.used, 1), w.start + held.at[i]);
    }
    equals = block_sum(equals, scratch.block);
    const int room = w.k - above;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        if (held.key[i] != cut) continue;
        int before = 0;
        if (equals > (u64)room) {
            for (int j = 0; j < n && before < room; j++)
                before += held.key[j] == cut && held.at[j] < held.at[i];
        }
        if (before < room) w.put(atomicAdd(&scratch.used, 1), w.start + held.at[i]);
    }
}

/* The k best with every look at the window itself; positions of equals in order. */
__device__ inline void put_from_window(const select_window &w, select_scratch &scratch) {
    int above;
    const uint32_t cut =
        block_kth_key([&](int i) { return select_key(w.score(i)); }, w.n, w.k, 0, &above, scratch);
    __syncthreads();
    if (threadIdx.x == 0) scratch.used = 0;
    __syncthreads();
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    int equals_before = 0;
    for (int base = 0; base < w.n; base += blockDim.x) {
        const int i = base + (int)threadIdx.x;
        const uint32_t key = i < w.n ? select_key(w.score(i)) : 0;
        if (i < w.n && key > cut) w.put(atomicAdd(&scratch.used, 1), w.start + i);
        const unsigned equal = __ballot_sync(whole_warp, i < w.n && key == cut);
        if (lane == 0) scratch.counts[warp] = (uint32_t)__popc(equal);
        __syncthreads();
        int before = equals_before;
        for (int j = 0; j < warps; j++) {
            before += j < warp ? (int)scratch.counts[j] : 0;
            equals_before += (int)scratch.counts[j];
        }
        const int rank = before + __popc(equal & ((1u << lane) - 1));
        if ((equal >> lane & 1) && rank < w.k - above) w.put(above + rank, w.start + i);
        __syncthreads();
    }
}

/* What the blocks of a window collect together. Zero between calls, but for the entries. */
struct alignas(128) select_list {
    int n, arrived;
    uint2 entries[held_max]; /* key, position */
};

/* Add a block's n entries to the window's; true for the last block, which then holds all of them
 * if they have room. *n becomes how many there are. */
__device__ inline bool share_held(select_list &list, int parts, held_entries &held, int *n,
                                  select_scratch &scratch) {
    __shared__ int from, before;
    if (threadIdx.x == 0) from = atomicAdd(&list.n, *n);
    __syncthreads();
    for (int i = threadIdx.x; i < *n && from + i < held_max; i += blockDim.x)
        if (i < held_max)
            __stcg(&list.entries[from + i], make_uint2(held.key[i], (uint32_t)held.at[i]));
    __syncthreads();
    if (threadIdx.x == 0)
        asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;"
                     : "=r"(before)
                     : "l"(&list.arrived)
                     : "memory");
    __syncthreads();
    if (before < parts - 1) return false;
    *n = __ldcg(&list.n);
    for (int i = threadIdx.x; i < min(*n, held_max); i += blockDim.x) {
        const uint2 entry = __ldcg(&list.entries[i]);
        held.key[i] = entry.x;
        held.at[i] = (int32_t)entry.y;
    }
    __syncthreads();
    if (threadIdx.x == 0) list.n = list.arrived = 0;
    return true;
}

__global__ void __launch_bounds__(select_threads, select_blocks)
    select_kernel(alea_cuda_call call, select_list *lists, int parts) {
    enum { INDICES, SCORES, STARTS, ENDS };
    extern __shared__ __align__(16) char dynamic[];
    __shared__ select_scratch scratch;
    const alea_cuda_view &scores = call.views[SCORES], &out = call.views[INDICES];
    const alea_cuda_view &starts = call.views[STARTS], &ends = call.views[ENDS];
    const int64_t row = blockIdx.x / parts;
    const int part = (int)(blockIdx.x % parts);
    const int64_t group = row % scores.size[3], query = row / scores.size[3] % scores.size[1];
    const int64_t batch = row / scores.size[3] / scores.size[1];
    int32_t start =
        *(const int32_t *)(starts.data + batch * starts.step[0] + query * starts.step[1]);
    int32_t end = *(const int32_t *)(ends.data + batch * ends.step[0] + query * ends.step[1]);
    start = max(start, 0);
    end = min(end, call.vocab);

    select_window w;
    w.n = end > start ? end - start : 0;
    w.start = start;
    w.step = scores.step[2];
    w.scores = scores.data + batch * scores.step[0] + query * scores.step[1] +
               group * scores.step[3] + (w.n > 0 ? start * scores.step[2] : 0);
    w.out = out.data + batch * out.step[0] + query * out.step[1] + group * out.step[2];
    w.out_step = out.step[3];
    w.k = (int32_t)out.size[3];
    if (w.n <= w.k) {
        if (part > 0) return;
        for (int i = threadIdx.x; i < w.k; i += blockDim.x)
            w.put(i, i < w.n ? start + i : call.vocab);
        return;
    }
    held_entries &held = *reinterpret_cast<held_entries *>(dynamic);
    const uint32_t bound = w.n <= held_max ? 0 : sampled_bound(w, held.key, scratch);
    __syncthreads();
    int n = 0;
    if (parts > 1 && bound) {
        const int each = ((w.n + parts - 1) / parts + 3) & ~3, first = part * each;
        n = collect_held(w, first, min(first + each, w.n), bound, held, scratch);
        if (!share_held(lists[row], parts, held, &n, scratch)) return;
    } else {
        if (part > 0) return;
        if (bound || w.n <= held_max) n = collect_held(w, 0, w.n, bound, held, scratch);
    }
    if (n >= w.k && n <= held_max) {
        put_held(w, held, n, scratch);
    } else {
        put_from_window(w, scratch);
    }
}

int cuda_run_select(const alea_cuda_call &call, const alea_cuda_workspace &workspace,
                    cudaStream_t stream) {
    constexpr int parts_max = 16, blocks = 2 * 132, long_window = 4 * held_max;
    static const int raised = (int)cudaFuncSetAttribute(
        select_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(held_entries));
    if (raised) return raised;
    const bool shared = call.rows <= workspace.rows && call.vocab >= long_window;
    const int parts = shared ? std::min(std::max((int)(blocks / call.rows), 1), parts_max) : 1;
    select_kernel<<<(unsigned)(call.rows * parts), select_threads, sizeof(held_entries), stream>>>(
        call, (select_list *)workspace.memory.base, parts);
    return (int)cudaGetLastError();
}

size_t cuda_select_bytes(int64_t rows) {
    return (size_t)rows * sizeof(select_list);
}
