/*
 * The four filters against the oracle: sets of kept entries exactly, but where an entry's mass
 * stands within the documented bound of p; kept bits are the input's. The shapes and rows are
 * those on which such filters are known to fail.
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

enum { SEED = 1235 };

static const rig_how one_thread = {.threads = 1};
static const char *const dtype_names[] = {"float16", "bfloat16", "float32"};

/* A batch under test: float values, the same in the dtype's bits, and what came out. */
typedef struct batch {
    rig_dtype dtype;
    int64_t rows;
    int32_t vocab;
    float *values;
    void *in, *out;
} batch;

static batch batch_make(rig_dtype dtype, int64_t rows, int32_t vocab) {
    const size_t n = (size_t)(rows * vocab);
    return (batch){dtype,
                   rows,
                   vocab,
                   rig_alloc(n * 4),
                   rig_alloc(n * rig_bytes(dtype)),
                   rig_alloc(n * rig_bytes(dtype))};
}

static void batch_free(batch *b) {
    free(b->values);
    free(b->in);
    free(b->out);
}

static float *row_of(const batch *b, int64_t row) {
    return b->values + row * b->vocab;
}

static uint32_t bits_at(const batch *b, const void *data, int64_t i) {
    return b->dtype == RIG_F32 ? ((const uint32_t *)data)[i] : ((const uint16_t *)data)[i];
}

static uint32_t masked_bits(rig_dtype dtype) {
    return dtype == RIG_F16 ? 0xfc00u : dtype == RIG_BF16 ? 0xff80u : 0xff800000u;
}

static void run(batch *b, alea_op_kind kind, const int32_t *k, const float *p) {
    const size_t bytes = (size_t)(b->rows * b->vocab) * rig_bytes(b->dtype);
    rig_narrow(b->in, b->values, b->rows * b->vocab, b->dtype);
    memset(b->out, 0x5a, bytes);
    rig_mask(kind, one_thread, b->out, b->in, b->dtype, b->rows, b->vocab, k, p);
    /* In place and on the reference the same bits come out. */
    void *again = rig_alloc(bytes);
    rig_mask(kind, (rig_how){.target = "cpu-ref"}, again, b->in, b->dtype, b->rows, b->vocab, k, p);
    assert_memory_equal(again, b->out, bytes);
    memcpy(again, b->in, bytes);
    rig_mask(kind, (rig_how){.flags = ALEA_OP_IN_PLACE}, again, again, b->dtype, b->rows, b->vocab,
             k, p);
    assert_memory_equal(again, b->out, bytes);
    free(again);
}

/* Hold a row against the oracle's fates. Returns how many entries were kept. */
static int32_t check_row(const batch *b, int64_t row, const uint8_t *fate, const char *what) {
    int32_t kept = 0;
    for (int32_t i = 0; i < b->vocab; i++) {
        const int64_t at = row * b->vocab + i;
        const uint32_t in = bits_at(b, b->in, at), out = bits_at(b, b->out, at);
        const uint32_t gone = masked_bits(b->dtype);
        const bool is_kept = out == in, is_gone = out == gone;
        kept += is_kept && in != gone;
        if (!is_kept && !is_gone) {
            fail_msg("%s %s row %d entry %d: %x became %x", what, dtype_names[b->dtype], (int)row,
                     i, in, out);
        }
        if (in == gone || fate[i] == NEAR) continue;
        if (is_kept != (fate[i] == KEPT)) {
            fail_msg("%s %s row %d entry %d (%g) was %s", what, dtype_names[b->dtype], (int)row, i,
                     (double)rig_value(b->in, at, b->dtype), is_kept ? "kept" : "dropped");
        }
    }
    return kept;
}

static void check_batch(const batch *b, alea_op_kind kind, const int32_t *k, const float *p,
                        const char *what) {
    uint8_t *fate = rig_alloc((size_t)b->vocab);
    for (int64_t row = 0; row < b->rows; row++) {
        const float *x = row_of(b, row);
        switch (kind) {
        case ALEA_OP_TOPK_MASK: oracle_topk(fate, x, b->vocab, k[row]); break;
        case ALEA_OP_MINP_MASK: oracle_minp(fate, x, b->vocab, p[row]); break;
        case ALEA_OP_TOPP_MASK: oracle_topp(fate, x, b->vocab, p[row]); break;
        default: oracle_topk_topp(fate, x, b->vocab, k[row], p[row]);
        }
        check_row(b, row, fate, what);
    }
    free(fate);
}

