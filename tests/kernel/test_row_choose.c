/*
 * Choosing a token: exactly, against the rules written out token by token; in distribution,
 * against long double by chi-square; and at the corners of every parameter.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/by_definition.h"
#include "kernel/mass.h"
#include "kernel/oracle.h"
#include "kernel/philox.h"
#include "kernel/row.h"
#include "kernel/tables.h"
#include "support/fill.h"

static const alea_sampling neutral = {1.0f, 0, 1.0f, 0.0f};

static alea_choice choose(const float *x, int32_t n, alea_sampling sampling, alea_draw_at at) {
    alea_choice choice;
    assert_int_equal(alea__row_choose(alea__kernels(), x, n, &sampling, &at, &choice), ALEA_OK);
    /* Asked for less, the rest is the same. */
    for (unsigned wants = 0; wants < ALEA_CHOOSE_ALL; wants++) {
        alea_choice less;
        assert_int_equal(
            alea__row_choose_shared(alea__kernels(), NULL, x, n, &sampling, &at, wants, &less),
            ALEA_OK);
        assert_int_equal(less.token, choice.token);
        assert_true(less.sampled_logprob == choice.sampled_logprob);
        const bool raw = wants & ALEA_CHOOSE_LOGPROB, kept = wants & ALEA_CHOOSE_KEPT_MASS;
        assert_true(raw ? less.logprob == choice.logprob : isnan(less.logprob));
        assert_true(kept ? less.kept_mass == choice.kept_mass : isnan(less.kept_mass));
    }
    return choice;
}

static alea_draw_at draw_number(uint64_t i) {
    return (alea_draw_at){.seed = 99, .offset = i};
}

/* All weights of zeros are 2^29, so the token is u * n, rounded down. */
static void test_pinned_tokens(void **state) {
    (void)state;
    static const float zeros[4096];
    const alea_draw_at at = {.seed = 1234, .offset = 7};
    assert_int_equal(choose(zeros, 1024, neutral, at).token, 0x56e604 >> 14);
    assert_int_equal(choose(zeros, 4096, neutral, at).token, 0x56e604 >> 12);
    const alea_draw_at other = {.seed = 1234, .draw = 2, .row = 1, .offset = 7};
    assert_int_equal(choose(zeros, 4096, neutral, other).token, 0x8b6dc4 >> 12);
    const alea_draw_at far = {.seed = UINT64_MAX, .offset = (1ull << 32) + 5};
    assert_int_equal(choose(zeros, 4096, neutral, far).token, 0x536485 >> 12);
    const float two[] = {2, 0}; /* 0.339 < 0.88 */
    assert_int_equal(choose(two, 2, neutral, at).token, 0);
    const float rising[] = {0, 2}; /* 0.339 > 0.12 */
    assert_int_equal(choose(rising, 2, neutral, at).token, 1);
}

static alea_sampling random_sampling(uint64_t *state, int32_t n) {
    static const float temperatures[] = {0.1f, 0.7f, 1.0f, 1.5f, 30.0f, 1e-4f, 1e20f};
    alea_sampling s = neutral;
    s.temperature = temperatures[test_random(state) % 7];
    if (test_random(state) % 2) s.top_k = 1 + (int32_t)(test_random(state) % (uint64_t)n);
    if (test_random(state) % 2) s.top_p = (float)test_uniform(state);
    if (test_random(state) % 2) s.min_p = (float)pow(test_uniform(state), 4);
    return s;
}

/* The rules once more, for one choice. */
static void check_choice(const float *x, int32_t n, alea_sampling s, alea_draw_at at,
                         const alea_kernel_table *table) {
    static defined_row row;
    static bool kept[DEFINED_MAX];
    defined_weigh(&row, x, n, ALEA_LOG2E_F / s.temperature);
    for (int32_t i = 0; i < n; i++)
        kept[i] = true;
    const uint64_t all = defined_mass(&row, kept);
    defined_top_k(&row, s.top_k, kept);
    if (s.top_p < 1) {
        defined_top_p(&row, alea__mass_share(s.top_p, defined_mass(&row, kept)), kept);
    }
    const float least = row.max + s.temperature * alea__ln_min_p(s.min_p);
    for (int32_t i = 0; i < n; i++)
        kept[i] = kept[i] && !(x[i] < least);
    const uint64_t mass = defined_mass(&row, kept);
    const uint64_t bits = alea__draw_bits(at.seed, at.draw, at.row, at.offset);
    __extension__ typedef unsigned __int128 wide;
    const int32_t want = defined_draw(&row, kept, (uint64_t)((wide)bits * mass >> 24));

    alea_choice choice;
    assert_int_equal(alea__row_choose(table, x, n, &s, &at, &choice), ALEA_OK);
    assert_int_equal(choice.token, want);
    assert_true(choice.kept_mass == (float)((double)mass / (double)all));
    alea_row_report report;
    assert_int_equal(alea__row_report(table, x, n, want, 0, false, &report), ALEA_OK);
    assert_memory_equal(&choice.logprob, &report.logprob, sizeof(float));
}

