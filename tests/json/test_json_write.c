/* The writer: the exact text, whatever the buffer; and a status instead of text that is no JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json/json_write.h"

#define BYTES(literal) ((alea_bytes){(const uint8_t *)(literal), sizeof(literal) - 1})

static const char sample_text[] =
    "{\"id\":7,\"tokens\":[{\"text\":\"a\\\"b\\\\\\n\\u0001\\u000b\\t/\x7f "
    "中🙂\",\"bytes\":[10,240],"
    "\"logprob\":-1.5,\"rank\":3},{}],\"none\":[],\"first\":null,\"greedy\":true,\"last\":false,"
    "\"floor\":-9999.0,\"seed\":18446744073709551615,\"min\":-9223372036854775808,"
    "\"perplexity\":12.25,\"\\u0000\":0.1}\n[1]";

static void write_sample(alea_json_writer *w) {
    alea__json_begin_object(w);
    alea__json_key(w, "id");
    alea__json_int(w, 7);
    alea__json_key(w, "tokens");
    alea__json_begin_array(w);
    alea__json_begin_object(w);
    alea__json_key(w, "text");
    alea__json_cstring(w, "a\"b\\\n\x01\x0b\t/\x7f 中🙂");
    alea__json_key(w, "bytes");
    alea__json_byte_array(w, BYTES("\n\xF0"));
    alea__json_key(w, "logprob");
    alea__json_logprob_value(w, -1.5f);
    alea__json_key(w, "rank");
    alea__json_int(w, 3);
    alea__json_end_object(w);
    alea__json_begin_object(w);
    alea__json_end_object(w);
    alea__json_end_array(w);
    alea__json_key(w, "none");
    alea__json_begin_array(w);
    alea__json_end_array(w);
    alea__json_key(w, "first");
    alea__json_null(w);
    alea__json_key(w, "greedy");
    alea__json_bool(w, true);
    alea__json_key(w, "last");
    alea__json_bool(w, false);
    alea__json_key(w, "floor");
    alea__json_logprob_value(w, -INFINITY);
    alea__json_key(w, "seed");
    alea__json_uint(w, UINT64_MAX);
    alea__json_key(w, "min");
    alea__json_int(w, INT64_MIN);
    alea__json_key(w, "perplexity");
    alea__json_double(w, 12.25);
    alea__json_key_bytes(w, BYTES("\0"));
    alea__json_float(w, 0.1f);
    alea__json_end_object(w);
    alea__json_newline(w);
    alea__json_begin_array(w);
    alea__json_int(w, 1);
    alea__json_end_array(w);
}

static void test_writer_writes_exactly_this(void **state) {
    (void)state;
    alea_json_writer w;
    alea__json_write_to_buffer(&w, 4096);
    for (int i = 0; i < 2; i++) {
        write_sample(&w);
        assert_int_equal(alea__json_finish(&w), ALEA_OK);
        assert_int_equal(w.length, sizeof sample_text - 1);
        assert_memory_equal(w.data, sample_text, sizeof sample_text - 1);
        alea__json_write_reset(&w);
    }
    alea__json_write_free(&w);
}

typedef struct sink {
    char data[1024];
    size_t length;
    size_t fail_after; /* bytes */
    int n_calls;
} sink;

static alea_status take(void *user, const char *data, size_t length) {
    sink *s = user;
    s->n_calls++;
    if (s->length + length > s->fail_after) return ALEA_EIO;
    memcpy(s->data + s->length, data, length);
    s->length += length;
    return ALEA_OK;
}

static void test_flushed_text_is_the_same_for_every_buffer(void **state) {
    (void)state;
    for (size_t capacity = 1; capacity < 600; capacity++) {
        char *buffer = malloc(capacity); /* to the byte, for ASan */
        sink s = {.fail_after = sizeof s.data};
        alea_json_writer w;
        alea__json_write_to_flush(&w, buffer, capacity, take, &s);
        write_sample(&w);
        assert_int_equal(alea__json_finish(&w), ALEA_OK);
        assert_int_equal(s.length, sizeof sample_text - 1);
        assert_memory_equal(s.data, sample_text, sizeof sample_text - 1);
        free(buffer);
    }
}

