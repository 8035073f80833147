/*
 * The edited attention of libllama by itself: a row computed alone, with the other rows of its
 * token batch, and by several threads has the same bytes, and lies beside a plain sum in double.
 *
 * Models cannot show this for every shape: few have sinks, slopes, soft caps or odd head sizes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <ggml-cpu.h>
#include <ggml.h>

#include "support/fill.h"

enum { MEMORY_BYTES = 256 << 20, SHAPES = 120 };

typedef struct shape {
    int32_t depth, key_heads, shared, tokens, streams, cells;
    bool float32, sinks, masked;
    float bias, cap;
} shape;

typedef struct inputs {
    struct ggml_context *context;
    struct ggml_tensor *q, *k, *v, *mask, *sinks;
} inputs;

static uint64_t state;

static uint32_t draw(uint32_t below) {
    return (uint32_t)(test_random(&state) % below);
}

static shape draw_shape(void) {
    static const int32_t depths[] = {40, 64, 80, 96, 100, 128};
    shape s = {.depth = depths[draw(6)],
               .key_heads = 1 + (int32_t)draw(3),
               .shared = 1 + (int32_t)draw(4),
               .tokens = 1 + (int32_t)draw(draw(3) == 0 ? 130 : 6),
               .streams = 1 + (int32_t)draw(2),
               .cells = draw(2) == 0 ? 64 * (1 + (int32_t)draw(4)) : 1 + (int32_t)draw(200),
               .float32 = draw(6) == 0,
               .sinks = draw(3) == 0,
               .masked = draw(6) != 0,
               .cap = draw(4) == 0 ? 30.0F : 0.0F};
    if (s.masked && draw(4) == 0) s.bias = 8.0F;
    return s;
}

static void fill(struct ggml_tensor *tensor) {
    int64_t n = ggml_nelements(tensor);
    for (int64_t i = 0; i < n; i++) {
        float value = ((float)draw(20001) - 10000.0F) / 4000.0F;
        if (tensor->type == GGML_TYPE_F32)
            ((float *)tensor->data)[i] = value;
        else
            ((ggml_fp16_t *)tensor->data)[i] = ggml_fp32_to_fp16(value);
    }
}

/* Each row sees a window of cells that is never empty; with a bias the mask holds distances. */
static void fill_mask(const shape *s, ggml_fp16_t *mask) {
    for (int32_t row = 0; row < s->tokens * s->streams; row++, mask += s->cells) {
        int32_t last = (int32_t)draw((uint32_t)s->cells);
        int32_t first = draw(3) == 0 ? (int32_t)draw((uint32_t)last + 1) : 0;
        for (int32_t cell = 0; cell < s->cells; cell++) {
            float seen = s->bias > 0.0F ? -(float)(last - cell) : 0.0F;
            mask[cell] = ggml_fp32_to_fp16(cell >= first && cell <= last ? seen : -INFINITY);
        }
    }
}

static inputs make(const shape *s) {
    struct ggml_init_params memory = {MEMORY_BYTES, NULL, false};
    inputs in = {.context = ggml_init(memory)};
    assert_non_null(in.context);
    enum ggml_type type = s->float32 ? GGML_TYPE_F32 : GGML_TYPE_F16;
    int32_t heads = s->key_heads * s->shared;
    in.q = ggml_new_tensor_4d(in.context, GGML_TYPE_F32, s->depth, heads, s->tokens, s->streams);
    in.k = ggml_new_tensor_4d(in.context, type, s->depth, s->key_heads, s->cells, s->streams);
    in.v = ggml_new_tensor_4d(in.context, type, s->depth, s->key_heads, s->cells, s->streams);
    in.sinks = ggml_new_tensor_1d(in.context, GGML_TYPE_F32, heads);
    in.mask = ggml_new_tensor_4d(in.context, GGML_TYPE_F16, s->cells, s->tokens, 1, s->streams);
    fill(in.q);
    fill(in.k);
    fill(in.v);
    fill(in.sinks);
    fill_mask(s, in.mask->data);
    return in;
}