static void test_choices_follow_the_written_rules(void **state) {
    (void)state;
    static const int32_t sizes[] = {1, 2, 5, 70, 500, 1025, 2100};
    static float x[DEFINED_MAX];
    const test_tables all = test_tables_make();
    uint64_t random = 5;
    for (int round = 0; round < 560; round++) {
        const int32_t n = sizes[round % 7];
        test_fill_row(x, n, (test_fill)(round % TEST_FILL_SOUND_COUNT), (uint64_t)round);
        const alea_sampling s = random_sampling(&random, n);
        for (int t = 0; t < all.n; t++) {
            check_choice(x, n, s, draw_number((uint64_t)round), &all.tables[t]);
        }
    }
}

enum { DRAWS = 65536, BINS = 60 };

/* Draw counts under `sampling`, as chi-square against the tokens at `temperature` that reach
 * `cut`; above 1: they do not follow. */
static double draws_against(const float *x, alea_sampling sampling, long double temperature,
                            float cut) {
    int32_t counts[BINS] = {0};
    double probs[BINS];
    const long double share = oracle_share(x, BINS, temperature, cut, true);
    for (int32_t i = 0; i < BINS; i++) {
        const long double logprob = oracle_logprob(x, BINS, temperature, i);
        probs[i] = x[i] >= cut ? (double)(expl(logprob) / share) : 0;
    }
    for (uint64_t i = 0; i < DRAWS; i++) {
        counts[choose(x, BINS, sampling, draw_number(i)).token]++;
    }
    return oracle_chi_square(counts, probs, BINS, DRAWS);
}

static void test_draws_follow_the_probabilities(void **state) {
    (void)state;
    float x[BINS];
    uint64_t random = 3;
    for (int32_t i = 0; i < BINS; i++)
        x[i] = (float)(1.5 * test_normal(&random));
    alea_sampling s = neutral;
    assert_true(draws_against(x, s, 1, -INFINITY) < 1);
    assert_true(draws_against(x, s, 1.05L, -INFINITY) > 1); /* the test can fail */
    s.temperature = 0.6f;
    assert_true(draws_against(x, s, (long double)0.6f, -INFINITY) < 1);
    float sorted[BINS];
    memcpy(sorted, x, sizeof x);
    qsort(sorted, BINS, sizeof *sorted, defined_downward);
    s.top_k = 10;
    assert_true(draws_against(x, s, (long double)0.6f, sorted[9]) < 1);
    assert_true(draws_against(x, s, (long double)0.6f, sorted[8]) > 1);
}

static void test_uniform_draws_are_even(void **state) {
    (void)state;
    static const float zeros[131072];
    int32_t counts[1024] = {0};
    double probs[1024];
    for (int i = 0; i < 1024; i++)
        probs[i] = 1.0 / 1024;
    static alea_row_scan scan;
    alea__row_scan(alea__kernels(), NULL, zeros, 131072, 0, NULL, &scan);
    const alea_mass_rule rule = alea__mass_rule(&scan, ALEA_LOG2E_F);
    for (uint64_t i = 0; i < 200; i++) { /* a row of 131072 takes its time in plain C */
        uint64_t mass;
        const uint32_t bits = alea__draw_bits(7, 0, 0, i);
        const int32_t token = alea__mass_draw(&scan, &rule, -INFINITY, bits, &mass);
        assert_int_equal(token, bits >> 7);
    }
    for (uint64_t i = 0; i < DRAWS; i++) {
        counts[choose(zeros, 1024, neutral, draw_number(i)).token]++;
    }
    assert_true(oracle_chi_square(counts, probs, 1024, DRAWS) < 1);
}

static void test_neighbouring_offsets_rows_and_draws_are_independent(void **state) {
    (void)state;
    static const float zeros[4];
    int32_t counts[3][16] = {0};
    double probs[16];
    for (int i = 0; i < 16; i++)
        probs[i] = 1.0 / 16;
    for (uint32_t i = 0; i < DRAWS; i++) {
        const alea_draw_at pairs[3][2] = {
            {{.seed = 5, .offset = i}, {.seed = 5, .offset = i + 1}},
            {{.seed = 5, .offset = i}, {.seed = 5, .offset = i, .row = 1}},
            {{.seed = 5, .offset = i}, {.seed = 5, .offset = i, .draw = 1}}};
        for (int p = 0; p < 3; p++) {
            const int32_t a = choose(zeros, 4, neutral, pairs[p][0]).token;
            const int32_t b = choose(zeros, 4, neutral, pairs[p][1]).token;
            counts[p][4 * a + b]++;
        }
    }
    for (int p = 0; p < 3; p++) {
        assert_true(oracle_chi_square(counts[p], probs, 16, DRAWS) < 1);
    }
}

