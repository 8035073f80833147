/*
 * Faults that people met between logits and answers, as requests against rows that are written
 * down here. A name ends in the case's number; docs and tests of other layers use the same ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "runtime/row_core.h"

enum { REQUESTS = 8 };

static rig_choice choices[REQUESTS][4];

static const alea_engine_options plain = {.threads = 2};

static alea_request_params params_of(float temperature, int32_t max_tokens) {
    alea_request_params p = alea__params_default();
    p.seed = 7;
    p.seeded = true;
    p.sampling.temperature = temperature;
    p.max_tokens = max_tokens;
    p.top = 3;
    return p;
}

/* The i-th request starts with token i, which chooses its rows. */
static void run_together(const row_core_ways *ways, alea_engine_options options,
                         const alea_request_params *params, int32_t n) {
    rig r = row_core_open(ways, options);
    memset(choices, 0, sizeof choices);
    alea_request *requests[REQUESTS];
    for (int32_t i = 0; i < n; i++)
        requests[i] = rig_submit(&r, &i, 1, &params[i]);
    for (int32_t i = 0; i < n; i++)
        rig_finish(&r, requests[i], choices[i]);
    rig_close(&r);
}

static void run_one(const row_core_ways *ways, const alea_request_params *params) {
    run_together(ways, plain, params, 1);
}

/* ---- rows ---- */

static const float *row_132(int32_t first, int32_t position) {
    (void)first, (void)position;
    static const float row[] = {1, 3, 2};
    return row;
}

static const float *row_210(int32_t first, int32_t position) {
    (void)first, (void)position;
    static const float row[] = {2, 1, 0};
    return row;
}

static const float *row_20(int32_t first, int32_t position) {
    (void)first, (void)position;
    static const float row[] = {2, 0};
    return row;
}

static const float *row_not_numbers(int32_t first, int32_t position) {
    (void)position;
    static const float rows[3][3] = {{4, NAN, 1}, {4, INFINITY, 1}, {4, -INFINITY, 1}};
    return rows[first];
}

static const float *row_nan_at_3(int32_t first, int32_t position) {
    static const float good[] = {1, 2, 3, 4}, bad[] = {1, 2, NAN, 4};
    return first == 2 && position == 3 ? bad : good;
}

static const float *row_empty(int32_t first, int32_t position) {
    (void)position;
    static const float good[] = {1, 2, 3}, empty[] = {-INFINITY, -INFINITY, -INFINITY};
    return first == 1 ? empty : good;
}

static const float *row_certain(int32_t first, int32_t position) {
    (void)first, (void)position;
    static const float row[] = {0, 500, 0, 0};
    return row;
}

static const float *row_flat(int32_t first, int32_t position) {
    (void)first, (void)position;
    static const float row[] = {1.0f, 0.9f, 0.8f, 0.7f, 0.6f, 0.5f, 0.4f, 0.3f};
    return row;
}

/* ---- operators and numerics at request level ---- */

static void test_temperature_zero_in_a_mixed_batch_OPS_01(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 3, .end_token = -1, .row = row_132};
    const alea_request_params hot[2] = {params_of(1, 40), params_of(1, 40)};
    run_together(&ways, plain, hot, 2);
    static rig_choice before;
    before = choices[1][0];
    const alea_request_params mixed[2] = {params_of(0, 40), params_of(1, 40)};
    run_together(&ways, plain, mixed, 2);
    for (int32_t i = 0; i < 40; i++)
        assert_int_equal(choices[0][0].tokens[i], 1);
    rig_assert_equal(&choices[1][0], &before);
}

static void test_temperature_comes_before_the_filters_OPS_02(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 3, .end_token = -1, .row = row_210};
    alea_request_params p = params_of(0.5f, 200);
    p.sampling.top_p = 0.8f;
    p.want_sampled = true;
    run_one(&ways, &p);
    for (int32_t i = 0; i < 200; i++) {
        assert_int_equal(choices[0][0].tokens[i], 0);
        assert_float_equal(choices[0][0].masses[i], 0.8668f, 1e-4f);
    }
    p.sampling.temperature = 1; /* the undivided row keeps two */
    run_one(&ways, &p);
    assert_float_equal(choices[0][0].masses[0], 0.9100f, 1e-4f);
}

