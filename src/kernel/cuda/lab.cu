/* Memory, streams, graphs and clocks for tests and benchmarks, and the floors that operators are
 * measured against: plain kernels that only read, only copy, or do nothing. */
#include "kernel/cuda/launch.cuh"

/* A failure that is told here is no failure of the launch that comes next. */
static int told(cudaError_t error) {
    if (error != cudaSuccess) (void)cudaGetLastError();
    return (int)error;
}

static int allocate(size_t bytes, void **device) {
    return told(cudaMalloc(device, bytes ? bytes : 1));
}
static int release(void *device) {
    return (int)cudaFree(device);
}
static int allocate_pinned(size_t bytes, void **host) {
    return (int)cudaMallocHost(host, bytes ? bytes : 1);
}
static int release_pinned(void *host) {
    return (int)cudaFreeHost(host);
}
static int copy_in(void *device, const void *host, size_t bytes, void *stream) {
    return (int)cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, (cudaStream_t)stream);
}
static int copy_out(void *host, const void *device, size_t bytes, void *stream) {
    return (int)cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, (cudaStream_t)stream);
}
static int fill(void *device, int byte, size_t bytes, void *stream) {
    return (int)cudaMemsetAsync(device, byte, bytes, (cudaStream_t)stream);
}
static int copy_out_rows(void *host, size_t host_step, const void *device, size_t device_step,
                         size_t width, size_t height, void *stream) {
    return (int)cudaMemcpy2DAsync(host, host_step, device, device_step, width, height,
                                  cudaMemcpyDeviceToHost, (cudaStream_t)stream);
}
static int event_create(void **event) {
    return (int)cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventDisableTiming);
}
static int event_destroy(void *event) {
    return (int)cudaEventDestroy((cudaEvent_t)event);
}
static int event_record(void *event, void *stream) {
    return (int)cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream);
}
static int event_wait(void *event) {
    return (int)cudaEventSynchronize((cudaEvent_t)event);
}
static int stream_wait_event(void *stream, void *event) {
    return (int)cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0);
}
static int stream_create(void **stream) {
    return (int)cudaStreamCreateWithFlags((cudaStream_t *)stream, cudaStreamNonBlocking);
}
static int stream_destroy(void *stream) {
    return (int)cudaStreamDestroy((cudaStream_t)stream);
}
static int stream_wait(void *stream) {
    if (!stream) return told(cudaDeviceSynchronize());
    return told(cudaStreamSynchronize((cudaStream_t)stream));
}
static int capture_begin(void *stream) {
    return (int)cudaStreamBeginCapture((cudaStream_t)stream, cudaStreamCaptureModeThreadLocal);
}
static int capture_end(void *stream, void **graph) {
    cudaGraph_t made;
    cudaError_t error = cudaStreamEndCapture((cudaStream_t)stream, &made);
    if (error != cudaSuccess) return told(error);
    error = cudaGraphInstantiate((cudaGraphExec_t *)graph, made, 0);
    cudaGraphDestroy(made);
    return told(error);
}
static int graph_launch(void *graph, void *stream) {
    return (int)cudaGraphLaunch((cudaGraphExec_t)graph, (cudaStream_t)stream);
}
static int graph_destroy(void *graph) {
    return (int)cudaGraphExecDestroy((cudaGraphExec_t)graph);
}

static int graph_time(void *graph, void *stream, float *milliseconds) {
    cudaEvent_t before, after;
    cudaError_t error = cudaEventCreate(&before);
    if (error != cudaSuccess) return (int)error;
    error = cudaEventCreate(&after);
    if (error == cudaSuccess) error = cudaEventRecord(before, (cudaStream_t)stream);
    if (error == cudaSuccess) {
        error = cudaGraphLaunch((cudaGraphExec_t)graph, (cudaStream_t)stream);
    }
    if (error == cudaSuccess) error = cudaEventRecord(after, (cudaStream_t)stream);
    if (error == cudaSuccess) error = cudaEventSynchronize(after);
    if (error == cudaSuccess) error = cudaEventElapsedTime(milliseconds, before, after);
    cudaEventDestroy(before);
    cudaEventDestroy(after);
    return (int)error;
}

constexpr int floor_threads = 512;
constexpr int floor_loads = 8; /* in flight for a thread */

/* The best plain reader that was found: tiles of 64 KB, eight loads of 16 bytes in flight. */
__global__ void __launch_bounds__(floor_threads)
    read_kernel(const uint4 *x, size_t n, uint4 *sink) {
    uint4 sum = make_uint4(0, 0, 0, 0);
    const size_t first = (size_t)blockIdx.x * (floor_threads * floor_loads) + threadIdx.x;
    uint4 v[floor_loads];
#pragma unroll
    for (int i = 0; i < floor_loads; i++) {
        const size_t at = first + (size_t)i * floor_threads;
        v[i] = at < n ? load_once(x + at) : sum;
    }
#pragma unroll
    for (int i = 0; i < floor_loads; i++)
        sum = make_uint4(sum.x ^ v[i].x, sum.y ^ v[i].y, sum.z ^ v[i].z, sum.w ^ v[i].w);
    if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 0x9e3779b9u) *sink = sum; /* so that it is used */
}

__global__ void __launch_bounds__(floor_threads) copy_kernel(const uint4 *x, uint4 *out, size_t n) {
    const size_t first = (size_t)blockIdx.x * (floor_threads * floor_loads) + threadIdx.x;
    uint4 v[floor_loads];
#pragma unroll
    for (int i = 0; i < floor_loads; i++) {
        const size_t at = first + (size_t)i * floor_threads;
        if (at < n) v[i] = load_once(x + at);
    }
#pragma unroll
    for (int i = 0; i < floor_loads; i++) {
        const size_t at = first + (size_t)i * floor_threads;
        if (at < n) out[at] = v[i];
    }
}

__global__ void empty_kernel() {}

static unsigned tiles_of(size_t n) {
    return (unsigned)((n + floor_threads * floor_loads - 1) / (floor_threads * floor_loads));
}

static int read_all(const void *data, size_t bytes, void *sink, void *stream) {
    read_kernel<<<tiles_of(bytes / 16), floor_threads, 0, (cudaStream_t)stream>>>(
        (const uint4 *)data, bytes / 16, (uint4 *)sink);
    return (int)cudaGetLastError();
}
static int copy_all(void *out, const void *data, size_t bytes, void *stream) {
    copy_kernel<<<tiles_of(bytes / 16), floor_threads, 0, (cudaStream_t)stream>>>(
        (const uint4 *)data, (uint4 *)out, bytes / 16);
    return (int)cudaGetLastError();
}
static int nothing(void *stream) {
    empty_kernel<<<1, 32, 0, (cudaStream_t)stream>>>();
    return (int)cudaGetLastError();
}
static int device_count(int *count) {
    return (int)cudaGetDeviceCount(count);
}
static int device_set(int device) {
    return (int)cudaSetDevice(device);
}

const alea_cuda_lab cuda_lab = {
    allocate,     release,       allocate_pinned,   release_pinned, copy_in,
    copy_out,     fill,          copy_out_rows,     event_create,   event_destroy,
    event_record, event_wait,    stream_wait_event, stream_create,  stream_destroy,
    stream_wait,  capture_begin, capture_end,       graph_launch,   graph_destroy,
    graph_time,   read_all,      copy_all,          nothing,        device_count,
    device_set};
