/* The host side of the kernels: workspaces, dtypes, and one function for each kind of operator; and
 * what several kinds read of a call. */
#ifndef ALEA_KERNEL_CUDA_LAUNCH_CUH
#define ALEA_KERNEL_CUDA_LAUNCH_CUH

#include <algorithm>

#include "kernel/cuda/block.cuh"

struct alea_cuda_workspace {
    workspace_memory memory;
    int64_t rows; /* at a time */
    size_t bytes;
};

/* A tensor by its rows. What has one entry for all rows steps nowhere. */
inline row_column column_of(const alea_cuda_view &view) {
    return {view.data, view.size[0] > 1 ? view.step[0] : 0};
}

/* Where rows stand in the random stream. */
struct draw_source {
    row_column seed, offset, words;
    bool own; /* a seed or an offset for each row */

    __device__ __forceinline__ uint32_t bits(int64_t row, uint32_t draw) const {
        const uint32_t word = words.get<uint32_t>(row, own ? 0 : (uint32_t)row);
        return alea__draw_bits((uint64_t)seed.get<int64_t>(row, 0), draw, word,
                               (uint64_t)offset.get<int64_t>(row, 0));
    }
};

/* Arguments seed, offset and row_words from `first` on. */
inline draw_source draw_source_of(const alea_cuda_call &call, int first) {
    const alea_cuda_view *v = call.views + first;
    return {column_of(v[0]), column_of(v[1]), column_of(v[2]),
            v[0].size[0] > 1 || v[1].size[0] > 1};
}

/* Call f with the type of a dtype. */
template <class F> inline int by_dtype(int32_t dtype, F f) {
    switch (dtype) {
    case ALEA_CUDA_F16: return f(f16_row());
    case ALEA_CUDA_BF16: return f(bf16_row());
    default: return f(f32_row());
    }
}

constexpr int64_t select_rows_max = 128; /* that several blocks each share */
size_t cuda_select_bytes(int64_t rows);
int cuda_run_select(const alea_cuda_call &call, const alea_cuda_workspace &workspace,
                    cudaStream_t stream);
int cuda_run_mask(int32_t kind, const alea_cuda_call &call, const alea_cuda_workspace &workspace,
                  cudaStream_t stream);
int cuda_run_sample_probs(const alea_cuda_call &call, const alea_cuda_workspace &workspace,
                          cudaStream_t stream);
int cuda_run_chain(const alea_cuda_call &call, const alea_cuda_workspace &workspace,
                   cudaStream_t stream);
int cuda_run_logprobs(const alea_cuda_call &call, const alea_cuda_workspace &workspace,
                      cudaStream_t stream);
int cuda_run_sample_logits(const alea_cuda_call &call, const alea_cuda_workspace &workspace,
                           cudaStream_t stream);
int cuda_run_chain_logits(const alea_cuda_call &call, const alea_cuda_workspace &workspace,
                          cudaStream_t stream);
int cuda_reduce(const alea_cuda_reduction &reduction, const alea_cuda_workspace &workspace,
                cudaStream_t stream);

extern const alea_cuda_lab cuda_lab;

#endif
