/*
 * What may not change a bit: the instruction set, the number of threads, a row's place in its
 * batch, its neighbours, the batch's size, strides and addresses. And what a run may not do:
 * allocate, read or write outside its tensors.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "ops/rig.h"
#include "support/fill.h"
#include "support/guard.h"

/* The linker sends every allocation of this program here. */
static atomic_int allocations;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *data, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *data, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

void *__wrap_malloc(size_t bytes) {
    allocations++;
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes) {
    allocations++;
    return __real_calloc(n, bytes);
}

void *__wrap_realloc(void *data, size_t bytes) {
    allocations++;
    return __real_realloc(data, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    allocations++;
    return __real_aligned_alloc(alignment, bytes);
}

enum { TOPK = 7, GIVEN = 3, DRAFTS = 2, OUT_BYTES = 8 * (TOPK + 8) };

/* Inputs of every operator for one batch, row by row, so that rows can be moved. */
typedef struct rows {
    int64_t n;
    int32_t vocab;
    rig_dtype dtype;
    char *logits; /* [n][vocab] of dtype */
    float *probs; /* [n][2 * DRAFTS + 1][vocab]: drafts, then targets */
    float *p, *temperature;
    int32_t *k, *tokens, *drafts;
    int64_t *seed, *offset;
} rows;

static void *zeros(size_t bytes) {
    void *data = calloc(bytes ? bytes : 1, 1);
    if (!data) abort();
    return data;
}

static rows rows_make(int64_t n, int32_t vocab, rig_dtype dtype) {
    const size_t cells = (size_t)(n * vocab), count = (size_t)n;
    rows r = {n,
              vocab,
              dtype,
              zeros(cells * rig_bytes(dtype)),
              zeros(cells * (2 * DRAFTS + 1) * 4),
              zeros(count * 4),
              zeros(count * 4),
              zeros(count * 4),
              zeros(count * 4),
              zeros(count * DRAFTS * 4),
              zeros(count * 8),
              zeros(count * 8)};
    return r;
}

static void rows_free(rows *r) {
    free(r->logits);
    free(r->probs);
    free(r->p);
    free(r->temperature);
    free(r->k);
    free(r->tokens);
    free(r->drafts);
    free(r->seed);
    free(r->offset);
}

/* Row i of every fill in turn, sound and unsound. */
static rows rows_fill(int64_t n, int32_t vocab, rig_dtype dtype, uint64_t seed) {
    rows r = rows_make(n, vocab, dtype);
    float *x = zeros((size_t)vocab * 4);
    for (int64_t i = 0; i < n; i++) {
        test_fill_row(x, vocab, (test_fill)(i % TEST_FILL_COUNT), seed + (uint64_t)i);
        rig_narrow(r.logits + (size_t)(i * vocab) * rig_bytes(dtype), x, vocab, dtype);
        r.p[i] = (float)(test_uniform(&seed) * 0.999 + 0.0005);
        r.temperature[i] = i % 5 == 0 ? 0 : (float)(0.2 + 2 * test_uniform(&seed));
        r.k[i] = 1 + (int32_t)(test_random(&seed) % (uint64_t)(vocab + 3));
        r.tokens[i] = (int32_t)(test_random(&seed) % (uint64_t)vocab);
        for (int d = 0; d < DRAFTS; d++)
            r.drafts[i * DRAFTS + d] = (int32_t)(test_random(&seed) % (uint64_t)vocab);
        r.seed[i] = (int64_t)test_random(&seed);
        r.offset[i] = (int64_t)test_random(&seed);
    }
    rig_random_probs(r.probs, n * (2 * DRAFTS + 1), vocab, seed);
    free(x);
    return r;
}

static void move(void *to, const void *from, int64_t i, int64_t j, size_t bytes) {
    memcpy((char *)to + (size_t)i * bytes, (const char *)from + (size_t)j * bytes, bytes);
}

/* Rows order[0..n) of another batch. */
static rows rows_pick(const rows *from, const int64_t *order, int64_t n) {
    rows r = rows_make(n, from->vocab, from->dtype);
    const size_t cells = (size_t)from->vocab;
    for (int64_t i = 0; i < n; i++) {
        move(r.logits, from->logits, i, order[i], cells * rig_bytes(from->dtype));
        move(r.probs, from->probs, i, order[i], cells * (2 * DRAFTS + 1) * 4);
        move(r.p, from->p, i, order[i], 4);
        move(r.temperature, from->temperature, i, order[i], 4);
        move(r.k, from->k, i, order[i], 4);
        move(r.tokens, from->tokens, i, order[i], 4);
        move(r.drafts, from->drafts, i, order[i], DRAFTS * 4);
        move(r.seed, from->seed, i, order[i], 8);
        move(r.offset, from->offset, i, order[i], 8);
    }
    return r;
}

/* A row's results under all operators: masks, then everything else. */
static size_t result_bytes(const rows *r) {
    return 4 * (size_t)r->vocab * rig_bytes(r->dtype) + 512;
}

static void put(char *results, size_t each, size_t *used, const void *data, int64_t n,
                size_t bytes) {
    for (int64_t i = 0; i < n; i++)
        memcpy(results + (size_t)i * each + *used, (const char *)data + (size_t)i * bytes, bytes);
    *used += bytes;
    assert_true(*used <= each);
}

/* Chains take the rows' seeds one by one, as their row function does. */
static void run_chain(rig_how how, const rows *r, int32_t *tokens, int32_t *accepted) {
    rig_tensor t[8];
    alea_chain_sample *op = NULL;
    alea_error error = {0};
    const alea_op_config config = rig_config(how, r->vocab, 0);
    const int64_t step[] = {(2 * DRAFTS + 1) * (int64_t)r->vocab, r->vocab, 1};
    DLTensor *draft = rig_3d(&t[2], r->probs, RIG_F32, r->n, DRAFTS, r->vocab);
    DLTensor *target =
        rig_3d(&t[4], r->probs + DRAFTS * (int64_t)r->vocab, RIG_F32, r->n, DRAFTS + 1, r->vocab);
    memcpy(t[2].strides, step, sizeof step);
    memcpy(t[4].strides, step, sizeof step);
    draft->strides = t[2].strides;
    target->strides = t[4].strides;
    assert_int_equal(alea_chain_sample_create(&config, &op, &error), ALEA_OK);
    const alea_status status =
        alea_chain_sample_run(op, rig_2d(&t[0], tokens, RIG_I32, r->n, DRAFTS + 1),
                              rig_1d(&t[1], accepted, RIG_I32, r->n), draft,
                              rig_2d(&t[3], r->drafts, RIG_I32, r->n, DRAFTS), target,
                              rig_1d(&t[5], r->seed, RIG_I64, r->n),
                              rig_1d(&t[6], r->offset, RIG_I64, r->n), NULL, NULL, &error);
    if (status < 0) fail_msg("%s", error.message);
    alea_chain_sample_destroy(op);
}

/* A chain of DRAFTS for each row, all of its positions and drafts made of the row's own logits. */
static void run_chain_logits(rig_how how, const rows *r, int32_t *out) {
    rig_tensor t[9];
    alea_chain_logits *op = NULL;
    alea_error error = {0};
    const alea_op_config config = rig_config(how, r->vocab, 0);
    const int64_t step[] = {r->vocab, 0, 1};
    DLTensor *draft = rig_3d(&t[2], r->logits, r->dtype, r->n, DRAFTS, r->vocab);
    DLTensor *target = rig_3d(&t[4], r->logits, r->dtype, r->n, DRAFTS + 1, r->vocab);
    memcpy(t[2].strides, step, sizeof step);
    memcpy(t[4].strides, step, sizeof step);
    draft->strides = t[2].strides;
    target->strides = t[4].strides;
    assert_int_equal(alea_chain_logits_create(&config, &op, &error), ALEA_OK);
    for (int certain = 0; certain < 2; certain++) {
        const alea_chain_logits_tensors tensors = {
            .struct_bytes = sizeof tensors,
            .tokens = rig_2d(&t[0], out, RIG_I32, r->n, DRAFTS + 1),
            .accepted = rig_1d(&t[1], out + r->n * (DRAFTS + 1), RIG_I32, r->n),
            .verdicts = rig_1d(&t[3], out + r->n * (DRAFTS + 2), RIG_I32, r->n),
            .draft_logits = certain ? NULL : draft,
            .draft_tokens = rig_2d(&t[5], r->drafts, RIG_I32, r->n, DRAFTS),
            .target_logits = target,
            .temperature = rig_1d(&t[6], r->temperature, RIG_F32, r->n),
            .seed = rig_1d(&t[7], r->seed, RIG_I64, r->n),
            .offset = rig_1d(&t[8], r->offset, RIG_I64, r->n)};
        const alea_status status = alea_chain_logits_run(op, &tensors, NULL, &error);
        if (status < 0) fail_msg("%s", error.message);
        out += r->n * (DRAFTS + 3);
    }
    alea_chain_logits_destroy(op);
}

static char *run_all(rig_how how, const rows *r) {
    const size_t each = result_bytes(r), mask_bytes = (size_t)r->vocab * rig_bytes(r->dtype);
    const size_t n = (size_t)r->n;
    char *results = zeros(n * each), *mask = zeros(n * mask_bytes), *out = zeros(n * OUT_BYTES);
    size_t used = 0;
    for (alea_op_kind kind = ALEA_OP_TOPK_MASK; kind <= ALEA_OP_TOPK_TOPP_MASK; kind++) {
        rig_mask(kind, how, mask, r->logits, r->dtype, r->n, r->vocab, r->k, r->p);
        put(results, each, &used, mask, r->n, mask_bytes);
    }
    float *first = zeros(n * (size_t)r->vocab * 4); /* each row's first draft distribution */
    for (int64_t i = 0; i < r->n; i++)
        memcpy(first + i * r->vocab, r->probs + i * (2 * DRAFTS + 1) * r->vocab,
               (size_t)r->vocab * 4);
    rig_sample_probs(how, (int32_t *)out, first, r->n, r->vocab, r->seed, r->offset, r->n);
    free(first);
    put(results, each, &used, out, r->n, 4);
    int32_t *tokens = (int32_t *)out, *accepted = tokens + r->n * (DRAFTS + 1);
    run_chain(how, r, tokens, accepted);
    put(results, each, &used, tokens, r->n, 4 * (DRAFTS + 1));
    put(results, each, &used, accepted, r->n, 4);
    int32_t *chains = zeros(n * 2 * (DRAFTS + 3) * 4);
    run_chain_logits(how, r, chains);
    for (int certain = 0; certain < 2; certain++) {
        const int32_t *part = chains + certain * r->n * (DRAFTS + 3);
        put(results, each, &used, part, r->n, 4 * (DRAFTS + 1));
        put(results, each, &used, part + r->n * (DRAFTS + 1), r->n, 4);
        put(results, each, &used, part + r->n * (DRAFTS + 2), r->n, 4);
    }
    free(chains);

    double *lse = zeros(n * 8);
    float *f = zeros(n * 4 * (3 + TOPK));
    int32_t *i32 = zeros(n * 4 * (2 + TOPK));
    rig_logprobs(how, (rig_report){lse, f, i32, i32 + 2 * r->n, f + 2 * r->n, f + r->n, i32 + r->n},
                 r->logits, r->dtype, r->n, r->vocab, TOPK, r->tokens, NULL, 0);
    put(results, each, &used, lse, r->n, 8);
    put(results, each, &used, f, r->n, 4);
    put(results, each, &used, f + r->n, r->n, 4);
    put(results, each, &used, f + 2 * r->n, r->n, 4 * TOPK);
    put(results, each, &used, i32, r->n, 4);
    put(results, each, &used, i32 + r->n, r->n, 4);
    put(results, each, &used, i32 + 2 * r->n, r->n, 4 * TOPK);
    int32_t *ids = zeros(n * 4 * (1 + TOPK));
    float *id_logprobs = zeros(n * 4 * TOPK);
    rig_sample_logits(how,
                      (rig_choice){.tokens = i32,
                                   .logprobs = f,
                                   .sampled = f + r->n,
                                   .kept = f + 2 * r->n,
                                   .verdicts = i32 + r->n,
                                   .lse = lse,
                                   .ranks = ids,
                                   .ids = ids + r->n,
                                   .id_logprobs = id_logprobs,
                                   .k = TOPK},
                      r->logits, r->dtype, r->n, r->vocab,
                      (rig_params){r->temperature, r->k, r->p, NULL, r->seed, r->offset, r->n});
    put(results, each, &used, lse, r->n, 8);
    put(results, each, &used, ids, r->n, 4);
    put(results, each, &used, ids + r->n, r->n, 4 * TOPK);
    put(results, each, &used, id_logprobs, r->n, 4 * TOPK);
    free(ids);
    free(id_logprobs);
    put(results, each, &used, i32, r->n, 4);
    put(results, each, &used, i32 + r->n, r->n, 4);
    put(results, each, &used, f, r->n, 4);
    put(results, each, &used, f + r->n, r->n, 4);
    put(results, each, &used, f + 2 * r->n, r->n, 4);
    if (r->dtype == RIG_F32) { /* windows over the logits themselves */
        int32_t *starts = zeros(n * 4), *ends = zeros(n * 4);
        for (int64_t i = 0; i < r->n; i++)
            ends[i] = r->vocab;
        const int32_t topk = r->vocab < TOPK ? r->vocab : TOPK;
        rig_select(how, i32, (float *)r->logits, starts, ends, 1, r->n, r->vocab, 1, topk);
        put(results, each, &used, i32, r->n, 4 * (size_t)topk);
        free(starts);
        free(ends);
    }
    free(mask);
    free(out);
    free(lse);
    free(f);
    free(i32);
    return results;
}

static const int32_t sizes[] = {1, 5, 64, 999, 1024, 4099, 33000};

static void test_every_target_and_thread_count_gives_the_same_bits(void **state) {
    (void)state;
    for (rig_dtype dtype = RIG_F16; dtype <= RIG_F32; dtype++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            rows r = rows_fill(2 * TEST_FILL_COUNT, sizes[s], dtype, s);
            const size_t bytes = (size_t)r.n * result_bytes(&r);
            char *right = run_all((rig_how){.target = "cpu-ref"}, &r);
            for (int32_t threads = 1; threads <= 4; threads++) {
                char *other = run_all((rig_how){.threads = threads}, &r);
                assert_memory_equal(other, right, bytes);
                free(other);
            }
            free(right);
            rows_free(&r);
        }
    }
}

