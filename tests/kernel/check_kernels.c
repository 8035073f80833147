/*
 * Every leaf of every table against the reference, bit for bit: sizes 1..70 and some large ones,
 * all fills, buffers that end at an unreadable page (so that every size is another alignment).
 * The list of leaves is walked by macro: one without a check here does not compile.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/exp2_poly.h"
#include "kernel/ln.h"
#include "kernel/prob_weight.h"
#include "kernel/tables.h"
#include "support/fill.h"
#include "support/guard.h"

/* One case: a row at the end of a readable page, and what to name when it fails. */
typedef struct kernel_case {
    const alea_kernel_table *table;
    const char *table_name;
    const char *leaf;
    test_fill fill;
    uint64_t seed;
    int32_t n;
    const float *x;
} kernel_case;

static void expect_equal(const kernel_case *c, const void *got, const void *want, size_t bytes) {
    if (memcmp(got, want, bytes) == 0) return;
    fail_msg("%s of %s differs from the reference: n %d, fill %s, seed %llu", c->leaf,
             c->table_name, (int)c->n, test_fill_name(c->fill), (unsigned long long)c->seed);
}

/* Cuts that lie on values of the row, between them, and beyond. */
static int32_t cuts_of(const kernel_case *c, float *cuts) {
    int32_t n = 0;
    cuts[n++] = c->x[0];
    cuts[n++] = c->x[c->n / 2];
    cuts[n++] = c->x[c->n - 1];
    cuts[n++] = nextafterf(c->x[c->n / 3], INFINITY);
    cuts[n++] = 0.0f;
    cuts[n++] = -0.0f;
    cuts[n++] = -INFINITY;
    cuts[n++] = INFINITY;
    cuts[n++] = NAN;
    return n;
}
enum { MAX_CUTS = 9 };

static void check_lane_max(const kernel_case *c) {
    const size_t n_segments = ((size_t)c->n + ALEA_SEGMENT - 1) / ALEA_SEGMENT;
    test_guard got = test_guard_make(n_segments * (ALEA_LANES + 1) * sizeof(float));
    test_guard want = test_guard_make(got.bytes);
    float *got_lanes = got.data, *want_lanes = want.data;
    c->table->lane_max(c->x, c->n, got_lanes + n_segments, got_lanes);
    alea__lane_max_ref(c->x, c->n, want_lanes + n_segments, want_lanes);
    expect_equal(c, got.data, want.data, got.bytes);
    test_guard_free(&got);
    test_guard_free(&want);
}

static void check_lane_max_mass(const kernel_case *c) {
    static const float scales[] = {ALEA_LOG2E_F, ALEA_LOG2E_F / 0.01f, 1e-36f, 0x1p-128f, 1e38f};
    const size_t n_segments = ((size_t)c->n + ALEA_SEGMENT - 1) / ALEA_SEGMENT;
    test_guard got = test_guard_make(n_segments * (ALEA_LANES + 1) * sizeof(float));
    test_guard want = test_guard_make(got.bytes);
    test_guard got_masses = test_guard_make(n_segments * sizeof(uint64_t));
    test_guard want_masses = test_guard_make(got_masses.bytes);
    float *got_lanes = got.data, *want_lanes = want.data;
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        c->table->lane_max_mass(c->x, c->n, scales[i], got_lanes + n_segments, got_lanes,
                                got_masses.data);
        alea__lane_max_mass_ref(c->x, c->n, scales[i], want_lanes + n_segments, want_lanes,
                                want_masses.data);
        expect_equal(c, got.data, want.data, got.bytes);
        expect_equal(c, got_masses.data, want_masses.data, got_masses.bytes);
    }
    test_guard_free(&got);
    test_guard_free(&want);
    test_guard_free(&got_masses);
    test_guard_free(&want_masses);
}

/* A segment within the domain of the weight leaves. */
typedef struct segment_case {
    test_guard row;
    const float *x;
    int32_t n;
    float scale;
    int32_t exponent;
} segment_case;

enum { N_SCALES = 6 };

