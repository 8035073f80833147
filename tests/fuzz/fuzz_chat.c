/*
 * libFuzzer target: any template, and any messages behind a zero byte, end in a text or in an error
 * that says where; no text of the template's own holds what only a message holds.
 */
#include <stdint.h>
#include <string.h>

#include "base/utf8.h"
#include "text/chat_template.h"

/* U+E000, which no template of the corpus spells. */
#define MARK "\xEE\x80\x80"
#define EACH(role)                                                                                 \
    "{\"role\":\"" role "\",\"content\":\"" MARK "<|" MARK " a\",\"" MARK "\":[1.5,null]}"

static const char usual[] =
    "[" EACH("system") "," EACH("user") "," EACH("assistant") "," EACH(MARK) "]";
static const char tools[] = "[{\"" MARK "\":{\"name\":\"" MARK "\",\"n\":[true,-3,\"" MARK "\"]}}]";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) __builtin_trap();
}

static void check_text(const alea_chat_text *text, bool may_hold_mark) {
    size_t bytes = 0;
    for (size_t i = 0; i < text->n_spans; i++) {
        const alea_chat_span *span = &text->spans[i];
        check(span->text.length > 0 && alea__utf8_valid(span->text));
        check(i == 0 || span->from_input != span[-1].from_input);
        bytes += span->text.length;
        if (!span->from_input && !may_hold_mark)
            check(memmem(span->text.data, span->text.length, MARK, 3) == NULL);
    }
    check(bytes == text->bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *zero = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t length = zero != NULL ? (size_t)(zero - data) : size;
    const alea_bytes bos = {.data = (const uint8_t *)"<s>", .length = 3};
    alea_chat_template *chat = NULL;
    alea_error error = {0};
    if (alea__chat_template_create((alea_bytes){data, length}, bos, bos, &chat, &error) < 0) {
        check(strstr(error.message, "line ") != NULL && chat == NULL);
        return 0;
    }
    const alea_chat_limits limits = {.steps_max = 200000,
                                     .memory_bytes_max = 1 << 24,
                                     .output_bytes_max = 1 << 18,
                                     .time_ms_max = 2000};
    alea_chat_input input = {
        .messages = {(const uint8_t *)usual, sizeof(usual) - 1},
        .tools = {(const uint8_t *)tools, sizeof(tools) - 1},
        .now_s = 1,
        .add_generation_prompt = size % 2,
    };
    if (zero != NULL && length + 1 < size)
        input.messages = (alea_bytes){data + length + 1, size - length - 1};
    alea_chat_text *text = NULL;
    if (alea__chat_template_render(chat, &input, &limits, &text, &error) < 0) {
        check(error.message[0] != 0 && text == NULL);
    } else {
        check_text(text, size > 0 && memchr(data, 0xEE, size) != NULL);
    }
    alea__chat_text_free(text);
    alea__chat_template_destroy(chat);
    return 0;
}
