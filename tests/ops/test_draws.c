/*
 * Draws from probabilities: exact tokens where the documented stream and exact arithmetic say
 * which, frequencies by six sigma elsewhere, and the rows that expose a broken prefix sum.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/oracle.h"
#include "ops/rig.h"
#include "support/fill.h"

static const rig_how one_thread = {.threads = 1};
static const int64_t seed_1234 = 1234, offset_7 = 7;

static void check_count(int64_t count, int64_t n, long double p, const char *what, int32_t token) {
    const long double expected = (long double)n * p;
    if (fabsl((long double)count - expected) <= 6 * sqrtl(expected * (1 - p)) + 5) return;
    fail_msg("%s: token %d drawn %d times, expected %.1Lf", what, token, (int)count, expected);
}

/* Pearson's statistic may exceed its mean n - 1 by six standard deviations, no more. */
static void check_chi_square(const int64_t *counts, const long double *p, int32_t n,
                             int64_t draws) {
    long double sum = 0;
    int32_t cells = 0;
    for (int32_t i = 0; i < n; i++) {
        const long double expected = p[i] * (long double)draws;
        if (expected < 5) continue;
        cells++;
        sum += ((long double)counts[i] - expected) * ((long double)counts[i] - expected) / expected;
    }
    assert_true(cells < 2 || sum <= (cells - 1) + 6 * sqrtl(2 * (cells - 1)));
}

/* 65,536 rows that are one row: a broadcast by a stride of 0. */
static void sample_broadcast(rig_how how, int32_t *tokens, float *row, int64_t rows, int32_t vocab,
                             int64_t seed) {
    rig_tensor a, b, c, d;
    int64_t offset = 7;
    alea_error error = {0};
    alea_sample_probs *op = NULL;
    const alea_op_config config = rig_config(how, vocab, 0);
    assert_int_equal(alea_sample_probs_create(&config, &op, &error), ALEA_OK);
    DLTensor *probs = rig_2d(&b, row, RIG_F32, rows, vocab);
    probs->strides = b.strides;
    b.strides[1] = 1;
    const alea_status status = alea_sample_probs_run(
        op, rig_1d(&a, tokens, RIG_I32, rows), probs, rig_1d(&c, &seed, RIG_I64, 1),
        rig_1d(&d, &offset, RIG_I64, 1), NULL, NULL, &error);
    if (status < 0) fail_msg("%s", error.message);
    alea_sample_probs_destroy(op);
}

static void test_sampling_follows_unnormalized_weights(void **state) {
    (void)state;
    enum { ROWS = 65536, VOCAB = 64 };
    float weights[VOCAB];
    long double p[VOCAB], total = 0;
    int64_t counts[VOCAB] = {0};
    int32_t *tokens = rig_alloc(ROWS * 4), *again = rig_alloc(ROWS * 4);
    uint64_t random = 1235;
    for (int i = 0; i < VOCAB; i++) {
        weights[i] = i % 4 == 0 ? 0 : (float)test_uniform(&random) * 3;
        total += weights[i];
    }
    sample_broadcast(one_thread, tokens, weights, ROWS, VOCAB, 1234);
    sample_broadcast(one_thread, again, weights, ROWS, VOCAB, 1234);
    assert_memory_equal(tokens, again, ROWS * 4);
    for (int i = 0; i < ROWS; i++)
        counts[tokens[i]]++;
    for (int i = 0; i < VOCAB; i++) {
        p[i] = weights[i] / total;
        check_count(counts[i], ROWS, p[i], "sampling", i);
        if (i % 4 == 0) assert_int_equal(counts[i], 0);
    }
    check_chi_square(counts, p, VOCAB, ROWS);
    free(tokens);
    free(again);
}

