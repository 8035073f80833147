/* The engine's promises on the toy core, whose rows change with every token of a sequence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "runtime/engine_rig.h"

static const alea_engine_options defaults = {.threads = 2};

/* A small generator of its own, so that a schedule can be told by its seed. */
static uint32_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static int32_t make_prompt(int32_t *prompt, uint64_t seed) {
    const int32_t n = 1 + (int32_t)(next_random(&seed) % 60);
    for (int32_t i = 0; i < n; i++)
        prompt[i] = (int32_t)(next_random(&seed) % 256);
    return n;
}

static alea_request_params sampled_params(uint64_t seed) {
    alea_request_params params = alea__params_default();
    params.seeded = true;
    params.seed = seed;
    params.max_tokens = 24;
    params.top = 5;
    params.want_sampled = true;
    params.want_entropy = true;
    params.sampling.temperature = 0.8f;
    params.sampling.top_k = 40;
    params.sampling.top_p = 0.95f;
    return params;
}

static void test_a_request_ends_at_its_budget_with_every_entry(void **state) {
    (void)state;
    rig r = rig_open("vocab=320,text=1", 2, 64, defaults);
    const int32_t prompt[] = {72, 101, 108, 108, 111};
    const alea_request_params params = sampled_params(7);
    static rig_choice choice;
    memset(&choice, 0, sizeof choice);
    rig_run(&r, prompt, 5, &params, &choice);
    assert_true(choice.finish == ALEA_FINISH_LENGTH || choice.finish == ALEA_FINISH_END);
    assert_int_equal(choice.n, choice.output_tokens);
    for (int32_t i = 0; i < choice.n; i++) {
        assert_true(choice.entries[i]);
        assert_true(choice.logprobs[i] <= 0.0f && choice.sampled[i] <= 0.0f);
        assert_true(choice.masses[i] > 0.0f && choice.masses[i] <= 1.0f);
        assert_true(choice.entropies[i] >= 0.0f);
        assert_int_equal(choice.n_alternatives[i], 5);
    }
    rig_close(&r);
}

/* The heart of it: alone against any company, any arrival, any round size. */
static void test_neighbours_chunks_and_reuse_change_no_bit(void **state) {
    (void)state;
    static rig_choice alone[4], crowded[4];
    int32_t prompt[64], other[64];
    for (uint64_t trial = 1; trial <= 40; trial++) {
        uint64_t random = trial;
        const int32_t n_prompt = make_prompt(prompt, trial);
        alea_request_params params = sampled_params(trial);
        params.choices = 1 + (int32_t)(trial % 4);
        memset(alone, 0, sizeof alone);
        memset(crowded, 0, sizeof crowded);
        alea_engine_options plain = defaults;
        plain.no_prefix_cache = plain.no_overlap = true;
        rig r = rig_open("vocab=320,text=1", 1, 512, plain);
        rig_run(&r, prompt, n_prompt, &params, alone);
        rig_close(&r);

        r = rig_open("vocab=320,text=1", 1 + (int32_t)(next_random(&random) % 9),
                     1 + (int32_t)(next_random(&random) % 70), defaults);
        alea_request *strangers[31];
        const int32_t n_strangers = (int32_t)(next_random(&random) % 32);
        alea_request *request = NULL;
        for (int32_t s = 0; s < n_strangers; s++) {
            const int32_t n_other =
                make_prompt(other, trial % 3 ? 1000 + trial * 31 + (uint64_t)s : trial);
            alea_request_params theirs = sampled_params((uint64_t)s);
            theirs.max_tokens = 1 + (int32_t)(next_random(&random) % 40);
            strangers[s] = rig_submit(&r, other, n_other, &theirs);
            if (!request && next_random(&random) % 4 == 0) {
                request = rig_submit(&r, prompt, n_prompt, &params);
            }
            for (uint32_t k = next_random(&random) % 5; k > 0; k--) {
                assert_true(alea__engine_step(r.engine, 1) >= 0);
            }
        }
        if (!request) request = rig_submit(&r, prompt, n_prompt, &params);
        rig_finish(&r, request, crowded);
        for (int32_t s = 0; s < n_strangers; s++)
            alea__request_release(strangers[s]);
        rig_close(&r);
        for (int32_t c = 0; c < params.choices; c++)
            rig_assert_equal(&alone[c], &crowded[c]);
    }
}

