/*
 * Requests in, answers out, without a server: for the tests in Python. The argument is a JSON
 * object of options; each line of standard input is a JSON object, each line of output its result.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_parts.h"
#include "api/script_core.h"
#include "core/llama/core_llama.h"

enum { LINE_BYTES_MAX = 256 << 20, EVENTS_MAX = 1 << 20, CHOICES_MAX = 4096 };

typedef struct driver {
    alea_core *core;
    alea_engine *engine;
    alea_api *api;
    bool scripted;
    int32_t *script; /* what the core says next */
    int32_t n_script;
    alea_json_writer out;
} driver;

static void give_up(const char *what, const char *why) {
    fprintf(stderr, "drive_api: %s: %s\n", what, why);
    exit(2);
}

/* ---- options ---- */

static const char *text_option(const alea_json_value *options, const char *name,
                               const char *fallback) {
    const alea_json_value *value = alea__json_given(options, name);
    alea_bytes text;
    if (!value || alea__json_get_string(value, name, &text, NULL) < 0) return fallback;
    return (const char *)text.data; /* yyjson's strings end in NUL */
}

static int32_t int_option(const alea_json_value *options, const char *name, int32_t fallback) {
    const alea_json_value *value = alea__json_given(options, name);
    int64_t number;
    if (!value || alea__json_get_int(value, name, 0, INT32_MAX, &number, NULL) < 0) return fallback;
    return (int32_t)number;
}

static bool bool_option(const alea_json_value *options, const char *name) {
    const alea_json_value *value = alea__json_given(options, name);
    bool truth = false;
    return value && alea__json_get_bool(value, name, &truth, NULL) >= 0 && truth;
}

static alea_token_list list_option(const alea_json_value *options, const char *name) {
    const alea_json_value *list = alea__json_given(options, name);
    if (!list) return (alea_token_list){NULL, 0};
    int32_t *tokens = malloc(alea__json_size(list) * sizeof *tokens + 1);
    int32_t n = 0;
    for (alea_json_walk walk = alea__json_walk(list); alea__json_next(&walk);) {
        int64_t id;
        if (alea__json_get_int(walk.value, name, 0, INT32_MAX, &id, NULL) < 0) give_up(name, "ids");
        tokens[n++] = (int32_t)id;
    }
    return (alea_token_list){tokens, n};
}

static alea_core *open_core(const alea_json_value *options) {
    const char *model = text_option(options, "gguf", NULL);
    const int32_t slots = int_option(options, "slots", 4);
    const alea_core_options core_options = {
        .struct_bytes = sizeof core_options,
        .flags = model ? (uint32_t)ALEA_CORE_VOCAB_ONLY : 0,
        .model = model ? model : text_option(options, "toy", ""),
        .sequences = slots,
    };
    alea_error error;
    alea_core *core = NULL;
    if (alea_core_open(model ? alea__core_llama() : alea_core_toy(), &core_options, &core, &error) <
        0)
        give_up("core", error.message);
    if (!bool_option(options, "script")) return core;
    return script_core_open(core, int_option(options, "context", 4096), 1);
}

static void open_driver(driver *self, const alea_json_value *options) {
    static const char *names[] = {"toy", "alias"};
    alea_error error;
    self->scripted = bool_option(options, "script");
    self->core = open_core(options);
    const alea_engine_options engine_options = {.slots = self->scripted ? 1 : 0,
                                                .threads = 1,
                                                .queue_tokens = int_option(options, "queue", 0),
                                                .no_overlap = true,
                                                .no_prefix_cache = true,
                                                .prompt_logprobs =
                                                    !bool_option(options, "no_scoring")};
    if (alea__engine_create(self->core, &engine_options, &self->engine, &error) < 0)
        give_up("engine", error.message);
    alea_capability capability = {
        .allow_logprobs = !bool_option(options, "no_logprobs"),
        .allow_token_ids = !bool_option(options, "no_token_ids"),
        .allow_prompt_logprobs = !bool_option(options, "no_scoring"),
    };
    const alea_api_options api_options = {
        .model_names = names,
        .n_model_names = 2,
        .created_s = 1700000000,
        .capability = &capability,
        .chat_template = text_option(options, "chat_template", NULL),
        .thinking_close = list_option(options, "thinking_close"),
        .vllm_compat = bool_option(options, "vllm_compat"),
        .trust_request_chat_template = bool_option(options, "trust_chat_template"),
        .tokens_as_token_ids = bool_option(options, "tokens_as_token_ids"),
        .refuse_unknown_fields = bool_option(options, "refuse_unknown_fields"),
        .prompt_tokens_details = bool_option(options, "prompt_tokens_details"),
        .force_include_usage = bool_option(options, "force_include_usage"),
        .prompt_logprobs_off = bool_option(options, "scoring_off"),
        .prompts_max = int_option(options, "prompts_max", 0),
        .body_bytes_max = (size_t)int_option(options, "body_bytes_max", 0),
    };
    if (alea__api_create(self->core, &api_options, &self->api, &error) < 0)
        give_up("api", error.message);
    free((void *)(uintptr_t)api_options.thinking_close.tokens);
    alea__json_write_to_buffer(&self->out, ALEA_API_BODY_BYTES_MAX);
}

