/*
 * Buffers that end at an unreadable page, so that one element read or written behind the end
 * faults at once; what lies before the start is filled with a pattern and checked.
 */
#ifndef ALEA_TESTS_SUPPORT_GUARD_H
#define ALEA_TESTS_SUPPORT_GUARD_H

#include <stddef.h>

typedef struct test_guard {
    void *data; /* [bytes], ending where the unreadable page starts */
    size_t bytes;
    void *map;
    size_t map_bytes;
} test_guard;

/* Ends the program where memory is missing: a test cannot go on without it. */
test_guard test_guard_make(size_t bytes);

/* Give it back; ends the program with a message if something wrote before the start. */
void test_guard_free(test_guard *guard);

#endif