static void run_and_check(batch *b, alea_op_kind kind, const int32_t *k, const float *p,
                          const char *what) {
    run(b, kind, k, p);
    check_batch(b, kind, k, p, what);
}

/* --- top-k ------------------------------------------------------------------------------ */

static void test_topk_keeps_the_k_largest_of_plain_rows(void **state) {
    (void)state;
    const int32_t k[] = {1, 50, 32000, 32007};
    for (rig_dtype dtype = RIG_F16; dtype <= RIG_F32; dtype++) {
        batch b = batch_make(dtype, 4, 32000);
        rig_normal(b.values, 4 * 32000, SEED);
        run_and_check(&b, ALEA_OP_TOPK_MASK, k, NULL, "top-k");
        uint8_t fate[32000];
        for (int64_t row = 0; row < 4; row++) {
            oracle_topk(fate, row_of(&b, row), 32000, k[row]);
            const int32_t kept = check_row(&b, row, fate, "top-k");
            assert_true(kept >= (k[row] < 32000 ? k[row] : 32000));
            if (k[row] >= 32000) assert_int_equal(kept, 32000);
        }
        batch_free(&b);
    }
}

/* The six rows on which a filter of many rows may slip; `third` of row 3 is set by the caller. */
static void fill_special(batch *b) {
    const int32_t n = b->vocab;
    rig_normal(b->values, 6 * n, SEED);
    for (int32_t i = 0; i < n; i++) {
        row_of(b, 1)[i] = i % 2 ? -0.0f : 0.0f;
        row_of(b, 4)[i] = 1.5f;
        row_of(b, 5)[i] = i % 3 ? -2.0f : 2.0f;
    }
    for (int32_t i = 0; i < 7; i++) {
        row_of(b, 2)[10 + i] = INFINITY;
        row_of(b, 2)[20 + i] = -INFINITY;
    }
    for (int32_t i = 0; i < 5; i++)
        row_of(b, 3)[i * 100 + 3] = NAN;
}

static const struct {
    rig_dtype dtype;
    int32_t vocab;
} special_shapes[] = {{RIG_BF16, 4096}, {RIG_F16, 999}, {RIG_F32, 999}, {RIG_F32, 20000}};

static void test_topk_of_special_rows(void **state) {
    (void)state;
    for (size_t s = 0; s < sizeof special_shapes / sizeof *special_shapes; s++) {
        const int32_t n = special_shapes[s].vocab;
        const int32_t k[] = {1, n / 2, 3, 2, n / 4, n};
        batch b = batch_make(special_shapes[s].dtype, 6, n);
        fill_special(&b);
        run_and_check(&b, ALEA_OP_TOPK_MASK, k, NULL, "special top-k");
        for (int32_t i = 0; i < n; i++) /* five NaNs, k = 2: nothing is left */
            assert_int_equal(bits_at(&b, b.out, 3 * (int64_t)n + i), masked_bits(b.dtype));
        batch_free(&b);
    }
}

static void test_topk_with_more_than_its_nans(void **state) {
    (void)state;
    for (rig_dtype dtype = RIG_F16; dtype <= RIG_F32; dtype++) {
        const int32_t n = 3000, k[] = {5, 6, 17, 2000, n - 1, n};
        batch b = batch_make(dtype, 6, n);
        rig_normal(b.values, 6 * n, SEED);
        for (int64_t row = 0; row < 6; row++) {
            for (int32_t i = 0; i < 5; i++)
                row_of(&b, row)[i * 500 + 7] = i % 2 ? NAN : -NAN;
            for (int32_t i = 1000; i < 2000; i++)
                row_of(&b, row)[i] = -INFINITY;
        }
        run_and_check(&b, ALEA_OP_TOPK_MASK, k, NULL, "top-k with NaN");
        batch_free(&b);
    }
}

