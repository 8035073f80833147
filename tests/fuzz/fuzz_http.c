/*
 * libFuzzer target: a request means the same however it was cut, and what follows it is left for
 * the next. The first byte of the input says how it is cut.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_parser.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) __builtin_trap();
}

static const alea_http_limits limits = {.header_bytes = 512, .body_bytes = 256};

static void check_request(const alea_http_parser *parser) {
    check(parser->head_complete && parser->refusal == 0);
    check(parser->body.length <= limits.body_bytes);
    check(parser->head.length <= limits.header_bytes);
    const char *path = parser->head.data + parser->path_at;
    check(path[0] == '/' || strcmp(path, "*") == 0);
    check(strlen(path) + strlen(parser->head.data + parser->query_at) < parser->head.length);
    (void)alea__http_parser_header(parser, "");
    const char *host = alea__http_parser_header(parser, "host");
    check(host || parser->llhttp.http_minor == 0);
    check(!alea__http_parser_header(parser, "transfer-encoding") ||
          !alea__http_parser_header(parser, "content-length"));
}

/* Each part in memory of its own size, so that a read behind it is seen. */
static alea_status feed(alea_http_parser *parser, const uint8_t *data, size_t size, size_t step,
                        size_t *used) {
    alea_status status = ALEA_MORE;
    *used = 0;
    while (status == ALEA_MORE && *used < size) {
        const size_t part = step < size - *used ? step : size - *used;
        char *copy = malloc(part);
        memcpy(copy, data + *used, part);
        size_t consumed = 0;
        status = alea__http_parser_feed(parser, copy, part, &consumed);
        check(consumed <= part);
        check(status != ALEA_MORE || consumed == part);
        free(copy);
        *used += consumed;
    }
    return status;
}

static bool equal(const alea_http_buffer *a, const alea_http_buffer *b) {
    return a->length == b->length && (a->length == 0 || memcmp(a->data, b->data, a->length) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    const size_t step = 1 + data[0] % 16;
    data++;
    size--;
    alea_http_parser whole, cut;
    alea__http_parser_init(&whole, &limits);
    alea__http_parser_init(&cut, &limits);
    while (size > 0) {
        size_t used = 0, used_cut = 0;
        const alea_status status = feed(&whole, data, size, size, &used);
        check(feed(&cut, data, size, step, &used_cut) == status);
        check(whole.refusal == cut.refusal);
        if (status < 0) check(whole.refusal >= 400 && whole.reason);
        if (status != ALEA_DONE) break;
        check(used == used_cut && used > 0);
        check(whole.keep_alive == cut.keep_alive);
        check(equal(&whole.head, &cut.head) && equal(&whole.body, &cut.body));
        check_request(&whole);
        if (!whole.keep_alive) break;
        alea__http_parser_reset(&whole);
        alea__http_parser_reset(&cut);
        data += used;
        size -= used;
    }
    alea__http_parser_free(&whole);
    alea__http_parser_free(&cut);
    return 0;
}
