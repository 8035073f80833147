/* Cuts and shares: the filters' thresholds, against the rules written out token by token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "kernel/by_definition.h"
#include "kernel/mass.h"
#include "kernel/oracle.h"
#include "kernel/tables.h"
#include "support/fill.h"

static const int32_t sizes[] = {1, 2, 3, 17, 64, 70, 999, 1025, 2500, 6000};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static int32_t kept_count(const float *x, int32_t n, float cut) {
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++)
        count += x[i] >= cut;
    return count;
}

static void test_count_cuts_are_the_kth_largest(void **state) {
    (void)state;
    static float x[DEFINED_MAX], sorted[DEFINED_MAX];
    for (int32_t i = 0; i < N_SIZES * TEST_FILL_SOUND_COUNT; i++) {
        const int32_t n = sizes[i / TEST_FILL_SOUND_COUNT];
        test_fill_row(x, n, (test_fill)(i % TEST_FILL_SOUND_COUNT), 77);
        memcpy(sorted, x, sizeof x);
        qsort(sorted, (size_t)n, sizeof *sorted, defined_downward);
        static alea_row_scan scan;
        alea__row_scan(alea__kernels(), NULL, x, n, 0, NULL, &scan);
        const int32_t ks[] = {1, 2, 3, 20, 50, n / 3, n / 2, n - 1, n};
        for (int j = 0; j < 9; j++) {
            if (ks[j] < 1 || ks[j] > n) continue;
            const float cut = alea__row_cut(&scan, NULL, (uint64_t)ks[j]);
            assert_int_equal(kept_count(x, n, cut), kept_count(x, n, sorted[ks[j] - 1]));
        }
    }
}

static void check_top_p(const float *x, int32_t n, float scale, float p) {
    static alea_row_scan scan;
    static defined_row row;
    static bool kept[DEFINED_MAX];
    alea__row_scan(alea__kernels(), NULL, x, n, 0, NULL, &scan);
    const alea_mass_rule rule = alea__mass_rule(&scan, scale);
    const uint64_t all = alea__mass_ge(&scan, &rule, -INFINITY);
    defined_weigh(&row, x, n, scale);
    for (int32_t i = 0; i < n; i++)
        kept[i] = true;
    assert_true(all == defined_mass(&row, kept));
    const uint64_t share = alea__mass_share(p, all);
    defined_top_p(&row, share, kept);
    const float cut = alea__row_cut(&scan, &rule, share);
    for (int32_t i = 0; i < n; i++) {
        if (kept[i] != (x[i] >= cut)) {
            fail_msg("n %d, p %g, scale %g: token %d is %s", (int)n, (double)p, (double)scale,
                     (int)i, kept[i] ? "dropped" : "kept");
        }
    }
    assert_true(alea__mass_ge(&scan, &rule, cut) == defined_mass(&row, kept));
}

/* The mass of a whole row by its definition, by either pass over it. */
static void check_mass(const float *x, int32_t n) {
    static alea_row_scan scan;
    static defined_row row;
    static bool kept[DEFINED_MAX];
    alea_mass_rule rule;
    uint64_t mass;
    for (int32_t i = 0; i < n; i++)
        kept[i] = true;
    defined_weigh(&row, x, n, ALEA_LOG2E_F);
    const uint64_t want = defined_mass(&row, kept);
    assert_true(
        alea__row_weigh(alea__kernels(), NULL, x, n, 0, NULL, ALEA_LOG2E_F, &scan, &rule, &mass));
    assert_true(mass == want);
    assert_true(alea__mass_ge(&scan, &rule, -INFINITY) == want);
}

static void test_masses_at_the_edges_of_their_rules(void **state) {
    (void)state;
    float x[2 * ALEA_SEGMENT];
    for (int32_t step = 0; step < 200; step++) { /* a segment that sinks until it adds nothing */
        for (int32_t i = 0; i < 2 * ALEA_SEGMENT; i++)
            x[i] = i < ALEA_SEGMENT ? 0.0f : -0.6931472f * (38.0f + 0.07f * (float)step);
        check_mass(x, 2 * ALEA_SEGMENT);
    }
    for (int sign = -1; sign <= 1; sign += 2) { /* where logits begin to count from the maximum */
        float top = (float)sign * 1572864.0f / ALEA_LOG2E_F;
        for (int32_t i = 0; i < 8; i++)
            top = nextafterf(top, -INFINITY);
        for (int32_t step = 0; step < 17; step++, top = nextafterf(top, INFINITY)) {
            for (int32_t i = 0; i < 2 * ALEA_SEGMENT; i++)
                x[i] = top - 0.125f * (float)(i % 97);
            check_mass(x, 2 * ALEA_SEGMENT);
        }
    }
}