static void test_topk_where_every_fourth_is_the_minimum(void **state) {
    (void)state;
    const int32_t k = 4096;
    batch b = batch_make(RIG_F32, 1, 8192);
    for (int32_t i = 0; i < 8192; i++)
        b.values[i] = i % 4 ? 1.0f : 0.0f;
    run_and_check(&b, ALEA_OP_TOPK_MASK, &k, NULL, "bracket");
    batch_free(&b);
}

/* Every k of short rows, and the deep ranks of a long one. */
static void test_topk_at_every_depth(void **state) {
    (void)state;
    for (int32_t n = 1; n <= 70; n++) {
        batch b = batch_make(RIG_F32, n + 1, n);
        int32_t k[71];
        for (int32_t row = 0; row <= n; row++) {
            k[row] = row + 1;
            test_fill_row(row_of(&b, row), n, row % 2 ? TEST_FILL_TIED : TEST_FILL_NORMAL, SEED);
        }
        run_and_check(&b, ALEA_OP_TOPK_MASK, k, NULL, "depth");
        batch_free(&b);
    }
    const int32_t n = 40000;
    const int32_t k[] = {2, 312, 313, 640, 1000, 5000, 20000, 39000, 39990, 39999};
    for (test_fill fill = 0; fill < TEST_FILL_COUNT; fill++) {
        batch b = batch_make(RIG_F32, 10, n);
        for (int64_t row = 0; row < 10; row++)
            test_fill_row(row_of(&b, row), n, fill, SEED + (uint64_t)row);
        run_and_check(&b, ALEA_OP_TOPK_MASK, k, NULL, test_fill_name(fill));
        batch_free(&b);
    }
}

/* Neighbouring float32 values: whatever number a search arrives at is one of the row's own. */
static void test_topk_among_neighbouring_values(void **state) {
    (void)state;
    const int32_t sizes[] = {2100, 4096, 20000};
    for (int s = 0; s < 3; s++) {
        const int32_t n = sizes[s];
        enum { ROWS = 150 };
        batch b = batch_make(RIG_F32, ROWS, n);
        int32_t k[ROWS];
        for (int32_t row = 0; row < ROWS; row++) {
            k[row] = 2 + row;
            for (int32_t i = 0; i < n; i++) {
                const int32_t place = (int32_t)((int64_t)i * 7919 % n);
                row_of(&b, row)[place] = alea__bits_float(0x40000000u + (uint32_t)i);
            }
        }
        run_and_check(&b, ALEA_OP_TOPK_MASK, k, NULL, "neighbours");
        batch_free(&b);
    }
}

/* Rows made against a sample of the row: what it looks at is moved by `step`, the rest is noise.
 * A guess from it is then wrong, and the answer may not be. */
static void fill_deceiving(batch *b, int64_t row, int64_t n_sample, float step) {
    uint32_t noise = 1;
    rig_normal(row_of(b, row), b->vocab, SEED);
    for (int64_t i = 0; i < n_sample; i++) {
        const int64_t first = b->vocab * i / n_sample, next = b->vocab * (i + 1) / n_sample;
        noise = noise * 1664525u + 1013904223u;
        const int64_t at = first + (int64_t)((uint64_t)noise * (uint64_t)(next - first) >> 32);
        row_of(b, row)[at] += step;
    }
}

static void test_topk_where_a_sample_is_deceived(void **state) {
    (void)state;
    const int32_t k[] = {1000, 2047, 2049, 20000, 20000, 5000};
    const float step[] = {20, 20, 20, 20, 0.5f, 0.5f};
    batch b = batch_make(RIG_F32, 6, 40000);
    for (int64_t row = 0; row < 6; row++)
        fill_deceiving(&b, row, 2048, step[row]);
    run_and_check(&b, ALEA_OP_TOPK_MASK, k, NULL, "deceived");
    batch_free(&b);
}

