/*
 * The promise of the libllama core: a row's bits depend on its sequence's tokens alone. Every row
 * of a text computed in one round is the reference; other schedules must give the same bytes.
 *
 * ALEA_SEARCH=n runs n random schedules for each model instead of a few.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/models.h"

enum { SEQUENCES = 4, TEXT = 150, CHUNK_MAX = 160 };

typedef struct subject {
    alea_core *core;
    int32_t vocab;
    int32_t text[TEXT];
    int32_t stranger[TEXT];
    float *rows; /* [TEXT][vocab], the reference */
    uint64_t random;
    int32_t n_differ;
} subject;

static uint32_t draw(subject *s, uint32_t below) {
    s->random = s->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(s->random >> 33) % below;
}

static alea_round_item item_of(int32_t sequence, int32_t position, int32_t length,
                               const int32_t *tokens, bool rows) {
    return (alea_round_item){sequence,
                             position,
                             rows ? 0 : length,
                             {ALEA_SPAN_TOKENS, length, tokens + position, {NULL, 0}}};
}

static int32_t run(subject *s, const alea_round_item *items, int32_t n) {
    alea_error error = {.status = ALEA_OK};
    int32_t rows = 0;
    if (alea_core_run(s->core, &(alea_round){items, n}, &rows, &error) < 0)
        fail_msg("%s", error.message);
    return rows;
}

/* The text's rows from `position` on stand in the round's rows from `first` on. */
static void compare(subject *s, int32_t first, int32_t position, int32_t length) {
    for (int32_t i = 0; i < length; i++) {
        const float *row = alea_core_row(s->core, first + i);
        const float *expected = s->rows + (size_t)(position + i) * (size_t)s->vocab;
        assert_non_null(row);
        if (memcmp(row, expected, (size_t)s->vocab * sizeof *row) != 0) s->n_differ++;
    }
}

static void drop(subject *s, int32_t sequence) {
    assert_int_equal(alea_core_sequence_trim(s->core, sequence, 0, NULL), ALEA_OK);
}

static void drop_all(subject *s) {
    for (int32_t i = 0; i < SEQUENCES; i++)
        drop(s, i);
}

static void open_subject(subject *s, const char *path, uint32_t flags, int32_t threads) {
    alea_core_info info;
    *s =
        (subject){.core = open_llama(path, flags, 512, SEQUENCES, CHUNK_MAX, threads), .random = 1};
    alea_core_describe(s->core, &info);
    s->vocab = info.vocab;
    for (int32_t i = 0; i < TEXT; i++) {
        s->text[i] = (int32_t)draw(s, (uint32_t)s->vocab);
        s->stranger[i] = (int32_t)draw(s, (uint32_t)s->vocab);
    }
    s->rows = malloc((size_t)TEXT * (size_t)s->vocab * sizeof(float));
    assert_non_null(s->rows);
    const alea_round_item whole = item_of(0, 0, TEXT, s->text, true);
    assert_int_equal(run(s, &whole, 1), TEXT);
    for (int32_t i = 0; i < TEXT; i++) {
        memcpy(s->rows + (size_t)i * (size_t)s->vocab, alea_core_row(s->core, i),
               (size_t)s->vocab * sizeof(float));
    }
    drop(s, 0);
}

static void close_subject(subject *s) {
    alea_core_close(s->core);
    free(s->rows);
}

/* ---- schedules ---- */

static void in_chunks(subject *s, int32_t chunk) {
    for (int32_t at = 0; at < TEXT; at += chunk) {
        const int32_t n = chunk < TEXT - at ? chunk : TEXT - at;
        const alea_round_item item = item_of(0, at, n, s->text, true);
        run(s, &item, 1);
        compare(s, 0, at, n);
    }
    drop_all(s);
}

/* The last row of a round alone: the head then works on one row of a long prompt. */
static void last_row_only(subject *s, int32_t length) {
    alea_round_item item = item_of(0, 0, length, s->text, true);
    item.first_row = length - 1;
    run(s, &item, 1);
    compare(s, 0, length - 1, 1);
    drop_all(s);
}

