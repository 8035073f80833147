#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_copy.h"
#include "ops/check.h"
#include "ops/cuda.h"
#include "ops/target.h"

enum { ALIGN = 256, CAPTURED_EVERY = 4 };

/* One for the process: calls come one at a time. */
static const alea_cuda_api *api;
static void *stream;
static char *arena;
static size_t arena_bytes;
static int64_t calls;

typedef struct copy_op {
    alea_op *inner;
    alea_op_kind kind;
} copy_op;

static alea_status copy_create(void *user, alea_op_kind kind, const alea_op_config *config,
                               void **state, alea_error *error) {
    (void)user;
    copy_op *op = calloc(1, sizeof *op);
    if (!op) return ALEA_ENOMEM;
    alea_op_config inner = *config;
    inner.target = "cuda";
    op->kind = kind;
    const alea_status status = alea__op_create(kind, &inner, &op->inner, error);
    if (status < 0) {
        free(op);
        return status;
    }
    *state = op;
    return ALEA_OK;
}

static void copy_destroy(void *state) {
    copy_op *op = state;
    alea__op_destroy(op->inner);
    free(op);
}

/* Memory that tensors of a call share, on the host and where it lies in the arena. */
typedef struct span {
    uintptr_t first, end;
    size_t at;
} span;

static span span_of(const DLTensor *t) {
    int64_t reach = 0, compact = 1;
    for (int32_t d = t->ndim; d-- > 0;) {
        if (t->shape[d] == 0) return (span){0, 0, 0};
        reach += (t->shape[d] - 1) * (t->strides ? t->strides[d] : compact);
        compact *= t->shape[d];
    }
    const uintptr_t first = (uintptr_t)t->data + t->byte_offset;
    return (span){first, first + (size_t)(reach + 1) * (t->dtype.bits / 8u), 0};
}

/* Spans that touch become one, so that what shares memory on the host does so on the device. */
static int merge(span *spans, int n) {
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < n; i++) {
            for (int j = i + 1; j < n; j++) {
                if (spans[i].end <= spans[j].first || spans[j].end <= spans[i].first) continue;
                if (spans[j].first < spans[i].first) spans[i].first = spans[j].first;
                if (spans[j].end > spans[i].end) spans[i].end = spans[j].end;
                spans[j] = spans[--n];
                again = true;
            }
        }
    }
    return n;
}

static int place(span *spans, int n) {
    size_t used = 0;
    for (int i = 0; i < n; i++) {
        spans[i].at = used + spans[i].first % ALIGN; /* an odd address is as odd over there */
        used = (spans[i].at + (spans[i].end - spans[i].first) + ALIGN - 1) / ALIGN * ALIGN;
    }
    if (used <= arena_bytes) return 0;
    api->lab.release(arena);
    arena_bytes = used + used / 2;
    return api->lab.allocate(arena_bytes, (void **)&arena);
}

static DLTensor moved(const DLTensor *t, const span *spans, int n) {
    DLTensor there = *t;
    const span own = span_of(t);
    there.device = (DLDevice){kDLCUDA, 0};
    there.byte_offset = 0;
    for (int i = 0; i < n; i++) {
        if (own.first >= spans[i].first && own.end <= spans[i].end && own.end > own.first) {
            there.data = arena + spans[i].at + (own.first - spans[i].first);
        }
    }
    return there;
}

static alea_status run_there(copy_op *op, const DLTensor *const *tensors, bool captured,
                             alea_error *error) {
    if (!captured) return alea__op_run(op->inner, tensors, stream, error);
    void *graph;
    int code = api->lab.capture_begin(stream);
    const alea_status status = alea__op_run(op->inner, tensors, stream, error);
    if (!code) code = api->lab.capture_end(stream, &graph);
    if (status < 0) return status;
    if (!code) code = api->lab.graph_launch(graph, stream);
    if (!code) code = api->lab.stream_wait(stream);
    if (!code) code = api->lab.graph_destroy(graph);
    return code ? alea__cuda_failed(api, code, "capture", error) : ALEA_OK;
}

static alea_status copy_run(void *state, const DLTensor *const *tensors, int32_t n_tensors,
                            void *host_stream, alea_error *error) {
    (void)host_stream;
    span spans[ALEA_OP_TENSORS_MAX];
    DLTensor there[ALEA_OP_TENSORS_MAX];
    const DLTensor *list[ALEA_OP_TENSORS_MAX] = {0};
    int n = 0;
    for (int32_t i = 0; i < n_tensors; i++) {
        if (!tensors[i]) continue;
        spans[n] = span_of(tensors[i]);
        n += spans[n].end > spans[n].first;
    }
    n = merge(spans, n);
    int code = place(spans, n);
    for (int i = 0; i < n && !code; i++)
        code = api->lab.copy_in(arena + spans[i].at, (const void *)spans[i].first,
                                spans[i].end - spans[i].first, stream);
    if (code) return alea__cuda_failed(api, code, "copy in", error);
    for (int32_t i = 0; i < n_tensors; i++) {
        if (!tensors[i]) continue;
        there[i] = moved(tensors[i], spans, n);
        list[i] = &there[i];
    }
    const alea_status status =
        run_there(state, list, calls++ % CAPTURED_EVERY == CAPTURED_EVERY - 1, error);
    for (int32_t i = 0; i < n_tensors && status >= 0 && !code; i++) {
        if (!tensors[i]) continue;
        if (!(alea__op_rules(((copy_op *)state)->kind)->arguments[i].flags & ALEA_ARG_OUT))
            continue;
        const span own = span_of(tensors[i]);
        for (int j = 0; j < n; j++) {
            if (own.end == own.first || own.first < spans[j].first || own.end > spans[j].end) {
                continue;
            }
            code = api->lab.copy_out((void *)own.first,
                                     arena + spans[j].at + (own.first - spans[j].first),
                                     own.end - own.first, stream);
        }
    }
    if (!code) code = api->lab.stream_wait(stream);
    if (code) return alea__cuda_failed(api, code, "copy out", error);
    return status;
}

alea_status cuda_copy_register(alea_error *error) {
    static const alea_op_target target = {.struct_bytes = sizeof(alea_op_target),
                                          .flags = ALEA_TARGET_BY_NAME,
                                          .name = CUDA_COPY,
                                          .device_type = kDLCPU,
                                          .create = copy_create,
                                          .destroy = copy_destroy,
                                          .run = copy_run};
    if (api) return ALEA_OK;
    const alea_cuda_api *opened = alea__cuda_open(error);
    if (!opened) return ALEA_EUNSUPPORTED;
    const int code = opened->lab.stream_create(&stream);
    if (code) return alea__cuda_failed(opened, code, "stream", error);
    api = opened;
    return alea_target_register(&target, error);
}

const char *cuda_copy_wanted(void) {
    const char *name = getenv("ALEA_TEST_TARGET");
    if (!name || strcmp(name, CUDA_COPY) != 0) return NULL;
    alea_error error = {0};
    if (cuda_copy_register(&error) >= 0) return CUDA_COPY;
    print_message("%s\n", error.message);
    skip();
    return NULL;
}
