/*
 * Selected positions, row by row: the scores that were selected are the largest of the window,
 * with zero tolerance; no position twice or outside; the rest is padding. Of the published shapes
 * the numbers of rows are cut, the widths are whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "ops/oracle.h"
#include "ops/rig.h"
#include "support/fill.h"

static const rig_how one_thread = {.threads = 1};

/* Equal to the comparison: zeros and all NaNs are one value. */
static bool same_score(float a, float b) {
    return a == b || (isnan(a) && isnan(b));
}

static int by_score(const void *left, const void *right) {
    const float a = *(const float *)left, b = *(const float *)right;
    if (isnan(a) || isnan(b)) return isnan(a) ? (isnan(b) ? 0 : -1) : 1;
    return a > b ? -1 : a < b;
}

/* One row of the answer; scores step by `step` from the row's first position. */
static void check_slots(const int32_t *slots, int32_t topk, const float *scores, int64_t step,
                        int32_t length, int32_t start, int32_t end) {
    if (start < 0) start = 0;
    if (end > length) end = length;
    const int32_t n = end > start ? end - start : 0;
    const int32_t expected = n < topk ? n : topk;
    float *all = rig_alloc((size_t)n * 4), *got = rig_alloc((size_t)topk * 4);
    uint8_t *seen = calloc((size_t)length + 1, 1);
    int32_t n_got = 0;
    for (int32_t i = 0; i < n; i++)
        all[i] = scores[(start + i) * step];
    for (int32_t i = 0; i < topk; i++) {
        if (slots[i] == length) continue;
        assert_in_range(slots[i], start, end - 1);
        assert_false(seen[slots[i]]++);
        got[n_got++] = scores[slots[i] * step];
    }
    assert_int_equal(n_got, expected);
    qsort(all, (size_t)n, 4, by_score);
    qsort(got, (size_t)n_got, 4, by_score);
    for (int32_t i = 0; i < n_got; i++)
        assert_true(same_score(got[i], all[i]));
    free(all);
    free(got);
    free(seen);
}

typedef struct shape {
    int64_t batch, queries;
    int32_t length;
    int64_t groups;
    int32_t topk;
} shape;

static void run_and_check(shape s, const float *scores, const int32_t *starts,
                          const int32_t *ends) {
    const int64_t rows = s.batch * s.queries * s.groups;
    const size_t bytes = (size_t)rows * (size_t)s.topk * 4;
    int32_t *indices = rig_alloc(bytes), *again = rig_alloc(bytes);
    rig_select(one_thread, indices, scores, starts, ends, s.batch, s.queries, s.length, s.groups,
               s.topk);
    rig_select((rig_how){.target = "cpu-ref", .threads = 3}, again, scores, starts, ends, s.batch,
               s.queries, s.length, s.groups, s.topk);
    assert_memory_equal(indices, again, bytes);
    for (int64_t row = 0; row < rows; row++) {
        const int64_t window = row / s.groups;
        check_slots(indices + row * s.topk, s.topk,
                    scores + window * s.length * s.groups + row % s.groups, s.groups, s.length,
                    starts[window], ends[window]);
    }
    free(indices);
    free(again);
}

/* Full windows of normal scores. */
static void check_shape(shape s) {
    const int64_t windows = s.batch * s.queries;
    float *scores = rig_alloc((size_t)(windows * s.length * s.groups) * 4);
    int32_t *starts = calloc((size_t)windows, 4), *ends = rig_alloc((size_t)windows * 4);
    rig_normal(scores, windows * s.length * s.groups, 1235);
    for (int64_t i = 0; i < windows; i++)
        ends[i] = s.length;
    run_and_check(s, scores, starts, ends);
    free(scores);
    free(starts);
    free(ends);
}

static void test_select_of_the_published_shapes(void **state) {
    (void)state;
    check_shape((shape){4, 32, 1024, 1, 32});
    check_shape((shape){8, 16, 2048, 1, 64});
    check_shape((shape){1, 16, 65536, 1, 1024});
    check_shape((shape){1, 8, 131072, 1, 2048});
    check_shape((shape){2, 3, 5000, 4, 100});
    check_shape((shape){1, 2, 3000, 1, 3000});
    check_shape((shape){1, 2, 20000, 1, 19990});
}

