/*
 * Reports of single rows: values against the long-double oracle within the bounds of
 * docs/numerics.md; ranks and alternatives exactly, by sorting all reported values.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "kernel/mass.h"
#include "kernel/oracle.h"
#include "kernel/row.h"
#include "kernel/tables.h"
#include "support/fill.h"
#include "support/guard.h"

#define TIGHT 3e-7L   /* random and real rows */
#define LOOSE 1.8e-6L /* any sound row: a tail that rounds to nothing beside a peak */

/* A row with everything that the tests compare against. */
typedef struct row_facts {
    const float *x;
    int32_t n;
    float *reported; /* [n] */
    int32_t *order;  /* [n], by reported value downward, then id */
    long double lse; /* of the oracle, less the maximum */
    float max;
    const char *name;
} row_facts;

static row_facts facts_make(const float *x, int32_t n, const char *name) {
    row_facts f = {.x = x, .n = n, .name = name, .max = -INFINITY};
    f.reported = malloc((size_t)n * sizeof(float));
    f.order = malloc((size_t)n * sizeof(int32_t));
    static alea_row_scan scan;
    alea__row_scan(alea__kernels_ref(), NULL, x, n, 0, NULL, &scan);
    const alea_mass_rule rule = alea__mass_rule(&scan, ALEA_LOG2E_F);
    const double lse = alea__mass_lse(&rule, alea__mass_ge(&scan, &rule, -INFINITY));
    for (int32_t i = 0; i < n; i++) {
        f.reported[i] = alea__logprob(&scan, &rule, x[i], lse);
        f.max = x[i] > f.max ? x[i] : f.max;
    }
    oracle_order(f.reported, n, f.order);
    f.lse = oracle_lse(x, n, 1);
    return f;
}

static void facts_free(row_facts *f) {
    free(f->reported);
    free(f->order);
}

/* Every reported value against the oracle. */
static void check_values(const row_facts *f, long double slack) {
    for (int32_t i = 0; i < f->n; i++) {
        const long double want = (long double)f->x[i] - f->max - f->lse;
        const float got = f->reported[i];
        assert_true(got <= 0 && !(got == 0 && signbit(got)));
        if (f->x[i] == -INFINITY || want < -FLT_MAX * (1 + 0x1p-23L)) {
            assert_true(got == -INFINITY);
            continue;
        }
        if (got == -INFINITY && want < -FLT_MAX * (1 - 0x1p-22L)) continue;
        const long double error = fabsl(got - want);
        if (error > 0x1p-23L * fabsl(want) + slack) {
            fail_msg("%s, n %d, token %d: reported %.9g, true %.12Lg", f->name, (int)f->n, (int)i,
                     (double)got, want);
        }
    }
}

static int32_t rank_by_counting(const row_facts *f, int32_t token) {
    int32_t rank = 1;
    for (int32_t i = 0; i < f->n; i++)
        rank += f->reported[i] > f->reported[token];
    return rank;
}

static int32_t greedy_by_looking(const row_facts *f) {
    int32_t best = 0;
    for (int32_t i = 1; i < f->n; i++)
        best = f->x[i] > f->x[best] ? i : best;
    return best;
}

static bool same_float(float a, float b) {
    return memcmp(&a, &b, sizeof a) == 0;
}

static void check_report(const row_facts *f, const alea_kernel_table *table, int32_t token,
                         int32_t k) {
    alea_row_report r;
    assert_int_equal(alea__row_report(table, f->x, f->n, token, k, true, &r), ALEA_OK);
    assert_int_equal(r.token, token);
    assert_true(same_float(r.logprob, f->reported[token]));
    assert_int_equal(r.rank, rank_by_counting(f, token));
    assert_int_equal(r.greedy, greedy_by_looking(f));
    assert_int_equal(r.n_top, k < f->n ? k : f->n);
    for (int32_t i = 0; i < r.n_top; i++) {
        if (r.top[i].token != f->order[i] ||
            !same_float(r.top[i].logprob, f->reported[f->order[i]])) {
            fail_msg("%s, n %d, k %d: place %d holds token %d, it should be %d", f->name, (int)f->n,
                     (int)k, (int)i, (int)r.top[i].token, (int)f->order[i]);
        }
    }
}

