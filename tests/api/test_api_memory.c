/*
 * Every allocation of a request fails once: it is refused or fails as a whole, says why in the
 * shape of an error, and gives back what it took. What the sanitizers watch is the other half.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "api/answer.h"

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

static int countdown = -1; /* allocations until one fails; negative: none does */

static bool fails(void) {
    return countdown >= 0 && countdown-- == 0;
}

void *__wrap_malloc(size_t bytes) {
    return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes) {
    return fails() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes) {
    return fails() ? NULL : __real_realloc(memory, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    return fails() ? NULL : __real_aligned_alloc(alignment, bytes);
}

typedef struct fixture {
    alea_core *core;
    alea_api *api;
} fixture;

static const char *const names[] = {"toy"};

static int open_fixture(void **state) {
    static fixture f;
    const alea_core_options options = {.struct_bytes = sizeof options, .model = ""};
    const alea_api_options served = {
        .model_names = names, .n_model_names = 1, .trust_request_chat_template = true};
    alea_error error;
    if (alea_core_open(alea_core_toy(), &options, &f.core, &error) < 0) return -1;
    if (alea__api_create(f.core, &served, &f.api, &error) < 0) return -1;
    *state = &f;
    return 0;
}

static int close_fixture(void **state) {
    const fixture *f = *state;
    alea__api_destroy(f->api);
    alea_core_close(f->core);
    return 0;
}

static void check_error(const alea_api_error *error) {
    char body[ALEA_API_ERROR_BYTES];
    alea_json_document *document = NULL;
    const size_t length = alea__api_error_body(error, body);
    const alea_bytes text = {(const uint8_t *)body, length};
    assert_int_equal(alea__json_parse(text, length, &document, NULL), ALEA_OK);
    alea__json_free(document);
}

static alea_status ignore(void *user, alea_bytes payload) {
    size_t *n = user;
    *n += payload.length;
    return ALEA_OK;
}

/* 40 tokens with alternatives, then the end. */
static alea_status feed(alea_api_answer *answer) {
    alea_alternative others[2] = {{101, -1.0f}, {0xF0, -2.0f}};
    alea_status status = ALEA_OK;
    for (int32_t i = 0; i < 40 && status >= 0; i++) {
        const alea_event event = {.kind = ALEA_EVENT_TOKEN,
                                  .index = i,
                                  .token = i % 3 == 0 ? 0xF0 : 101,
                                  .visible_bytes = 1,
                                  .has_entry = true,
                                  .logprob = -0.5f,
                                  .n_alternatives = 2,
                                  .alternatives = others};
        status = alea__api_answer_take(answer, 0, &event, NULL);
    }
    const alea_request_usage usage = {.prompt_tokens = 1};
    const alea_event end = {
        .kind = ALEA_EVENT_FINISH, .finish = ALEA_FINISH_LENGTH, .output_tokens = 40};
    return status < 0 ? status : alea__api_answer_take(answer, 0, &end, &usage);
}

static void answer_job(const alea_api_job *job) {
    size_t n = 0;
    int http = 0;
    alea_api_text body = {NULL, 0};
    alea_api_answer *answer = NULL;
    if (alea__api_answer_begin(job, ignore, &n, &answer) < 0) return;
    const alea_status status = feed(answer);
    if (status < 0) {
        alea_api_error error = {.fault = ALEA_FAULT_NONE};
        alea__api_error_of(&error, status, NULL);
        assert_int_equal(error.status, 503);
        alea__api_answer_fail(answer, &error);
    } else {
        assert_int_equal(status, ALEA_DONE);
    }
    if (!job->stream) {
        const alea_status written = alea__api_answer_body(answer, SIZE_MAX, NULL, &http, &body);
        assert_true(written == ALEA_OK ? http == 200 || http == 503 : written == ALEA_ENOMEM);
        alea__api_text_free(&body);
    }
    alea__api_answer_free(answer);
}

/* One request with the allocation number `at` failing; false: there were not so many. */
static bool run_once(const fixture *f, alea_api_endpoint endpoint, const char *text, int at) {
    const alea_api_context context = {.now_s = 1};
    alea_api_error error;
    alea_api_job *job = NULL;
    countdown = at;
    const alea_status status =
        alea__api_job_parse(f->api, endpoint, alea__api_bytes(text), &context, &job, &error);
    if (status < 0)
        check_error(&error);
    else
        answer_job(job);
    const bool failed = countdown < 0;
    countdown = -1;
    if (status < 0 && !failed) fail_msg("%s", error.message);
    alea__api_job_free(job);
    return failed;
}

static void run_all(const fixture *f, alea_api_endpoint endpoint, const char *text, int least) {
    int at = 0;
    while (run_once(f, endpoint, text, at))
        at++;
    assert_true(at >= least);
}

static void test_a_completion_survives_any_lack_of_memory(void **state) {
    run_all(*state, ALEA_API_COMPLETIONS,
            "{\"prompt\":[\"ab\"],\"stop\":[\"x\",\"y\"],\"bad_words\":[\"q\"],"
            "\"logit_bias\":{\"5\":1},\"allowed_token_ids\":[101,240],\"stop_token_ids\":[7],"
            "\"logprobs\":2,\"return_token_ids\":true,\"vllm_compat\":true,\"seed\":1}",
            10);
    run_all(*state, ALEA_API_COMPLETIONS,
            "{\"prompt\":[1,2],\"logprobs\":2,\"return_token_ids\":true,\"stream\":true}", 8);
}

static void test_a_chat_survives_any_lack_of_memory(void **state) {
    run_all(*state, ALEA_API_CHAT,
            "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]},"
            "{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":\"{}\"}}]}],"
            "\"logprobs\":true,\"top_logprobs\":2,\"return_prompt_text\":true,\"stream\":true}",
            10);
    run_all(*state, ALEA_API_CHAT,
            "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"logprobs\":true,"
            "\"chat_template\":\"{{ messages[0].content }}\",\"continue_final_message\":true,"
            "\"add_generation_prompt\":false}",
            10);
}

static void test_a_score_is_read_with_any_lack_of_memory(void **state) {
    static const char *const bodies[] = {
        "{\"prompt\":\"hello\",\"continuations\":[\" world\",\" of\"]}",
        "{\"prompt\":\"hello world\",\"window\":4,\"stride\":2}",
        "{\"prompt\":[1,2,3,4,5,6,7],\"window\":2}"};
    const fixture *f = *state;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        const alea_api_context context = {.now_s = 1};
        bool read = false;
        for (int at = 0; !read; at++) {
            alea_api_error error;
            alea_api_job *job = NULL;
            countdown = at;
            const alea_status status = alea__api_job_parse(
                f->api, ALEA_API_SCORE, alea__api_bytes(bodies[i]), &context, &job, &error);
            read = countdown >= 0;
            countdown = -1;
            if (status < 0) check_error(&error);
            assert_true(status >= 0 || !read);
            alea__api_job_free(job);
        }
    }
}

