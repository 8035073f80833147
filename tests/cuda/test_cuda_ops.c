/*
 * The operators on a CUDA device against cpu-ref, bit for bit: sizes, batches, dtypes and rows that
 * are likely to be handled wrongly. The tests of tests/ops run on the device as well, see
 * cuda_copy.h; here is what only a device can get wrong, and what would take a CPU too long there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_copy.h"
#include "cuda/on_device.h"
#include "ops/cuda.h"
#include "ops/rig.h"
#include "support/fill.h"

static const rig_how reference = {.target = "cpu-ref", .threads = 16};
static const rig_how device = {.target = CUDA_COPY};

static int find_device(void **state) {
    (void)state;
    alea_error error = {0};
    if (cuda_copy_register(&error) >= 0) return 0;
    print_message("%s\n", error.message);
    return 0;
}

/* A test of the device; without one it is a skip, which is counted. */
#define NEED_DEVICE()                                                                              \
    do {                                                                                           \
        alea_error missing = {0};                                                                  \
        if (cuda_copy_register(&missing) < 0) skip();                                              \
    } while (0)

static void *zeros(size_t bytes) {
    void *data = calloc(bytes ? bytes : 1, 1);
    if (!data) abort();
    return data;
}

/* ---- rows of every kind, all operators of logits ------------------------------------------ */

enum { TOPK = 20, GIVEN = 5 };

typedef struct batch {
    int64_t n;
    int32_t vocab;
    rig_dtype dtype;
    char *logits;
    float *p, *min_p, *temperature;
    int32_t *k, *tokens, *given;
    int64_t *seed, *offset;
} batch;

/* sound: leave out rows that are no distribution. */
static batch batch_make(int64_t n, int32_t vocab, rig_dtype dtype, uint64_t seed, bool sound) {
    const size_t count = (size_t)n;
    batch b = {n,
               vocab,
               dtype,
               zeros(count * (size_t)vocab * rig_bytes(dtype)),
               zeros(count * 4),
               zeros(count * 4),
               zeros(count * 4),
               zeros(count * 4),
               zeros(count * 4),
               zeros(count * GIVEN * 4),
               zeros(count * 8),
               zeros(count * 8)};
    static const float temperatures[] = {1, 0, 0.7f, 1, 1.3f, 0.01f, 1e-7f, 30, 1e30f};
    static const int32_t ks[] = {50, 0, 1, 20, 400, 3000, 0, 0, 64};
    static const float ps[] = {0.95f, 1, 0.5f, 0.999f, 1e-6f, 0.9f, 1, 1};
    static const float min_ps[] = {0, 0, 0.05f, 0, 1, 0.3f, 0, 1e-4f};
    float *x = zeros((size_t)vocab * 4);
    for (int64_t i = 0; i < n; i++) {
        const int fills = sound ? TEST_FILL_SOUND_COUNT : TEST_FILL_COUNT;
        test_fill_row(x, vocab, (test_fill)(test_random(&seed) % (uint64_t)fills), seed);
        rig_narrow(b.logits + (size_t)i * (size_t)vocab * rig_bytes(dtype), x, vocab, dtype);
        b.temperature[i] = temperatures[test_random(&seed) % 9];
        b.k[i] = ks[test_random(&seed) % 9];
        b.p[i] = ps[test_random(&seed) % 8];
        b.min_p[i] = min_ps[test_random(&seed) % 8];
        b.tokens[i] = (int32_t)(test_random(&seed) % (uint64_t)(vocab + 1)) - 1;
        for (int g = 0; g < GIVEN; g++)
            b.given[i * GIVEN + g] = (int32_t)(test_random(&seed) % (uint64_t)(vocab + 1)) - 1;
        b.seed[i] = (int64_t)test_random(&seed);
        b.offset[i] = (int64_t)test_random(&seed);
    }
    free(x);
    return b;
}

static void batch_free(batch *b) {
    free(b->logits);
    free(b->p);
    free(b->min_p);
    free(b->temperature);
    free(b->k);
    free(b->tokens);
    free(b->given);
    free(b->seed);
    free(b->offset);
}