static void test_a_failing_flush_stops_the_writer(void **state) {
    (void)state;
    for (size_t limit = 0; limit < sizeof sample_text - 1; limit++) {
        char buffer[16];
        sink s = {.fail_after = limit};
        alea_json_writer w;
        alea__json_write_to_flush(&w, buffer, sizeof buffer, take, &s);
        write_sample(&w);
        assert_int_equal(alea__json_finish(&w), ALEA_EIO);
        assert_true(s.length <= limit);
        assert_memory_equal(s.data, sample_text, s.length);
        const int n_calls = s.n_calls;
        assert_int_equal(alea__json_finish(&w), ALEA_EIO);
        assert_int_equal(s.n_calls, n_calls);
    }
}

static void test_a_bound_is_kept_to_the_byte(void **state) {
    (void)state;
    for (size_t limit = 0; limit <= sizeof sample_text; limit++) {
        alea_json_writer w;
        alea__json_write_to_buffer(&w, limit);
        write_sample(&w);
        const bool fits = limit >= sizeof sample_text - 1;
        assert_int_equal(alea__json_finish(&w), fits ? ALEA_OK : ALEA_ELIMIT);
        assert_true(w.length <= limit && w.capacity <= limit);
        alea__json_write_free(&w);
    }
}

/* Each does one thing wrong. */
static void value_without_key(alea_json_writer *w) {
    alea__json_begin_object(w);
    alea__json_int(w, 1);
    alea__json_end_object(w);
}
static void key_without_value(alea_json_writer *w) {
    alea__json_begin_object(w);
    alea__json_key(w, "a");
    alea__json_end_object(w);
}
static void key_in_an_array(alea_json_writer *w) {
    alea__json_begin_array(w);
    alea__json_key(w, "a");
    alea__json_int(w, 1);
    alea__json_end_array(w);
}
static void key_at_the_top(alea_json_writer *w) {
    alea__json_key(w, "a");
    alea__json_int(w, 1);
}
static void two_keys(alea_json_writer *w) {
    alea__json_begin_object(w);
    alea__json_key(w, "a");
    alea__json_key(w, "b");
    alea__json_int(w, 1);
    alea__json_end_object(w);
}
static void crossed_ends(alea_json_writer *w) {
    alea__json_begin_array(w);
    alea__json_end_object(w);
}
static void end_without_begin(alea_json_writer *w) {
    alea__json_end_array(w);
}
static void open_container(alea_json_writer *w) {
    alea__json_begin_array(w);
}
static void two_documents(alea_json_writer *w) {
    alea__json_int(w, 1);
    alea__json_int(w, 2);
}
static void newline_inside(alea_json_writer *w) {
    alea__json_begin_array(w);
    alea__json_newline(w);
    alea__json_end_array(w);
}
static void number_that_is_none(alea_json_writer *w) {
    alea__json_float(w, NAN);
}
static void infinite_number(alea_json_writer *w) {
    alea__json_double(w, (double)-INFINITY);
}
static void bad_logprob(alea_json_writer *w) {
    alea__json_logprob_value(w, NAN);
}
static void infinite_logprob(alea_json_writer *w) {
    alea__json_logprob_value(w, INFINITY);
}
static void broken_string(alea_json_writer *w) {
    alea__json_string(w, BYTES("a\xF0\x9F"));
}
static void surrogate_key(alea_json_writer *w) {
    alea__json_begin_object(w);
    alea__json_key(w, "\xED\xA0\x80");
    alea__json_int(w, 1);
    alea__json_end_object(w);
}
static void too_deep(alea_json_writer *w) {
    for (int i = 0; i <= ALEA_JSON_WRITE_DEPTH_MAX; i++)
        alea__json_begin_array(w);
    for (int i = 0; i <= ALEA_JSON_WRITE_DEPTH_MAX; i++)
        alea__json_end_array(w);
}

