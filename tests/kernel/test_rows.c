/* Reports of blocks do not depend on threads, neighbours or order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/rows.h"
#include "support/fill.h"

enum { ROWS = 64, VOCAB = 3000 };

typedef struct block {
    float *logits;
    const float *rows[ROWS];
    int32_t tokens[ROWS];
    alea_rows_query query;
} block;

static void block_make(block *b) {
    b->logits = malloc(sizeof(float) * ROWS * VOCAB);
    for (int32_t i = 0; i < ROWS; i++) {
        float *row = b->logits + i * VOCAB;
        test_fill_row(row, VOCAB, (test_fill)(i % TEST_FILL_SOUND_COUNT), (uint64_t)i);
        b->rows[i] = row;
        b->tokens[i] = i * 41 % VOCAB;
    }
    b->query = (alea_rows_query){b->rows, b->tokens, ROWS, VOCAB, 20, true};
}

static void test_threads_do_not_change_a_bit(void **state) {
    (void)state;
    block b;
    block_make(&b);
    alea_row_report want[ROWS], got[ROWS];
    memset(want, 0, sizeof want);
    assert_int_equal(alea__rows_report(alea__kernels(), NULL, &b.query, want, NULL), ALEA_OK);
    for (int32_t i = 0; i < ROWS; i++) {
        alea_row_report alone = {0};
        assert_int_equal(
            alea__row_report(alea__kernels(), b.rows[i], VOCAB, b.tokens[i], 20, true, &alone),
            ALEA_OK);
        assert_memory_equal(&alone, &want[i], sizeof alone);
    }
    for (int32_t n_threads = 1; n_threads <= 4; n_threads++) {
        alea_pool *pool;
        assert_int_equal(alea__pool_create(n_threads, &pool), ALEA_OK);
        for (int round = 0; round < 3; round++) {
            memset(got, 0, sizeof got);
            assert_int_equal(alea__rows_report(alea__kernels(), pool, &b.query, got, NULL),
                             ALEA_OK);
            assert_memory_equal(got, want, sizeof got);
        }
        alea__pool_destroy(pool);
    }
    free(b.logits);
}

/* One row, long enough that threads take parts of it, in every sound fill. */
static void test_threads_that_share_a_row_do_not_change_a_bit(void **state) {
    (void)state;
    enum { LONG = 70001 };
    float *row = malloc(sizeof(float) * LONG);
    assert_non_null(row);
    alea_pool *pool;
    assert_int_equal(alea__pool_create(3, &pool), ALEA_OK);
    for (int32_t i = 0; i < 4 * TEST_FILL_SOUND_COUNT; i++) {
        test_fill_row(row, LONG, (test_fill)(i / 4), (uint64_t)i);
        const int32_t k = i % 4 == 0 ? 0 : 1 + i * 7 % 20;
        alea_row_report want = {0}, got = {0};
        assert_int_equal(alea__row_report(alea__kernels(), row, LONG, i * 1009, k, true, &want),
                         ALEA_OK);
        assert_int_equal(
            alea__row_report_shared(alea__kernels(), pool, row, LONG, i * 1009, k, true, &got),
            ALEA_OK);
        assert_memory_equal(&got, &want, sizeof got);

        const alea_sampling s = {i % 2 ? 0.7f : 1.0f, i % 4 < 2 ? 0 : 50, i % 3 ? 0.9f : 1, 0};
        const alea_draw_at at = {.seed = (uint64_t)i};
        alea_choice chosen = {0}, shared = {0};
        assert_int_equal(alea__row_choose(alea__kernels(), row, LONG, &s, &at, &chosen), ALEA_OK);
        assert_int_equal(alea__row_choose_shared(alea__kernels(), pool, row, LONG, &s, &at,
                                                 ALEA_CHOOSE_ALL, &shared),
                         ALEA_OK);
        assert_memory_equal(&shared, &chosen, sizeof shared);
    }
    alea_row_report report = {.rank = 7};
    row[LONG - 3] = NAN;
    assert_int_equal(
        alea__row_report_shared(alea__kernels(), pool, row, LONG, 0, 20, true, &report), ALEA_EROW);
    assert_int_equal(report.rank, 7);
    alea__pool_destroy(pool);
    free(row);
}

static void test_permuted_rows_give_permuted_reports(void **state) {
    (void)state;
    block b;
    block_make(&b);
    alea_row_report want[ROWS], got[ROWS];
    memset(want, 0, sizeof want);
    memset(got, 0, sizeof got);
    assert_int_equal(alea__rows_report(alea__kernels(), NULL, &b.query, want, NULL), ALEA_OK);
    for (int32_t i = 0; i < ROWS; i++) {
        b.rows[i] = b.logits + (i * 27 % ROWS) * VOCAB;
        b.tokens[i] = (i * 27 % ROWS) * 41 % VOCAB;
    }
    assert_int_equal(alea__rows_report(alea__kernels(), NULL, &b.query, got, NULL), ALEA_OK);
    for (int32_t i = 0; i < ROWS; i++) {
        assert_memory_equal(&got[i], &want[i * 27 % ROWS], sizeof *got);
    }
    free(b.logits);
}

static void test_the_first_bad_row_is_named(void **state) {
    (void)state;
    block b;
    block_make(&b);
    b.logits[17 * VOCAB + 5] = NAN;
    b.logits[40 * VOCAB + 2999] = INFINITY;
    alea_pool *pool;
    assert_int_equal(alea__pool_create(3, &pool), ALEA_OK);
    alea_row_report reports[ROWS];
    memset(reports, 0, sizeof reports);
    int32_t bad = -1;
    assert_int_equal(alea__rows_report(alea__kernels(), pool, &b.query, reports, &bad), ALEA_EROW);
    assert_int_equal(bad, 17);
    assert_int_equal(reports[17].n_top, 0);
    assert_int_equal(reports[40].n_top, 0);
    assert_int_equal(reports[63].n_top, 20);
    b.query.tokens = NULL;
    b.query.n_rows = 17;
    assert_int_equal(alea__rows_report(alea__kernels(), pool, &b.query, reports, &bad), ALEA_OK);
    assert_int_equal(reports[3].rank, 0);
    alea__pool_destroy(pool);
    free(b.logits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_do_not_change_a_bit),
        cmocka_unit_test(test_threads_that_share_a_row_do_not_change_a_bit),
        cmocka_unit_test(test_permuted_rows_give_permuted_reports),
        cmocka_unit_test(test_the_first_bad_row_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
