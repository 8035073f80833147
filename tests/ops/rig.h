/* Tensors and calls of the operators, short enough that a test reads as its case. */
#ifndef ALEA_TESTS_OPS_RIG_H
#define ALEA_TESTS_OPS_RIG_H

#include <stdbool.h>

#include "alea/ops.h"

/* A DLTensor with its shape and strides. */
typedef struct rig_tensor {
    DLTensor dl;
    int64_t shape[4], strides[4];
} rig_tensor;

typedef enum rig_dtype { RIG_F16, RIG_BF16, RIG_F32, RIG_F64, RIG_I32, RIG_I64 } rig_dtype;
enum { RIG_LOGIT_DTYPES = 3 };

/* Dense tensors over `data`; sizes beyond the rank are not read. */
DLTensor *rig_1d(rig_tensor *t, void *data, rig_dtype dtype, int64_t n);
DLTensor *rig_2d(rig_tensor *t, void *data, rig_dtype dtype, int64_t rows, int64_t columns);
DLTensor *rig_3d(rig_tensor *t, void *data, rig_dtype dtype, int64_t a, int64_t b, int64_t c);
DLTensor *rig_4d(rig_tensor *t, void *data, rig_dtype dtype, int64_t a, int64_t b, int64_t c,
                 int64_t d);

size_t rig_bytes(rig_dtype dtype);

/* Round float32 to the dtype's own bits, and widen them back: the values a row then has. */
void rig_narrow(void *out, float *values, int64_t n, rig_dtype dtype);
float rig_value(const void *data, int64_t i, rig_dtype dtype);

/* What differs between the runs that a test compares. */
typedef struct rig_how {
    const char *target; /* NULL: by device */
    int32_t threads;    /* 0 counts as 1 here */
    uint32_t flags;
} rig_how;

/* A config for rows of `vocab`. */
alea_op_config rig_config(rig_how how, int32_t vocab, int32_t topk);

/*
 * Run a mask over dense rows; whatever is no parameter of `kind` may be NULL. Fails the test on
 * any error. out may be in, with ALEA_OP_IN_PLACE.
 */
void rig_mask(alea_op_kind kind, rig_how how, void *out, void *in, rig_dtype dtype, int64_t rows,
              int32_t vocab, const int32_t *k, const float *p);

void rig_sample_probs(rig_how how, int32_t *tokens, const float *probs, int64_t rows, int32_t vocab,
                      const int64_t *seed, const int64_t *offset, int64_t n_seeds);

void rig_chain(rig_how how, int32_t *tokens, int32_t *accepted, const float *draft,
               const int32_t *ids, const float *target, int64_t rows, int32_t n_drafts,
               int32_t vocab, int64_t seed, int64_t offset);

/* alea_chain_logits; draft NULL: certain drafts. */
typedef struct rig_chain_logits_args {
    void *draft, *target; /* [rows][drafts][vocab], [rows][drafts + 1][vocab] */
    int32_t *ids;
    float *temperature; /* NULL: 1 */
    int64_t *seed, *offset;
    int64_t n_seeds; /* 1 or rows */
} rig_chain_logits_args;

void rig_chain_logits(rig_how how, int32_t *tokens, int32_t *accepted, int32_t *verdicts,
                      rig_chain_logits_args args, rig_dtype dtype, int64_t rows, int32_t n_drafts,
                      int32_t vocab);

void rig_select(rig_how how, int32_t *indices, const float *scores, const int32_t *starts,
                const int32_t *ends, int64_t batch, int64_t queries, int32_t length, int64_t groups,
                int32_t topk);

/* Outputs of alea_logprobs; NULL members are not asked for. */
typedef struct rig_report {
    double *lse;
    float *logprobs;
    int32_t *ranks;
    int32_t *ids;
    float *id_logprobs;
    float *entropy;
    int32_t *verdicts;
} rig_report;

void rig_logprobs(rig_how how, rig_report out, void *logits, rig_dtype dtype, int64_t rows,
                  int32_t vocab, int32_t k, int32_t *tokens, int32_t *given, int32_t n_given);

typedef struct rig_choice {
    int32_t *tokens;
    float *logprobs, *sampled, *kept;
    int32_t *verdicts;
    double *lse;
    int32_t *ranks;
    int32_t *ids; /* [rows][k] */
    float *id_logprobs;
    int32_t k;
} rig_choice;

typedef struct rig_params {
    float *temperature;
    int32_t *top_k;
    float *top_p, *min_p;
    int64_t *seed, *offset;
    int64_t n_seeds; /* 1 or rows */
} rig_params;

void rig_sample_logits(rig_how how, rig_choice out, void *logits, rig_dtype dtype, int64_t rows,
                       int32_t vocab, rig_params params);

/* malloc that ends the test program where there is no memory. */
void *rig_alloc(size_t bytes);

/* Standard normal values. */
void rig_normal(float *x, int64_t n, uint64_t seed);

/* Softmax of normal logits, as float32. */
void rig_random_probs(float *x, int64_t rows, int32_t vocab, uint64_t seed);

#endif