static void test_sampling_of_uniform_rows_is_even(void **state) {
    (void)state;
    enum { ROWS = 65536, VOCAB = 131072, BINS = 64 };
    float *row = rig_alloc(VOCAB * 4);
    int32_t *tokens = rig_alloc(ROWS * 4);
    int64_t counts[BINS] = {0};
    long double p[BINS];
    for (int i = 0; i < VOCAB; i++)
        row[i] = 0x1p-17f;
    /* Every 16th of the rows: a row of this length costs a pass each. */
    sample_broadcast((rig_how){.threads = 2}, tokens, row, ROWS / 16, VOCAB, 1234);
    for (int i = 0; i < ROWS / 16; i++) {
        /* Here exact arithmetic says which token, also where u stands on a boundary. */
        assert_int_equal(tokens[i], oracle_philox(1234, 0, (uint32_t)i, 7) >> 15);
        counts[tokens[i] / (VOCAB / BINS)]++;
    }
    for (int i = 0; i < BINS; i++)
        p[i] = 1.0L / BINS;
    check_chi_square(counts, p, BINS, ROWS / 16);
    free(row);
    free(tokens);
}

/* Integer weights are exact as masses, so that 128-bit arithmetic says every token for sure. */
static void test_sampling_is_exact_where_weights_are_integers(void **state) {
    (void)state;
    enum { ROWS = 4096, VOCAB = 131072, LOG2_MAX = 20 };
    __extension__ typedef unsigned __int128 wide;
    float *weights = rig_alloc(VOCAB * 4);
    uint64_t *running = rig_alloc(VOCAB * 8), random = 4, total = 0;
    int32_t *tokens = rig_alloc(ROWS * 4);
    for (int i = 0; i < VOCAB; i++) {
        const uint64_t weight = i == 5 ? 1 << LOG2_MAX : test_random(&random) >> (64 - LOG2_MAX);
        weights[i] = (float)weight;
        running[i] = total += weight;
    }
    sample_broadcast((rig_how){.threads = 2}, tokens, weights, ROWS, VOCAB, 1234);
    for (uint32_t row = 0; row < ROWS; row++) {
        const wide bits = oracle_philox(1234, 0, row, 7) >> 8;
        const wide left = bits * ((wide)total << (40 - LOG2_MAX)) >> 24;
        int32_t low = 0, high = VOCAB - 1; /* the first whose running mass exceeds `left` */
        while (low < high) {
            const int32_t middle = low + (high - low) / 2;
            if (((wide)running[middle] << (40 - LOG2_MAX)) > left) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        assert_int_equal(tokens[row], low);
    }
    free(weights);
    free(running);
    free(tokens);
}

static void test_sampling_does_not_depend_on_the_launch(void **state) {
    (void)state;
    enum { VOCAB = 151936 };
    const int64_t rows[] = {1, 17, 300};
    float *weights = rig_alloc(VOCAB * 4);
    int32_t tokens[300], first = -1;
    uint64_t random = 3;
    for (int i = 0; i < VOCAB; i++)
        weights[i] = i % 7 == 0 ? 0 : (float)test_uniform(&random);
    bool sure;
    const int32_t expected = oracle_pick(weights, VOCAB, oracle_uniform(1234, 0, 0, 7), &sure);
    for (int b = 0; b < 3; b++) {
        for (int32_t threads = 1; threads <= 3; threads++) {
            sample_broadcast((rig_how){.threads = threads}, tokens, weights, rows[b], VOCAB, 1234);
            if (first < 0) first = tokens[0];
            assert_int_equal(tokens[0], first);
        }
    }
    assert_true(weights[first] > 0);
    assert_true(!sure || first == expected);
    free(weights);
}

static void test_sampling_takes_the_token_of_the_documented_stream(void **state) {
    (void)state;
    const int32_t sizes[] = {1, 2, 3, 63, 64, 65, 1000, 1023, 1024, 1025, 2049, 50257};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int32_t n = sizes[s];
        enum { ROWS = 20 };
        float *probs = rig_alloc((size_t)(ROWS * n) * 4);
        int32_t tokens[ROWS], unsure = 0;
        rig_random_probs(probs, ROWS, n, 9 + s);
        rig_sample_probs(one_thread, tokens, probs, ROWS, n, &seed_1234, &offset_7, 1);
        for (uint32_t row = 0; row < ROWS; row++) {
            bool sure;
            const int32_t expected =
                oracle_pick(probs + row * (uint32_t)n, n, oracle_uniform(1234, 0, row, 7), &sure);
            unsure += !sure;
            if (sure) assert_int_equal(tokens[row], expected);
        }
        assert_true(unsure <= ROWS / 2);
        free(probs);
    }
}

