/* The writer. Every byte passes `put` or `put_plain`; every value passes `before_value`. */
#include "json/json_write.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "json/json_number.h"

static void fail(alea_json_writer *w, alea_status status) {
    if (w->status == ALEA_OK) w->status = status;
}

/* ---- bytes ---- */

static bool grow(alea_json_writer *w, size_t more) {
    if (more > w->bytes_max - w->length) {
        fail(w, ALEA_ELIMIT);
        return false;
    }
    size_t capacity = w->capacity ? w->capacity : 256;
    while (capacity - w->length < more && capacity <= w->bytes_max / 2)
        capacity *= 2;
    if (capacity - w->length < more) capacity = w->bytes_max;
    if (capacity > w->bytes_max) capacity = w->bytes_max;
    char *data = realloc(w->data, capacity);
    if (!data) {
        fail(w, ALEA_ENOMEM);
        return false;
    }
    w->data = data;
    w->capacity = capacity;
    return true;
}

static void send(alea_json_writer *w) {
    if (w->status < 0 || !w->length) return;
    const alea_status status = w->flush(w->flush_user, w->data, w->length);
    w->length = 0;
    if (status != ALEA_OK) fail(w, status < 0 ? status : ALEA_EIO);
}

static void put_in_parts(alea_json_writer *w, const char *data, size_t n) {
    if (!w->flush && w->status == ALEA_OK && n > w->capacity - w->length && !grow(w, n)) return;
    while (n && w->status == ALEA_OK) {
        if (w->length == w->capacity) send(w); /* never in a growing buffer */
        const size_t room = w->capacity - w->length, part = n < room ? n : room;
        memcpy(w->data + w->length, data, part);
        w->length += part;
        data += part;
        n -= part;
    }
}

/* Mostly there is room. */
static inline void put(alea_json_writer *w, const char *data, size_t n) {
    if (!n || n > w->capacity - w->length || w->status != ALEA_OK) {
        put_in_parts(w, data, n);
        return;
    }
    memcpy(w->data + w->length, data, n);
    w->length += n;
}

static void put_char(alea_json_writer *w, char c) {
    put(w, &c, 1);
}

/* ---- structure ---- */

static uint64_t bit(int32_t depth) {
    return UINT64_C(1) << depth;
}

static bool inside(const alea_json_writer *w, bool object) {
    return w->depth && object == !!(w->is_object & bit(w->depth - 1));
}

static void put_comma(alea_json_writer *w) {
    if (!w->depth) return;
    if (w->has_items & bit(w->depth - 1)) put_char(w, ',');
    w->has_items |= bit(w->depth - 1);
}

/* A comma where one is due; refuses a value where JSON has no place for one. */
static bool before_value(alea_json_writer *w) {
    if (inside(w, true) ? !w->after_key : !w->depth && w->document_done) fail(w, ALEA_EINVAL);
    if (w->status < 0) return false;
    if (!w->after_key) put_comma(w);
    w->after_key = false;
    return true;
}

static void after_value(alea_json_writer *w) {
    w->document_done = !w->depth;
}

static void begin(alea_json_writer *w, bool object) {
    if (w->depth == ALEA_JSON_WRITE_DEPTH_MAX) fail(w, ALEA_ELIMIT);
    if (!before_value(w)) return;
    const uint64_t here = bit(w->depth);
    w->is_object = object ? w->is_object | here : w->is_object & ~here;
    w->has_items &= ~here;
    w->depth++;
    put_char(w, object ? '{' : '[');
}

static void end(alea_json_writer *w, bool object) {
    if (!inside(w, object) || w->after_key) fail(w, ALEA_EINVAL);
    if (w->status < 0) return;
    put_char(w, object ? '}' : ']');
    w->depth--;
    after_value(w);
}

void alea__json_begin_object(alea_json_writer *w) {
    begin(w, true);
}

void alea__json_end_object(alea_json_writer *w) {
    end(w, true);
}

void alea__json_begin_array(alea_json_writer *w) {
    begin(w, false);
}

void alea__json_end_array(alea_json_writer *w) {
    end(w, false);
}