static void take_token(alea_api_answer *answer, int32_t prompt, int32_t choice) {
    const alea_event event = {.kind = ALEA_EVENT_TOKEN,
                              .choice = choice,
                              .token = 101,
                              .visible_bytes = 1,
                              .has_entry = true,
                              .logprob = -0.5f};
    assert_int_equal(alea__api_answer_take(answer, prompt, &event, NULL), ALEA_OK);
}

static alea_status take_end(alea_api_answer *answer, int32_t prompt, int32_t choice) {
    const alea_request_usage usage = {.prompt_tokens = 1};
    const alea_event end = {.kind = ALEA_EVENT_FINISH,
                            .choice = choice,
                            .finish = ALEA_FINISH_LENGTH,
                            .output_tokens = 1};
    return alea__api_answer_take(answer, prompt, &end, &usage);
}

/* 50 prompts of 100 choices: they hold nothing before their turn, and in a stream nothing after
 * it; the count says so. */
static void test_choices_are_held_from_their_first_event_on(void **state) {
    const fixture *f = *state;
    for (int streams = 0; streams < 2; streams++) {
        char text[1024] = "{\"prompt\":[[1]";
        for (int i = 1; i < 50; i++)
            strcat(text, ",[1]");
        strcat(text, "],\"n\":100,\"logprobs\":0");
        strcat(text, streams ? ",\"stream\":true}" : "}");
        const alea_api_context context = {.now_s = 1};
        alea_api_error error;
        alea_api_job *job = NULL;
        alea_api_answer *answer = NULL;
        size_t n = 0;
        assert_int_equal(alea__api_job_parse(f->api, ALEA_API_COMPLETIONS, alea__api_bytes(text),
                                             &context, &job, &error),
                         ALEA_OK);
        assert_in_range(alea__api_job_bytes(job), 50 * sizeof(alea_api_prompt), 32 << 10);
        assert_int_equal(alea__api_answer_begin(job, ignore, &n, &answer), ALEA_OK);
        const size_t start = alea__api_answer_bytes(answer);
        assert_in_range(start, 1, 4096);
        size_t most = 0;
        alea_status status = ALEA_OK;
        for (int32_t prompt = 0; prompt < 50; prompt++) {
            for (int32_t choice = 0; choice < 100; choice++)
                take_token(answer, prompt, choice);
            if (alea__api_answer_bytes(answer) > most) most = alea__api_answer_bytes(answer);
            for (int32_t choice = 99; choice >= 0; choice--)
                status = take_end(answer, prompt, choice);
            assert_int_equal(status, prompt == 49 ? ALEA_DONE : ALEA_OK);
        }
        const size_t end = alea__api_answer_bytes(answer);
        if (streams) {
            assert_in_range(end, start, start + 4096); /* the writer's buffer */
            assert_in_range(most, 100 * sizeof(alea_api_choice), 300 << 10);
        } else {
            assert_in_range(end, 5000 * sizeof(alea_api_choice), 50 * (300 << 10));
        }
        alea__api_answer_free(answer);
        alea__api_job_free(job);
    }
}