/* The whole row on every table; `x` ends at an unreadable page. */
static void check_row(const float *x, int32_t n, const char *name, long double slack) {
    const test_tables all = test_tables_make();
    test_guard row = test_guard_make((size_t)n * sizeof(float));
    memcpy(row.data, x, row.bytes);
    row_facts f = facts_make(row.data, n, name);
    check_values(&f, slack);
    const int32_t tokens[] = {0, n - 1, n / 2, f.order[0], f.order[n < 20 ? n - 1 : 19]};
    static const int32_t ks[] = {20, 0, 1, 7, 19};
    for (int t = 0; t < all.n; t++) {
        for (int i = 0; i < 5; i++)
            check_report(&f, &all.tables[t], tokens[i], ks[i]);
    }
    facts_free(&f);
    test_guard_free(&row);
}

static void check_fills(int32_t n, uint64_t seed) {
    float *x = malloc((size_t)n * sizeof *x);
    for (int fill = 0; fill < TEST_FILL_SOUND_COUNT; fill++) {
        test_fill_row(x, n, (test_fill)fill, seed);
        /* Many copies of one value in a tail round alike, which random rows never do. */
        const long double slack = fill == TEST_FILL_PLANTED ? LOOSE : TIGHT;
        check_row(x, n, test_fill_name((test_fill)fill), slack);
    }
    free(x);
}

static void test_small_rows_of_every_fill(void **state) {
    (void)state;
    for (int32_t n = 1; n <= 70; n++) {
        for (uint64_t seed = 0; seed < 4; seed++)
            check_fills(n, seed);
    }
}

static void test_rows_of_real_sizes(void **state) {
    (void)state;
    static const int32_t sizes[] = {999, 1023, 1024, 1025, 2048, 32000, 49152, 128256};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_fills(sizes[i], 11);
}

static void test_a_row_of_262144(void **state) {
    (void)state;
    enum { N = 262144 };
    float *x = malloc(N * sizeof *x);
    test_fill_row(x, N, TEST_FILL_NORMAL, 5);
    check_row(x, N, "normal", TIGHT);
    free(x);
}

static void test_the_largest_row_fits_its_mass(void **state) {
    (void)state;
    float *x = calloc(ALEA_VOCAB_MAX, sizeof *x);
    alea_row_report r;
    /* The fraction of 0.5 makes every weight as large as weights get. */
    const float half = (float)(0.4999 * 0.693147180559945);
    for (int32_t i = 0; i < ALEA_VOCAB_MAX; i++)
        x[i] = half;
    assert_int_equal(alea__row_report(alea__kernels(), x, ALEA_VOCAB_MAX, 7, 20, true, &r),
                     ALEA_OK);
    assert_true(fabs(r.logprob + log(ALEA_VOCAB_MAX)) < 2e-6);
    assert_true(fabs(r.entropy - log(ALEA_VOCAB_MAX)) < 4e-6);
    assert_int_equal(r.rank, 1);
    for (int32_t i = 0; i < 20; i++)
        assert_int_equal(r.top[i].token, i);
    assert_int_equal(alea__row_report(alea__kernels(), x, ALEA_VOCAB_MAX + 1, 7, 20, true, &r),
                     ALEA_EINVAL);
    free(x);
}

/* Nineteen lanes whose every element is above the twentieth's best, and the best come last. */
static void test_as_many_candidates_as_there_can_be(void **state) {
    (void)state;
    float x[2 * ALEA_SEGMENT];
    for (int32_t i = 0; i < 2 * ALEA_SEGMENT; i++) {
        const bool full = i < ALEA_SEGMENT || i % ALEA_LANES < 3;
        x[i] = full ? 4.0f + 1e-3f * (float)i : -1.0f;
    }
    check_row(x, 2 * ALEA_SEGMENT, "full lanes", TIGHT);
}

/* One segment has fewer lanes than there are places: the least of their maxima says where to look
 * if enough elements reach it. Here 16 do, and up to six more. */
static void test_fewer_lanes_than_alternatives(void **state) {
    (void)state;
    static const int32_t sizes[] = {32, 397, ALEA_SEGMENT};
    float x[ALEA_SEGMENT];
    for (size_t which = 0; which < sizeof sizes / sizeof *sizes; which++) {
        for (int32_t more = 0; more < 7; more++) {
            const int32_t n = sizes[which];
            for (int32_t i = 0; i < n; i++) {
                const bool high = i < ALEA_LANES || n - i <= more;
                x[i] = high ? 5.0f + 0.1f * (float)(i % 7) : -1e-2f * (float)i;
            }
            check_row(x, n, "few lanes", TIGHT);
        }
    }
}

/* One peak whose weight is as small as a segment's largest can be, and 1023 tokens just below or
 * just above half a unit, so that all of them are lost or doubled. */
