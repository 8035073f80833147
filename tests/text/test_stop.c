/* The matcher of stop strings, byte by byte, against its definition over the whole stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "text/stop.h"

enum { STREAM_MAX = 120, STRINGS_MAX = 4 };

typedef struct matcher {
    alea_stops stops;
    alea_stop_match match;
    void *links, *matched; /* sized to the byte for ASan */
} matcher;

static matcher open_matcher(const alea_bytes *strings, int32_t n) {
    matcher m = {.links = malloc(alea__stops_bytes(strings, n)),
                 .matched = malloc(alea__stop_match_bytes(n))};
    alea__stops_init(&m.stops, strings, n, m.links);
    alea__stop_match_init(&m.match, n, m.matched);
    return m;
}

static void close_matcher(matcher *m) {
    free(m->links);
    free(m->matched);
}

static bool ends_in(const uint8_t *stream, size_t n, const uint8_t *what, size_t length) {
    return length <= n && memcmp(stream + n - length, what, length) == 0;
}

/* Of the strings in which the stream ends, the longest; the first of equals. */
static int32_t complete_by_definition(const alea_bytes *strings, int32_t n_strings,
                                      const uint8_t *stream, size_t n) {
    int32_t best = -1;
    for (int32_t i = 0; i < n_strings; i++) {
        if (!ends_in(stream, n, strings[i].data, strings[i].length)) continue;
        if (best < 0 || strings[i].length > strings[best].length) best = i;
    }
    return best;
}

static int32_t held_by_definition(const alea_bytes *strings, int32_t n_strings,
                                  const uint8_t *stream, size_t n) {
    size_t most = 0;
    for (int32_t i = 0; i < n_strings; i++)
        for (size_t length = 1; length < strings[i].length; length++)
            if (length > most && ends_in(stream, n, strings[i].data, length)) most = length;
    return (int32_t)most;
}

static void check(const alea_bytes *strings, int32_t n_strings, const uint8_t *stream, size_t n) {
    matcher m = open_matcher(strings, n_strings);
    for (size_t i = 0; i < n; i++) {
        int32_t held = -1;
        const int32_t complete = alea__stop_feed(&m.stops, &m.match, stream[i], &held);
        assert_int_equal(complete, complete_by_definition(strings, n_strings, stream, i + 1));
        assert_int_equal(held, held_by_definition(strings, n_strings, stream, i + 1));
    }
    close_matcher(&m);
}

static uint32_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Two letters make borders within borders, which is where failure links go wrong. */
static void test_every_string_is_found_wherever_it_begins(void **state) {
    (void)state;
    uint64_t random = 5;
    for (int32_t trial = 0; trial < 2000; trial++) {
        uint8_t letters[STRINGS_MAX][12], stream[STREAM_MAX];
        alea_bytes strings[STRINGS_MAX];
        const int32_t n = 1 + (int32_t)(next_random(&random) % STRINGS_MAX);
        for (int32_t i = 0; i < n; i++) {
            strings[i] = (alea_bytes){letters[i], 1 + next_random(&random) % sizeof letters[i]};
            for (size_t b = 0; b < strings[i].length; b++)
                letters[i][b] = (uint8_t)(next_random(&random) % 2);
        }
        for (size_t b = 0; b < STREAM_MAX; b++)
            stream[b] = (uint8_t)(next_random(&random) % (trial % 8 ? 2 : 3));
        check(strings, n, stream, STREAM_MAX);
    }
}

/* A NUL is a byte like another; bytes above 127 are no negative numbers. */
static void test_any_byte_may_stand_in_a_stop(void **state) {
    (void)state;
    const alea_bytes strings[] = {{(const uint8_t *)"\0\xff", 2},
                                  {(const uint8_t *)"\xff\0\xff", 3}};
    static const uint8_t stream[] = {0, 0, 0xff, 0, 0xff, 0xff, 0};
    check(strings, 2, stream, sizeof stream);
}

static void test_of_several_that_end_together_the_longest_wins(void **state) {
    (void)state;
    const alea_bytes strings[] = {
        {(const uint8_t *)"c", 1}, {(const uint8_t *)"abc", 3}, {(const uint8_t *)"bc", 2}};
    matcher m = open_matcher(strings, 3);
    int32_t held;
    assert_int_equal(alea__stop_feed(&m.stops, &m.match, 'a', &held), -1);
    assert_int_equal(held, 1);
    assert_int_equal(alea__stop_feed(&m.stops, &m.match, 'b', &held), -1);
    assert_int_equal(held, 2);
    assert_int_equal(alea__stop_feed(&m.stops, &m.match, 'c', &held), 1);
    assert_int_equal(held, 0);
    close_matcher(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_string_is_found_wherever_it_begins),
        cmocka_unit_test(test_any_byte_may_stand_in_a_stop),
        cmocka_unit_test(test_of_several_that_end_together_the_longest_wins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