/* Fewer rows than threads: each row is split. */
static void test_split_rows_give_the_same_bits(void **state) {
    (void)state;
    const int32_t long_sizes[] = {32768, 65537, 128256};
    for (size_t s = 0; s < 3; s++) {
        for (test_fill fill = 0; fill < TEST_FILL_COUNT; fill++) {
            const rig_dtype dtype = (rig_dtype)(fill % RIG_LOGIT_DTYPES);
            rows all = rows_fill(TEST_FILL_COUNT, long_sizes[s] / 8, dtype, s);
            const int64_t one = fill;
            rows small = rows_pick(&all, &one, 1); /* parameters; its rows are made long below */
            rows r = rows_make(1, long_sizes[s], dtype);
            float *x = zeros((size_t)r.vocab * 4);
            test_fill_row(x, r.vocab, fill, 3);
            rig_narrow(r.logits, x, r.vocab, dtype);
            rig_random_probs(r.probs, 2 * DRAFTS + 1, r.vocab, fill);
            r.p[0] = small.p[0];
            r.temperature[0] = 1;
            r.k[0] = small.k[0];
            r.seed[0] = small.seed[0];
            const size_t bytes = result_bytes(&r);
            char *right = run_all((rig_how){.threads = 1}, &r);
            for (int32_t threads = 2; threads <= 4; threads++) {
                char *other = run_all((rig_how){.threads = threads}, &r);
                assert_memory_equal(other, right, bytes);
                free(other);
            }
            free(right);
            free(x);
            rows_free(&all);
            rows_free(&small);
            rows_free(&r);
        }
    }
}

