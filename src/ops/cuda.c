/*
 * The CUDA target. An operator holds device memory for as many rows as it works on at a time, on
 * the device that was current when it was made; a run turns tensors into addresses and enqueues.
 *
 * Values are the caller's affair here: looking at them would mean waiting for the stream. What
 * would address memory is looked at on the device, and counts as not given.
 */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "ops/check.h"
#include "ops/cuda.h"
#include "ops/target.h"

enum { ROWS_DEFAULT = 1024, WORKSPACE_BYTES = 64 << 20 };
enum { ROWS_A_CHAIN = 9, CHAIN_DRAFTS = 64 }; /* four drafts are common */

typedef struct cuda_op {
    const alea_cuda_api *api;
    alea_op_kind kind;
    int device;
    int64_t workspace_rows;
    alea_cuda_workspace *workspace;
} cuda_op;

static void cuda_destroy(void *state) {
    cuda_op *op = state;
    if (!op) return;
    op->api->workspace_destroy(op->workspace);
    free(op);
}

/* Rows at a time: those that a call may bring, as far as 64 MB go, and 16 at least. A chain from
 * logits has a row for each target and each draft, and all of one chain's have room together. */
static int64_t rows_at_a_time(alea_op_kind kind, const alea_op_config *config) {
    const bool chains = kind == ALEA_OP_CHAIN_LOGITS;
    const int64_t least = chains ? 2 * CHAIN_DRAFTS + 1 : 16;
    const int64_t row_bytes = 160 * (int64_t)(config->max_vocab / 1024 + 2) + 8192;
    const int64_t fit = WORKSPACE_BYTES / row_bytes, room = fit < least ? least : fit;
    int64_t rows = config->max_rows > 0 ? config->max_rows : ROWS_DEFAULT;
    if (rows > room) return room;
    if (chains) rows = rows * ROWS_A_CHAIN < least ? least : rows * ROWS_A_CHAIN;
    return rows < room ? rows : room;
}

static alea_status cuda_create(void *user, alea_op_kind kind, const alea_op_config *config,
                               void **state, alea_error *error) {
    (void)user;
    const bool named = config->target && strcmp(config->target, alea__target_cuda.name) == 0;
    if (!named && !alea__cuda_in_use()) { /* a program of the CPU pays nothing for the GPU */
        return alea_error_set(error, ALEA_EUNSUPPORTED,
                              "CUDA was not in use when this was made; name the target");
    }
    if (config->flags & ALEA_OP_CHECK_VALUES) {
        return alea_error_set(error, ALEA_EUNSUPPORTED,
                              "ALEA_OP_CHECK_VALUES would have to wait for the device");
    }
    const alea_cuda_api *api = alea__cuda_open(error);
    if (!api) return ALEA_EUNSUPPORTED;
    cuda_op *op = calloc(1, sizeof *op);
    if (!op) return alea_error_set(error, ALEA_ENOMEM, "no memory for an operator");
    *op = (cuda_op){.api = api, .kind = kind};
    int code = api->probe(&op->device);
    if (!code) {
        op->workspace_rows = rows_at_a_time(kind, config);
        code = api->workspace_create((int32_t)kind, op->workspace_rows, config->max_vocab,
                                     &op->workspace);
    }
    if (code) {
        free(op);
        const alea_status status =
            alea__cuda_failed(api, code, "no workspace on the device", error);
        return named ? status : ALEA_EUNSUPPORTED; /* the CPU can serve all the same */
    }
    *state = op;
    return ALEA_OK;
}

_Static_assert((int)ALEA_CUDA_RANK == (int)ALEA_OP_RANK_MAX, "a view has room for any tensor");

static alea_cuda_view view_of(const DLTensor *tensor) {
    alea_cuda_view view = {0};
    if (tensor) view.data = alea__tensor_open(tensor, view.size, view.step);
    return view;
}

static int32_t dtype_of(const DLTensor *tensor) {
    switch (alea__dtype_bit(tensor->dtype)) {
    case ALEA_BIT_F16: return ALEA_CUDA_F16;
    case ALEA_BIT_BF16: return ALEA_CUDA_BF16;
    default: return ALEA_CUDA_F32;
    }
}

static alea_status cuda_run(void *state, const DLTensor *const *tensors, int32_t n_tensors,
                            void *stream, alea_error *error) {
    cuda_op *op = state;
    const int32_t logits_at = alea__op_rules(op->kind)->logits_at;
    const DLTensor *logits = tensors[logits_at];
    if (logits->device.device_id != op->device) {
        return alea_error_set(error, ALEA_EINVAL,
                              "the operator was made on CUDA device %d; these tensors are on %d",
                              op->device, (int)logits->device.device_id);
    }
    int current;
    int code = op->api->probe(&current);
    if (!code && current != op->device) {
        return alea_error_set(error, ALEA_EINVAL,
                              "CUDA device %d is current; make %d current, that of the tensors",
                              current, op->device);
    }
    alea_cuda_call call = {.dtype = dtype_of(logits)};
    for (int32_t i = 0; i < n_tensors; i++)
        call.views[i] = view_of(tensors[i]);
    alea__call_sizes(op->kind, call.views[logits_at].size, logits->ndim, &call.rows, &call.vocab);
    if (call.rows == 0 || call.vocab == 0) return ALEA_OK;
    if (op->kind == ALEA_OP_TOPK_SELECT && call.rows > INT32_MAX) {
        return alea_error_set(error, ALEA_ELIMIT, "scores has %lld windows; 2^31 - 1 is the most",
                              (long long)call.rows);
    }
    if (op->kind == ALEA_OP_CHAIN_LOGITS) {
        enum { DRAFT_LOGITS = 3, DRAFT_TOKENS };
        const int64_t drafts = call.views[DRAFT_TOKENS].size[1];
        const int64_t room = op->workspace_rows - 1;
        if (drafts > (tensors[DRAFT_LOGITS] ? room / 2 : room))
            return alea_error_set(
                error, ALEA_ELIMIT, "draft_tokens has %lld drafts; the workspace has room for %lld",
                (long long)drafts, (long long)(tensors[DRAFT_LOGITS] ? room / 2 : room));
    }
    if (!code) code = op->api->run((int32_t)op->kind, &call, op->workspace, stream);
    return code ? alea__cuda_failed(op->api, code, alea_op_name(op->kind), error) : ALEA_OK;
}

const alea_op_target alea__target_cuda = {.struct_bytes = sizeof(alea_op_target),
                                          .name = "cuda",
                                          .device_type = kDLCUDA,
                                          .create = cuda_create,
                                          .destroy = cuda_destroy,
                                          .run = cuda_run};
