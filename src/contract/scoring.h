/*
 * Scored prefill: the layout of its rows, who writes and who reads them. Target row j of a chunk is
 * the prompt token at chunk_start + j + 1, or -1 where the prompt ends or an image lies; its report
 * says how probable that token was.
 *
 * Rows arrive at most 64 at a time, so no [tokens, vocab] matrix exists at any moment.
 */
#ifndef ALEA_CONTRACT_SCORING_H
#define ALEA_CONTRACT_SCORING_H

#include "base/pool.h"
#include "contract/completion.h"
#include "kernel/row.h"

#define ALEA_SCORED_BLOCK_ROWS 64

/* A prompt position as the reader sees it; `token` -1: no target, the entry is null. */
typedef struct alea_score {
    int32_t token;
    float logprob;
    int32_t rank; /* 1 + tokens with a strictly greater reported logprob */
    int32_t n_alternatives;
    alea_alternative alternatives[ALEA_ALTERNATIVES_MAX];
} alea_score;

/*
 * Capacities of the scored operation for a chunk limit: 128, then times four, the limit last.
 * Writes at most 16 and returns how many; 0 for a limit below 1.
 */
int32_t alea__scoring_capacities(int32_t chunk_limit, int32_t capacities[16]);

/*
 * Begin the chunk [chunk_start, chunk_start + n_rows) of a prompt in which opaque positions hold
 * -1, at rows first_row .. first_row + graph_rows of the frame: fill their targets, with -1 behind
 * n_rows, and make these rows of the frame invalid, so that no earlier chunk's score can be taken
 * for a new one. Where one operation scores chunks of several prompts, each has rows of its own.
 * ALEA_EINVAL: a range is outside the prompt or the buffer; nothing written.
 */
alea_status alea__scoring_begin(alea_completion *completion, int32_t frame, int32_t first_row,
                                const int32_t *prompt, int32_t prompt_tokens, int32_t chunk_start,
                                int32_t n_rows, int32_t graph_rows,
                                alea_error *error) ALEA_MUST_USE;

/*
 * Score rows first_row .. first_row + n_rows of the frame against their targets. Rows without a
 * target are not read and stay invalid; a row that is no distribution gets its target's id with
 * NaN, which the reader turns into the request's error.
 *
 * Shape     logits [n_rows] of [vocab], n_rows <= 64; an entry is not read where its target is -1;
 *           greedy [n_rows], NULL: not wanted
 * Result    the rows of the frame; greedy: the id of the largest raw logit, of equal ones the
 *           smallest, -1 where the row is not read or no distribution
 * Errors    ALEA_EINVAL, ALEA_EUNSUPPORTED (the bundle has no scoring buffers): nothing written
 * Memory    allocates nothing
 * Threads   rows are split over the pool, which may be NULL
 */
alea_status alea__scoring_reduce(const alea_kernel_table *kernels, alea_pool *pool,
                                 alea_completion *completion, int32_t frame, int32_t first_row,
                                 int32_t n_rows, const float *const *logits, int32_t vocab,
                                 int32_t *greedy, alea_error *error) ALEA_MUST_USE;

/*
 * Read row `row` of a frame, whose target the reader knows: -1 or a token.
 * Errors    ALEA_EFORMAT (another token's row, a missing or malformed one), ALEA_EROW: *score
 *           untouched; the message names `position`
 */
alea_status alea__scoring_read(const alea_completion *completion, int32_t frame, int32_t row,
                               int32_t target, int64_t position, alea_score *score,
                               alea_error *error) ALEA_MUST_USE;

/* The words of a row in the buffer, and the same reading for a copy of them kept elsewhere. */
const int32_t *alea__scoring_row(const alea_completion *completion, int32_t frame, int32_t row);
alea_status alea__score_read(const int32_t words[ALEA_SCORE_WORDS], int32_t target,
                             int64_t position, alea_score *score, alea_error *error) ALEA_MUST_USE;

#endif