void alea__json_newline(alea_json_writer *w) {
    if (w->depth || !w->document_done) fail(w, ALEA_EINVAL);
    if (w->status < 0) return;
    put_char(w, '\n');
    w->document_done = false;
}

/* ---- values ---- */

static void put_scalar(alea_json_writer *w, const char *text, size_t length) {
    if (!before_value(w)) return;
    put(w, text, length);
    after_value(w);
}

void alea__json_null(alea_json_writer *w) {
    put_scalar(w, "null", 4);
}

void alea__json_bool(alea_json_writer *w, bool value) {
    put_scalar(w, value ? "true" : "false", value ? 4 : 5);
}

void alea__json_int(alea_json_writer *w, int64_t value) {
    char text[ALEA_JSON_NUMBER_BYTES];
    put_scalar(w, text, alea__json_int64(value, text));
}

void alea__json_uint(alea_json_writer *w, uint64_t value) {
    char text[ALEA_JSON_NUMBER_BYTES];
    put_scalar(w, text, alea__json_uint64(value, text));
}

/* A length of 0: the number has no JSON text. */
static void put_number(alea_json_writer *w, const char *text, size_t length, alea_status none) {
    if (!length)
        fail(w, none);
    else
        put_scalar(w, text, length);
}

void alea__json_float(alea_json_writer *w, float value) {
    char text[ALEA_JSON_NUMBER_BYTES];
    put_number(w, text, alea__json_float32(value, text), ALEA_EINVAL);
}

void alea__json_double(alea_json_writer *w, double value) {
    char text[ALEA_JSON_NUMBER_BYTES];
    put_number(w, text, alea__json_float64(value, text), ALEA_EINVAL);
}

void alea__json_logprob_value(alea_json_writer *w, float logprob) {
    char text[ALEA_JSON_NUMBER_BYTES];
    put_number(w, text, alea__json_logprob(logprob, text), ALEA_EROW);
}

static bool needs_escape(uint8_t c) {
    return c < 0x20 || c == '"' || c == '\\';
}

