/* The reader on what a stranger may send, every error with its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json/json_copy.h"
#include "json/json_read.h"

enum { LIMIT = 1 << 20 };

#define BYTES(literal) ((alea_bytes){(const uint8_t *)(literal), sizeof(literal) - 1})

static alea_bytes bytes_of(const char *text) {
    return (alea_bytes){(const uint8_t *)text, strlen(text)};
}

static alea_json_document *parse(const char *text) {
    alea_json_document *document = NULL;
    alea_error error = {.status = ALEA_OK};
    if (alea__json_parse(bytes_of(text), LIMIT, &document, &error) < 0)
        fail_msg("%s: %s", text, error.message);
    return document;
}

static void check_refused(alea_bytes text, alea_status status, const char *message) {
    alea_json_document *document = NULL;
    alea_error error = {.status = ALEA_OK};
    const alea_status got = alea__json_parse(text, LIMIT, &document, &error);
    if (got != status || !strstr(error.message, message) || document)
        fail_msg("%.*s: status %d, \"%s\" lacks \"%s\"", (int)text.length, (const char *)text.data,
                 (int)got, error.message, message);
    assert_int_equal(alea__json_parse(text, LIMIT, &document, NULL), status);
}

static void test_every_refusal_names_its_place(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "line 1, column 1: there is nothing to read"},
        {"  \n ", "line 1, column 1: input data is empty"},
        {"{\"a\":1,}", "line 1, column 7: "},
        {"[1,2,]", "line 1, column 5: "},
        {"{\"a\":1}x", "line 1, column 8: "},
        {"{\"a\":1} {}", "line 1, column 9: "},
        {"{a:1}", "line 1, column 2: "},
        {"{'a':1}", "line 1, column 2: "},
        {"{\"a\" 1}", "line 1, column 6: "},
        {"[1 2]", "line 1, column 4: "},
        {"[01]", "line 1, column 2: number with leading zero"},
        {"[1.]", "line 1, column 4: "},
        {"[.5]", "line 1, column 2: "},
        {"[+1]", "line 1, column 2: "},
        {"[1e]", "line 1, column 4: "},
        {"[0x10]", "line 1, column 3: "},
        {"[NaN]", "line 1, column 2: "},
        {"[Infinity]", "line 1, column 2: "},
        {"[-Infinity]", "line 1, column 3: "},
        {"[nul]", "line 1, column 2: "},
        {"[True]", "line 1, column 2: "},
        {"// c\n[1]", "line 1, column 1: "},
        {"[1] // c", "line 1, column 5: "},
        {"\"a", "line 1, column"},
        {"[\"a\nb\"]", "line 1, column 4: "},
        {"[\"\t\"]", "line 1, column 3: "},
        {"[\"\\x41\"]", "line 1, column 4: "},
        {"[\"\\u12\"]", "line 1, column"},
        {"[\"\\ud800\"]", "line 1, column"},
        {"[\"\\ud800\\u0041\"]", "line 1, column"},
        {"[\"\\udc00\"]", "line 1, column"},
        {"[\"\x80\"]", "line 1, column"},
        {"[\"\xC0\xAF\"]", "line 1, column"},
        {"[\"\xED\xA0\x80\"]", "line 1, column"},
        {"[\"\xF4\x90\x80\x80\"]", "line 1, column"},
        {"\xEF\xBB\xBF[1]", "line 1, column"},
        {"{\"é\":\n\n  中}", "line 3, column 3: "},
        {"{\"a\":1,\n \"b\":2,\n \"a\":3}", "line 3, column 2: key \"a\" is there twice"},
        {"[{\"x\":{\"k\":0,\"\\u006b\":1}}]", "line 1, column 14: key \"k\" is there twice"},
        {"{\"\":1,\"\":2}", "line 1, column 7: key \"\" is there twice"},
        {"[1,18446744073709551616]", "line 1, column 4: number is out of range"},
        {"[-9223372036854775809]", "line 1, column 2: number is out of range"},
        {"[\n1e400]", "line 2, column 1: number is out of range"},
        {"[-1e309]", "line 1, column 2: number is out of range"},
        {"]", "line 1, column 1: "},
        {"[", "line 1, column"},
        {"{\"a\":", "line 1, column"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_refused(bytes_of(cases[i].text), ALEA_EFORMAT, cases[i].message);
    check_refused(BYTES("[1]\0"), ALEA_EFORMAT, "line 1, column 4: ");
    check_refused(BYTES("\0"), ALEA_EFORMAT, "line 1, column 1: ");
    check_refused(BYTES("{\"a\\u0000b\":1,\"a\\u0000b\":2}"), ALEA_EFORMAT, "line 1, column 15: ");
}

static void test_keys_that_differ_only_behind_a_nul_are_two_keys(void **state) {
    (void)state;
    alea_json_document *document = parse("{\"a\\u0000b\":1,\"a\\u0000c\":2,\"a\":3}");
    assert_int_equal(alea__json_size(alea__json_root(document)), 3);
    alea__json_free(document);
}

static void test_nesting_is_limited_before_anything_is_built(void **state) {
    (void)state;
    char text[256];
    memset(text, '[', 65);
    memset(text + 64, ']', 64);
    check_refused((alea_bytes){(const uint8_t *)text, 63}, ALEA_EFORMAT, "line 1");
    alea_json_document *document = NULL;
    assert_int_equal(
        alea__json_parse((alea_bytes){(const uint8_t *)text, 128}, LIMIT, &document, NULL),
        ALEA_OK);
    alea__json_free(document);

    memset(text, '[', 128);
    check_refused((alea_bytes){(const uint8_t *)text, 128}, ALEA_ELIMIT,
                  "line 1, column 65: nested deeper than 64 levels");
    const char *brackets =
        "[\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[\"]";
    alea__json_free(parse(brackets));

    const size_t n = 1 << 20;
    char *deep = malloc(n);
    memset(deep, '{', n);
    check_refused((alea_bytes){(const uint8_t *)deep, n}, ALEA_ELIMIT, "column 65");
    free(deep);
}

static void test_size_is_limited(void **state) {
    (void)state;
    alea_json_document *document = NULL;
    alea_error error;
    assert_int_equal(alea__json_parse(BYTES("[1,2]"), 4, &document, &error), ALEA_ELIMIT);
    assert_string_equal(error.message, "JSON of 5 bytes; the limit is 4");
    assert_null(document);
    assert_int_equal(alea__json_parse(BYTES("[1,2]"), 5, &document, &error), ALEA_OK);
    alea__json_free(document);
}

static void test_a_large_object_with_a_duplicate_is_found_quickly(void **state) {
    (void)state;
    const int n = 60000; /* pair by pair these would be 1.8 billion comparisons */
    char *text = malloc((size_t)n * 16 + 64);
    size_t length = 0;
    text[length++] = '{';
    for (int i = 0; i < n; i++)
        length += (size_t)sprintf(text + length, "\"key%d\":0,", i);
    length += (size_t)sprintf(text + length, "\"key31\":1}");
    check_refused((alea_bytes){(const uint8_t *)text, length}, ALEA_EFORMAT,
                  "key \"key31\" is there twice");
    free(text);
}