static void test_logprobs_do_not_change_tokens(void **state) {
    (void)state;
    static rig_choice with, without;
    const int32_t prompt[] = {1, 2, 3};
    rig r = rig_open("vocab=320,text=1", 2, 64, defaults);
    for (uint64_t seed = 0; seed < 50; seed++) {
        alea_request_params params = sampled_params(seed);
        params.sampling.temperature = (float)(seed % 5) * 0.5f;
        params.repetition_penalty = seed % 2 ? 1.3f : 1.0f;
        params.frequency_penalty = seed % 3 ? 0.0f : 0.5f;
        memset(&with, 0, sizeof with);
        memset(&without, 0, sizeof without);
        rig_run(&r, prompt, 3, &params, &with);
        params.top = -1;
        params.want_sampled = params.want_entropy = false;
        rig_run(&r, prompt, 3, &params, &without);
        assert_int_equal(with.n, without.n);
        assert_memory_equal(with.tokens, without.tokens, (size_t)with.n * sizeof with.tokens[0]);
        for (int32_t i = 0; i < without.n; i++)
            assert_false(without.entries[i]);
    }
    rig_close(&r);
}

static void test_nothing_is_reduced_when_nothing_is_asked(void **state) {
    (void)state;
    static rig_choice choice;
    rig r = rig_open("vocab=320", 2, 64, defaults);
    alea_request_params params = alea__params_default();
    params.ignore_end = true;
    const int32_t prompt[] = {1, 2, 3};
    rig_run(&r, prompt, 3, &params, &choice);
    alea_engine_stats stats;
    alea__engine_stats_read(r.engine, &stats);
    assert_int_equal(stats.reduced_positions, 0);
    assert_int_equal(choice.n, 16);
    rig_close(&r);
}

static void test_a_stop_string_cuts_inside_a_token_and_holds_back(void **state) {
    (void)state;
    /* peak: every next id is the last one plus one, so the bytes run a, b, c, … */
    rig r = rig_open("vocab=320,peak=30", 1, 64, defaults);
    static rig_choice choice;
    alea_request_params params = alea__params_default();
    params.sampling.temperature = 0.0f;
    params.max_tokens = 20;
    const alea_bytes stops[] = {{(const uint8_t *)"fgX", 3}, {(const uint8_t *)"ghi", 3}};
    params.stops = stops;
    params.n_stops = 2;
    const int32_t prompt[] = {'a'};
    rig_run(&r, prompt, 1, &params, &choice);
    assert_int_equal(choice.finish, ALEA_FINISH_STOP);
    assert_int_equal(choice.stop, 1);
    assert_int_equal(choice.n, 5); /* b c d e f */
    assert_int_equal(choice.tokens[4], 'f');

    memset(&choice, 0, sizeof choice);
    params.include_stop = true;
    rig_run(&r, prompt, 1, &params, &choice);
    assert_int_equal(choice.n, 8);
    assert_int_equal(choice.tokens[7], 'i');
    rig_close(&r);
}

/* From id 297 on this vocabulary has tokens without bytes alone: a stop string that is open when
 * they begin stays open, and what it holds back must not grow, nor wait for ever. */