static void test_a_token_without_weight_is_never_drawn(void **state) {
    (void)state;
    static float x[3000];
    for (uint64_t seed = 0; seed < 60; seed++) {
        for (int32_t n = 1; n <= 3000; n = n * 3 + 1) {
            test_fill_row(x, n, seed % 2 ? TEST_FILL_HALF_MASKED : TEST_FILL_ONE_FINITE, seed);
            static alea_row_scan scan;
            alea__row_scan(alea__kernels(), NULL, x, n, 0, NULL, &scan);
            const alea_mass_rule rule = alea__mass_rule(&scan, ALEA_LOG2E_F);
            static const uint32_t corners[] = {0, 1, 0x7fffff, 0x800000, 0xfffffe, 0xffffff};
            for (int c = 0; c < 6; c++) {
                uint64_t mass;
                const int32_t token = alea__mass_draw(&scan, &rule, -INFINITY, corners[c], &mass);
                assert_in_range(token, 0, n - 1);
                assert_true(x[token] > -INFINITY);
            }
        }
    }
}

static void test_temperature_zero_is_greedy_and_ignores_filters(void **state) {
    (void)state;
    const float x[] = {1, 5, 2, 5, -INFINITY};
    const alea_sampling s = {0.0f, 1, 0.1f, 1.0f};
    for (uint64_t i = 0; i < 20; i++) {
        const alea_choice c = choose(x, 5, s, draw_number(i));
        assert_int_equal(c.token, 1);
        assert_true(fabs(c.logprob + 0.7261) < 1e-3);
        assert_true(c.sampled_logprob == 0.0f);
        assert_true(fabs(c.kept_mass - exp((double)c.logprob)) < 1e-6);
    }
}

static void test_tiny_temperatures_agree_with_greedy(void **state) {
    (void)state;
    static float x[3000];
    test_fill_row(x, 3000, TEST_FILL_NORMAL, 4);
    alea_row_report report;
    assert_int_equal(alea__row_report(alea__kernels(), x, 3000, -1, 0, false, &report), ALEA_OK);
    static const float temperatures[] = {1e-3f, 1e-4f, 5e-5f,  1e-5f, 1e-6f,
                                         1e-7f, 1e-8f, 1e-30f, 1e-38f};
    for (size_t t = 0; t < sizeof temperatures / sizeof *temperatures; t++) {
        for (uint64_t i = 0; i < 50; i++) {
            alea_sampling s = neutral;
            s.temperature = temperatures[t];
            const alea_choice c = choose(x, 3000, s, draw_number(i));
            assert_int_equal(c.token, report.greedy);
            assert_true(c.sampled_logprob > -1e-6f && c.kept_mass == 1.0f);
        }
    }
}

static void test_the_raw_logprob_does_not_follow_the_temperature(void **state) {
    (void)state;
    const float x[] = {2, 0};
    static const float temperatures[] = {0, 1e-3f, 0.5f, 1, 2};
    for (int t = 0; t < 5; t++) {
        alea_sampling s = neutral;
        s.temperature = temperatures[t];
        alea_choice c = choose(x, 2, s, draw_number(0));
        for (uint64_t i = 1; c.token != 0; i++)
            c = choose(x, 2, s, draw_number(i));
        assert_true(fabs(c.logprob + 0.126928011) < 3e-7);
        if (s.temperature == 0.5f) assert_true(fabs(c.sampled_logprob + 0.018149928) < 3e-7);
    }
}

static void test_sampled_logprobs_are_of_what_was_kept(void **state) {
    (void)state;
    float x[BINS];
    test_fill_row(x, BINS, TEST_FILL_NORMAL, 12);
    float sorted[BINS];
    memcpy(sorted, x, sizeof x);
    qsort(sorted, BINS, sizeof *sorted, defined_downward);
    const alea_sampling s = {0.8f, 5, 1.0f, 0.0f};
    const long double share = oracle_share(x, BINS, (long double)0.8f, sorted[4], true);
    for (uint64_t i = 0; i < 200; i++) {
        const alea_choice c = choose(x, BINS, s, draw_number(i));
        const long double want = oracle_logprob(x, BINS, (long double)0.8f, c.token) - logl(share);
        assert_true(fabsl(c.sampled_logprob - want) <= 5e-7L + 0x1p-23L * fabsl(want));
        assert_true(fabsl(c.kept_mass - share) <= 3e-7L);
    }
}