static void test_repetition_counts_a_token_once_OPS_17(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 3, .end_token = -1, .row = row_132};
    alea_request_params p = params_of(0, 1);
    p.repetition_penalty = 1.4f; /* 3 / 1.4 = 2.14 > 2; twice would be 1.53 */
    rig r = row_core_open(&ways, plain);
    memset(choices, 0, sizeof choices);
    const int32_t prompt[] = {1, 1, 1, 1};
    rig_run(&r, prompt, 4, &p, choices[0]);
    assert_int_equal(choices[0][0].tokens[0], 1);
    p.repetition_penalty = 1.6f; /* 1.875 < 2 */
    rig_run(&r, prompt, 4, &p, choices[1]);
    assert_int_equal(choices[1][0].tokens[0], 2);
    rig_close(&r);
}

static void test_the_logprob_is_raw_at_every_temperature_NUM_04_CON_05_CON_14(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 2, .end_token = -1, .row = row_20};
    static const float temperatures[] = {0, 0.2f, 0.5f, 0.6f, 1, 1.9f};
    for (size_t t = 0; t < 6; t++) {
        alea_request_params p = params_of(temperatures[t], 30);
        p.want_sampled = true;
        run_one(&ways, &p);
        const rig_choice *c = &choices[0][0];
        for (int32_t i = 0; i < 30; i++) {
            const float raw = c->tokens[i] == 0 ? -0.1269f : -2.1269f;
            assert_float_equal(c->logprobs[i], raw, 1e-4f);
            assert_float_equal(c->alternatives[i][0].logprob, -0.1269f, 1e-4f);
            if (temperatures[t] == 0.5f && c->tokens[i] == 0)
                assert_float_equal(c->sampled[i], -0.0181f, 1e-4f);
        }
    }
}

/* By definition, from a raw row, over the whole vocabulary. */
static long double logprob_of(const float *row, int32_t vocab, int32_t token) {
    long double most = row[0], sum = 0;
    for (int32_t i = 1; i < vocab; i++)
        if (row[i] > most) most = row[i];
    for (int32_t i = 0; i < vocab; i++)
        sum += expl(row[i] - most);
    return row[token] - most - logl(sum);
}

static void test_scores_are_those_of_the_raw_rows_on_any_threads_NUM_02(void **state) {
    (void)state;
    static rig_choice one;
    alea_request_params p = params_of(0, 16);
    p.ignore_end = true;
    int32_t tokens[20] = {5, 6, 7, 8};
    for (int32_t threads = 1; threads <= 16; threads += 15) {
        rig r = rig_open("vocab=3000", 1, 64, (alea_engine_options){.threads = threads});
        memset(choices, 0, sizeof choices);
        rig_run(&r, tokens, 4, &p, choices[0]);
        rig_close(&r);
        if (threads == 1) one = choices[0][0];
        rig_assert_equal(&choices[0][0], &one);
    }
    assert_int_equal(one.n, 16);
    memcpy(tokens + 4, one.tokens, 16 * sizeof *tokens);
    const alea_core_options options = {.struct_bytes = sizeof options, .model = "vocab=3000"};
    alea_core *core = NULL;
    assert_int_equal(alea_core_open(alea_core_toy(), &options, &core, NULL), ALEA_OK);
    const alea_round_item item = {.first_row = 3, .span = {.length = 19, .tokens = tokens}};
    int32_t n_rows;
    assert_int_equal(alea_core_run(core, &(alea_round){&item, 1}, &n_rows, NULL), ALEA_OK);
    for (int32_t i = 0; i < 16; i++) {
        const long double exact = logprob_of(alea_core_row(core, i), 3000, one.tokens[i]);
        const long double scale = fmaxl(1, -exact);
        assert_true(fabsl((long double)one.logprobs[i] - exact) <= 0x1p-23L * scale + 2e-7L);
        assert_true(one.logprobs[i] < -0.01f);
    }
    alea_core_close(core);
}

static const float *row_far_out(int32_t first, int32_t position) {
    (void)position;
    static const float rows[2][3] = {{1000, 999, 0}, {-1000, -1001, -2000}};
    return rows[first];
}

