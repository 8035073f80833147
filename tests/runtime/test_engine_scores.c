/*
 * Scored prompts on the toy core, whose rows change with every token before them: the engine must
 * report what `alea score` reports, bit for bit, whatever rounds, queues, neighbours, preemption
 * and the scored cache do to the way there.
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
#include "runtime/score.h"

enum { MOST = 300 };

static const char toy[] = "vocab=320,text=1,ties=0,context=320";
static rig_choice expected[4], got[4];

static uint32_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static int32_t below(uint64_t *state, int32_t n) {
    return (int32_t)(next_random(state) % (uint32_t)n);
}

static void fill(int32_t *tokens, int32_t n, uint64_t seed) {
    for (int32_t i = 0; i < n; i++)
        tokens[i] = below(&seed, 256);
}

static alea_request_params scoring(int32_t top, int32_t max_tokens) {
    alea_request_params p = alea__params_default();
    p.prompt_top = top;
    p.max_tokens = max_tokens;
    p.ignore_end = true;
    p.seeded = true;
    p.seed = 5;
    return p;
}

static alea_engine_options options_with(int32_t queue_tokens, alea_scored_cache cache) {
    return (alea_engine_options){
        .threads = 2, .queue_tokens = queue_tokens, .prompt_logprobs = true, .scored_cache = cache};
}

/* ---- the reference: alea__score_tokens ---- */

static alea_status collect(void *user, const alea_scored *scored) {
    rig_choice *into = user;
    rig_score *score = &into->scores[into->n_scores++];
    memset(score, 0, sizeof *score);
    score->token = scored->token;
    if (scored->index == 0) return ALEA_OK;
    const alea_row_report *report = scored->report;
    score->has_entry = true;
    score->is_greedy = report->greedy == scored->token;
    score->logprob = report->logprob;
    score->rank = report->rank;
    score->n_alternatives = report->n_top;
    for (int32_t i = 0; i < report->n_top; i++)
        score->alternatives[i] = report->top[i];
    return ALEA_OK;
}

static void score_by_hand(const char *model, const int32_t *tokens, int32_t n, int32_t top,
                          rig_choice *into) {
    const alea_core_options options = {.struct_bytes = sizeof options, .model = model};
    const alea_score_options how = {.kernels = alea__kernels(), .top = top};
    alea_core *core = NULL;
    alea_error error;
    into->n_scores = 0;
    assert_int_equal(alea_core_open(alea_core_toy(), &options, &core, &error), ALEA_OK);
    assert_int_equal(alea__score_tokens(core, &how, tokens, (size_t)n, collect, into, &error),
                     ALEA_OK);
    alea_core_close(core);
}

static void assert_scores(const rig_choice *a, const rig_choice *b) {
    assert_int_equal(a->n_scores, b->n_scores);
    assert_memory_equal(a->scores, b->scores, (size_t)a->n_scores * sizeof a->scores[0]);
}

static void test_the_engine_scores_what_alea_score_scores(void **state) {
    (void)state;
    static const int32_t lengths[] = {1, 2, 3, 17, 64, 65, 66, 129, 300};
    static const int32_t rounds[] = {1, 2, 7, 64, 200};
    static const int32_t queues[] = {1, 3, 64, 256};
    int32_t tokens[MOST];
    uint64_t random = 3;
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        const int32_t n = lengths[l], top = below(&random, 21);
        fill(tokens, n, (uint64_t)n);
        score_by_hand(toy, tokens, n, top, &expected[0]);
        for (size_t i = 0; i < 20; i++) {
            alea_engine_options options = options_with(queues[i % 4], ALEA_SCORED_CACHE_OFF);
            options.no_overlap = i % 3 == 0;
            rig r = rig_open(toy, 1 + below(&random, 3), rounds[i / 4], options);
            alea_request_params p = scoring(top, (int32_t)i % 3);
            p.choices = 1 + (int32_t)i % 2;
            memset(got, 0, sizeof got);
            rig_run(&r, tokens, n, &p, got);
            assert_scores(&got[0], &expected[0]);
            assert_int_equal(got[0].finish, ALEA_FINISH_LENGTH);
            for (int32_t c = 0; c < p.choices; c++)
                assert_int_equal(got[c].n, p.max_tokens);
            assert_int_equal(got[1].n_scores, 0);
            rig_close(&r);
        }
    }
}

