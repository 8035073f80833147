/*
 * Scored prompts on the score_toy core, whose rows change with every token before them: the engine
 * must report what `alea score` reports, bit for bit, whatever rounds, queues, neighbours and lost
 * slots do to the way there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/row_core.h"
#include "runtime/score_rig.h"

enum { MOST = 300 };

static rig_choice expected[4], got[4];

static void test_the_engine_scores_what_alea_score_scores(void **state) {
    (void)state;
    static const int32_t lengths[] = {1, 2, 3, 17, 64, 65, 66, 129, 300};
    static const int32_t rounds[] = {1, 2, 7, 64, 200};
    static const int32_t queues[] = {1, 3, 64, 256};
    int32_t tokens[MOST];
    uint64_t random = 3;
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        const int32_t n = lengths[l], top = score_draw(&random, 21);
        score_fill(tokens, n, (uint64_t)n);
        score_reference(score_toy, tokens, n, top, &expected[0]);
        for (size_t i = 0; i < 20; i++) {
            alea_engine_options options = score_options(queues[i % 4], ALEA_SCORED_CACHE_OFF);
            options.no_overlap = i % 3 == 0;
            rig r = rig_open(score_toy, 1 + score_draw(&random, 3), rounds[i / 4], options);
            alea_request_params p = score_params(top, (int32_t)i % 3);
            p.choices = 1 + (int32_t)i % 2;
            memset(got, 0, sizeof got);
            rig_run(&r, tokens, n, &p, got);
            score_assert_equal(&got[0], &expected[0]);
            assert_int_equal(got[0].finish, ALEA_FINISH_LENGTH);
            for (int32_t c = 0; c < p.choices; c++)
                assert_int_equal(got[c].n, p.max_tokens);
            assert_int_equal(got[1].n_scores, 0);
            rig_close(&r);
        }
    }
}

/* More rows in a round than are reduced at a time come in blocks, and no smaller round. */
static void test_a_round_of_more_than_64_rows_is_scored_in_blocks(void **state) {
    (void)state;
    int32_t tokens[MOST];
    score_fill(tokens, MOST, 6);
    score_reference(score_toy, tokens, MOST, 7, &expected[0]);
    rig r = rig_open(score_toy, 150, 512, score_options(0, ALEA_SCORED_CACHE_OFF));
    const alea_request_params p = score_params(7, 1);
    memset(got, 0, sizeof got);
    rig_run(&r, tokens, MOST, &p, got);
    score_assert_equal(&got[0], &expected[0]);
    alea_engine_stats stats;
    alea__engine_stats_read(r.engine, &stats);
    assert_int_equal(stats.rounds, 2);
    rig_close(&r);
}

/* A prompt that fits takes one round, the draw of its answer included, as it would unscored. */
static void test_a_short_prompt_is_scored_and_answered_in_one_round(void **state) {
    (void)state;
    int32_t tokens[64];
    score_fill(tokens, 64, 5);
    for (int32_t n = 1; n <= 64; n += 21) {
        rig r = rig_open(score_toy, 1, 64, score_options(0, ALEA_SCORED_CACHE_ON));
        const alea_request_params p = score_params(2, 1);
        score_run(&r, got, tokens, n, &p);
        assert_int_equal(got[0].n_scores, n);
        alea_engine_stats stats;
        alea__engine_stats_read(r.engine, &stats);
        assert_int_equal(stats.rounds, 1);
        rig_close(&r);
    }
}

/* A scored prompt is followed by the answer that the same prompt has unscored. */
static void test_scores_change_no_token(void **state) {
    (void)state;
    int32_t tokens[100];
    score_fill(tokens, 100, 9);
    alea_request_params p = score_params(3, 20);
    p.top = 4;
    p.choices = 2;
    rig r = rig_open(score_toy, 3, 32, score_options(0, ALEA_SCORED_CACHE_AUTO));
    memset(got, 0, sizeof got);
    rig_run(&r, tokens, 100, &p, got);
    assert_int_equal(got[0].n_scores, 100);
    p.prompt_top = -1;
    memset(expected, 0, sizeof expected);
    rig_run(&r, tokens, 100, &p, expected);
    got[0].n_scores = 0;
    for (int32_t c = 0; c < 2; c++)
        rig_assert_equal(&got[c], &expected[c]);
    rig_close(&r);
}