static void test_large_logits_neither_overflow_nor_vanish_NUM_03(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 3, .end_token = -1, .row = row_far_out};
    const alea_request_params p[2] = {params_of(0, 1), params_of(0, 1)};
    run_together(&ways, plain, p, 2);
    for (int32_t i = 0; i < 2; i++) {
        const rig_choice *c = &choices[i][0];
        assert_float_equal(c->logprobs[0], -0.3133f, 1e-4f);
        assert_float_equal(c->alternatives[0][1].logprob, -1.3133f, 1e-4f);
        assert_float_equal(c->alternatives[0][2].logprob, -1000.3133f, 1e-3f);
    }
}

static void test_small_temperatures_are_greedy_NUM_05(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 3, .end_token = -1, .row = row_132};
    for (int32_t e = 3; e <= 8; e++) {
        const alea_request_params p = params_of(powf(10, (float)-e), 7);
        run_one(&ways, &p);
        assert_int_equal(choices[0][0].finish, ALEA_FINISH_LENGTH);
        for (int32_t i = 0; i < 7; i++) {
            assert_int_equal(choices[0][0].tokens[i], 1);
            assert_float_equal(choices[0][0].logprobs[i], -0.4076f, 1e-4f);
        }
    }
}

static void test_rows_that_are_not_numbers_NUM_07_CON_10(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 3, .end_token = -1, .row = row_not_numbers};
    const alea_request_params p[3] = {params_of(1, 100), params_of(1, 100), params_of(1, 100)};
    run_together(&ways, plain, p, 3);
    for (int32_t i = 0; i < 2; i++) {
        assert_int_equal(choices[i][0].finish, ALEA_FINISH_ERROR);
        assert_non_null(strstr(choices[i][0].message, "position 1"));
        assert_int_equal(choices[i][0].n, 0);
    }
    const rig_choice *third = &choices[2][0];
    assert_int_equal(third->finish, ALEA_FINISH_LENGTH);
    assert_int_equal(third->n, 100);
    for (int32_t i = 0; i < 100; i++) {
        assert_int_not_equal(third->tokens[i], 1);
        assert_int_equal(third->alternatives[i][2].token, 1);
        assert_true(third->alternatives[i][2].logprob == -INFINITY); /* presented as -9999.0 */
    }
}

/* ---- contract ---- */

static void test_constrained_choice_reports_the_free_row_CON_01(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 8, .end_token = -1, .row = row_flat};
    alea_request_params p = params_of(0, 1);
    const int32_t allowed[] = {6, 7};
    p.allowed = (alea_token_list){allowed, 2};
    run_one(&ways, &p);
    const rig_choice *c = &choices[0][0];
    assert_int_equal(c->tokens[0], 6);
    assert_true(isfinite(c->logprobs[0]));
    for (int32_t i = 0; i < 3; i++) {
        assert_int_equal(c->alternatives[0][i].token, i); /* forbidden ones, with their scores */
        assert_true(isfinite(c->alternatives[0][i].logprob));
    }
}

static void test_sharp_settings_keep_finite_scores_CON_02(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 8, .end_token = -1, .row = row_flat};
    alea_request_params p[2] = {params_of(0.05f, 6), params_of(1, 6)};
    p[0].sampling.top_p = 0.3f;
    run_together(&ways, plain, p, 2);
    for (int32_t i = 0; i < 6; i++) {
        assert_true(isfinite(choices[0][0].logprobs[i]));
        assert_memory_equal(choices[0][0].alternatives[i], choices[1][0].alternatives[i],
                            3 * sizeof(alea_alternative));
    }
}

static void test_a_logprob_is_no_probability_CON_04(void **state) {
    (void)state;
    const row_core_ways certain = {.vocab = 4, .end_token = -1, .row = row_certain};
    alea_request_params p = params_of(1, 20);
    run_one(&certain, &p);
    for (int32_t i = 0; i < 20; i++) {
        assert_int_equal(choices[0][0].tokens[i], 1);
        assert_true(choices[0][0].logprobs[i] == 0.0f && !signbit(choices[0][0].logprobs[i]));
    }
    const row_core_ways flat = {.vocab = 8, .end_token = -1, .row = row_flat};
    p.top = 8;
    run_one(&flat, &p);
    for (int32_t i = 0; i < 20; i++) {
        double sum = 0;
        for (int32_t a = 0; a < 8; a++) {
            assert_true(choices[0][0].alternatives[i][a].logprob <= 0);
            sum += exp((double)choices[0][0].alternatives[i][a].logprob);
        }
        assert_true(fabs(sum - 1) < 1e-5);
    }
}