static void same(const char *what, const batch *b, const void *got, const void *right,
                 size_t row_bytes) {
    for (int64_t i = 0; i < b->n; i++) {
        const size_t at = (size_t)i * row_bytes;
        if (memcmp((const char *)got + at, (const char *)right + at, row_bytes) == 0) continue;
        size_t byte = 0;
        while (((const char *)got)[at + byte] == ((const char *)right)[at + byte])
            byte++;
        const size_t word = byte / 4 * 4;
        uint32_t g = 0, r = 0;
        memcpy(&g, (const char *)got + at + word, word + 4 <= row_bytes ? 4 : 2);
        memcpy(&r, (const char *)right + at + word, word + 4 <= row_bytes ? 4 : 2);
        fail_msg("%s of %d x %d, dtype %d: row %d differs at byte %zu: %08x, not %08x "
                 "(T %g, k %d, p %g, min_p %g, token %d)",
                 what, (int)b->n, b->vocab, (int)b->dtype, (int)i, byte, g, r,
                 (double)b->temperature[i], b->k[i], (double)b->p[i], (double)b->min_p[i],
                 b->tokens[i]);
    }
}

static void check_masks(const batch *b) {
    const size_t row = (size_t)b->vocab * rig_bytes(b->dtype);
    char *got = zeros((size_t)b->n * row), *right = zeros((size_t)b->n * row);
    static const char *const names[] = {"", "topk_mask", "minp_mask", "topp_mask",
                                        "topk_topp_mask"};
    for (alea_op_kind kind = ALEA_OP_TOPK_MASK; kind <= ALEA_OP_TOPK_TOPP_MASK; kind++) {
        const float *p = kind == ALEA_OP_MINP_MASK ? b->min_p : b->p;
        rig_mask(kind, reference, right, b->logits, b->dtype, b->n, b->vocab, b->k, p);
        rig_mask(kind, device, got, b->logits, b->dtype, b->n, b->vocab, b->k, p);
        same(names[kind], b, got, right, row);
    }
    free(got);
    free(right);
}

typedef struct reports {
    double *lse;
    float *f;
    int32_t *i;
} reports;

static reports report(rig_how how, const batch *b, int32_t k, bool given) {
    const size_t n = (size_t)b->n, width = (size_t)(given ? GIVEN : k);
    reports r = {zeros(n * 8), zeros(n * 4 * (2 + width)), zeros(n * 4 * (2 + width))};
    rig_logprobs(how,
                 (rig_report){.lse = r.lse,
                              .logprobs = r.f,
                              .entropy = r.f + n,
                              .id_logprobs = width ? r.f + 2 * n : NULL,
                              .ranks = r.i,
                              .verdicts = r.i + n,
                              .ids = width ? r.i + 2 * n : NULL},
                 b->logits, b->dtype, b->n, b->vocab, k, b->tokens, given ? b->given : NULL, GIVEN);
    return r;
}

static void check_reports(const batch *b, int32_t k, bool given) {
    const size_t n = (size_t)b->n, width = (size_t)(given ? GIVEN : k);
    reports right = report(reference, b, k, given), got = report(device, b, k, given);
    same("lse", b, got.lse, right.lse, 8);
    same("logprobs", b, got.f, right.f, 4);
    same("entropy", b, got.f + n, right.f + n, 4);
    same("verdicts", b, got.i + n, right.i + n, 4);
    same("ranks", b, got.i, right.i, 4);
    if (width) same("alternatives", b, got.i + 2 * n, right.i + 2 * n, 4 * width);
    if (width) same("alternative_logprobs", b, got.f + 2 * n, right.f + 2 * n, 4 * width);
    free(right.lse);
    free(right.f);
    free(right.i);
    free(got.lse);
    free(got.f);
    free(got.i);
}

/* Outputs of a choice: numbers [3][n], then where reported logprobs of alternatives [n][TOPK];
 * integers tokens, verdicts, ranks [n], ids [n][TOPK]. */
typedef struct choices {
    float *f;
    int32_t *i;
    double *lse;
} choices;

enum { CHOOSE_REPORT = 8 }; /* beside 1, 2 and 4 for the three numbers */

