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

/* Arguments seed, offset and row_words from `first` on. */
__device__ __forceinline__ uint32_t draw_bits_of(const alea_cuda_call &call, int first, int64_t row,
                                        uint32_t draw) {
    const alea_cuda_view &seeds = call.views[first], &offsets = call.views[first + 1];
    const alea_cuda_view &words = call.views[first + 2];
    const bool own_seed = seeds.size[0] > 1, own_offset = offsets.size[0] > 1;
    const int64_t seed = *(const int64_t *)(seeds.data + (own_seed ? row : 0) * seeds.step[0]);
    const int64_t offset =
        *(const int64_t *)(offsets.data + (own_offset ? row : 0) * offsets.step[0]);
    uint32_t word = own_seed || own_offset ? 0 : (uint32_t)row;
    if (words.data) word = *(const uint32_t *)(words.data + row * words.step[0]);
    return alea__draw_bits((uint64_t)seed, draw, word, (uint64_t)offset);
}

/* Call f with the type of a dtype. */
template <class F> inline int by_dtype(int32_t dtype, F f) {
    switch (dtype) {
    case ALEA_CUDA_F16: return f(f16_row());
    case ALEA_CUDA_BF16: return f(bf16_row());
    default: return f(f32_row());
    }
}

int cuda_run_select(const alea_cuda_call &call, cudaStream_t stream);
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
int cuda_reduce(const alea_cuda_reduction &reduction, const alea_cuda_workspace &workspace,
                cudaStream_t stream);

extern const alea_cuda_lab cuda_lab;

#endif