static void test_the_chosen_token_may_be_outside_its_alternatives_CON_07_CON_16(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 8, .end_token = -1, .row = row_flat};
    const alea_request_params p = params_of(1.5f, 200);
    run_one(&ways, &p);
    const rig_choice *c = &choices[0][0];
    int32_t outside = 0;
    for (int32_t i = 0; i < 200; i++) {
        assert_int_equal(c->n_alternatives[i], 3);
        if (c->tokens[i] < 3) {
            const float listed = c->alternatives[i][c->tokens[i]].logprob;
            assert_memory_equal(&c->logprobs[i], &listed, sizeof listed);
            continue;
        }
        outside++;
        for (int32_t a = 0; a < 3; a++)
            assert_true(c->logprobs[i] < c->alternatives[i][a].logprob);
    }
    assert_true(outside > 50);
}

static void test_zero_alternatives_are_an_empty_list_CON_08(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 8, .end_token = -1, .row = row_flat};
    alea_request_params p = params_of(1, 5);
    p.top = 0;
    run_one(&ways, &p);
    for (int32_t i = 0; i < 5; i++) {
        assert_int_equal(choices[0][0].n_alternatives[i], 0);
        assert_true(choices[0][0].entries[i] && isfinite(choices[0][0].logprobs[i]));
    }
}

/* One of sixteen rotations of one row: what is best changes from position to position. */
static const float *row_turning(int32_t first, int32_t position) {
    (void)first;
    static float rows[16][16];
    for (int32_t i = 0; i < 16; i++)
        rows[position % 16][(i + position) % 16] = 3 - 0.25f * (float)i;
    return rows[position % 16];
}

static void test_each_token_has_its_own_position_s_alternatives_CON_03(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 16, .end_token = -1, .row = row_turning};
    alea_request_params p = params_of(1, 12);
    p.top = 4;
    run_one(&ways, &p);
    const rig_choice *c = &choices[0][0];
    for (int32_t i = 0; i < 12; i++) {
        for (int32_t a = 0; a < 4; a++) {
            assert_int_equal(c->alternatives[i][a].token, (i + a) % 16);
            assert_true(c->alternatives[i][a].logprob > -20 && c->alternatives[i][a].logprob < 0);
        }
        assert_true(c->logprobs[i] > -20 && c->logprobs[i] < 0);
    }
}

static void test_scores_of_the_answer_need_none_of_the_prompt_CON_09(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 16, .end_token = -1, .row = row_turning};
    rig r = row_core_open(&ways, plain);
    alea_request_params p = params_of(0, 5);
    p.top = 1;
    const int32_t prompt[] = {3, 1, 4, 1, 5};
    alea_request *request = rig_submit(&r, prompt, 5, &p);
    while (alea__engine_step(r.engine, 1) == ALEA_OK) {
    }
    alea_event event;
    int32_t n = 0;
    while (alea__request_next(request, 0, &event) == ALEA_OK) {
        assert_int_not_equal(event.kind, ALEA_EVENT_PROMPT);
        if (event.kind != ALEA_EVENT_TOKEN) continue;
        assert_true(event.has_entry);
        assert_int_equal(event.n_alternatives, 1);
        assert_int_equal(event.token, (4 + n) % 16);
        n++;
    }
    assert_int_equal(n, 5);
    alea__request_release(request);
    rig_close(&r);
}

