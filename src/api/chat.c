/*
 * Messages to token ids: brought into the one form that templates expect, rendered with every byte
 * of the client's marked, and tokenized so that no such byte becomes a control token.
 */
#include <stdlib.h>
#include <string.h>

#include "api/api_parts.h"

enum { TOKENS_MAX = 1 << 28 };

static const char messages_name[] = "messages";

/* ---- JSON in, JSON out ---- */

static void copy_scalar(alea_json_writer *writer, const alea_json_value *value) {
    bool truth;
    int64_t small;
    uint64_t large;
    double real;
    alea_bytes text;
    if (alea__json_get_bool(value, "", &truth, NULL) == ALEA_OK)
        alea__json_bool(writer, truth);
    else if (alea__json_get_int(value, "", INT64_MIN, INT64_MAX, &small, NULL) == ALEA_OK)
        alea__json_int(writer, small);
    else if (alea__json_get_uint(value, "", 0, UINT64_MAX, &large, NULL) == ALEA_OK)
        alea__json_uint(writer, large);
    else if (alea__json_get_double(value, "", -1.7976931348623157e308, 1.7976931348623157e308,
                                   &real, NULL) == ALEA_OK)
        alea__json_double(writer, real);
    else if (alea__json_get_string(value, "", &text, NULL) == ALEA_OK)
        alea__json_string(writer, text);
    else
        alea__json_null(writer);
}

/* No deeper than a document may be. */
void alea__api_copy_value(alea_json_writer *writer, const alea_json_value *value) {
    const alea_json_kind kind = alea__json_kind(value);
    if (kind != ALEA_JSON_ARRAY && kind != ALEA_JSON_OBJECT) {
        copy_scalar(writer, value);
        return;
    }
    if (kind == ALEA_JSON_ARRAY)
        alea__json_begin_array(writer);
    else
        alea__json_begin_object(writer);
    for (alea_json_walk walk = alea__json_walk(value); alea__json_next(&walk);) {
        if (kind == ALEA_JSON_OBJECT) alea__json_key_bytes(writer, walk.key);
        alea__api_copy_value(writer, walk.value);
    }
    if (kind == ALEA_JSON_ARRAY)
        alea__json_end_array(writer);
    else
        alea__json_end_object(writer);
}

static bool string_member(const alea_json_value *object, const char *name, alea_bytes *out) {
    const alea_json_value *value = alea__json_given(object, name);
    return value && alea__json_get_string(value, name, out, NULL) == ALEA_OK;
}

/* ---- content ---- */

/* The text of one part: an object of a text type, or a bare string. */
static alea_status part_text(const alea_json_value *part, alea_bytes *text, alea_api_error *error) {
    static const char *const types[] = {"text", "input_text", "output_text", "refusal"};
    alea_bytes type;
    if (alea__json_get_string(part, "part", text, NULL) == ALEA_OK) return ALEA_OK;
    if (!string_member(part, "type", &type))
        return alea__api_refuse(error, messages_name, "a part of a message's content needs a type");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!alea__api_is(type, types[i])) continue;
        if (string_member(part, i == 3 ? "refusal" : "text", text)) return ALEA_OK;
        return alea__api_refuse(error, messages_name, "a text part of a message needs its text");
    }
    return alea__api_error_set(error, ALEA_FAULT_UNSUPPORTED, messages_name,
                               "messages: a part of type \"%.*s\" is not supported: messages are "
                               "text",
                               alea__api_quoted(type, 40), (const char *)type.data);
}