static void test_mass_cuts_are_the_nucleus(void **state) {
    (void)state;
    static float x[DEFINED_MAX];
    static const float ps[] = {1e-30f, 0.01f, 0.5f, 0.9f, 0.95f, 0.999f, 0.99999994f, 1.0f};
    static const float scales[] = {ALEA_LOG2E_F, ALEA_LOG2E_F / 0.3f, ALEA_LOG2E_F / 1e-6f};
    for (int32_t i = 0; i < N_SIZES * TEST_FILL_SOUND_COUNT; i++) {
        const int32_t n = sizes[i / TEST_FILL_SOUND_COUNT];
        test_fill_row(x, n, (test_fill)(i % TEST_FILL_SOUND_COUNT), 78);
        if (n <= 1025) {
            for (int j = 0; j < 24; j++)
                check_top_p(x, n, scales[j / 8], ps[j % 8]);
        } else if (i % TEST_FILL_SOUND_COUNT < 3) {
            check_top_p(x, n, ALEA_LOG2E_F, 0.95f);
        }
    }
}

static void test_a_falling_row_keeps_what_exact_arithmetic_keeps(void **state) {
    (void)state;
    enum { N = 131072 };
    float *x = malloc(N * sizeof *x);
    for (int32_t i = 0; i < N; i++)
        x[i] = -0.0001f * (float)i;
    static alea_row_scan scan;
    alea__row_scan(alea__kernels(), NULL, x, N, 0, NULL, &scan);
    const alea_mass_rule rule = alea__mass_rule(&scan, ALEA_LOG2E_F);
    const uint64_t all = alea__mass_ge(&scan, &rule, -INFINITY);
    const float cut = alea__row_cut(&scan, &rule, alea__mass_share(0.95f, all));
    const int32_t kept = kept_count(x, N, cut);
    int32_t want = 0; /* tokens that less than 0.95 of the probability exceeds */
    long double above = 0, whole = 0;
    for (int32_t i = 0; i < N; i++)
        whole += expl(x[i]);
    while (above < (long double)0.95f * whole)
        above += expl(x[want++]);
    assert_in_range(kept, want - 1, want + 1);
    assert_in_range(kept, 29950, 29970);
    free(x);
}

static void test_shares_are_exact(void **state) {
    (void)state;
    assert_true(alea__mass_share(0.0f, 1000) == 0);
    assert_true(alea__mass_share(1.0f, 1000) == 1000);
    assert_true(alea__mass_share(1.0f, (1ull << 63) - 1) == (1ull << 63) - 1);
    assert_true(alea__mass_share(0.5f, 1001) == 501);
    assert_true(alea__mass_share(0.5f, 1000) == 500);
    assert_true(alea__mass_share(0x1p-149f, 5) == 1);
    assert_true(alea__mass_share(0x1p-149f, 0) == 0);
    assert_true(alea__mass_share(0x1p-64f, 1ull << 62) == 1);
    assert_true(alea__mass_share(0x1p-61f, 1ull << 62) == 2);
    /* 0.95f is 15938355 * 2^-24, a little below 0.95. */
    assert_true(alea__mass_share(0.95f, 1ull << 24) == 15938355);
    assert_true(alea__mass_share(0.95f, 1ull << 25) == 2 * 15938355);
    assert_true(alea__mass_share(0.95f, (1ull << 25) + 1) == 2 * 15938355 + 1);
    assert_true(alea__mass_share(0.99999994f, 1ull << 62) == (1ull << 62) - (1ull << 38));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count_cuts_are_the_kth_largest),
        cmocka_unit_test(test_masses_at_the_edges_of_their_rules),
        cmocka_unit_test(test_mass_cuts_are_the_nucleus),
        cmocka_unit_test(test_a_falling_row_keeps_what_exact_arithmetic_keeps),
        cmocka_unit_test(test_shares_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