static void test_topp_where_a_sample_is_deceived(void **state) {
    (void)state;
    const float p[] = {.1f, .4f, .7f, .9f, .97f, .1f, .4f, .7f, .9f, .97f, .5f, .5f};
    const float step[] = {.5f, .5f, .5f, .5f, .5f, -9, -9, -9, -9, -9, 3, -.5f};
    batch b = batch_make(RIG_F32, 12, 40000);
    for (int64_t row = 0; row < 12; row++)
        fill_deceiving(&b, row, 1024, step[row]);
    run_and_check(&b, ALEA_OP_TOPP_MASK, NULL, p, "deceived");
    batch_free(&b);
}

static void test_topk_of_an_empty_vocabulary(void **state) {
    (void)state;
    const int32_t k[] = {1, 2};
    float nothing;
    rig_mask(ALEA_OP_TOPK_MASK, one_thread, &nothing, &nothing, RIG_F32, 2, 0, k, NULL);
}

static void test_topk_at_and_beyond_the_vocabulary(void **state) {
    (void)state;
    const int32_t k[] = {1, 4, 5, 6, INT32_MAX};
    batch b = batch_make(RIG_F32, 5, 5);
    for (int64_t row = 0; row < 5; row++)
        memcpy(row_of(&b, row), (float[]){3, -1, 4, 1, -5}, 20);
    run_and_check(&b, ALEA_OP_TOPK_MASK, k, NULL, "k and V");
    assert_memory_equal((float *)b.out + 10, (float *)b.in + 10, 60);
    batch_free(&b);
}

static void test_topk_ranks_infinities_and_nan(void **state) {
    (void)state;
    const int32_t k4 = 4, k[] = {1, 2, 3};
    batch b = batch_make(RIG_F32, 1, 6);
    memcpy(b.values, (float[]){0.9f, INFINITY, 1.4f, INFINITY, 1.2f, INFINITY}, 24);
    run_and_check(&b, ALEA_OP_TOPK_MASK, &k4, NULL, "infinities");
    batch_free(&b);
    b = batch_make(RIG_F32, 3, 3);
    for (int64_t row = 0; row < 3; row++)
        memcpy(row_of(&b, row), (float[]){7, NAN, 5}, 12);
    run_and_check(&b, ALEA_OP_TOPK_MASK, k, NULL, "NaN");
    batch_free(&b);
}

static void test_topk_returns_nan_payloads_of_a_whole_row(void **state) {
    (void)state;
    const int32_t k = 4;
    uint32_t in[] = {0x7f800001u, 0xffc12345u, 0x3f800000u, 0x7fc00000u}, out[4];
    rig_mask(ALEA_OP_TOPK_MASK, one_thread, out, in, RIG_F32, 1, 4, &k, NULL);
    assert_memory_equal(out, in, sizeof in);
}

/* --- min-p ------------------------------------------------------------------------------ */

static void test_minp_of_plain_rows(void **state) {
    (void)state;
    const float p[] = {1, 0, 0.07f, 0.21f};
    for (rig_dtype dtype = RIG_F16; dtype <= RIG_F32; dtype++) {
        batch b = batch_make(dtype, 4, 32000);
        rig_normal(b.values, 4 * 32000, SEED);
        run_and_check(&b, ALEA_OP_MINP_MASK, NULL, p, "min-p");
        batch_free(&b);
    }
}

static void test_minp_rows_without_a_finite_threshold(void **state) {
    (void)state;
    const int32_t sizes[] = {32000, 512, 4099};
    const float p[] = {0, .5f, .5f, .5f, 1};
    for (int s = 0; s < 3; s++) {
        const int32_t n = sizes[s];
        batch b = batch_make(RIG_F32, 5, n);
        rig_normal(b.values, 5 * n, SEED);
        for (int32_t i = 0; i < n; i++)
            row_of(&b, 1)[i] = -INFINITY;
        row_of(&b, 2)[n / 2] = NAN;
        row_of(&b, 3)[n / 3] = INFINITY;
        run_and_check(&b, ALEA_OP_MINP_MASK, NULL, p, "min-p");
        batch_free(&b);
    }
}