/* A prefix sum that skips its end, is moved by one or takes another row's uniform fails here. */
static void test_sampling_of_one_hot_rows(void **state) {
    (void)state;
    const int32_t sizes[] = {1, 5, 17, 1023, 1024, 1025, 4099};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int32_t n = sizes[s], hot[] = {0, n / 2, n - 1};
        float *probs = calloc(3 * (size_t)n, 4);
        int32_t tokens[3];
        for (int row = 0; row < 3; row++)
            probs[row * n + hot[row]] = row == 1 ? 1e-42f : 1.0f;
        rig_sample_probs(one_thread, tokens, probs, 3, n, &seed_1234, &offset_7, 1);
        assert_memory_equal(tokens, hot, sizeof hot);
        free(probs);
    }
}

static void test_sampling_survives_rows_that_are_no_weights(void **state) {
    (void)state;
    enum { VOCAB = 2500 };
    float *probs = calloc(5 * VOCAB, 4);
    int32_t tokens[5], reference[5];
    for (int i = 0; i < VOCAB; i++) {
        probs[i] = NAN;
        probs[VOCAB + i] = -1;
        probs[2 * VOCAB + i] = i % 2 ? INFINITY : 0.5f;
        probs[3 * VOCAB + i] = i == 7 ? NAN : 1;
    }
    rig_sample_probs(one_thread, tokens, probs, 5, VOCAB, &seed_1234, &offset_7, 1);
    rig_sample_probs((rig_how){.target = "cpu-ref", .threads = 3}, reference, probs, 5, VOCAB,
                     &seed_1234, &offset_7, 1);
    assert_memory_equal(tokens, reference, sizeof tokens);
    for (int i = 0; i < 5; i++)
        assert_in_range(tokens[i], 0, VOCAB - 1);
    assert_true(tokens[2] % 2 == 0 && tokens[3] != 7);
    free(probs);
}

static void test_sampling_with_a_seed_for_each_row_forgets_its_place(void **state) {
    (void)state;
    enum { VOCAB = 700, ROWS = 6 };
    float *probs = rig_alloc(ROWS * VOCAB * 4);
    int32_t tokens[ROWS], alone;
    int64_t seed[ROWS], offset[ROWS];
    rig_random_probs(probs, ROWS, VOCAB, 4);
    for (int i = 0; i < ROWS; i++) {
        seed[i] = i == 2 ? -1 : 100 + i;
        offset[i] = i == 3 ? (INT64_C(1) << 32) + 5 : i;
    }
    rig_sample_probs(one_thread, tokens, probs, ROWS, VOCAB, seed, offset, ROWS);
    for (int i = 0; i < ROWS; i++) {
        rig_sample_probs(one_thread, &alone, probs + i * VOCAB, 1, VOCAB, &seed[i], &offset[i], 1);
        assert_int_equal(alone, tokens[i]);
        bool sure;
        const float u = oracle_uniform((uint64_t)seed[i], 0, 0, (uint64_t)offset[i]);
        const int32_t expected = oracle_pick(probs + i * VOCAB, VOCAB, u, &sure);
        if (sure) assert_int_equal(tokens[i], expected);
    }
    free(probs);
}

/* Rows that are one even row, drawn from by every operator that draws. */
enum { PLACES = 5, EVEN = 65536 };

typedef struct stream {
    DLTensor *seed, *offset, *words;
} stream;

