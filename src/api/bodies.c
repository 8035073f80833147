/* The small endpoints: the list of models, texts to tokens and back, who this is. */
#include <stdlib.h>
#include <string.h>

#include "api/api_parts.h"
#include "text/stream.h"
#include "text/token_text.h"

enum { ARENA_BYTES = 16 << 10 };

static alea_json_writer new_writer(void) {
    alea_json_writer writer;
    alea__json_write_to_buffer(&writer, ALEA_API_BODY_BYTES_MAX);
    return writer;
}

/* ---- models ---- */

static void write_permission(const alea_api *api, alea_json_writer *writer) {
    alea__json_begin_object(writer);
    alea__json_put_cstring(writer, "id", "modelperm-alea");
    alea__json_put_cstring(writer, "object", "model_permission");
    alea__json_put_int(writer, "created", api->options.created_s);
    alea__json_put_bool(writer, "allow_create_engine", false);
    alea__json_put_bool(writer, "allow_sampling", true);
    alea__json_put_bool(writer, "allow_logprobs", api->allow_logprobs);
    alea__json_put_bool(writer, "allow_search_indices", false);
    alea__json_put_bool(writer, "allow_view", true);
    alea__json_put_bool(writer, "allow_fine_tuning", false);
    alea__json_put_cstring(writer, "organization", "*");
    alea__json_put_null(writer, "group");
    alea__json_put_bool(writer, "is_blocking", false);
    alea__json_end_object(writer);
}

static void write_model(const alea_api *api, const char *name, alea_json_writer *writer) {
    alea__json_begin_object(writer);
    alea__json_put_cstring(writer, "id", name);
    alea__json_put_cstring(writer, "object", "model");
    alea__json_put_int(writer, "created", api->options.created_s);
    alea__json_put_cstring(writer, "owned_by", "alea");
    alea__json_put_cstring(writer, "root", api->options.model_names[0]);
    alea__json_put_null(writer, "parent");
    alea__json_put_int(writer, "max_model_len", api->info.context_tokens);
    alea__json_put_bool(writer, "allow_logprobs", api->allow_logprobs);
    alea__json_key(writer, "permission");
    alea__json_begin_array(writer);
    write_permission(api, writer);
    alea__json_end_array(writer);
    alea__json_end_object(writer);
}

alea_status alea__api_models(const alea_api *api, alea_api_text *body) {
    alea_json_writer writer = new_writer();
    alea__json_begin_object(&writer);
    alea__json_put_cstring(&writer, "object", "list");
    alea__json_key(&writer, "data");
    alea__json_begin_array(&writer);
    for (int32_t i = 0; i < api->options.n_model_names; i++)
        write_model(api, api->options.model_names[i], &writer);
    alea__json_end_array(&writer);
    alea__json_end_object(&writer);
    return alea__api_text_of(&writer, body);
}

alea_status alea__api_model(const alea_api *api, alea_bytes name, alea_api_text *body,
                            alea_api_error *error) {
    const alea_api_string asked = {true, name};
    *error = (alea_api_error){.int_code = api->options.vllm_compat};
    if (!name.length)
        return alea__api_error_set(error, ALEA_FAULT_MODEL, "model", "no model is named");
    const alea_status status = alea__api_check_model(api, &asked, error);
    if (status < 0) return status;
    alea_json_writer writer = new_writer();
    for (int32_t i = 0; i < api->options.n_model_names; i++) {
        const alea_bytes served = alea__api_bytes(api->options.model_names[i]);
        if (served.length != name.length || memcmp(served.data, name.data, name.length)) continue;
        write_model(api, api->options.model_names[i], &writer);
        break;
    }
    return alea__api_text_of(&writer, body) < 0 ? alea__api_no_memory(error) : ALEA_OK;
}

/* ---- bodies that are read ---- */

/* A parsed body and what was made of it. */
typedef struct small_request {
    alea_json_document *document;
    alea_api_values values;
    alea_arena arena;
} small_request;

