/* Passes over one row that threads may share: each task takes 16 segments. Sums are of integers
 * and maxima have no order, so how a row was split cannot be seen. */
#include <math.h>

#include "ops/check.h"
#include "ops/row_scratch.h"

static int32_t chunks_of(int32_t n) {
    return (n + ALEA_ROW_CHUNK - 1) / ALEA_ROW_CHUNK;
}

/* Without a pool a row is one chunk. */
static void run_chunks(const alea_row_scratch *scratch, alea_task_fn task, void *user, int32_t n) {
    if (scratch->pool) {
        alea__pool_run(scratch->pool, task, user, chunks_of(n));
    } else {
        task(user, -1);
    }
}

typedef struct span {
    int32_t first, length;
} span;

static span chunk_span(int32_t index, int32_t n) {
    if (index < 0) return (span){0, n};
    const int32_t left = n - index * ALEA_ROW_CHUNK;
    return (span){index * ALEA_ROW_CHUNK, left < ALEA_ROW_CHUNK ? left : ALEA_ROW_CHUNK};
}

static void run_maxima(void *user, int32_t index) {
    alea_row_scratch *scratch = user;
    const span part = chunk_span(index, scratch->scan.vocab);
    const int32_t segment = part.first / ALEA_SEGMENT;
    scratch->kernels->lane_max(scratch->scan.logits + part.first, part.length,
                               scratch->lanes + segment * ALEA_LANES,
                               scratch->scan.segment_max + segment);
}

float alea__row_maxima(alea_row_scratch *scratch, const float *x, int32_t n) {
    alea_row_scan *scan = &scratch->scan;
    scan->kernels = scratch->kernels;
    scan->pool = scratch->pool;
    scan->logits = x;
    scan->vocab = n;
    scan->n_segments = (n + ALEA_SEGMENT - 1) / ALEA_SEGMENT;
    scan->max = -INFINITY;
    if (n == 0) return scan->max;
    run_chunks(scratch, run_maxima, scratch, n);
    for (int32_t s = 0; s < scan->n_segments; s++) {
        if (!(scan->segment_max[s] <= scan->max)) scan->max = scan->segment_max[s];
        if (isnan(scan->max)) break;
    }
    return scan->max;
}

typedef struct keep_task {
    const alea_kernel_table *kernels;
    void *out;
    const void *x;
    const float *value;
    int32_t n;
    float cut;
    uint16_t dropped; /* bits of -inf; 0: x is float32 */
} keep_task;

static void run_keep(void *user, int32_t index) {
    const keep_task *task = user;
    const span part = chunk_span(index, task->n);
    if (task->dropped == 0) {
        task->kernels->keep_ge((float *)task->out + part.first, (const float *)task->x + part.first,
                               part.length, task->cut);
    } else {
        task->kernels->keep_ge_half(
            (uint16_t *)task->out + part.first, (const uint16_t *)task->x + part.first,
            task->value + part.first, part.length, task->cut, task->dropped);
    }
}

void alea__row_keep(alea_row_scratch *scratch, void *out, const void *x, const float *value,
                    int32_t n, float cut, uint32_t dtype_bit) {
    const uint16_t dropped = dtype_bit == ALEA_BIT_F16    ? 0xfc00
                             : dtype_bit == ALEA_BIT_BF16 ? 0xff80
                                                          : 0;
    keep_task task = {scratch->kernels, out, x, value, n, cut, dropped};
    if (n > 0) run_chunks(scratch, run_keep, &task, n);
}

typedef struct widen_task {
    void (*widen)(float *out, const uint16_t *in, int32_t n);
    float *out;
    const uint16_t *x;
    int32_t n;
} widen_task;

static void run_widen(void *user, int32_t index) {
    const widen_task *task = user;
    const span part = chunk_span(index, task->n);
    task->widen(task->out + part.first, task->x + part.first, part.length);
}

void alea__row_widen(alea_row_scratch *scratch, const void *x, int32_t n, uint32_t dtype_bit) {
    const alea_kernel_table *k = scratch->kernels;
    widen_task task = {dtype_bit == ALEA_BIT_F16 ? k->widen_f16 : k->widen_bf16, scratch->row, x,
                       n};
    if (n > 0) run_chunks(scratch, run_widen, &task, n);
}