/* An answer beyond its bound is an error, and no part of it is given. */
static void test_an_answer_keeps_its_bound(void **state) {
    const fixture *f = *state;
    const alea_api_context context = {.now_s = 1};
    alea_api_error error;
    alea_api_job *job = NULL;
    alea_api_answer *answer = NULL;
    size_t n = 0;
    assert_int_equal(alea__api_job_parse(f->api, ALEA_API_COMPLETIONS,
                                         alea__api_bytes("{\"prompt\":[1],\"logprobs\":2}"),
                                         &context, &job, &error),
                     ALEA_OK);
    for (int wide = 0; wide < 2; wide++) {
        int http = 0;
        alea_api_text body = {NULL, 0};
        assert_int_equal(alea__api_answer_begin(job, ignore, &n, &answer), ALEA_OK);
        assert_int_equal(feed(answer), ALEA_DONE);
        assert_int_equal(alea__api_answer_body(answer, wide ? SIZE_MAX : 1000, NULL, &http, &body),
                         ALEA_OK);
        assert_int_equal(http, wide ? 200 : 500);
        assert_int_equal(body.length > 1000, wide);
        alea__api_text_free(&body);
        alea__api_answer_free(answer);
    }
    alea__api_job_free(job);
}

/* Three choices, of which one has most of the tokens. */
static alea_api_answer *uneven_answer(const alea_api_job *job, size_t *n) {
    alea_api_answer *answer = NULL;
    alea_status status = ALEA_OK;
    assert_int_equal(alea__api_answer_begin(job, ignore, n, &answer), ALEA_OK);
    for (int32_t prompt = 0; prompt < 3; prompt++) {
        for (int32_t i = 0; i < (prompt == 1 ? 200 : 2); i++)
            take_token(answer, prompt, 0);
        status = take_end(answer, prompt, 0);
    }
    assert_int_equal(status, ALEA_DONE);
    return answer;
}

/* One bound is for all of them. Whichever allocation fails, by one thread or by two the body has
 * the same bytes, or there is none. */
