/*
 * libFuzzer target: a body is refused with an error that is JSON, or it is a job; a job that is
 * small enough is run on the toy core, and its whole body and every payload of its stream are JSON.
 *
 * The first byte chooses the endpoint and what the server allows; the rest is the body.
 */
#include <stdlib.h>
#include <string.h>

#include "api/api_parts.h"

enum { WORK_MAX = 64, ANSWER_BYTES_MAX = 1 << 26 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct service {
    alea_core *core;
    alea_engine *engine;
    alea_api *plain, *trusting;
} service;

static void check(bool holds) {
    if (!holds) __builtin_trap();
}

static service *open_service(void) {
    static service self;
    if (self.core) return &self;
    const alea_core_options core = {
        .struct_bytes = sizeof core, .model = "text=1,context=256", .sequences = 2};
    const alea_engine_options engine = {.threads = 1, .no_overlap = true, .prompt_logprobs = true};
    const char *name = "toy";
    const alea_api_options plain = {
        .model_names = &name, .n_model_names = 1, .refuse_unknown_fields = true};
    const alea_api_options trusting = {.model_names = &name,
                                       .n_model_names = 1,
                                       .trust_request_chat_template = true,
                                       .prompt_tokens_details = true};
    check(alea_core_open(alea_core_toy(), &core, &self.core, NULL) >= 0);
    check(alea__engine_create(self.core, &engine, &self.engine, NULL) >= 0);
    check(alea__api_create(self.core, &plain, &self.plain, NULL) >= 0);
    check(alea__api_create(self.core, &trusting, &self.trusting, NULL) >= 0);
    return &self;
}

static void check_json(const char *data, size_t length) {
    alea_json_document *document = NULL;
    const alea_bytes text = {(const uint8_t *)data, length};
    check(alea__json_parse(text, ANSWER_BYTES_MAX, &document, NULL) == ALEA_OK);
    alea__json_free(document);
}

static void check_error(const alea_api_error *error) {
    char body[ALEA_API_ERROR_BYTES];
    check(error->fault != ALEA_FAULT_NONE && error->message[0] && error->status >= 400);
    check_json(body, alea__api_error_body(error, body));
}

static alea_status check_payload(void *user, alea_bytes payload) {
    bool *done = user;
    check(!*done);
    *done = payload.length == 6 && !memcmp(payload.data, "[DONE]", 6);
    if (!*done) check_json((const char *)payload.data, payload.length);
    return ALEA_OK;
}

static void run(service *self, const alea_api_job *job, int32_t prompt, alea_api_answer *answer) {
    const alea_request_params params = alea__api_job_params(job, prompt);
    alea_request *request = NULL;
    alea_error error;
    if (alea__engine_submit(self->engine, job->prompts[prompt].tokens,
                            job->prompts[prompt].n_tokens, &params, &request, &error) < 0) {
        alea_api_error fault = {.fault = ALEA_FAULT_NONE};
        alea__api_error_of(&fault, error.status, error.message);
        alea__api_answer_fail(answer, &fault);
        return;
    }
    for (;;) {
        alea_event event;
        const alea_status status = alea__request_next(request, 0, &event);
        if (status == ALEA_DONE) break;
        if (status == ALEA_MORE) {
            check(alea__engine_step(self->engine, 1) >= 0);
            continue;
        }
        alea_request_usage usage;
        alea__request_usage_read(request, &usage);
        check(alea__api_answer_take(answer, prompt, &event, &usage) >= 0);
    }
    alea__request_release(request);
}

static bool is_small(const alea_api_job *job) {
    int64_t work = 0;
    for (int32_t i = 0; i < job->n_prompts && work <= WORK_MAX; i++)
        work += (int64_t)job->prompts[i].max_tokens * job->params.choices +
                (job->document_tokens > 0 ? job->prompts[i].n_tokens / 16 : 0);
    return work <= WORK_MAX;
}

static void run_job(service *self, const alea_api_job *job) {
    bool done = false;
    alea_api_answer *answer = NULL;
    check(alea__api_answer_begin(job, check_payload, &done, &answer) >= 0);
    for (int32_t i = 0; i < job->n_prompts; i++)
        run(self, job, i, answer);
    int status;
    alea_api_text body;
    if (job->stream) {
        check(done);
    } else {
        check(alea__api_answer_body(answer, SIZE_MAX, NULL, &status, &body) == ALEA_OK);
        check_json(body.data, body.length);
        alea__api_text_free(&body);
    }
    alea__api_answer_free(answer);
}

static alea_api_endpoint endpoint_of(uint8_t choice) {
    if (choice & 8) return ALEA_API_SCORE;
    return choice & 1 ? ALEA_API_CHAT : ALEA_API_COMPLETIONS;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    service *self = open_service();
    const alea_api *api = data[0] & 4 ? self->trusting : self->plain;
    const alea_bytes body = {data + 1, size - 1};
    const alea_api_context context = {.now_s = 1700000000};
    alea_api_error error;
    alea_api_text text = {NULL, 0};
    alea_api_job *job = NULL;
    alea_status status;
    switch (data[0] & 3) {
    case 0:
    case 1:
        status = alea__api_job_parse(api, endpoint_of(data[0]), body, &context, &job, &error);
        if (status >= 0 && is_small(job)) run_job(self, job);
        break;
    case 2: status = alea__api_tokenize(api, body, &context, &text, &error); break;
    default: status = alea__api_detokenize(api, body, &text, &error); break;
    }
    if (status < 0) check_error(&error);
    if (text.data) check_json(text.data, text.length);
    alea__api_text_free(&text);
    alea__api_job_free(job);
    return 0;
}
