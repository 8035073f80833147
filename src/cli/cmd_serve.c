/* `alea serve`: settings to the server's options, and what a person sees of it on stdout. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/input.h"
#include "cli/session.h"
#include "server/server.h"

#define NAME_BYTES 256

typedef struct serve_command {
    const alea_settings *settings;
    alea_session session;
    alea_exit open_code; /* has been complained about */
    char name[NAME_BYTES];
    char *chat_template; /* NULL: the model's own */
} serve_command;

/* ---- what the server calls ---- */

static alea_status open_model(void *user, alea_core **core, alea_error *error) {
    serve_command *self = user;
    const alea_settings *settings = self->settings;
    self->open_code =
        alea__session_open(settings, settings->model, 0, (int32_t)settings->slots, &self->session);
    if (self->open_code != ALEA_EXIT_OK)
        return alea_error_set(error, ALEA_ECORE, "the model cannot be opened");
    *core = self->session.core;
    return ALEA_OK;
}

static void close_model(void *user) {
    serve_command *self = user;
    alea__session_close(&self->session);
}

static void give_up(void *user) {
    (void)user;
    alea__interrupted = 1;
}

/* Nothing is lost where stdout is closed or full. */
static void show(const char *text) {
    if (fputs(text, stdout) >= 0) (void)fflush(stdout);
}

static bool is_unix(const char *address) {
    return strncmp(address, "unix:", 5) == 0;
}

static void on_listening(void *user, const char *address) {
    const serve_command *self = user;
    char line[400];
    const char *beside = is_unix(address) ? NULL : self->settings->unix_path;
    snprintf(line, sizeof line, "listening on %s%s%s\n", address, beside ? " and unix:" : "",
             beside ? beside : "");
    show(line);
}

static alea_scored_cache cache_of(const char *word) {
    if (strcmp(word, "on") == 0) return ALEA_SCORED_CACHE_ON;
    return strcmp(word, "off") == 0 ? ALEA_SCORED_CACHE_OFF : ALEA_SCORED_CACHE_AUTO;
}

/* What of scoring is on: it takes memory, and clients rely on it. */
static const char *scoring_words(const serve_command *self, const alea_capability *capability) {
    if (!capability->allow_prompt_logprobs) return "prompt logprobs off";
    const bool cache = self->session.info.batch_invariant &&
                       cache_of(self->settings->scored_cache) != ALEA_SCORED_CACHE_OFF;
    return cache ? "prompt logprobs on, scored cache on" : "prompt logprobs on, scored cache off";
}

static void on_ready(void *user, const char *address, const alea_capability *capability) {
    const serve_command *self = user;
    char text[1280];
    const bool local = is_unix(address);
    snprintf(text, sizeof text,
             "serving %s: %s\n\n"
             "  curl %s%s%s/v1/completions -H 'Content-Type: application/json' \\\n%s"
             "    -d '{\"prompt\":\"The capital of France is\",\"max_tokens\":8,"
             "\"temperature\":0,\"logprobs\":2}'\n\n"
             "answers\n\n"
             "  {\"id\":\"cmpl-…\",\"object\":\"text_completion\",…,\"choices\":[{\"index\":0,"
             "\"text\":\"…\",\n"
             "    \"logprobs\":{\"tokens\":[…],\"token_logprobs\":[…],\"top_logprobs\":[…],…},\n"
             "    \"finish_reason\":\"…\",…}],\"usage\":{\"prompt_tokens\":…}}\n\n",
             self->name, scoring_words(self, capability), local ? "--unix-socket " : "",
             local ? address + 5 : address, local ? " http://localhost" : "",
             self->settings->api_key_file ? "    -H 'Authorization: Bearer KEY' \\\n" : "");
    if (!self->settings->quiet) show(text);
}

/* ---- settings to options ---- */

/* "/models/Name.Q4.gguf" is "Name.Q4", "toy:…" is "toy". */
static void name_model(const char *model, char *name) {
    const char *slash = strrchr(model, '/');
    const char *start = strncmp(model, "toy:", 4) == 0 ? "toy" : slash ? slash + 1 : model;
    size_t length = strlen(start);
    if (length > 5 && strcmp(start + length - 5, ".gguf") == 0) length -= 5;
    snprintf(name, NAME_BYTES, "%.*s", (int)(length < NAME_BYTES ? length : NAME_BYTES - 1), start);
}