static void test_a_prompt_of_one_token_has_one_null_CON_12(void **state) {
    (void)state;
    const int32_t token = 77;
    for (int32_t max_tokens = 0; max_tokens < 2; max_tokens++) {
        rig r = rig_open(score_toy, 1, 64, score_options(1, ALEA_SCORED_CACHE_AUTO));
        const alea_request_params p = score_params(1, max_tokens);
        memset(got, 0, sizeof got);
        rig_run(&r, &token, 1, &p, got);
        assert_int_equal(got[0].n_scores, 1);
        assert_int_equal(got[0].scores[0].token, 77); /* CON-11: the token itself is told */
        assert_false(got[0].scores[0].has_entry);
        assert_int_equal(got[0].scores[0].n_alternatives, 0);
        assert_int_equal(got[0].n, max_tokens);
        rig_close(&r);
    }
}

static void test_a_token_is_scored_by_the_row_before_it_CON_06_CON_11(void **state) {
    (void)state;
    rig r = rig_open("vocab=320,peak=30", 1, 4, score_options(0, ALEA_SCORED_CACHE_AUTO));
    static const int32_t prompt[] = {10, 11, 12, 13, 14, 15};
    alea_request_params p = score_params(1, 1);
    p.top = 0;
    p.sampling.temperature = 0;
    memset(got, 0, sizeof got);
    rig_run(&r, prompt, 6, &p, got);
    assert_int_equal(got[0].n_scores, 6);
    assert_false(got[0].scores[0].has_entry);
    for (int32_t i = 0; i < 6; i++) {
        assert_int_equal(got[0].scores[i].token, prompt[i]);
        if (i == 0) continue;
        assert_true(got[0].scores[i].logprob > -1e-3f);
        assert_int_equal(got[0].scores[i].rank, 1);
        assert_true(got[0].scores[i].is_greedy);
    }
    assert_int_equal(got[0].tokens[0], 16);
    assert_true(got[0].logprobs[0] > -1e-3f);
    rig_close(&r);
}

/* ---- greedy by the raw logit ---- */

static const float *row_with_a_tie(int32_t first, int32_t position) {
    (void)first, (void)position;
    static float row[300];
    for (int32_t i = 0; i < 300; i++)
        row[i] = -1;
    row[20] = 1e-9f;
    row[30] = 0; /* as probable as 20 once the sum is taken off, but not the largest logit */
    return row;
}

static void test_rank_one_need_not_be_greedy(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 300, .end_token = -1, .row = row_with_a_tie};
    rig r = row_core_open(&ways, score_options(0, ALEA_SCORED_CACHE_AUTO));
    static const int32_t prompt[] = {30, 20, 30, 20, 5};
    alea_request_params p = score_params(2, 1);
    p.want_rank = true;
    p.sampling.temperature = 0;
    memset(got, 0, sizeof got);
    rig_run(&r, prompt, 5, &p, got);
    for (int32_t i = 1; i < 4; i++) {
        const rig_score *score = &got[0].scores[i];
        assert_int_equal(score->rank, 1);
        assert_int_equal(score->is_greedy, prompt[i] == 20);
        assert_int_equal(score->alternatives[0].token, 20);
        assert_int_equal(score->alternatives[1].token, 30);
        assert_true(score->alternatives[0].logprob == score->alternatives[1].logprob);
    }
    assert_int_equal(got[0].scores[4].rank, 3);
    assert_int_equal(got[0].tokens[0], 20);
    rig_close(&r);
}

/* ---- losing the slot ---- */

/* A scored request that loses its slot after `steps` rounds to one of smaller priority. */
static void preempt_after(int32_t steps, const int32_t *tokens, int32_t n,
                          const alea_request_params *params, alea_engine_options options,
                          int32_t round_tokens) {
    rig r = rig_open(score_toy, 1, round_tokens, options);
    alea_request_params urgent = alea__params_default();
    urgent.priority = -1;
    urgent.max_tokens = 3;
    urgent.ignore_end = true;
    const int32_t other[] = {9, 8, 7, 6, 5};
    memset(got, 0, sizeof got);
    alea_request *request = rig_submit(&r, tokens, n, params);
    for (int32_t i = 0; i < steps; i++) {
        assert_true(alea__engine_step(r.engine, 1) >= 0);
        if (i % 3) (void)rig_read(request, got);
    }
    static rig_choice first[1];
    memset(first, 0, sizeof first);
    rig_run(&r, other, 5, &urgent, first);
    assert_int_equal(first[0].n, 3);
    rig_finish(&r, request, got);
    alea_engine_stats stats;
    alea__engine_stats_read(r.engine, &stats);
    assert_in_range(stats.preempted, 0, 1);
    assert_int_equal(stats.finished, 2);
    rig_close(&r);
}