static void test_getters_take_exactly_what_they_name(void **state) {
    (void)state;
    alea_json_document *document = parse(
        "{\"t\":true,\"i\":-5,\"big\":18446744073709551615,\"max\":9223372036854775807,\"r\":1.0,"
        "\"e\":1e2,\"s\":\"a\\u0000b\",\"n\":null,\"a\":[1],\"o\":{}}");
    const alea_json_value *root = alea__json_root(document);
    alea_error error;
    bool truth = false;
    int64_t i = 77;
    uint64_t u = 77;
    double d = 77.0;
    alea_bytes s = {NULL, 0};

    assert_int_equal(alea__json_get_bool(alea__json_member(root, "t"), "t", &truth, &error),
                     ALEA_OK);
    assert_true(truth);
    assert_int_equal(alea__json_get_int(alea__json_member(root, "i"), "i", -5, -5, &i, &error), 0);
    assert_int_equal(i, -5);
    i = 77;
    assert_int_equal(
        alea__json_get_int(alea__json_member(root, "i"), "max_tokens", 1, 10, &i, &error),
        ALEA_EINVAL);
    assert_string_equal(error.message, "max_tokens must be an integer in 1..10");
    static const char *const no_ints[] = {"t", "big", "r", "e", "s", "n", "a", "o"};
    for (size_t k = 0; k < sizeof no_ints / sizeof *no_ints; k++)
        assert_int_equal(alea__json_get_int(alea__json_member(root, no_ints[k]), "x", INT64_MIN,
                                            INT64_MAX, &i, NULL),
                         ALEA_EINVAL);
    assert_int_equal(i, 77);
    assert_int_equal(
        alea__json_get_int(alea__json_member(root, "max"), "x", 0, INT64_MAX, &i, NULL), ALEA_OK);
    assert_true(i == INT64_MAX);

    assert_int_equal(
        alea__json_get_uint(alea__json_member(root, "big"), "x", 0, UINT64_MAX, &u, NULL), ALEA_OK);
    assert_true(u == UINT64_MAX);
    assert_int_equal(alea__json_get_uint(alea__json_member(root, "i"), "x", 0, 9, &u, NULL),
                     ALEA_EINVAL);
    assert_int_equal(alea__json_get_uint(alea__json_member(root, "big"), "x", 0, 9, &u, NULL),
                     ALEA_EINVAL);

    assert_int_equal(alea__json_get_double(alea__json_member(root, "e"), "x", 0, 100, &d, NULL), 0);
    assert_true(d == 100.0);
    assert_int_equal(alea__json_get_double(alea__json_member(root, "i"), "x", -5, 0, &d, NULL), 0);
    assert_true(d == -5.0);
    assert_int_equal(alea__json_get_double(alea__json_member(root, "e"), "top_p", 0, 1, &d, &error),
                     ALEA_EINVAL);
    assert_string_equal(error.message, "top_p must be a number in 0..1");
    assert_int_equal(alea__json_get_double(alea__json_member(root, "s"), "x", 0, 1, &d, NULL),
                     ALEA_EINVAL);
    assert_true(d == -5.0);

    assert_int_equal(alea__json_get_string(alea__json_member(root, "s"), "s", &s, NULL), ALEA_OK);
    assert_int_equal(s.length, 3);
    assert_memory_equal(s.data, "a\0b", 3);
    assert_int_equal(alea__json_get_string(alea__json_member(root, "n"), "prompt", &s, &error),
                     ALEA_EINVAL);
    assert_string_equal(error.message, "prompt must be a string");
    assert_int_equal(alea__json_get_bool(alea__json_member(root, "i"), "x", &truth, NULL),
                     ALEA_EINVAL);
    alea__json_free(document);
}

