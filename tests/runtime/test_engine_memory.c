/* What the engine allocates and when: all of it at creation and submission, none in a round. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine_rig.h"

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

static atomic_int allocations;
static atomic_size_t allocated_bytes;
static atomic_int fail_at = -1; /* countdown; the allocation that meets 0 fails */

static int refuses(size_t bytes) {
    atomic_fetch_add(&allocations, 1);
    if (atomic_load(&fail_at) >= 0 && atomic_fetch_sub(&fail_at, 1) == 0) return 1;
    atomic_fetch_add(&allocated_bytes, bytes);
    return 0;
}

void *__wrap_malloc(size_t bytes) {
    return refuses(bytes) ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes) {
    return refuses(count * bytes) ? NULL : __real_calloc(count, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    return refuses(bytes) ? NULL : __real_aligned_alloc(alignment, bytes);
}

static alea_request_params busy_params(void) {
    alea_request_params params = alea__params_default();
    params.max_tokens = 50;
    params.ignore_end = true;
    params.top = 20;
    params.want_sampled = params.want_entropy = true;
    params.repetition_penalty = 1.1f;
    params.sampling.top_p = 0.9f;
    return params;
}

static void test_rounds_allocate_nothing(void **state) {
    (void)state;
    const alea_engine_options options = {.threads = 2};
    rig r = rig_open("vocab=320,text=1", 4, 64, options);
    static rig_choice choices[4];
    alea_request *requests[4];
    const alea_request_params params = busy_params();
    for (int32_t i = 0; i < 4; i++) {
        const int32_t prompt[] = {i, 2, 3, 4, 5};
        requests[i] = rig_submit(&r, prompt, 5, &params);
    }
    atomic_store(&allocations, 0);
    while (alea__engine_step(r.engine, 1) == ALEA_OK) {
    }
    assert_int_equal(atomic_load(&allocations), 0);
    for (int32_t i = 0; i < 4; i++) {
        rig_finish(&r, requests[i], &choices[i]);
        assert_int_equal(choices[i].n, 50);
    }
    rig_close(&r);
}

enum { LONGEST = 4000 };

static int32_t long_prompt[LONGEST];

/* Submit, read to the end and release; returns what the request allocated. */
static size_t score_prompt(rig *r, int32_t n, int32_t top) {
    alea_request_params params = alea__params_default();
    params.prompt_top = top;
    params.max_tokens = 1;
    atomic_store(&allocated_bytes, 0);
    atomic_store(&allocations, 0);
    alea_request *request = rig_submit(r, long_prompt, n, &params);
    assert_int_equal(atomic_load(&allocations), 1);
    int32_t n_scores = 0;
    alea_event event;
    alea_status status;
    while ((status = alea__request_next(request, 0, &event)) != ALEA_DONE) {
        if (status == ALEA_OK) n_scores += event.kind == ALEA_EVENT_PROMPT;
        if (status == ALEA_MORE) assert_true(alea__engine_step(r->engine, 1) >= 0);
    }
    alea__request_release(request);
    assert_int_equal(atomic_load(&allocations), 1); /* its own, and none in all the rounds */
    assert_int_equal(n_scores, n);
    return atomic_load(&allocated_bytes);
}

static rig open_scoring(alea_scored_cache cache) {
    const alea_engine_options options = {
        .threads = 1, .prompt_logprobs = true, .scored_cache = cache};
    for (int32_t i = 0; i < LONGEST; i++)
        long_prompt[i] = i % 256;
    return rig_open("vocab=320,text=1", 2, 64, options);
}

/* The queue does not grow with the prompt: what does is tokens, of 4 bytes. */
static void test_a_long_prompt_is_scored_in_bounded_memory_CORE_14(void **state) {
    (void)state;
    rig r = open_scoring(ALEA_SCORED_CACHE_OFF);
    for (int32_t top = 0; top <= 20; top += 10) {
        const size_t small = score_prompt(&r, 512, top);
        const size_t large = score_prompt(&r, LONGEST, top);
        assert_in_range(large - small, 1, 4 * (LONGEST - 512) + 64);
        assert_in_range(score_prompt(&r, 512, 20) - small, 0, 256 * 160);
    }
    rig_close(&r);
}

static size_t submit_bytes(rig *r, const alea_request_params *params) {
    atomic_store(&allocated_bytes, 0);
    alea_request *request = rig_submit(r, long_prompt, 8, params);
    const size_t bytes = atomic_load(&allocated_bytes);
    alea__request_release(request);
    assert_int_equal(alea__engine_request_bytes(r->engine, 8, params), bytes); /* as announced */
    return bytes;
}

static void test_what_came_before_is_kept_for_penalties_alone(void **state) {
    (void)state;
    rig r = open_scoring(ALEA_SCORED_CACHE_OFF);
    alea_request_params params = alea__params_default();
    size_t bytes[2];
    for (int way = 0; way < 2; way++) {
        params.max_tokens = way ? 1024 : 512;
        bytes[way] = submit_bytes(&r, &params);
    }
    assert_in_range(bytes[1] - bytes[0], 4 * 512, 4 * 512 + 64);
    params.presence_penalty = 0.5f;
    assert_in_range(submit_bytes(&r, &params) - bytes[1], 16 * 1024, 32 * 1032);
    rig_close(&r);
}

static void test_what_a_request_takes_is_told_beforehand(void **state) {
    (void)state;
    rig r = open_scoring(ALEA_SCORED_CACHE_OFF);
    alea_request_params params = busy_params();
    static const int32_t ids[] = {1, 2, 3};
    const alea_token_list words[] = {{ids, 3}, {ids, 1}};
    const alea_bytes stops[] = {{(const uint8_t *)"stop", 4}, {(const uint8_t *)"here!", 5}};
    const alea_token_bias bias = {1, 1.0f};
    params.bad_words = words;
    params.stops = stops;
    params.biases = &bias;
    params.allowed = (alea_token_list){ids, 3};
    for (int32_t i = 0; i < 16; i++) {
        params.choices = 1 + i % 5;
        params.n_bad_words = i % 3;
        params.n_stops = i / 2 % 3;
        params.n_biases = i / 4 % 2;
        params.prompt_top = i % 4 - 1;
        params.stop_tokens = (alea_token_list){ids, i % 4};
        assert_true(submit_bytes(&r, &params) > 0);
    }
    rig_close(&r);
}

/* Who asks for more than the context holds pays for what it holds. */
static void test_no_memory_is_taken_for_tokens_that_no_context_holds(void **state) {
    (void)state;
    rig r = open_scoring(ALEA_SCORED_CACHE_OFF);
    alea_request_params params = alea__params_default();
    params.max_tokens = 4096 - 8; /* the toy's context */
    const size_t bytes = submit_bytes(&r, &params);
    params.max_tokens = INT32_MAX / 2;
    params.min_tokens = INT32_MAX / 2;
    assert_int_equal(submit_bytes(&r, &params), bytes);
    rig_close(&r);
}

static void test_scoring_twice_takes_the_same_memory_CORE_04(void **state) {
    (void)state;
    rig r = open_scoring(ALEA_SCORED_CACHE_ON);
    size_t first[50];
    for (int32_t i = 0; i < 100; i++) {
        const size_t bytes = score_prompt(&r, 1 + i % 50 * 41 % 700, i % 50 % 21);
        if (i < 50) first[i] = bytes;
        if (i >= 50) assert_int_equal(bytes, first[i - 50]);
    }
    alea_engine_stats stats;
    alea__engine_stats_read(r.engine, &stats);
    assert_int_equal(stats.finished, 100);
    rig_close(&r);
}

static void test_more_than_twenty_alternatives_allocate_nothing_CORE_03(void **state) {
    (void)state;
    rig r = open_scoring(ALEA_SCORED_CACHE_OFF);
    alea_request_params params = alea__params_default();
    for (params.prompt_top = 21; params.prompt_top < 400; params.prompt_top += 299) {
        alea_request *request = NULL;
        alea_error error = {0};
        atomic_store(&allocations, 0);
        assert_int_equal(
            alea__engine_submit(r.engine, long_prompt, 1000, &params, &request, &error),
            ALEA_EINVAL);
        assert_int_equal(atomic_load(&allocations), 0);
        assert_null(request);
    }
    rig_close(&r);
}

/* Off, scoring costs an engine not a byte; on, what the buffers and the cache are said to hold. */
static void test_scoring_is_paid_for_only_where_it_is_on(void **state) {
    (void)state;
    size_t bytes[3];
    for (int32_t way = 0; way < 3; way++) {
        const alea_engine_options options = {.threads = 1,
                                             .prompt_logprobs = way > 0,
                                             .scored_cache = way == 2 ? ALEA_SCORED_CACHE_ON
                                                                      : ALEA_SCORED_CACHE_OFF};
        rig r = rig_open("vocab=320,context=1000", 2, 64, options);
        alea_engine_stats stats;
        alea__engine_stats_read(r.engine, &stats);
        bytes[way] = stats.memory_bytes;
        rig_close(&r);
    }
    const size_t rows = 64 * (2 * 43 + 1) * 4 + 2 * 64 * 4; /* scores, targets, greedy tokens */
    assert_in_range(bytes[1] - bytes[0], rows, rows + 512);
    const size_t stored = 2 * (1000 + 1) * 44 * 4; /* a prompt without answer may have one more */
    assert_in_range(bytes[2] - bytes[1], stored, stored + 256);
}

static void test_the_report_is_what_was_allocated(void **state) {
    (void)state;
    alea_core *core = NULL;
    const alea_core_options options = {
        .struct_bytes = sizeof options, .model = "vocab=320", .sequences = 4};
    assert_int_equal(alea_core_open(alea_core_toy(), &options, &core, NULL), ALEA_OK);
    const alea_engine_options engine_options = {.threads = 1, .no_overlap = true};
    alea_engine *engine = NULL;
    alea_error error;
    alea_capability offer;
    atomic_store(&allocated_bytes, 0);
    assert_int_equal(alea__core_capability(core, 4, 0, &offer, &error), ALEA_OK);
    const size_t reading = atomic_load(&allocated_bytes); /* the manifest's: freed at once */
    atomic_store(&allocated_bytes, 0);
    assert_int_equal(alea__engine_create(core, &engine_options, &engine, &error), ALEA_OK);
    alea_engine_stats stats;
    alea__engine_stats_read(engine, &stats);
    /* Beside the report stand only the engine's and the pool's own structs. */
    assert_in_range(atomic_load(&allocated_bytes) - reading, stats.memory_bytes,
                    stats.memory_bytes + 4096);
    alea__engine_destroy(engine);
    alea_core_close(core);
}

static void test_every_failing_allocation_is_an_error(void **state) {
    (void)state;
    alea_core *core = NULL;
    const alea_core_options options = {
        .struct_bytes = sizeof options, .model = "vocab=320", .sequences = 2};
    assert_int_equal(alea_core_open(alea_core_toy(), &options, &core, NULL), ALEA_OK);
    const alea_engine_options engine_options = {.threads = 1, .no_overlap = true};
    int32_t n = 0;
    for (;; n++) {
        alea_engine *engine = NULL;
        alea_error error = {0};
        atomic_store(&fail_at, n);
        const alea_status status = alea__engine_create(core, &engine_options, &engine, &error);
        const bool used = atomic_load(&fail_at) < 0;
        atomic_store(&fail_at, -1);
        if (!used) {
            assert_int_equal(status, ALEA_OK);
            const int32_t prompt[] = {1};
            const alea_request_params params = busy_params();
            alea_request *request = NULL;
            atomic_store(&fail_at, 0);
            assert_int_equal(alea__engine_submit(engine, prompt, 1, &params, &request, &error),
                             ALEA_ENOMEM);
            atomic_store(&fail_at, -1);
            assert_null(request);
            alea__engine_destroy(engine);
            break;
        }
        assert_int_equal(status, ALEA_ENOMEM);
        assert_null(engine);
    }
    assert_true(n >= 3);
    alea_core_close(core);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds_allocate_nothing),
        cmocka_unit_test(test_a_long_prompt_is_scored_in_bounded_memory_CORE_14),
        cmocka_unit_test(test_what_came_before_is_kept_for_penalties_alone),
        cmocka_unit_test(test_what_a_request_takes_is_told_beforehand),
        cmocka_unit_test(test_no_memory_is_taken_for_tokens_that_no_context_holds),
        cmocka_unit_test(test_scoring_twice_takes_the_same_memory_CORE_04),
        cmocka_unit_test(test_more_than_twenty_alternatives_allocate_nothing_CORE_03),
        cmocka_unit_test(test_scoring_is_paid_for_only_where_it_is_on),
        cmocka_unit_test(test_the_report_is_what_was_allocated),
        cmocka_unit_test(test_every_failing_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