static void test_preemption_at_any_chunk_leaves_no_gap_and_no_duplicate(void **state) {
    (void)state;
    int32_t tokens[60];
    score_fill(tokens, 60, 4);
    score_reference(score_toy, tokens, 60, 6, &expected[0]);
    static const int32_t rounds[] = {1, 5, 16, 64};
    for (size_t i = 0; i < 4; i++) {
        for (int32_t max_tokens = 0; max_tokens < 9; max_tokens += 4) {
            const alea_request_params p = score_params(6, max_tokens);
            static rig_choice whole;
            for (int32_t steps = 0; steps < 60 / rounds[i] + 14; steps++) {
                alea_engine_options options =
                    score_options(steps % 2 ? 7 : 0,
                                  steps % 4 < 2 ? ALEA_SCORED_CACHE_OFF : ALEA_SCORED_CACHE_ON);
                options.no_overlap = steps % 5 == 0;
                preempt_after(steps, tokens, 60, &p, options, rounds[i]);
                score_assert_equal(&got[0], &expected[0]);
                assert_int_equal(got[0].n, max_tokens);
                if (steps == 0) whole = got[0];
                rig_assert_equal(&got[0], &whole);
            }
        }
    }
}

static void test_a_run_that_lost_its_slot_is_counted(void **state) {
    (void)state;
    int32_t tokens[20];
    score_fill(tokens, 20, 4);
    rig r = rig_open(score_toy, 1, 4, score_options(0, ALEA_SCORED_CACHE_AUTO));
    const alea_request_params p = score_params(0, 30);
    alea_request_params urgent = score_params(-1, 2);
    alea_request *slow = rig_submit(&r, tokens, 20, &p);
    for (int32_t i = 0; i < 10; i++)
        assert_int_equal(alea__engine_step(r.engine, 1), ALEA_OK);
    urgent.priority = -5;
    memset(got, 0, sizeof got);
    rig_run(&r, tokens, 3, &urgent, got);
    urgent.priority = 0; /* an equal waits its turn */
    alea_request *equal = rig_submit(&r, tokens, 3, &urgent);
    memset(got, 0, sizeof got);
    rig_finish(&r, slow, got);
    rig_finish(&r, equal, got + 1);
    assert_int_equal(got[0].n, 30);
    assert_int_equal(got[1].n, 2);
    alea_engine_stats stats;
    alea__engine_stats_read(r.engine, &stats);
    assert_int_equal(stats.preempted, 1);
    rig_close(&r);
}

/* ---- faults ---- */

static void test_a_bad_row_ends_the_scores_and_names_the_position(void **state) {
    (void)state;
    static const char *const kinds[] = {"nan_at", "inf_at", "empty_at"};
    int32_t tokens[50];
    score_fill(tokens, 50, 8);
    for (int32_t at = 0; at < 49; at++) {
        char model[128], words[64];
        snprintf(model, sizeof model, "%s,%s=%d,fault_sequence=0", score_toy, kinds[at % 3], at);
        snprintf(words, sizeof words, "prompt position %d:", at + 1);
        rig r = rig_open(model, 2, 1 + at % 40, score_options(0, ALEA_SCORED_CACHE_ON));
        const alea_request_params p = score_params(2, at % 2);
        memset(got, 0, sizeof got);
        alea_request *bad = rig_submit(&r, tokens, 50, &p);
        const alea_request_params plain = score_params(-1, 60);
        alea_request *good = rig_submit(&r, tokens, 1, &plain);
        rig_finish(&r, bad, got);
        rig_finish(&r, good, got + 1);
        assert_int_equal(got[0].finish, ALEA_FINISH_ERROR);
        if (!strstr(got[0].message, words)) fail_msg("'%s' lacks '%s'", got[0].message, words);
        assert_int_equal(got[0].n_scores, at + 1);
        assert_int_equal(got[0].n, 0);
        assert_int_equal(got[1].n, 60);
        rig_close(&r);
    }
}