static choices choose(rig_how how, const batch *b, int what) {
    const size_t n = (size_t)b->n;
    const bool reported = what & CHOOSE_REPORT;
    choices c = {zeros(n * 4 * (3 + TOPK)), zeros(n * 4 * (3 + TOPK)), zeros(n * 8)};
    rig_sample_logits(how,
                      (rig_choice){.tokens = c.i,
                                   .logprobs = what & 1 ? c.f : NULL,
                                   .sampled = what & 2 ? c.f + n : NULL,
                                   .kept = what & 4 ? c.f + 2 * n : NULL,
                                   .verdicts = c.i + n,
                                   .lse = reported ? c.lse : NULL,
                                   .ranks = reported ? c.i + 2 * n : NULL,
                                   .ids = reported ? c.i + 3 * n : NULL,
                                   .id_logprobs = reported ? c.f + 3 * n : NULL,
                                   .k = reported ? TOPK : 0},
                      b->logits, b->dtype, b->n, b->vocab,
                      (rig_params){b->temperature, b->k, b->p, b->min_p, b->seed, b->offset, b->n});
    return c;
}

static void choices_free(choices *c) {
    free(c->f);
    free(c->i);
    free(c->lse);
}

static void check_choices(const batch *b) {
    static const int whats[] = {7 | CHOOSE_REPORT, 7, CHOOSE_REPORT, 0};
    const size_t n = (size_t)b->n;
    for (size_t w = 0; w < sizeof whats / sizeof *whats; w++) {
        choices right = choose(reference, b, whats[w]), got = choose(device, b, whats[w]);
        same("verdicts", b, got.i + n, right.i + n, 4);
        same("tokens", b, got.i, right.i, 4);
        same("logprobs of tokens", b, got.f, right.f, 4);
        same("sampled_logprobs", b, got.f + n, right.f + n, 4);
        same("kept_mass", b, got.f + 2 * n, right.f + 2 * n, 4);
        same("lse of choices", b, got.lse, right.lse, 8);
        same("ranks of tokens", b, got.i + 2 * n, right.i + 2 * n, 4);
        same("alternatives of tokens", b, got.i + 3 * n, right.i + 3 * n, 4 * TOPK);
        same("their logprobs", b, got.f + 3 * n, right.f + 3 * n, 4 * TOPK);
        choices_free(&right);
        choices_free(&got);
    }
}

/* Chains of DRAFTS over the batch's own rows: position d of chain i is row (i + d) mod n, and its
 * draft's logits are those of the row before. Rows must be dense, so they are copied. */
static void check_chains(const batch *b) {
    enum { DRAFTS = 3 };
    const size_t n = (size_t)b->n, row = (size_t)b->vocab * rig_bytes(b->dtype);
    char *target = zeros(n * (DRAFTS + 1) * row), *draft = zeros(n * DRAFTS * row);
    int32_t *ids = zeros(n * DRAFTS * 4);
    for (size_t i = 0; i < n; i++) {
        for (size_t d = 0; d <= DRAFTS; d++) {
            memcpy(target + (i * (DRAFTS + 1) + d) * row, b->logits + (i + d) % n * row, row);
            if (d == DRAFTS) continue;
            memcpy(draft + (i * DRAFTS + d) * row, b->logits + (i + d + n - (i + d) % 2) % n * row,
                   row);
            const int32_t id = b->tokens[(i + d) % n];
            ids[i * DRAFTS + d] = id < 0 ? 0 : id;
        }
        if (i % 3 == 0) ids[i * DRAFTS] = (int32_t)(n * 7 % (size_t)b->vocab);
    }
    /* Likely drafts, or none would stand: the best token of each target row by value. */
    for (size_t at = 0; at < n * DRAFTS; at += 2) {
        const char *x = target + (at / DRAFTS * (DRAFTS + 1) + at % DRAFTS) * row;
        for (int32_t j = 0; j < b->vocab; j++)
            if (rig_value(x, j, b->dtype) > rig_value(x, ids[at], b->dtype)) ids[at] = j;
    }
    int32_t *got = zeros(n * 4 * (DRAFTS + 3)), *right = zeros(n * 4 * (DRAFTS + 3));
    for (int certain = 0; certain < 2; certain++) {
        const rig_chain_logits_args args = {
            certain ? NULL : draft, target, ids, b->temperature, b->seed, b->offset, b->n};
        for (int on_device = 0; on_device < 2; on_device++) {
            int32_t *out = on_device ? got : right;
            rig_chain_logits(on_device ? device : reference, out, out + n * (DRAFTS + 1),
                             out + n * (DRAFTS + 2), args, b->dtype, b->n, DRAFTS, b->vocab);
        }
        same("accepted", b, got + n * (DRAFTS + 1), right + n * (DRAFTS + 1), 4);
        same("verdicts of chains", b, got + n * (DRAFTS + 2), right + n * (DRAFTS + 2), 4);
        same("tokens of chains", b, got, right, 4 * (DRAFTS + 1));
    }
    free(target);
    free(draft);
    free(ids);
    free(got);
    free(right);
}