/* ---- answers ---- */

static void begin_line(driver *self, int status) {
    alea__json_write_reset(&self->out);
    alea__json_begin_object(&self->out);
    alea__json_key(&self->out, "status");
    alea__json_int(&self->out, status);
}

static void end_line(driver *self) {
    alea__json_end_object(&self->out);
    if (alea__json_finish(&self->out) < 0) give_up("line", "not written");
    fwrite(self->out.data, 1, self->out.length, stdout);
    fputc('\n', stdout);
    fflush(stdout);
}

static void say_body(driver *self, int status, const char *data, size_t length) {
    begin_line(self, status);
    alea__json_key(&self->out, "body");
    alea__json_string(&self->out, (alea_bytes){(const uint8_t *)data, length});
    end_line(self);
}

static void say_error(driver *self, const alea_api_error *error) {
    char body[ALEA_API_ERROR_BYTES];
    const size_t length = alea__api_error_body(error, body);
    say_body(self, error->status, body, length);
}

static void say_text(driver *self, alea_status status, alea_api_text *text,
                     const alea_api_error *error) {
    if (status < 0) {
        say_error(self, error);
        return;
    }
    say_body(self, 200, text->data, text->length);
    alea__api_text_free(text);
}

/* ---- running a job ---- */

static alea_status keep_event(void *user, alea_bytes payload) {
    driver *self = user;
    alea__json_string(&self->out, payload);
    return self->out.status;
}

/* Reads what is there of every prompt, in turn; false: all is read. */
static bool read_events(alea_api_answer *answer, alea_request **requests, int32_t n) {
    bool more = false;
    for (int32_t i = 0; i < n; i++) {
        alea_event event;
        alea_status status;
        while ((status = alea__request_next(requests[i], 0, &event)) == ALEA_OK) {
            alea_request_usage usage;
            alea__request_usage_read(requests[i], &usage);
            const alea_status taken = alea__api_answer_take(answer, i, &event, &usage);
            if (taken >= 0) continue;
            alea_api_error error = {.fault = ALEA_FAULT_NONE};
            alea__api_error_of(&error, taken, "the answer failed");
            alea__api_answer_fail(answer, &error);
        }
        more |= status != ALEA_DONE;
    }
    return more;
}

/* Three threads that write choices beside each other have to write the same bytes as one. */
static void say_answer(driver *self, alea_api_answer *answer) {
    int status = 0, status_beside = 0;
    alea_api_text body, beside;
    alea_pool *pool;
    if (alea__pool_create(3, &pool) < 0) give_up("answer", "no threads");
    if (alea__api_answer_body(answer, SIZE_MAX, NULL, &status, &body) != ALEA_OK ||
        alea__api_answer_body(answer, SIZE_MAX, pool, &status_beside, &beside) != ALEA_OK)
        give_up("answer", "no body");
    if (status != status_beside || body.length != beside.length ||
        memcmp(body.data, beside.data, body.length))
        give_up("answer", "threads wrote other bytes");
    say_body(self, status, body.data, body.length);
    alea__api_text_free(&body);
    alea__api_text_free(&beside);
    alea__pool_destroy(pool);
}