static void test_members_that_are_null_count_as_not_given(void **state) {
    (void)state;
    alea_json_document *document = parse("{\"a\":null,\"b\":0}");
    const alea_json_value *root = alea__json_root(document);
    assert_non_null(alea__json_member(root, "a"));
    assert_null(alea__json_given(root, "a"));
    assert_non_null(alea__json_given(root, "b"));
    assert_null(alea__json_given(root, "c"));
    assert_null(alea__json_member(alea__json_member(root, "b"), "c"));
    alea__json_free(document);
    alea__json_free(NULL);
}

static void test_walks_visit_everything_in_order(void **state) {
    (void)state;
    alea_json_document *document = parse("{\"a\":[1,[2,3],{\"x\":4}],\"b\":5,\"c\":{}}");
    static const char keys[] = "abc";
    size_t n = 0;
    for (alea_json_walk w = alea__json_walk(alea__json_root(document)); alea__json_next(&w); n++) {
        assert_int_equal(w.key.length, 1);
        assert_int_equal(w.key.data[0], keys[n]);
        assert_int_equal(alea__json_size(w.value), n == 0 ? 3 : 0);
    }
    assert_int_equal(n, 3);
    const alea_json_value *five = alea__json_member(alea__json_root(document), "b");
    alea_json_walk nothing = alea__json_walk(five);
    assert_false(alea__json_next(&nothing));
    alea__json_free(document);
}

