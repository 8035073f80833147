/*
 * Scoring: how probable every token of a given text is, under a core. Long texts go through
 * strided windows; rows are reduced as they come, at most 64 at a time, so memory does not grow
 * with the text. No I/O, no time, no tokenizer: ids in, one record per position out, in order.
 *
 * Windows. Window w holds the tokens from w*stride on, at most `window` of them. The row after
 * the last of them is used too, so a token has at most `window` tokens of context. Each token is
 * scored once, by the earliest window that reaches it, which is the one with the most context.
 */
#ifndef ALEA_RUNTIME_SCORE_H
#define ALEA_RUNTIME_SCORE_H

#include <signal.h>

#include "alea/core.h"
#include "base/pool.h"
#include "kernel/row.h"

#define ALEA_SCORE_BLOCK_ROWS 64

typedef struct alea_score_options {
    const alea_kernel_table *kernels;
    alea_pool *pool;                     /* reduces rows; NULL: the calling thread alone */
    int32_t sequence;                    /* which of the core's sequences is used, and emptied */
    int32_t window_tokens;               /* 0: the core's context */
    int32_t stride_tokens;               /* 0: half a window, at least 1 */
    int32_t block_rows;                  /* 1..64; 0: 64. Never changes a bit of the result */
    int32_t top;                         /* 0..20 alternatives per position */
    const volatile sig_atomic_t *cancel; /* not 0: stop before the next block; may be NULL */
    void (*progress)(void *user, size_t computed_tokens); /* after each round; may be NULL */
    void *progress_user;
} alea_score_options;

/* One position. The first of a text has no context: its report has rank 0 and logprob NaN. */
typedef struct alea_scored {
    size_t index;
    int32_t token;
    int32_t context_tokens; /* how many tokens before it the row had seen */
    const alea_row_report *report;
} alea_scored;

/* Valid during the call. A negative status stops the scoring and is handed back. */
typedef alea_status (*alea_scored_fn)(void *user, const alea_scored *scored);

/*
 * Score `tokens`.
 *
 * Shape     tokens [n_tokens], n_tokens >= 1
 * Domain    ids in [0, vocab); 1 <= stride <= window <= the core's context
 * Result    `sink` is called once per token, indexes ascending from 0
 * Exact     on a batch-invariant core a function of ids, window, stride and top alone
 * Errors    ALEA_EINVAL (a parameter or an id, named), ALEA_EROW (the position is named),
 *           ALEA_ECANCELLED, what the core or the sink returns; records already handed out stand
 * Memory    allocates nothing; some 80 KB of stack, most of it for the row at hand
 * Threads   one per core
 */
alea_status alea__score_tokens(alea_core *core, const alea_score_options *options,
                               const int32_t *tokens, size_t n_tokens, alea_scored_fn sink,
                               void *user, alea_error *error) ALEA_MUST_USE;

/* Tokens that the core computes for a text of this length, for progress bars: windows overlap, so
 * it may be more than the text has. Both sizes are resolved ones, at least 1. */
size_t alea__score_work_tokens(size_t n_tokens, int32_t window_tokens, int32_t stride_tokens);

#endif