static alea_log_level level_of(const char *word) {
    if (strcmp(word, "error") == 0) return ALEA_LOG_ERROR;
    if (strcmp(word, "warning") == 0) return ALEA_LOG_WARNING;
    return strcmp(word, "debug") == 0 ? ALEA_LOG_DEBUG : ALEA_LOG_INFO;
}

static bool scores_prompts(const alea_settings *settings) {
    return strcmp(settings->prompt_logprobs, "on") == 0;
}

static alea_server_options options_of(serve_command *self, const char *const *names,
                                      int32_t n_names) {
    const alea_settings *settings = self->settings;
    return (alea_server_options){
        .http = {.host = settings->host,
                 .port = (int32_t)settings->port,
                 .unix_path = settings->unix_path,
                 .cors_origin =
                     strcmp(settings->cors_origin, "none") == 0 ? NULL : settings->cors_origin,
                 .connections = (int32_t)settings->max_connections},
        .api = {.model_names = names,
                .n_model_names = n_names,
                .chat_template = self->chat_template,
                .created_s = time(NULL),
                .vllm_compat = settings->vllm_compat,
                .trust_request_chat_template = settings->trust_request_chat_template,
                .tokens_as_token_ids = settings->tokens_as_token_ids,
                .refuse_unknown_fields = settings->refuse_unknown_fields,
                .prompt_tokens_details = settings->prompt_tokens_details,
                .prompt_logprobs_off = !scores_prompts(settings)},
        .engine = {.slots = (int32_t)settings->slots,
                   .threads = (int32_t)settings->threads,
                   .prompt_logprobs = scores_prompts(settings),
                   .scored_cache = cache_of(settings->scored_cache)},
        .api_key_file = settings->api_key_file,
        .max_queue = (int32_t)settings->max_queue,
        .request_bytes = (size_t)settings->request_mib << 20,
        .drain_ms = (int32_t)settings->drain_seconds * 1000,
        .open = open_model,
        .give_up = give_up,
        .close = close_model,
        .listening = on_listening,
        .ready = on_ready,
        .user = self,
    };
}

static alea_exit read_template(serve_command *self) {
    const char *path = self->settings->chat_template;
    return !path || alea__read_string(path, &self->chat_template) >= 0 ? ALEA_EXIT_OK
                                                                       : ALEA_EXIT_INPUT;
}

/* The first hangup would only be noted, as for the other commands; a server has no such moment. */
static void let_hangup_end(void) {
    struct sigaction before;
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        signal(SIGHUP, SIG_DFL);
}

alea_exit alea__cmd_serve(const alea_settings *settings) {
    serve_command self = {.settings = settings, .open_code = ALEA_EXIT_OK};
    name_model(alea__model_name(settings->model), self.name);
    const char *const only_name = self.name;
    const alea_exit code = read_template(&self);
    if (code != ALEA_EXIT_OK) return code;
    const bool named = settings->served_names.n > 0;
    if (named) snprintf(self.name, sizeof self.name, "%s", settings->served_names.words[0]);
    alea__server_log_level(level_of(settings->log_level));
    let_hangup_end();
    const alea_server_options options =
        options_of(&self, named ? settings->served_names.words : &only_name,
                   named ? settings->served_names.n : 1);
    alea_error error = {.status = ALEA_OK, .message = ""};
    const alea_status status = alea__server_run(&options, &error);
    free(self.chat_template);
    if (status >= 0) return ALEA_EXIT_OK;
    if (self.open_code != ALEA_EXIT_OK) return self.open_code;
    alea__complain("%s", error.message);
    if (status == ALEA_EFORMAT) return ALEA_EXIT_INPUT; /* the chat template, the keys */
    return status == ALEA_EINVAL ? ALEA_EXIT_USAGE : ALEA_EXIT_FAILURE;
}
