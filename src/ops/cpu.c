/*
 * The CPU target: memory is taken when an operator is made, rows are spread over its threads, and
 * where there are fewer rows than threads each row is split instead.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/fenv_check.h"
#include "base/size.h"
#include "ops/cpu.h"
#include "ops/target.h"

static const alea_row_fn row_fns[ALEA_OP_KINDS] = {
    [ALEA_OP_TOPK_SELECT] = alea__run_topk_select,
    [ALEA_OP_TOPK_MASK] = alea__run_topk_mask,
    [ALEA_OP_MINP_MASK] = alea__run_minp_mask,
    [ALEA_OP_TOPP_MASK] = alea__run_topp_mask,
    [ALEA_OP_TOPK_TOPP_MASK] = alea__run_topk_topp_mask,
    [ALEA_OP_SAMPLE_PROBS] = alea__run_sample_probs,
    [ALEA_OP_CHAIN_SAMPLE] = alea__run_chain_sample,
    [ALEA_OP_LOGPROBS] = alea__run_logprobs,
    [ALEA_OP_SAMPLE_LOGITS] = alea__run_sample_logits,
    [ALEA_OP_CHAIN_LOGITS] = alea__run_chain_logits,
};

typedef struct cpu_op {
    alea_op_kind kind;
    alea_op_config config;
    alea_pool *pool;
    int32_t n_threads;
    alea_row_scratch *scratch; /* [n_threads] */
    char *memory;              /* of all scratches */
} cpu_op;

/* The arrays of one scratch, carved from `at`; returns the bytes they take. NULL only measures. */
static size_t carve(alea_row_scratch *scratch, char *at, int32_t max_vocab) {
    const size_t n = (size_t)max_vocab;
    const size_t segments = (n + ALEA_SEGMENT - 1) / ALEA_SEGMENT;
    size_t used = 0;
#define TAKE(member, count)                                                                        \
    do {                                                                                           \
        if (at) scratch->member = (void *)(at + used);                                             \
        used += ((count) * sizeof *scratch->member + 63) & ~(size_t)63;                            \
    } while (0)
    TAKE(row, n);
    TAKE(clean, n);
    TAKE(ids, n > 2048 ? n : 2048);
    TAKE(values, n > 2048 ? n : 2048);
    TAKE(lanes, segments * ALEA_LANES);
    TAKE(masses, segments);
#undef TAKE
    return used;
}

static void cpu_destroy(void *state) {
    cpu_op *op = state;
    if (!op) return;
    alea__pool_destroy(op->pool);
    free(op->memory);
    free(op->scratch);
    free(op);
}

static alea_status cpu_make(const alea_kernel_table *kernels, alea_op_kind kind,
                            const alea_op_config *config, void **state, alea_error *error) {
    const alea_status status = alea__fenv_check(error); /* of the threads too: they inherit it */
    if (status < 0) return status;
    cpu_op *op = calloc(1, sizeof *op);
    if (!op) return alea_error_set(error, ALEA_ENOMEM, "no memory for an operator");
    op->kind = kind;
    op->config = *config;
    op->n_threads = config->threads ? config->threads : alea__cpu_count();

    const size_t n_threads = (size_t)op->n_threads;
    const size_t each = carve(NULL, NULL, config->max_vocab);
    size_t bytes;
    if (alea__size_mul(each, n_threads, &bytes)) op->memory = aligned_alloc(64, bytes);
    op->scratch = calloc(n_threads, sizeof *op->scratch);
    if (!op->memory || !op->scratch) {
        cpu_destroy(op);
        return alea_error_set(error, ALEA_ENOMEM, "no memory for rows of %d on %zu threads",
                              config->max_vocab, n_threads);
    }
    for (size_t i = 0; i < n_threads; i++) {
        op->scratch[i].kernels = kernels;
        carve(&op->scratch[i], op->memory + i * each, config->max_vocab);
    }
    if (op->n_threads > 1 && alea__pool_create(op->n_threads, &op->pool) < 0) {
        cpu_destroy(op);
        return alea_error_set(error, ALEA_ENOMEM, "no threads: %zu were asked for", n_threads);
    }
    *state = op;
    return ALEA_OK;
}

static alea_status cpu_create(void *user, alea_op_kind kind, const alea_op_config *config,
                              void **state, alea_error *error) {
    (void)user;
    return cpu_make(alea__kernels(), kind, config, state, error);
}

static alea_status cpu_ref_create(void *user, alea_op_kind kind, const alea_op_config *config,
                                  void **state, alea_error *error) {
    (void)user;
    return cpu_make(alea__kernels_ref(), kind, config, state, error);
}

static alea_view view_of(const DLTensor *tensor) {
    alea_view view = {0};
    if (!tensor) return view;
    view.data = alea__tensor_open(tensor, view.size, view.step);
    view.rank = tensor->ndim;
    view.dtype_bit = alea__dtype_bit(tensor->dtype);
    return view;
}

typedef struct spread {
    const alea_cpu_call *call;
    cpu_op *op;
    _Atomic int64_t next;
} spread;

/* One task per thread: it takes rows until none is left, with the scratch of its index. */
static void run_rows(void *user, int32_t index) {
    spread *s = user;
    for (;;) {
        const int64_t row = atomic_fetch_add(&s->next, 1);
        if (row >= s->call->rows) return;
        row_fns[s->call->kind](s->call, &s->op->scratch[index], row);
    }
}

static alea_status cpu_run(void *state, const DLTensor *const *tensors, int32_t n_tensors,
                           void *stream, alea_error *error) {
    (void)stream;
    cpu_op *op = state;
    alea_status status = alea__fenv_check(error);
    if (status < 0) return status;
    alea_cpu_call call = {.config = &op->config, .kind = op->kind};
    for (int32_t i = 0; i < n_tensors; i++)
        call.views[i] = view_of(tensors[i]);
    const alea_view *sized = &call.views[alea__op_rules(op->kind)->logits_at];
    alea__call_sizes(op->kind, sized->size, sized->rank, &call.rows, &call.vocab);
    if (call.rows == 0 || call.vocab == 0) return ALEA_OK;
    status = alea__check_values(&call, error);
    if (status < 0) return status;

    const bool split = call.rows < op->n_threads && call.vocab >= 2 * ALEA_ROW_CHUNK;
    if (split) {
        op->scratch[0].pool = op->pool;
        for (int64_t row = 0; row < call.rows; row++)
            row_fns[call.kind](&call, &op->scratch[0], row);
        op->scratch[0].pool = NULL;
        return ALEA_OK;
    }
    spread s = {.call = &call, .op = op};
    const int64_t n_tasks = call.rows < op->n_threads ? call.rows : op->n_threads;
    alea__pool_run(op->pool, run_rows, &s, (int32_t)n_tasks);
    return ALEA_OK;
}

const alea_op_target alea__target_cpu = {.struct_bytes = sizeof(alea_op_target),
                                         .name = "cpu",
                                         .device_type = kDLCPU,
                                         .create = cpu_create,
                                         .destroy = cpu_destroy,
                                         .run = cpu_run};

const alea_op_target alea__target_cpu_ref = {.struct_bytes = sizeof(alea_op_target),
                                             .flags = ALEA_TARGET_BY_NAME,
                                             .name = "cpu-ref",
                                             .device_type = kDLCPU,
                                             .create = cpu_ref_create,
                                             .destroy = cpu_destroy,
                                             .run = cpu_run};
