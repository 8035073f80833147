/*
 * From values to a job: the rules that tie fields together, in the order in which a client would
 * want to hear of them. After this nothing about a request can be wrong but what only the engine
 * can see.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_parts.h"

enum { ARENA_BYTES = 1 << 10, ID_BYTES_MAX = 256, SALT_CHARACTERS_MAX = 128 };

#define VLLM_LEAST_TEMPERATURE 0.01f

static alea_status not_offered(const alea_api_maker *maker, const char *param,
                               const char *message) {
    return alea__api_error_set(maker->error, ALEA_FAULT_UNSUPPORTED, param, "%s", message);
}

static bool truth_of(const alea_api_bool *field, bool fallback) {
    return field->given ? field->value : fallback;
}

static float number_of(const alea_api_number *field, float fallback) {
    return field->given ? (float)field->value : fallback;
}

/* ---- drawing ---- */

static int32_t top_k_of(const alea_api_maker *maker) {
    const int64_t asked = maker->values->top_k.given ? maker->values->top_k.value : 0;
    const int32_t vocab = maker->api->info.vocab;
    if (asked <= 0) return 0;
    return asked < vocab ? (int32_t)asked : vocab;
}

static alea_status read_sampling(alea_api_maker *maker) {
    const alea_api_values *values = maker->values;
    alea_request_params *params = &maker->draft->job.params;
    const bool compat = maker->draft->presentation.vllm_compat;
    params->sampling = (alea_sampling){
        .temperature = number_of(&values->temperature, 1.0f),
        .top_k = top_k_of(maker),
        .top_p = number_of(&values->top_p, 1.0f),
        .min_p = number_of(&values->min_p, 0.0f),
    };
    alea_sampling *sampling = &params->sampling;
    if (compat && sampling->temperature > 0.0f && sampling->temperature < VLLM_LEAST_TEMPERATURE)
        sampling->temperature = VLLM_LEAST_TEMPERATURE;
    /* vLLM cuts by min_p before top_p, which then sees another sum. Without both it is the same. */
    if (compat && sampling->temperature > 0.0f && sampling->min_p > 0.0f && sampling->top_p < 1.0f)
        return not_offered(maker, "min_p", "vllm_compat does not go with min_p and top_p together");
    alea_error why;
    if (alea__sampling_check(sampling, &why) < 0)
        return alea__api_refuse(maker->error, "temperature", why.message);
    params->choices = values->n.given ? (int32_t)values->n.value : 1;
    if (params->choices > 1 && sampling->temperature == 0.0f)
        return alea__api_refuse(maker->error, "n",
                                "n must be 1 at temperature 0: all choices would be the same");
    params->seeded = values->seed.given && values->seed.value != -1;
    params->seed = params->seeded ? (uint64_t)values->seed.value : 0;
    params->presence_penalty = number_of(&values->presence_penalty, 0.0f);
    params->frequency_penalty = number_of(&values->frequency_penalty, 0.0f);
    params->repetition_penalty = number_of(&values->repetition_penalty, 1.0f);
    return ALEA_OK;
}

/* ---- ends ---- */

static alea_status read_ends(alea_api_maker *maker) {
    const alea_api_values *values = maker->values;
    alea_request_params *params = &maker->draft->job.params;
    params->ignore_end = truth_of(&values->ignore_eos, false);
    params->include_stop = truth_of(&values->include_stop_str_in_output, false);
    if (!values->thinking_token_budget.given || values->thinking_token_budget.value < 0)
        return ALEA_OK;
    params->thinking_close = maker->api->options.thinking_close;
    params->thinking_budget = (int32_t)values->thinking_token_budget.value;
    if (params->thinking_close.count > 0) return ALEA_OK;
    return not_offered(maker, "thinking_token_budget",
                       "thinking_token_budget is not supported: this server was not told how the "
                       "model closes its thinking");
}

/* ---- reports ---- */

static alea_api_mode mode_of(const alea_api_values *values) {
    if (!values->logprobs_mode.given) return ALEA_MODE_RAW;
    if (alea__api_is(values->logprobs_mode.value, "processed")) return ALEA_MODE_PROCESSED;
    return alea__api_is(values->logprobs_mode.value, "all") ? ALEA_MODE_ALL : ALEA_MODE_RAW;
}