static void test_minp_of_every_fill(void **state) {
    (void)state;
    const float p[] = {0, 1e-30f, 0.05f, 0.5f, 1};
    for (test_fill fill = 0; fill < TEST_FILL_COUNT; fill++) {
        batch b = batch_make(RIG_F32, 5, 5000);
        for (int64_t row = 0; row < 5; row++)
            test_fill_row(row_of(&b, row), 5000, fill, SEED);
        run_and_check(&b, ALEA_OP_MINP_MASK, NULL, p, test_fill_name(fill));
        batch_free(&b);
    }
}

/* The cut is a float32 sum of two float32, each rounded once: the neighbours of that sum tell it
 * from any other way to add them. */
static void test_minp_cuts_at_the_sum_of_rounded_numbers(void **state) {
    (void)state;
    enum { ROWS = 500, N = 64 };
    float p[ROWS], cut[ROWS];
    uint64_t random = 7;
    batch b = batch_make(RIG_F32, ROWS, N);
    for (int64_t row = 0; row < ROWS; row++) {
        const float max = (float)(test_normal(&random) * pow(10, (double)(row % 7) - 3));
        p[row] = (float)pow(test_uniform(&random), 1 + (double)(row % 9));
        cut[row] = max + (float)log((double)p[row]);
        float x = cut[row];
        for (int32_t i = 0; i < N / 2; i++)
            x = nextafterf(x, -INFINITY);
        for (int32_t i = 0; i < N; i++, x = nextafterf(x, INFINITY))
            row_of(&b, row)[i] = x < max ? x : max;
        row_of(&b, row)[row % N] = max;
    }
    run(&b, ALEA_OP_MINP_MASK, NULL, p);
    for (int64_t i = 0; i < ROWS * N; i++) {
        const bool kept = bits_at(&b, b.out, i) != masked_bits(RIG_F32);
        assert_int_equal(kept, b.values[i] >= cut[i / N]);
    }
    batch_free(&b);
}

/* --- top-p ------------------------------------------------------------------------------ */

static void test_topp_of_plain_rows(void **state) {
    (void)state;
    const float p[] = {1, .5f, 0.61f, 0.93f};
    for (rig_dtype dtype = RIG_F16; dtype <= RIG_F32; dtype++) {
        batch b = batch_make(dtype, 4, 32000);
        rig_normal(b.values, 4 * 32000, SEED);
        for (int32_t i = 0; i < 32000; i++)
            row_of(&b, 1)[i] = i == 7 || i == 9000 || i == 31999 ? 0.0f : -100.0f;
        run_and_check(&b, ALEA_OP_TOPP_MASK, NULL, p, "top-p");
        uint8_t fate[32000];
        oracle_topp(fate, row_of(&b, 1), 32000, .5f);
        assert_int_equal(check_row(&b, 1, fate, "top-p"), 3);
        batch_free(&b);
    }
}

static void test_topp_at_its_endpoints(void **state) {
    (void)state;
    const int32_t sizes[] = {32000, 512, 4099};
    for (int s = 0; s < 3; s++) {
        const int32_t n = sizes[s];
        const float ends[] = {0, 1, .5f}, half[] = {.5f, .5f, .5f};
        batch b = batch_make(RIG_F32, 3, n);
        rig_normal(b.values, 3 * n, SEED);
        run_and_check(&b, ALEA_OP_TOPP_MASK, NULL, ends, "ends");
        for (int32_t i = 0; i < n; i++) {
            assert_int_equal(bits_at(&b, b.out, i), masked_bits(RIG_F32));
            assert_int_equal(bits_at(&b, b.out, n + i), bits_at(&b, b.in, n + i));
        }
        row_of(&b, 0)[n / 2] = NAN;
        row_of(&b, 1)[n / 3] = INFINITY;
        for (int32_t i = 0; i < n; i++)
            row_of(&b, 2)[i] = -INFINITY;
        run(&b, ALEA_OP_TOPP_MASK, NULL, half);
        assert_memory_equal(b.out, b.in, 3 * (size_t)n * 4);
        batch_free(&b);
    }
}

/* p = 1 drops what lies below all mass, and keeps a token that itself weighs nothing only where
 * something below it still weighs. */