/* Beside three others of other lengths, first or last in the round, prompt and then decode. */
static void among_strangers(subject *s, int32_t own) {
    const int32_t lengths[SEQUENCES] = {20, 33, 1, 17};
    alea_round_item items[SEQUENCES];
    int32_t at = 0;
    for (int32_t step = 0; step < 40 && at < TEXT; step++) {
        const int32_t n = step == 0 ? 30 : 1;
        int32_t n_items = 0;
        for (int32_t k = 0; k < SEQUENCES; k++) {
            const int32_t before = alea_core_sequence_length(s->core, k);
            const int32_t take = step == 0 ? lengths[k] : 1;
            if (k == own)
                items[n_items++] = item_of(k, at, n, s->text, true);
            else if (before + take <= TEXT)
                items[n_items++] = item_of(k, before, take, s->stranger, false);
        }
        run(s, items, n_items);
        compare(s, 0, at, n);
        at += n;
    }
    drop_all(s);
}

static void from_a_copied_prefix(subject *s, int32_t prefix) {
    const alea_round_item first = item_of(2, 0, prefix, s->text, false);
    run(s, &first, 1);
    assert_int_equal(alea_core_sequence_copy(s->core, 2, 0, NULL), ALEA_OK);
    assert_int_equal(alea_core_sequence_copy(s->core, 0, 3, NULL), ALEA_OK);
    assert_int_equal(alea_core_sequence_length(s->core, 3), prefix);
    const int32_t rest = TEXT - prefix;
    const alea_round_item both[2] = {item_of(0, prefix, rest / 2, s->text, true),
                                     item_of(3, prefix, rest / 2, s->text, true)};
    run(s, both, 2);
    compare(s, 0, prefix, rest / 2);
    compare(s, rest / 2, prefix, rest / 2);
    drop_all(s);
}

static void trimmed_and_done_again(subject *s) {
    const alea_round_item whole = item_of(1, 0, TEXT, s->text, false);
    run(s, &whole, 1);
    assert_int_equal(alea_core_sequence_trim(s->core, 1, 77, NULL), ALEA_OK);
    const alea_round_item rest = item_of(1, 77, TEXT - 77, s->text, true);
    run(s, &rest, 1);
    compare(s, 0, 77, TEXT - 77);
    drop_all(s);
}

/* One random schedule: sizes, neighbours, order of items, copies and cuts all by chance. */
static void by_chance(subject *s) {
    int32_t own = (int32_t)draw(s, SEQUENCES);
    int32_t at = 0;
    while (at < TEXT) {
        alea_round_item items[SEQUENCES];
        int32_t n_items = 0;
        int32_t first = 0;
        const int32_t start = (int32_t)draw(s, SEQUENCES);
        const uint32_t size = draw(s, 4);
        int32_t n = 1 + (int32_t)draw(s, size == 0 ? 1 : size == 1 ? 8 : 70);
        if (n > TEXT - at) n = TEXT - at;
        for (int32_t k = 0; k < SEQUENCES; k++) {
            const int32_t id = (start + k) % SEQUENCES;
            int32_t before = alea_core_sequence_length(s->core, id);
            if (id == own) {
                first = 0;
                for (int32_t i = 0; i < n_items; i++)
                    first += items[i].span.length - items[i].first_row;
                items[n_items++] = item_of(id, at, n, s->text, true);
            } else if (draw(s, 2) == 0) {
                if (before >= TEXT - 20) drop(s, id), before = 0;
                items[n_items++] =
                    item_of(id, before, 1 + (int32_t)draw(s, 20), s->stranger, draw(s, 3) == 0);
            }
        }
        run(s, items, n_items);
        compare(s, first, at, n);
        at += n;
        if (draw(s, 6) == 0) {
            const int32_t to = (int32_t)draw(s, SEQUENCES);
            assert_int_equal(alea_core_sequence_copy(s->core, own, to, NULL), ALEA_OK);
            own = to;
        }
        if (draw(s, 8) == 0) {
            at -= (int32_t)draw(s, (uint32_t)at + 1) / 4;
            assert_int_equal(alea_core_sequence_trim(s->core, own, at, NULL), ALEA_OK);
        }
    }
    drop_all(s);
}

static int32_t searches(int32_t otherwise) {
    const char *text = getenv("ALEA_SEARCH");
    return text ? (int32_t)strtol(text, NULL, 10) : otherwise;
}

static void assert_same(subject *s, const char *what, int32_t detail) {
    if (s->n_differ != 0) fail_msg("%d rows differ: %s %d", s->n_differ, what, detail);
}