static void test_a_failed_round_leaves_no_scores_behind(void **state) {
    (void)state;
    int32_t tokens[60];
    score_fill(tokens, 60, 8);
    score_reference(score_toy, tokens, 60, 2, &expected[0]);
    for (int32_t at = 0; at < 8; at++) {
        char model[128];
        snprintf(model, sizeof model, "%s,%s=%d", score_toy, at % 2 ? "fail_at" : "refuse_at", at);
        rig r = rig_open(model, 2, 10, score_options(0, ALEA_SCORED_CACHE_ON));
        const alea_request_params p = score_params(2, 3);
        memset(got, 0, sizeof got);
        rig_run(&r, tokens, 60, &p, got);
        assert_int_equal(got[0].finish, ALEA_FINISH_ERROR);
        assert_memory_equal(got[0].scores, expected[0].scores,
                            (size_t)got[0].n_scores * sizeof(rig_score));
        assert_int_equal(got[0].n_scores, at == 0 ? 1 : at < 6 ? at * 10 + 1 : 60);
        memset(got, 0, sizeof got);
        rig_run(&r, tokens, 60, &p, got);
        score_assert_equal(&got[0], &expected[0]);
        assert_int_equal(got[0].n, 3);
        rig_close(&r);
    }
}

static const float *row_nan_from_3(int32_t first, int32_t position) {
    (void)first;
    static const float good[] = {1, 2, 3, 4}, bad[] = {1, 2, NAN, 4};
    return position >= 3 ? bad : good;
}

/* The row that the answer is drawn from is bad too, but it is not the first. */
static void test_the_first_of_several_bad_rows_is_named(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 4, .end_token = -1, .row = row_nan_from_3};
    rig r = row_core_open(&ways, score_options(0, ALEA_SCORED_CACHE_AUTO));
    static const int32_t prompt[] = {0, 1, 2, 3, 0, 1, 2, 3};
    const alea_request_params p = score_params(2, 5);
    memset(got, 0, sizeof got);
    rig_run(&r, prompt, 8, &p, got);
    assert_int_equal(got[0].finish, ALEA_FINISH_ERROR);
    assert_non_null(strstr(got[0].message, "prompt position 4:"));
    assert_int_equal(got[0].n_scores, 4);
    rig_close(&r);
}

static void test_a_cancel_in_the_middle_ends_the_scores_in_order(void **state) {
    (void)state;
    int32_t tokens[MOST];
    score_fill(tokens, MOST, 8);
    score_reference(score_toy, tokens, MOST, 1, &expected[0]);
    rig r = rig_open(score_toy, 2, 16, score_options(40, ALEA_SCORED_CACHE_ON));
    const alea_request_params p = score_params(1, 1);
    for (int32_t steps = 0; steps < 25; steps++) {
        memset(got, 0, sizeof got);
        alea_request *request = rig_submit(&r, tokens + steps, MOST - steps, &p);
        for (int32_t i = 0; i < steps; i++)
            assert_true(alea__engine_step(r.engine, 1) >= 0);
        if (steps % 2) (void)rig_read(request, got);
        alea__request_cancel(request);
        rig_finish(&r, request, got);
        assert_int_equal(got[0].finish, ALEA_FINISH_CANCELLED);
        assert_true(got[0].n_scores < MOST - steps);
    }
    memset(got, 0, sizeof got);
    rig_run(&r, tokens, MOST, &p, got);
    score_assert_equal(&got[0], &expected[0]);
    rig_close(&r);
}

static void test_an_unread_prompt_pauses_its_own_request_only(void **state) {
    (void)state;
    int32_t tokens[MOST];
    score_fill(tokens, MOST, 8);
    rig r = rig_open(score_toy, 2, 16, score_options(8, ALEA_SCORED_CACHE_ON));
    const alea_request_params p = score_params(1, 2);
    alea_request *unread = rig_submit(&r, tokens, MOST, &p);
    memset(got, 0, sizeof got);
    /* The same text, so that it would wait for the scores of the first, were they coming. */
    alea_request *read = rig_submit(&r, tokens, MOST, &p);
    rig_finish(&r, read, got);
    assert_int_equal(got[0].n_scores, MOST);
    assert_int_equal(alea__engine_step(r.engine, 1), ALEA_DONE);
    alea_engine_stats stats;
    alea__engine_stats_read(r.engine, &stats);
    assert_int_equal(stats.running, 1);
    memset(got + 1, 0, sizeof *got);
    rig_finish(&r, unread, got + 1);
    rig_assert_equal(&got[1], &got[0]);
    rig_close(&r);
}