/* Parts become one text with a line end between them, as vLLM joins them. */
static alea_status join_parts(const alea_json_value *parts, alea_arena *arena, alea_bytes *out,
                              alea_api_error *error) {
    size_t bytes = 0;
    for (alea_json_walk walk = alea__json_walk(parts); alea__json_next(&walk);) {
        alea_bytes text;
        const alea_status status = part_text(walk.value, &text, error);
        if (status < 0) return status;
        bytes += text.length + 1;
    }
    uint8_t *joined = alea__arena_alloc(arena, bytes + 1);
    if (!joined) return alea__api_no_memory(error);
    size_t at = 0;
    for (alea_json_walk walk = alea__json_walk(parts); alea__json_next(&walk);) {
        alea_bytes text = {NULL, 0};
        if (part_text(walk.value, &text, error) < 0) continue;
        if (at > 0) joined[at++] = '\n';
        if (text.length) memcpy(joined + at, text.data, text.length);
        at += text.length;
    }
    *out = (alea_bytes){joined, at};
    return ALEA_OK;
}

/* data NULL: none. */
static alea_status content_of(const alea_json_value *message, alea_arena *arena, alea_bytes *out,
                              alea_api_error *error) {
    const alea_json_value *content = alea__json_given(message, "content");
    *out = (alea_bytes){NULL, 0};
    if (!content) return ALEA_OK;
    if (alea__json_kind(content) == ALEA_JSON_ARRAY) return join_parts(content, arena, out, error);
    if (alea__json_get_string(content, "content", out, NULL) == ALEA_OK) return ALEA_OK;
    return alea__api_error_set(error, ALEA_FAULT_TYPE, messages_name,
                               "messages: content must be a string, null or a list of parts");
}

/* ---- messages ---- */

/* Templates index arguments as an object, clients send them as text. */
static alea_status write_arguments(alea_json_writer *writer, const alea_json_value *value,
                                   alea_api_error *error) {
    alea_bytes text;
    if (alea__json_get_string(value, "arguments", &text, NULL) < 0) {
        alea__api_copy_value(writer, value);
        return ALEA_OK;
    }
    if (text.length == 0) text = alea__api_bytes("{}");
    alea_json_document *document = NULL;
    if (alea__json_parse(text, text.length, &document, NULL) < 0)
        return alea__api_refuse(error, messages_name,
                                "messages: a tool call's arguments are no JSON");
    alea__api_copy_value(writer, alea__json_root(document));
    alea__json_free(document);
    return ALEA_OK;
}

static alea_status write_function(alea_json_writer *writer, const alea_json_value *function,
                                  alea_api_error *error) {
    if (alea__json_kind(function) != ALEA_JSON_OBJECT)
        return alea__api_refuse(error, messages_name,
                                "messages: a tool call's function must be an object");
    alea__json_begin_object(writer);
    for (alea_json_walk walk = alea__json_walk(function); alea__json_next(&walk);) {
        alea__json_key_bytes(writer, walk.key);
        if (!alea__api_is(walk.key, "arguments")) {
            alea__api_copy_value(writer, walk.value);
            continue;
        }
        const alea_status status = write_arguments(writer, walk.value, error);
        if (status < 0) return status;
    }
    alea__json_end_object(writer);
    return ALEA_OK;
}

static alea_status write_tool_calls(alea_json_writer *writer, const alea_json_value *calls,
                                    alea_api_error *error) {
    if (alea__json_kind(calls) != ALEA_JSON_ARRAY)
        return alea__api_refuse(error, messages_name, "messages: tool_calls must be a list");
    alea__json_begin_array(writer);
    for (alea_json_walk walk = alea__json_walk(calls); alea__json_next(&walk);) {
        if (alea__json_kind(walk.value) != ALEA_JSON_OBJECT)
            return alea__api_refuse(error, messages_name,
                                    "messages: a tool call must be an object");
        alea__json_begin_object(writer);
        for (alea_json_walk call = alea__json_walk(walk.value); alea__json_next(&call);) {
            alea__json_key_bytes(writer, call.key);
            if (!alea__api_is(call.key, "function")) {
                alea__api_copy_value(writer, call.value);
                continue;
            }
            const alea_status status = write_function(writer, call.value, error);
            if (status < 0) return status;
        }
        alea__json_end_object(writer);
    }
    alea__json_end_array(writer);
    return ALEA_OK;
}