static void check_all(int64_t n, int32_t vocab, rig_dtype dtype, uint64_t seed, bool sound) {
    batch b = batch_make(n, vocab, dtype, seed, sound);
    check_reports(&b, TOPK, false);
    check_reports(&b, 3, false);
    check_reports(&b, 0, true);
    check_choices(&b);
    if ((int64_t)vocab * n < 4 << 20) check_chains(&b);
    for (int64_t i = 0; i < n; i++)
        b.k[i] = b.k[i] < 1 ? vocab : b.k[i];
    check_masks(&b);
    batch_free(&b);
}

static void test_short_rows(void **state) {
    (void)state;
    NEED_DEVICE();
    for (int32_t vocab = 1; vocab <= 70; vocab++)
        check_all(24, vocab, (rig_dtype)(vocab % 3), (uint64_t)vocab, false);
}

static void test_batches_of_common_vocabularies(void **state) {
    (void)state;
    NEED_DEVICE();
    static const int32_t vocabs[] = {64, 999, 1023, 1024, 1025, 4099};
    static const int64_t batches[] = {1, 2, 17, 64, 300};
    for (size_t v = 0; v < 6; v++)
        for (size_t b = 0; b < 5; b++)
            for (rig_dtype dtype = RIG_F16; dtype <= RIG_F32; dtype++)
                check_all(batches[b], vocabs[v], dtype, v * 7 + b, b % 2 == 0);
}

static void test_long_rows(void **state) {
    (void)state;
    NEED_DEVICE();
    static const int32_t vocabs[] = {32000, 49152, 50257, 128256, 151936, 201088, 262144};
    for (size_t v = 0; v < 7; v++)
        for (rig_dtype dtype = RIG_F16; dtype <= RIG_F32; dtype++)
            check_all(v % 2 ? 18 : 20, vocabs[v], dtype, 100 + v, dtype != RIG_F32);
}

/* Rows order[0..n) of another batch. */
static batch batch_pick(const batch *from, const int64_t *order, int64_t n) {
    const size_t row = (size_t)from->vocab * rig_bytes(from->dtype), count = (size_t)n;
    batch b = {n,
               from->vocab,
               from->dtype,
               zeros(count * row),
               zeros(count * 4),
               zeros(count * 4),
               zeros(count * 4),
               zeros(count * 4),
               zeros(count * 4),
               zeros(count * GIVEN * 4),
               zeros(count * 8),
               zeros(count * 8)};
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = order[i];
        memcpy(b.logits + (size_t)i * row, from->logits + (size_t)j * row, row);
        memcpy(b.given + i * GIVEN, from->given + j * GIVEN, GIVEN * 4);
        b.p[i] = from->p[j];
        b.min_p[i] = from->min_p[j];
        b.temperature[i] = from->temperature[j];
        b.k[i] = from->k[j];
        b.tokens[i] = from->tokens[j];
        b.seed[i] = from->seed[j];
        b.offset[i] = from->offset[j];
    }
    return b;
}