static void test_a_row_keeps_its_bits_wherever_it_stands(void **state) {
    (void)state;
    for (rig_dtype dtype = RIG_F16; dtype <= RIG_F32; dtype++) {
        enum { N = 40 };
        rows r = rows_fill(N, 1500, dtype, 5);
        const size_t each = result_bytes(&r);
        char *right = run_all((rig_how){.threads = 2}, &r);
        int64_t order[N];
        uint64_t random = 17;
        const int64_t takes[] = {1, 2, 17, N};
        for (int round = 0; round < 12; round++) {
            for (int64_t i = 0; i < N; i++) {
                const int64_t j = (int64_t)(test_random(&random) % (uint64_t)(i + 1));
                order[i] = order[j];
                order[j] = i;
            }
            rows moved = rows_pick(&r, order, takes[round % 4]);
            char *got = run_all((rig_how){.threads = 1 + round % 3}, &moved);
            for (int64_t i = 0; i < moved.n; i++)
                assert_memory_equal(got + (size_t)i * each, right + (size_t)order[i] * each, each);
            free(got);
            rows_free(&moved);
        }
        free(right);
        rows_free(&r);
    }
}

/* Rows far apart, an odd address, a byte_offset: the dense result, and nothing between the rows. */
static void test_strided_rows_and_odd_addresses(void **state) {
    (void)state;
    enum { N = 3, VOCAB = 1300, LD = 1411 };
    const int32_t k[] = {5, 700, 1300};
    const float p[] = {.3f, .9f, .99f};
    for (alea_op_kind kind = ALEA_OP_TOPK_MASK; kind <= ALEA_OP_TOPK_TOPP_MASK; kind++) {
        for (rig_dtype dtype = RIG_F16; dtype <= RIG_F32; dtype++) {
            const size_t size = rig_bytes(dtype);
            float x[N * VOCAB];
            char dense[N * VOCAB * 4], dense_out[N * VOCAB * 4];
            char in[(N * LD + 8) * 4], out[(N * LD + 8) * 4];
            rig_normal(x, N * VOCAB, 3);
            rig_narrow(dense, x, N * VOCAB, dtype);
            rig_mask(kind, (rig_how){0}, dense_out, dense, dtype, N, VOCAB, k, p);
            memset(in, 0x7f, sizeof in); /* NaN between the rows */
            memset(out, 0x5a, sizeof out);
            for (int row = 0; row < N; row++)
                memcpy(in + (size_t)(row * LD + 3) * size, dense + (size_t)(row * VOCAB) * size,
                       VOCAB * size);
            rig_tensor a, b, c, d;
            DLTensor *to = rig_2d(&a, out + size, dtype, N, VOCAB);
            DLTensor *from = rig_2d(&b, in, dtype, N, VOCAB);
            DLTensor *ks = rig_1d(&c, (void *)(uintptr_t)k, RIG_I32, N);
            DLTensor *ps = rig_1d(&d, (void *)(uintptr_t)p, RIG_F32, N);
            a.strides[0] = b.strides[0] = LD;
            a.strides[1] = b.strides[1] = 1;
            to->strides = a.strides;
            from->strides = b.strides;
            from->byte_offset = 3 * size;
            const alea_op_config config = rig_config((rig_how){0}, VOCAB, 0);
            alea_error error = {0};
            alea_status status = ALEA_OK;
#define CALL(type, ...)                                                                            \
    do {                                                                                           \
        type *op = NULL;                                                                           \
        assert_int_equal(type##_create(&config, &op, &error), ALEA_OK);                            \
        status = type##_run(op, to, from, __VA_ARGS__, NULL, &error);                              \
        type##_destroy(op);                                                                        \
    } while (0)
            if (kind == ALEA_OP_TOPK_MASK) CALL(alea_topk_mask, ks);
            if (kind == ALEA_OP_MINP_MASK) CALL(alea_minp_mask, ps);
            if (kind == ALEA_OP_TOPP_MASK) CALL(alea_topp_mask, ps);
            if (kind == ALEA_OP_TOPK_TOPP_MASK) CALL(alea_topk_topp_mask, ks, ps);
            if (status < 0) fail_msg("%s", error.message);
            for (size_t i = 0; i < (size_t)(N * LD) * size; i++) {
                const size_t row = i / (LD * size), at = i % (LD * size);
                const char got = out[size + i];
                const char right = at < VOCAB * size ? dense_out[row * VOCAB * size + at] : 0x5a;
                assert_int_equal(got, right);
            }
        }
    }
}

/* n entries `step` apart, and bits that no parameter may have between them. */
static void spread(void *out, const void *in, int64_t n, size_t bytes, int64_t step) {
    memset(out, 0xff, (size_t)(n * (step > 0 ? step : 1)) * bytes);
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)out + (size_t)(i * step) * bytes, (const char *)in + (size_t)i * bytes,
               bytes);
}

