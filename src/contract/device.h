/*
 * CompletionOutputs on a CUDA device: the buffers of completion.h where a core's kernels write
 * them, the reduction as an operation of a stream, and copies of what was asked for in pinned host
 * memory. Two frames, as on the host: while one is being filled, the other is on its way.
 *
 * The one thing to know: everything that a submission changes is data on the device, so the
 * reduction may be captured once and replayed; without requesting lanes its blocks leave at once.
 */
#ifndef ALEA_CONTRACT_DEVICE_H
#define ALEA_CONTRACT_DEVICE_H

#include "contract/completion.h"
#include "kernel/cuda/cuda_api.h"

typedef struct alea_device_completion alea_device_completion;

/* What a bundle is made for. Rows of logits are the core's own, on the current device. */
typedef struct alea_device_config {
    alea_completion_layout layout; /* with payload; scored rows are not of the device */
    int32_t lanes;                 /* of a submission, at most */
    const void *logits;            /* [rows][vocab] */
    int64_t row_bytes;
    int32_t rows, vocab;
    int32_t dtype; /* alea_cuda_dtype */
} alea_device_config;

/* A lane of a submission; see alea_reduce_lane. */
typedef struct alea_device_lane {
    int32_t slot; /* -1: padding */
    int64_t epoch;
    int32_t first_row, offered_rows;
} alea_device_lane;

/*
 * Allocate buffers, workspace and pinned memory, and create the copy stream. Nothing later does.
 *
 * Shape     lanes 1..ALEA_SLOTS_MAX; layout as alea__layout_check has it
 * Result    *made: inputs zero, records empty, payloads -1
 * Errors    ALEA_EINVAL, ALEA_ELIMIT (layout), ALEA_ENOMEM, ALEA_ECORE: *made untouched
 * Memory    alea__device_memory tells; freed by alea__device_destroy
 * Threads   one thread at a time uses a bundle
 */
alea_status alea__device_create(const alea_cuda_api *api, const alea_device_config *config,
                                alea_device_completion **made, alea_error *error) ALEA_MUST_USE;

/* Waits for what is on its way; accepts NULL. */
void alea__device_destroy(alea_device_completion *device);

/* Where the core's kernels write the records of a frame: [capacity][16 + T] int64. */
int64_t *alea__device_records(const alea_device_completion *device, int32_t frame);

/*
 * Enqueue the submission's inputs: request flags, explicit ids where the layout has them, lanes.
 * They are copied before the call returns; at most config.lanes lanes, fewer are padded. Not for
 * capture: it is what changes between replays.
 */
alea_status alea__device_submit(alea_device_completion *device, const int32_t *requested,
                                const int32_t *token_ids, const int32_t *token_id_counts,
                                const alea_device_lane *lanes, int32_t n_lanes, void *stream,
                                alea_error *error) ALEA_MUST_USE;

/* Enqueue the reduction of a frame whose records the stream will have written. May be captured. */
alea_status alea__device_reduce(alea_device_completion *device, int32_t frame, void *stream,
                                alea_error *error) ALEA_MUST_USE;

/*
 * Start the copies of a frame, on a stream of their own, after what `stream` holds now: all
 * records, and of each slot that the last submission's flags name the chosen pair and the first
 * `pairs` pairs of every position. Other slots' payloads stay on the device.
 */
alea_status alea__device_fetch(alea_device_completion *device, int32_t frame, int32_t pairs,
                               void *stream, alea_error *error) ALEA_MUST_USE;

/*
 * Wait for a frame that was fetched. *records is [capacity][16 + T]; *payload is
 * [capacity][T][words], of which only what was fetched is the frame's. Valid until the frame's next
 * fetch.
 */
alea_status alea__device_wait(alea_device_completion *device, int32_t frame,
                              const int64_t **records, const int32_t **payload,
                              alea_error *error) ALEA_MUST_USE;

/* Bytes on the device, and pinned on the host. */
void alea__device_memory(const alea_device_completion *device, size_t *device_bytes,
                         size_t *pinned_bytes);

#endif