static void test_a_stop_that_stays_open_over_endless_control_tokens_is_an_error(void **state) {
    (void)state;
    alea_engine_options options = defaults;
    options.queue_tokens = 8;
    static rig_choice choice;
    alea_request_params params = alea__params_default();
    params.sampling.temperature = 0.0f;
    params.top = 0;
    const alea_bytes stops[] = {{(const uint8_t *)"\xBDx", 2}};
    params.stops = stops;
    params.n_stops = 1;
    const int32_t prompt[] = {295}; /* then 296, which ends in the stop's first byte */
    for (params.max_tokens = 8; params.max_tokens <= 14; params.max_tokens += 2) {
        for (int32_t way = 0; way < 2; way++) {
            options.no_overlap = way;
            rig r = rig_open("vocab=400,peak=30", 1, 64, options);
            memset(&choice, 0, sizeof choice);
            rig_run(&r, prompt, 1, &params, &choice);
            const bool fits = params.max_tokens <= 10; /* the queue, and two that the stop adds */
            assert_int_equal(choice.n, fits ? params.max_tokens : 10);
            assert_int_equal(choice.finish, fits ? ALEA_FINISH_LENGTH : ALEA_FINISH_ERROR);
            if (!fits) {
                assert_string_equal(choice.message,
                                    "more than 8 tokens without text while a stop string is open");
            }
            rig_close(&r);
        }
    }
}

static void test_a_stop_in_the_last_token_counts_as_a_stop(void **state) {
    (void)state;
    rig r = rig_open("vocab=320,peak=30", 1, 64, defaults);
    static rig_choice choice;
    alea_request_params params = alea__params_default();
    params.sampling.temperature = 0.0f;
    params.max_tokens = 3;
    const alea_bytes stops[] = {{(const uint8_t *)"d", 1}};
    params.stops = stops;
    params.n_stops = 1;
    const int32_t prompt[] = {'a'};
    rig_run(&r, prompt, 1, &params, &choice);
    assert_int_equal(choice.finish, ALEA_FINISH_STOP);
    assert_int_equal(choice.n, 2);
    rig_close(&r);
}

static void test_a_bad_row_ends_its_own_request_and_names_the_position(void **state) {
    (void)state;
    rig r = rig_open("vocab=320,nan_at=9,fault_sequence=1", 4, 64, defaults);
    static rig_choice choices[4];
    alea_request *requests[4];
    alea_request_params params = sampled_params(3);
    for (int32_t i = 0; i < 4; i++) {
        int32_t prompt[] = {10 + i, 20 + i, 30 + i};
        requests[i] = rig_submit(&r, prompt, 3, &params);
    }
    int32_t failed = 0;
    for (int32_t i = 0; i < 4; i++)
        rig_finish(&r, requests[i], &choices[i]);
    for (int32_t i = 0; i < 4; i++) {
        if (choices[i].finish != ALEA_FINISH_ERROR) continue;
        failed++;
        assert_non_null(strstr(choices[i].message, "position 10"));
        assert_int_equal(choices[i].n, 7);
    }
    assert_int_equal(failed, 1);
    rig_close(&r);
}

static void test_a_failing_round_ends_its_requests_and_no_other(void **state) {
    (void)state;
    for (int32_t k = 0; k < 2; k++) {
        rig r = rig_open(k ? "vocab=320,fail_at=3" : "vocab=320,refuse_at=3", 2, 64, defaults);
        static rig_choice first, second;
        memset(&first, 0, sizeof first);
        memset(&second, 0, sizeof second);
        alea_request_params params = sampled_params(3);
        const int32_t prompt[] = {1, 2, 3};
        rig_run(&r, prompt, 3, &params, &first);
        /* What the failed round left in the sequences is unknown: it is dropped. */
        for (int32_t sequence = 0; sequence < 2; sequence++)
            assert_int_equal(alea_core_sequence_length(r.core, sequence), 0);
        rig_run(&r, prompt, 3, &params, &second);
        assert_int_equal(first.finish, ALEA_FINISH_ERROR);
        assert_true(second.finish != ALEA_FINISH_ERROR);
        rig_close(&r);
    }
}

static alea_status cannot_trim(alea_core *core, int32_t sequence, int32_t length) {
    (void)core, (void)sequence, (void)length;
    return ALEA_ECORE;
}

