/*
 * What may be asked of one row of raw float32 logits: how probable each token is, which are the
 * best, and which one comes next. The rules are docs/numerics.md; every result here has the same
 * bits on every machine, with any number of threads and any kernel table.
 *
 * Pure: nothing is allocated, logged or kept between calls.
 */
#ifndef ALEA_KERNEL_ROW_H
#define ALEA_KERNEL_ROW_H

#include "alea/base.h"
#include "base/pool.h"
#include "kernel/kernel_table.h"

#define ALEA_VOCAB_MAX (1 << 22) /* the masses of a larger row would not fit 64 bits */
#define ALEA_TOP_MAX 20          /* natural alternatives that a report can hold */

/* A token and its reported log-probability. */
typedef struct alea_alternative {
    int32_t token;
    float logprob;
} alea_alternative;

/* One position's report. */
typedef struct alea_row_report {
    int32_t token;  /* the token that was asked about; -1: none, then logprob NaN, rank 0 */
    float logprob;  /* of that token, over the whole vocabulary, at temperature 1 */
    int32_t rank;   /* 1 + tokens with a strictly greater reported logprob */
    int32_t greedy; /* largest raw logit, smaller id among equals: what temperature 0 emits */
    float entropy;  /* nats */
    int32_t n_top;  /* min(K, vocab) */
    double lse;     /* ln of the sum of exp over the row */
    alea_alternative top[ALEA_TOP_MAX]; /* by logprob downward, then id upward */
} alea_row_report;

/*
 * Report on one row.
 *
 * Shape     logits [vocab], 1 <= vocab <= ALEA_VOCAB_MAX; 0 <= k <= ALEA_TOP_MAX;
 *           token in [0, vocab), or -1
 * Domain    -inf is a logit like another (it weighs nothing); a row with NaN, with +inf or with
 *           nothing finite is a model failure
 * Result    *report, whole
 * Exact     docs/numerics.md, to the bit; entropy is filled only where want_entropy
 * Errors    ALEA_EROW (such a row), ALEA_EINVAL: *report untouched
 * Memory    allocates nothing; some 64 KB of stack
 * Threads   reentrant; with a pool, which may be NULL, its threads share the row
 */
alea_status alea__row_report_shared(const alea_kernel_table *kernels, alea_pool *pool,
                                    const float *logits, int32_t vocab, int32_t token, int32_t k,
                                    bool want_entropy, alea_row_report *report) ALEA_MUST_USE;

ALEA_MUST_USE static inline alea_status
alea__row_report(const alea_kernel_table *kernels, const float *logits, int32_t vocab,
                 int32_t token, int32_t k, bool want_entropy, alea_row_report *report) {
    return alea__row_report_shared(kernels, NULL, logits, vocab, token, k, want_entropy, report);
}

#define ALEA_SELECTED_MAX 129 /* a chosen token and 128 ids of the caller's */

/*
 * Logprobs of named tokens of one row, in the caller's order, by the same normalization and so
 * with the same bits as alea__row_report.
 *
 * Shape     logits [vocab], as above; tokens, logprobs [n_tokens], 1 <= n_tokens <=
 *           ALEA_SELECTED_MAX; tokens in [0, vocab), repeats allowed
 * Result    logprobs, whole
 * Exact     docs/numerics.md, to the bit
 * Errors    ALEA_EROW, ALEA_EINVAL: logprobs untouched
 * Memory    allocates nothing; some 64 KB of stack
 * Threads   reentrant
 */
alea_status alea__row_selected(const alea_kernel_table *kernels, const float *logits, int32_t vocab,
                               const int32_t *tokens, int32_t n_tokens,
                               float *logprobs) ALEA_MUST_USE;

/* How to choose a token. The neutral values are 1, 0, 1 and 0. */
typedef struct alea_sampling {
    float temperature; /* 0: greedy, and the filters have no say; else log2(e)/T finite and not 0 */
    int32_t top_k;     /* 0: all */
    float top_p;       /* (0, 1] */
    float min_p;       /* [0, 1] */
} alea_sampling;

/* Where in the random stream a draw stands: docs/numerics.md, "Filters and draws". */
typedef struct alea_draw_at {
    uint64_t seed;
    uint32_t draw;   /* j; 0 for an ordinary draw */
    uint32_t row;    /* index of the choice */
    uint64_t offset; /* base + index of the generated token */
} alea_draw_at;

typedef struct alea_choice {
    int32_t token;
    float logprob;         /* raw: over the whole row at temperature 1 */
    float sampled_logprob; /* over what the filters kept, at the temperature */
    float kept_mass;       /* share of the row that the filters kept, at the temperature */
} alea_choice;

/* What of a choice costs a pass over the row that the token alone may not need. */
enum { ALEA_CHOOSE_LOGPROB = 1, ALEA_CHOOSE_KEPT_MASS = 2, ALEA_CHOOSE_ALL = 3 };

/*
 * Refuse sampling parameters outside their domain, naming the first bad one; NaN is outside.
 * Returns ALEA_OK or ALEA_EINVAL.
 */
alea_status alea__sampling_check(const alea_sampling *sampling, alea_error *error);

/*
 * Choose one token of one row: temperature, top-k, top-p, min-p, draw, in that order.
 *
 * Shape     logits [vocab], as above
 * Domain    sampling passed alea__sampling_check
 * Result    *choice; logprob and kept_mass are NaN unless `wants`, a set of ALEA_CHOOSE_*, has them
 * Exact     docs/numerics.md, to the bit: a function of the row, the parameters and `at` alone
 * Errors    ALEA_EROW, ALEA_EINVAL: *choice untouched
 * Memory    allocates nothing; some 96 KB of stack
 * Threads   reentrant; with a pool, which may be NULL, its threads share the row
 */
alea_status alea__row_choose_shared(const alea_kernel_table *kernels, alea_pool *pool,
                                    const float *logits, int32_t vocab,
                                    const alea_sampling *sampling, const alea_draw_at *at,
                                    unsigned wants, alea_choice *choice) ALEA_MUST_USE;

ALEA_MUST_USE static inline alea_status
alea__row_choose(const alea_kernel_table *kernels, const float *logits, int32_t vocab,
                 const alea_sampling *sampling, const alea_draw_at *at, alea_choice *choice) {
    return alea__row_choose_shared(kernels, NULL, logits, vocab, sampling, at, ALEA_CHOOSE_ALL,
                                   choice);
}

#endif
