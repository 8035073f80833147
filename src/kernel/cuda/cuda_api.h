/*
 * The seam between libalea and its CUDA module, a shared object of its own that holds all device
 * code and is opened at run time: a table of functions, plain C on both sides. libalea never links
 * a CUDA library, and the module never sees a tensor: calls arrive checked, as addresses and steps.
 *
 * Launches enqueue on the caller's stream and do nothing else: no allocation, no synchronization,
 * so each may be captured in a graph. Return values are CUDA's error codes; 0 is success.
 */
#ifndef ALEA_KERNEL_CUDA_CUDA_API_H
#define ALEA_KERNEL_CUDA_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

#define ALEA_CUDA_ABI 3                     /* changes with anything in this file */
#define ALEA_CUDA_SYMBOL "alea_cuda_module" /* what the module exports: alea_cuda_open */

enum { ALEA_CUDA_VIEWS = 17, ALEA_CUDA_RANK = 4 };

/* The kinds of operators, numbered like alea_op_kind. */
enum alea_cuda_kind {
    ALEA_CUDA_TOPK_SELECT,
    ALEA_CUDA_TOPK_MASK,
    ALEA_CUDA_MINP_MASK,
    ALEA_CUDA_TOPP_MASK,
    ALEA_CUDA_TOPK_TOPP_MASK,
    ALEA_CUDA_SAMPLE_PROBS,
    ALEA_CUDA_CHAIN_SAMPLE,
    ALEA_CUDA_LOGPROBS,
    ALEA_CUDA_SAMPLE_LOGITS,
    ALEA_CUDA_CHAIN_LOGITS,
    ALEA_CUDA_KINDS
};

enum alea_cuda_dtype { ALEA_CUDA_F16, ALEA_CUDA_BF16, ALEA_CUDA_F32 };

/* A tensor: where it starts and how far its dimensions step, in bytes. NULL: not given. */
typedef struct alea_cuda_view {
    char *data;
    int64_t step[ALEA_CUDA_RANK];
    int64_t size[ALEA_CUDA_RANK];
} alea_cuda_view;

/* One call of an operator; views in the order of its arguments. */
typedef struct alea_cuda_call {
    alea_cuda_view views[ALEA_CUDA_VIEWS];
    int64_t rows;
    int32_t vocab;
    int32_t dtype; /* of the logits */
} alea_cuda_call;

typedef struct alea_cuda_workspace alea_cuda_workspace;

/* A lane of a submission, as the reduction reads it: all that decides whether it starts is in one
 * sector of memory. */
typedef struct alea_cuda_lane {
    int32_t slot;               /* -1: padding */
    int32_t requested;          /* not where an earlier lane is of the same slot and epoch */
    int32_t first_row, offered; /* of the logits */
    int64_t epoch;
    int64_t reserved;
} alea_cuda_lane;

/*
 * The completion reduction: every requesting lane's emitted positions, reported from raw logits
 * into the payload of one frame. All addresses are of the device; what it reads there may change
 * between replays of a captured graph, what stands in this struct may not.
 */
typedef struct alea_cuda_reduction {
    const int64_t *records;         /* [capacity][16 + tokens] of the frame */
    int32_t *logprobs;              /* [capacity][tokens][words] of the frame */
    const int32_t *token_ids;       /* [capacity][128]; NULL: natural alternatives alone */
    const int32_t *token_id_counts; /* [capacity]; NULL with token_ids */
    const alea_cuda_lane *slots;    /* [lanes] */
    const void *logits;             /* [rows][vocab] */
    int64_t row_bytes;              /* from one row to the next */
    int32_t lanes, capacity, tokens, words, alternatives;
    int32_t rows, vocab, dtype;
    int32_t header_words; /* of a record, before its tokens */
} alea_cuda_reduction;

/* Memory, streams, graphs and clocks: for tests, benchmarks and hosts without a CUDA runtime. */
typedef struct alea_cuda_lab {
    int (*allocate)(size_t bytes, void **device);
    int (*release)(void *device);
    int (*allocate_pinned)(size_t bytes, void **host);
    int (*release_pinned)(void *host);
    int (*copy_in)(void *device, const void *host, size_t bytes, void *stream);
    int (*copy_out)(void *host, const void *device, size_t bytes, void *stream);
    int (*fill)(void *device, int byte, size_t bytes, void *stream);
    /* height rows of width bytes, each so many bytes after the last. */
    int (*copy_out_rows)(void *host, size_t host_step, const void *device, size_t device_step,
                         size_t width, size_t height, void *stream);
    int (*event_create)(void **event);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_wait)(void *event);                      /* by the host */
    int (*stream_wait_event)(void *stream, void *event); /* by the stream */
    int (*stream_create)(void **stream);
    int (*stream_destroy)(void *stream);
    int (*stream_wait)(void *stream); /* NULL: the whole device */
    int (*capture_begin)(void *stream);
    int (*capture_end)(void *stream, void **graph);
    int (*graph_launch)(void *graph, void *stream);
    int (*graph_destroy)(void *graph);
    /* Milliseconds that one replay takes, by events on the stream; waits. */
    int (*graph_time)(void *graph, void *stream, float *milliseconds);
    /* The floors: read bytes as fast as a plain kernel can; read and write; do nothing. */
    int (*read_all)(const void *data, size_t bytes, void *sink, void *stream);
    int (*copy_all)(void *out, const void *data, size_t bytes, void *stream);
    int (*nothing)(void *stream);
    int (*device_count)(int *count);
    int (*device_set)(int device);
} alea_cuda_lab;

typedef struct alea_cuda_api {
    uint32_t abi;
    /* Whether this process can use a device; 0, or why not. device: the caller's current one. */
    int (*probe)(int *device);
    const char *(*error_text)(int error);

    /* Memory for `rows` rows at a time of at most `vocab` entries, on the current device. */
    int (*workspace_create)(int32_t kind, int64_t rows, int32_t vocab, alea_cuda_workspace **made);
    void (*workspace_destroy)(alea_cuda_workspace *workspace);
    size_t (*workspace_bytes)(const alea_cuda_workspace *workspace);

    int (*run)(int32_t kind, const alea_cuda_call *call, alea_cuda_workspace *workspace,
               void *stream);
    int (*reduce)(const alea_cuda_reduction *reduction, alea_cuda_workspace *workspace,
                  void *stream);
    alea_cuda_lab lab;
} alea_cuda_api;

/* The exported function: the table, or NULL for another ABI. */
typedef const alea_cuda_api *(*alea_cuda_open)(uint32_t abi);

#endif