/* A sequence that cannot be dropped after a failed round is left out: without one nothing waits. */
static void test_a_core_without_a_usable_sequence_fails_what_waits(void **state) {
    (void)state;
    static alea_core_api stuck;
    stuck = *alea_core_toy();
    stuck.sequence_trim = cannot_trim;
    const alea_core_options core = {
        .struct_bytes = sizeof core, .model = "vocab=320,fail_at=1", .sequences = 1};
    rig r = {NULL, NULL};
    assert_int_equal(alea_core_open(&stuck, &core, &r.core, NULL), ALEA_OK);
    assert_int_equal(alea__engine_create(r.core, &defaults, &r.engine, NULL), ALEA_OK);
    const alea_request_params params = alea__params_default();
    const int32_t prompt[] = {1, 2, 3};
    static rig_choice choices[3];
    alea_request *requests[3];
    for (int32_t i = 0; i < 2; i++)
        requests[i] = rig_submit(&r, prompt, 3, &params);
    rig_finish(&r, requests[0], &choices[0]);
    rig_finish(&r, requests[1], &choices[1]);
    requests[2] = rig_submit(&r, prompt, 3, &params);
    rig_finish(&r, requests[2], &choices[2]);
    assert_non_null(strstr(choices[0].message, "round 1 failed"));
    for (int32_t i = 1; i < 3; i++) {
        assert_int_equal(choices[i].finish, ALEA_FINISH_ERROR);
        assert_string_equal(choices[i].message, "the core has no sequence left that it can use");
    }
    rig_close(&r);
}

static void test_an_empty_constraint_is_named(void **state) {
    (void)state;
    rig r = rig_open("vocab=320", 1, 64, defaults);
    static rig_choice choice;
    alea_request_params params = alea__params_default();
    const int32_t allowed[] = {5};
    const alea_token_bias ban[] = {{5, -INFINITY}};
    params.allowed = (alea_token_list){allowed, 1};
    params.biases = ban;
    params.n_biases = 1;
    const int32_t prompt[] = {1};
    rig_run(&r, prompt, 1, &params, &choice);
    assert_int_equal(choice.finish, ALEA_FINISH_ERROR);
    assert_non_null(strstr(choice.message, "allowed_token_ids left no token"));
    rig_close(&r);
}

static void test_thinking_is_closed_by_force_without_entries(void **state) {
    (void)state;
    rig r = rig_open("vocab=320,text=1", 1, 64, defaults);
    static rig_choice choice;
    alea_request_params params = sampled_params(5);
    params.ignore_end = true;
    params.thinking_budget = 4;
    const int32_t close[] = {60, 47};
    params.thinking_close = (alea_token_list){close, 2};
    params.max_tokens = 10;
    const int32_t prompt[] = {1};
    rig_run(&r, prompt, 1, &params, &choice);
    assert_int_equal(choice.n, 10);
    assert_int_equal(choice.tokens[4], 60);
    assert_int_equal(choice.tokens[5], 47);
    for (int32_t i = 0; i < 10; i++)
        assert_int_equal(choice.entries[i], i != 4 && i != 5);
    rig_close(&r);
}

static void test_cancel_and_deadline_end_a_request_where_it_stands(void **state) {
    (void)state;
    rig r = rig_open("vocab=320,peak=30", 1, 64, defaults);
    alea_request_params params = alea__params_default();
    params.max_tokens = 200;
    params.ignore_end = true;
    const int32_t prompt[] = {1};
    static rig_choice choices[3];
    alea_request *running = rig_submit(&r, prompt, 1, &params);
    params.deadline_ns = 60; /* the moment itself is too late */
    alea_request *waiting = rig_submit(&r, prompt, 1, &params);
    params.deadline_ns = 0;
    params.max_tokens = 2;
    alea_request *later = rig_submit(&r, prompt, 1, &params);
    for (int32_t i = 0; i < 5; i++)
        assert_int_equal(alea__engine_step(r.engine, 10), ALEA_OK);
    alea__request_cancel(running);
    assert_int_equal(alea__engine_step(r.engine, 60), ALEA_OK);
    rig_finish(&r, running, &choices[0]);
    rig_finish(&r, waiting, &choices[1]);
    rig_finish(&r, later, &choices[2]);
    assert_int_equal(choices[0].finish, ALEA_FINISH_CANCELLED);
    assert_int_equal(choices[1].finish, ALEA_FINISH_DEADLINE);
    assert_int_equal(choices[1].n, 0);
    assert_int_equal(choices[2].n, 2);
    rig_close(&r);
}

