/*
 * The scored cache: what it reuses, when it must not, and a search for a schedule in which a score
 * is not what it is alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "runtime/score_rig.h"

static rig_choice expected[4], got[4];

/* ---- the scored cache ---- */

static void test_a_scored_prefix_is_reused_with_its_scores(void **state) {
    (void)state;
    int32_t tokens[120], other[120];
    score_fill(tokens, 120, 1);
    memcpy(other, tokens, sizeof other);
    score_fill(other + 100, 20, 2);
    rig r = rig_open(score_toy, 2, 64, score_options(0, ALEA_SCORED_CACHE_AUTO));
    alea_request_params p = score_params(20, 0);
    assert_int_equal(score_run(&r, got, tokens, 120, &p).cached_tokens, 0);
    assert_int_equal(score_positions(&r), 119);
    score_reference(score_toy, tokens, 120, 20, &expected[0]);
    score_assert_equal(&got[0], &expected[0]);

    /* Another end: the row behind the last common token is needed, what is before it is not. */
    assert_int_equal(score_run(&r, got, other, 120, &p).cached_tokens, 99);
    assert_int_equal(score_positions(&r), 119 + 20);
    score_reference(score_toy, other, 120, 20, &expected[0]);
    score_assert_equal(&got[0], &expected[0]);

    /* The very same: nothing is computed; and with fewer alternatives, and with an answer. */
    assert_int_equal(score_run(&r, got, other, 120, &p).cached_tokens, 119);
    score_assert_equal(&got[0], &expected[0]);
    alea_request *fed = rig_submit(&r, other, 120, &p);
    assert_int_equal(alea__engine_step(r.engine, 1), ALEA_OK); /* without a round */
    memset(got, 0, sizeof got);
    assert_true(rig_read(fed, got));
    score_assert_equal(&got[0], &expected[0]);
    alea__request_release(fed);
    p.prompt_top = 3;
    p.max_tokens = 2;
    score_run(&r, got, other, 120, &p);
    score_reference(score_toy, other, 120, 3, &expected[0]);
    score_assert_equal(&got[0], &expected[0]);
    assert_int_equal(got[0].n, 2);
    assert_int_equal(score_positions(&r), 119 + 20);
    rig_close(&r);
}

static void test_scores_serve_their_own_salt_alone(void **state) {
    (void)state;
    int32_t tokens[120];
    score_fill(tokens, 120, 1);
    rig r = rig_open(score_toy, 2, 64, score_options(0, ALEA_SCORED_CACHE_AUTO));
    alea_request_params p = score_params(20, 0);
    assert_int_equal(score_run(&r, got, tokens, 120, &p).cached_tokens, 0);
    p.cache_salt = 7;
    assert_int_equal(score_run(&r, got, tokens, 120, &p).cached_tokens, 0);
    assert_int_equal(score_run(&r, got, tokens, 120, &p).cached_tokens, 119);
    p.cache_salt = 0;
    assert_int_equal(score_run(&r, got, tokens, 120, &p).cached_tokens, 119);
    rig_close(&r);
}

