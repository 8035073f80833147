/*
 * The CPU target from the inside: a call's tensors as views, and one function per operator that
 * does one row with the scratch of one thread. "cpu" and "cpu-ref" differ in their kernel table
 * and in nothing else.
 */
#ifndef ALEA_OPS_CPU_H
#define ALEA_OPS_CPU_H

#include "kernel/row.h"
#include "ops/check.h"
#include "ops/row_scratch.h"

/* A checked tensor: where it starts and how far its dimensions step, in bytes. */
typedef struct alea_view {
    char *data; /* NULL: an argument that was not given */
    int64_t step[ALEA_OP_RANK_MAX];
    int64_t size[ALEA_OP_RANK_MAX];
    int32_t rank;
    uint32_t dtype_bit;
} alea_view;

typedef struct alea_cpu_call {
    const alea_op_config *config;
    alea_op_kind kind;
    alea_view views[ALEA_OP_TENSORS_MAX]; /* in the order of rules.c */
    int64_t rows;
    int32_t vocab;
} alea_cpu_call;

static inline void *alea__at(const alea_view *view, int64_t i) {
    return view->data + i * view->step[0];
}

static inline void *alea__at2(const alea_view *view, int64_t i, int64_t j) {
    return view->data + i * view->step[0] + j * view->step[1];
}

static inline float alea__f32_at(const alea_view *view, int64_t i) {
    return *(const float *)alea__at(view, i);
}

static inline int32_t alea__i32_at(const alea_view *view, int64_t i) {
    return *(const int32_t *)alea__at(view, i);
}

/* Where rows stand in the random stream: arguments seed, offset and row_words from `first` on. */
alea_draw_at alea__call_draw(const alea_cpu_call *call, int32_t first, int64_t row, uint32_t draw);

/* A row of logits as float32: the tensor's own memory, or widened into the scratch. */
const float *alea__call_logits(const alea_cpu_call *call, const alea_view *view,
                               alea_row_scratch *scratch, int64_t row);

typedef void (*alea_row_fn)(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row);

void alea__run_topk_select(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row);
void alea__run_topk_mask(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row);
void alea__run_minp_mask(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row);
void alea__run_topp_mask(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row);
void alea__run_topk_topp_mask(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row);
void alea__run_sample_probs(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row);
void alea__run_chain_sample(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row);
void alea__run_logprobs(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row);
void alea__run_sample_logits(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row);
void alea__run_chain_logits(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row);

/* Refuse values outside their domain: some always, for memory's sake, others where asked. */
alea_status alea__check_values(const alea_cpu_call *call, alea_error *error) ALEA_MUST_USE;

#endif