/* Read, write, read, write: the two texts are the same. */
static bool survives_a_copy(alea_bytes text) {
    alea_json_document *document = NULL;
    if (alea__json_parse(text, LIMIT, &document, NULL) < 0) return false;
    alea_json_writer first, second;
    alea__json_write_to_buffer(&first, LIMIT);
    alea__json_write_to_buffer(&second, LIMIT);
    json_copy(&first, alea__json_root(document));
    assert_int_equal(alea__json_finish(&first), ALEA_OK);
    alea__json_free(document);

    const alea_bytes copy = {(const uint8_t *)first.data, first.length};
    assert_int_equal(alea__json_parse(copy, LIMIT, &document, NULL), ALEA_OK);
    json_copy(&second, alea__json_root(document));
    assert_int_equal(alea__json_finish(&second), ALEA_OK);
    alea__json_free(document);
    assert_int_equal(first.length, second.length);
    assert_memory_equal(first.data, second.data, first.length);
    alea__json_write_free(&first);
    alea__json_write_free(&second);
    return true;
}

static const char body[] = "{ \"model\" : \"m\", \"prompt\":[1,2, "
                           "65535],\"echo\":true,\"logprobs\":5,\"temperature\":0.7,\n"
                           "\"stop\":[\"\\n\",\"\\u00e9\\ud83d\\ude42\",\"中\"],\"logit_bias\":{"
                           "\"50256\":-1e2},\"user\":null}";

static void test_what_was_read_can_be_written_and_read_again(void **state) {
    (void)state;
    assert_true(survives_a_copy(BYTES(body)));
    assert_true(survives_a_copy(BYTES("-0.0")));
    assert_true(survives_a_copy(BYTES("\"\\u0000\\u001f\\\"\\\\\\/\"")));
    assert_true(survives_a_copy(BYTES("[5e-324,1.7976931348623157e308,18446744073709551615]")));
}

static void test_mangled_bodies_are_read_or_refused(void **state) {
    (void)state;
    uint64_t seed = 11;
    size_t n_read = 0;
    for (size_t cut = 0; cut < sizeof body - 1; cut++) { /* exact size, for ASan */
        uint8_t *copy = malloc(cut ? cut : 1);
        memcpy(copy, body, cut);
        assert_false(survives_a_copy((alea_bytes){copy, cut}));
        free(copy);
    }
    static const char favourites[] = "{}[]\",:\\ue0-19.tn \n\x80\xC3\xED\xF0";
    for (int round = 0; round < 30000; round++) {
        uint8_t *copy = malloc(sizeof body - 1);
        memcpy(copy, body, sizeof body - 1);
        for (int i = 0; i <= round % 3; i++) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            const size_t at = (size_t)(seed >> 33) % (sizeof body - 1);
            copy[at] = (uint8_t)favourites[(seed >> 20) % (sizeof favourites - 1)];
        }
        n_read += survives_a_copy((alea_bytes){copy, sizeof body - 1});
        free(copy);
    }
    assert_in_range(n_read, 1000, 29000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_refusal_names_its_place),
        cmocka_unit_test(test_keys_that_differ_only_behind_a_nul_are_two_keys),
        cmocka_unit_test(test_nesting_is_limited_before_anything_is_built),
        cmocka_unit_test(test_size_is_limited),
        cmocka_unit_test(test_a_large_object_with_a_duplicate_is_found_quickly),
        cmocka_unit_test(test_getters_take_exactly_what_they_name),
        cmocka_unit_test(test_members_that_are_null_count_as_not_given),
        cmocka_unit_test(test_walks_visit_everything_in_order),
        cmocka_unit_test(test_what_was_read_can_be_written_and_read_again),
        cmocka_unit_test(test_mangled_bodies_are_read_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
