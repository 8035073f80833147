/* What is served: a core under its names, its chat template, and the server's defaults. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_parts.h"

enum { PROMPTS_MAX = 1024, CHUNK_BYTES = 4096 };
#define BODY_BYTES_MAX ((size_t)64 << 20)

alea_status alea__api_no_memory(alea_api_error *error) {
    return alea__api_error_set(error, ALEA_FAULT_UNAVAILABLE, NULL,
                               "out of memory for this request");
}

static const char *keep(alea_arena *arena, const char *text) {
    return alea__arena_copy(arena, alea__api_bytes(text));
}

static alea_status keep_names(alea_api *api, const alea_api_options *options, alea_error *error) {
    const int32_t n = options->n_model_names;
    if (n < 1) return alea_error_set(error, ALEA_EINVAL, "a served model needs a name");
    const char **names = alea__arena_array(&api->arena, (size_t)n, sizeof *names);
    if (!names) return ALEA_ENOMEM;
    for (int32_t i = 0; i < n; i++) {
        const alea_bytes name = alea__api_bytes(options->model_names[i]);
        if (!name.length || !alea__utf8_valid(name))
            return alea_error_set(error, ALEA_EINVAL, "model name %d must be text, and not empty",
                                  i);
        names[i] = keep(&api->arena, options->model_names[i]);
        if (!names[i]) return ALEA_ENOMEM;
    }
    api->options.model_names = names;
    return ALEA_OK;
}

static alea_status keep_thinking(alea_api *api, alea_error *error) {
    alea_token_list *list = &api->options.thinking_close;
    for (int32_t i = 0; i < list->count; i++) {
        if (list->tokens[i] >= 0 && list->tokens[i] < api->info.vocab) continue;
        return alea_error_set(error, ALEA_EINVAL, "the close of the thinking names token %d",
                              list->tokens[i]);
    }
    if (list->count < 1) {
        *list = (alea_token_list){NULL, 0};
        return ALEA_OK;
    }
    int32_t *copy = alea__arena_array(&api->arena, (size_t)list->count, sizeof *copy);
    if (!copy) return ALEA_ENOMEM;
    memcpy(copy, list->tokens, (size_t)list->count * sizeof *copy);
    list->tokens = copy;
    return ALEA_OK;
}

/* How a control token is written, for templates that name it. */
static alea_bytes name_of(const alea_api *api, int32_t token) {
    alea_token_info info;
    if (token < 0 || alea_core_token(api->core, token, &info) < 0) return (alea_bytes){NULL, 0};
    return info.name;
}

/* A template that was asked for must work; with the model's own broken one, completions still do.
 */
static alea_status open_chat(alea_api *api, alea_error *error) {
    const char *asked = api->options.chat_template;
    const char *source = asked ? asked : api->info.chat_template;
    alea_status status = alea__chat_tokenizer_create(api->core, &api->chat_tokenizer, error);
    if (status < 0) return status;
    if (!source) {
        snprintf(api->chat_error, sizeof api->chat_error, "the model has no chat template");
        return ALEA_OK;
    }
    api->chat_source = keep(&api->arena, source);
    if (!api->chat_source) return ALEA_ENOMEM;
    api->options.chat_template = api->chat_source;
    alea_error why = {.status = ALEA_OK, .message = ""};
    status = alea__chat_template_create(alea__api_bytes(source), name_of(api, api->info.bos),
                                        name_of(api, api->info.eos), &api->chat, &why);
    if (status >= 0) return ALEA_OK;
    if (asked || status == ALEA_ENOMEM) return alea_error_set(error, status, "%s", why.message);
    snprintf(api->chat_error, sizeof api->chat_error, "%s", why.message);
    return ALEA_OK;
}

/* FNV-1a: a name for the configuration, nothing that must resist anyone. */
static uint64_t mix(uint64_t hash, const char *text) {
    for (const char *at = text ? text : ""; *at; at++)
        hash = (hash ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
    return (hash ^ 0xff) * UINT64_C(0x100000001b3);
}

static void describe(alea_api *api) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    hash = mix(hash, alea_version());
    hash = mix(hash, api->info.core);
    hash = mix(hash, api->info.build);
    hash = mix(hash, api->info.model);
    hash = mix(hash, api->options.model_names[0]);
    snprintf(api->fingerprint, sizeof api->fingerprint, "fp_%016llx", (unsigned long long)hash);
    for (int32_t token = 0; token < api->info.vocab; token++) {
        alea_token_info info;
        if (alea_core_token(api->core, token, &info) < 0) continue;
        if (info.name.length > api->token_bytes_max) api->token_bytes_max = info.name.length;
        if (info.bytes.length > api->token_bytes_max) api->token_bytes_max = info.bytes.length;
    }
}

static alea_status fill(alea_api *api, const alea_api_options *options, alea_error *error) {
    alea_core_describe(api->core, &api->info);
    api->options = *options;
    if (!api->options.body_bytes_max) api->options.body_bytes_max = BODY_BYTES_MAX;
    if (!api->options.prompts_max) api->options.prompts_max = PROMPTS_MAX;
    api->allow_logprobs = !options->capability || options->capability->allow_logprobs;
    api->allow_token_ids = !options->capability || options->capability->allow_token_ids;
    api->allow_prompt_logprobs =
        !options->prompt_logprobs_off &&
        (!options->capability || options->capability->allow_prompt_logprobs);
    api->options.capability = NULL;
    alea_status status = keep_names(api, options, error);
    if (status >= 0) status = keep_thinking(api, error);
    if (status >= 0) status = open_chat(api, error);
    if (status == ALEA_ENOMEM) alea_error_set(error, status, "out of memory for the served model");
    if (status >= 0) describe(api);
    return status;
}

alea_status alea__api_create(const alea_core *core, const alea_api_options *options, alea_api **api,
                             alea_error *error) {
    alea_api *made = calloc(1, sizeof *made);
    if (!made) return alea_error_set(error, ALEA_ENOMEM, "out of memory for the served model");
    made->core = core;
    alea__arena_init(&made->arena, CHUNK_BYTES);
    const alea_status status = fill(made, options, error);
    if (status < 0) {
        alea__api_destroy(made);
        return status;
    }
    *api = made;
    return ALEA_OK;
}

void alea__api_destroy(alea_api *api) {
    if (!api) return;
    alea__chat_tokenizer_destroy(api->chat_tokenizer);
    alea__chat_template_destroy(api->chat);
    alea__arena_free(&api->arena);
    free(api);
}

static bool is_served(const alea_api *api, alea_bytes name) {
    for (int32_t i = 0; i < api->options.n_model_names; i++) {
        const alea_bytes served = alea__api_bytes(api->options.model_names[i]);
        if (served.length == name.length && !memcmp(served.data, name.data, name.length))
            return true;
    }
    return false;
}

alea_status alea__api_check_model(const alea_api *api, const alea_api_string *model,
                                  alea_api_error *error) {
    if (!model->given || !model->value.length || is_served(api, model->value)) return ALEA_OK;
    return alea__api_error_set(error, ALEA_FAULT_MODEL, "model",
                               "the model \"%.*s\" does not exist; the one served here is \"%s\"",
                               alea__api_quoted(model->value, 100), (const char *)model->value.data,
                               api->options.model_names[0]);
}
