/*
 * Who computes. The library's own targets and those that a program registers have one interface,
 * alea_op_target; an operator is a list of candidates, asked in turn.
 */
#ifndef ALEA_OPS_TARGET_H
#define ALEA_OPS_TARGET_H

#include "alea/ops.h"

/* The built-in targets; see cpu.c and cuda.c. */
extern const alea_op_target alea__target_cpu;
extern const alea_op_target alea__target_cpu_ref;
extern const alea_op_target alea__target_cuda;

/* Behind every public operator type. */
typedef struct alea_op alea_op;

alea_status alea__op_create(alea_op_kind kind, const alea_op_config *config, alea_op **op,
                            alea_error *error) ALEA_MUST_USE;
void alea__op_destroy(alea_op *op);

/* tensors stand in the order of the operator's table in rules.c. */
alea_status alea__op_run(alea_op *op, const DLTensor *const *tensors, void *stream,
                         alea_error *error) ALEA_MUST_USE;

#endif