static void draw_from_probs(int32_t *tokens, float *even, stream at) {
    rig_tensor t[2];
    alea_sample_probs *op = NULL;
    const alea_op_config config = rig_config(one_thread, EVEN, 0);
    DLTensor *probs = rig_2d(&t[0], even, RIG_F32, PLACES, EVEN);
    probs->strides = (int64_t[]){0, 1};
    assert_int_equal(alea_sample_probs_create(&config, &op, NULL), ALEA_OK);
    assert_int_equal(alea_sample_probs_run(op, rig_1d(&t[1], tokens, RIG_I32, PLACES), probs,
                                           at.seed, at.offset, at.words, NULL, NULL),
                     ALEA_OK);
    alea_sample_probs_destroy(op);
}

static void draw_from_logits(int32_t *tokens, float *even, stream at) {
    rig_tensor t[2];
    alea_sample_logits *op = NULL;
    const alea_op_config config = rig_config(one_thread, EVEN, 0);
    DLTensor *logits = rig_2d(&t[0], even, RIG_F32, PLACES, EVEN);
    logits->strides = (int64_t[]){0, 1};
    const alea_sample_logits_tensors tensors = {.struct_bytes = sizeof tensors,
                                                .tokens = rig_1d(&t[1], tokens, RIG_I32, PLACES),
                                                .logits = logits,
                                                .seed = at.seed,
                                                .offset = at.offset,
                                                .row_words = at.words};
    assert_int_equal(alea_sample_logits_create(&config, &op, NULL), ALEA_OK);
    assert_int_equal(alea_sample_logits_run(op, &tensors, NULL, NULL), ALEA_OK);
    alea_sample_logits_destroy(op);
}

/* Behind one draft, which stands because its draft probability is 0: draw 1 places the token. */
static void draw_behind_a_draft(int32_t *tokens, float *zeros, float *even, stream at) {
    rig_tensor t[5];
    int32_t ids[PLACES] = {0}, accepted[PLACES], placed[PLACES][2];
    alea_chain_sample *op = NULL;
    const alea_op_config config = rig_config(one_thread, EVEN, 0);
    DLTensor *draft = rig_3d(&t[0], zeros, RIG_F32, PLACES, 1, EVEN);
    DLTensor *target = rig_3d(&t[1], even, RIG_F32, PLACES, 2, EVEN);
    draft->strides = target->strides = (int64_t[]){0, 0, 1};
    assert_int_equal(alea_chain_sample_create(&config, &op, NULL), ALEA_OK);
    assert_int_equal(alea_chain_sample_run(op, rig_2d(&t[2], placed, RIG_I32, PLACES, 2),
                                           rig_1d(&t[3], accepted, RIG_I32, PLACES), draft,
                                           rig_2d(&t[4], ids, RIG_I32, PLACES, 1), target, at.seed,
                                           at.offset, at.words, NULL, NULL),
                     ALEA_OK);
    alea_chain_sample_destroy(op);
    for (int row = 0; row < PLACES; row++) {
        assert_int_equal(accepted[row], 1);
        tokens[row] = placed[row][1];
    }
}

/* Where a row stands in the stream: at its number; at 0, once rows have a seed or an offset of
 * their own; at its word, where words are given. */