/* Infinities go, and logits are counted from the maximum where the scaled maximum is too large. */
static segment_case segment_make(const kernel_case *c, int which) {
    static const float scales[N_SCALES] = {
        ALEA_LOG2E_F, ALEA_LOG2E_F / 0.7f, ALEA_LOG2E_F / 100.0f, 1000.0f, 1e-36f, 0x1p-128f};
    segment_case s = {.n = c->n < ALEA_SEGMENT ? c->n : ALEA_SEGMENT, .scale = scales[which]};
    s.row = test_guard_make((size_t)s.n * sizeof(float));
    float *x = s.row.data, most = -INFINITY;
    for (int32_t i = 0; i < s.n; i++) {
        x[i] = c->x[i] == INFINITY ? 3.0f : c->x[i];
        if (x[i] > most) most = x[i];
    }
    if (most > -INFINITY && fabsf(most * s.scale) > 0x1.8p20f) {
        for (int32_t i = 0; i < s.n; i++)
            x[i] -= most;
        most = 0;
    }
    s.exponent = most > -INFINITY ? (int32_t)rintf(most * s.scale) : 0;
    s.x = x;
    return s;
}

static void check_segment_mass(const kernel_case *c) {
    for (int which = 0; which < N_SCALES; which++) {
        segment_case s = segment_make(c, which);
        const uint64_t got = c->table->segment_mass(s.x, s.n, s.scale, s.exponent);
        const uint64_t want = alea__segment_mass_ref(s.x, s.n, s.scale, s.exponent);
        expect_equal(c, &got, &want, sizeof got);
        test_guard_free(&s.row);
    }
}

static void check_segment_mass_ge(const kernel_case *c) {
    float cuts[MAX_CUTS];
    const int32_t n_cuts = cuts_of(c, cuts);
    for (int which = 0; which < N_SCALES; which++) {
        segment_case s = segment_make(c, which);
        for (int32_t i = 0; i < n_cuts; i++) {
            const uint64_t got = c->table->segment_mass_ge(s.x, s.n, s.scale, s.exponent, cuts[i]);
            const uint64_t want = alea__segment_mass_ge_ref(s.x, s.n, s.scale, s.exponent, cuts[i]);
            expect_equal(c, &got, &want, sizeof got);
        }
        test_guard_free(&s.row);
    }
}

static void check_segment_weights(const kernel_case *c) {
    for (int which = 0; which < N_SCALES; which++) {
        segment_case s = segment_make(c, which);
        test_guard got = test_guard_make((size_t)s.n * sizeof(uint32_t));
        uint32_t want[ALEA_SEGMENT];
        c->table->segment_weights(s.x, s.n, s.scale, s.exponent, got.data);
        alea__segment_weights_ref(s.x, s.n, s.scale, s.exponent, want);
        expect_equal(c, got.data, want, got.bytes);
        test_guard_free(&got);
        test_guard_free(&s.row);
    }
}

static void check_segment_entropy(const kernel_case *c) {
    for (int which = 0; which < N_SCALES; which++) {
        segment_case s = segment_make(c, which);
        alea_entropy_sums got, want;
        c->table->segment_entropy(s.x, s.n, s.scale, s.exponent, &got);
        alea__segment_entropy_ref(s.x, s.n, s.scale, s.exponent, &want);
        expect_equal(c, &got, &want, sizeof got);
        test_guard_free(&s.row);
    }
}

static void check_count_ge(const kernel_case *c) {
    float cuts[MAX_CUTS];
    const int32_t n_cuts = cuts_of(c, cuts);
    for (int32_t i = 0; i < n_cuts; i++) {
        const int32_t got = c->table->count_ge(c->x, c->n, cuts[i]);
        const int32_t want = alea__count_ge_ref(c->x, c->n, cuts[i]);
        expect_equal(c, &got, &want, sizeof got);
    }
}

static void check_collect_ge(const kernel_case *c) {
    float cuts[MAX_CUTS];
    const int32_t n_cuts = cuts_of(c, cuts);
    const int32_t capacities[] = {c->n, 1, 7, c->n / 2 + 1, 0};
    int32_t *want = malloc((size_t)c->n * sizeof *want);
    for (int32_t i = 0; i < n_cuts * 5; i++) {
        const int32_t capacity = capacities[i % 5] < c->n ? capacities[i % 5] : c->n;
        test_guard ids = test_guard_make((size_t)capacity * sizeof(int32_t));
        const float cut = cuts[i / 5];
        const int32_t got = c->table->collect_ge(c->x, c->n, cut, 5000, ids.data, capacity);
        const int32_t count = alea__collect_ge_ref(c->x, c->n, cut, 5000, want, capacity);
        expect_equal(c, &got, &count, sizeof got);
        expect_equal(c, ids.data, want, (size_t)count * sizeof *want);
        test_guard_free(&ids);
    }
    free(want);
}