static void test_a_cancel_reaches_a_request_behind_others_that_wait(void **state) {
    (void)state;
    rig r = rig_open("vocab=320,peak=30", 1, 64, defaults);
    alea_request_params params = alea__params_default();
    params.max_tokens = 200;
    params.ignore_end = true;
    const int32_t prompt[] = {1};
    alea_request *running = rig_submit(&r, prompt, 1, &params);
    alea_request *first = rig_submit(&r, prompt, 1, &params);
    alea_request *second = rig_submit(&r, prompt, 1, &params);
    params.deadline_ns = 15;
    alea_request *third = rig_submit(&r, prompt, 1, &params);
    assert_int_equal(alea__engine_step(r.engine, 10), ALEA_OK);
    alea__request_cancel(second);
    assert_int_equal(alea__engine_step(r.engine, 20), ALEA_OK);
    alea_event event;
    assert_int_equal(alea__request_next(first, 0, &event), ALEA_MORE);
    assert_int_equal(alea__request_next(second, 0, &event), ALEA_OK);
    assert_int_equal(event.finish, ALEA_FINISH_CANCELLED);
    assert_int_equal(alea__request_next(third, 0, &event), ALEA_OK);
    assert_int_equal(event.finish, ALEA_FINISH_DEADLINE);
    alea__request_release(running);
    alea__request_release(first);
    alea__request_release(second);
    alea__request_release(third);
    rig_close(&r);
}

static const float *no_row(alea_core *core, int32_t index) {
    (void)core, (void)index;
    return NULL;
}

static void test_a_row_that_the_core_withholds_fails_its_request(void **state) {
    (void)state;
    static alea_core_api blind;
    blind = *alea_core_toy();
    blind.row = no_row;
    const alea_core_options options = {.struct_bytes = sizeof options, .model = "vocab=320"};
    rig r = {NULL, NULL};
    assert_int_equal(alea_core_open(&blind, &options, &r.core, NULL), ALEA_OK);
    assert_int_equal(alea__engine_create(r.core, &defaults, &r.engine, NULL), ALEA_OK);
    alea_request_params params = alea__params_default();
    params.top = 2;
    const int32_t prompt[] = {1};
    static rig_choice choice;
    rig_run(&r, prompt, 1, &params, &choice);
    assert_int_equal(choice.finish, ALEA_FINISH_ERROR);
    assert_string_equal(choice.message, "at position 1: the core gave no row");
    rig_close(&r);
}

static void test_a_slow_reader_pauses_its_own_request_only(void **state) {
    (void)state;
    alea_engine_options options = defaults;
    options.queue_tokens = 8;
    rig r = rig_open("vocab=320,peak=30", 2, 64, options);
    alea_request_params params = alea__params_default();
    params.max_tokens = 100;
    params.ignore_end = true;
    const int32_t prompt[] = {1};
    static rig_choice slow, quick;
    alea_request *unread = rig_submit(&r, prompt, 1, &params);
    alea_request *read = rig_submit(&r, prompt, 1, &params);
    rig_finish(&r, read, &quick);
    assert_int_equal(quick.n, 100);
    assert_int_equal(alea__engine_step(r.engine, 1), ALEA_DONE);
    rig_finish(&r, unread, &slow);
    assert_int_equal(slow.n, 100);
    rig_close(&r);
}

static void count_call(void *user) {
    ++*(int32_t *)user;
}