enum { SPREAD_N = 3, SPREAD_VOCAB = 1300, SPREAD_STEP = 5 };

static DLTensor *spread_1d(rig_tensor *t, void *memory, const void *in, rig_dtype dtype,
                           int64_t step) {
    spread(memory, in, SPREAD_N, rig_bytes(dtype), step);
    DLTensor *tensor = rig_1d(t, memory, dtype, SPREAD_N);
    t->strides[0] = step;
    tensor->strides = t->strides;
    return tensor;
}

static void test_parameters_with_strides(void **state) {
    (void)state;
    enum { N = SPREAD_N, VOCAB = SPREAD_VOCAB };
    float *x = zeros(N * VOCAB * 4), logprobs[2][N], heat[] = {0.7f, 0, 1.3f};
    float nucleus[] = {.9f, .9f, .9f}, least[] = {0, .2f, .01f};
    int32_t best[] = {40, 2, 900}, tokens[2][N], words[] = {3, -4, 5};
    int64_t seed[] = {4, 5, -6}, offset[] = {INT64_C(1) << 40, 0, 9};
    char memory[7][N * SPREAD_STEP * 8];
    rig_tensor t[10];
    rig_normal(x, N * VOCAB, 21);
    for (int way = 0; way < 2; way++) { /* dense, and spread; one p for all rows */
        const alea_op_config config = rig_config((rig_how){0}, VOCAB, 0);
        const int64_t step = way ? SPREAD_STEP : 1;
        const alea_sample_logits_tensors tensors = {
            .struct_bytes = sizeof tensors,
            .tokens = rig_1d(&t[0], tokens[way], RIG_I32, N),
            .logprobs = rig_1d(&t[1], logprobs[way], RIG_F32, N),
            .logits = rig_2d(&t[2], x, RIG_F32, N, VOCAB),
            .temperature = spread_1d(&t[3], memory[0], heat, RIG_F32, step),
            .top_k = spread_1d(&t[4], memory[1], best, RIG_I32, step),
            .top_p = spread_1d(&t[5], memory[2], nucleus, RIG_F32, way ? 0 : 1),
            .min_p = spread_1d(&t[6], memory[3], least, RIG_F32, step),
            .seed = spread_1d(&t[7], memory[4], seed, RIG_I64, step),
            .offset = spread_1d(&t[8], memory[5], offset, RIG_I64, step),
            .row_words = spread_1d(&t[9], memory[6], words, RIG_I32, step)};
        alea_sample_logits *op = NULL;
        alea_error error = {0};
        assert_int_equal(alea_sample_logits_create(&config, &op, &error), ALEA_OK);
        if (alea_sample_logits_run(op, &tensors, NULL, &error) < 0) fail_msg("%s", error.message);
        alea_sample_logits_destroy(op);
    }
    assert_memory_equal(tokens[1], tokens[0], sizeof tokens[0]);
    assert_memory_equal(logprobs[1], logprobs[0], sizeof logprobs[0]);
    free(x);
}