static void try_all(subject *s, int32_t n_random) {
    static const int32_t chunks[] = {1, 2, 7, 31, 64, 128, TEXT - 1};
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        in_chunks(s, chunks[i]);
        assert_same(s, "in chunks of", chunks[i]);
    }
    for (int32_t length = 1; length <= TEXT; length += 37) {
        last_row_only(s, length);
        assert_same(s, "only the last row of", length);
    }
    for (int32_t own = 0; own < SEQUENCES; own += SEQUENCES - 1) {
        among_strangers(s, own);
        assert_same(s, "among strangers, as sequence", own);
    }
    for (int32_t prefix = 20; prefix < TEXT; prefix += 53) {
        from_a_copied_prefix(s, prefix);
        assert_same(s, "from a copied prefix of", prefix);
    }
    trimmed_and_done_again(s);
    assert_same(s, "trimmed and done again", 0);
    for (int32_t i = 0; i < n_random; i++) {
        s->random = 1000 + (uint64_t)i;
        by_chance(s);
        assert_same(s, "schedule of random seed", 1000 + i);
    }
}

/* ---- tests ---- */

static void try_model(const char *path, int32_t n_random) {
    subject s;
    subject single;
    alea_core_info info;
    open_subject(&s, path, 0, 2);
    alea_core_describe(s.core, &info);
    assert_true(info.batch_invariant);
    try_all(&s, n_random);
    open_subject(&single, path, 0, 1);
    const size_t bytes = (size_t)TEXT * (size_t)s.vocab * sizeof(float);
    if (memcmp(s.rows, single.rows, bytes) != 0) fail_msg("1 and 2 threads differ");
    in_chunks(&single, 5);
    assert_same(&single, "one thread, in chunks of", 5);
    close_subject(&single);
    close_subject(&s);
}

static void try_tiny(const char *options) {
    char path[MODEL_PATH_BYTES];
    tiny_model(options, path);
    try_model(path, searches(6));
}

#define TINY_TEST(type)                                                                            \
    static void test_##type##_rows_depend_on_their_tokens_alone(void **state) {                    \
        (void)state;                                                                               \
        try_tiny("--type " #type);                                                                 \
    }
TINY_TEST(f32)
TINY_TEST(f16)
TINY_TEST(bf16)
TINY_TEST(q4_0)
TINY_TEST(q4_1)
TINY_TEST(q8_0)
TINY_TEST(q4_k)
TINY_TEST(q6_k)

static void test_real_rows_depend_on_their_tokens_alone(void **state) {
    (void)state;
    const char *path = real_model();
    if (!path) {
        print_message("SKIP: no real model; set ALEA_TEST_MODEL or run tools/setup\n");
        skip();
    }
    try_model(path, searches(2));
}

/* The comparison sees what it is made to see: stock kernels fail it. */
static void test_stock_kernels_are_caught(void **state) {
    (void)state;
    char path[MODEL_PATH_BYTES];
    subject s;
    alea_core_info info;
    tiny_model("--type f16", path);
    open_subject(&s, path, ALEA_CORE_FAST, 2);
    alea_core_describe(s.core, &info);
    assert_false(info.batch_invariant);
    in_chunks(&s, 1);
    assert_true(s.n_differ > 0);
    close_subject(&s);
}

static int group_teardown(void **state) {
    (void)state;
    remove_models();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32_rows_depend_on_their_tokens_alone),
        cmocka_unit_test(test_f16_rows_depend_on_their_tokens_alone),
        cmocka_unit_test(test_bf16_rows_depend_on_their_tokens_alone),
        cmocka_unit_test(test_q4_0_rows_depend_on_their_tokens_alone),
        cmocka_unit_test(test_q4_1_rows_depend_on_their_tokens_alone),
        cmocka_unit_test(test_q8_0_rows_depend_on_their_tokens_alone),
        cmocka_unit_test(test_q4_k_rows_depend_on_their_tokens_alone),
        cmocka_unit_test(test_q6_k_rows_depend_on_their_tokens_alone),
        cmocka_unit_test(test_real_rows_depend_on_their_tokens_alone),
        cmocka_unit_test(test_stock_kernels_are_caught),
    };
    return cmocka_run_group_tests_name("invariance", tests, NULL, group_teardown);
}