/* All choices of an echoed prompt begin with its scores: what came first would have to wait. */
static void test_the_scores_of_a_prompt_come_before_what_any_choice_draws(void **state) {
    (void)state;
    int32_t tokens[MOST];
    score_fill(tokens, MOST, 8);
    for (int32_t max_tokens = 0; max_tokens < 3; max_tokens++) {
        rig r = rig_open(score_toy, 3, 512, score_options(512, ALEA_SCORED_CACHE_ON));
        alea_request_params p = score_params(1, max_tokens);
        p.choices = 3;
        alea_request *request = rig_submit(&r, tokens, MOST, &p);
        while (alea__engine_step(r.engine, 1) != ALEA_DONE)
            continue;
        alea_event event;
        for (int32_t i = 0; i < MOST; i++) {
            assert_int_equal(alea__request_next(request, 0, &event), ALEA_OK);
            assert_int_equal(event.kind, ALEA_EVENT_PROMPT);
            assert_int_equal(event.index, i);
        }
        for (int32_t i = 0; i < 3 * (max_tokens + 1); i++)
            assert_int_equal(alea__request_next(request, 0, &event), ALEA_OK);
        assert_int_equal(alea__request_next(request, 0, &event), ALEA_DONE);
        alea__request_release(request);
        rig_close(&r);
    }
}

/* ---- rounds of their own ---- */

enum { SCORED_PROMPT = 90 };

static int32_t scored_sequence[8]; /* whose first token says that its prompt is scored */
static int32_t n_scored_rounds, n_mixed_rounds, n_decoding_between, most_rows;

static alea_status watch(alea_core *core, const alea_round *round, alea_error *error) {
    int32_t n_scored = 0, n_rows = 0;
    for (int32_t i = 0; i < round->n_items; i++) {
        const alea_round_item *item = &round->items[i];
        if (item->position == 0) scored_sequence[item->sequence] = item->span.tokens[0] < 100;
        n_scored += scored_sequence[item->sequence] && item->position < SCORED_PROMPT - 1;
        n_rows += item->span.length - item->first_row;
    }
    if (n_scored > 0) n_scored_rounds++;
    if (n_scored > 0 && n_scored < round->n_items) n_mixed_rounds++;
    if (n_scored == 0 && n_rows > 0) n_decoding_between++;
    if (n_rows > most_rows) most_rows = n_rows;
    return alea_core_toy()->submit(core, round, error);
}

static void test_scored_prompts_never_share_a_round_with_others(void **state) {
    (void)state;
    static alea_core_api api;
    api = *alea_core_toy();
    api.submit = watch;
    n_scored_rounds = n_mixed_rounds = n_decoding_between = most_rows = 0;
    const alea_core_options core = {.struct_bytes = sizeof core,
                                    .model = score_toy,
                                    .sequences = 6,
                                    .round_tokens = 128,
                                    .round_rows = 64};
    rig r = {0};
    assert_int_equal(alea_core_open(&api, &core, &r.core, NULL), ALEA_OK);
    const alea_engine_options options = score_options(0, ALEA_SCORED_CACHE_OFF);
    assert_int_equal(alea__engine_create(r.core, &options, &r.engine, NULL), ALEA_OK);
    int32_t tokens[SCORED_PROMPT];
    alea_request *requests[6];
    for (int32_t i = 0; i < 6; i++) {
        score_fill(tokens, SCORED_PROMPT, (uint64_t)i);
        tokens[0] = i % 2 ? 50 : 200;
        const alea_request_params p = score_params(i % 2 ? 0 : -1, 20);
        requests[i] = rig_submit(&r, tokens, i % 2 ? SCORED_PROMPT : 5, &p);
    }
    for (int32_t i = 0; i < 6; i++) {
        memset(got, 0, sizeof got);
        rig_finish(&r, requests[i], got);
        assert_int_equal(got[0].n, 20);
    }
    assert_int_equal(n_mixed_rounds, 0);
    assert_in_range(n_scored_rounds, 5, 6); /* 270 rows in rounds of 64 */
    assert_true(n_decoding_between >= n_scored_rounds);
    assert_int_equal(most_rows, 64);
    rig_close(&r);
}