static void write_content(alea_json_writer *writer, alea_bytes content, bool calls_tools) {
    alea__json_key(writer, "content");
    if (content.data)
        alea__json_string(writer, content);
    else if (calls_tools)
        alea__json_null(writer);
    else
        alea__json_cstring(writer, "");
}

/* Templates know the reasoning of an earlier turn by either name. */
static void write_reasoning(alea_json_writer *writer, const alea_json_value *message) {
    const alea_json_value *reasoning = alea__json_given(message, "reasoning");
    if (!reasoning) reasoning = alea__json_given(message, "reasoning_content");
    if (!reasoning) return;
    alea__json_key(writer, "reasoning");
    alea__api_copy_value(writer, reasoning);
    alea__json_key(writer, "reasoning_content");
    alea__api_copy_value(writer, reasoning);
}

static alea_status write_message(alea_json_writer *writer, const alea_json_value *message,
                                 alea_arena *arena, alea_bytes *content, alea_api_error *error) {
    static const char *const written[] = {"role", "content", "reasoning", "reasoning_content",
                                          "tool_calls"};
    enum { N_WRITTEN = sizeof written / sizeof *written };
    const alea_json_value *calls = alea__json_given(message, "tool_calls");
    alea_bytes role;
    if (!string_member(message, "role", &role) || role.length == 0)
        return alea__api_refuse(error, messages_name, "messages: every message needs a role");
    alea_status status = content_of(message, arena, content, error);
    if (status < 0) return status;
    alea__json_begin_object(writer);
    alea__json_key(writer, "role");
    alea__json_string(writer, role);
    write_content(writer, *content, calls != NULL);
    write_reasoning(writer, message);
    if (calls) {
        alea__json_key(writer, "tool_calls");
        status = write_tool_calls(writer, calls, error);
        if (status < 0) return status;
    }
    for (alea_json_walk walk = alea__json_walk(message); alea__json_next(&walk);) {
        int known = 0;
        while (known < N_WRITTEN && !alea__api_is(walk.key, written[known]))
            known++;
        if (known < N_WRITTEN || alea__json_kind(walk.value) == ALEA_JSON_NULL) continue;
        alea__json_key_bytes(writer, walk.key);
        alea__api_copy_value(writer, walk.value);
    }
    alea__json_end_object(writer);
    return ALEA_OK;
}

/* *last: the content of the last message. */
static alea_status write_messages(alea_json_writer *writer, const alea_json_value *messages,
                                  alea_arena *arena, alea_bytes *last, alea_api_error *error) {
    if (alea__json_size(messages) == 0)
        return alea__api_refuse(error, messages_name, "messages must not be empty");
    alea__json_begin_array(writer);
    for (alea_json_walk walk = alea__json_walk(messages); alea__json_next(&walk);) {
        const alea_status status = write_message(writer, walk.value, arena, last, error);
        if (status < 0) return status;
    }
    alea__json_end_array(writer);
    return ALEA_OK;
}

/* ---- what else a template sees ---- */

static void write_variables(alea_json_writer *writer, const alea_api_values *values) {
    const alea_json_value *given = values->chat_template_kwargs;
    alea__json_begin_object(writer);
    if (given) {
        for (alea_json_walk walk = alea__json_walk(given); alea__json_next(&walk);) {
            alea__json_key_bytes(writer, walk.key);
            alea__api_copy_value(writer, walk.value);
        }
    }
    if (values->reasoning_effort.given &&
        !(given && alea__json_member(given, "reasoning_effort"))) {
        alea__json_key(writer, "reasoning_effort");
        alea__json_string(writer, values->reasoning_effort.value);
    }
    alea__json_end_object(writer);
}