/* Each row's answers of every operator of logits, one after the other. */
static char *answers(rig_how how, const batch *b, size_t *each) {
    const size_t n = (size_t)b->n, mask = (size_t)b->vocab * rig_bytes(b->dtype);
    *each = 4 * mask + 2 * 8 + (2 + TOPK) * 8 + (3 + TOPK) * 8;
    char *all = zeros(n * *each), *masked = zeros(n * mask);
    size_t used = 0;
#define PUT(from, bytes)                                                                           \
    do {                                                                                           \
        for (size_t put_i = 0; put_i < n; put_i++)                                                 \
            memcpy(all + put_i * *each + used, (const char *)(from) + put_i * (bytes), bytes);     \
        used += bytes;                                                                             \
    } while (0)
    for (alea_op_kind kind = ALEA_OP_TOPK_MASK; kind <= ALEA_OP_TOPK_TOPP_MASK; kind++) {
        rig_mask(kind, how, masked, b->logits, b->dtype, b->n, b->vocab, b->k,
                 kind == ALEA_OP_MINP_MASK ? b->min_p : b->p);
        PUT(masked, mask);
    }
    reports r = report(how, b, TOPK, false);
    choices c = choose(how, b, 7 | CHOOSE_REPORT);
    PUT(r.lse, 8);
    PUT(c.lse, 8);
    PUT(r.f, 4);
    PUT(r.f + n, 4);
    PUT(r.f + 2 * n, 4 * TOPK);
    PUT(r.i, 4);
    PUT(r.i + n, 4);
    PUT(r.i + 2 * n, 4 * TOPK);
    for (size_t part = 0; part < 3; part++) {
        PUT(c.f + part * n, 4);
        PUT(c.i + part * n, 4);
    }
    PUT(c.f + 3 * n, 4 * TOPK);
    PUT(c.i + 3 * n, 4 * TOPK);
#undef PUT
    assert_true(used <= *each);
    free(r.lse);
    free(r.f);
    free(r.i);
    choices_free(&c);
    free(masked);
    return all;
}

/* Rows in batches of every size: what cpu-ref says of a row is what the device says of it, wherever
 * it stands and whatever shape its launch has. */
static void test_a_row_is_the_same_in_every_batch(void **state) {
    (void)state;
    NEED_DEVICE();
    enum { ROWS = 40 };
    static const int32_t vocabs[] = {64, 999, 4099, 32000, 128256, 151936, 201088, 262144};
    static const int64_t batches[] = {1, 2, 17, 64, 300, 512};
    for (size_t v = 0; v < 8; v++) {
        for (rig_dtype dtype = RIG_F16; dtype <= RIG_F32; dtype++) {
            batch all = batch_make(ROWS, vocabs[v], dtype, 900 + v, v % 2 == 0);
            for (int64_t i = 0; i < ROWS; i++)
                if (all.k[i] < 1) all.k[i] = vocabs[v];
            size_t each;
            char *right = answers(reference, &all, &each);
            for (size_t s = 0; s < 6; s++) {
                int64_t order[512];
                for (int64_t i = 0; i < batches[s]; i++)
                    order[i] = (i * 7 + (int64_t)s) % ROWS;
                batch b = batch_pick(&all, order, batches[s]);
                char *got = answers(device, &b, &each);
                for (int64_t i = 0; i < batches[s]; i++)
                    if (memcmp(got + (size_t)i * each, right + (size_t)order[i] * each, each) != 0)
                        fail_msg("%d x %d, dtype %d: row %d differs from row %d of cpu-ref",
                                 (int)batches[s], vocabs[v], (int)dtype, (int)i, (int)order[i]);
                free(got);
                batch_free(&b);
            }
            free(right);
            batch_free(&all);
        }
    }
}

static void test_the_longest_row(void **state) {
    (void)state;
    NEED_DEVICE();
    for (rig_dtype dtype = RIG_BF16; dtype <= RIG_F32; dtype++)
        check_all(6, ALEA_OP_VOCAB_MAX - (dtype == RIG_F32), dtype, 11 + dtype, true);
}

/* Normal rows, on which filters keep thousands; and some whose values are far from zero. */
static void test_flat_rows(void **state) {
    (void)state;
    NEED_DEVICE();
    for (rig_dtype dtype = RIG_F16; dtype <= RIG_F32; dtype++) {
        batch b = batch_make(24, 128256, dtype, 5, true);
        float *x = zeros((size_t)b.vocab * 4);
        for (int64_t i = 0; i < b.n; i++) {
            rig_normal(x, b.vocab, 50 + (uint64_t)i);
            for (int32_t j = 0; j < b.vocab; j++)
                x[j] = x[j] * (float)(0.1 + (double)i * 0.2) +
                       (i % 6 == 5 ? 3e4f * (float)(i - 12) : 0);
            rig_narrow(b.logits + (size_t)i * (size_t)b.vocab * rig_bytes(dtype), x, b.vocab,
                       dtype);
            b.p[i] = (float)(0.3 + 0.029 * (double)i);
            b.k[i] = i % 4 == 0 ? 20000 : i % 4 == 1 ? 500 : b.vocab;
        }
        check_masks(&b);
        check_reports(&b, TOPK, false);
        check_choices(&b);
        free(x);
        batch_free(&b);
    }
}