/* More rows in a round than are reduced at a time: they come in blocks. */
static void test_a_round_of_more_than_64_rows_is_scored_in_blocks(void **state) {
    (void)state;
    int32_t tokens[MOST];
    fill(tokens, MOST, 6);
    score_by_hand(toy, tokens, MOST, 7, &expected[0]);
    rig r = rig_open(toy, 150, 512, options_with(0, ALEA_SCORED_CACHE_OFF));
    const alea_request_params p = scoring(7, 1);
    memset(got, 0, sizeof got);
    rig_run(&r, tokens, MOST, &p, got);
    assert_scores(&got[0], &expected[0]);
    alea_engine_stats stats;
    alea__engine_stats_read(r.engine, &stats);
    assert_in_range(stats.rounds, 2, 3);
    rig_close(&r);
}

/* A scored prompt is followed by the answer that the same prompt has unscored. */
static void test_scores_change_no_token(void **state) {
    (void)state;
    int32_t tokens[100];
    fill(tokens, 100, 9);
    alea_request_params p = scoring(3, 20);
    p.top = 4;
    p.choices = 2;
    rig r = rig_open(toy, 3, 32, options_with(0, ALEA_SCORED_CACHE_AUTO));
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
        rig r = rig_open(toy, 1, 64, options_with(1, ALEA_SCORED_CACHE_AUTO));
        const alea_request_params p = scoring(1, max_tokens);
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
    rig r = rig_open("vocab=320,peak=30", 1, 4, options_with(0, ALEA_SCORED_CACHE_AUTO));
    static const int32_t prompt[] = {10, 11, 12, 13, 14, 15};
    alea_request_params p = scoring(1, 1);
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
    rig r = row_core_open(&ways, options_with(0, ALEA_SCORED_CACHE_AUTO));
    static const int32_t prompt[] = {30, 20, 30, 20, 5};
    alea_request_params p = scoring(2, 1);
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
    rig r = rig_open(toy, 1, round_tokens, options);
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
    fill(tokens, 60, 4);
    score_by_hand(toy, tokens, 60, 6, &expected[0]);
    static const int32_t rounds[] = {1, 5, 16, 64};
    for (size_t i = 0; i < 4; i++) {
        for (int32_t max_tokens = 0; max_tokens < 9; max_tokens += 4) {
            const alea_request_params p = scoring(6, max_tokens);
            static rig_choice whole;
            for (int32_t steps = 0; steps < 60 / rounds[i] + 14; steps++) {
                alea_engine_options options =
                    options_with(steps % 2 ? 7 : 0,
                                 steps % 4 < 2 ? ALEA_SCORED_CACHE_OFF : ALEA_SCORED_CACHE_ON);
                options.no_overlap = steps % 5 == 0;
                preempt_after(steps, tokens, 60, &p, options, rounds[i]);
                assert_scores(&got[0], &expected[0]);
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
    fill(tokens, 20, 4);
    rig r = rig_open(toy, 1, 4, options_with(0, ALEA_SCORED_CACHE_AUTO));
    const alea_request_params p = scoring(0, 30);
    alea_request_params urgent = scoring(-1, 2);
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
    fill(tokens, 50, 8);
    for (int32_t at = 0; at < 49; at++) {
        char model[128], words[64];
        snprintf(model, sizeof model, "%s,%s=%d,fault_sequence=0", toy, kinds[at % 3], at);
        snprintf(words, sizeof words, "prompt position %d:", at + 1);
        rig r = rig_open(model, 2, 1 + at % 40, options_with(0, ALEA_SCORED_CACHE_ON));
        const alea_request_params p = scoring(2, at % 2);
        memset(got, 0, sizeof got);
        alea_request *bad = rig_submit(&r, tokens, 50, &p);
        const alea_request_params plain = scoring(-1, 60);
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
    fill(tokens, 60, 8);
    score_by_hand(toy, tokens, 60, 2, &expected[0]);
    for (int32_t at = 0; at < 8; at++) {
        char model[128];
        snprintf(model, sizeof model, "%s,%s=%d", toy, at % 2 ? "fail_at" : "refuse_at", at);
        rig r = rig_open(model, 2, 10, options_with(0, ALEA_SCORED_CACHE_ON));
        const alea_request_params p = scoring(2, 3);
        memset(got, 0, sizeof got);
        rig_run(&r, tokens, 60, &p, got);
        assert_int_equal(got[0].finish, ALEA_FINISH_ERROR);
        assert_memory_equal(got[0].scores, expected[0].scores,
                            (size_t)got[0].n_scores * sizeof(rig_score));
        assert_int_equal(got[0].n_scores, at == 0 ? 1 : at < 6 ? at * 10 + 1 : 60);
        memset(got, 0, sizeof got);
        rig_run(&r, tokens, 60, &p, got);
        assert_scores(&got[0], &expected[0]);
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
    rig r = row_core_open(&ways, options_with(0, ALEA_SCORED_CACHE_AUTO));
    static const int32_t prompt[] = {0, 1, 2, 3, 0, 1, 2, 3};
    const alea_request_params p = scoring(2, 5);
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
    fill(tokens, MOST, 8);
    score_by_hand(toy, tokens, MOST, 1, &expected[0]);
    rig r = rig_open(toy, 2, 16, options_with(40, ALEA_SCORED_CACHE_ON));
    const alea_request_params p = scoring(1, 1);
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
    assert_scores(&got[0], &expected[0]);
    rig_close(&r);
}

static void test_an_unread_prompt_pauses_its_own_request_only(void **state) {
    (void)state;
    int32_t tokens[MOST];
    fill(tokens, MOST, 8);
    rig r = rig_open(toy, 2, 16, options_with(8, ALEA_SCORED_CACHE_ON));
    const alea_request_params p = scoring(1, 2);
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
                                    .model = toy,
                                    .sequences = 6,
                                    .round_tokens = 128,
                                    .round_rows = 64};
    rig r = {0};
    assert_int_equal(alea_core_open(&api, &core, &r.core, NULL), ALEA_OK);
    const alea_engine_options options = options_with(0, ALEA_SCORED_CACHE_OFF);
    assert_int_equal(alea__engine_create(r.core, &options, &r.engine, NULL), ALEA_OK);
    int32_t tokens[SCORED_PROMPT];
    alea_request *requests[6];
    for (int32_t i = 0; i < 6; i++) {
        fill(tokens, SCORED_PROMPT, (uint64_t)i);
        tokens[0] = i % 2 ? 50 : 200;
        const alea_request_params p = scoring(i % 2 ? 0 : -1, 20);
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

/* ---- the scored cache ---- */

static alea_request_usage run_and_tell(rig *r, const int32_t *tokens, int32_t n,
                                       const alea_request_params *params) {
    memset(got, 0, sizeof got);
    alea_request *request = rig_submit(r, tokens, n, params);
    while (!rig_read(request, got))
        assert_true(alea__engine_step(r->engine, 1) >= 0);
    alea_request_usage usage;
    alea__request_usage_read(request, &usage);
    alea__request_release(request);
    return usage;
}

static uint64_t scored_positions(const rig *r) {
    alea_engine_stats stats;
    alea__engine_stats_read(r->engine, &stats);
    return stats.scored_positions;
}

static void test_a_scored_prefix_is_reused_with_its_scores(void **state) {
    (void)state;
    int32_t tokens[120], other[120];
    fill(tokens, 120, 1);
    memcpy(other, tokens, sizeof other);
    fill(other + 100, 20, 2);
    rig r = rig_open(toy, 2, 64, options_with(0, ALEA_SCORED_CACHE_AUTO));
    alea_request_params p = scoring(20, 0);
    assert_int_equal(run_and_tell(&r, tokens, 120, &p).cached_tokens, 0);
    assert_int_equal(scored_positions(&r), 119);
    score_by_hand(toy, tokens, 120, 20, &expected[0]);
    assert_scores(&got[0], &expected[0]);

    /* Another end: the row behind the last common token is needed, what is before it is not. */
    assert_int_equal(run_and_tell(&r, other, 120, &p).cached_tokens, 99);
    assert_int_equal(scored_positions(&r), 119 + 20);
    score_by_hand(toy, other, 120, 20, &expected[0]);
    assert_scores(&got[0], &expected[0]);

    /* The very same: nothing is computed; and with fewer alternatives, and with an answer. */
    assert_int_equal(run_and_tell(&r, other, 120, &p).cached_tokens, 119);
    assert_scores(&got[0], &expected[0]);
    alea_request *fed = rig_submit(&r, other, 120, &p);
    assert_int_equal(alea__engine_step(r.engine, 1), ALEA_OK); /* without a round */
    memset(got, 0, sizeof got);
    assert_true(rig_read(fed, got));
    assert_scores(&got[0], &expected[0]);
    alea__request_release(fed);
    p.prompt_top = 3;
    p.max_tokens = 2;
    run_and_tell(&r, other, 120, &p);
    score_by_hand(toy, other, 120, 3, &expected[0]);
    assert_scores(&got[0], &expected[0]);
    assert_int_equal(got[0].n, 2);
    assert_int_equal(scored_positions(&r), 119 + 20);
    rig_close(&r);
}

/* Nothing is left to compute but the answer, which has to wait for the reader all the same. */
static void test_stored_scores_reach_a_late_reader_before_the_answer(void **state) {
    (void)state;
    int32_t tokens[90];
    fill(tokens, 90, 1);
    for (int32_t max_tokens = 0; max_tokens < 5; max_tokens++) {
        rig r = rig_open(toy, 2, 64, options_with(4, ALEA_SCORED_CACHE_ON));
        alea_request_params p = scoring(2, max_tokens);
        run_and_tell(&r, tokens, 90, &p);
        expected[0] = got[0];
        memset(got, 0, sizeof got);
        alea_request *late = rig_submit(&r, tokens, 90, &p);
        for (int32_t i = 0; i < 10; i++)
            assert_true(alea__engine_step(r.engine, 1) >= 0);
        if (max_tokens % 2) { /* and its slot is lost meanwhile */
            alea_request_params urgent = scoring(-1, 2);
            urgent.priority = -1;
            alea_request *others[2];
            for (int32_t i = 0; i < 2; i++)
                others[i] = rig_submit(&r, tokens + 7 * i + 7, 3, &urgent);
            for (int32_t i = 0; i < 2; i++)
                rig_finish(&r, others[i], got + 1 + i);
        }
        rig_finish(&r, late, got);
        rig_assert_equal(&got[0], &expected[0]);
        assert_int_equal(got[0].n_scores, 90);
        assert_int_equal(got[0].n, max_tokens);
        rig_close(&r);
    }
}

static void test_the_scored_cache_can_be_left_out(void **state) {
    (void)state;
    int32_t tokens[100];
    fill(tokens, 100, 1);
    static const int32_t id = 3;
    for (int32_t way = 0; way < 3; way++) {
        rig r = rig_open(toy, 2, 64,
                         options_with(0, way == 0 ? ALEA_SCORED_CACHE_OFF : ALEA_SCORED_CACHE_ON));
        alea_request_params p = scoring(5, 1);
        p.top = 2;
        run_and_tell(&r, tokens, 100, &p);
        if (way == 1) p.no_scored_cache = true;
        if (way == 2) p.selected = (alea_token_list){&id, 1};
        assert_int_equal(run_and_tell(&r, tokens, 100, &p).cached_tokens, 0);
        assert_int_equal(scored_positions(&r), 2 * 99);
        /* The ordinary look-up is never used for a scored prompt, but finds what one computed. */
        alea_request_params plain = scoring(-1, 1);
        assert_int_equal(run_and_tell(&r, tokens, 100, &plain).cached_tokens, 99);
        rig_close(&r);
    }
}

static void describe_variant(const alea_core *core, alea_core_info *info) {
    alea_core_toy()->describe(core, info);
    info->batch_invariant = false;
}

static void test_the_scored_cache_needs_rows_that_do_not_depend_on_the_batch(void **state) {
    (void)state;
    static alea_core_api api;
    api = *alea_core_toy();
    api.describe = describe_variant;
    const alea_core_options core = {.struct_bytes = sizeof core, .model = toy};
    rig r = {0};
    alea_error error = {0};
    assert_int_equal(alea_core_open(&api, &core, &r.core, NULL), ALEA_OK);
    alea_engine_options options = options_with(0, ALEA_SCORED_CACHE_ON);
    assert_int_equal(alea__engine_create(r.core, &options, &r.engine, &error), ALEA_EUNSUPPORTED);
    assert_non_null(strstr(error.message, "scored cache"));
    options.scored_cache = ALEA_SCORED_CACHE_AUTO;
    assert_int_equal(alea__engine_create(r.core, &options, &r.engine, &error), ALEA_OK);
    int32_t tokens[60];
    fill(tokens, 60, 1);
    const alea_request_params p = scoring(5, 0);
    run_and_tell(&r, tokens, 60, &p);
    assert_int_equal(run_and_tell(&r, tokens, 60, &p).cached_tokens, 0);
    rig_close(&r);
}

/* Sixteen questions of one context, all there at once: the context is scored once. */
static void test_prompts_that_begin_alike_wait_for_the_common_scores(void **state) {
    (void)state;
    enum { CONTEXT = 150, N = 16, LENGTH = 160 };
    static rig_choice all[N];
    memset(all, 0, sizeof all);
    int32_t tokens[LENGTH];
    fill(tokens, LENGTH, 1);
    rig r = rig_open(toy, 4, 64, options_with(0, ALEA_SCORED_CACHE_AUTO));
    const alea_request_params p = scoring(4, 1);
    alea_request *requests[N];
    for (int32_t i = 0; i < N; i++) {
        fill(tokens + CONTEXT, LENGTH - CONTEXT, 100 + (uint64_t)i);
        requests[i] = rig_submit(&r, tokens, LENGTH, &p);
    }
    for (int32_t n_over = 0; n_over < N;) {
        n_over = 0;
        assert_true(alea__engine_step(r.engine, 1) >= 0);
        for (int32_t i = 0; i < N; i++)
            n_over += rig_read(requests[i], &all[i]);
    }
    for (int32_t i = 0; i < N; i++) {
        fill(tokens + CONTEXT, LENGTH - CONTEXT, 100 + (uint64_t)i);
        score_by_hand(toy, tokens, LENGTH, 4, &expected[0]);
        assert_scores(&all[i], &expected[0]);
        alea__request_release(requests[i]);
    }
    /* 149 of the context, and of each its own ten and the one behind the context. */
    assert_int_equal(scored_positions(&r), 159 + (N - 1) * 10);
    rig_close(&r);
}

/* ---- one number, whoever asks ---- */

static void test_scores_do_not_depend_on_the_order_of_prompts_CORE_01(void **state) {
    (void)state;
    int32_t prompts[3][130];
    static rig_choice forwards[3];
    for (int32_t i = 0; i < 3; i++) {
        fill(prompts[i], 130, 1);
        fill(prompts[i] + 100 + 7 * i, 30 - 7 * i, 20 + (uint64_t)i);
    }
    const alea_request_params p = scoring(5, 0);
    rig r = rig_open(toy, 2, 48, options_with(0, ALEA_SCORED_CACHE_ON));
    for (int32_t i = 0; i < 6; i++) {
        const int32_t which = i < 3 ? i : 5 - i;
        run_and_tell(&r, prompts[which], 130, &p);
        if (i < 3) forwards[which] = got[0];
        rig_assert_equal(&got[0], &forwards[which]);
        score_by_hand(toy, prompts[which], 130, 5, &expected[0]);
        assert_scores(&got[0], &expected[0]);
    }
    rig_close(&r);
}

static void test_the_longest_prompt_is_scored_alone_and_in_company_CORE_02(void **state) {
    (void)state;
    enum { CONTEXT = 320 };
    int32_t tokens[CONTEXT + 1];
    fill(tokens, CONTEXT + 1, 2);
    score_by_hand(toy, tokens, CONTEXT, 1, &expected[0]);
    rig r = rig_open(toy, 8, 512, options_with(0, ALEA_SCORED_CACHE_OFF));
    alea_request_params p = scoring(1, 0);
    alea_request *requests[8];
    for (int32_t n = 1; n <= 8; n += 7) {
        for (int32_t i = 0; i < n; i++)
            requests[i] = rig_submit(&r, tokens, CONTEXT, &p);
        for (int32_t i = 0; i < n; i++) {
            memset(got, 0, sizeof got);
            rig_finish(&r, requests[i], got);
            assert_scores(&got[0], &expected[0]);
            assert_int_equal(got[0].finish, ALEA_FINISH_LENGTH);
        }
    }
    /* One more, or room for an answer, is refused by name. */
    alea_error error = {0};
    assert_int_equal(alea__engine_submit(r.engine, tokens, CONTEXT + 1, &p, &requests[0], &error),
                     ALEA_ECONTEXT);
    p.max_tokens = 1;
    assert_int_equal(alea__engine_submit(r.engine, tokens, CONTEXT, &p, &requests[0], &error),
                     ALEA_ECONTEXT);
    assert_non_null(strstr(error.message, "320"));
    memset(got, 0, sizeof got);
    rig_run(&r, tokens, CONTEXT - 1, &p, got);
    assert_int_equal(got[0].n_scores + got[0].n, CONTEXT);
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
    const alea_core_options core = {.struct_bytes = sizeof core, .model = toy};
    rig judge = {0};
    assert_int_equal(alea_core_open(alea_core_toy(), &core, &judge.core, NULL), ALEA_OK);
    rig r = rig_open(toy, 4, 64, options_with(0, ALEA_SCORED_CACHE_AUTO));
    alea_request_params p = scoring(1, 1);
    p.top = 1;
    int32_t tokens[LENGTH];
    double sums[4];
    for (int32_t i = 0; i < 4; i++) {
        fill(tokens, QUESTION, 1);
        fill(tokens + QUESTION, LENGTH - QUESTION, 50 + (uint64_t)i);
        run_and_tell(&r, tokens, LENGTH, &p);
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
        fill(tokens, PROMPT, 3);
        rig r = rig_open(toy, 2, 64, options_with(0, ALEA_SCORED_CACHE_AUTO));
        alea_request_params p = scoring(4, OUTPUT);
        p.top = 4;
        p.want_rank = true;
        p.sampling = (alea_sampling){hot ? 1.3f : 0, hot ? 50 : 0, 0.95f, 0};
        p.repetition_penalty = 1.2f;
        run_and_tell(&r, tokens, PROMPT, &p);
        static rig_choice drawn;
        drawn = got[0];
        assert_int_equal(drawn.n, OUTPUT);
        memcpy(tokens + PROMPT, drawn.tokens, OUTPUT * sizeof *tokens);
        p.max_tokens = 0;
        run_and_tell(&r, tokens, PROMPT + OUTPUT, &p);
        score_by_hand(toy, tokens, PROMPT + OUTPUT, 4, &expected[0]);
        assert_scores(&got[0], &expected[0]);
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

/* ---- by chance ---- */

/* At most n events; true once all is read. */
static bool read_some(alea_request *request, rig_choice *choice, int32_t n) {
    alea_event event;
    alea_status status = ALEA_OK;
    while (n-- > 0 && (status = alea__request_next(request, 0, &event)) == ALEA_OK)
        rig_keep(choice, &event);
    return status == ALEA_DONE;
}

/* Prompts of few beginnings, scored and not, read late, cancelled, preempted; each that ends well
 * must be what it is alone. */
static void test_random_schedules_change_no_score(void **state) {
    (void)state;
    enum { REQUESTS = 24 };
    static rig_choice lone[REQUESTS], read[REQUESTS];
    for (uint64_t trial = 1; trial <= 60; trial++) {
        uint64_t random = trial;
        int32_t prompts[REQUESTS][120], n[REQUESTS];
        alea_request_params params[REQUESTS];
        memset(lone, 0, sizeof lone);
        memset(read, 0, sizeof read);
        rig r = rig_open(toy, 1, 512, options_with(0, ALEA_SCORED_CACHE_OFF));
        for (int32_t i = 0; i < REQUESTS; i++) {
            const int32_t shared = below(&random, 80);
            n[i] = shared + 1 + below(&random, 40);
            fill(prompts[i], shared, (uint64_t)below(&random, 2));
            fill(prompts[i] + shared, n[i] - shared, next_random(&random));
            params[i] = scoring(below(&random, 22) - 1, below(&random, 3) * below(&random, 8));
            params[i].priority = below(&random, 3);
            params[i].no_scored_cache = below(&random, 8) == 0;
            params[i].top = below(&random, 3) - 1;
            rig_run(&r, prompts[i], n[i], &params[i], &lone[i]);
        }
        rig_close(&r);
        alea_engine_options options =
            options_with(1 + below(&random, 80), (alea_scored_cache)below(&random, 2));
        options.no_overlap = below(&random, 3) == 0;
        options.no_prefix_cache = below(&random, 4) == 0;
        r = rig_open(toy, 1 + below(&random, 5), 1 + below(&random, 90), options);
        alea_request *requests[REQUESTS];
        const int32_t greed = trial % 2 ? 3 : 100;
        int32_t n_sent = 0, n_over = 0;
        bool over[REQUESTS] = {false}, cancelled[REQUESTS] = {false};
        while (n_over < REQUESTS) {
            if (n_sent < REQUESTS && below(&random, 2)) {
                requests[n_sent] = rig_submit(&r, prompts[n_sent], n[n_sent], &params[n_sent]);
                n_sent++;
            }
            assert_true(alea__engine_step(r.engine, 1) >= 0);
            if (n_sent > 0 && below(&random, 30) == 0) {
                const int32_t i = below(&random, n_sent);
                cancelled[i] = true;
                if (!over[i]) alea__request_cancel(requests[i]);
            }
            for (int32_t i = 0; i < n_sent; i++) {
                if (over[i] || below(&random, 3) == 0) continue;
                over[i] = read_some(requests[i], &read[i], 1 + below(&random, greed));
                n_over += over[i];
                if (over[i]) alea__request_release(requests[i]);
            }
        }
        for (int32_t i = 0; i < REQUESTS; i++) {
            if (read[i].finish != ALEA_FINISH_CANCELLED) rig_assert_equal(&read[i], &lone[i]);
            assert_true(read[i].finish != ALEA_FINISH_CANCELLED || cancelled[i]);
            assert_memory_equal(read[i].scores, lone[i].scores,
                                (size_t)read[i].n_scores * sizeof(rig_score));
        }
        rig_close(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_engine_scores_what_alea_score_scores),
        cmocka_unit_test(test_a_round_of_more_than_64_rows_is_scored_in_blocks),
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
        cmocka_unit_test(test_scored_prompts_never_share_a_round_with_others),
        cmocka_unit_test(test_a_scored_prefix_is_reused_with_its_scores),
        cmocka_unit_test(test_stored_scores_reach_a_late_reader_before_the_answer),
        cmocka_unit_test(test_the_scored_cache_can_be_left_out),
        cmocka_unit_test(test_the_scored_cache_needs_rows_that_do_not_depend_on_the_batch),
        cmocka_unit_test(test_prompts_that_begin_alike_wait_for_the_common_scores),
        cmocka_unit_test(test_scores_do_not_depend_on_the_order_of_prompts_CORE_01),
        cmocka_unit_test(test_the_longest_prompt_is_scored_alone_and_in_company_CORE_02),
        cmocka_unit_test(test_four_answers_have_four_sums_CON_18),
        cmocka_unit_test(test_one_logprob_has_one_meaning_CON_19),
        cmocka_unit_test(test_random_schedules_change_no_score),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