static void test_what_is_no_json_is_a_status(void **state) {
    (void)state;
    static const struct {
        void (*write)(alea_json_writer *writer);
        alea_status status;
    } cases[] = {
        {value_without_key, ALEA_EINVAL},
        {key_without_value, ALEA_EINVAL},
        {key_in_an_array, ALEA_EINVAL},
        {key_at_the_top, ALEA_EINVAL},
        {two_keys, ALEA_EINVAL},
        {crossed_ends, ALEA_EINVAL},
        {end_without_begin, ALEA_EINVAL},
        {open_container, ALEA_EINVAL},
        {two_documents, ALEA_EINVAL},
        {newline_inside, ALEA_EINVAL},
        {number_that_is_none, ALEA_EINVAL},
        {infinite_number, ALEA_EINVAL},
        {bad_logprob, ALEA_EROW},
        {infinite_logprob, ALEA_EROW},
        {broken_string, ALEA_EFORMAT},
        {surrogate_key, ALEA_EFORMAT},
        {too_deep, ALEA_ELIMIT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        alea_json_writer w;
        alea__json_write_to_buffer(&w, 4096);
        cases[i].write(&w);
        const alea_status status = alea__json_finish(&w);
        if (status != cases[i].status) fail_msg("case %zu: %d", i, (int)status);
        alea__json_write_free(&w);
    }
}

static void test_the_deepest_nesting_works(void **state) {
    (void)state;
    alea_json_writer w;
    alea__json_write_to_buffer(&w, 4096);
    for (int i = 0; i < ALEA_JSON_WRITE_DEPTH_MAX; i++) {
        if (i % 2) alea__json_key(&w, "k");
        if (i % 2)
            alea__json_begin_array(&w);
        else
            alea__json_begin_object(&w);
    }
    alea__json_int(&w, 1);
    alea__json_int(&w, 2);
    for (int i = ALEA_JSON_WRITE_DEPTH_MAX - 1; i >= 0; i--) {
        if (i % 2)
            alea__json_end_array(&w);
        else
            alea__json_end_object(&w);
    }
    assert_int_equal(alea__json_finish(&w), ALEA_OK);
    assert_int_equal(w.length, 32 * strlen("{\"k\":[]}") + 3);
    alea__json_write_free(&w);
}

static void test_a_line_of_json_has_no_other_line_ends(void **state) {
    (void)state;
    alea_json_writer w;
    alea__json_write_to_buffer(&w, 1024);
    alea__json_cstring(
        &w, "a\xC2\x85\xC2\x86\xE2\x80\xA8\xE2\x80\xA9\xE2\x80\xAA\xE2\x81\xA8z\xC2\x85");
    assert_int_equal(alea__json_finish(&w), ALEA_OK);
    static const char expected[] =
        "\"a\\u0085\xC2\x86\\u2028\\u2029\xE2\x80\xAA\xE2\x81\xA8z\\u0085\"";
    assert_int_equal(w.length, sizeof expected - 1);
    assert_memory_equal(w.data, expected, w.length);
    alea__json_write_free(&w);
}

/* Strings are looked at eight bytes at a time. */
static void test_every_ascii_byte_is_written_right_at_every_place(void **state) {
    (void)state;
    enum { MOST = 18 };
    for (int byte = 0; byte < 0x80; byte++) {
        char escape[8] = {(char)byte};
        if (byte == '"' || byte == '\\') snprintf(escape, sizeof escape, "\\%c", byte);
        if (byte < 0x20) snprintf(escape, sizeof escape, "\\u%04x", (unsigned)byte);
        const char *found = byte ? strchr("b\bt\tn\nf\fr\r", byte) : NULL;
        if (found && byte < 0x20) snprintf(escape, sizeof escape, "\\%c", found[-1]);
        for (size_t n = 1; n <= MOST; n++) {
            for (size_t at = 0; at < n; at++) {
                uint8_t text[MOST];
                char wanted[64];
                memset(text, '~', n);
                text[at] = (uint8_t)byte;
                const int length = snprintf(wanted, sizeof wanted, "[\"%.*s%.*s%.*s\"]", (int)at,
                                            "~~~~~~~~~~~~~~~~~~", 8, escape, (int)(n - 1 - at),
                                            "~~~~~~~~~~~~~~~~~~");
                alea_json_writer w;
                alea__json_write_to_buffer(&w, 1024);
                alea__json_begin_array(&w); /* so that there is a buffer */
                alea__json_string(&w, (alea_bytes){text, n});
                alea__json_end_array(&w);
                assert_int_equal(alea__json_finish(&w), ALEA_OK);
                assert_int_equal(w.length, length);
                assert_memory_equal(w.data, wanted, w.length);
                alea__json_write_free(&w);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writer_writes_exactly_this),
        cmocka_unit_test(test_flushed_text_is_the_same_for_every_buffer),
        cmocka_unit_test(test_a_failing_flush_stops_the_writer),
        cmocka_unit_test(test_a_bound_is_kept_to_the_byte),
        cmocka_unit_test(test_what_is_no_json_is_a_status),
        cmocka_unit_test(test_the_deepest_nesting_works),
        cmocka_unit_test(test_a_line_of_json_has_no_other_line_ends),
        cmocka_unit_test(test_every_ascii_byte_is_written_right_at_every_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