/* ---- probabilities ------------------------------------------------------------------------ */

static void test_draws_from_probabilities(void **state) {
    (void)state;
    NEED_DEVICE();
    static const int32_t vocabs[] = {1, 63, 1024, 4099, 128256};
    for (size_t v = 0; v < 5; v++) {
        const int32_t vocab = vocabs[v];
        const int64_t n = 40;
        float *probs = zeros((size_t)(n * vocab) * 4);
        int32_t got[40], right[40];
        int64_t seed = (int64_t)v, offset = 77;
        rig_random_probs(probs, n, vocab, v);
        for (int64_t i = 0; i < n; i++) { /* scaled by powers of two, some to denormals */
            for (int32_t j = 0; j < vocab; j++)
                probs[i * vocab + j] = ldexpf(probs[i * vocab + j], (int)(i - 30) * 4);
            if (i == 7) memset(probs + i * vocab, 0, (size_t)vocab * 4);
            if (i == 9) probs[i * vocab] = NAN;
            if (i == 10) probs[i * vocab] = INFINITY;
            if (i == 11) probs[i * vocab] = -1;
        }
        rig_sample_probs(reference, right, probs, n, vocab, &seed, &offset, 1);
        rig_sample_probs(device, got, probs, n, vocab, &seed, &offset, 1);
        assert_memory_equal(got, right, sizeof got);
        free(probs);
    }
}

static void test_chains(void **state) {
    (void)state;
    NEED_DEVICE();
    static const int32_t vocabs[] = {5, 1000, 32003, 128256};
    for (size_t v = 0; v < 4; v++) {
        for (int32_t drafts = 1; drafts <= 40; drafts = drafts * 3 + 1) {
            const int32_t vocab = vocabs[v];
            const int64_t n = vocab > 100000 ? 3 : 12;
            float *draft = zeros((size_t)(n * drafts * vocab) * 4);
            float *target = zeros((size_t)(n * (drafts + 1) * vocab) * 4);
            int32_t *ids = zeros((size_t)(n * drafts) * 4);
            rig_random_probs(target, n * (drafts + 1), vocab, v);
            uint64_t seed = v;
            for (int64_t i = 0; i < n; i++) {
                for (int32_t d = 0; d < drafts; d++) { /* like the target, so that some stand */
                    float *to = draft + (i * drafts + d) * vocab;
                    memcpy(to, target + (i * (drafts + 1) + d) * vocab, (size_t)vocab * 4);
                    ids[i * drafts + d] = (int32_t)(test_random(&seed) % (uint64_t)vocab);
                    to[ids[i * drafts + d]] *= test_uniform(&seed) < 0.3 ? 5.0f : 0.9f;
                }
            }
            const size_t bytes = (size_t)(n * (drafts + 2)) * 4;
            int32_t *got = zeros(bytes), *right = zeros(bytes);
            rig_chain(reference, right, right + n * (drafts + 1), draft, ids, target, n, drafts,
                      vocab, 3, 4);
            rig_chain(device, got, got + n * (drafts + 1), draft, ids, target, n, drafts, vocab, 3,
                      4);
            assert_memory_equal(got, right, bytes);
            free(draft);
            free(target);
            free(ids);
            free(got);
            free(right);
        }
    }
}

/* ---- positions ---------------------------------------------------------------------------- */

