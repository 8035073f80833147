/* The oracle itself, on rows that were worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "kernel/oracle.h"

static void near(long double got, long double want) {
    assert_true(fabsl(got - want) < 1e-15L * (1 + fabsl(want)));
}

static void test_two_tokens_by_hand(void **state) {
    (void)state;
    const float x[] = {2, 0};
    near(oracle_logprob(x, 2, 1, 0), -0.126928011042972496L); /* -ln(1 + e^-2) */
    near(oracle_logprob(x, 2, 1, 1), -2.126928011042972496L);
    near(oracle_logprob(x, 2, 0.5L, 0), -0.018149927917809740L); /* -ln(1 + e^-4) */
    near(oracle_entropy(x, 2), 0.365333855087207608L);
    near(oracle_share(x, 2, 1, 0, false), 0.880797077977882444L); /* 1 / (1 + e^-2) */
    near(oracle_share(x, 2, 1, 2, false), 0);
    near(oracle_share(x, 2, 1, 0, true), 1);
}

static void test_uniform_and_masked_rows_by_hand(void **state) {
    (void)state;
    const float x[] = {-1000, -INFINITY, -1000, -1000, -1000};
    near(oracle_logprob(x, 5, 1, 3), -1.386294361119890619L); /* -ln 4 */
    assert_true(oracle_logprob(x, 5, 1, 1) == -INFINITY);
    near(oracle_entropy(x, 5), 1.386294361119890619L);
}

static void test_order_cuts_ties_by_id(void **state) {
    (void)state;
    const float x[] = {1, 3, -0.0f, 3, 0, 1};
    const int32_t want[] = {1, 3, 0, 5, 2, 4};
    int32_t ids[6];
    oracle_order(x, 6, ids);
    assert_memory_equal(ids, want, sizeof want);
}

static void test_chi_square_tells_fair_from_unfair(void **state) {
    (void)state;
    const double fair[] = {0.5, 0.5}, none[] = {1, 0};
    assert_true(oracle_chi_square((int32_t[]){500, 500}, fair, 2, 1000) < 0.001);
    assert_true(oracle_chi_square((int32_t[]){540, 460}, fair, 2, 1000) < 1); /* 2.5 sigma */
    assert_true(oracle_chi_square((int32_t[]){600, 400}, fair, 2, 1000) > 1); /* 6.3 sigma */
    assert_true(oracle_chi_square((int32_t[]){999, 1}, none, 2, 1000) > 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_tokens_by_hand),
        cmocka_unit_test(test_uniform_and_masked_rows_by_hand),
        cmocka_unit_test(test_order_cuts_ties_by_id),
        cmocka_unit_test(test_chi_square_tells_fair_from_unfair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