static void test_a_bad_row_is_not_a_score_CON_15_OPS_22(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 4, .end_token = -1, .row = row_nan_at_3};
    alea_request_params p[4];
    for (int32_t i = 0; i < 4; i++)
        p[i] = params_of(1, 10);
    run_together(&ways, plain, p, 4);
    for (int32_t i = 0; i < 4; i++) {
        const bool bad = i == 2;
        assert_int_equal(choices[i][0].finish, bad ? ALEA_FINISH_ERROR : ALEA_FINISH_LENGTH);
        assert_int_equal(choices[i][0].n, bad ? 3 : 10);
        for (int32_t t = 0; t < choices[i][0].n; t++)
            assert_true(isfinite(choices[i][0].logprobs[t]));
    }
    assert_non_null(strstr(choices[2][0].message, "position 4"));
}

/* ---- core ---- */

static void test_n_choices_are_n_streams_CORE_07(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 8, .end_token = -1, .row = row_flat};
    alea_request_params p = params_of(1, 24);
    p.choices = 4;
    static rig_choice before[4];
    run_one(&ways, &p);
    memcpy(before, choices[0], sizeof before);
    run_one(&ways, &p);
    for (int32_t a = 0; a < 4; a++) {
        rig_assert_equal(&choices[0][a], &before[a]);
        for (int32_t b = 0; b < a; b++)
            assert_memory_not_equal(before[a].tokens, before[b].tokens, 24 * sizeof(int32_t));
    }
}

static void test_a_seed_does_not_change_the_temperature_CORE_08(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 8, .end_token = -1, .row = row_flat};
    for (int32_t hot = 0; hot < 2; hot++) {
        alea_request_params p[2] = {params_of(hot ? 0.8f : 0, 24), params_of(hot ? 0.8f : 0, 24)};
        p[0].seed = 1;
        p[1].seed = 2;
        run_together(&ways, plain, p, 2);
        const int same = memcmp(choices[0][0].tokens, choices[1][0].tokens, 24 * sizeof(int32_t));
        assert_int_equal(same != 0, hot);
    }
}

static alea_request_params stranger_params(int32_t i) {
    alea_request_params p = params_of(0.5f + 0.1f * (float)i, 10 + i);
    p.seed = 100 + (uint64_t)i;
    p.ignore_end = true;
    p.top = i % 3 - 1;
    return p;
}

/* The subject as number `place` of 8, the others strangers or, without, copies of itself. */
static void run_among(rig *r, const int32_t *prompt, const alea_request_params *params,
                      int32_t place, bool strangers) {
    alea_request *requests[8];
    memset(choices, 0, sizeof choices);
    for (int32_t i = 0; i < 8; i++) {
        const int32_t other[] = {i, 200 - i, 3};
        const alea_request_params theirs = stranger_params(i);
        const bool own = i == place || !strangers;
        requests[i] = own ? rig_submit(r, prompt, 24, params) : rig_submit(r, other, 3, &theirs);
    }
    for (int32_t i = 0; i < 8; i++)
        rig_finish(r, requests[i], choices[i]);
}

static void test_alone_in_company_or_shuffled_and_from_any_cache_CORE_09_CORE_13(void **state) {
    (void)state;
    static const char toy[] = "vocab=400,text=1";
    static rig_choice alone;
    int32_t prompt[24];
    for (int32_t i = 0; i < 24; i++)
        prompt[i] = 3 * i;
    for (int32_t hot = 0; hot < 2; hot++) {
        alea_request_params p = params_of(hot ? 0.9f : 0, 20);
        p.ignore_end = true;
        rig r = rig_open(toy, 1, 64, plain);
        memset(choices, 0, sizeof choices);
        rig_run(&r, prompt, 24, &p, choices[0]);
        alone = choices[0][0];
        memset(choices, 0, sizeof choices);
        rig_run(&r, prompt, 24, &p, choices[0]); /* a warm cache */
        rig_assert_equal(&choices[0][0], &alone);
        rig_close(&r);
        r = rig_open(toy, 5, 32, plain);
        run_among(&r, prompt, &p, 0, false);
        for (int32_t i = 0; i < 8; i++)
            rig_assert_equal(&choices[i][0], &alone);
        for (int32_t place = 0; place < 8; place += 4) {
            run_among(&r, prompt, &p, place, true);
            rig_assert_equal(&choices[place][0], &alone);
        }
        rig_close(&r);
    }
}

