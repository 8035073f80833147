/*
 * From a raw row to the row that is drawn from: bias, allowed ids, bad words, minimum length,
 * penalties, grammar, in that order, on scratch. The raw row is never written: reports read it
 * after the draw. Temperature and filters follow in alea__row_choose.
 */
#ifndef ALEA_RUNTIME_PIPELINE_H
#define ALEA_RUNTIME_PIPELINE_H

#include "runtime/history.h"
#include "runtime/params.h"

/* A constraint of the grammar kind: may set any entry to -INFINITY, nothing else. */
typedef struct alea_grammar {
    void (*restrict_row)(void *user, float *logits, int32_t vocab);
    void (*accept)(void *user, int32_t token);
    void *user;
} alea_grammar;

/* What the processors of one choice read. Borrowed for the call. */
typedef struct alea_pipeline {
    const alea_request_params *params;
    const alea_history *history;
    const int32_t *output; /* tokens generated so far */
    int32_t n_output;
    const int32_t *end_tokens; /* the model's, banned below min_tokens */
    int32_t n_end_tokens;
    const alea_grammar *grammar; /* NULL: none */
} alea_pipeline;

/* True where no processor has anything to do, so that the raw row itself can be drawn from. */
bool alea__pipeline_is_neutral(const alea_pipeline *pipeline);

/*
 * Shape     logits, scratch [vocab], not overlapping
 * Domain    params passed alea__params_check for this vocab; history holds prompt and output where
 *           params penalize
 * Result    scratch: the processed row
 * Errors    ALEA_EROW: the raw row holds NaN or +inf, wherever it is, or nothing finite;
 *           ALEA_EEMPTY naming the constraint after which no finite entry is left; scratch is then
 *           undefined
 * Memory    allocates nothing
 * Threads   reentrant
 */
alea_status alea__pipeline_apply(const alea_pipeline *pipeline, const float *logits, int32_t vocab,
                                 float *scratch, alea_error *error) ALEA_MUST_USE;

#endif
