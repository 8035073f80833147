/*
 * The one checker of all operators. What each takes is a table: an argument's name, direction,
 * dtypes and shape, a letter per dimension. Everything that can be seen without reading a
 * tensor's values is refused here, once, so that what runs below may take its input as valid.
 */
#ifndef ALEA_OPS_CHECK_H
#define ALEA_OPS_CHECK_H

#include <stdbool.h>

#include "alea/ops.h"

enum { ALEA_OP_TENSORS_MAX = 17, ALEA_OP_RANK_MAX = 4 };

/* Bits of alea_op_argument.dtypes. */
enum alea_dtype_bit {
    ALEA_BIT_F16 = 1u << 0,
    ALEA_BIT_BF16 = 1u << 1,
    ALEA_BIT_F32 = 1u << 2,
    ALEA_BIT_F64 = 1u << 3,
    ALEA_BIT_I32 = 1u << 4,
    ALEA_BIT_I64 = 1u << 5,
    ALEA_BIT_LOGITS = ALEA_BIT_F16 | ALEA_BIT_BF16 | ALEA_BIT_F32
};

enum alea_argument_flag {
    ALEA_ARG_OUT = 1u << 0,
    ALEA_ARG_OPTIONAL = 1u << 1,
    ALEA_ARG_ANY_STRIDE = 1u << 2, /* the last dimension need not be contiguous */
    ALEA_ARG_MASKED = 1u << 3 /* an output that may be its `logits`, where in place was asked */
};

typedef struct alea_op_argument {
    const char *name;
    const char *shape; /* a letter per dimension, see alea_op_sizes */
    uint32_t dtypes;
    uint32_t flags;
} alea_op_argument;

typedef struct alea_op_rules {
    const alea_op_argument *arguments;
    int32_t n_arguments;
    bool empty_rows;   /* vocab 0 is allowed */
    int32_t logits_at; /* the argument that has the rows and the vocab of a call */
} alea_op_rules;

/*
 * Sizes of a call, by letter of the shape strings. '1' stands for 1 or rows, 'm' for drafts + 1.
 * A size that no given tensor has is 0.
 */
typedef struct alea_op_sizes {
    int64_t rows;                   /* r; for select: batch * queries * groups */
    int64_t vocab;                  /* v; for select: S_kv */
    int64_t drafts;                 /* n */
    int64_t batch, queries, groups; /* b, s, g */
    int64_t topk;                   /* t: slots or alternatives */
} alea_op_sizes;

const alea_op_rules *alea__op_rules(alea_op_kind kind);

/*
 * Check a call. tensors [n_arguments] in the order of the table.
 * ALEA_OK: *sizes is filled. Else ALEA_EINVAL or ALEA_ELIMIT with the argument's name.
 */
alea_status alea__op_check(alea_op_kind kind, const alea_op_config *config,
                           const DLTensor *const *tensors, alea_op_sizes *sizes,
                           alea_error *error) ALEA_MUST_USE;

/* Check a config for this kind. */
alea_status alea__op_check_config(alea_op_kind kind, const alea_op_config *config,
                                  alea_error *error) ALEA_MUST_USE;

/*
 * A checked tensor as memory: [ALEA_OP_RANK_MAX] sizes and steps in bytes, zero beyond its rank,
 * and where it starts; NULL for one that is empty and has no data. Nothing is computed from strides
 * that no entry is reached by: those of dimensions of one entry and of empty tensors may be any
 * number.
 */
char *alea__tensor_open(const DLTensor *tensor, int64_t *size, int64_t *step);

/* Rows and vocab of a call, by the sizes of the argument that has them. */
void alea__call_sizes(alea_op_kind kind, const int64_t *size, int32_t rank, int64_t *rows,
                      int32_t *vocab);

/* The bit of a dtype; 0 for one that no operator takes. */
uint32_t alea__dtype_bit(DLDataType dtype);

/* Host memory that a GPU driver pinned is host memory. */
int32_t alea__device_type(const DLTensor *tensor);

#endif