/* Nothing is left to compute but the answer, which has to wait for the reader all the same. */
static void test_stored_scores_reach_a_late_reader_before_the_answer(void **state) {
    (void)state;
    int32_t tokens[90];
    score_fill(tokens, 90, 1);
    for (int32_t max_tokens = 0; max_tokens < 5; max_tokens++) {
        rig r = rig_open(score_toy, 2, 64, score_options(4, ALEA_SCORED_CACHE_ON));
        alea_request_params p = score_params(2, max_tokens);
        score_run(&r, got, tokens, 90, &p);
        expected[0] = got[0];
        memset(got, 0, sizeof got);
        alea_request *late = rig_submit(&r, tokens, 90, &p);
        for (int32_t i = 0; i < 10; i++)
            assert_true(alea__engine_step(r.engine, 1) >= 0);
        if (max_tokens % 2) { /* and its slot is lost meanwhile */
            alea_request_params urgent = score_params(-1, 2);
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
    score_fill(tokens, 100, 1);
    static const int32_t id = 3;
    for (int32_t way = 0; way < 3; way++) {
        rig r = rig_open(score_toy, 2, 64,
                         score_options(0, way == 0 ? ALEA_SCORED_CACHE_OFF : ALEA_SCORED_CACHE_ON));
        alea_request_params p = score_params(5, 1);
        p.top = 2;
        score_run(&r, got, tokens, 100, &p);
        if (way == 1) p.no_scored_cache = true;
        if (way == 2) p.selected = (alea_token_list){&id, 1};
        assert_int_equal(score_run(&r, got, tokens, 100, &p).cached_tokens, 0);
        assert_int_equal(score_positions(&r), 2 * 99);
        /* The ordinary look-up is never used for a scored prompt, but finds what one computed. */
        alea_request_params plain = score_params(-1, 1);
        assert_int_equal(score_run(&r, got, tokens, 100, &plain).cached_tokens, 99);
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
    const alea_core_options core = {.struct_bytes = sizeof core, .model = score_toy};
    rig r = {0};
    alea_error error = {0};
    assert_int_equal(alea_core_open(&api, &core, &r.core, NULL), ALEA_OK);
    alea_engine_options options = score_options(0, ALEA_SCORED_CACHE_ON);
    assert_int_equal(alea__engine_create(r.core, &options, &r.engine, &error), ALEA_EUNSUPPORTED);
    assert_non_null(strstr(error.message, "scored cache"));
    options.scored_cache = ALEA_SCORED_CACHE_AUTO;
    assert_int_equal(alea__engine_create(r.core, &options, &r.engine, &error), ALEA_OK);
    int32_t tokens[60];
    score_fill(tokens, 60, 1);
    const alea_request_params p = score_params(5, 0);
    score_run(&r, got, tokens, 60, &p);
    assert_int_equal(score_run(&r, got, tokens, 60, &p).cached_tokens, 0);
    rig_close(&r);
}

/* Sixteen questions of one context, all there at once: the context is scored once. */
static void test_prompts_that_begin_alike_wait_for_the_common_scores(void **state) {
    (void)state;
    enum { CONTEXT = 150, N = 16, LENGTH = 160 };
    static rig_choice all[N];
    memset(all, 0, sizeof all);
    int32_t tokens[LENGTH];
    score_fill(tokens, LENGTH, 1);
    rig r = rig_open(score_toy, 4, 64, score_options(0, ALEA_SCORED_CACHE_AUTO));
    const alea_request_params p = score_params(4, 1);
    alea_request *requests[N];
    for (int32_t i = 0; i < N; i++) {
        score_fill(tokens + CONTEXT, LENGTH - CONTEXT, 100 + (uint64_t)i);
        requests[i] = rig_submit(&r, tokens, LENGTH, &p);
    }
    for (int32_t n_over = 0; n_over < N;) {
        n_over = 0;
        assert_true(alea__engine_step(r.engine, 1) >= 0);
        for (int32_t i = 0; i < N; i++)
            n_over += rig_read(requests[i], &all[i]);
    }
    for (int32_t i = 0; i < N; i++) {
        score_fill(tokens + CONTEXT, LENGTH - CONTEXT, 100 + (uint64_t)i);
        score_reference(score_toy, tokens, LENGTH, 4, &expected[0]);
        score_assert_equal(&all[i], &expected[0]);
        alea__request_release(requests[i]);
    }
    /* 149 of the context, and of each its own ten and the one behind the context. */
    assert_int_equal(score_positions(&r), 159 + (N - 1) * 10);
    rig_close(&r);
}

enum { QUESTIONS = 8, ANSWERS = 4, QUESTION = 150, ANSWER = 10 };

static void make_answer(int32_t tokens[QUESTION + ANSWER], int32_t question, int32_t answer) {
    score_fill(tokens, QUESTION, (uint64_t)question);
    score_fill(tokens + QUESTION, ANSWER, 1000 + (uint64_t)(question * ANSWERS + answer));
}

/* More questions than slots, each with its answers: none is scored twice, in whatever order. */
static void test_each_question_is_scored_once_over_few_slots(void **state) {
    (void)state;
    enum { N = QUESTIONS * ANSWERS };
    static rig_choice all[N];
    for (int32_t order = 0; order < 2; order++) {
        memset(all, 0, sizeof all);
        int32_t tokens[QUESTION + ANSWER];
        rig r = rig_open(score_toy, 3, 64, score_options(0, ALEA_SCORED_CACHE_AUTO));
        alea_request *requests[N];
        for (int32_t i = 0; i < N; i++) {
            make_answer(tokens, order ? i % QUESTIONS : i / ANSWERS,
                        order ? i / QUESTIONS : i % ANSWERS);
            const alea_request_params p = score_params(1, 1);
            requests[i] = rig_submit(&r, tokens, QUESTION + ANSWER, &p);
        }
        for (int32_t n_over = 0; n_over < N;) {
            n_over = 0;
            assert_true(alea__engine_step(r.engine, 1) >= 0);
            for (int32_t i = 0; i < N; i++)
                n_over += rig_read(requests[i], &all[i]);
        }
        for (int32_t i = 0; i < N; i++) {
            make_answer(tokens, order ? i % QUESTIONS : i / ANSWERS,
                        order ? i / QUESTIONS : i % ANSWERS);
            score_reference(score_toy, tokens, QUESTION + ANSWER, 1, &expected[0]);
            score_assert_equal(&all[i], &expected[0]);
            alea__request_release(requests[i]);
        }
        assert_int_equal(score_positions(&r), QUESTIONS * (QUESTION + ANSWER * ANSWERS - 1));
        rig_close(&r);
    }
}

static void test_a_follower_passes_by_nothing_that_matters_more(void **state) {
    (void)state;
    int32_t tokens[QUESTION + ANSWER], other[30];
    rig r = rig_open(score_toy, 1, 64, score_options(0, ALEA_SCORED_CACHE_AUTO));
    alea_request_params p = score_params(1, 2);
    alea_request *requests[3];
    make_answer(tokens, 1, 0);
    requests[0] = rig_submit(&r, tokens, QUESTION + ANSWER, &p);
    assert_int_equal(alea__engine_step(r.engine, 1), ALEA_OK);
    score_fill(other, 30, 99);
    requests[1] = rig_submit(&r, other, 30, &p);
    make_answer(tokens, 1, 1);
    p.priority = 1;
    requests[2] = rig_submit(&r, tokens, QUESTION + ANSWER, &p);
    for (int32_t i = 0; i < 3; i++) {
        memset(got, 0, sizeof got);
        rig_finish(&r, requests[i], got);
        assert_int_equal(got[0].n, 2);
    }
    alea_engine_stats stats;
    alea__engine_stats_read(r.engine, &stats);
    assert_int_equal(stats.preempted, 0);
    rig_close(&r);
}

/* A stranger is passed by for a while, not for ever. */
static void test_followers_do_not_starve_a_stranger(void **state) {
    (void)state;
    int32_t tokens[QUESTION + ANSWER], other[30];
    rig r = rig_open(score_toy, 1, 64, score_options(0, ALEA_SCORED_CACHE_AUTO));
    const alea_request_params p = score_params(1, 0);
    make_answer(tokens, 1, 0);
    alea_request *follower = rig_submit(&r, tokens, QUESTION + ANSWER, &p);
    score_fill(other, 30, 99);
    alea_request *stranger = rig_submit(&r, other, 30, &p);
    int32_t n_followers = 0;
    for (memset(got, 0, sizeof got); !rig_read(stranger, got); n_followers++) {
        make_answer(tokens, 1, n_followers + 1);
        alea_request *next = rig_submit(&r, tokens, QUESTION + ANSWER, &p);
        memset(got + 1, 0, sizeof *got);
        for (bool over = false; !over && !rig_read(stranger, got);) {
            assert_true(alea__engine_step(r.engine, 1) >= 0);
            over = rig_read(follower, got + 1);
        }
        alea__request_release(follower);
        follower = next;
        assert_true(n_followers < 100);
    }
    assert_in_range(n_followers, 10, 80);
    assert_int_equal(got[0].n_scores, 30);
    alea__request_release(follower);
    alea__request_release(stranger);
    rig_close(&r);
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
        rig r = rig_open(score_toy, 1, 512, score_options(0, ALEA_SCORED_CACHE_OFF));
        for (int32_t i = 0; i < REQUESTS; i++) {
            const int32_t shared = score_draw(&random, 80);
            n[i] = shared + 1 + score_draw(&random, 40);
            score_fill(prompts[i], shared, (uint64_t)score_draw(&random, 2));
            score_fill(prompts[i] + shared, n[i] - shared, score_random(&random));
            params[i] = score_params(score_draw(&random, 22) - 1,
                                     score_draw(&random, 3) * score_draw(&random, 8));
            params[i].priority = score_draw(&random, 3);
            params[i].no_scored_cache = score_draw(&random, 8) == 0;
            params[i].top = score_draw(&random, 3) - 1;
            rig_run(&r, prompts[i], n[i], &params[i], &lone[i]);
        }
        rig_close(&r);
        alea_engine_options options =
            score_options(1 + score_draw(&random, 80), (alea_scored_cache)score_draw(&random, 2));
        options.no_overlap = score_draw(&random, 3) == 0;
        options.no_prefix_cache = score_draw(&random, 4) == 0;
        r = rig_open(score_toy, 1 + score_draw(&random, 5), 1 + score_draw(&random, 90), options);
        alea_request *requests[REQUESTS];
        const int32_t greed = trial % 2 ? 3 : 100;
        int32_t n_sent = 0, n_over = 0;
        bool over[REQUESTS] = {false}, cancelled[REQUESTS] = {false};
        while (n_over < REQUESTS) {
            if (n_sent < REQUESTS && score_draw(&random, 2)) {
                requests[n_sent] = rig_submit(&r, prompts[n_sent], n[n_sent], &params[n_sent]);
                n_sent++;
            }
            assert_true(alea__engine_step(r.engine, 1) >= 0);
            if (n_sent > 0 && score_draw(&random, 30) == 0) {
                const int32_t i = score_draw(&random, n_sent);
                cancelled[i] = true;
                if (!over[i]) alea__request_cancel(requests[i]);
            }
            for (int32_t i = 0; i < n_sent; i++) {
                if (over[i] || score_draw(&random, 3) == 0) continue;
                over[i] = read_some(requests[i], &read[i], 1 + score_draw(&random, greed));
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
        cmocka_unit_test(test_a_scored_prefix_is_reused_with_its_scores),
        cmocka_unit_test(test_scores_serve_their_own_salt_alone),
        cmocka_unit_test(test_stored_scores_reach_a_late_reader_before_the_answer),
        cmocka_unit_test(test_the_scored_cache_can_be_left_out),
        cmocka_unit_test(test_the_scored_cache_needs_rows_that_do_not_depend_on_the_batch),
        cmocka_unit_test(test_prompts_that_begin_alike_wait_for_the_common_scores),
        cmocka_unit_test(test_each_question_is_scored_once_over_few_slots),
        cmocka_unit_test(test_a_follower_passes_by_nothing_that_matters_more),
        cmocka_unit_test(test_followers_do_not_starve_a_stranger),
        cmocka_unit_test(test_random_schedules_change_no_score),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