/* Once for each thing that came, at least, and never for nothing. */
static void test_a_reader_is_notified_of_what_came(void **state) {
    (void)state;
    rig r = rig_open("vocab=320", 1, 64, defaults);
    alea_request_params params = alea__params_default();
    params.max_tokens = 5;
    params.ignore_end = true;
    const int32_t prompt[] = {1, 2, 3};
    int32_t n_calls = 0, n_events = 0;
    alea_request *request = rig_submit(&r, prompt, 3, &params);
    alea__request_notify(request, count_call, &n_calls);
    for (bool over = false; !over;) {
        const int32_t before = n_calls;
        assert_true(alea__engine_step(r.engine, 1) >= 0);
        alea_event event;
        alea_status status;
        int32_t n = 0;
        while ((status = alea__request_next(request, 0, &event)) == ALEA_OK)
            n++;
        if (n > 0) assert_true(n_calls > before);
        n_events += n;
        over = status == ALEA_DONE;
    }
    assert_int_equal(n_events, 6);
    assert_in_range(n_calls, 2, 7);
    alea__request_release(request);
    rig_close(&r);
}

/* Of two long prompts the older goes first, and the time of a first token is told once. */
static void test_the_older_prompt_has_its_answer_first(void **state) {
    (void)state;
    rig r = rig_open("vocab=320", 4, 16, defaults);
    int32_t prompt[64];
    alea_request_params params = alea__params_default();
    params.max_tokens = 6;
    params.ignore_end = true;
    alea_request *requests[3];
    for (int32_t i = 0; i < 3; i++) {
        for (int32_t t = 0; t < 64; t++)
            prompt[t] = 7 * i + t;
        requests[i] = rig_submit(&r, prompt, 64, &params);
    }
    uint64_t now = 0;
    while (alea__engine_step(r.engine, ++now) == ALEA_OK) {
    }
    uint64_t before = 0;
    for (int32_t i = 0; i < 3; i++) {
        alea_request_usage usage;
        alea__request_usage_read(requests[i], &usage);
        assert_true(usage.first_token_ns >= before + 4);
        assert_true(usage.first_token_ns + 5 <= now);
        before = usage.first_token_ns;
        static rig_choice choice;
        memset(&choice, 0, sizeof choice);
        rig_finish(&r, requests[i], &choice);
    }
    rig_close(&r);
}

/* Tokens of the prompt that another run of it finds. */
static int32_t cached_with(rig *r, const int32_t *prompt, int32_t n, uint64_t salt) {
    alea_request_params params = alea__params_default();
    params.max_tokens = 4;
    params.cache_salt = salt;
    static rig_choice choice;
    memset(&choice, 0, sizeof choice);
    alea_request *request = rig_submit(r, prompt, n, &params);
    while (!rig_read(request, &choice))
        assert_true(alea__engine_step(r->engine, 1) >= 0);
    alea_request_usage usage;
    alea__request_usage_read(request, &usage);
    alea__request_release(request);
    return usage.cached_tokens;
}

static void test_a_prefix_serves_its_own_salt_alone(void **state) {
    (void)state;
    rig r = rig_open("vocab=320", 3, 64, defaults);
    int32_t prompt[40];
    for (int32_t i = 0; i < 40; i++)
        prompt[i] = i;
    static const uint64_t salts[] = {0, 7, 8};
    for (int32_t round = 0; round < 2; round++) { /* three slots hold the three of them */
        for (int32_t i = 0; i < 3; i++)
            assert_int_equal(cached_with(&r, prompt, 40, salts[i]), round == 0 ? 0 : 39);
    }
    assert_int_equal(cached_with(&r, prompt, 40, 9), 0); /* in the slot of the first */
    assert_int_equal(cached_with(&r, prompt, 40, 9), 39);
    assert_int_equal(cached_with(&r, prompt, 40, 0), 0);
    rig_close(&r);
}