/* A sequence behind the engine's slots, as a draft of a verifying core would have one. */
static void test_scoring_leaves_a_draft_context_as_it_was(void **state) {
    (void)state;
    enum { SLOTS = 2, DRAFT = SLOTS, LENGTH = 30 };
    const alea_core_options core = {
        .struct_bytes = sizeof core, .model = score_toy, .sequences = SLOTS + 1, .round_rows = 7};
    int32_t draft[LENGTH + 1], tokens[MOST], n_rows = 0;
    float before[320];
    score_fill(draft, LENGTH + 1, 40);
    score_fill(tokens, MOST, 41);
    rig r = {0};
    assert_int_equal(alea_core_open(alea_core_toy(), &core, &r.core, NULL), ALEA_OK);
    const alea_round_item whole = {
        .sequence = DRAFT, .first_row = LENGTH, .span = {.length = LENGTH + 1, .tokens = draft}};
    assert_int_equal(alea_core_run(r.core, &(alea_round){&whole, 1}, &n_rows, NULL), ALEA_OK);
    memcpy(before, alea_core_row(r.core, 0), sizeof before);
    assert_int_equal(alea_core_sequence_trim(r.core, DRAFT, LENGTH, NULL), ALEA_OK);

    alea_engine_options options = score_options(0, ALEA_SCORED_CACHE_ON);
    options.slots = SLOTS;
    assert_int_equal(alea__engine_create(r.core, &options, &r.engine, NULL), ALEA_OK);
    for (int32_t i = 0; i < 6; i++) {
        const alea_request_params p = score_params(3, i % 2 ? 4 : 0);
        memset(got, 0, sizeof got);
        rig_run(&r, tokens + i % 3, MOST - i % 3, &p, got);
        assert_int_equal(got[0].n_scores, MOST - i % 3);
        assert_int_equal(alea_core_sequence_length(r.core, DRAFT), LENGTH);
    }
    const alea_round_item next = {
        .sequence = DRAFT, .position = LENGTH, .span = {.length = 1, .tokens = draft + LENGTH}};
    assert_int_equal(alea_core_run(r.core, &(alea_round){&next, 1}, &n_rows, NULL), ALEA_OK);
    assert_memory_equal(before, alea_core_row(r.core, 0), sizeof before);
    rig_close(&r);
}

/* ---- one number, whoever asks ---- */

static void test_scores_do_not_depend_on_the_order_of_prompts_CORE_01(void **state) {
    (void)state;
    int32_t prompts[3][130];
    static rig_choice forwards[3];
    for (int32_t i = 0; i < 3; i++) {
        score_fill(prompts[i], 130, 1);
        score_fill(prompts[i] + 100 + 7 * i, 30 - 7 * i, 20 + (uint64_t)i);
    }
    const alea_request_params p = score_params(5, 0);
    rig r = rig_open(score_toy, 2, 48, score_options(0, ALEA_SCORED_CACHE_ON));
    for (int32_t i = 0; i < 6; i++) {
        const int32_t which = i < 3 ? i : 5 - i;
        score_run(&r, got, prompts[which], 130, &p);
        if (i < 3) forwards[which] = got[0];
        rig_assert_equal(&got[0], &forwards[which]);
        score_reference(score_toy, prompts[which], 130, 5, &expected[0]);
        score_assert_equal(&got[0], &expected[0]);
    }
    rig_close(&r);
}