static void test_reports_with_strides(void **state) {
    (void)state;
    enum { N = SPREAD_N, VOCAB = SPREAD_VOCAB, LD = 1301, G = 4, GLD = 7 };
    float *x = zeros(N * VOCAB * 4), *apart = zeros(N * LD * 4), logprobs[N], right[N * G];
    int32_t tokens[] = {7, -1, 1299}, ranks[N], right_ranks[N], ids[N * GLD];
    int32_t given[N * G] = {1, -1, 1299, 3, 0, 0, 9, -1, 5, 6, 7, 8}, given_apart[N * GLD];
    float id_logprobs[N * GLD];
    char memory[N * SPREAD_STEP * 8];
    rig_tensor t[7];
    rig_normal(x, N * VOCAB, 22);
    rig_logprobs((rig_how){0}, (rig_report){.ranks = right_ranks, .id_logprobs = right}, x, RIG_F32,
                 N, VOCAB, 0, tokens, given, G);
    memset(apart, 0xff, N * LD * 4);
    memset(given_apart, 0xff, sizeof given_apart);
    memset(ids, 0x5a, sizeof ids);
    memset(id_logprobs, 0x5a, sizeof id_logprobs);
    for (int row = 0; row < N; row++) {
        memcpy(apart + row * LD, x + row * VOCAB, VOCAB * 4);
        memcpy(given_apart + row * GLD, given + row * G, G * 4);
    }
    const alea_logprobs_tensors tensors = {
        .struct_bytes = sizeof tensors,
        .logprobs = rig_1d(&t[0], logprobs, RIG_F32, N),
        .ranks = rig_1d(&t[1], ranks, RIG_I32, N),
        .alternatives = rig_2d(&t[2], ids, RIG_I32, N, G),
        .alternative_logprobs = rig_2d(&t[3], id_logprobs, RIG_F32, N, G),
        .logits = rig_2d(&t[4], apart, RIG_F32, N, VOCAB),
        .tokens = spread_1d(&t[5], memory, tokens, RIG_I32, SPREAD_STEP),
        .given = rig_2d(&t[6], given_apart, RIG_I32, N, G)};
    t[2].dl.strides = t[3].dl.strides = t[6].dl.strides = (int64_t[]){GLD, 1};
    t[4].dl.strides = (int64_t[]){LD, 1};
    const alea_op_config config = rig_config((rig_how){0}, VOCAB, 0);
    alea_logprobs *op = NULL;
    alea_error error = {0};
    assert_int_equal(alea_logprobs_create(&config, &op, &error), ALEA_OK);
    if (alea_logprobs_run(op, &tensors, NULL, &error) < 0) fail_msg("%s", error.message);
    alea_logprobs_destroy(op);
    assert_memory_equal(ranks, right_ranks, sizeof ranks);
    for (int i = 0; i < N * GLD; i++) {
        const int row = i / GLD, at = i % GLD;
        const bool is_answer = at < G;
        assert_int_equal(ids[i], is_answer ? given[row * G + at] : 0x5a5a5a5a);
        if (is_answer) {
            assert_memory_equal(&id_logprobs[i], &right[row * G + at], 4);
        } else {
            assert_memory_equal(&id_logprobs[i], &ids[i], 4);
        }
    }
    free(x);
    free(apart);
}