static void test_a_row_with_nothing_to_sample_fails_its_request_alone_CORE_10(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 3, .end_token = -1, .row = row_empty};
    const alea_request_params p[3] = {params_of(1, 5), params_of(1, 5), params_of(0, 5)};
    run_together(&ways, plain, p, 3);
    assert_int_equal(choices[1][0].finish, ALEA_FINISH_ERROR);
    assert_non_null(strstr(choices[1][0].message, "position 1"));
    assert_int_equal(choices[0][0].n, 5);
    assert_int_equal(choices[2][0].n, 5);
}

static void test_an_abort_frees_the_slot_and_the_next_request_works_CORE_11_CORE_12(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 8, .end_token = -1, .row = row_flat};
    rig r = row_core_open(&ways, (alea_engine_options){.slots = 1, .threads = 1});
    const alea_request_params endless = params_of(1, 200);
    const alea_request_params brief = params_of(1, 3);
    for (int32_t i = 0; i < 100; i++) {
        const int32_t prompt[] = {i % 8, 1, 2};
        alea_request *aborted = rig_submit(&r, prompt, 3, &endless);
        alea_request *queued = rig_submit(&r, prompt, 3, &endless);
        for (int32_t step = 0; step < i % 5; step++)
            assert_true(alea__engine_step(r.engine, 1) >= 0);
        alea__request_release(aborted);
        alea__request_release(queued); /* never starts */
        memset(choices, 0, sizeof choices);
        rig_run(&r, prompt, 3, &brief, choices[0]);
        assert_int_equal(choices[0][0].finish, ALEA_FINISH_LENGTH);
        assert_int_equal(choices[0][0].n, 3);
    }
    alea_engine_stats stats;
    alea__engine_stats_read(r.engine, &stats);
    assert_int_equal(stats.cancelled, 200);
    assert_int_equal(stats.finished, 100);
    assert_int_equal(stats.running + stats.waiting, 0);
    assert_true(stats.output_tokens < 100 * 3 + 100 * 8);
    rig_close(&r);
}

/* Of this process: other work on the machine does not count. */
static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Seconds of one processor for the answers of four requests; the fastest of three runs. */
static double seconds_for(int32_t top, int32_t n_selected) {
    int32_t ids[128];
    for (int32_t i = 0; i < 128; i++)
        ids[i] = 7 * i;
    double best = INFINITY;
    for (int32_t run = 0; run < 3; run++) {
        rig r = rig_open("vocab=50000", 4, 64, (alea_engine_options){.threads = 1});
        alea_request_params p = params_of(0, 12);
        p.ignore_end = true;
        p.top = top;
        p.selected = (alea_token_list){ids, n_selected};
        alea_request *requests[4];
        for (int32_t i = 0; i < 4; i++)
            requests[i] = rig_submit(&r, &i, 1, &p);
        const double start = cpu_seconds();
        while (alea__engine_step(r.engine, 1) == ALEA_OK) {
        }
        best = fmin(best, cpu_seconds() - start);
        for (int32_t i = 0; i < 4; i++)
            alea__request_release(requests[i]);
        rig_close(&r);
    }
    return best;
}

/* A generous bound: the fault that it is for was a factor of 38. */
static void test_alternatives_cost_hardly_more_than_none_CORE_05(void **state) {
    (void)state;
    const double none = seconds_for(0, 0);
    static const int32_t tops[] = {1, 5, 20};
    for (size_t i = 0; i < 3; i++)
        assert_true(seconds_for(tops[i], 0) < 3 * none);
    assert_true(seconds_for(0, 128) < 3 * none);
}