static void test_choices_are_written_beside_each_other_or_by_one(void **state) {
    const fixture *f = *state;
    const alea_api_context context = {.now_s = 1};
    alea_api_error error;
    alea_api_job *job = NULL;
    alea_pool *pools[2];
    size_t n = 0;
    assert_int_equal(alea__pool_create(1, &pools[0]), ALEA_OK);
    assert_int_equal(alea__pool_create(2, &pools[1]), ALEA_OK);
    assert_int_equal(alea__api_job_parse(f->api, ALEA_API_COMPLETIONS,
                                         alea__api_bytes("{\"prompt\":[[1],[2],[3]],"
                                                         "\"logprobs\":2}"),
                                         &context, &job, &error),
                     ALEA_OK);
    alea_api_answer *answer = uneven_answer(job, &n);
    int http = 0;
    alea_api_text alone, body;
    assert_int_equal(alea__api_answer_body(answer, SIZE_MAX, NULL, &http, &alone), ALEA_OK);

    for (int at = 0, failed = 1; failed; at++) {
        countdown = at;
        const alea_status status = alea__api_answer_body(answer, SIZE_MAX, pools[0], &http, &body);
        failed = countdown < 0;
        countdown = -1;
        assert_true(status == ALEA_OK ? http == 200 || http == 503 : status == ALEA_ENOMEM);
        if (status == ALEA_OK && http == 200) {
            assert_int_equal(body.length, alone.length);
            assert_memory_equal(body.data, alone.data, alone.length);
        }
        if (status == ALEA_OK) alea__api_text_free(&body);
        alea__api_answer_free(answer); /* one that has failed stays so */
        answer = uneven_answer(job, &n);
    }
    for (int i = 0; i < 2; i++) {
        alea__json_write_reset(&answer->writer);
        alea__json_begin_array(&answer->writer);
        answer->writer.bytes_max = alone.length;
        assert_true(alea__api_write_beside(answer, pools[i]));
        alea__json_end_array(&answer->writer);
        assert_int_equal(alea__json_finish(&answer->writer), ALEA_OK);
        answer->writer.bytes_max = alone.length / 2;
        assert_false(alea__api_write_beside(answer, pools[i]));
        alea__pool_destroy(pools[i]);
    }
    alea__api_text_free(&alone);
    alea__api_answer_free(answer);
    alea__api_job_free(job);
}

static bool body_once(const fixture *f, const char *text, int at) {
    const alea_api_context context = {.now_s = 1};
    alea_api_error error;
    alea_api_text body = {NULL, 0};
    countdown = at;
    const alea_status status =
        alea__api_tokenize(f->api, alea__api_bytes(text), &context, &body, &error);
    const bool failed = countdown < 0;
    countdown = -1;
    if (status < 0) {
        assert_int_equal(error.status, 503);
        check_error(&error);
    }
    assert_true(status >= 0 || failed);
    alea__api_text_free(&body);
    return failed;
}

static void test_small_bodies_survive_any_lack_of_memory(void **state) {
    int at = 0;
    while (body_once(*state, "{\"prompt\":\"hello\",\"return_token_strs\":true}", at))
        at++;
    assert_true(at >= 4);
}

static void test_opening_gives_everything_back(void **state) {
    const fixture *f = *state;
    const alea_api_options served = {.model_names = names, .n_model_names = 1};
    bool opened = false;
    for (int at = 0; !opened; at++) {
        alea_api *api = NULL;
        alea_error error;
        countdown = at;
        const alea_status status = alea__api_create(f->core, &served, &api, &error);
        const bool failed = countdown < 0;
        countdown = -1;
        opened = !failed;
        assert_true(failed || status >= 0);
        alea__api_destroy(api);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_completion_survives_any_lack_of_memory),
        cmocka_unit_test(test_a_chat_survives_any_lack_of_memory),
        cmocka_unit_test(test_a_score_is_read_with_any_lack_of_memory),
        cmocka_unit_test(test_choices_are_held_from_their_first_event_on),
        cmocka_unit_test(test_an_answer_keeps_its_bound),
        cmocka_unit_test(test_choices_are_written_beside_each_other_or_by_one),
        cmocka_unit_test(test_small_bodies_survive_any_lack_of_memory),
        cmocka_unit_test(test_opening_gives_everything_back),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