static void test_a_rows_place_in_the_stream(void **state) {
    (void)state;
    float *zeros = calloc(EVEN, 4), *even = rig_alloc(EVEN * 4);
    int32_t words[] = {7, -1, 0, 7, INT32_MIN}, tokens[3][PLACES];
    int64_t seeds[] = {1234, 8, 1234, 9, 1234}, offsets[] = {7, 3, 7, 7, 1};
    for (int i = 0; i < EVEN; i++)
        even[i] = 0x1p-16f;
    for (int which = 0; which < 8; which++) {
        const bool own_seed = which & 1, own_offset = which & 2, own_word = which & 4;
        rig_tensor t[3];
        const stream at = {rig_1d(&t[0], seeds, RIG_I64, own_seed ? PLACES : 1),
                           rig_1d(&t[1], offsets, RIG_I64, own_offset ? PLACES : 1),
                           own_word ? rig_1d(&t[2], words, RIG_I32, PLACES) : NULL};
        draw_from_probs(tokens[0], even, at);
        draw_from_logits(tokens[1], zeros, at);
        draw_behind_a_draft(tokens[2], zeros, even, at);
        for (uint32_t row = 0; row < PLACES; row++) {
            const uint64_t seed = (uint64_t)seeds[own_seed ? row : 0];
            const uint64_t offset = (uint64_t)offsets[own_offset ? row : 0];
            const uint32_t place = own_seed || own_offset ? 0 : row;
            const uint32_t word = own_word ? (uint32_t)words[row] : place;
            for (uint32_t i = 0; i < 3; i++) /* the third is draw 1 */
                assert_int_equal(tokens[i][row], oracle_philox(seed, i / 2, word, offset) >> 16);
        }
    }
    free(zeros);
    free(even);
}

/* --- chains ------------------------------------------------------------------------------ */

static float rand_cubed(uint64_t *random) {
    const double u = test_uniform(random);
    return (float)(u * u * u);
}

static void normalize(float *p, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += p[i];
    for (int32_t i = 0; i < n; i++)
        p[i] = (float)(p[i] / sum);
}

static void test_chain_follows_its_distributions(void **state) {
    (void)state;
    enum { ROWS = 65536, N = 2, V = 16 };
    float q[N][V], p[N + 1][V];
    uint64_t random = 17;
    for (int i = 0; i <= N; i++) {
        for (int t = 0; t < V; t++) {
            if (i < N) q[i][t] = rand_cubed(&random);
            p[i][t] = rand_cubed(&random);
        }
        if (i < N) normalize(q[i], V);
        normalize(p[i], V);
    }
    float *draft = rig_alloc(sizeof q * ROWS), *target = rig_alloc(sizeof p * ROWS);
    int32_t *ids = rig_alloc(ROWS * N * 4), *tokens = rig_alloc(ROWS * (N + 1) * 4);
    int32_t *accepted = rig_alloc(ROWS * 4), *again = rig_alloc(ROWS * (N + 1) * 4);
    for (int row = 0; row < ROWS; row++) {
        memcpy(draft + row * N * V, q, sizeof q);
        memcpy(target + row * (N + 1) * V, p, sizeof p);
        for (int i = 0; i < N; i++) {
            bool sure;
            ids[row * N + i] = oracle_pick(q[i], V, (float)test_uniform(&random), &sure);
        }
    }
    rig_chain(one_thread, tokens, accepted, draft, ids, target, ROWS, N, V, 1234, 7);
    rig_chain(one_thread, again, accepted, draft, ids, target, ROWS, N, V, 1234, 7);
    assert_memory_equal(tokens, again, ROWS * (N + 1) * 4);

    int64_t stops[N + 1] = {0}, first[V] = {0}, placed[N + 1][V] = {{0}}, taken[N][V] = {{0}};
    for (int row = 0; row < ROWS; row++) {
        const int32_t *out = tokens + row * (N + 1), stop = accepted[row];
        stops[stop]++;
        first[out[0]]++;
        placed[stop][out[stop]]++;
        for (int i = 0; i < stop; i++) {
            assert_int_equal(out[i], ids[row * N + i]);
            taken[i][out[i]]++;
        }
        for (int i = stop + 1; i <= N; i++)
            assert_int_equal(out[i], -1);
    }
    long double a[N] = {0}, reach = 1;
    for (int i = 0; i < N; i++) {
        for (int t = 0; t < V; t++)
            a[i] += fminf(q[i][t], p[i][t]);
    }
    check_count(stops[0], ROWS, 1 - a[0], "accepted", 0);
    check_count(stops[1], ROWS, a[0] * (1 - a[1]), "accepted", 1);
    check_count(stops[2], ROWS, a[0] * a[1], "accepted", 2);
    for (int t = 0; t < V; t++)
        check_count(first[t], ROWS, p[0][t], "first token", t);
    for (int i = 0; i <= N; i++) {
        long double mass = 0;
        for (int t = 0; t < V; t++)
            mass += i < N ? fmaxf(0, p[i][t] - q[i][t]) : p[i][t];
        for (int t = 0; t < V; t++) {
            const long double weight = i < N ? fmaxf(0, p[i][t] - q[i][t]) : p[i][t];
            check_count(placed[i][t], stops[i], weight / mass, "placed", t);
            if (i < N) {
                check_count(taken[i][t], ROWS, reach * fminf(q[i][t], p[i][t]), "taken", t);
            }
        }
        if (i < N) reach *= a[i];
    }
    free(draft);
    free(target);
    free(ids);
    free(tokens);
    free(accepted);
    free(again);
}