/* Rounds until each of ten plain requests has its first token, beside a heavy one or none. */
static int32_t rounds_to_first_tokens(bool heavy) {
    rig r = rig_open("vocab=400,text=1", 20, 512, (alea_engine_options){.threads = 2});
    alea_request_params p = params_of(1, 64);
    p.ignore_end = true;
    p.choices = 8;
    p.top = 20;
    const int32_t prompt[] = {1, 2, 3};
    alea_request *big = heavy ? rig_submit(&r, prompt, 3, &p) : NULL;
    p.choices = 1;
    p.top = -1;
    alea_request *small[10];
    for (int32_t i = 0; i < 10; i++)
        small[i] = rig_submit(&r, prompt + i % 3, 1, &p);
    int32_t rounds = 0, n_begun = 0;
    while (n_begun < 10) {
        assert_int_equal(alea__engine_step(r.engine, (uint64_t)++rounds), ALEA_OK);
        n_begun = 0;
        for (int32_t i = 0; i < 10; i++) {
            alea_request_usage usage;
            alea__request_usage_read(small[i], &usage);
            n_begun += usage.first_token_ns != 0;
        }
    }
    static rig_choice read[8];
    for (int32_t i = 0; i < 10; i++) {
        memset(read, 0, sizeof read);
        rig_finish(&r, small[i], read);
        for (int32_t t = 0; t < read[0].n; t++)
            assert_false(read[0].entries[t]);
    }
    memset(read, 0, sizeof read);
    if (heavy) rig_finish(&r, big, read);
    alea_engine_stats stats;
    alea__engine_stats_read(r.engine, &stats);
    assert_int_equal(stats.reduced_positions, heavy ? 8 * 64 : 0);
    rig_close(&r);
    return rounds;
}

static void test_a_heavy_request_delays_no_plain_one_CORE_06(void **state) {
    (void)state;
    assert_in_range(rounds_to_first_tokens(true), 1, rounds_to_first_tokens(false) + 1);
}

/* ---- a core in trouble ---- */

static void test_a_core_that_hangs_for_a_while_delays_and_changes_nothing(void **state) {
    (void)state;
    row_core_ways ways = {.vocab = 8, .end_token = -1, .row = row_flat};
    const alea_request_params p[2] = {params_of(1, 6), params_of(0.7f, 6)};
    run_together(&ways, plain, p, 2);
    static rig_choice before[2];
    for (int32_t i = 0; i < 2; i++)
        before[i] = choices[i][0];
    ways.hang_ms = 20;
    const uint64_t start = alea__clock_ns();
    run_together(&ways, plain, p, 2);
    assert_true(alea__clock_ns() - start >= UINT64_C(100000000));
    for (int32_t i = 0; i < 2; i++)
        rig_assert_equal(&choices[i][0], &before[i]);
}

static void test_a_deadline_is_kept_while_the_core_hangs(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 8, .end_token = -1, .row = row_flat, .hang_ms = 20};
    rig r = row_core_open(&ways, plain);
    alea_error error;
    assert_int_equal(alea__engine_start(r.engine, &error), ALEA_OK);
    alea_request_params p = params_of(1, 200);
    p.deadline_ns = alea__clock_ns() + UINT64_C(150000000);
    const int32_t first = 1;
    alea_request *request = rig_submit(&r, &first, 1, &p);
    alea_event event = {0};
    while (alea__request_next(request, 5000, &event) == ALEA_OK) {
    }
    assert_int_equal(event.kind, ALEA_EVENT_FINISH);
    assert_int_equal(event.finish, ALEA_FINISH_DEADLINE);
    assert_in_range(event.output_tokens, 1, 12);
    alea__request_release(request);
    rig_close(&r);
}

static void test_a_round_that_fails_names_its_position_and_the_next_works(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 8, .end_token = -1, .row = row_flat, .fail_round = 4};
    rig r = row_core_open(&ways, plain);
    memset(choices, 0, sizeof choices);
    const alea_request_params p = params_of(1, 10);
    const int32_t prompt[] = {1, 2};
    rig_run(&r, prompt, 2, &p, choices[0]);
    assert_int_equal(choices[0][0].finish, ALEA_FINISH_ERROR);
    assert_non_null(strstr(choices[0][0].message, "position 4: the engine is out of order"));
    assert_int_equal(choices[0][0].n, 3);
    rig_run(&r, prompt, 2, &p, choices[1]);
    assert_int_equal(choices[1][0].n, 10);
    assert_memory_equal(choices[0][0].tokens, choices[1][0].tokens, 3 * sizeof(int32_t));
    rig_close(&r);
}

