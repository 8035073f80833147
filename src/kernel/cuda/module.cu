/* The table that libalea opens, and workspaces. Nothing here synchronizes but what makes and ends
 * a workspace. */
#include <new>

#include "kernel/cuda/launch.cuh"

static int probe(int *device) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) return (int)error;
    if (count == 0) return (int)cudaErrorNoDevice;
    return (int)cudaGetDevice(device);
}

static const char *error_text(int error) {
    return cudaGetErrorString((cudaError_t)error);
}

/* Row states begin cleared, and every launch leaves them so. */
static int workspace_create(int32_t kind, int64_t rows, int32_t vocab, alea_cuda_workspace **made) {
    alea_cuda_workspace *w = new (std::nothrow) alea_cuda_workspace();
    if (!w) return (int)cudaErrorMemoryAllocation;
    const int32_t segments = (vocab + ALEA_SEGMENT - 1) / ALEA_SEGMENT;
    const bool settles = kind == ALEA_CUDA_SAMPLE_LOGITS ||
                         (kind >= ALEA_CUDA_TOPK_MASK && kind <= ALEA_CUDA_TOPK_TOPP_MASK);
    const size_t each = sizeof(uint4) + sizeof(u64) + warp_lanes * sizeof(float);
    const size_t bins = settles ? row_bins * sizeof(uint32_t) : 0;
    w->memory.segments = segments;
    w->memory.row_bytes = (int64_t)((sizeof(row_state) + segments * each + bins + 127) / 128 * 128);
    const bool selects = kind == ALEA_CUDA_TOPK_SELECT;
    w->rows = selects ? std::min(rows, select_rows_max) : rows;
    const size_t of_rows =
        selects ? cuda_select_bytes(w->rows) : (size_t)rows * (size_t)w->memory.row_bytes;
    w->bytes = of_rows + (settles ? sizeof(settle_list) + (size_t)w->rows * sizeof(int) : 0);
    cudaError_t error = cudaSuccess;
    if (w->bytes > 0) error = cudaMalloc((void **)&w->memory.base, w->bytes);
    if (error == cudaSuccess && w->bytes > 0) error = cudaMemset(w->memory.base, 0, w->bytes);
    if (error == cudaSuccess && w->bytes > 0) error = cudaDeviceSynchronize();
    if (error != cudaSuccess) {
        cudaFree(w->memory.base);
        (void)cudaGetLastError(); /* a failed allocation is no failure of what comes next */
        delete w;
        return (int)error;
    }
    if (settles) w->memory.unsettled = (settle_list *)(w->memory.base + of_rows);
    *made = w;
    return 0;
}

static void workspace_destroy(alea_cuda_workspace *workspace) {
    if (!workspace) return;
    cudaFree(workspace->memory.base);
    delete workspace;
}

static size_t workspace_bytes(const alea_cuda_workspace *workspace) {
    return workspace->bytes;
}

static int run(int32_t kind, const alea_cuda_call *call, alea_cuda_workspace *workspace,
               void *stream) {
    const cudaStream_t s = (cudaStream_t)stream;
    switch (kind) {
    case ALEA_CUDA_TOPK_SELECT: return cuda_run_select(*call, *workspace, s);
    case ALEA_CUDA_SAMPLE_PROBS: return cuda_run_sample_probs(*call, *workspace, s);
    case ALEA_CUDA_CHAIN_SAMPLE: return cuda_run_chain(*call, *workspace, s);
    case ALEA_CUDA_LOGPROBS: return cuda_run_logprobs(*call, *workspace, s);
    case ALEA_CUDA_SAMPLE_LOGITS: return cuda_run_sample_logits(*call, *workspace, s);
    case ALEA_CUDA_CHAIN_LOGITS: return cuda_run_chain_logits(*call, *workspace, s);
    default: return cuda_run_mask(kind, *call, *workspace, s);
    }
}

static int reduce(const alea_cuda_reduction *reduction, alea_cuda_workspace *workspace,
                  void *stream) {
    return cuda_reduce(*reduction, *workspace, (cudaStream_t)stream);
}

extern "C" __attribute__((visibility("default"))) const alea_cuda_api *
alea_cuda_module(uint32_t abi) {
    static alea_cuda_api api;
    if (abi != ALEA_CUDA_ABI) return nullptr;
    api.abi = ALEA_CUDA_ABI;
    api.probe = probe;
    api.error_text = error_text;
    api.workspace_create = workspace_create;
    api.workspace_destroy = workspace_destroy;
    api.workspace_bytes = workspace_bytes;
    api.run = run;
    api.reduce = reduce;
    api.lab = cuda_lab;
    return &api;
}