static void test_select_of_short_windows(void **state) {
    (void)state;
    const int32_t widths[] = {0, 5, 32};
    const shape s = {2, 16, 256, 1, 32};
    float scores[2 * 16 * 256];
    int32_t starts[32], ends[32], indices[32 * 32];
    rig_normal(scores, 2 * 16 * 256, 1235);
    for (int w = 0; w < 3; w++) {
        for (int i = 0; i < 32; i++) {
            starts[i] = 7;
            ends[i] = 7 + widths[w];
        }
        run_and_check(s, scores, starts, ends);
        rig_select(one_thread, indices, scores, starts, ends, 2, 16, 256, 1, 32);
        for (int i = 0; i < 32; i++)
            assert_int_equal(indices[i], i < widths[w] ? 7 + i : 256);
    }
}

static void test_select_of_windows_that_end_anywhere(void **state) {
    (void)state;
    const shape s = {1, 64, 300, 2, 9};
    float *scores = rig_alloc(64 * 300 * 2 * 4);
    int32_t starts[64], ends[64];
    uint64_t random = 8;
    rig_normal(scores, 64 * 300 * 2, 5);
    for (int i = 0; i < 64; i++) { /* beyond both ends, and backwards */
        starts[i] = (int32_t)(test_random(&random) % 340) - 20;
        ends[i] = (int32_t)(test_random(&random) % 340) - 20;
    }
    starts[0] = INT32_MIN;
    ends[0] = INT32_MAX;
    run_and_check(s, scores, starts, ends);
    free(scores);
}

/* Distinct scores that share their leading bits: a coarse bucket cannot tell them apart. */
static void test_select_from_one_bucket(void **state) {
    (void)state;
    const int32_t sizes[] = {4095, 4096, 4097, 8192, 16383, 16384, 16385, 40000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int32_t n = sizes[s];
        float *scores = rig_alloc((size_t)n * 4);
        const int32_t start = 0;
        for (int32_t i = 0; i < n; i++) { /* in [1, 1.03), shuffled by a multiplier prime to n */
            const int32_t place = (int32_t)((int64_t)i * 7919 % n);
            scores[place] = 1.0f + 0.03f * (float)i / (float)n;
        }
        run_and_check((shape){1, 1, n, 1, 100}, scores, &start, &n);
        run_and_check((shape){1, 1, n, 1, n / 2}, scores, &start, &n);
        for (int32_t i = 0; i < n; i++) /* all but the low 10 bits shared */
            scores[i] = alea__bits_float(0x3f800000u + (uint32_t)((int64_t)i * 7919 % 1024));
        run_and_check((shape){1, 1, n, 1, 100}, scores, &start, &n);
        free(scores);
    }
}

static void test_select_among_equals_takes_the_smaller_positions(void **state) {
    (void)state;
    const float six[] = {7, 4, 7, 4, 0, 0}, five[] = {1, 3, 9, 6, 9};
    const int32_t start = 0, n5 = 5, n6 = 6, n = 5000;
    int32_t indices[8];
    run_and_check((shape){1, 1, 6, 1, 2}, six, &start, &n6);
    for (int32_t k = 1; k <= 5; k++)
        run_and_check((shape){1, 1, 5, 1, k}, five, &start, &n5);
    float equal[5000];
    for (int i = 0; i < 5000; i++)
        equal[i] = i % 2 ? 0.0f : -0.0f;
    rig_select(one_thread, indices, equal, &start, &n, 1, 1, n, 1, 8);
    for (int i = 0; i < 8; i++)
        assert_int_equal(indices[i], i);
}

static void test_select_ranks_nan_first_and_knows_infinities(void **state) {
    (void)state;
    const int32_t ks[] = {1, 3, 4, 50, 700, 1500};
    const int32_t start = 0;
    for (test_fill fill = 0; fill < TEST_FILL_COUNT; fill++) {
        for (int32_t n = 1600; n <= 40000; n *= 5) {
            float *scores = rig_alloc((size_t)n * 4);
            test_fill_row(scores, n, fill, 31);
            for (size_t i = 0; i < sizeof ks / sizeof *ks; i++)
                run_and_check((shape){1, 1, n, 1, ks[i]}, scores, &start, &n);
            free(scores);
        }
    }
    float scores[2000];
    const int32_t n = 2000;
    int32_t indices[1000];
    for (int i = 0; i < n; i++)
        scores[i] = i % 3 ? -INFINITY : NAN;
    rig_select(one_thread, indices, scores, &start, &n, 1, 1, n, 1, 1000);
    check_slots(indices, 1000, scores, 1, n, 0, n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_select_of_the_published_shapes),
        cmocka_unit_test(test_select_of_short_windows),
        cmocka_unit_test(test_select_of_windows_that_end_anywhere),
        cmocka_unit_test(test_select_from_one_bucket),
        cmocka_unit_test(test_select_among_equals_takes_the_smaller_positions),
        cmocka_unit_test(test_select_ranks_nan_first_and_knows_infinities),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