/* Every tensor ends at an unreadable page. */
static void test_nothing_is_touched_outside_the_tensors(void **state) {
    (void)state;
    for (int32_t n = 1; n <= 1100; n = n < 70 ? n + 1 : n + 247) {
        for (rig_dtype dtype = RIG_F16; dtype <= RIG_F32; dtype++) {
            const size_t bytes = 2 * (size_t)n * rig_bytes(dtype);
            test_guard in = test_guard_make(bytes), out = test_guard_make(bytes);
            test_guard probs = test_guard_make(2 * (size_t)n * 4), ids = test_guard_make(8);
            float *x = zeros(2 * (size_t)n * 4);
            const int32_t k[] = {n / 2 + 1, 1};
            const float p[] = {.7f, .2f};
            const int64_t seed = 3;
            rig_normal(x, 2 * n, 4);
            rig_narrow(in.data, x, 2 * n, dtype);
            rig_random_probs(probs.data, 2, n, 4);
            for (alea_op_kind kind = ALEA_OP_TOPK_MASK; kind <= ALEA_OP_TOPK_TOPP_MASK; kind++)
                rig_mask(kind, (rig_how){0}, out.data, in.data, dtype, 2, n, k, p);
            rig_sample_probs((rig_how){0}, ids.data, probs.data, 2, n, &seed, &seed, 1);
            rig_logprobs((rig_how){0}, (rig_report){.ids = ids.data}, in.data, dtype, 2, n, 1, NULL,
                         NULL, 0);
            const int32_t starts[] = {0, n / 2}, ends[] = {n, n};
            rig_select((rig_how){0}, ids.data, probs.data, starts, ends, 1, 2, n, 1, 1);
            test_guard_free(&in);
            test_guard_free(&out);
            test_guard_free(&probs);
            test_guard_free(&ids);
            free(x);
        }
    }
}

