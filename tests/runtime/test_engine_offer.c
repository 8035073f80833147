/* What an engine takes on: what its core offers, and as many requests as its queue holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "runtime/engine_rig.h"

static alea_bytes declared;

static alea_bytes declare(const alea_core *core) {
    (void)core;
    return declared;
}

/* A toy core with a manifest of `alternatives` alternatives and, asked so, id inputs. */
static rig open_declaring(int32_t alternatives, bool token_ids, alea_engine_options options) {
    static alea_core_api api;
    api = *alea_core_toy();
    api.manifest = declare;
    rig r = {0};
    alea_error error = {0};
    const alea_core_options core = {.struct_bytes = sizeof core, .model = "vocab=300"};
    declared = (alea_bytes){NULL, 0};
    assert_int_equal(alea_core_open(&api, &core, &r.core, &error), ALEA_OK);
    alea_core_info info;
    alea_core_describe(r.core, &info);
    const alea_completion_layout layout = {
        .capacity = 1, .tokens = 8, .alternatives = alternatives, .token_ids = token_ids};
    if (alea__manifest_build(&info, &layout, &declared, &error) < 0) fail_msg("%s", error.message);
    if (alea__engine_create(r.core, &options, &r.engine, &error) < 0) fail_msg("%s", error.message);
    return r;
}

static void close_declaring(rig *r) {
    rig_close(r);
    free((void *)(uintptr_t)declared.data);
}

static void assert_refused(rig *r, const alea_request_params *params, const char *words) {
    const int32_t prompt = 1;
    alea_request *request = NULL;
    alea_error error = {0};
    assert_int_equal(alea__engine_submit(r->engine, &prompt, 1, params, &request, &error),
                     ALEA_EUNSUPPORTED);
    assert_null(request);
    assert_string_equal(error.message, words);
}

static void assert_served(rig *r, const alea_request_params *params) {
    static rig_choice choice;
    memset(&choice, 0, sizeof choice);
    const int32_t prompt = 1;
    rig_run(r, &prompt, 1, params, &choice);
    assert_in_range(choice.n, 1, params->max_tokens);
}

static void test_a_core_without_logprobs_serves_and_refuses_them(void **state) {
    (void)state;
    rig r = open_declaring(0, false, (alea_engine_options){.threads = 1});
    assert_false(alea__engine_capability(r.engine)->allow_logprobs);
    alea_request_params params = alea__params_default();
    assert_served(&r, &params);
    params.top = 0;
    assert_refused(&r, &params, "this core offers no logprobs");
    params.top = -1;
    params.want_entropy = true;
    assert_refused(&r, &params, "this core offers no logprobs");
    close_declaring(&r);
}

static void test_a_core_with_few_alternatives_refuses_more_and_ids(void **state) {
    (void)state;
    rig r = open_declaring(5, false, (alea_engine_options){.threads = 1, .prompt_logprobs = true});
    alea_request_params params = alea__params_default();
    params.top = 5;
    assert_served(&r, &params);
    params.top = 6;
    assert_refused(&r, &params, "logprobs is 6: this core offers 0..5");
    params.top = 1;
    const int32_t id = 7;
    params.selected = (alea_token_list){&id, 1};
    assert_refused(&r, &params, "this core offers no logprob_token_ids");
    params.selected.count = 0;
    params.prompt_top = 0;
    assert_refused(&r, &params, "this core offers no prompt logprobs");
    close_declaring(&r);
}

static void test_prompt_scores_are_off_unless_the_engine_has_them(void **state) {
    (void)state;
    rig r = rig_open("vocab=300", 1, 64, (alea_engine_options){.threads = 1});
    assert_true(alea__engine_capability(r.engine)->allow_logprobs);
    assert_true(alea__engine_capability(r.engine)->allow_token_ids);
    assert_false(alea__engine_capability(r.engine)->allow_prompt_logprobs);
    alea_request_params params = alea__params_default();
    params.prompt_top = 0;
    assert_refused(&r, &params, "prompt logprobs are off: --prompt-logprobs=on allows them");
    rig_close(&r);
}

static void test_a_malformed_manifest_makes_no_engine(void **state) {
    (void)state;
    static alea_core_api api;
    api = *alea_core_toy();
    api.manifest = declare;
    declared = (alea_bytes){(const uint8_t *)"\xff\xff", 2};
    const alea_core_options options = {.struct_bytes = sizeof options, .model = ""};
    alea_core *core = NULL;
    alea_engine *engine = NULL;
    alea_error error = {0};
    assert_int_equal(alea_core_open(&api, &options, &core, &error), ALEA_OK);
    const alea_engine_options plain = {.threads = 1};
    assert_int_equal(alea__engine_create(core, &plain, &engine, &error), ALEA_EFORMAT);
    assert_null(engine);
    alea_core_close(core);
}

static int32_t waiting(const rig *r) {
    alea_engine_stats stats;
    alea__engine_stats_read(r->engine, &stats);
    return stats.waiting;
}

/* Requests that run wait for nothing: the bound is on those that have yet to begin. */
static void test_the_queue_counts_requests_that_have_not_begun(void **state) {
    (void)state;
    rig r = rig_open("vocab=300,peak=30", 2, 64,
                     (alea_engine_options){.threads = 1, .queue_requests = 3});
    alea_request_params params = alea__params_default();
    params.max_tokens = 8;
    params.ignore_end = true;
    params.choices = 2;
    const int32_t prompt = 1;
    alea_error error = {0};
    alea_request *requests[4];
    for (int32_t i = 0; i < 3; i++)
        requests[i] = rig_submit(&r, &prompt, 1, &params);
    assert_int_equal(alea__engine_submit(r.engine, &prompt, 1, &params, &requests[3], &error),
                     ALEA_ELIMIT);
    assert_true(alea__engine_step(r.engine, 1) >= 0); /* the first choices of two begin */
    assert_int_equal(waiting(&r), 1);
    requests[3] = rig_submit(&r, &prompt, 1, &params);
    alea_request *cancelled = rig_submit(&r, &prompt, 1, &params);
    alea__request_cancel(cancelled); /* and leaves the queue without a slot */
    assert_true(alea__engine_step(r.engine, 1) >= 0);
    assert_int_equal(waiting(&r), 2);
    static rig_choice choices[2];
    for (int32_t i = 0; i < 4; i++) {
        memset(choices, 0, sizeof choices);
        rig_finish(&r, requests[i], choices);
        assert_int_equal(choices[1].n, 8);
    }
    rig_finish(&r, cancelled, choices);
    assert_int_equal(waiting(&r), 0);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_core_without_logprobs_serves_and_refuses_them),
        cmocka_unit_test(test_a_core_with_few_alternatives_refuses_more_and_ids),
        cmocka_unit_test(test_prompt_scores_are_off_unless_the_engine_has_them),
        cmocka_unit_test(test_a_malformed_manifest_makes_no_engine),
        cmocka_unit_test(test_the_queue_counts_requests_that_have_not_begun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