/* The rows of one shape of the exact test; 300 rows of 32,000 are cut to 24, which is 22 MB. */
static void check_chain_exactly(int64_t rows, int32_t vocab, int32_t n_drafts) {
    float *draft = rig_alloc((size_t)(rows * n_drafts) * (size_t)vocab * 4);
    float *target = rig_alloc((size_t)(rows * (n_drafts + 1)) * (size_t)vocab * 4);
    float *residual = rig_alloc((size_t)vocab * 4);
    int32_t *ids = rig_alloc((size_t)(rows * n_drafts) * 4);
    int32_t *tokens = rig_alloc((size_t)(rows * (n_drafts + 1)) * 4);
    int32_t *accepted = rig_alloc((size_t)rows * 4);
    uint64_t random = 11;
    rig_random_probs(draft, rows * n_drafts, vocab, 11);
    rig_random_probs(target, rows * (n_drafts + 1), vocab, 12);
    for (int64_t i = 0; i < rows * n_drafts; i++)
        ids[i] = (int32_t)(test_random(&random) % (uint64_t)vocab);
    for (int64_t i = 0; i < rows * n_drafts; i += 2) { /* so that some are accepted */
        const int64_t row = i / n_drafts, at = i % n_drafts;
        target[(row * (n_drafts + 1) + at) * vocab + ids[i]] *= 4;
    }
    rig_chain((rig_how){.threads = 2}, tokens, accepted, draft, ids, target, rows, n_drafts, vocab,
              1234, 7);
    for (int64_t row = 0; row < rows; row++) {
        const int32_t *out = tokens + row * (n_drafts + 1);
        int32_t stop = 0;
        for (; stop < n_drafts; stop++) {
            const int32_t id = ids[row * n_drafts + stop];
            const float u = oracle_uniform(1234, (uint32_t)stop, (uint32_t)row, 7);
            volatile const float product = u * draft[(row * n_drafts + stop) * vocab + id];
            if (!(product < target[(row * (n_drafts + 1) + stop) * vocab + id])) break;
            assert_int_equal(out[stop], id);
        }
        assert_int_equal(accepted[row], stop);
        for (int32_t t = 0; t < vocab; t++) {
            residual[t] = target[(row * (n_drafts + 1) + stop) * vocab + t];
            if (stop < n_drafts) {
                residual[t] = fmaxf(0, residual[t] - draft[(row * n_drafts + stop) * vocab + t]);
            }
        }
        bool sure;
        const float u = oracle_uniform(1234, (uint32_t)n_drafts, (uint32_t)row, 7);
        const int32_t expected = oracle_pick(residual, vocab, u, &sure);
        assert_true(residual[out[stop]] > 0);
        if (sure) assert_int_equal(out[stop], expected);
        for (int32_t i = stop + 1; i <= n_drafts; i++)
            assert_int_equal(out[i], -1);
    }
    free(draft);
    free(target);
    free(residual);
    free(ids);
    free(tokens);
    free(accepted);
}

static void test_chain_accepts_exactly_the_reference_prefix(void **state) {
    (void)state;
    check_chain_exactly(2, 151936, 3);
    check_chain_exactly(24, 32000, 3);
    check_chain_exactly(8, 4099, 3);
    check_chain_exactly(4, 64, 600);
}

