/* The oracle itself, on rows small enough to compute by hand. It comes before all it will judge. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "ops/oracle.h"

/* A set of kept entries as the string of their fates: 'k', '.', '?'. */
static const char *fates(const uint8_t *fate, int32_t n) {
    static char text[64];
    for (int32_t i = 0; i < n; i++)
        text[i] = ".k?"[fate[i]];
    text[n] = 0;
    return text;
}

#define N(x) ((int32_t)(sizeof(x) / sizeof((x)[0])))

static void logits_of(float *x, const double *probs, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        x[i] = (float)log(probs[i]);
}

static void test_nucleus_holds_the_crossing_token(void **state) {
    (void)state;
    float x[2];
    uint8_t f[2];
    logits_of(x, (double[]){0.55, 0.45}, 2);
    oracle_topp(f, x, 2, 0.6f);
    assert_string_equal(fates(f, 2), "kk");
}

static void test_nucleus_of_p_zero_is_empty(void **state) {
    (void)state;
    float x[3];
    uint8_t f[3];
    logits_of(x, (double[]){0.1, 0.7, 0.2}, 3);
    oracle_topp(f, x, 3, 0);
    assert_string_equal(fates(f, 3), "...");
}

static void test_nucleus_after_topk_renormalizes(void **state) {
    (void)state;
    float x[10];
    uint8_t f[10];
    for (int i = 0; i < 10; i++)
        x[i] = 0.01f * (float)i;
    oracle_topk_topp(f, x, 10, 1, 0.8f);
    assert_string_equal(fates(f, 10), ".........k");
}

static void test_nucleus_of_four(void **state) {
    (void)state;
    float x[4];
    uint8_t f[4];
    logits_of(x, (double[]){0.4, 0.3, 0.2, 0.1}, 4);
    oracle_topp(f, x, 4, 0.65f);
    assert_string_equal(fates(f, 4), "kk..");
}

static void test_nucleus_at_half_temperature(void **state) {
    (void)state;
    const float divided[] = {4, 2, 0}, plain[] = {2, 1, 0};
    uint8_t f[3];
    oracle_topp(f, divided, 3, 0.8f);
    assert_string_equal(fates(f, 3), "k..");
    oracle_topp(f, plain, 3, 0.8f);
    assert_string_equal(fates(f, 3), "kk.");
    long double probs[3];
    memset(f, KEPT, sizeof f);
    oracle_softmax(probs, plain, f, 3, 0.5f);
    assert_true(fabsl(probs[0] - 0.867L) < 1e-3L && fabsl(probs[1] - 0.117L) < 1e-3L);
    assert_true(fabsl(probs[2] - 0.016L) < 1e-3L);
}

static void test_topk_ranks_nan_first_and_masks_it(void **state) {
    (void)state;
    const float x[] = {7, NAN, 5};
    const char *expected[] = {"...", "k..", "kkk"};
    uint8_t f[3];
    for (int32_t k = 1; k <= 3; k++) {
        oracle_topk(f, x, 3, k);
        assert_string_equal(fates(f, 3), expected[k - 1]);
    }
}

static void test_topk_keeps_every_tie(void **state) {
    (void)state;
    const float inf[] = {0.9f, INFINITY, 1.4f, INFINITY, 1.2f, INFINITY};
    const float equal[] = {3, 3, 3, 3, 3, 3, 3, 3};
    const float zeros[] = {0.0f, -0.0f, -1};
    uint8_t f[8];
    oracle_topk(f, inf, 6, 4);
    assert_string_equal(fates(f, 6), ".kkk.k");
    oracle_topk(f, equal, 8, 3);
    assert_string_equal(fates(f, 8), "kkkkkkkk");
    oracle_topk(f, zeros, 3, 1);
    assert_string_equal(fates(f, 3), "kk.");
}

static void test_minp_rows_without_a_finite_threshold(void **state) {
    (void)state;
    uint8_t f[3];
    const struct {
        float x[3], min_p;
        const char *fates;
    } rows[] = {
        {{0, -1, -9}, 0, "kkk"},         {{-INFINITY, -INFINITY, -INFINITY}, .5f, "kkk"},
        {{NAN, 1, -9}, .5f, "kkk"},      {{INFINITY, 1, -9}, .5f, "k.."},
        {{INFINITY, 1, -9}, 0, "kkk"},   {{2, 2, 1}, 1, "kk."},
        {{0, -0.5f, -0.8f}, .5f, "kk."}, /* ln 1/2 is -0.693 */
    };
    for (int32_t i = 0; i < N(rows); i++) {
        oracle_minp(f, rows[i].x, 3, rows[i].min_p);
        assert_string_equal(fates(f, 3), rows[i].fates);
    }
}