static void test_the_worst_tails_stay_in_the_loose_bound(void **state) {
    (void)state;
    float x[3 * ALEA_SEGMENT];
    for (int which = 0; which < 400; which++) {
        const double ln2 = 0.6931471805599453;
        const double tail = -28.2 - 0.005 * which; /* relative to the peak, in powers of two */
        for (int32_t i = 0; i < 3 * ALEA_SEGMENT; i++) {
            x[i] = (float)((i % ALEA_SEGMENT ? tail - 0.499 : -0.499) * ln2);
        }
        check_row(x, ALEA_SEGMENT, "tail", LOOSE);
        if (which % 50 == 0) check_row(x, 3 * ALEA_SEGMENT, "tails", LOOSE);
    }
}

static void test_entropy_follows_the_oracle(void **state) {
    (void)state;
    static const int32_t sizes[] = {1, 2, 50, 1000, 32000, 128256};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int32_t n = sizes[i];
        float *x = malloc((size_t)n * sizeof *x);
        for (int fill = 0; fill < TEST_FILL_SOUND_COUNT; fill++) {
            alea_row_report r;
            test_fill_row(x, n, (test_fill)fill, 3);
            assert_int_equal(alea__row_report(alea__kernels(), x, n, -1, 0, true, &r), ALEA_OK);
            const long double want = oracle_entropy(x, n);
            if (!(fabsl(r.entropy - want) <= 4e-6L && r.entropy >= 0)) {
                fail_msg("%s, n %d: entropy %.9g, true %.9Lg", test_fill_name((test_fill)fill),
                         (int)n, (double)r.entropy, want);
            }
        }
        free(x);
    }
}

static void test_named_tokens_get_the_bits_of_a_report(void **state) {
    (void)state;
    enum { N = 5000 };
    float x[N], logprobs[ALEA_SELECTED_MAX];
    int32_t tokens[ALEA_SELECTED_MAX];
    test_fill_row(x, N, TEST_FILL_NORMAL, 8);
    for (int32_t i = 0; i < ALEA_SELECTED_MAX; i++)
        tokens[i] = i * 37 % N;
    assert_int_equal(alea__row_selected(alea__kernels(), x, N, tokens, ALEA_SELECTED_MAX, logprobs),
                     ALEA_OK);
    for (int32_t i = 0; i < ALEA_SELECTED_MAX; i++) {
        alea_row_report r;
        assert_int_equal(alea__row_report(alea__kernels(), x, N, tokens[i], 0, false, &r), ALEA_OK);
        assert_true(same_float(r.logprob, logprobs[i]));
    }
    tokens[5] = N;
    assert_int_equal(alea__row_selected(alea__kernels(), x, N, tokens, 6, logprobs), ALEA_EINVAL);
    assert_int_equal(alea__row_selected(alea__kernels(), x, N, tokens, 0, logprobs), ALEA_EINVAL);
}

static void expect_refused(const float *x, int32_t n, int32_t token, int32_t k, alea_status want) {
    alea_row_report r, before;
    memset(&r, 0x5a, sizeof r);
    memcpy(&before, &r, sizeof r);
    assert_int_equal(alea__row_report(alea__kernels(), x, n, token, k, true, &r), want);
    assert_memory_equal(&r, &before, sizeof r);
}

static void test_rows_that_are_no_model_output_write_nothing(void **state) {
    (void)state;
    static const int32_t sizes[] = {1, 3, 70, 1024, 5000};
    float x[5000];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (uint64_t seed = 0; seed < 20; seed++) {
            static const test_fill fills[] = {TEST_FILL_NAN, TEST_FILL_PLUS_INF,
                                              TEST_FILL_ALL_MASKED};
            for (int f = 0; f < 3; f++) {
                test_fill_row(x, sizes[i], fills[f], seed);
                expect_refused(x, sizes[i], 0, 1, ALEA_EROW);
            }
        }
    }
}

static void test_arguments_outside_their_domain_write_nothing(void **state) {
    (void)state;
    const float x[3] = {1, 2, 3};
    expect_refused(x, 0, -1, 0, ALEA_EINVAL);
    expect_refused(x, 3, 3, 0, ALEA_EINVAL);
    expect_refused(x, 3, -2, 0, ALEA_EINVAL);
    expect_refused(x, 3, 0, 21, ALEA_EINVAL);
    expect_refused(x, 3, 0, -1, ALEA_EINVAL);
}

static void test_no_token_asked_is_not_a_number(void **state) {
    (void)state;
    const float x[3] = {1, 3, 2};
    alea_row_report r;
    assert_int_equal(alea__row_report(alea__kernels(), x, 3, -1, 2, false, &r), ALEA_OK);
    assert_true(r.logprob != r.logprob);
    assert_int_equal(r.rank, 0);
    assert_int_equal(r.greedy, 1);
    assert_int_equal(r.top[1].token, 2);
}