alea_status alea__api_check_tool_choice(const alea_api_values *values, alea_api_error *error) {
    alea_bytes word = {NULL, 0};
    const alea_json_value *choice = values->tool_choice;
    if (choice && alea__json_kind(choice) != ALEA_JSON_OBJECT &&
        alea__json_get_string(choice, "tool_choice", &word, NULL) < 0)
        return alea__api_error_set(error, ALEA_FAULT_TYPE, "tool_choice",
                                   "tool_choice must be a string or an object");
    if (choice ? alea__api_is(word, "none") : !values->tools) return ALEA_OK;
    return alea__api_error_set(error, ALEA_FAULT_UNSUPPORTED, "tool_choice",
                               "tool_choice must be \"none\": this server does not parse tool "
                               "calls%s",
                               choice ? "" : ", and with tools its default would be \"auto\"");
}

static alea_status check_modes(const alea_api *api, const alea_api_values *values,
                               alea_api_error *error) {
    const bool adds = !values->add_generation_prompt.given || values->add_generation_prompt.value;
    if (values->tools && alea__json_size(values->tools) == 0)
        return alea__api_refuse(error, "tools", "tools must not be empty");
    if (adds && values->continue_final_message.value)
        return alea__api_refuse(error, "continue_final_message",
                                "continue_final_message needs add_generation_prompt: false");
    if (values->chat_template.given && !api->options.trust_request_chat_template)
        return alea__api_error_set(error, ALEA_FAULT_UNSUPPORTED, "chat_template",
                                   "chat_template is not supported: this server was not started "
                                   "with --trust-request-chat-template");
    if (!values->chat_template.given && !api->chat)
        return alea__api_error_set(error, ALEA_FAULT_UNSUPPORTED, messages_name,
                                   "messages cannot be rendered: %s", api->chat_error);
    return ALEA_OK;
}

/* ---- rendering ---- */

/* One rendering: what it reads, and what must be given back. */
typedef struct rendering {
    alea_json_writer messages, tools, documents, variables;
    alea_chat_template *own; /* of the request; NULL: the model's is used */
    alea_chat_text *text;
    alea_bytes last; /* content of the last message */
} rendering;

static void free_rendering(rendering *r) {
    alea__json_write_free(&r->messages);
    alea__json_write_free(&r->tools);
    alea__json_write_free(&r->documents);
    alea__json_write_free(&r->variables);
    alea__chat_template_destroy(r->own);
    alea__chat_text_free(r->text);
}

static alea_status template_fault(alea_status status, const alea_error *why, const char *param,
                                  alea_api_error *error) {
    if (status == ALEA_ENOMEM) return alea__api_no_memory(error);
    return alea__api_error_set(error, ALEA_FAULT_VALUE, param, "%s", why->message);
}

static alea_bytes written(const alea_json_writer *writer) {
    return (alea_bytes){(const uint8_t *)writer->data, writer->length};
}

static alea_status render(const alea_api *api, const alea_api_values *values, int64_t now_s,
                          rendering *r, alea_api_error *error) {
    alea_error why = {.status = ALEA_OK, .message = ""};
    alea_status status;
    if (values->chat_template.given) {
        alea_token_info bos = {.name = {NULL, 0}}, eos = {.name = {NULL, 0}};
        (void)(alea_core_token(api->core, api->info.bos, &bos) < 0);
        (void)(alea_core_token(api->core, api->info.eos, &eos) < 0);
        status = alea__chat_template_create(values->chat_template.value, bos.name, eos.name,
                                            &r->own, &why);
        if (status < 0) return template_fault(status, &why, "chat_template", error);
    }
    const alea_chat_input input = {
        .messages = written(&r->messages),
        .tools = written(&r->tools),
        .documents = written(&r->documents),
        .variables = written(&r->variables),
        .now_s = now_s,
        .add_generation_prompt =
            !values->add_generation_prompt.given || values->add_generation_prompt.value,
    };
    status = alea__chat_template_render(r->own ? r->own : api->chat, &input, NULL, &r->text, &why);
    return status < 0 ? template_fault(status, &why, messages_name, error) : ALEA_OK;
}