static alea_status check_reports(const alea_api_maker *maker) {
    const alea_api_presentation *shown = &maker->draft->presentation;
    const alea_api_values *values = maker->values;
    const bool selects = values->logprob_token_ids != NULL;
    if (!shown->logprobs && values->top_logprobs.given && values->top_logprobs.value > 0)
        return alea__api_refuse(maker->error, "top_logprobs", "top_logprobs needs logprobs: true");
    if (!shown->logprobs && selects)
        return alea__api_refuse(maker->error, "logprob_token_ids",
                                "logprob_token_ids needs logprobs");
    if (!shown->logprobs) return ALEA_OK;
    if (!maker->api->allow_logprobs)
        return not_offered(maker, "logprobs",
                           "logprobs is not supported: the model's core does not report them");
    if (selects && !maker->api->allow_token_ids)
        return not_offered(maker, "logprob_token_ids",
                           "logprob_token_ids is not supported: the model's core reports the most "
                           "probable tokens alone");
    if (shown->mode == ALEA_MODE_PROCESSED && (shown->top > 0 || selects))
        return not_offered(maker, "logprobs_mode",
                           "logprobs_mode processed reports the chosen token alone: ask for no "
                           "alternatives, or for logprobs_mode all");
    return ALEA_OK;
}

static alea_status read_reports(alea_api_maker *maker) {
    const alea_api_values *values = maker->values;
    alea_api_presentation *shown = &maker->draft->presentation;
    alea_request_params *params = &maker->draft->job.params;
    const bool chat = maker->draft->job.endpoint == ALEA_API_CHAT;
    const alea_api_int *top = chat ? &values->top_logprobs : &values->logprobs;
    shown->logprobs = chat ? truth_of(&values->chat_logprobs, false) : values->logprobs.given;
    shown->top = top->given && !values->logprob_token_ids ? (int32_t)top->value : 0;
    shown->mode = mode_of(values);
    shown->tokens_as_token_ids =
        truth_of(&values->return_tokens_as_token_ids, maker->api->options.tokens_as_token_ids);
    shown->return_token_ids = truth_of(&values->return_token_ids, false);
    shown->show_special = !truth_of(&values->skip_special_tokens, true);
    const alea_status status = check_reports(maker);
    if (status < 0) return status;
    params->top = shown->logprobs ? shown->top : -1;
    params->want_sampled = shown->logprobs && shown->mode != ALEA_MODE_RAW;
    params->want_entropy = shown->logprobs && shown->mode == ALEA_MODE_ALL;
    params->show_control = shown->show_special;
    params->keep_stopped = shown->vllm_compat;
    return alea__api_read_scoring(maker);
}

/* ---- delivery ---- */

static alea_status read_option(const alea_api_maker *maker, const char *name, bool *out) {
    const alea_json_value *value = alea__json_given(maker->values->stream_options, name);
    *out = false;
    if (!value || alea__json_get_bool(value, name, out, NULL) == ALEA_OK) return ALEA_OK;
    return alea__api_error_set(maker->error, ALEA_FAULT_TYPE, "stream_options",
                               "stream_options.%s must be true or false", name);
}

static alea_status read_stream(alea_api_maker *maker) {
    const alea_api_values *values = maker->values;
    alea_api_presentation *shown = &maker->draft->presentation;
    maker->draft->job.stream = truth_of(&values->stream, false);
    shown->stream_interval =
        values->stream_interval.given ? (int32_t)values->stream_interval.value : 1;
    if (values->stream_options) {
        if (!maker->draft->job.stream && alea__json_size(values->stream_options) > 0)
            return alea__api_refuse(maker->error, "stream_options",
                                    "stream_options needs stream: true");
        alea_status status = read_option(maker, "include_usage", &shown->include_usage);
        if (status >= 0)
            status = read_option(maker, "continuous_usage_stats", &shown->continuous_usage);
        if (status < 0) return status;
    }
    shown->include_usage |= maker->api->options.force_include_usage;
    shown->continuous_usage |= maker->api->options.force_include_usage;
    shown->continuous_usage &= shown->include_usage;
    return ALEA_OK;
}

static alea_status check_format(const alea_api_maker *maker) {
    const alea_json_value *format = maker->values->response_format;
    if (!format) return ALEA_OK;
    const alea_json_value *type = alea__json_given(format, "type");
    alea_bytes word;
    if (!type || alea__json_get_string(type, "type", &word, NULL) < 0)
        return alea__api_refuse(maker->error, "response_format", "response_format needs a type");
    if (alea__api_is(word, "text")) return ALEA_OK;
    return not_offered(maker, "response_format",
                       "response_format must be of type text: constrained generation is not "
                       "offered");
}

static alea_status check_modalities(const alea_api_maker *maker) {
    const alea_json_value *list = maker->values->modalities;
    if (!list) return ALEA_OK;
    for (alea_json_walk walk = alea__json_walk(list); alea__json_next(&walk);) {
        alea_bytes word;
        if (alea__json_get_string(walk.value, "modalities", &word, NULL) == ALEA_OK &&
            alea__api_is(word, "text"))
            continue;
        return not_offered(maker, "modalities", "modalities must be [\"text\"]: answers are text");
    }
    return ALEA_OK;
}