static void test_chain_accepts_as_often_as_another_stream(void **state) {
    (void)state;
    enum { ROWS = 20000, N = 3, V = 8 };
    float *draft = rig_alloc(ROWS * N * V * 4), *target = rig_alloc(ROWS * (N + 1) * V * 4);
    int32_t *ids = rig_alloc(ROWS * N * 4), *tokens = rig_alloc(ROWS * (N + 1) * 4);
    int32_t *accepted = rig_alloc(ROWS * 4);
    int64_t ours[N + 1] = {0}, theirs[N + 1] = {0};
    uint64_t random = 5;
    rig_random_probs(draft, ROWS * N, V, 1);
    rig_random_probs(target, ROWS * (N + 1), V, 2);
    for (int i = 0; i < ROWS * N; i++)
        ids[i] = (int32_t)(test_random(&random) % V);
    rig_chain(one_thread, tokens, accepted, draft, ids, target, ROWS, N, V, 99, 0);
    for (int row = 0; row < ROWS; row++) {
        ours[accepted[row]]++;
        int i = 0;
        while (i < N && test_uniform(&random) * draft[(row * N + i) * V + ids[row * N + i]] <
                            target[(row * (N + 1) + i) * V + ids[row * N + i]])
            i++;
        theirs[i]++;
    }
    for (int i = 0; i <= N; i++) {
        const double both = (double)(ours[i] + theirs[i]);
        assert_true(fabs((double)(ours[i] - theirs[i])) <= 5 * sqrt(both) + 5);
    }
    free(draft);
    free(target);
    free(ids);
    free(tokens);
    free(accepted);
}

/* The token follows the residual of exactly the rejected position: here each residual is a
 * different one-hot row. */
static void test_chain_places_from_the_rejected_position(void **state) {
    (void)state;
    enum { N = 4, V = 1500 };
    for (int stop = 0; stop <= N; stop++) {
        float *draft = calloc(N * V, 4), *target = calloc((N + 1) * V, 4);
        int32_t ids[N], tokens[N + 1], accepted;
        for (int i = 0; i < N; i++) {
            ids[i] = i * 7;
            draft[i * V + ids[i]] = 1;
            target[i * V + (i == stop ? 1000 + i : ids[i])] = 1;
        }
        target[N * V + 1400] = 1;
        rig_chain(one_thread, tokens, &accepted, draft, ids, target, 1, N, V, 1234, 7);
        assert_int_equal(accepted, stop);
        assert_int_equal(tokens[stop], stop == N ? 1400 : 1000 + stop);
        for (int i = stop + 1; i <= N; i++)
            assert_int_equal(tokens[i], -1);
        free(draft);
        free(target);
    }
}

/* Row 2 is all NaN: its token is in range, and the others have the bits they have without it. */
static void test_a_row_of_nan_leaves_the_draws_of_others_alone(void **state) {
    (void)state;
    enum { ROWS = 4, N = 2, V = 3000 };
    float *draft = rig_alloc(ROWS * N * V * 4), *target = rig_alloc(ROWS * (N + 1) * V * 4);
    float *probs = rig_alloc(ROWS * V * 4);
    int32_t ids[ROWS * N] = {5, 7, 2999, 0, 1, 2, 1024, 1023};
    int32_t tokens[2][ROWS * (N + 1)], accepted[2][ROWS], drawn[2][ROWS];
    rig_random_probs(draft, ROWS * N, V, 3);
    rig_random_probs(target, ROWS * (N + 1), V, 4);
    for (int bad = 0; bad < 2; bad++) {
        for (int i = 0; bad && i < (N + 1) * V; i++) {
            if (i < N * V) draft[2 * N * V + i] = NAN;
            target[2 * (N + 1) * V + i] = NAN;
        }
        rig_chain(one_thread, tokens[bad], accepted[bad], draft, ids, target, ROWS, N, V, 1234, 7);
        for (int row = 0; row < ROWS; row++)
            memcpy(probs + row * V, target + row * (N + 1) * V, V * 4);
        rig_sample_probs(one_thread, drawn[bad], probs, ROWS, V, &seed_1234, &offset_7, 1);
    }
    for (int row = 0; row < ROWS; row++) {
        assert_in_range(drawn[1][row], 0, V - 1);
        assert_in_range(tokens[1][row * (N + 1) + accepted[1][row]], 0, V - 1);
        if (row == 2) continue;
        assert_int_equal(accepted[0][row], accepted[1][row]);
        assert_int_equal(drawn[0][row], drawn[1][row]);
        for (int i = 0; i <= N; i++)
            assert_int_equal(tokens[0][row * (N + 1) + i], tokens[1][row * (N + 1) + i]);
    }
    free(draft);
    free(target);
    free(probs);
}