static void put_escape(alea_json_writer *w, uint8_t c) {
    static const char digits[] = "0123456789abcdef";
    static const char letters[] = "btn?fr"; /* 8 to 13; 11 has no letter */
    if (c == '"' || c == '\\') {
        put(w, (const char[]){'\\', (char)c}, 2);
    } else if (c >= 8 && c <= 13 && c != 11) {
        put(w, (const char[]){'\\', letters[c - 8]}, 2);
    } else {
        put(w, (const char[]){'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]}, 6);
    }
}

/* Whether eight bytes are ASCII that needs no escape. A borrow reaches a byte only from one that
 * fails itself. */
static bool all_plain(uint64_t eight) {
    const uint64_t each = UINT64_C(0x0101010101010101);
    const uint64_t fails = eight | (eight - 0x20 * each) | ((eight ^ '"' * each) - each) |
                           ((eight ^ '\\' * each) - each);
    return !(fails & 0x80 * each);
}

/* Most strings are short, plain and fit: they are written as they are looked at. False, and
 * nothing written: this one needs more care. */
static bool put_plain(alea_json_writer *w, alea_bytes text) {
    const size_t room = w->capacity - w->length;
    if (w->status != ALEA_OK || room < 2 || text.length > room - 2) return false;
    char *to = w->data + w->length;
    size_t at = 0;
    *to++ = '"';
    for (uint64_t eight; text.length - at >= sizeof eight; at += sizeof eight) {
        memcpy(&eight, text.data + at, sizeof eight);
        if (!all_plain(eight)) return false;
        memcpy(to + at, &eight, sizeof eight);
    }
    for (; at < text.length; at++) {
        const uint8_t c = text.data[at];
        if (c >= 0x80 || needs_escape(c)) return false;
        to[at] = (char)c;
    }
    to[at] = '"';
    w->length += text.length + 2;
    return true;
}

/* U+0085, U+2028 and U+2029 end a line for some readers of streams, which would cut the document
 * there. The escape of such a character at the start of valid UTF-8, or NULL. */
static const char *line_end_escape(const uint8_t *at) {
    if (at[0] == 0xC2) return at[1] == 0x85 ? "\\u0085" : NULL;
    if (at[0] != 0xE2 || at[1] != 0x80) return NULL;
    if (at[2] == 0xA8) return "\\u2028";
    return at[2] == 0xA9 ? "\\u2029" : NULL;
}

/* The end of the bytes from `at` on that stand for themselves, with the escape that follows them.
 */
static size_t skip_plain(alea_bytes text, size_t at, const char **line_end) {
    for (; at < text.length; at++) {
        const uint8_t c = text.data[at];
        if (c < 0x80 ? needs_escape(c) : (*line_end = line_end_escape(text.data + at)) != NULL)
            break;
    }
    return at;
}

static void put_quoted(alea_json_writer *w, alea_bytes text) {
    if (put_plain(w, text)) return;
    if (!alea__utf8_valid(text)) {
        fail(w, ALEA_EFORMAT);
        return;
    }
    put_char(w, '"');
    for (size_t at = 0; at < text.length;) {
        const char *line_end = NULL;
        const size_t plain = skip_plain(text, at, &line_end);
        put(w, (const char *)text.data + at, plain - at);
        at = plain;
        if (at == text.length) break;
        if (line_end) {
            put(w, line_end, 6);
            at += text.data[at] == 0xC2 ? 2 : 3;
        } else {
            put_escape(w, text.data[at++]);
        }
    }
    put_char(w, '"');
}

void alea__json_string(alea_json_writer *w, alea_bytes text) {
    if (!before_value(w)) return;
    put_quoted(w, text);
    after_value(w);
}

static alea_bytes bytes_of(const char *text) {
    return (alea_bytes){(const uint8_t *)text, strlen(text)};
}

void alea__json_cstring(alea_json_writer *w, const char *text) {
    alea__json_string(w, bytes_of(text));
}

void alea__json_key_bytes(alea_json_writer *w, alea_bytes name) {
    if (!inside(w, true) || w->after_key) fail(w, ALEA_EINVAL);
    if (w->status < 0) return;
    put_comma(w);
    put_quoted(w, name);
    put_char(w, ':');
    w->after_key = true;
}

void alea__json_key(alea_json_writer *w, const char *name) {
    alea__json_key_bytes(w, bytes_of(name));
}

void alea__json_byte_array(alea_json_writer *w, alea_bytes bytes) {
    alea__json_begin_array(w);
    for (size_t i = 0; i < bytes.length; i++)
        alea__json_uint(w, bytes.data[i]);
    alea__json_end_array(w);
}

void alea__json_document(alea_json_writer *w, alea_bytes document) {
    put_scalar(w, (const char *)document.data, document.length);
}

/* ---- life ---- */

void alea__json_write_to_buffer(alea_json_writer *w, size_t bytes_max) {
    *w = (alea_json_writer){.bytes_max = bytes_max, .status = ALEA_OK};
}

void alea__json_write_to_flush(alea_json_writer *w, char *buffer, size_t capacity,
                               alea_json_flush flush, void *user) {
    *w = (alea_json_writer){.data = buffer,
                            .capacity = capacity,
                            .flush = flush,
                            .flush_user = user,
                            .status = ALEA_OK};
}

void alea__json_write_reset(alea_json_writer *w) {
    w->length = 0;
    w->status = ALEA_OK;
    w->depth = 0;
    w->after_key = w->document_done = false;
}

void alea__json_write_free(alea_json_writer *w) {
    if (!w->flush) free(w->data);
    alea__json_write_to_buffer(w, w->bytes_max);
}

alea_status alea__json_finish(alea_json_writer *w) {
    if (w->depth) fail(w, ALEA_EINVAL);
    if (w->flush) send(w);
    return w->status;
}

/* ---- members ---- */

void alea__json_put_cstring(alea_json_writer *w, const char *name, const char *text) {
    alea__json_key(w, name);
    alea__json_cstring(w, text);
}

void alea__json_put_int(alea_json_writer *w, const char *name, int64_t value) {
    alea__json_key(w, name);
    alea__json_int(w, value);
}

void alea__json_put_bool(alea_json_writer *w, const char *name, bool value) {
    alea__json_key(w, name);
    alea__json_bool(w, value);
}

void alea__json_put_null(alea_json_writer *w, const char *name) {
    alea__json_key(w, name);
    alea__json_null(w);
}