static void test_order_is_by_value_then_position(void **state) {
    (void)state;
    const float x[] = {1, 3, 9, 6, 9};
    int32_t order[5];
    oracle_order(order, x, 5);
    assert_memory_equal(order, ((int32_t[]){2, 4, 3, 1, 0}), sizeof order);
}

static void test_lse_of_large_logits(void **state) {
    (void)state;
    const float high[] = {1000, 999, 0}, low[] = {-1000, -1001, -2000}, pair[] = {2, 0};
    assert_true(fabsl(oracle_lse(high, 3) - 1000.3132617L) < 1e-6L);
    assert_true(fabsl(oracle_lse(low, 3) + 999.6867383L) < 1e-6L);
    assert_true(fabsl(2 - oracle_lse(pair, 2) + 0.1269280L) < 1e-6L);
}

static void test_entropy_of_three(void **state) {
    (void)state;
    float x[3];
    logits_of(x, (double[]){0.6, 0.3, 0.1}, 3);
    assert_true(fabsl(oracle_entropy(x, 3) - 0.8979457L) < 1e-6L);
}

static void test_philox_gives_its_known_words(void **state) {
    (void)state;
    assert_int_equal(oracle_philox(0, 0, 0, 0), 0x6627e8d5u);
    assert_int_equal(oracle_philox(UINT64_MAX, UINT32_MAX, UINT32_MAX, UINT64_MAX), 0x408f276du);
    assert_int_equal(
        oracle_philox(0x299f31d0a4093822u, 0x243f6a88u, 0x85a308d3u, 0x0370734413198a2eu),
        0xd16cfe09u);
    const uint32_t words[3][3] = {{0x56e604f4u, 0x324cbebau, 0xeddab463u},
                                  {0xdfdb8d6cu, 0xaf011d60u, 0x8b6dc491u},
                                  {0x3974ec34u, 0xadb63b3eu, 0x3951168du}};
    for (uint32_t row = 0; row < 3; row++) {
        for (uint32_t j = 0; j < 3; j++) {
            assert_int_equal(oracle_philox(1234, j, row, 7), words[row][j]);
        }
    }
    assert_int_equal(oracle_philox((uint64_t)-1, 0, 0, (1ull << 32) + 5), 0x536485a5u);
    assert_true(oracle_uniform(1234, 0, 0, 7) == 0.3394472599029541f);
}

static void test_pick_skips_weights_of_zero(void **state) {
    (void)state;
    const float w[] = {0, 1, 0, 3, 0};
    bool sure;
    assert_int_equal(oracle_pick(w, 5, 0, &sure), 1);
    assert_int_equal(oracle_pick(w, 5, 0.2f, &sure), 1);
    assert_true(sure);
    assert_int_equal(oracle_pick(w, 5, 0.3f, &sure), 3);
    assert_int_equal(oracle_pick(w, 5, 0.25f, &sure), 3);
    assert_false(sure);
    assert_int_equal(oracle_pick(w, 5, 0.9999f, &sure), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nucleus_holds_the_crossing_token),
        cmocka_unit_test(test_nucleus_of_p_zero_is_empty),
        cmocka_unit_test(test_nucleus_after_topk_renormalizes),
        cmocka_unit_test(test_nucleus_of_four),
        cmocka_unit_test(test_nucleus_at_half_temperature),
        cmocka_unit_test(test_topk_ranks_nan_first_and_masks_it),
        cmocka_unit_test(test_topk_keeps_every_tie),
        cmocka_unit_test(test_minp_rows_without_a_finite_threshold),
        cmocka_unit_test(test_order_is_by_value_then_position),
        cmocka_unit_test(test_lse_of_large_logits),
        cmocka_unit_test(test_entropy_of_three),
        cmocka_unit_test(test_philox_gives_its_known_words),
        cmocka_unit_test(test_pick_skips_weights_of_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