static void test_chain_never_accepts_a_target_of_zero(void **state) {
    (void)state;
    const float draft[] = {0, 1}, target[] = {1, 0, 0.5f, 0.5f};
    const int32_t id = 1;
    int32_t tokens[2], accepted;
    for (int64_t seed = 0; seed < 50; seed++) {
        rig_chain(one_thread, tokens, &accepted, draft, &id, target, 1, 1, 2, seed, 0);
        assert_int_equal(accepted, 0);
        assert_int_equal(tokens[0], 0);
        assert_int_equal(tokens[1], -1);
    }
}

static void test_chain_compares_strictly(void **state) {
    (void)state;
    const float draft[] = {0, 1}, target[] = {0, 1, 0.5f, 0.5f}; /* u * 0 < 0 never holds */
    const int32_t id = 0;
    int32_t tokens[2], accepted;
    rig_chain(one_thread, tokens, &accepted, draft, &id, target, 1, 1, 2, 5, 0);
    assert_int_equal(accepted, 0);
    assert_int_equal(tokens[0], 1); /* an empty residual: the target's row */
}

static void test_chain_without_residual_draws_from_the_target(void **state) {
    (void)state;
    /* Draft probability 4 at the drafted id, as no normalized row has: rejected with u > 1/8,
     * and the residual is empty. */
    const float draft[] = {4, 0.5f}, target[] = {0.5f, 0.5f, 1, 0};
    const int32_t id = 0;
    int32_t tokens[2], accepted, seen[2] = {0};
    for (int64_t seed = 0; seed < 200; seed++) {
        rig_chain(one_thread, tokens, &accepted, draft, &id, target, 1, 1, 2, seed, 0);
        if (accepted) continue;
        seen[tokens[0]]++;
    }
    assert_true(seen[0] > 40 && seen[1] > 40);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sampling_follows_unnormalized_weights),
        cmocka_unit_test(test_sampling_of_uniform_rows_is_even),
        cmocka_unit_test(test_sampling_is_exact_where_weights_are_integers),
        cmocka_unit_test(test_sampling_does_not_depend_on_the_launch),
        cmocka_unit_test(test_sampling_takes_the_token_of_the_documented_stream),
        cmocka_unit_test(test_sampling_of_one_hot_rows),
        cmocka_unit_test(test_sampling_survives_rows_that_are_no_weights),
        cmocka_unit_test(test_sampling_with_a_seed_for_each_row_forgets_its_place),
        cmocka_unit_test(test_a_rows_place_in_the_stream),
        cmocka_unit_test(test_chain_follows_its_distributions),
        cmocka_unit_test(test_chain_accepts_exactly_the_reference_prefix),
        cmocka_unit_test(test_chain_accepts_as_often_as_another_stream),
        cmocka_unit_test(test_chain_places_from_the_rejected_position),
        cmocka_unit_test(test_a_row_of_nan_leaves_the_draws_of_others_alone),
        cmocka_unit_test(test_chain_never_accepts_a_target_of_zero),
        cmocka_unit_test(test_chain_compares_strictly),
        cmocka_unit_test(test_chain_without_residual_draws_from_the_target),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