/* The heads' outputs for `tokens` of each stream from `first` on: [stream][token][head][depth]. */
static const float *attend(const shape *s, const inputs *in, int32_t first, int32_t tokens,
                           int32_t threads) {
    struct ggml_context *c = in->context;
    const struct ggml_tensor *all = in->q;
    struct ggml_tensor *q =
        ggml_view_4d(c, in->q, all->ne[0], all->ne[1], tokens, all->ne[3], all->nb[1], all->nb[2],
                     all->nb[3], (size_t)first * all->nb[2]);
    struct ggml_tensor *mask = in->mask;
    mask = ggml_view_4d(c, mask, mask->ne[0], tokens, 1, mask->ne[3], mask->nb[1], mask->nb[2],
                        mask->nb[3], (size_t)first * mask->nb[1]);
    struct ggml_tensor *out =
        ggml_flash_attn_ext(c, ggml_permute(c, q, 0, 2, 1, 3), ggml_permute(c, in->k, 0, 2, 1, 3),
                            ggml_permute(c, in->v, 0, 2, 1, 3),
                            s->masked ? ggml_cont(c, mask) : NULL, 0.125F, s->bias, s->cap);
    if (s->sinks) ggml_flash_attn_ext_add_sinks(out, in->sinks);
    struct ggml_cgraph *graph = ggml_new_graph(c);
    ggml_build_forward_expand(graph, out);
    assert_int_equal(ggml_graph_compute_with_ctx(c, graph, threads), GGML_STATUS_SUCCESS);
    return out->data;
}

static double element(const struct ggml_tensor *t, int64_t i, int64_t j, int64_t k, int64_t l) {
    const char *at = (const char *)t->data + (size_t)i * t->nb[0] + (size_t)j * t->nb[1] +
                     (size_t)k * t->nb[2] + (size_t)l * t->nb[3];
    if (t->type == GGML_TYPE_F32) return (double)*(const float *)at;
    return (double)ggml_fp16_to_fp32(*(const ggml_fp16_t *)at);
}

/* ALiBi's slope of a head: powers of one base below the largest power of two, of its root above. */
static double slope_of(const shape *s, int32_t head) {
    if (!(s->bias > 0.0F)) return 1.0;
    int32_t below = 1;
    while (below * 2 <= s->key_heads * s->shared)
        below *= 2;
    double exponent = -(double)s->bias / below;
    if (head < below) return exp2(exponent * (head + 1));
    return exp2(exponent / 2.0 * (2 * (head - below) + 1));
}

static double score(const shape *s, const inputs *in, int32_t stream, int32_t token, int32_t head,
                    int32_t cell) {
    double sum = 0.0;
    for (int32_t i = 0; i < s->depth; i++)
        sum += element(in->q, i, head, token, stream) *
               element(in->k, i, head / s->shared, cell, stream);
    sum *= 0.125;
    if (s->cap != 0.0F) sum = (double)s->cap * tanh(sum / (double)s->cap);
    if (s->masked) sum += slope_of(s, head) * element(in->mask, cell, token, 0, stream);
    return sum;
}

/* One output row in double, compared with what was computed. */
static void check_row(const shape *s, const inputs *in, int32_t stream, int32_t token, int32_t head,
                      const float *row) {
    double *sums = calloc((size_t)s->depth, sizeof *sums), total = 0.0;
    assert_non_null(sums);
    if (s->sinks) total = exp(element(in->sinks, head, 0, 0, 0));
    for (int32_t cell = 0; cell < s->cells; cell++) {
        double weight = exp(score(s, in, stream, token, head, cell));
        total += weight;
        for (int32_t i = 0; i < s->depth; i++)
            sums[i] += weight * element(in->v, i, head / s->shared, cell, stream);
    }
    for (int32_t i = 0; i < s->depth; i++)
        assert_true(fabs(sums[i] / total - (double)row[i]) < 2e-5);
    free(sums);
}

static void test_each_row_has_the_same_bytes_alone_and_is_right(void **unused) {
    (void)unused;
    state = 20261130;
    for (int32_t i = 0; i < SHAPES; i++) {
        shape s = draw_shape();
        inputs in = make(&s);
        int32_t heads = s.key_heads * s.shared;
        size_t row = (size_t)heads * (size_t)s.depth, row_bytes = row * sizeof(float);
        const float *all = attend(&s, &in, 0, s.tokens, 1);
        const float *threads = attend(&s, &in, 0, s.tokens, 2 + (int32_t)draw(2));
        assert_memory_equal(all, threads, row_bytes * (size_t)(s.tokens * s.streams));

        int32_t token = (int32_t)draw((uint32_t)s.tokens);
        const float *alone = attend(&s, &in, token, 1, 1);
        for (int32_t stream = 0; stream < s.streams; stream++) {
            const float *among = all + (size_t)(stream * s.tokens + token) * row;
            assert_memory_equal(among, alone + (size_t)stream * row, row_bytes);
            int32_t head = (int32_t)draw((uint32_t)heads);
            check_row(&s, &in, stream, token, head, among + (size_t)head * (size_t)s.depth);
        }
        ggml_free(in.context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_row_has_the_same_bytes_alone_and_is_right),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