static void test_the_longest_prompt_is_scored_alone_and_in_company_CORE_02(void **state) {
    (void)state;
    enum { CONTEXT = 320 };
    int32_t tokens[CONTEXT + 2];
    score_fill(tokens, CONTEXT + 2, 2);
    score_reference(score_toy, tokens, CONTEXT, 1, &expected[0]);
    rig r = rig_open(score_toy, 8, 512, score_options(0, ALEA_SCORED_CACHE_OFF));
    alea_request_params p = score_params(1, 0);
    alea_request *requests[8];
    for (int32_t n = 1; n <= 8; n += 7) {
        for (int32_t i = 0; i < n; i++)
            requests[i] = rig_submit(&r, tokens, CONTEXT, &p);
        for (int32_t i = 0; i < n; i++) {
            memset(got, 0, sizeof got);
            rig_finish(&r, requests[i], got);
            score_assert_equal(&got[0], &expected[0]);
            assert_int_equal(got[0].finish, ALEA_FINISH_LENGTH);
        }
    }
    /* One more than that, or room for an answer, is refused by name. */
    alea_error error = {0};
    assert_int_equal(alea__engine_submit(r.engine, tokens, CONTEXT + 2, &p, &requests[0], &error),
                     ALEA_ECONTEXT);
    p.prompt_top = -1;
    assert_int_equal(alea__engine_submit(r.engine, tokens, CONTEXT + 1, &p, &requests[0], &error),
                     ALEA_ECONTEXT);
    p.prompt_top = 1;
    p.max_tokens = 1;
    assert_int_equal(alea__engine_submit(r.engine, tokens, CONTEXT, &p, &requests[0], &error),
                     ALEA_ECONTEXT);
    assert_non_null(strstr(error.message, "320"));
    memset(got, 0, sizeof got);
    rig_run(&r, tokens, CONTEXT - 1, &p, got);
    assert_int_equal(got[0].n_scores + got[0].n, CONTEXT);
    rig_close(&r);
}

/* The last token of a prompt that is only scored is not computed, so it may lie behind the context;
 * and what the cache keeps of it is found again. */
static void test_a_prompt_of_the_context_and_one_token_is_scored(void **state) {
    (void)state;
    enum { CONTEXT = 320 };
    int32_t tokens[CONTEXT + 1];
    score_fill(tokens, CONTEXT + 1, 2);
    score_reference(score_toy, tokens, CONTEXT + 1, 20, &expected[0]);
    alea_request_params p = score_params(20, 0);
    rig r = rig_open(score_toy, 2, 64, score_options(0, ALEA_SCORED_CACHE_ON));
    for (int32_t i = 0; i < 4; i++) {
        p.no_scored_cache = i == 3;
        memset(got, 0, sizeof got);
        rig_run(&r, tokens, CONTEXT + 1, &p, got);
        score_assert_equal(&got[0], &expected[0]);
        assert_int_equal(got[0].n_scores, CONTEXT + 1);
        assert_int_equal(got[0].finish, ALEA_FINISH_LENGTH);
    }
    alea_engine_stats stats;
    alea__engine_stats_read(r.engine, &stats);
    assert_int_equal(stats.cached_tokens, 2 * CONTEXT);
    rig_close(&r);
}

/* Raw rows, asked of the core one context at a time, and the kernel's value of one token. */
static float by_hand(alea_core *core, const int32_t *tokens, int32_t index) {
    const alea_round_item item = {.first_row = index - 1,
                                  .span = {.length = index, .tokens = tokens}};
    const alea_round round = {.items = &item, .n_items = 1};
    int32_t n_rows;
    float logprob = 0;
    assert_int_equal(alea_core_sequence_trim(core, 0, 0, NULL), ALEA_OK);
    assert_int_equal(alea_core_run(core, &round, &n_rows, NULL), ALEA_OK);
    assert_int_equal(alea__row_selected(alea__kernels(), alea_core_row(core, 0), 320,
                                        &tokens[index], 1, &logprob),
                     ALEA_OK);
    return logprob;
}

static void test_four_answers_have_four_sums_CON_18(void **state) {
    (void)state;
    enum { QUESTION = 40, LENGTH = 48 };
    const alea_core_options core = {.struct_bytes = sizeof core, .model = score_toy};
    rig judge = {0};
    assert_int_equal(alea_core_open(alea_core_toy(), &core, &judge.core, NULL), ALEA_OK);
    rig r = rig_open(score_toy, 4, 64, score_options(0, ALEA_SCORED_CACHE_AUTO));
    alea_request_params p = score_params(1, 1);
    p.top = 1;
    int32_t tokens[LENGTH];
    double sums[4];
    for (int32_t i = 0; i < 4; i++) {
        score_fill(tokens, QUESTION, 1);
        score_fill(tokens + QUESTION, LENGTH - QUESTION, 50 + (uint64_t)i);
        score_run(&r, got, tokens, LENGTH, &p);
        double hand = sums[i] = 0;
        for (int32_t t = QUESTION; t < LENGTH; t++) {
            sums[i] += (double)got[0].scores[t].logprob;
            hand += (double)by_hand(judge.core, tokens, t);
        }
        assert_true(sums[i] == hand);
        for (int32_t j = 0; j < i; j++)
            assert_true(sums[i] != sums[j]);
    }
    alea_core_close(judge.core);
    rig_close(&r);
}

