/*
 * The edited products of libllama by themselves: a column computed alone, with others and by
 * several threads has the same bytes, and lies beside a plain sum in double. Matrices of Q4_1 are
 * computed four rows at a time, which changes no byte.
 *
 * A model has few shapes, and what one computes wrong for every schedule its rows alone do not
 * show. Matrices whose rows are no multiple of four are computed in two parts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <ggml-cpu.h>
#include <ggml.h>

#include "support/fill.h"

enum { MEMORY_BYTES = 32 << 20, SHAPES = 120 };
enum { Q4_1_VALUES = 32, Q4_1_BYTES = 20 };

/* [rows][depth] weights times [columns][depth] inputs give [columns][rows]. */
typedef struct product {
    enum ggml_type type;
    int32_t rows, columns, depth;
    struct ggml_context *context;
    struct ggml_tensor *weights, *inputs;
} product;

static uint64_t state;

static uint32_t draw(uint32_t below) {
    return (uint32_t)(test_random(&state) % below);
}

/* Every type has these values exactly, so that the one error is that of the sum, which depends on
 * its order, as they differ in size. */
static float draw_value(void) {
    return ldexpf((float)draw(255) - 127.0F, -6 - (int)draw(9));
}

static void put(struct ggml_tensor *tensor, int64_t i, float value) {
    if (tensor->type == GGML_TYPE_F32) ((float *)tensor->data)[i] = value;
    if (tensor->type == GGML_TYPE_F16) ((ggml_fp16_t *)tensor->data)[i] = ggml_fp32_to_fp16(value);
    if (tensor->type == GGML_TYPE_BF16) ((ggml_bf16_t *)tensor->data)[i] = ggml_fp32_to_bf16(value);
}

/* Any bytes are weights, as long as the two float16 before them are no huge numbers. */
static void put_blocks(struct ggml_tensor *tensor) {
    uint8_t *block = tensor->data;
    for (size_t n = ggml_nbytes(tensor) / Q4_1_BYTES; n > 0; n--, block += Q4_1_BYTES) {
        const ggml_fp16_t both[2] = {ggml_fp32_to_fp16(draw_value()),
                                     ggml_fp32_to_fp16(draw_value())};
        memcpy(block, both, sizeof both);
        for (size_t i = sizeof both; i < Q4_1_BYTES; i++)
            block[i] = (uint8_t)draw(256);
    }
}

static double get(const struct ggml_tensor *tensor, int64_t i) {
    if (tensor->type == GGML_TYPE_F32) return (double)((const float *)tensor->data)[i];
    if (tensor->type == GGML_TYPE_F16)
        return (double)ggml_fp16_to_fp32(((const ggml_fp16_t *)tensor->data)[i]);
    return (double)ggml_bf16_to_fp32(((const ggml_bf16_t *)tensor->data)[i]);
}

static product make(void) {
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16,
                                           GGML_TYPE_Q4_1};
    struct ggml_init_params memory = {MEMORY_BYTES, NULL, false};
    product p = {.type = types[draw(4)],
                 .rows = 1 + (int32_t)draw(draw(2) == 0 ? 12 : 150),
                 .columns = 1 + (int32_t)draw(draw(2) == 0 ? 4 : 40),
                 .depth = draw(4) == 0 ? 1 + (int32_t)draw(90) : 32 * (1 + (int32_t)draw(8)),
                 .context = ggml_init(memory)};
    assert_non_null(p.context);
    if (p.type == GGML_TYPE_Q4_1) p.depth = (p.depth + Q4_1_VALUES - 1) / Q4_1_VALUES * Q4_1_VALUES;
    p.weights = ggml_new_tensor_2d(p.context, p.type, p.depth, p.rows);
    p.inputs = ggml_new_tensor_2d(p.context, GGML_TYPE_F32, p.depth, p.columns);
    if (p.type == GGML_TYPE_Q4_1) put_blocks(p.weights);
    for (int64_t i = 0; p.type != GGML_TYPE_Q4_1 && i < (int64_t)p.depth * p.rows; i++)
        put(p.weights, i, draw_value());
    for (int64_t i = 0; i < (int64_t)p.depth * p.columns; i++)
        put(p.inputs, i, draw_value());
    return p;
}