/* More than 2^31 elements in a batch: rows that are one row, so that it fits any machine. */
static void test_products_beyond_two_to_the_31_work(void **state) {
    (void)state;
    enum { VOCAB = 1 << 17 };
    const int64_t n = (INT64_C(1) << 31) / VOCAB + 3;
    float *probs = zeros(VOCAB * 4);
    int32_t *tokens = zeros((size_t)n * 4);
    int64_t seed = 1, offset = 0;
    rig_tensor t[4];
    probs[VOCAB - 3] = 1;
    alea_sample_probs *op = NULL;
    const alea_op_config config = rig_config((rig_how){.threads = 2}, VOCAB, 0);
    assert_int_equal(alea_sample_probs_create(&config, &op, NULL), ALEA_OK);
    DLTensor *broadcast = rig_2d(&t[1], probs, RIG_F32, n, VOCAB);
    t[1].strides[1] = 1;
    broadcast->strides = t[1].strides;
    assert_int_equal(alea_sample_probs_run(op, rig_1d(&t[0], tokens, RIG_I32, n), broadcast,
                                           rig_1d(&t[2], &seed, RIG_I64, 1),
                                           rig_1d(&t[3], &offset, RIG_I64, 1), NULL, NULL, NULL),
                     ALEA_OK);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(tokens[i], VOCAB - 3);
    alea_sample_probs_destroy(op);
    free(probs);
    free(tokens);
}

