/*
 * Generation for one user: a prompt, then one token after another, for each of n choices. The
 * draw is a function of seed, choice and token index, so a choice's text does not depend on how
 * many others were asked for. No I/O: tokens go to a callback as they are made.
 */
#ifndef ALEA_RUNTIME_GENERATE_H
#define ALEA_RUNTIME_GENERATE_H

#include <signal.h>

#include "alea/core.h"
#include "kernel/row.h"

typedef struct alea_generate_options {
    const alea_kernel_table *kernels;
    int32_t sequence; /* which of the core's sequences is used */
    alea_sampling sampling;
    uint64_t seed;
    int32_t choices;                     /* n >= 1 */
    int32_t max_tokens;                  /* >= 1; the end of the context may come first */
    int32_t top;                         /* 0..20 alternatives per token */
    bool ignore_end;                     /* end tokens are tokens like others */
    const volatile sig_atomic_t *cancel; /* not 0: stop before the next token; may be NULL */
} alea_generate_options;

typedef enum alea_generate_end {
    ALEA_GENERATE_STOP,  /* the model ended it; the end token itself is not handed out */
    ALEA_GENERATE_LENGTH /* max_tokens, or the context is full */
} alea_generate_end;

typedef struct alea_generated {
    int32_t choice;
    int32_t index; /* of the token in its choice */
    int32_t token;
    const alea_row_report *report; /* over the raw row: logprob, rank, alternatives */
} alea_generated;

/* Both are called in order; a negative status stops everything and is handed back. */
typedef struct alea_generate_sink {
    alea_status (*token)(void *user, const alea_generated *generated);
    alea_status (*finish)(void *user, int32_t choice, alea_generate_end end);
    void *user;
} alea_generate_sink;

/*
 * Generate.
 *
 * Shape     prompt [n_prompt], n_prompt >= 1
 * Domain    n_prompt <= the core's context: a full one leaves room for one token
 * Result    the sink is told every token and every end, choice after choice
 * Exact     on a batch-invariant core a function of the prompt and the options alone
 * Errors    ALEA_EINVAL, ALEA_ECONTEXT (the prompt), ALEA_EROW (the position is named),
 *           ALEA_ECANCELLED, what the core or the sink returns
 * Memory    allocates nothing
 * Threads   one per core
 */
alea_status alea__generate(alea_core *core, const alea_generate_options *options,
                           const int32_t *prompt, size_t n_prompt, const alea_generate_sink *sink,
                           alea_error *error) ALEA_MUST_USE;

#endif