static alea_status open_small(const alea_api *api, alea_api_endpoint endpoint, alea_bytes body,
                              small_request *request, alea_api_error *error) {
    *request = (small_request){.document = NULL};
    *error = (alea_api_error){.int_code = api->options.vllm_compat};
    alea__arena_init(&request->arena, ARENA_BYTES);
    alea_error why;
    alea_status status =
        alea__json_parse(body, api->options.body_bytes_max, &request->document, &why);
    if (status == ALEA_ENOMEM) return alea__api_no_memory(error);
    if (status < 0) return alea__api_error_set(error, ALEA_FAULT_JSON, NULL, "%s", why.message);
    status = alea__api_values_read(endpoint, alea__json_root(request->document),
                                   api->options.refuse_unknown_fields, &request->values, error);
    if (status < 0) return status;
    return alea__api_check_model(api, &request->values.model, error);
}

static void close_small(small_request *request) {
    alea__arena_free(&request->arena);
    alea__json_free(request->document);
}

/* ---- tokens ---- */

static alea_status write_token_strs(const alea_api *api, alea_token_list ids,
                                    alea_json_writer *writer) {
    const size_t capacity = 16 + 4 * api->token_bytes_max;
    char *text = malloc(capacity);
    if (!text) return ALEA_ENOMEM;
    alea__json_begin_array(writer);
    for (int32_t i = 0; i < ids.count; i++) {
        alea_token_info info;
        if (alea_core_token(api->core, ids.tokens[i], &info) < 0) continue;
        const size_t length = alea__token_text(&info, text, capacity);
        alea__json_string(writer, (alea_bytes){(const uint8_t *)text, length});
    }
    alea__json_end_array(writer);
    free(text);
    return ALEA_OK;
}

static alea_status write_tokens(const alea_api *api, alea_token_list ids, bool with_strs,
                                alea_api_text *answer) {
    alea_json_writer writer = new_writer();
    alea__json_begin_object(&writer);
    alea__json_put_int(&writer, "count", ids.count);
    alea__json_put_int(&writer, "max_model_len", api->info.context_tokens);
    alea__json_key(&writer, "tokens");
    alea__json_begin_array(&writer);
    for (int32_t i = 0; i < ids.count; i++)
        alea__json_int(&writer, ids.tokens[i]);
    alea__json_end_array(&writer);
    alea__json_key(&writer, "token_strs");
    if (!with_strs) {
        alea__json_null(&writer);
    } else if (write_token_strs(api, ids, &writer) < 0) {
        alea__json_write_free(&writer);
        return ALEA_ENOMEM;
    }
    alea__json_end_object(&writer);
    return alea__api_text_of(&writer, answer);
}

static alea_status encode_small(const alea_api *api, small_request *request, int64_t now_s,
                                alea_token_list *ids, alea_api_error *error) {
    const alea_api_values *values = &request->values;
    if (values->prompt_text.given == (values->messages != NULL))
        return alea__api_error_set(error, ALEA_FAULT_MISSING, "prompt",
                                   "give prompt or messages, one of them");
    if (values->messages)
        return alea__api_chat_encode(api, values, now_s, false, &request->arena, ids, NULL, error);
    const alea_api_bool *add = &values->add_special_tokens;
    return alea__api_encode(api, values->prompt_text.value, add->given ? add->value : true,
                            "prompt", &request->arena, ids, error);
}

alea_status alea__api_tokenize(const alea_api *api, alea_bytes body,
                               const alea_api_context *context, alea_api_text *answer,
                               alea_api_error *error) {
    small_request request;
    alea_token_list ids = {NULL, 0};
    alea_status status = open_small(api, ALEA_API_TOKENIZE, body, &request, error);
    if (status >= 0) status = encode_small(api, &request, context->now_s, &ids, error);
    if (status >= 0 && write_tokens(api, ids, request.values.return_token_strs.value, answer) < 0)
        status = alea__api_no_memory(error);
    close_small(&request);
    return status;
}

/* Control tokens stand in the text by their names, so that tokenizing it again gives them back. */
static alea_bytes text_of_id(const alea_api *api, int32_t token) {
    alea_token_info info;
    if (alea_core_token(api->core, token, &info) < 0) return (alea_bytes){NULL, 0};
    return info.flags & ALEA_TOKEN_CONTROL ? info.name : info.bytes;
}