/* The stop is found while the next round computes, which fails: the answer was complete. */
static void test_a_round_that_fails_behind_a_stop_string_takes_no_answer_back(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 8, .end_token = -1, .row = row_flat, .fail_round = 4};
    alea_request_params p = params_of(0, 10); /* a, a, a, … */
    const alea_bytes stop = {(const uint8_t *)"aaa", 3};
    p.stops = &stop;
    p.n_stops = 1;
    p.include_stop = true;
    for (int32_t way = 0; way < 2; way++) {
        run_together(&ways, (alea_engine_options){.threads = 1, .no_overlap = way}, &p, 1);
        assert_int_equal(choices[0][0].finish, ALEA_FINISH_STOP);
        assert_int_equal(choices[0][0].n, 3);
    }
}

/* A row with NaN ends its request, whether or not somebody looks at its logprobs. */
static void test_a_bad_row_is_an_error_where_its_entry_is_banned_too(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 4, .end_token = -1, .row = row_nan_at_3};
    const int32_t allowed[] = {0, 1};
    for (int32_t top = -1; top < 1; top++) {
        alea_request_params p[3];
        for (int32_t i = 0; i < 3; i++) {
            p[i] = params_of(1, 10);
            p[i].top = top;
            p[i].allowed = (alea_token_list){allowed, 2};
        }
        run_together(&ways, plain, p, 3);
        assert_int_equal(choices[2][0].finish, ALEA_FINISH_ERROR);
        assert_non_null(strstr(choices[2][0].message, "position 4"));
        assert_int_equal(choices[2][0].n, 3);
        assert_int_equal(choices[1][0].n, 10);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_temperature_zero_in_a_mixed_batch_OPS_01),
        cmocka_unit_test(test_temperature_comes_before_the_filters_OPS_02),
        cmocka_unit_test(test_repetition_counts_a_token_once_OPS_17),
        cmocka_unit_test(test_the_logprob_is_raw_at_every_temperature_NUM_04_CON_05_CON_14),
        cmocka_unit_test(test_scores_are_those_of_the_raw_rows_on_any_threads_NUM_02),
        cmocka_unit_test(test_large_logits_neither_overflow_nor_vanish_NUM_03),
        cmocka_unit_test(test_small_temperatures_are_greedy_NUM_05),
        cmocka_unit_test(test_rows_that_are_not_numbers_NUM_07_CON_10),
        cmocka_unit_test(test_constrained_choice_reports_the_free_row_CON_01),
        cmocka_unit_test(test_sharp_settings_keep_finite_scores_CON_02),
        cmocka_unit_test(test_a_logprob_is_no_probability_CON_04),
        cmocka_unit_test(test_the_chosen_token_may_be_outside_its_alternatives_CON_07_CON_16),
        cmocka_unit_test(test_zero_alternatives_are_an_empty_list_CON_08),
        cmocka_unit_test(test_each_token_has_its_own_position_s_alternatives_CON_03),
        cmocka_unit_test(test_scores_of_the_answer_need_none_of_the_prompt_CON_09),
        cmocka_unit_test(test_a_bad_row_is_not_a_score_CON_15_OPS_22),
        cmocka_unit_test(test_n_choices_are_n_streams_CORE_07),
        cmocka_unit_test(test_a_seed_does_not_change_the_temperature_CORE_08),
        cmocka_unit_test(test_alone_in_company_or_shuffled_and_from_any_cache_CORE_09_CORE_13),
        cmocka_unit_test(test_a_row_with_nothing_to_sample_fails_its_request_alone_CORE_10),
        cmocka_unit_test(test_an_abort_frees_the_slot_and_the_next_request_works_CORE_11_CORE_12),
        cmocka_unit_test(test_alternatives_cost_hardly_more_than_none_CORE_05),
        cmocka_unit_test(test_a_heavy_request_delays_no_plain_one_CORE_06),
        cmocka_unit_test(test_a_core_that_hangs_for_a_while_delays_and_changes_nothing),
        cmocka_unit_test(test_a_deadline_is_kept_while_the_core_hangs),
        cmocka_unit_test(test_a_round_that_fails_names_its_position_and_the_next_works),
        cmocka_unit_test(test_a_round_that_fails_behind_a_stop_string_takes_no_answer_back),
        cmocka_unit_test(test_a_bad_row_is_an_error_where_its_entry_is_banned_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
