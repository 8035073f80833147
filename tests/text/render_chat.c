/*
 * Renders chats for test_chat_templates.py. One JSON object a line in, one out: in, "template",
 * "bos", "eos", "add_generation_prompt", and "messages", "tools", "documents", "variables" as JSON
 * texts; out, "spans" as [text, from_input] pairs, or "error" and "status".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/chat_template.h"
#include "json/json_read.h"
#include "json/json_write.h"

static alea_bytes member(const alea_json_value *line, const char *name) {
    const alea_json_value *value = alea__json_given(line, name);
    alea_bytes text = {0};
    if (value != NULL && alea__json_get_string(value, name, &text, NULL) < 0) exit(2);
    return text;
}

static int64_t number(const alea_json_value *line, const char *name) {
    const alea_json_value *value = alea__json_given(line, name);
    int64_t result = 0;
    if (value != NULL && alea__json_get_int(value, name, 0, INT64_MAX, &result, NULL) < 0) exit(2);
    return result;
}

static void put_text(alea_json_writer *out, const alea_chat_text *text) {
    alea__json_key(out, "spans");
    alea__json_begin_array(out);
    for (size_t i = 0; i < text->n_spans; i++) {
        alea__json_begin_array(out);
        alea__json_string(out, text->spans[i].text);
        alea__json_bool(out, text->spans[i].from_input);
        alea__json_end_array(out);
    }
    alea__json_end_array(out);
}

static alea_status render(const alea_json_value *line, alea_json_writer *out, alea_error *error) {
    alea_chat_template *chat = NULL;
    alea_status status = alea__chat_template_create(member(line, "template"), member(line, "bos"),
                                                    member(line, "eos"), &chat, error);
    if (status < 0) return status;
    const alea_chat_limits limits = {
        .steps_max = (uint64_t)number(line, "steps_max"),
        .memory_bytes_max = (uint64_t)number(line, "memory_bytes_max"),
        .output_bytes_max = (uint64_t)number(line, "output_bytes_max"),
        .time_ms_max = (int32_t)number(line, "time_ms_max"),
    };
    const alea_chat_input input = {
        .messages = member(line, "messages"),
        .tools = member(line, "tools"),
        .documents = member(line, "documents"),
        .variables = member(line, "variables"),
        .now_s = number(line, "now_s"),
        .add_generation_prompt = alea__json_given(line, "add_generation_prompt") != NULL,
    };
    alea_chat_text *text = NULL;
    status = alea__chat_template_render(chat, &input, &limits, &text, error);
    if (status == ALEA_OK) put_text(out, text);
    alea__chat_text_free(text);
    alea__chat_template_destroy(chat);
    return status;
}

int main(void) {
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    alea_json_writer out;
    alea__json_write_to_buffer(&out, (size_t)1 << 30);
    while ((length = getline(&line, &capacity, stdin)) > 0) {
        alea_json_document *document = NULL;
        alea_error error = {0};
        const alea_bytes bytes = {.data = (const uint8_t *)line, .length = (size_t)length};
        if (alea__json_parse(bytes, bytes.length, &document, &error) < 0) {
            fprintf(stderr, "render_chat: %s\n", error.message);
            return 2;
        }
        alea__json_write_reset(&out);
        alea__json_begin_object(&out);
        const alea_status status = render(alea__json_root(document), &out, &error);
        if (status < 0) {
            alea__json_key(&out, "error");
            alea__json_cstring(&out, error.message);
            alea__json_key(&out, "status");
            alea__json_int(&out, status);
        }
        alea__json_end_object(&out);
        if (alea__json_finish(&out) < 0) return 2;
        printf("%.*s\n", (int)out.length, out.data);
        fflush(stdout);
        alea__json_free(document);
    }
    alea__json_write_free(&out);
    free(line);
    return 0;
}