static int by_position(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void check_select(int32_t length, int32_t topk, uint64_t seed) {
    enum { N = 2 * TEST_FILL_COUNT };
    float *scores = zeros((size_t)N * (size_t)length * 4);
    int32_t starts[N], ends[N];
    for (int i = 0; i < N; i++) {
        test_fill_row(scores + (int64_t)i * length, length, (test_fill)(i % TEST_FILL_COUNT),
                      seed + (uint64_t)i);
        starts[i] = i % 3 == 0 ? 0 : (int32_t)(test_random(&seed) % 9);
        ends[i] = i % 5 == 0 ? length - (int32_t)(test_random(&seed) % 9) : length;
    }
    const size_t bytes = (size_t)N * (size_t)topk * 4;
    int32_t *got = zeros(bytes), *right = zeros(bytes);
    rig_select(reference, right, scores, starts, ends, 2, N / 2, length, 1, topk);
    rig_select(device, got, scores, starts, ends, 2, N / 2, length, 1, topk);
    for (int i = 0; i < N; i++) { /* a set, in no promised order */
        qsort(got + i * topk, (size_t)topk, 4, by_position);
        qsort(right + i * topk, (size_t)topk, 4, by_position);
        if (memcmp(got + i * topk, right + i * topk, (size_t)topk * 4) == 0) continue;
        fail_msg("topk_select of %d, k %d: row %d (%s) differs", length, topk, i,
                 test_fill_name((test_fill)(i % TEST_FILL_COUNT)));
    }
    free(scores);
    free(got);
    free(right);
}

static void test_positions_of_the_best(void **state) {
    (void)state;
    NEED_DEVICE();
    static const int32_t lengths[] = {1, 7, 100, 1000, 6144, 6145, 8192, 20000, 65536, 131072};
    static const int32_t ks[] = {1, 5, 64, 256, 1000, 2048, 3500, 9000};
    for (size_t n = 0; n < 10; n++)
        for (size_t k = 0; k < 8; k++)
            if (ks[k] <= lengths[n]) check_select(lengths[n], ks[k], n * 8 + k);
}

/* ---- what only a device can get wrong ----------------------------------------------------- */

/* Values that the host would have refused are the row's own trouble. */
static void test_bad_values_stay_in_their_row(void **state) {
    (void)state;
    NEED_DEVICE();
    enum { N = 6, VOCAB = 5000 };
    batch b = batch_make(N, VOCAB, RIG_F32, 3, true);
    for (int64_t i = 0; i < N; i++) {
        b.temperature[i] = 1;
        b.k[i] = 50;
    }
    choices before = choose(device, &b, 7 | CHOOSE_REPORT);
    b.temperature[1] = -1;
    b.p[2] = 7;
    b.min_p[3] = NAN;
    b.k[4] = -4;
    choices after = choose(device, &b, 7 | CHOOSE_REPORT);
    for (int i = 0; i < N; i++) {
        const bool bad = i >= 1 && i <= 4;
        assert_int_equal(after.i[i], bad ? -1 : before.i[i]);
        assert_int_equal(after.i[N + i], bad ? ALEA_EINVAL : ALEA_OK);
        assert_int_equal(after.i[2 * N + i], bad ? 0 : before.i[2 * N + i]);
        assert_int_equal(after.i[3 * N + i * TOPK], bad ? -1 : before.i[3 * N + i * TOPK]);
    }
    choices_free(&before);
    choices_free(&after);
    batch_free(&b);
}

/* More entries than 2^31, by rows that overlap. */
static void test_more_entries_than_32_bits_count(void **state) {
    (void)state;
    NEED_DEVICE();
    enum { VOCAB = 131072, ROWS = 17000, STEP = 64 };
    alea_error error = {0};
    const alea_cuda_api *api = alea__cuda_open(&error);
    const size_t n = (size_t)STEP * ROWS + VOCAB;
    float *x = zeros(n * 4);
    rig_normal(x, (int64_t)n, 9);
    void *logits = on_device(api, x, n * 4), *lse = on_device(api, NULL, ROWS * 8);
    alea_op_config config = rig_config((rig_how){.target = "cuda"}, VOCAB, 0);
    alea_logprobs *op = NULL;
    assert_int_equal(alea_logprobs_create(&config, &op, &error), ALEA_OK);
    rig_tensor t[2];
    DLTensor *rows = there(rig_2d(&t[0], logits, RIG_F32, ROWS, VOCAB));
    t[0].strides[0] = STEP;
    t[0].strides[1] = 1;
    rows->strides = t[0].strides;
    const alea_logprobs_tensors tensors = {.struct_bytes = sizeof tensors,
                                           .logits = rows,
                                           .lse = there(rig_1d(&t[1], lse, RIG_F64, ROWS))};
    assert_int_equal(alea_logprobs_run(op, &tensors, NULL, &error), ALEA_OK);
    double *got = zeros(ROWS * 8);
    assert_int_equal(api->lab.copy_out(got, lse, ROWS * 8, NULL), 0);
    assert_int_equal(api->lab.stream_wait(NULL), 0);
    for (int64_t i = 0; i < ROWS; i += 1777) {
        double right;
        rig_logprobs(reference, (rig_report){.lse = &right}, x + i * STEP, RIG_F32, 1, VOCAB, 0,
                     NULL, NULL, 0);
        assert_memory_equal(&got[i], &right, 8);
    }
    alea_logprobs_destroy(op);
    api->lab.release(logits);
    api->lab.release(lse);
    free(x);
    free(got);
}

/* Two operators on two streams, over and over: each gives what it gives alone. */
static void test_two_streams_at_once(void **state) {
    (void)state;
    NEED_DEVICE();
    enum { ROWS = 16, VOCAB = 128256, ROUNDS = 50 };
    alea_error error = {0};
    const alea_cuda_api *api = alea__cuda_open(&error);
    alea_op_config config = rig_config((rig_how){.target = "cuda"}, VOCAB, 0);
    void *streams[2], *logits[2], *lse[2];
    alea_logprobs *ops[2] = {NULL, NULL};
    double right[2][ROWS], got[ROWS];
    rig_tensor t[4];
    alea_logprobs_tensors tensors[2];
    for (int i = 0; i < 2; i++) {
        batch b = batch_make(ROWS, VOCAB, RIG_F32, 40 + (uint64_t)i, true);
        rig_logprobs(reference, (rig_report){.lse = right[i]}, b.logits, RIG_F32, ROWS, VOCAB, 0,
                     NULL, NULL, 0);
        logits[i] = on_device(api, b.logits, (size_t)ROWS * VOCAB * 4);
        lse[i] = on_device(api, NULL, ROWS * 8 * ROUNDS);
        assert_int_equal(alea_logprobs_create(&config, &ops[i], &error), ALEA_OK);
        assert_int_equal(api->lab.stream_create(&streams[i]), 0);
        tensors[i] = (alea_logprobs_tensors){
            .struct_bytes = sizeof tensors[i],
            .logits = there(rig_2d(&t[2 * i], logits[i], RIG_F32, ROWS, VOCAB)),
            .lse = there(rig_1d(&t[2 * i + 1], lse[i], RIG_F64, ROWS))};
        batch_free(&b);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 2; i++) {
            tensors[i].lse->data = (char *)lse[i] + round * ROWS * 8;
            assert_int_equal(alea_logprobs_run(ops[i], &tensors[i], streams[i], &error), ALEA_OK);
        }
    }
    assert_int_equal(api->lab.stream_wait(NULL), 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 2; i++) {
            assert_int_equal(
                api->lab.copy_out(got, (char *)lse[i] + round * ROWS * 8, sizeof got, NULL), 0);
            assert_int_equal(api->lab.stream_wait(NULL), 0);
            assert_memory_equal(got, right[i], sizeof got);
        }
    }
    for (int i = 0; i < 2; i++) {
        alea_logprobs_destroy(ops[i]);
        api->lab.release(logits[i]);
        api->lab.release(lse[i]);
        api->lab.stream_destroy(streams[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_values_stay_in_their_row),
        cmocka_unit_test(test_more_entries_than_32_bits_count),
        cmocka_unit_test(test_two_streams_at_once),
        cmocka_unit_test(test_flat_rows),
        cmocka_unit_test(test_draws_from_probabilities),
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_positions_of_the_best),
        cmocka_unit_test(test_short_rows),
        cmocka_unit_test(test_batches_of_common_vocabularies),
        cmocka_unit_test(test_long_rows),
        cmocka_unit_test(test_the_longest_row),
        cmocka_unit_test(test_a_row_is_the_same_in_every_batch),
    };
    return cmocka_run_group_tests(tests, find_device, NULL);
}