/* FNV-1a of 64 bits: who does not know another's salt does not meet it by chance. */
static alea_status read_salt(alea_api_maker *maker) {
    const alea_bytes salt = maker->values->cache_salt.value;
    if (!maker->values->cache_salt.given) return ALEA_OK;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    bool good = salt.length > 0 && alea__utf8_count(salt) <= SALT_CHARACTERS_MAX;
    for (size_t i = 0; i < salt.length; i++) {
        good &= salt.data[i] != 0 && !strchr("@/\\", salt.data[i]);
        hash = (hash ^ salt.data[i]) * UINT64_C(0x100000001b3);
    }
    maker->draft->job.params.cache_salt = hash;
    if (good) return ALEA_OK;
    return alea__api_refuse(
        maker->error, "cache_salt",
        "cache_salt must have 1 to 128 characters, none of them @, /, \\ or NUL");
}

static alea_status read_priority(alea_api_maker *maker) {
    const alea_bytes header = maker->context->priority;
    int32_t *priority = &maker->draft->job.params.priority;
    if (!header.length) {
        *priority = maker->values->priority.given ? (int32_t)maker->values->priority.value : 0;
        return ALEA_OK;
    }
    char text[16] = "";
    if (header.length < sizeof text) memcpy(text, header.data, header.length);
    char *end = text;
    const long long value = strtoll(text, &end, 10);
    if (end == text || *end || value < INT32_MIN || value > INT32_MAX)
        return alea__api_refuse(maker->error, "priority",
                                "X-Vllm-Priority must be an integer of 32 bits");
    *priority = (int32_t)value;
    return ALEA_OK;
}

static const char *id_prefix(alea_api_endpoint endpoint) {
    if (endpoint == ALEA_API_SCORE) return "score-";
    return endpoint == ALEA_API_CHAT ? "chatcmpl-" : "cmpl-";
}

/* The header's id, the body's, or a fresh one behind the endpoint's prefix. */
static alea_status read_id(alea_api_maker *maker) {
    alea_bytes id = maker->context->request_id;
    if (!id.length || id.length > ID_BYTES_MAX || !alea__utf8_valid(id))
        id = maker->values->request_id.value;
    if (id.length > ID_BYTES_MAX)
        return alea__api_refuse(maker->error, "request_id",
                                "request_id must have at most 256 bytes");
    char fresh[40];
    if (!id.length) {
        snprintf(fresh, sizeof fresh, "%016llx%016llx",
                 (unsigned long long)maker->context->random[0],
                 (unsigned long long)maker->context->random[1]);
        id = alea__api_bytes(fresh);
    }
    const char *prefix = id_prefix(maker->draft->job.endpoint);
    char *text = alea__arena_alloc(&maker->draft->arena, strlen(prefix) + id.length + 1);
    if (!text) return alea__api_no_memory(maker->error);
    memcpy(text, prefix, strlen(prefix));
    memcpy(text + strlen(prefix), id.data, id.length);
    text[strlen(prefix) + id.length] = 0;
    maker->draft->job.id = text;
    return ALEA_OK;
}

static alea_status read_delivery(alea_api_maker *maker) {
    alea_status status = read_stream(maker);
    if (status >= 0) status = check_format(maker);
    if (status >= 0) status = check_modalities(maker);
    if (status >= 0) status = read_salt(maker);
    if (status >= 0) status = read_priority(maker);
    if (status >= 0) status = read_id(maker);
    return status;
}

/* ---- the whole ---- */

static alea_status read_chat(alea_api_maker *maker) {
    alea_api_draft *draft = maker->draft;
    alea_token_list ids;
    const bool wants_text =
        maker->values->return_prompt_text.given && maker->values->return_prompt_text.value;
    const bool must_fit = !maker->values->truncate_prompt_tokens.given;
    alea_status status = alea__api_check_tool_choice(maker->values, maker->error);
    if (status < 0) return status;
    status = alea__api_chat_encode(
        maker->api, maker->values, maker->context->now_s, must_fit, &draft->arena, &ids,
        wants_text ? &draft->presentation.prompt_text : NULL, maker->error);
    if (status < 0) return status;
    draft->prompts = alea__arena_array(&draft->arena, 1, sizeof *draft->prompts);
    if (!draft->prompts) return alea__api_no_memory(maker->error);
    draft->prompts[0] = (alea_api_prompt){.tokens = ids.tokens, .n_tokens = ids.count};
    draft->job.n_prompts = 1;
    const alea_bytes role = alea__api_chat_role(maker->values);
    const char *kept = alea__arena_copy(&draft->arena, role);
    if (!kept) return alea__api_no_memory(maker->error);
    draft->presentation.role = (alea_bytes){(const uint8_t *)kept, role.length};
    return ALEA_OK;
}