static void test_a_prefix_is_reused_and_reported(void **state) {
    (void)state;
    rig r = rig_open("vocab=320", 3, 64, defaults);
    int32_t prompt[40];
    for (int32_t i = 0; i < 40; i++)
        prompt[i] = i;
    alea_request_params params = alea__params_default();
    params.max_tokens = 4;
    params.ignore_end = true;
    static rig_choice choice;
    rig_run(&r, prompt, 40, &params, &choice);
    prompt[39] = 200;
    memset(&choice, 0, sizeof choice);
    alea_request *request = rig_submit(&r, prompt, 40, &params);
    while (!rig_read(request, &choice))
        assert_true(alea__engine_step(r.engine, 1) >= 0);
    alea_request_usage usage;
    alea__request_usage_read(request, &usage);
    assert_int_equal(usage.prompt_tokens, 40);
    assert_int_equal(usage.cached_tokens, 39);
    alea_engine_stats stats;
    alea__engine_stats_read(r.engine, &stats);
    assert_int_equal(stats.prompt_tokens, 40 + 1); /* computed */
    assert_int_equal(stats.cached_tokens, 39);
    assert_int_equal(stats.output_tokens, 8);
    assert_int_equal(stats.finished, 2);
    alea__request_release(request);
    rig_close(&r);
}

/* What a request finds when it begins is reuse; what its later choices copy of its own, and what it
 * finds of itself after it lost its slot, is not. */
static void test_a_request_s_own_tokens_are_no_reuse(void **state) {
    (void)state;
    rig r = rig_open("vocab=320", 1, 64, defaults);
    int32_t prompt[40];
    for (int32_t i = 0; i < 40; i++)
        prompt[i] = i;
    static rig_choice choices[2];
    memset(choices, 0, sizeof choices);
    alea_request_params params = alea__params_default();
    params.choices = 2;
    params.ignore_end = true;
    alea_request *request = rig_submit(&r, prompt, 40, &params);
    for (int32_t step = 0; step < 4; step++)
        assert_int_equal(alea__engine_step(r.engine, 1), ALEA_OK);
    params.priority = -1;
    params.choices = 1;
    alea_request *urgent = rig_submit(&r, prompt, 20, &params);
    static rig_choice other;
    memset(&other, 0, sizeof other);
    rig_finish(&r, urgent, &other);
    while (!rig_read(request, choices))
        assert_true(alea__engine_step(r.engine, 1) >= 0);
    alea_request_usage usage;
    alea__request_usage_read(request, &usage);
    assert_int_equal(usage.cached_tokens, 0);
    alea_engine_stats stats;
    alea__engine_stats_read(r.engine, &stats);
    assert_int_equal(stats.preempted, 1);
    assert_int_equal(stats.cached_tokens, 19 + 39); /* the urgent one's, the second choice's */
    alea__request_release(request);
    rig_close(&r);
}

static void test_a_stopped_engine_takes_no_request(void **state) {
    (void)state;
    rig r = rig_open("vocab=320", 1, 64, defaults);
    alea__engine_stop(r.engine);
    const int32_t prompt = 1;
    const alea_request_params params = alea__params_default();
    alea_request *request = NULL;
    alea_error error;
    assert_int_equal(alea__engine_submit(r.engine, &prompt, 1, &params, &request, &error),
                     ALEA_ECANCELLED);
    assert_null(request);
    rig_close(&r);
}

static int32_t cached_of(rig *r, const int32_t *prompt, int32_t n_prompt) {
    return cached_with(r, prompt, n_prompt, 0);
}

/* Two conversations of one beginning, and slots for both: each finds itself again. */
static void test_texts_that_begin_alike_do_not_write_over_each_other(void **state) {
    (void)state;
    for (int32_t shared = 1; shared <= 20; shared += 19) {
        rig r = rig_open("vocab=320", 3, 64, defaults);
        int32_t a[60], b[60];
        for (int32_t i = 0; i < 60; i++) {
            a[i] = i;
            b[i] = i < shared ? i : 100 + i;
        }
        assert_int_equal(cached_of(&r, a, 60), 0);
        assert_int_equal(cached_of(&r, b, 60), shared < 16 ? 0 : shared);
        for (int32_t turn = 0; turn < 3; turn++) {
            assert_int_equal(cached_of(&r, a, 60), 59);
            assert_int_equal(cached_of(&r, b, 60), 59);
        }
        rig_close(&r);
    }
}