static void test_min_p_keeps_within_its_distance(void **state) {
    (void)state;
    const float x[] = {0.0f, -0.69f, -0.70f, -2.0f};
    alea_sampling s = {1.0f, 0, 1.0f, 0.5f}; /* ln 0.5 = -0.693 */
    for (uint64_t i = 0; i < 200; i++)
        assert_in_range(choose(x, 4, s, draw_number(i)).token, 0, 1);
    s.min_p = 1.0f;
    for (uint64_t i = 0; i < 50; i++)
        assert_int_equal(choose(x, 4, s, draw_number(i)).token, 0);
    s = (alea_sampling){2.0f, 0, 1.0f, 0.5f}; /* 2 ln 0.5 = -1.386 */
    bool seen = false;
    for (uint64_t i = 0; i < 200; i++) {
        const int32_t token = choose(x, 4, s, draw_number(i)).token;
        assert_in_range(token, 0, 2);
        seen = seen || token == 2;
    }
    assert_true(seen);
}

static void test_bad_rows_are_never_sampled_from(void **state) {
    (void)state;
    const float rows[][3] = {{4, NAN, 1}, {4, INFINITY, 1}, {-INFINITY, -INFINITY, -INFINITY}};
    const alea_draw_at at = draw_number(0);
    for (int i = 0; i < 3; i++) {
        alea_choice choice = {-7, 0, 0, 0};
        assert_int_equal(alea__row_choose(alea__kernels(), rows[i], 3, &neutral, &at, &choice),
                         ALEA_EROW);
        assert_int_equal(choice.token, -7);
    }
    const float sound[] = {4, -INFINITY, 1};
    for (uint64_t i = 0; i < 500; i++) {
        assert_int_not_equal(choose(sound, 3, neutral, draw_number(i)).token, 1);
    }
}

static void expect_bad(alea_sampling s, const char *name) {
    alea_error error = {0};
    const float x[] = {1, 2};
    alea_choice choice;
    const alea_draw_at at = draw_number(0);
    assert_int_equal(alea__sampling_check(&s, &error), ALEA_EINVAL);
    assert_non_null(strstr(error.message, name));
    assert_int_equal(alea__row_choose(alea__kernels(), x, 2, &s, &at, &choice), ALEA_EINVAL);
}

static void test_parameters_outside_their_domain_are_named(void **state) {
    (void)state;
    static const float bad_temperatures[] = {-1.0f, NAN, INFINITY, -INFINITY, 1e-40f};
    for (int i = 0; i < 5; i++) {
        expect_bad((alea_sampling){bad_temperatures[i], 0, 1, 0}, "temperature");
    }
    expect_bad((alea_sampling){1, -1, 1, 0}, "top_k");
    expect_bad((alea_sampling){1, 0, 0, 0}, "top_p");
    expect_bad((alea_sampling){1, 0, 1.1f, 0}, "top_p");
    expect_bad((alea_sampling){1, 0, NAN, 0}, "top_p");
    expect_bad((alea_sampling){1, 0, 1, -0.1f}, "min_p");
    expect_bad((alea_sampling){1, 0, 1, 1.5f}, "min_p");
    expect_bad((alea_sampling){1, 0, 1, NAN}, "min_p");
    const alea_sampling widest = {3e38f, 2000000000, 1e-45f, 1};
    assert_int_equal(alea__sampling_check(&widest, NULL), ALEA_OK);
    assert_int_equal(alea__sampling_check(&neutral, NULL), ALEA_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pinned_tokens),
        cmocka_unit_test(test_choices_follow_the_written_rules),
        cmocka_unit_test(test_draws_follow_the_probabilities),
        cmocka_unit_test(test_uniform_draws_are_even),
        cmocka_unit_test(test_neighbouring_offsets_rows_and_draws_are_independent),
        cmocka_unit_test(test_a_token_without_weight_is_never_drawn),
        cmocka_unit_test(test_temperature_zero_is_greedy_and_ignores_filters),
        cmocka_unit_test(test_tiny_temperatures_agree_with_greedy),
        cmocka_unit_test(test_the_raw_logprob_does_not_follow_the_temperature),
        cmocka_unit_test(test_sampled_logprobs_are_of_what_was_kept),
        cmocka_unit_test(test_min_p_keeps_within_its_distance),
        cmocka_unit_test(test_bad_rows_are_never_sampled_from),
        cmocka_unit_test(test_parameters_outside_their_domain_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
