/* The arena hands out distinct, aligned memory and forgets it as a whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/arena.h"

static void test_allocations_are_aligned_and_apart(void **state) {
    (void)state;
    alea_arena arena;
    alea__arena_init(&arena, 1000);
    unsigned char *last = NULL;
    for (size_t bytes = 0; bytes < 300; bytes++) {
        unsigned char *data = alea__arena_alloc(&arena, bytes);
        assert_non_null(data);
        assert_int_equal((uintptr_t)data % ALEA_ARENA_ALIGNMENT, 0);
        assert_ptr_not_equal(data, last);
        memset(data, (int)bytes, bytes);
        if (last) assert_true(bytes < 2 || last[bytes - 2] == (unsigned char)(bytes - 1));
        last = data;
    }
    alea__arena_free(&arena);
}

static void test_a_block_larger_than_a_chunk_is_served(void **state) {
    (void)state;
    alea_arena arena;
    alea__arena_init(&arena, 64);
    unsigned char *data = alea__arena_alloc(&arena, 1 << 20);
    assert_non_null(data);
    memset(data, 1, 1 << 20);
    alea__arena_free(&arena);
}

static void test_reset_reuses_the_first_chunk(void **state) {
    (void)state;
    alea_arena arena;
    alea__arena_init(&arena, 4096);
    void *first = alea__arena_alloc(&arena, 100);
    for (int i = 0; i < 100; i++)
        assert_non_null(alea__arena_alloc(&arena, 1000));
    alea__arena_reset(&arena);
    assert_ptr_equal(alea__arena_alloc(&arena, 100), first);
    alea__arena_free(&arena);
    alea__arena_reset(&arena); /* an empty arena may be reset */
}

static void test_impossible_sizes_give_null(void **state) {
    (void)state;
    alea_arena arena;
    alea__arena_init(&arena, 4096);
    assert_null(alea__arena_alloc(&arena, SIZE_MAX));
    assert_null(alea__arena_alloc(&arena, SIZE_MAX - 100));
    assert_null(alea__arena_array(&arena, SIZE_MAX / 2, 3));
    assert_non_null(alea__arena_array(&arena, 3, 5));
    alea__arena_free(&arena);
}

static void test_copy_ends_in_nul(void **state) {
    (void)state;
    alea_arena arena;
    alea__arena_init(&arena, 64);
    const char *copy = alea__arena_copy(&arena, (alea_bytes){(const uint8_t *)"ab\0c", 4});
    assert_memory_equal(copy, "ab\0c", 5);
    assert_string_equal(alea__arena_copy(&arena, (alea_bytes){NULL, 0}), "");
    alea__arena_free(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allocations_are_aligned_and_apart),
        cmocka_unit_test(test_a_block_larger_than_a_chunk_is_served),
        cmocka_unit_test(test_reset_reuses_the_first_chunk),
        cmocka_unit_test(test_impossible_sizes_give_null),
        cmocka_unit_test(test_copy_ends_in_nul),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