/* A text that no answer could hold is not made: two bytes of a body may name a hundred. */
static alea_status decode_ids(const alea_api *api, alea_token_list ids, alea_arena *arena,
                              alea_bytes *text) {
    size_t bytes = 0, bound = ALEA_UTF8_REPLACEMENT_BYTES + 1;
    for (int32_t i = 0; i < ids.count; i++) {
        const size_t length = text_of_id(api, ids.tokens[i]).length;
        bytes += length;
        bound += ALEA_STREAM_BOUND(length);
        if (bytes > ALEA_API_BODY_BYTES_MAX) return ALEA_ELIMIT;
    }
    uint8_t *out = alea__arena_alloc(arena, bound);
    if (!out) return ALEA_ENOMEM;
    alea_text_stream stream = {.characters = 0};
    size_t length = 0;
    for (int32_t i = 0; i < ids.count; i++)
        length +=
            alea__text_stream_push(&stream, text_of_id(api, ids.tokens[i]), out + length, NULL);
    length += alea__text_stream_flush(&stream, out + length);
    *text = (alea_bytes){out, length};
    return ALEA_OK;
}

alea_status alea__api_detokenize(const alea_api *api, alea_bytes body, alea_api_text *answer,
                                 alea_api_error *error) {
    small_request request;
    alea_token_list ids = {NULL, 0};
    alea_bytes text = {NULL, 0};
    alea_status status = open_small(api, ALEA_API_DETOKENIZE, body, &request, error);
    if (status >= 0)
        status = alea__api_read_ids(request.values.tokens, "tokens", api->info.vocab,
                                    &request.arena, &ids, error);
    if (status >= 0) {
        alea_json_writer writer = new_writer();
        status = decode_ids(api, ids, &request.arena, &text);
        alea__json_begin_object(&writer);
        alea__json_key(&writer, "prompt");
        alea__json_string(&writer, text);
        alea__json_end_object(&writer);
        if (status < 0) alea__json_write_free(&writer);
        if (status == ALEA_ELIMIT)
            status = alea__api_error_set(error, ALEA_FAULT_VALUE, "tokens",
                                         "tokens have a text of more than 1 GiB");
        else if (status < 0 || alea__api_text_of(&writer, answer) < 0)
            status = alea__api_no_memory(error);
    }
    close_small(&request);
    return status;
}

/* ---- who this is ---- */

static void write_token_name(const alea_api *api, const char *name, int32_t token,
                             alea_json_writer *writer) {
    alea_token_info info;
    alea__json_key(writer, name);
    if (token >= 0 && alea_core_token(api->core, token, &info) >= 0 && alea__utf8_valid(info.name))
        alea__json_string(writer, info.name);
    else
        alea__json_null(writer);
}

static void write_token_number(const char *name, int32_t token, alea_json_writer *writer) {
    alea__json_key(writer, name);
    if (token >= 0)
        alea__json_int(writer, token);
    else
        alea__json_null(writer);
}

alea_status alea__api_tokenizer_info(const alea_api *api, alea_api_text *body) {
    alea_json_writer writer = new_writer();
    alea__json_begin_object(&writer);
    alea__json_put_cstring(&writer, "tokenizer_class",
                           api->info.tokenizer ? api->info.tokenizer : "");
    alea__json_put_int(&writer, "vocab_size", api->info.vocab);
    alea__json_put_int(&writer, "model_max_length", api->info.context_tokens);
    alea__json_put_bool(&writer, "add_bos_token", api->info.adds_bos);
    write_token_name(api, "bos_token", api->info.bos, &writer);
    write_token_name(api, "eos_token", api->info.eos, &writer);
    write_token_name(api, "pad_token", api->info.pad, &writer);
    write_token_number("bos_token_id", api->info.bos, &writer);
    write_token_number("eos_token_id", api->info.eos, &writer);
    write_token_number("pad_token_id", api->info.pad, &writer);
    alea__json_key(&writer, "chat_template");
    if (api->chat_source)
        alea__json_cstring(&writer, api->chat_source);
    else
        alea__json_null(&writer);
    alea__json_end_object(&writer);
    return alea__api_text_of(&writer, body);
}

alea_status alea__api_version(alea_api_text *body) {
    alea_json_writer writer = new_writer();
    alea__json_begin_object(&writer);
    alea__json_put_cstring(&writer, "version", alea_version());
    alea__json_end_object(&writer);
    return alea__api_text_of(&writer, body);
}