/* What a token is worth when it is drawn, when it is scored later, and to `alea score`. */
static void test_one_logprob_has_one_meaning_CON_19(void **state) {
    (void)state;
    enum { PROMPT = 20, OUTPUT = 40 };
    for (int32_t hot = 0; hot < 2; hot++) {
        int32_t tokens[PROMPT + OUTPUT];
        score_fill(tokens, PROMPT, 3);
        rig r = rig_open(score_toy, 2, 64, score_options(0, ALEA_SCORED_CACHE_AUTO));
        alea_request_params p = score_params(4, OUTPUT);
        p.top = 4;
        p.want_rank = true;
        p.sampling = (alea_sampling){hot ? 1.3f : 0, hot ? 50 : 0, 0.95f, 0};
        p.repetition_penalty = 1.2f;
        score_run(&r, got, tokens, PROMPT, &p);
        static rig_choice drawn;
        drawn = got[0];
        assert_int_equal(drawn.n, OUTPUT);
        memcpy(tokens + PROMPT, drawn.tokens, OUTPUT * sizeof *tokens);
        p.max_tokens = 0;
        score_run(&r, got, tokens, PROMPT + OUTPUT, &p);
        score_reference(score_toy, tokens, PROMPT + OUTPUT, 4, &expected[0]);
        score_assert_equal(&got[0], &expected[0]);
        for (int32_t i = 0; i < OUTPUT; i++) {
            const rig_score *score = &got[0].scores[PROMPT + i];
            assert_memory_equal(&score->logprob, &drawn.logprobs[i], sizeof(float));
            assert_int_equal(score->rank, drawn.ranks[i]);
            assert_memory_equal(score->alternatives, drawn.alternatives[i],
                                4 * sizeof(alea_alternative));
        }
        rig_close(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_engine_scores_what_alea_score_scores),
        cmocka_unit_test(test_a_round_of_more_than_64_rows_is_scored_in_blocks),
        cmocka_unit_test(test_a_short_prompt_is_scored_and_answered_in_one_round),
        cmocka_unit_test(test_scores_change_no_token),
        cmocka_unit_test(test_a_prompt_of_one_token_has_one_null_CON_12),
        cmocka_unit_test(test_a_token_is_scored_by_the_row_before_it_CON_06_CON_11),
        cmocka_unit_test(test_rank_one_need_not_be_greedy),
        cmocka_unit_test(test_preemption_at_any_chunk_leaves_no_gap_and_no_duplicate),
        cmocka_unit_test(test_a_run_that_lost_its_slot_is_counted),
        cmocka_unit_test(test_a_bad_row_ends_the_scores_and_names_the_position),
        cmocka_unit_test(test_a_failed_round_leaves_no_scores_behind),
        cmocka_unit_test(test_the_first_of_several_bad_rows_is_named),
        cmocka_unit_test(test_a_cancel_in_the_middle_ends_the_scores_in_order),
        cmocka_unit_test(test_an_unread_prompt_pauses_its_own_request_only),
        cmocka_unit_test(test_the_scores_of_a_prompt_come_before_what_any_choice_draws),
        cmocka_unit_test(test_scored_prompts_never_share_a_round_with_others),
        cmocka_unit_test(test_scores_do_not_depend_on_the_order_of_prompts_CORE_01),
        cmocka_unit_test(test_the_longest_prompt_is_scored_alone_and_in_company_CORE_02),
        cmocka_unit_test(test_a_prompt_of_the_context_and_one_token_is_scored),
        cmocka_unit_test(test_scoring_leaves_a_draft_context_as_it_was),
        cmocka_unit_test(test_four_answers_have_four_sums_CON_18),
        cmocka_unit_test(test_one_logprob_has_one_meaning_CON_19),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