static alea_status write_inputs(const alea_api_values *values, alea_arena *arena, rendering *r,
                                alea_api_error *error) {
    const alea_status status =
        write_messages(&r->messages, values->messages, arena, &r->last, error);
    if (status < 0) return status;
    if (values->tools) alea__api_copy_value(&r->tools, values->tools);
    if (values->documents) alea__api_copy_value(&r->documents, values->documents);
    write_variables(&r->variables, values);
    if (alea__json_finish(&r->messages) < 0 || alea__json_finish(&r->tools) < 0 ||
        alea__json_finish(&r->documents) < 0 || alea__json_finish(&r->variables) < 0)
        return alea__api_no_memory(error);
    return ALEA_OK;
}

/* ---- the end of the prompt ---- */

static bool is_blank(uint8_t c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void copy_backwards(uint8_t *to, alea_bytes from) {
    for (size_t i = 0; i < from.length; i++)
        to[i] = from.data[from.length - 1 - i];
}

/* The last place of `part` in `text`, SIZE_MAX: none. Backwards, so that memmem can do it in time
 * linear in both: a template may drop the content of a message that repeats itself for megabytes.
 */
static alea_status last_place(alea_bytes text, alea_bytes part, alea_arena *arena, size_t *place) {
    uint8_t *backwards = alea__arena_alloc(arena, text.length + part.length);
    if (!backwards) return ALEA_ENOMEM;
    copy_backwards(backwards, text);
    copy_backwards(backwards + text.length, part);
    const uint8_t *found = memmem(backwards, text.length, backwards + text.length, part.length);
    *place = found ? text.length - (size_t)(found - backwards) - part.length : SIZE_MAX;
    return ALEA_OK;
}

/* Where the text ends if it is to be continued behind `content`: at the last place where it stands,
 * with the blanks at its end only where the template kept them. SIZE_MAX: it stands nowhere. */
static alea_status end_behind(alea_bytes text, alea_bytes content, alea_arena *arena, size_t *end) {
    size_t first = 0, length = content.length;
    while (first < length && is_blank(content.data[first]))
        first++;
    while (length > first && is_blank(content.data[length - 1]))
        length--;
    *end = SIZE_MAX;
    if (first == length) return ALEA_OK; /* content.data may be NULL then */
    const alea_bytes core = {content.data + first, length - first};
    size_t at;
    const alea_status status = last_place(text, core, arena, &at);
    if (status < 0 || at == SIZE_MAX) return status;
    const size_t tail = content.length - first;
    const bool kept = text.length - at >= tail && !memcmp(text.data + at, core.data, tail);
    *end = at + (kept ? tail : core.length);
    return ALEA_OK;
}

/* The whole text in one piece, in the arena. */
static alea_status join_spans(const alea_chat_text *text, alea_arena *arena, alea_bytes *out,
                              alea_api_error *error) {
    uint8_t *joined = alea__arena_alloc(arena, text->bytes + 1);
    if (!joined) return alea__api_no_memory(error);
    size_t at = 0;
    for (size_t i = 0; i < text->n_spans; i++) {
        memcpy(joined + at, text->spans[i].text.data, text->spans[i].text.length);
        at += text->spans[i].text.length;
    }
    *out = (alea_bytes){joined, at};
    return ALEA_OK;
}

/* A view of the first `bytes` bytes of a text. */
static alea_status cut_spans(const alea_chat_text *text, size_t bytes, alea_arena *arena,
                             alea_chat_text *out, alea_api_error *error) {
    alea_chat_span *spans = alea__arena_array(arena, text->n_spans, sizeof *spans);
    if (!spans) return alea__api_no_memory(error);
    size_t left = bytes, n = 0;
    for (; n < text->n_spans && left > 0; n++) {
        spans[n] = text->spans[n];
        if (spans[n].text.length > left) spans[n].text.length = left;
        left -= spans[n].text.length;
    }
    *out = (alea_chat_text){.spans = spans, .n_spans = n, .bytes = bytes};
    return ALEA_OK;
}

static alea_status finish_text(const alea_api_values *values, const rendering *r, alea_arena *arena,
                               alea_chat_text *view, alea_bytes *text, alea_api_error *error) {
    alea_bytes joined;
    *view = *r->text;
    if (!values->continue_final_message.value && !text) return ALEA_OK;
    alea_status status = join_spans(r->text, arena, &joined, error);
    if (status < 0) return status;
    if (values->continue_final_message.value) {
        size_t end;
        if (end_behind(joined, r->last, arena, &end) < 0) return alea__api_no_memory(error);
        if (end == SIZE_MAX)
            return alea__api_refuse(
                error, "continue_final_message",
                "the last message has no content that the template shows, so it cannot "
                "be continued");
        joined.length = end;
        status = cut_spans(r->text, end, arena, view, error);
    }
    if (text) *text = joined;
    return status;
}

/* ---- the whole ---- */

static alea_status encode(const alea_api *api, const alea_api_values *values,
                          const alea_chat_text *view, alea_arena *arena, alea_token_list *out,
                          alea_api_error *error) {
    const bool add = values->add_special_tokens.given && values->add_special_tokens.value;
    int32_t *tokens = NULL;
    size_t count = 0;
    alea_error why = {.status = ALEA_OK, .message = ""};
    alea_status status =
        alea__chat_tokenize(api->chat_tokenizer, view, add, TOKENS_MAX, &tokens, &count, &why);
    if (status < 0) return template_fault(status, &why, messages_name, error);
    int32_t *kept = alea__arena_array(arena, count, sizeof *kept);
    if (kept && count) memcpy(kept, tokens, count * sizeof *kept);
    free(tokens);
    if (!kept) return alea__api_no_memory(error);
    if (count == 0)
        return alea__api_refuse(error, messages_name, "the rendered messages have no tokens");
    *out = (alea_token_list){kept, (int32_t)count};
    return ALEA_OK;
}

alea_status alea__api_chat_encode(const alea_api *api, const alea_api_values *values, int64_t now_s,
                                  bool must_fit, alea_arena *arena, alea_token_list *out,
                                  alea_bytes *text, alea_api_error *error) {
    alea_status status = check_modes(api, values, error);
    if (status < 0) return status;
    rendering r = {.last = {NULL, 0}};
    alea__json_write_to_buffer(&r.messages, ALEA_API_BODY_BYTES_MAX);
    alea__json_write_to_buffer(&r.tools, ALEA_API_BODY_BYTES_MAX);
    alea__json_write_to_buffer(&r.documents, ALEA_API_BODY_BYTES_MAX);
    alea__json_write_to_buffer(&r.variables, ALEA_API_BODY_BYTES_MAX);
    status = write_inputs(values, arena, &r, error);
    if (status >= 0) status = render(api, values, now_s, &r, error);
    alea_chat_text view = {NULL, 0, 0};
    if (status >= 0) status = finish_text(values, &r, arena, &view, text, error);
    if (status >= 0 && must_fit &&
        view.bytes / (size_t)api->info.context_tokens > api->token_bytes_max)
        status = alea__api_error_set(error, ALEA_FAULT_CONTEXT, messages_name,
                                     "the rendered messages have %zu bytes, which cannot fit the "
                                     "context of %d tokens",
                                     view.bytes, api->info.context_tokens);
    if (status >= 0) status = encode(api, values, &view, arena, out, error);
    free_rendering(&r);
    return status;
}

alea_bytes alea__api_chat_role(const alea_api_values *values) {
    const alea_bytes assistant = alea__api_bytes("assistant");
    if (!values->add_generation_prompt.given || values->add_generation_prompt.value)
        return assistant;
    alea_bytes role = assistant;
    for (alea_json_walk walk = alea__json_walk(values->messages); alea__json_next(&walk);)
        (void)string_member(walk.value, "role", &role);
    return role;
}
