/*
 * The reduction: for every emitted token of a requesting slot, the chosen token's logprob and its
 * alternatives, from the raw row of that token, packed into the payload. It runs after the commit
 * and takes the emitted prefix from the record, so it can never report what was not emitted.
 *
 * It reads rows and writes payloads, nothing else: neither sampling nor the random stream can
 * depend on it. What nobody asked for costs a flag test.
 */
#ifndef ALEA_CONTRACT_REDUCE_H
#define ALEA_CONTRACT_REDUCE_H

#include "base/pool.h"
#include "contract/record.h"
#include "kernel/row.h"

/* What became of a lane; everything but REDUCED reads no row. */
typedef enum alea_reduce_verdict {
    ALEA_REDUCED,          /* its emitted, unforced, offered positions were reduced */
    ALEA_REDUCE_GATED,     /* the slot asked for nothing */
    ALEA_REDUCE_INACTIVE,  /* padding, or the record says that nothing was emitted */
    ALEA_REDUCE_STALE,     /* another epoch holds the slot now */
    ALEA_REDUCE_DUPLICATE, /* an earlier lane owns the slot */
    ALEA_REDUCE_VERDICTS
} alea_reduce_verdict;

/* Rows of one request in one round: 1 for ordinary sampling, 1 + drafts for verification. */
typedef struct alea_reduce_lane {
    int32_t slot; /* -1: padding */
    int64_t epoch;
    int32_t first_row; /* into the batch's rows; row first_row + i is that of emitted token i */
    int32_t offered_rows;
    alea_reduce_verdict verdict; /* written by the reduction */
} alea_reduce_lane;

typedef struct alea_reduce_batch {
    const float *const *rows; /* [n_rows], each [vocab] raw logits; NULL: a row never produced */
    int32_t n_rows;
    int32_t vocab;
    alea_reduce_lane *lanes;
    int32_t n_lanes;
} alea_reduce_batch;

typedef struct alea_reduce_stats {
    int64_t lanes[ALEA_REDUCE_VERDICTS];
    int64_t positions;     /* reduced */
    int64_t forced;        /* emitted without being sampled: no entry */
    int64_t failed;        /* positions whose row was no distribution, or missing */
    int64_t values_read;   /* logits of the vocabulary, over all rows */
    int64_t words_written; /* int32 of payload */
} alea_reduce_stats;

/*
 * Reduce a role's rows into its active frame.
 *
 * Shape     as above; payload words beyond a slot's own width stay as they are
 * Domain    records of `frame` are committed; flags and ids are those of this submission
 * Result    payloads; stats (may be NULL) are added to; lanes' verdicts
 * Exact     docs/numerics.md, to the bit, whatever shares the batch and however many threads
 * Errors    ALEA_EINVAL (a lane beyond the rows, a frame, a vocabulary), ALEA_EFORMAT (a record):
 *           nothing written. A row that is no distribution is the failure of its own request: its
 *           chosen logprob becomes NaN, which the decoder turns into that request's error.
 * Memory    allocates nothing
 * Threads   positions are split over the pool, which may be NULL
 */
alea_status alea__reduce(const alea_kernel_table *kernels, alea_pool *pool,
                         alea_completion *completion, int32_t frame, alea_reduce_batch *batch,
                         alea_reduce_stats *stats, alea_error *error) ALEA_MUST_USE;

#endif