static void run_job(driver *self, const alea_api_job *job) {
    alea_request **requests = calloc((size_t)job->n_prompts, sizeof *requests);
    alea_api_answer *answer = NULL;
    alea_error error = {.status = ALEA_OK, .message = ""};
    if (self->scripted) script_core_say(self->script, self->n_script, job->prompts[0].n_tokens - 1);
    begin_line(self, 200);
    if (job->stream) {
        alea__json_key(&self->out, "events");
        alea__json_begin_array(&self->out);
    }
    if (alea__api_answer_begin(job, keep_event, self, &answer) < 0) give_up("answer", "memory");
    for (int32_t i = 0; i < job->n_prompts; i++) {
        const alea_request_params params = alea__api_job_params(job, i);
        if (alea__engine_submit(self->engine, job->prompts[i].tokens, job->prompts[i].n_tokens,
                                &params, &requests[i], &error) < 0)
            give_up("submit", error.message);
    }
    while (read_events(answer, requests, job->n_prompts))
        if (alea__engine_step(self->engine, 1) < 0) give_up("step", "failed");
    if (job->stream) {
        alea__json_end_array(&self->out);
        end_line(self);
    } else {
        say_answer(self, answer);
    }
    alea__api_answer_free(answer);
    for (int32_t i = 0; i < job->n_prompts; i++)
        alea__request_release(requests[i]);
    free(requests);
}

/* ---- commands ---- */

static alea_bytes bytes_member(const alea_json_value *line, const char *name) {
    const alea_json_value *value = alea__json_given(line, name);
    alea_bytes text = {NULL, 0};
    if (value && alea__json_get_string(value, name, &text, NULL) < 0) give_up(name, "no string");
    return text;
}