static alea_status fill_score(alea_api_maker *maker) {
    alea_status status = read_priority(maker);
    if (status >= 0) status = read_id(maker);
    if (status >= 0) status = alea__api_read_score(maker);
    return status;
}

static alea_status fill_answer(alea_api_maker *maker) {
    alea_api_draft *draft = maker->draft;
    alea_status status = read_sampling(maker);
    if (status >= 0) status = read_ends(maker);
    if (status >= 0) status = read_reports(maker);
    if (status >= 0) status = read_delivery(maker);
    if (status >= 0) status = alea__api_read_lists(maker);
    if (status >= 0)
        status =
            draft->job.endpoint == ALEA_API_CHAT ? read_chat(maker) : alea__api_read_prompts(maker);
    if (status >= 0) status = alea__api_fit_prompts(maker);
    return status;
}

static alea_status fill(alea_api_maker *maker) {
    alea_api_draft *draft = maker->draft;
    alea_status status = alea__api_check_model(maker->api, &maker->values->model, maker->error);
    if (status < 0) return status;
    status = draft->job.endpoint == ALEA_API_SCORE ? fill_score(maker) : fill_answer(maker);
    if (status < 0) return status;
    draft->job.prompts = draft->prompts;
    draft->job.presentation = &draft->presentation;
    alea_error why;
    const alea_request_params params = alea__api_job_params(&draft->job, 0);
    if (alea__params_check(&params, maker->api->info.vocab, &why) >= 0) return ALEA_OK;
    return alea__api_refuse(maker->error, NULL, why.message);
}

/* Errors have vLLM's form where the request asks for it, even where it is wrong elsewhere. */
static bool wants_compat(const alea_api *api, const alea_json_value *root) {
    bool compat = api->options.vllm_compat;
    const alea_json_value *asked = alea__json_given(root, "vllm_compat");
    if (asked && alea__json_get_bool(asked, "vllm_compat", &compat, NULL) < 0) return false;
    return compat;
}

static alea_status draft_of(const alea_api *api, alea_api_endpoint endpoint,
                            const alea_json_value *root, const alea_api_context *context,
                            alea_api_draft *draft, alea_api_error *error) {
    alea_api_values values;
    error->int_code = wants_compat(api, root);
    draft->job = (alea_api_job){.api = api,
                                .endpoint = endpoint,
                                .created_s = context->now_s,
                                .params = alea__params_default()};
    draft->presentation.vllm_compat = error->int_code;
    draft->presentation.prompt_top = -1;
    const alea_status status =
        alea__api_values_read(endpoint, root, api->options.refuse_unknown_fields, &values, error);
    if (status < 0) return status;
    return fill(&(alea_api_maker){api, &values, context, draft, error});
}

alea_status alea__api_job_parse(const alea_api *api, alea_api_endpoint endpoint, alea_bytes body,
                                const alea_api_context *context, alea_api_job **job,
                                alea_api_error *error) {
    *error = (alea_api_error){.int_code = api->options.vllm_compat};
    alea_json_document *document = NULL;
    alea_error why;
    alea_status status = alea__json_parse(body, api->options.body_bytes_max, &document, &why);
    if (status == ALEA_ENOMEM) return alea__api_no_memory(error);
    if (status < 0) return alea__api_error_set(error, ALEA_FAULT_JSON, NULL, "%s", why.message);
    alea_api_draft *draft = calloc(1, sizeof *draft);
    if (draft) {
        alea__arena_init(&draft->arena, ARENA_BYTES);
        status = draft_of(api, endpoint, alea__json_root(document), context, draft, error);
    } else {
        status = alea__api_no_memory(error);
    }
    alea__json_free(document);
    if (status >= 0)
        *job = &draft->job;
    else if (draft)
        alea__api_job_free(&draft->job);
    return status;
}

void alea__api_job_free(alea_api_job *job) {
    if (!job) return;
    alea_api_draft *draft = (alea_api_draft *)job;
    alea__arena_free(&draft->arena);
    free(draft);
}

size_t alea__api_job_bytes(const alea_api_job *job) {
    const alea_api_draft *draft = (const alea_api_draft *)job;
    return sizeof *draft + alea__arena_bytes(&draft->arena);
}

alea_request_params alea__api_job_params(const alea_api_job *job, int32_t prompt) {
    alea_request_params params = job->params;
    params.max_tokens = job->prompts[prompt].max_tokens;
    return params;
}