/* Distinct logits that report the same share a rank, and the smaller id comes first. */
static void test_ties_after_the_subtraction_count(void **state) {
    (void)state;
    const float low = 1.0f, high = nextafterf(1.0f, 2.0f);
    const float x[] = {100.0f, low, high, low};
    alea_row_report r;
    assert_int_equal(alea__row_report(alea__kernels(), x, 4, 1, 4, false, &r), ALEA_OK);
    assert_true(r.top[1].logprob == r.top[3].logprob);
    assert_int_equal(r.top[1].token, 1);
    assert_int_equal(r.top[2].token, 2);
    assert_int_equal(r.rank, 2);
    /* The clamp ties the two largest; greedy still sees the larger logit. */
    const float peaks[] = {low, high - 40.0f, low, high};
    assert_int_equal(alea__row_report(alea__kernels(), peaks, 4, 0, 2, false, &r), ALEA_OK);
    assert_int_equal(r.greedy, 3);
}

static void expect_logprob(const float *x, int32_t n, int32_t token, double want, double slack) {
    alea_row_report r;
    assert_int_equal(alea__row_report(alea__kernels(), x, n, token, 0, false, &r), ALEA_OK);
    if (!(fabs(r.logprob - want) <= slack)) {
        fail_msg("token %d: %.9g, not %.9g", (int)token, (double)r.logprob, want);
    }
}

static void test_all_zero_scores(void **state) {
    (void)state;
    static const int32_t sizes[] = {1, 2, 1000, 32000, 131072};
    float *x = calloc(131072, sizeof *x);
    for (int i = 0; i < 5; i++) {
        expect_logprob(x, sizes[i], sizes[i] / 2, -log(sizes[i]), 1e-7 + 1.2e-7 * log(sizes[i]));
    }
    expect_logprob(x, 131072, 99, -11.7835, 5e-5);
    free(x);
}

static void test_large_logits_do_not_overflow(void **state) {
    (void)state;
    const float high[] = {1000, 999, 0}, low[] = {-1000, -1001, -2000};
    const double want[] = {-0.31326168751822287, -1.3132616875182228, -1000.3132616875182};
    feclearexcept(FE_ALL_EXCEPT);
    for (int32_t i = 0; i < 3; i++) {
        expect_logprob(high, 3, i, want[i], 3e-7 - 1.2e-7 * want[i]);
        expect_logprob(low, 3, i, want[i], 3e-7 - 1.2e-7 * want[i]);
    }
    assert_false(fetestexcept(FE_OVERFLOW));
}

/* Huge logits are counted from the maximum: the report is that of the differences. */
static void test_the_shifted_rule_takes_over_for_huge_logits(void **state) {
    (void)state;
    static const float scales[] = {1e5f, 1e6f, 1.09e6f, 1.1e6f, 1e7f, 1e20f, 3e38f};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        float x[2100];
        for (int sign = -1; sign <= 1; sign += 2) {
            for (int32_t j = 0; j < 2100; j++) {
                x[j] = (float)sign * scales[i];
                for (int32_t step = 0; step < j % 40; step++)
                    x[j] = nextafterf(x[j], -INFINITY);
            }
            check_row(x, 2100, "huge", TIGHT);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_rows_of_every_fill),
        cmocka_unit_test(test_rows_of_real_sizes),
        cmocka_unit_test(test_a_row_of_262144),
        cmocka_unit_test(test_the_largest_row_fits_its_mass),
        cmocka_unit_test(test_as_many_candidates_as_there_can_be),
        cmocka_unit_test(test_fewer_lanes_than_alternatives),
        cmocka_unit_test(test_the_worst_tails_stay_in_the_loose_bound),
        cmocka_unit_test(test_entropy_follows_the_oracle),
        cmocka_unit_test(test_named_tokens_get_the_bits_of_a_report),
        cmocka_unit_test(test_rows_that_are_no_model_output_write_nothing),
        cmocka_unit_test(test_arguments_outside_their_domain_write_nothing),
        cmocka_unit_test(test_no_token_asked_is_not_a_number),
        cmocka_unit_test(test_ties_after_the_subtraction_count),
        cmocka_unit_test(test_all_zero_scores),
        cmocka_unit_test(test_large_logits_do_not_overflow),
        cmocka_unit_test(test_the_shifted_rule_takes_over_for_huge_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