static void check_keep_ge(const kernel_case *c) {
    float cuts[MAX_CUTS];
    const int32_t n_cuts = cuts_of(c, cuts);
    const size_t bytes = (size_t)c->n * sizeof(float);
    float *want = malloc(bytes);
    for (int32_t i = 0; i < n_cuts; i++) {
        test_guard got = test_guard_make(bytes);
        alea__keep_ge_ref(want, c->x, c->n, cuts[i]);
        c->table->keep_ge(got.data, c->x, c->n, cuts[i]);
        expect_equal(c, got.data, want, bytes);
        memcpy(got.data, c->x, bytes);
        c->table->keep_ge(got.data, got.data, c->n, cuts[i]); /* in place */
        expect_equal(c, got.data, want, bytes);
        test_guard_free(&got);
    }
    free(want);
}

/* The row's bits as 16-bit values: every pattern comes up. */
static test_guard halves_of(const kernel_case *c) {
    test_guard in = test_guard_make((size_t)c->n * sizeof(uint16_t));
    uint64_t state = c->seed;
    for (int32_t i = 0; i < c->n; i++) {
        uint32_t bits;
        memcpy(&bits, &c->x[i], sizeof bits);
        ((uint16_t *)in.data)[i] =
            (uint16_t)(c->fill == TEST_FILL_BITS ? test_random(&state) : bits >> 16);
    }
    return in;
}

static void check_keep_ge_half(const kernel_case *c) {
    float cuts[MAX_CUTS];
    const int32_t n_cuts = cuts_of(c, cuts);
    test_guard in = halves_of(c);
    uint16_t *want = malloc(in.bytes);
    for (int32_t i = 0; i < n_cuts; i++) {
        test_guard got = test_guard_make(in.bytes);
        alea__keep_ge_half_ref(want, in.data, c->x, c->n, cuts[i], 0xfc00);
        c->table->keep_ge_half(got.data, in.data, c->x, c->n, cuts[i], 0xfc00);
        expect_equal(c, got.data, want, in.bytes);
        test_guard_free(&got);
    }
    free(want);
    test_guard_free(&in);
}

static void check_widen(const kernel_case *c, void (*widen)(float *, const uint16_t *, int32_t),
                        void (*reference)(float *, const uint16_t *, int32_t)) {
    test_guard in = halves_of(c), got = test_guard_make((size_t)c->n * sizeof(float));
    float *want = malloc(got.bytes);
    widen(got.data, in.data, c->n);
    reference(want, in.data, c->n);
    expect_equal(c, got.data, want, got.bytes);
    free(want);
    test_guard_free(&got);
    test_guard_free(&in);
}

static void check_widen_f16(const kernel_case *c) {
    check_widen(c, c->table->widen_f16, alea__widen_f16_ref);
}

static void check_widen_bf16(const kernel_case *c) {
    check_widen(c, c->table->widen_bf16, alea__widen_bf16_ref);
}

static void check_prob_mass(const kernel_case *c) {
    const int32_t n = c->n < ALEA_SEGMENT ? c->n : ALEA_SEGMENT;
    test_guard row = test_guard_make((size_t)n * sizeof(float));
    float *probs = row.data, most = 0;
    for (int32_t i = 0; i < n; i++) {
        probs[i] = isfinite(c->x[i]) ? fabsf(c->x[i]) : 0.0f;
        if (i % 7 == 3) probs[i] = -probs[i];
        most = fmaxf(most, probs[i]);
    }
    const int32_t exponent = most > 0 ? alea__prob_exponent(most) : 0;
    const uint64_t got = c->table->prob_mass(probs, n, exponent);
    const uint64_t want = alea__prob_mass_ref(probs, n, exponent);
    expect_equal(c, &got, &want, sizeof got);
    test_guard_free(&row);
}