static void test_runs_allocate_nothing(void **state) {
    (void)state;
    enum { N = 4, VOCAB = 3000 };
    float *x = zeros(N * VOCAB * 4), *out = zeros(N * VOCAB * 4);
    float p[] = {.1f, .5f, .9f, 1};
    int32_t k[] = {3, 50, 2000, 4000}, tokens[N] = {0};
    int64_t seed = 5;
    rig_tensor t[16];
    rig_normal(x, N * VOCAB, 2);
    const alea_op_config config = rig_config((rig_how){.threads = 2}, VOCAB, 5);
    alea_topk_topp_mask *mask = NULL;
    alea_logprobs *report = NULL;
    alea_sample_logits *sample = NULL;
    assert_int_equal(alea_topk_topp_mask_create(&config, &mask, NULL), ALEA_OK);
    assert_int_equal(alea_logprobs_create(&config, &report, NULL), ALEA_OK);
    assert_int_equal(alea_sample_logits_create(&config, &sample, NULL), ALEA_OK);
    DLTensor *logits = rig_2d(&t[0], x, RIG_F32, N, VOCAB);
    const alea_logprobs_tensors report_tensors = {.struct_bytes = sizeof report_tensors,
                                                  .logprobs = rig_1d(&t[1], out, RIG_F32, N),
                                                  .alternatives =
                                                      rig_2d(&t[2], out + 100, RIG_I32, N, 5),
                                                  .logits = logits,
                                                  .tokens = rig_1d(&t[3], tokens, RIG_I32, N)};
    const alea_sample_logits_tensors sample_tensors = {.struct_bytes = sizeof sample_tensors,
                                                       .tokens = rig_1d(&t[4], out, RIG_I32, N),
                                                       .logits = logits,
                                                       .top_p = rig_1d(&t[5], p, RIG_F32, N),
                                                       .seed = rig_1d(&t[6], &seed, RIG_I64, 1),
                                                       .offset = rig_1d(&t[7], &seed, RIG_I64, 1)};
    DLTensor *masked = rig_2d(&t[8], out, RIG_F32, N, VOCAB);
    DLTensor *ks = rig_1d(&t[9], k, RIG_I32, N), *ps = rig_1d(&t[10], p, RIG_F32, N);
    const int before = allocations;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(alea_topk_topp_mask_run(mask, masked, logits, ks, ps, NULL, NULL),
                         ALEA_OK);
        assert_int_equal(alea_logprobs_run(report, &report_tensors, NULL, NULL), ALEA_OK);
        assert_int_equal(alea_sample_logits_run(sample, &sample_tensors, NULL, NULL), ALEA_OK);
    }
    assert_int_equal(allocations, before);
    alea_topk_topp_mask_destroy(mask);
    alea_logprobs_destroy(report);
    alea_sample_logits_destroy(sample);
    assert_true(allocations > 0);
    free(x);
    free(out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_target_and_thread_count_gives_the_same_bits),
        cmocka_unit_test(test_split_rows_give_the_same_bits),
        cmocka_unit_test(test_a_row_keeps_its_bits_wherever_it_stands),
        cmocka_unit_test(test_strided_rows_and_odd_addresses),
        cmocka_unit_test(test_parameters_with_strides),
        cmocka_unit_test(test_reports_with_strides),
        cmocka_unit_test(test_nothing_is_touched_outside_the_tensors),
        cmocka_unit_test(test_products_beyond_two_to_the_31_work),
        cmocka_unit_test(test_runs_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