static void test_topp_one_drops_a_thin_tail(void **state) {
    (void)state;
    const float p = 1;
    batch b = batch_make(RIG_F32, 1, 3000);
    for (int32_t i = 0; i < 3000; i++)
        b.values[i] = i == 5 ? 0.0f : i < 1024 ? -100.0f : -10.0f;
    run(&b, ALEA_OP_TOPP_MASK, NULL, &p);
    for (int32_t i = 0; i < 3000; i++) {
        const bool kept = bits_at(&b, b.out, i) != masked_bits(RIG_F32);
        assert_int_equal(kept, i == 5 || i >= 1024);
    }
    batch_free(&b);
}

static void test_topp_of_every_fill(void **state) {
    (void)state;
    const float p[] = {0x1p-149f, 1e-6f, 0.1f, 0.5f, 0.9f, 0.999f, 1};
    for (test_fill fill = 0; fill < TEST_FILL_COUNT; fill++) {
        for (int32_t n = 1; n <= 20000; n = n < 70 ? n + 3 : n * 4 + 1) {
            batch b = batch_make(RIG_F32, 7, n);
            for (int64_t row = 0; row < 7; row++)
                test_fill_row(row_of(&b, row), n, fill, SEED + (uint64_t)row);
            run(&b, ALEA_OP_TOPP_MASK, NULL, p);
            uint8_t *fate = rig_alloc((size_t)n);
            for (int64_t row = 0; row < 6; row++) { /* p = 1: see the test above */
                oracle_topp(fate, row_of(&b, row), n, p[row]);
                check_row(&b, row, fate, test_fill_name(fill));
            }
            free(fate);
            batch_free(&b);
        }
    }
}

static void test_topp_keeps_the_crossing_token(void **state) {
    (void)state;
    const float p = 0.6f, four = 0.65f;
    batch b = batch_make(RIG_F32, 1, 2);
    b.values[0] = logf(0.55f);
    b.values[1] = logf(0.45f);
    run(&b, ALEA_OP_TOPP_MASK, NULL, &p);
    assert_memory_equal(b.out, b.in, 8);
    batch_free(&b);
    b = batch_make(RIG_F32, 1, 4);
    const float probs[] = {0.4f, 0.3f, 0.2f, 0.1f};
    for (int i = 0; i < 4; i++)
        b.values[i] = logf(probs[i]);
    run(&b, ALEA_OP_TOPP_MASK, NULL, &four);
    assert_memory_equal(b.out, b.in, 8);
    assert_int_equal(bits_at(&b, b.out, 2), masked_bits(RIG_F32));
    assert_int_equal(bits_at(&b, b.out, 3), masked_bits(RIG_F32));
    batch_free(&b);
}

static void test_topp_mass_reaches_p_in_every_row(void **state) {
    (void)state;
    float p[1000];
    batch b = batch_make(RIG_F32, 1000, 500);
    rig_normal(b.values, 500000, SEED);
    for (int i = 0; i < 1000; i++)
        p[i] = 0.9f;
    run_and_check(&b, ALEA_OP_TOPP_MASK, NULL, p, "nucleus");
    for (int64_t row = 0; row < 1000; row++) {
        const float *x = row_of(&b, row), *out = (float *)b.out + row * 500;
        long double total = 0, kept = 0;
        float least = INFINITY;
        for (int i = 0; i < 500; i++) {
            total += expl((long double)x[i]);
            if (out[i] == -INFINITY) continue;
            kept += expl((long double)x[i]);
            if (out[i] < least) least = out[i];
        }
        assert_true(kept / total >= 0.9f - ORACLE_MASS_BOUND);
        assert_true((kept - expl((long double)least)) / total < 0.9f + ORACLE_MASS_BOUND);
    }
    batch_free(&b);
}

