/* The best positions of each query row's window, as a set: what is above the cut, then as many of
 * what equals it, from the left, as there are slots. */
#include <math.h>
#include <string.h>

#include "ops/cpu.h"

enum { INDICES, SCORES, STARTS, ENDS };

typedef struct slots {
    char *out;
    int64_t step;
    int32_t used, n;
} slots;

static void slots_put(slots *s, int32_t position) {
    *(int32_t *)(s->out + s->used++ * s->step) = position;
}

/* The window's scores in one run. */
static const float *window_scores(const alea_view *scores, const char *from, int32_t n,
                                  float *buffer) {
    const int64_t step = scores->step[2];
    if (step == (int64_t)sizeof(float) || n < 2) return (const float *)from;
    for (int32_t i = 0; i < n; i++)
        buffer[i] = *(const float *)(from + i * step);
    return buffer;
}

static void put_nans(slots *s, const float *x, int32_t n, int32_t start) {
    for (int32_t i = 0; i < n && s->used < s->n; i++) {
        if (isnan(x[i])) slots_put(s, start + i);
    }
}

/* Fill the slots that are left from a window that holds more numbers than that. */
static void put_best(slots *s, alea_row_scratch *scratch, const float *x, int32_t start) {
    const alea_kth kth = alea__row_kth(scratch, s->n - s->used);
    const int32_t n_candidates =
        kth.n_candidates < 0 ? alea__row_collect(scratch, kth.value) : kth.n_candidates;
    for (int32_t i = 0; i < n_candidates; i++) {
        if (scratch->values[i] > kth.value) slots_put(s, start + scratch->ids[i]);
    }
    for (int32_t i = 0; i < n_candidates && s->used < s->n; i++) {
        /* Read from the window: a NaN was made -inf for the search, and is no -inf. */
        if (x[scratch->ids[i]] == kth.value) slots_put(s, start + scratch->ids[i]);
    }
}

void alea__run_topk_select(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row) {
    const alea_view *scores = &call->views[SCORES], *out = &call->views[INDICES];
    const int64_t group = row % scores->size[3];
    const int64_t query = row / scores->size[3] % scores->size[1];
    const int64_t batch = row / scores->size[3] / scores->size[1];
    int32_t start = *(const int32_t *)alea__at2(&call->views[STARTS], batch, query);
    int32_t end = *(const int32_t *)alea__at2(&call->views[ENDS], batch, query);
    if (start < 0) start = 0;
    if (end > call->vocab) end = call->vocab;
    const int32_t n = end > start ? end - start : 0;

    slots s = {.out =
                   out->data + batch * out->step[0] + query * out->step[1] + group * out->step[2],
               .step = out->step[3],
               .n = (int32_t)out->size[3]};
    if (n <= s.n) {
        for (int32_t i = 0; i < n; i++)
            slots_put(&s, start + i);
    } else {
        const char *from = scores->data + batch * scores->step[0] + query * scores->step[1] +
                           group * scores->step[3] + start * scores->step[2];
        const float *x = window_scores(scores, from, n, scratch->row);
        if (isnan(alea__row_maxima(scratch, x, n))) {
            put_nans(&s, x, n, start);
            scratch->kernels->keep_ge(scratch->clean, x, n, -INFINITY);
            (void)alea__row_maxima(scratch, scratch->clean, n);
        }
        if (s.used < s.n) put_best(&s, scratch, x, start);
    }
    while (s.used < s.n)
        slots_put(&s, call->vocab);
}