static int digit_of(uint8_t c) {
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

/* The body as text, or as hex where it is none. */
static alea_bytes body_of(const alea_json_value *line, uint8_t **memory) {
    const alea_bytes hex = bytes_member(line, "hex");
    *memory = NULL;
    if (!hex.data) return bytes_member(line, "body");
    *memory = malloc(hex.length / 2 + 1);
    for (size_t i = 0; i < hex.length / 2; i++)
        (*memory)[i] = (uint8_t)(digit_of(hex.data[2 * i]) << 4 | digit_of(hex.data[2 * i + 1]));
    return (alea_bytes){*memory, hex.length / 2};
}

static void do_post(driver *self, alea_api_endpoint endpoint, const alea_json_value *line) {
    uint8_t *memory;
    const alea_bytes body = body_of(line, &memory);
    const alea_api_context context = {.request_id = bytes_member(line, "request_id"),
                                      .priority = bytes_member(line, "priority"),
                                      .random = {1, 2},
                                      .now_s = 1700000001};
    alea_api_error error;
    alea_api_text text;
    alea_api_job *job = NULL;
    if (endpoint == ALEA_API_TOKENIZE) {
        const alea_status status = alea__api_tokenize(self->api, body, &context, &text, &error);
        say_text(self, status, &text, &error);
    } else if (endpoint == ALEA_API_DETOKENIZE) {
        const alea_status status = alea__api_detokenize(self->api, body, &text, &error);
        say_text(self, status, &text, &error);
    } else if (alea__api_job_parse(self->api, endpoint, body, &context, &job, &error) < 0) {
        say_error(self, &error);
    } else if (bool_option(line, "check_only")) {
        say_body(self, 200, "{}", 2);
        alea__api_job_free(job);
    } else {
        run_job(self, job);
        alea__api_job_free(job);
    }
    free(memory);
}

static void put_markdown(void *user, const char *text) {
    FILE *file = user;
    fputs(text, file);
}

static void do_markdown(driver *self) {
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    for (int treatment = ALEA_FIELD_HONOURED; treatment <= ALEA_FIELD_NO_EFFECT; treatment++) {
        alea__api_fields_markdown((alea_api_treatment)treatment, put_markdown, file);
        fputc('\f', file);
    }
    fclose(file);
    alea__json_write_reset(&self->out);
    alea__json_begin_object(&self->out);
    alea__json_key(&self->out, "body");
    char *pages = text;
    alea__json_begin_array(&self->out);
    for (char *page = strsep(&pages, "\f"); page && *page; page = strsep(&pages, "\f"))
        alea__json_cstring(&self->out, page);
    alea__json_end_array(&self->out);
    end_line(self);
    free(text);
}

/* The rows themselves, so that tests can derive cases from them. */
static void do_fields(driver *self) {
    alea_json_writer *out = &self->out;
    alea__json_write_reset(out);
    alea__json_begin_object(out);
    alea__json_key(out, "body");
    alea__json_begin_array(out);
    for (size_t i = 0; i < alea__api_n_fields; i++) {
        const alea_api_field *field = &alea__api_fields[i];
        alea__json_begin_object(out);
        alea__json_key(out, "name");
        alea__json_cstring(out, field->name);
        alea__json_key(out, "type");
        alea__json_int(out, field->type);
        alea__json_key(out, "at");
        alea__json_int(out, field->at);
        alea__json_key(out, "treatment");
        alea__json_int(out, field->treatment);
        alea__json_key(out, "no_null");
        alea__json_bool(out, field->no_null);
        alea__json_key(out, "required");
        alea__json_bool(out, field->required);
        alea__json_key(out, "above");
        alea__json_bool(out, field->above);
        alea__json_key(out, "min");
        alea__json_int(out, field->min);
        alea__json_key(out, "max");
        alea__json_int(out, field->max);
        alea__json_key(out, "low");
        alea__json_double(out, field->low);
        alea__json_key(out, "high");
        alea__json_double(out, field->high);
        alea__json_key(out, "words");
        alea__json_begin_array(out);
        for (const char *const *word = field->words; word && *word; word++)
            alea__json_cstring(out, *word);
        alea__json_end_array(out);
        alea__json_key(out, "fallback");
        alea__json_cstring(out, field->fallback ? field->fallback : "null");
        alea__json_end_object(out);
    }
    alea__json_end_array(out);
    end_line(self);
}

static void do_vocab(driver *self) {
    alea_core_info info;
    alea_core_describe(self->core, &info);
    alea__json_write_reset(&self->out);
    alea__json_begin_object(&self->out);
    alea__json_key(&self->out, "body");
    alea__json_begin_array(&self->out);
    for (int32_t token = 0; token < info.vocab; token++) {
        alea_token_info about;
        if (alea_core_token(self->core, token, &about) < 0) give_up("vocab", "a token");
        alea__json_begin_array(&self->out);
        alea__json_byte_array(&self->out, about.bytes);
        alea__json_byte_array(&self->out, about.name);
        alea__json_uint(&self->out, about.flags);
        alea__json_end_array(&self->out);
    }
    alea__json_end_array(&self->out);
    end_line(self);
}

static void do_get(driver *self, const char *what, const alea_json_value *line) {
    alea_api_text text;
    alea_api_error error = {.fault = ALEA_FAULT_NONE};
    alea_status status = ALEA_EINVAL;
    if (!strcmp(what, "models")) status = alea__api_models(self->api, &text);
    if (!strcmp(what, "version")) status = alea__api_version(&text);
    if (!strcmp(what, "openapi")) status = alea__api_openapi(&text);
    if (!strcmp(what, "tokenizer_info")) status = alea__api_tokenizer_info(self->api, &text);
    if (!strcmp(what, "model"))
        status = alea__api_model(self->api, bytes_member(line, "name"), &text, &error);
    if (status < 0 && error.fault == ALEA_FAULT_NONE) give_up(what, "unknown command");
    say_text(self, status, &text, &error);
}

static void obey(driver *self, const alea_json_value *line) {
    static const char *const posts[] = {"completions", "chat", "tokenize", "detokenize", "score"};
    const char *what = text_option(line, "do", "");
    for (unsigned i = 0; i < sizeof posts / sizeof *posts; i++) {
        if (strcmp(what, posts[i])) continue;
        do_post(self, (alea_api_endpoint)(1u << i), line);
        return;
    }
    if (!strcmp(what, "script")) {
        const alea_token_list said = list_option(line, "tokens");
        free(self->script);
        self->script = (int32_t *)(uintptr_t)said.tokens;
        self->n_script = said.count;
        say_body(self, 200, "", 0);
    } else if (!strcmp(what, "markdown")) {
        do_markdown(self);
    } else if (!strcmp(what, "fields")) {
        do_fields(self);
    } else if (!strcmp(what, "vocab")) {
        do_vocab(self);
    } else {
        do_get(self, what, line);
    }
}

int main(int argc, char **argv) {
    driver self = {.scripted = false};
    alea_json_document *document = NULL;
    alea_error error;
    if (argc != 2 ||
        alea__json_parse(alea__api_bytes(argv[1]), LINE_BYTES_MAX, &document, &error) < 0)
        give_up("options", "one JSON object");
    open_driver(&self, alea__json_root(document));
    alea__json_free(document);
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    while ((length = getline(&line, &capacity, stdin)) > 0) {
        const alea_bytes text = {(const uint8_t *)line, (size_t)length};
        if (alea__json_parse(text, LINE_BYTES_MAX, &document, &error) < 0)
            give_up("line", error.message);
        obey(&self, alea__json_root(document));
        alea__json_free(document);
    }
    free(line);
    free(self.script);
    alea__json_write_free(&self.out);
    alea__api_destroy(self.api);
    alea__engine_destroy(self.engine);
    alea_core_close(self.core);
    return 0;
}