static void test_topp_sums_do_not_stall(void **state) {
    (void)state;
    const float p = 0.95f;
    batch b = batch_make(RIG_BF16, 1, 131072);
    for (int32_t i = 0; i < 131072; i++)
        b.values[i] = 0.25f;
    run(&b, ALEA_OP_TOPP_MASK, NULL, &p);
    assert_memory_equal(b.out, b.in, 262144); /* all are tied */
    batch_free(&b);
    b = batch_make(RIG_F32, 1, 131072);
    for (int32_t i = 0; i < 131072; i++)
        b.values[i] = -0.0001f * (float)i;
    run_and_check(&b, ALEA_OP_TOPP_MASK, NULL, &p, "falling");
    int32_t kept = 0;
    for (int32_t i = 0; i < 131072; i++)
        kept += ((float *)b.out)[i] != -INFINITY;
    assert_true(abs(kept - 29957) <= 10);
    batch_free(&b);
}

/* --- top-k, then top-p ------------------------------------------------------------------ */

static void test_topk_topp_of_plain_rows(void **state) {
    (void)state;
    const int32_t k[] = {1, 50, 32000, 32007, 400};
    const float p[] = {.9f, .95f, .8f, .6f, .5f};
    for (rig_dtype dtype = RIG_F16; dtype <= RIG_F32; dtype++) {
        batch b = batch_make(dtype, 5, 32000);
        rig_normal(b.values, 5 * 32000, SEED);
        for (int32_t i = 0; i < 32000; i++)
            row_of(&b, 4)[i] = (float)(i % 3); /* ties at both boundaries */
        run_and_check(&b, ALEA_OP_TOPK_TOPP_MASK, k, p, "fused");
        batch_free(&b);
    }
}

static void test_topk_topp_of_special_rows(void **state) {
    (void)state;
    for (size_t s = 0; s < sizeof special_shapes / sizeof *special_shapes; s++) {
        const int32_t n = special_shapes[s].vocab;
        for (int32_t all = 0; all < 2; all++) {
            const int32_t k[] = {1, n / 2, n, all ? n : 2, n / 4, n / 3};
            const float p[] = {.9f, .95f, .8f, .95f, .6f, .5f};
            batch b = batch_make(special_shapes[s].dtype, 6, n);
            fill_special(&b);
            run_and_check(&b, ALEA_OP_TOPK_TOPP_MASK, k, p, "special fused");
            batch_free(&b);
        }
    }
}

/* The fused mask is the composition, bit for bit, on every fill. */
static void test_topk_topp_is_the_composition(void **state) {
    (void)state;
    const float p[] = {0, 0.3f, 0.9f, 0.999f, 1, .5f};
    for (test_fill fill = 0; fill < TEST_FILL_COUNT; fill++) {
        for (int32_t n = 2; n <= 12000; n = n < 70 ? n * 3 : n * 5 + 1) {
            const int32_t k[] = {1, 2, n / 2 + 1, n - 1, n, 3};
            batch b = batch_make(RIG_F32, 6, n);
            const size_t bytes = 24 * (size_t)n;
            float *step = rig_alloc(bytes), *composed = rig_alloc(bytes);
            for (int64_t row = 0; row < 6; row++)
                test_fill_row(row_of(&b, row), n, fill, SEED + (uint64_t)row);
            run(&b, ALEA_OP_TOPK_TOPP_MASK, k, p);
            rig_mask(ALEA_OP_TOPK_MASK, one_thread, step, b.in, RIG_F32, 6, n, k, NULL);
            rig_mask(ALEA_OP_TOPP_MASK, one_thread, composed, step, RIG_F32, 6, n, NULL, p);
            for (int64_t i = 0; i < 6 * (int64_t)n; i++) {
                if (bits_at(&b, composed, i) == bits_at(&b, b.out, i)) continue;
                fail_msg("%s n %d row %d entry %d", test_fill_name(fill), n, (int)(i / n),
                         (int)(i % n));
            }
            free(step);
            free(composed);
            batch_free(&b);
        }
    }
}

static void test_topk_topp_renormalizes(void **state) {
    (void)state;
    const int32_t k = 1;
    const float p = 0.8f;
    batch b = batch_make(RIG_F32, 1, 10);
    for (int i = 0; i < 10; i++)
        b.values[i] = 0.01f * (float)i;
    run_and_check(&b, ALEA_OP_TOPK_TOPP_MASK, &k, &p, "renormalize");
    batch_free(&b);
}

/* --- all --------------------------------------------------------------------------------- */