static void check_residual(const kernel_case *c) {
    const size_t bytes = (size_t)c->n * sizeof(float);
    test_guard draft = test_guard_make(bytes), got = test_guard_make(bytes);
    float *want = malloc(bytes), *d = draft.data;
    for (int32_t i = 0; i < c->n; i++)
        d[i] = c->x[(i + 1) % c->n];
    c->table->residual(got.data, c->x, d, c->n);
    alea__residual_ref(want, c->x, d, c->n);
    expect_equal(c, got.data, want, bytes);
    free(want);
    test_guard_free(&got);
    test_guard_free(&draft);
}

static void check_leaves(kernel_case *c) {
#define K(name, type, args)                                                                        \
    c->leaf = #name;                                                                               \
    check_##name(c);
    ALEA_KERNEL_LIST(K)
#undef K
}

static void check_size(kernel_case *c, int32_t n) {
    c->n = n;
    for (int fill = 0; fill < TEST_FILL_COUNT; fill++) {
        test_guard row = test_guard_make((size_t)n * sizeof(float));
        c->fill = (test_fill)fill;
        c->seed = (uint64_t)n;
        c->x = row.data;
        test_fill_row(row.data, n, c->fill, c->seed);
        check_leaves(c);
        test_guard_free(&row);
    }
}

static void check_sizes(const int32_t *sizes, size_t n_sizes) {
    const test_tables all = test_tables_make();
    for (int t = 0; t < all.n; t++) {
        kernel_case c = {.table = &all.tables[t], .table_name = all.names[t]};
        for (size_t i = 0; i < n_sizes; i++)
            check_size(&c, sizes[i]);
    }
}

static void test_small_sizes_equal_the_reference(void **state) {
    (void)state;
    for (int32_t n = 1; n <= 70; n++)
        check_sizes(&n, 1);
}

static void test_large_sizes_equal_the_reference(void **state) {
    (void)state;
    static const int32_t sizes[] = {127,  128,  129,  255,  500,  1000, 1008,
                                    1023, 1024, 1025, 2047, 2049, 4099};
    check_sizes(sizes, sizeof sizes / sizeof *sizes);
}

/* Each position of a segment in turn holds what must not be overlooked. */
static void test_no_position_is_forgotten(void **state) {
    (void)state;
    const test_tables all = test_tables_make();
    float x[ALEA_SEGMENT] = {0};
    for (int t = 0; t < all.n; t++) {
        for (int32_t n = 1; n <= ALEA_SEGMENT; n += n < 80 ? 1 : 59) {
            for (int32_t i = 0; i < n; i++) {
                float lanes[ALEA_LANES], most;
                int32_t id = -1;
                x[i] = 1.0f;
                all.tables[t].lane_max(x, n, lanes, &most);
                assert_true(most == 1.0f && lanes[i % ALEA_LANES] == 1.0f);
                assert_int_equal(all.tables[t].count_ge(x, n, 1.0f), 1);
                assert_int_equal(all.tables[t].collect_ge(x, n, 1.0f, 0, &id, 1), 1);
                assert_int_equal(id, i);
                x[i] = NAN;
                all.tables[t].lane_max(x, n, lanes, &most);
                assert_true(most != most && lanes[i % ALEA_LANES] != lanes[i % ALEA_LANES]);
                x[i] = 0.0f;
            }
        }
    }
}

static void test_tables_are_named(void **state) {
    (void)state;
    const test_tables all = test_tables_make();
    for (int t = 0; t < all.n; t++)
        print_message("table %s is checked\n", all.names[t]);
    for (int32_t leaf = 0; leaf < alea__kernel_count(); leaf++) {
        assert_string_equal(alea__kernel_step(alea__kernels_ref(), leaf), "ref");
        assert_string_not_equal(alea__kernel_step(alea__kernels(), leaf), "unknown");
        assert_true(strlen(alea__kernel_name(leaf)) > 3);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_sizes_equal_the_reference),
        cmocka_unit_test(test_large_sizes_equal_the_reference),
        cmocka_unit_test(test_no_position_is_forgotten),
        cmocka_unit_test(test_tables_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