/* Of the idle slots the one that was used longest ago is written over. */
static void test_the_least_recently_used_text_goes_first(void **state) {
    (void)state;
    rig r = rig_open("vocab=320", 3, 64, defaults);
    int32_t texts[4][30];
    for (int32_t t = 0; t < 4; t++)
        for (int32_t i = 0; i < 30; i++)
            texts[t][i] = i == 0 ? 256 : 40 * t + i; /* all begin with the same token */
    for (int32_t t = 0; t < 3; t++)
        assert_int_equal(cached_of(&r, texts[t], 30), 0);
    assert_int_equal(cached_of(&r, texts[0], 30), 29);
    assert_int_equal(cached_of(&r, texts[3], 30), 1); /* in the place of 1 */
    assert_int_equal(cached_of(&r, texts[0], 30), 29);
    assert_int_equal(cached_of(&r, texts[2], 30), 29);
    assert_int_equal(cached_of(&r, texts[3], 30), 29);
    assert_int_equal(cached_of(&r, texts[1], 30), 1);
    rig_close(&r);
}

static void test_refused_submissions_name_the_field(void **state) {
    (void)state;
    rig r = rig_open("vocab=320,context=64", 1, 64, defaults);
    alea_request *request = NULL;
    alea_error error;
    alea_request_params params = alea__params_default();
    int32_t prompt[70] = {0};
    assert_int_equal(alea__engine_submit(r.engine, prompt, 0, &params, &request, &error),
                     ALEA_EINVAL);
    assert_int_equal(alea__engine_submit(r.engine, prompt, 65, &params, &request, &error),
                     ALEA_ECONTEXT);
    prompt[2] = 320;
    assert_int_equal(alea__engine_submit(r.engine, prompt, 5, &params, &request, &error),
                     ALEA_EINVAL);
    assert_non_null(strstr(error.message, "prompt token 2 is 320"));
    params.frequency_penalty = NAN;
    prompt[2] = 0;
    assert_int_equal(alea__engine_submit(r.engine, prompt, 5, &params, &request, &error),
                     ALEA_EINVAL);
    assert_non_null(strstr(error.message, "frequency_penalty"));
    assert_null(request);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_ends_at_its_budget_with_every_entry),
        cmocka_unit_test(test_neighbours_chunks_and_reuse_change_no_bit),
        cmocka_unit_test(test_logprobs_do_not_change_tokens),
        cmocka_unit_test(test_nothing_is_reduced_when_nothing_is_asked),
        cmocka_unit_test(test_a_stop_string_cuts_inside_a_token_and_holds_back),
        cmocka_unit_test(test_a_stop_that_stays_open_over_endless_control_tokens_is_an_error),
        cmocka_unit_test(test_a_stop_in_the_last_token_counts_as_a_stop),
        cmocka_unit_test(test_a_bad_row_ends_its_own_request_and_names_the_position),
        cmocka_unit_test(test_a_failing_round_ends_its_requests_and_no_other),
        cmocka_unit_test(test_a_core_without_a_usable_sequence_fails_what_waits),
        cmocka_unit_test(test_an_empty_constraint_is_named),
        cmocka_unit_test(test_thinking_is_closed_by_force_without_entries),
        cmocka_unit_test(test_cancel_and_deadline_end_a_request_where_it_stands),
        cmocka_unit_test(test_a_cancel_reaches_a_request_behind_others_that_wait),
        cmocka_unit_test(test_a_row_that_the_core_withholds_fails_its_request),
        cmocka_unit_test(test_a_slow_reader_pauses_its_own_request_only),
        cmocka_unit_test(test_a_reader_is_notified_of_what_came),
        cmocka_unit_test(test_the_older_prompt_has_its_answer_first),
        cmocka_unit_test(test_a_prefix_is_reused_and_reported),
        cmocka_unit_test(test_a_request_s_own_tokens_are_no_reuse),
        cmocka_unit_test(test_a_stopped_engine_takes_no_request),
        cmocka_unit_test(test_texts_that_begin_alike_do_not_write_over_each_other),
        cmocka_unit_test(test_the_least_recently_used_text_goes_first),
        cmocka_unit_test(test_a_prefix_serves_its_own_salt_alone),
        cmocka_unit_test(test_refused_submissions_name_the_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