static void test_masks_compose_with_rows_of_others(void **state) {
    (void)state;
    /* Row 2 is all NaN: the others have the bits they have without it. */
    const alea_op_kind kinds[] = {ALEA_OP_TOPK_MASK, ALEA_OP_MINP_MASK, ALEA_OP_TOPP_MASK,
                                  ALEA_OP_TOPK_TOPP_MASK};
    const int32_t k[] = {40, 40, 40, 40};
    const float p[] = {.5f, .5f, .5f, .5f};
    for (int i = 0; i < 4; i++) {
        batch b = batch_make(RIG_F32, 4, 3000);
        rig_normal(b.values, 12000, SEED);
        run(&b, kinds[i], k, p);
        float *without = rig_alloc(48000);
        memcpy(without, b.out, 48000);
        for (int32_t j = 0; j < 3000; j++)
            row_of(&b, 2)[j] = NAN;
        run(&b, kinds[i], k, p);
        assert_memory_equal(b.out, without, 24000);
        assert_memory_equal((float *)b.out + 9000, without + 9000, 12000);
        const bool passes = kinds[i] == ALEA_OP_MINP_MASK || kinds[i] == ALEA_OP_TOPP_MASK;
        for (int32_t j = 6000; j < 9000; j++)
            assert_int_equal(bits_at(&b, b.out, j),
                             passes ? bits_at(&b, b.in, j) : masked_bits(RIG_F32));
        free(without);
        batch_free(&b);
    }
}

static void test_masks_keep_every_tie(void **state) {
    (void)state;
    const int32_t k[33] = {3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3,
                           3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3};
    const int64_t sizes[] = {1, 8, 33};
    for (int s = 0; s < 3; s++) {
        batch b = batch_make(RIG_F32, sizes[s], 8);
        for (int64_t i = 0; i < sizes[s] * 8; i++)
            b.values[i] = 2.5f;
        run(&b, ALEA_OP_TOPK_MASK, k, NULL);
        assert_memory_equal(b.out, b.in, (size_t)sizes[s] * 32);
        batch_free(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topk_keeps_the_k_largest_of_plain_rows),
        cmocka_unit_test(test_topk_of_special_rows),
        cmocka_unit_test(test_topk_with_more_than_its_nans),
        cmocka_unit_test(test_topk_where_every_fourth_is_the_minimum),
        cmocka_unit_test(test_topk_at_every_depth),
        cmocka_unit_test(test_topk_among_neighbouring_values),
        cmocka_unit_test(test_topk_where_a_sample_is_deceived),
        cmocka_unit_test(test_topp_where_a_sample_is_deceived),
        cmocka_unit_test(test_topk_of_an_empty_vocabulary),
        cmocka_unit_test(test_topk_at_and_beyond_the_vocabulary),
        cmocka_unit_test(test_topk_ranks_infinities_and_nan),
        cmocka_unit_test(test_topk_returns_nan_payloads_of_a_whole_row),
        cmocka_unit_test(test_minp_of_plain_rows),
        cmocka_unit_test(test_minp_rows_without_a_finite_threshold),
        cmocka_unit_test(test_minp_of_every_fill),
        cmocka_unit_test(test_minp_cuts_at_the_sum_of_rounded_numbers),
        cmocka_unit_test(test_topp_of_plain_rows),
        cmocka_unit_test(test_topp_at_its_endpoints),
        cmocka_unit_test(test_topp_one_drops_a_thin_tail),
        cmocka_unit_test(test_topp_of_every_fill),
        cmocka_unit_test(test_topp_keeps_the_crossing_token),
        cmocka_unit_test(test_topp_mass_reaches_p_in_every_row),
        cmocka_unit_test(test_topp_sums_do_not_stall),
        cmocka_unit_test(test_topk_topp_of_plain_rows),
        cmocka_unit_test(test_topk_topp_of_special_rows),
        cmocka_unit_test(test_topk_topp_is_the_composition),
        cmocka_unit_test(test_topk_topp_renormalizes),
        cmocka_unit_test(test_masks_compose_with_rows_of_others),
        cmocka_unit_test(test_masks_keep_every_tie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