/* Columns first..first+n. What was there before the product was no number. */
static const float *multiply(const product *p, int32_t first, int32_t n, int32_t threads) {
    struct ggml_tensor *inputs = ggml_view_2d(p->context, p->inputs, p->depth, n, p->inputs->nb[1],
                                              (size_t)first * p->inputs->nb[1]);
    struct ggml_tensor *out = ggml_mul_mat(p->context, p->weights, inputs);
    float *data = out->data;
    for (int64_t i = 0; i < (int64_t)n * p->rows; i++)
        data[i] = NAN;
    struct ggml_cgraph *graph = ggml_new_graph(p->context);
    ggml_build_forward_expand(graph, out);
    assert_int_equal(ggml_graph_compute_with_ctx(p->context, graph, threads), GGML_STATUS_SUCCESS);
    return data;
}

/* Not of Q4_1, whose inputs are rounded to 8 bits: for these ggml's own product is the measure. */
static void check_column(const product *p, int32_t column, const float *got) {
    if (p->type == GGML_TYPE_Q4_1) return;
    for (int32_t row = 0; row < p->rows; row++) {
        double sum = 0.0, size = 0.0;
        for (int64_t i = 0; i < p->depth; i++) {
            double part = get(p->weights, (int64_t)row * p->depth + i) *
                          get(p->inputs, (int64_t)column * p->depth + i);
            sum += part;
            size += fabs(part);
        }
        if (!(fabs((double)got[row] - sum) <= size * 1e-5))
            fail_msg("%s, %d x %d by %d, row %d, column %d: %g, not %g", ggml_type_name(p->type),
                     p->rows, p->depth, p->columns, row, column, (double)got[row], sum);
    }
}

static void test_each_column_has_the_same_bytes_alone_and_is_right(void **unused) {
    (void)unused;
    state = 20261130;
    for (int32_t i = 0; i < SHAPES; i++) {
        product p = make();
        size_t column_bytes = (size_t)p.rows * sizeof(float);
        const float *all = multiply(&p, 0, p.columns, 1);
        const float *threads = multiply(&p, 0, p.columns, 2 + (int32_t)draw(2));
        assert_memory_equal(all, threads, column_bytes * (size_t)p.columns);
        for (int32_t tries = 0; tries < 3; tries++) {
            int32_t first = (int32_t)draw((uint32_t)p.columns);
            int32_t n = tries == 0 ? 1 : 1 + (int32_t)draw((uint32_t)(p.columns - first));
            const float *some = multiply(&p, first, n, 1 + tries);
            assert_memory_equal(all + (size_t)first * (size_t)p.rows, some,
                                column_bytes * (size_t)n);
            check_column(&p, first, some);
        }
        ggml_free(p.context);
    }
}

/* Of weights whose rows lie apart: ggml's own products of one row and one column. */
static void check_own_bytes(const product *p, const struct ggml_tensor *weights) {
    const struct ggml_type_traits_cpu *own = ggml_get_type_traits_cpu(GGML_TYPE_Q4_1);
    const size_t bytes = ggml_row_size(own->vec_dot_type, weights->ne[0]);
    const int depth = (int)weights->ne[0];
    product narrow = *p;
    narrow.weights =
        ggml_view_2d(p->context, (struct ggml_tensor *)weights, depth, p->rows, weights->nb[1], 0);
    narrow.depth = depth;
    const float *got = multiply(&narrow, 0, p->columns, 1 + (int32_t)draw(3));
    void *column = malloc(bytes);
    for (int32_t c = 0; c < p->columns; c++) {
        ggml_get_type_traits_cpu(own->vec_dot_type)
            ->from_float((const float *)p->inputs->data + (size_t)c * (size_t)p->depth, column,
                         depth);
        for (int32_t r = 0; r < p->rows; r++) {
            float one;
            own->vec_dot(depth, &one, 0, (const char *)weights->data + (size_t)r * weights->nb[1],
                         0, column, 0, 1);
            assert_memory_equal(&one, &got[(size_t)c * (size_t)p->rows + (size_t)r], sizeof one);
        }
    }
    free(column);
}

/* The edited product is but a faster one. The compilers here make one fused operation of ggml's
 * multiplication and sum of minimums, as the edited one has it written. */
static void test_a_product_of_q4_1_has_the_bytes_of_ggml_s_own(void **unused) {
    (void)unused;
    state = 20261201;
    for (int32_t done = 0; done < SHAPES / 4;) {
        product p = make();
        if (p.type == GGML_TYPE_Q4_1) {
            done++;
            struct ggml_tensor narrow = *p.weights;
            if (done % 2 && p.depth > Q4_1_VALUES) narrow.ne[0] -= Q4_1_VALUES;
            check_own_bytes(&p, &narrow);
        }
        ggml_free(p.context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_product_of_q4_1_has_the_bytes_of_ggml_s_own),
        cmocka_unit_test(test_each_column_has_the_same_bytes_alone_and_is_right),
    };
    return cmocka_run_group_tests_name("products", tests, NULL, NULL);
}
