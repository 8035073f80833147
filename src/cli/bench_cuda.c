/*
 * `alea bench ops --device cuda`. A case is captured as a graph of many calls in a row, whose
 * replay is timed by events and divided: cold, each call on another of as many copies of the data
 * as no cache holds, and hot, all on one. Case and floor are replayed in turn. The floor is a plain
 * kernel that reads the same bytes, and where the result is a mask writes them too, cold as well.
 */
#include "cli/bench_cuda.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "alea/ops.h"
#include "base/half.h"
#include "contract/device.h"
#include "contract/record.h"
#include "ops/cuda.h"
#include "json/json_write.h"

enum {
    ROUNDS = 11,
    COPIES_MAX = 640,
    CALLS_LEAST = 8,
    TOP = 20,
    BEST = 50,
    DRAFTS = 4,
    OUTPUT_WORDS = 64 /* of results a row, for everything but masks and positions */
};
#define COLD_BYTES ((size_t)300 << 20)

/* What the rows are: like a model's, normal with deviation 3, probabilities of the first, or a
 * model's own, which the file named by ALEA_BENCH_ROWS holds: their number and the vocabulary,
 * int32, then float32 logits. */
typedef enum fill { LIKE_A_MODEL, NORMAL, PROBS, REAL } fill;

typedef struct cuda_case {
    const char *name;
    alea_op_kind kind;
    alea_dtype dtype;
    int32_t rows, vocab, k; /* k of topk_select and logprobs; of the filters where not 0 */
    float p;
    fill data;
    bool reported; /* the draw with what logprobs says of it, in one call */
} cuda_case;

#define F32 ALEA_FLOAT32
#define BF16 ALEA_BFLOAT16

/* Real rows have the vocabulary of their file. */
static const cuda_case cases[] = {
    {"logprobs", ALEA_OP_LOGPROBS, F32, 64, 0, TOP, 0, REAL, false},
    {"logprobs", ALEA_OP_LOGPROBS, BF16, 64, 0, TOP, 0, REAL, false},
    {"sample_logits, report", ALEA_OP_SAMPLE_LOGITS, F32, 64, 0, BEST, 0.95f, REAL, true},
    {"sample_logits", ALEA_OP_SAMPLE_LOGITS, F32, 64, 0, 0, 0.9f, REAL, false},
    {"topp_mask", ALEA_OP_TOPP_MASK, BF16, 64, 0, 0, 0.9f, REAL, false},
    {"logprobs", ALEA_OP_LOGPROBS, F32, 1, 128256, TOP, 0, LIKE_A_MODEL, false},
    {"logprobs", ALEA_OP_LOGPROBS, F32, 8, 151936, TOP, 0, LIKE_A_MODEL, false},
    {"logprobs", ALEA_OP_LOGPROBS, F32, 64, 128256, TOP, 0, LIKE_A_MODEL, false},
    {"logprobs", ALEA_OP_LOGPROBS, F32, 64, 128256, TOP, 0, NORMAL, false},
    {"logprobs", ALEA_OP_LOGPROBS, F32, 128, 151936, TOP, 0, LIKE_A_MODEL, false},
    {"logprobs", ALEA_OP_LOGPROBS, F32, 512, 151936, TOP, 0, LIKE_A_MODEL, false},
    {"logprobs", ALEA_OP_LOGPROBS, BF16, 1, 128256, TOP, 0, LIKE_A_MODEL, false},
    {"logprobs", ALEA_OP_LOGPROBS, BF16, 8, 151936, TOP, 0, LIKE_A_MODEL, false},
    {"logprobs", ALEA_OP_LOGPROBS, BF16, 64, 128256, TOP, 0, LIKE_A_MODEL, false},
    {"logprobs", ALEA_OP_LOGPROBS, BF16, 128, 151936, TOP, 0, LIKE_A_MODEL, false},
    {"logprobs", ALEA_OP_LOGPROBS, BF16, 512, 151936, TOP, 0, LIKE_A_MODEL, false},
    {"sample_logits", ALEA_OP_SAMPLE_LOGITS, F32, 1, 128256, BEST, 0.95f, LIKE_A_MODEL, false},
    {"sample_logits", ALEA_OP_SAMPLE_LOGITS, F32, 64, 128256, BEST, 0.95f, LIKE_A_MODEL, false},
    {"sample_logits", ALEA_OP_SAMPLE_LOGITS, F32, 512, 151936, BEST, 0.95f, LIKE_A_MODEL, false},
    {"sample_logits", ALEA_OP_SAMPLE_LOGITS, BF16, 64, 128256, BEST, 0.95f, LIKE_A_MODEL, false},
    {"sample_logits", ALEA_OP_SAMPLE_LOGITS, BF16, 512, 151936, BEST, 0.95f, LIKE_A_MODEL, false},
    {"sample_logits, report", ALEA_OP_SAMPLE_LOGITS, F32, 1, 128256, BEST, 0.95f, LIKE_A_MODEL,
     true},
    {"sample_logits, report", ALEA_OP_SAMPLE_LOGITS, F32, 64, 128256, BEST, 0.95f, LIKE_A_MODEL,
     true},
    {"sample_logits, report", ALEA_OP_SAMPLE_LOGITS, F32, 512, 151936, BEST, 0.95f, LIKE_A_MODEL,
     true},
    {"sample_logits, report", ALEA_OP_SAMPLE_LOGITS, BF16, 64, 128256, BEST, 0.95f, LIKE_A_MODEL,
     true},
    {"sample_logits, report", ALEA_OP_SAMPLE_LOGITS, BF16, 512, 151936, BEST, 0.95f, LIKE_A_MODEL,
     true},
    {"sample_logits", ALEA_OP_SAMPLE_LOGITS, F32, 64, 128256, 0, 0.9f, LIKE_A_MODEL, false},
    {"sample_logits", ALEA_OP_SAMPLE_LOGITS, F32, 64, 128256, 0, 0.9f, NORMAL, false},
    {"sample_logits", ALEA_OP_SAMPLE_LOGITS, F32, 64, 128256, 0, 1, LIKE_A_MODEL, false},
    {"topk_mask", ALEA_OP_TOPK_MASK, BF16, 64, 128256, BEST, 0, LIKE_A_MODEL, false},
    {"topk_mask", ALEA_OP_TOPK_MASK, F32, 64, 128256, BEST, 0, LIKE_A_MODEL, false},
    {"minp_mask", ALEA_OP_MINP_MASK, BF16, 64, 128256, 0, 0.05f, LIKE_A_MODEL, false},
    {"topp_mask", ALEA_OP_TOPP_MASK, BF16, 64, 128256, 0, 0.9f, LIKE_A_MODEL, false},
    {"topp_mask", ALEA_OP_TOPP_MASK, BF16, 64, 128256, 0, 0.9f, NORMAL, false},
    {"topk_topp_mask", ALEA_OP_TOPK_TOPP_MASK, BF16, 64, 128256, BEST, 0.9f, LIKE_A_MODEL, false},
    {"topk_topp_mask", ALEA_OP_TOPK_TOPP_MASK, BF16, 1, 128256, BEST, 0.9f, LIKE_A_MODEL, false},
    {"sample_probs", ALEA_OP_SAMPLE_PROBS, F32, 1, 128256, 0, 0, PROBS, false},
    {"sample_probs", ALEA_OP_SAMPLE_PROBS, F32, 64, 128256, 0, 0, PROBS, false},
    {"chain_sample", ALEA_OP_CHAIN_SAMPLE, F32, 64, 128256, 0, 0, PROBS, false},
    {"chain_logits, certain drafts", ALEA_OP_CHAIN_LOGITS, BF16, 64, 128256, 0, 0, LIKE_A_MODEL,
     true},
    {"chain_logits", ALEA_OP_CHAIN_LOGITS, BF16, 64, 128256, 0, 0, LIKE_A_MODEL, false},
    {"topk_select", ALEA_OP_TOPK_SELECT, F32, 1, 131072, 2048, 0, NORMAL, false},
    {"topk_select", ALEA_OP_TOPK_SELECT, F32, 64, 131072, 256, 0, NORMAL, false},
    {"topk_select", ALEA_OP_TOPK_SELECT, F32, 64, 65536, 2048, 0, NORMAL, false},
    {"topk_select", ALEA_OP_TOPK_SELECT, F32, 32768, 65536, 1024, 0, NORMAL, false},
    {"topk_select", ALEA_OP_TOPK_SELECT, F32, 32768, 65536, 2048, 0, NORMAL, false},
};
enum { CASES = sizeof cases / sizeof cases[0] };
enum { COMPLETION_AFTER = 7 }; /* the case whose data the completion contract is measured on */

/* Rows of which the rows of a batch are made. */
typedef struct sample_rows {
    float *x; /* [n][vocab] */
    int32_t n, vocab;
} sample_rows;

/* One case at work. */
typedef struct bench {
    const alea_cuda_api *api;
    const cuda_case *c;
    sample_rows rows;
    void *stream;
    char *data, *out, *params; /* [copies] inputs, [copies] masks or results, per-row parameters */
    size_t in_bytes, out_bytes, copy_bytes, read_bytes;
    int32_t copies, calls;
    void *op;
    int code; /* of CUDA */
    alea_error error;
} bench;

static bool ok(bench *b, int code) {
    if (code && !b->code) b->code = code;
    return !b->code;
}

static bool is_mask(alea_op_kind kind) {
    return kind >= ALEA_OP_TOPK_MASK && kind <= ALEA_OP_TOPK_TOPP_MASK;
}

static size_t element_bytes(alea_dtype dtype) {
    return dtype == ALEA_FLOAT32 ? 4 : 2;
}

/* ---- data -------------------------------------------------------------------------------- */

static double uniform(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return ((double)(*state >> 33) + 0.5) * 0x1p-31;
}

static float normal(uint64_t *state) {
    const double radius = sqrt(-2.0 * log(uniform(state)));
    return (float)(radius * cos(6.283185307179586 * uniform(state)));
}

/* One row; the rows of a batch are this one, turned by an odd distance each. */
static void fill_sample(float *x, int32_t n, fill data) {
    uint64_t seed = 7;
    for (int32_t i = 0; i < n; i++)
        x[i] = data == NORMAL ? 3.0f * normal(&seed)
                              : 18.0f - 1.6f * logf(1.0f + (float)i) + 0.3f * normal(&seed);
    for (int32_t i = n - 1; i > 0 && data != NORMAL; i--) {
        const int32_t j = (int32_t)(uniform(&seed) * (i + 1));
        const float moved = x[i];
        x[i] = x[j];
        x[j] = moved;
    }
    if (data != PROBS) return;
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += exp((double)x[i]);
    for (int32_t i = 0; i < n; i++)
        x[i] = (float)(exp((double)x[i]) / sum);
}

/* A token that a model might have been asked about: about the tenth best. */
static int32_t likely_token(const float *x, int32_t n) {
    float most = x[0];
    for (int32_t i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    int32_t best = 0;
    for (int32_t i = 0; i < n; i++)
        if (fabsf(x[i] - (most - 3.5f)) < fabsf(x[best] - (most - 3.5f))) best = i;
    return best;
}

static int32_t turn_of(int64_t row, int32_t n) {
    return (int32_t)((uint64_t)row * 7919 * 13 % (uint64_t)n);
}

/* Drafts, then targets; certain drafts have no rows. */
static int64_t rows_of_data(const cuda_case *c) {
    if (c->kind == ALEA_OP_CHAIN_LOGITS && c->reported) return (int64_t)c->rows * (DRAFTS + 1);
    if (c->kind == ALEA_OP_CHAIN_SAMPLE || c->kind == ALEA_OP_CHAIN_LOGITS)
        return (int64_t)c->rows * (2 * DRAFTS + 1);
    return c->rows;
}

/* The first copy from the host, row by row; the others from it. */
static bool fill_data(bench *b) {
    const cuda_case *c = b->c;
    const size_t each = element_bytes(c->dtype), row_bytes = (size_t)c->vocab * each;
    char *twice = malloc(2 * row_bytes);
    if (!twice) return false;
    for (int32_t sample = 0; sample < b->rows.n; sample++) {
        const float *row = b->rows.x + (size_t)sample * (size_t)c->vocab;
        for (int32_t i = 0; i < 2 * c->vocab; i++) {
            const float x = row[i % c->vocab];
            if (each == 4) {
                memcpy(twice + (size_t)i * 4, &x, 4);
            } else {
                const uint16_t half = alea__bf16_narrow(x);
                memcpy(twice + (size_t)i * 2, &half, 2);
            }
        }
        for (int64_t r = sample; r < rows_of_data(c); r += b->rows.n)
            ok(b, b->api->lab.copy_in(b->data + (size_t)r * row_bytes,
                                      twice + (size_t)turn_of(r, c->vocab) * each, row_bytes,
                                      b->stream));
        ok(b, b->api->lab.stream_wait(b->stream));
    }
    for (int32_t i = 1; i < b->copies; i++)
        ok(b, b->api->lab.copy_all(b->data + (size_t)i * b->copy_bytes, b->data, b->copy_bytes,
                                   b->stream));
    ok(b, b->api->lab.stream_wait(b->stream));
    free(twice);
    return !b->code;
}

/* Per-row parameters, one after the other: k, p, tokens or windows' ends, zeros, drafts. */
typedef struct params {
    int32_t *k, *tokens, *zeros, *drafts;
    float *p, *temperature;
    int64_t *seed, *offset;
    size_t bytes;
} params;

static params params_at(char *at, const cuda_case *c) {
    const size_t n = ((size_t)c->rows + 1) / 2 * 2;
    params p = {.seed = (int64_t *)(void *)at};
    p.offset = p.seed + n;
    p.k = (int32_t *)(p.offset + n);
    p.tokens = p.k + n;
    p.zeros = p.tokens + n;
    p.drafts = p.zeros + n;
    p.p = (float *)(void *)(p.drafts + n * DRAFTS);
    p.temperature = p.p + n;
    p.bytes = (size_t)((char *)(p.temperature + n) - at);
    return p;
}

static bool fill_params(bench *b) {
    const cuda_case *c = b->c;
    const size_t bytes = params_at(NULL, c).bytes;
    char *host = calloc(1, bytes);
    if (!host || !ok(b, b->api->lab.allocate(bytes, (void **)&b->params))) {
        free(host);
        return false;
    }
    const params p = params_at(host, c);
    int32_t token = 0;
    for (int32_t r = 0; r < c->rows; r++) {
        if (r < b->rows.n || b->rows.n > 1)
            token = likely_token(b->rows.x + (size_t)(r % b->rows.n) * (size_t)c->vocab, c->vocab);
        p.seed[r] = 1000 + r;
        p.k[r] = c->k;
        p.p[r] = c->p > 0 ? c->p : 1;
        p.temperature[r] = 1;
        p.tokens[r] = c->kind == ALEA_OP_TOPK_SELECT
                          ? c->vocab
                          : (token - turn_of(r, c->vocab) + c->vocab) % c->vocab;
        for (int32_t d = 0; d < DRAFTS; d++) /* the draft's best, which the target doubts */
            p.drafts[r * DRAFTS + d] =
                (token - turn_of(r * (rows_of_data(c) / c->rows) + d, c->vocab) + c->vocab) %
                c->vocab;
    }
    ok(b, b->api->lab.copy_in(b->params, host, bytes, b->stream));
    ok(b, b->api->lab.stream_wait(b->stream));
    free(host);
    return !b->code;
}

/* ---- calls ------------------------------------------------------------------------------- */

typedef struct tensor {
    DLTensor dl;
    int64_t shape[4], strides[4];
} tensor;

static const DLDataType i32 = {kDLInt, 32, 1}, i64 = {kDLInt, 64, 1}, f32 = {kDLFloat, 32, 1};
static const DLDataType bf16 = {kDLBfloat, 16, 1};

static DLTensor *wrap(tensor *t, void *data, DLDataType type, int32_t rank, int64_t a, int64_t c,
                      int64_t d, int64_t e) {
    const int64_t shape[] = {a, c, d, e};
    memcpy(t->shape, shape, sizeof shape);
    t->dl = (DLTensor){
        .data = data, .device = {kDLCUDA, 0}, .ndim = rank, .dtype = type, .shape = t->shape};
    return &t->dl;
}

static DLTensor *vector(tensor *t, void *data, DLDataType type, int64_t n) {
    return wrap(t, data, type, 1, n, 0, 0, 0);
}

static DLTensor *matrix(tensor *t, void *data, DLDataType type, int64_t rows, int64_t n) {
    return wrap(t, data, type, 2, rows, n, 0, 0);
}

static alea_status run_reports(bench *b, char *in, char *out) {
    const cuda_case *c = b->c;
    const params p = params_at(b->params, c);
    const size_t n = (size_t)c->rows;
    tensor t[6];
    const alea_logprobs_tensors tensors = {
        .struct_bytes = sizeof tensors,
        .logprobs = vector(&t[0], out, f32, c->rows),
        .ranks = vector(&t[1], out + 4 * n, i32, c->rows),
        .alternatives = matrix(&t[2], out + 8 * n, i32, c->rows, TOP),
        .alternative_logprobs = matrix(&t[3], out + (8 + 4 * TOP) * n, f32, c->rows, TOP),
        .logits = matrix(&t[4], in, c->dtype == F32 ? f32 : bf16, c->rows, c->vocab),
        .tokens = vector(&t[5], p.tokens, i32, c->rows)};
    return alea_logprobs_run(b->op, &tensors, b->stream, &b->error);
}

static alea_status run_choices(bench *b, char *in, char *out) {
    const cuda_case *c = b->c;
    const params p = params_at(b->params, c);
    const size_t n = (size_t)c->rows;
    tensor t[11];
    const alea_sample_logits_tensors tensors = {
        .struct_bytes = sizeof tensors,
        .tokens = vector(&t[0], out, i32, c->rows),
        .logprobs = vector(&t[1], out + 4 * n, f32, c->rows),
        .ranks = c->reported ? vector(&t[8], out + 8 * n, i32, c->rows) : NULL,
        .alternatives = c->reported ? matrix(&t[9], out + 12 * n, i32, c->rows, TOP) : NULL,
        .alternative_logprobs =
            c->reported ? matrix(&t[10], out + (12 + 4 * TOP) * n, f32, c->rows, TOP) : NULL,
        .logits = matrix(&t[2], in, c->dtype == F32 ? f32 : bf16, c->rows, c->vocab),
        .temperature = vector(&t[3], p.temperature, f32, c->rows),
        .top_k = vector(&t[4], p.k, i32, c->rows),
        .top_p = vector(&t[5], p.p, f32, c->rows),
        .seed = vector(&t[6], p.seed, i64, c->rows),
        .offset = vector(&t[7], p.offset, i64, c->rows)};
    return alea_sample_logits_run(b->op, &tensors, b->stream, &b->error);
}

static alea_status run_mask(bench *b, char *in, char *out) {
    const cuda_case *c = b->c;
    const params p = params_at(b->params, c);
    const DLDataType type = c->dtype == F32 ? f32 : bf16;
    tensor t[4];
    DLTensor *masked = matrix(&t[0], out, type, c->rows, c->vocab);
    DLTensor *logits = matrix(&t[1], in, type, c->rows, c->vocab);
    DLTensor *k = vector(&t[2], p.k, i32, c->rows), *share = vector(&t[3], p.p, f32, c->rows);
    switch (c->kind) {
    case ALEA_OP_TOPK_MASK:
        return alea_topk_mask_run(b->op, masked, logits, k, b->stream, &b->error);
    case ALEA_OP_MINP_MASK:
        return alea_minp_mask_run(b->op, masked, logits, share, b->stream, &b->error);
    case ALEA_OP_TOPP_MASK:
        return alea_topp_mask_run(b->op, masked, logits, share, b->stream, &b->error);
    default: return alea_topk_topp_mask_run(b->op, masked, logits, k, share, b->stream, &b->error);
    }
}

static alea_status run_draw(bench *b, char *in, char *out) {
    const cuda_case *c = b->c;
    const params p = params_at(b->params, c);
    tensor t[7];
    DLTensor *seed = vector(&t[0], p.seed, i64, c->rows);
    DLTensor *offset = vector(&t[1], p.offset, i64, c->rows);
    if (c->kind == ALEA_OP_SAMPLE_PROBS)
        return alea_sample_probs_run(b->op, vector(&t[2], out, i32, c->rows),
                                     matrix(&t[3], in, f32, c->rows, c->vocab), seed, offset, NULL,
                                     b->stream, &b->error);
    const bool certain = rows_of_data(c) == (int64_t)c->rows * (DRAFTS + 1);
    const DLDataType type = c->dtype == F32 ? f32 : bf16;
    const int64_t step[] = {rows_of_data(c) / c->rows * c->vocab, c->vocab, 1};
    const size_t ahead = certain ? 0 : (size_t)DRAFTS * (size_t)c->vocab * element_bytes(c->dtype);
    DLTensor *draft = wrap(&t[2], in, type, 3, c->rows, DRAFTS, c->vocab, 0);
    DLTensor *target = wrap(&t[3], in + ahead, type, 3, c->rows, DRAFTS + 1, c->vocab, 0);
    memcpy(t[2].strides, step, sizeof step);
    memcpy(t[3].strides, step, sizeof step);
    draft->strides = t[2].strides;
    target->strides = t[3].strides;
    DLTensor *tokens = matrix(&t[4], out, i32, c->rows, DRAFTS + 1);
    DLTensor *accepted = vector(&t[5], out + 4 * (DRAFTS + 1) * (size_t)c->rows, i32, c->rows);
    DLTensor *ids = matrix(&t[6], p.drafts, i32, c->rows, DRAFTS);
    if (c->kind == ALEA_OP_CHAIN_SAMPLE)
        return alea_chain_sample_run(b->op, tokens, accepted, draft, ids, target, seed, offset,
                                     NULL, b->stream, &b->error);
    const alea_chain_logits_tensors tensors = {.struct_bytes = sizeof tensors,
                                               .tokens = tokens,
                                               .accepted = accepted,
                                               .draft_logits = certain ? NULL : draft,
                                               .draft_tokens = ids,
                                               .target_logits = target,
                                               .seed = seed,
                                               .offset = offset};
    return alea_chain_logits_run(b->op, &tensors, b->stream, &b->error);
}

static alea_status run_select(bench *b, char *in, char *out) {
    const cuda_case *c = b->c;
    const params p = params_at(b->params, c);
    tensor t[4];
    return alea_topk_select_run(b->op, wrap(&t[0], out, i32, 4, 1, c->rows, 1, c->k),
                                wrap(&t[1], in, f32, 4, 1, c->rows, c->vocab, 1),
                                matrix(&t[2], p.zeros, i32, 1, c->rows),
                                matrix(&t[3], p.tokens, i32, 1, c->rows), b->stream, &b->error);
}

static alea_status run_call(bench *b, int32_t copy) {
    char *in = b->data + (size_t)copy * b->copy_bytes, *out = b->out + (size_t)copy * b->out_bytes;
    switch (b->c->kind) {
    case ALEA_OP_LOGPROBS: return run_reports(b, in, out);
    case ALEA_OP_SAMPLE_LOGITS: return run_choices(b, in, out);
    case ALEA_OP_SAMPLE_PROBS:
    case ALEA_OP_CHAIN_SAMPLE:
    case ALEA_OP_CHAIN_LOGITS: return run_draw(b, in, out);
    case ALEA_OP_TOPK_SELECT: return run_select(b, in, out);
    default: return run_mask(b, in, out);
    }
}

static alea_status run_floor(bench *b, int32_t copy) {
    const char *in = b->data + (size_t)copy * b->copy_bytes;
    char *out = b->out + (size_t)copy * b->out_bytes;
    if (is_mask(b->c->kind)) {
        ok(b, b->api->lab.copy_all(out, in, b->read_bytes, b->stream));
    } else {
        ok(b, b->api->lab.read_all(in, b->read_bytes, b->params, b->stream));
    }
    return ALEA_OK;
}

static alea_status run_nothing(bench *b, int32_t copy) {
    (void)copy;
    ok(b, b->api->lab.nothing(b->stream));
    return ALEA_OK;
}

/* ---- making ------------------------------------------------------------------------------ */

#define MAKE(kind, type)                                                                           \
    case kind: return type##_create(config, (type **)op, error)

static alea_status op_create(alea_op_kind kind, const alea_op_config *config, void **op,
                             alea_error *error) {
    switch (kind) {
        MAKE(ALEA_OP_TOPK_SELECT, alea_topk_select);
        MAKE(ALEA_OP_TOPK_MASK, alea_topk_mask);
        MAKE(ALEA_OP_MINP_MASK, alea_minp_mask);
        MAKE(ALEA_OP_TOPP_MASK, alea_topp_mask);
        MAKE(ALEA_OP_TOPK_TOPP_MASK, alea_topk_topp_mask);
        MAKE(ALEA_OP_SAMPLE_PROBS, alea_sample_probs);
        MAKE(ALEA_OP_CHAIN_SAMPLE, alea_chain_sample);
        MAKE(ALEA_OP_LOGPROBS, alea_logprobs);
        MAKE(ALEA_OP_CHAIN_LOGITS, alea_chain_logits);
    default: return alea_sample_logits_create(config, (alea_sample_logits **)op, error);
    }
}

/* All operators are of one type behind their names. */
static void op_destroy(void *op) {
    alea_logprobs_destroy(op);
}

static void bench_end(bench *b) {
    (void)b->api->lab.stream_wait(NULL);
    op_destroy(b->op);
    if (b->data) b->api->lab.release(b->data);
    if (b->out) b->api->lab.release(b->out);
    if (b->params) b->api->lab.release(b->params);
    if (b->stream) b->api->lab.stream_destroy(b->stream);
}

static bool bench_begin(bench *b) {
    const cuda_case *c = b->c;
    const size_t row_bytes = (size_t)c->vocab * element_bytes(c->dtype);
    b->copy_bytes = (size_t)rows_of_data(c) * row_bytes;
    b->read_bytes = (size_t)c->rows * row_bytes;
    if (c->kind == ALEA_OP_CHAIN_SAMPLE) b->read_bytes *= 2; /* one draft and one target row */
    if (c->kind == ALEA_OP_CHAIN_LOGITS) b->read_bytes = b->copy_bytes;
    const size_t copies = (COLD_BYTES + b->read_bytes - 1) / b->read_bytes;
    b->copies = copies > COPIES_MAX ? COPIES_MAX : copies < 3 ? 3 : (int32_t)copies;
    if (b->copy_bytes > (size_t)4 << 30) b->copies = 1; /* it evicts itself */
    b->calls = b->copies < CALLS_LEAST ? CALLS_LEAST : b->copies;
    if (b->copies == 1) b->calls = 2;
    b->out_bytes = is_mask(c->kind)                 ? b->read_bytes
                   : c->kind == ALEA_OP_TOPK_SELECT ? (size_t)c->rows * (size_t)c->k * 4
                                                    : (size_t)c->rows * OUTPUT_WORDS * 4;
    alea_op_config config = {.struct_bytes = sizeof config,
                             .target = "cuda",
                             .max_vocab = c->vocab,
                             .max_rows = c->rows,
                             .topk = c->kind == ALEA_OP_SAMPLE_LOGITS ? c->reported ? TOP : 0
                                     : is_mask(c->kind)               ? 0
                                                                      : c->k};
    if (op_create(c->kind, &config, &b->op, &b->error) < 0) return false;
    return ok(b, b->api->lab.stream_create(&b->stream)) &&
           ok(b, b->api->lab.allocate(b->copy_bytes * (size_t)b->copies, (void **)&b->data)) &&
           ok(b, b->api->lab.allocate(b->out_bytes * (size_t)b->copies, (void **)&b->out)) &&
           fill_params(b) && fill_data(b);
}

/* ---- timing ------------------------------------------------------------------------------ */

typedef alea_status (*call_fn)(bench *b, int32_t copy);

static void *capture(bench *b, call_fn call, bool hot) {
    void *graph = NULL;
    if (!ok(b, b->api->lab.capture_begin(b->stream))) return NULL;
    alea_status status = ALEA_OK;
    for (int32_t i = 0; i < b->calls && status >= 0; i++)
        status = call(b, hot ? 0 : i % b->copies);
    ok(b, b->api->lab.capture_end(b->stream, &graph));
    return status >= 0 ? graph : NULL;
}

enum { COLD, HOT, FLOOR, NOTHING, RUNS };

typedef struct result {
    double us[RUNS];
} result;

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool measure(bench *b, result *r) {
    static const call_fn calls[RUNS] = {run_call, run_call, run_floor, run_nothing};
    void *graphs[RUNS] = {NULL};
    double us[RUNS][ROUNDS];
    bool good = true;
    for (int i = 0; i < RUNS && good; i++) {
        graphs[i] = capture(b, calls[i], i == HOT);
        good = graphs[i] && ok(b, b->api->lab.graph_launch(graphs[i], b->stream)) &&
               ok(b, b->api->lab.stream_wait(b->stream));
    }
    for (int round = 0; round < ROUNDS && good; round++) {
        for (int i = 0; i < RUNS && good; i++) {
            float ms = 0;
            good = ok(b, b->api->lab.graph_time(graphs[i], b->stream, &ms));
            us[i][round] = (double)ms * 1e3 / b->calls;
        }
    }
    for (int i = 0; i < RUNS; i++) {
        if (graphs[i]) b->api->lab.graph_destroy(graphs[i]);
        if (!good) continue;
        qsort(us[i], ROUNDS, sizeof us[i][0], by_value);
        r->us[i] = us[i][ROUNDS / 2];
    }
    return good;
}

/* ---- printing ---------------------------------------------------------------------------- */

static void case_name(const cuda_case *c, char *name, size_t capacity) {
    static const char *const fills[] = {"", " flat", "", " real"};
    char filter[48] = "";
    if (c->kind == ALEA_OP_LOGPROBS || c->kind == ALEA_OP_TOPK_SELECT || c->k)
        snprintf(filter, sizeof filter, " k=%d", c->k);
    const size_t used = strlen(filter);
    if (c->p > 0) snprintf(filter + used, sizeof filter - used, " p=%g", (double)c->p);
    snprintf(name, capacity, "%s%s %dx%d %s%s", c->name, filter, c->rows, c->vocab,
             c->dtype == F32 ? "float32" : "bfloat16",
             c->kind == ALEA_OP_TOPK_SELECT ? "" : fills[c->data]);
}

static void json_number(alea_json_writer *writer, const char *name, double value) {
    alea__json_key(writer, name);
    alea__json_double(writer, value);
}

static bool print_json(const bench *b, const result *r, const char *name, FILE *out) {
    alea_json_writer writer;
    alea__json_write_to_buffer(&writer, 2048);
    alea__json_begin_object(&writer);
    alea__json_key(&writer, "bench");
    alea__json_cstring(&writer, "ops");
    alea__json_key(&writer, "case");
    alea__json_cstring(&writer, name);
    alea__json_key(&writer, "target");
    alea__json_cstring(&writer, "cuda");
    json_number(&writer, "median_us", r->us[COLD]);
    json_number(&writer, "hot_us", r->us[HOT]);
    json_number(&writer, "floor_us", r->us[FLOOR]);
    json_number(&writer, "empty_us", r->us[NOTHING]);
    alea__json_key(&writer, "bytes");
    alea__json_int(&writer, (int64_t)b->read_bytes);
    alea__json_end_object(&writer);
    alea__json_newline(&writer);
    const bool good = alea__json_finish(&writer) >= 0;
    if (good) fwrite(writer.data, 1, writer.length, out);
    alea__json_write_free(&writer);
    return good;
}

/* ---- the completion contract ------------------------------------------------------------- */

enum { LANES = 64, COMPLETION_VOCAB = 128256, REPLAYS = 20 };

/* Who asks in the replays of the same graph. */
static bool submit(bench *b, alea_device_completion *device, int32_t capacity, bool all) {
    int32_t requested[LANES] = {0};
    alea_device_lane lanes[LANES];
    for (int32_t i = 0; i < LANES; i++) {
        requested[i] = all;
        lanes[i] = (alea_device_lane){.slot = i, .epoch = 1, .first_row = i, .offered_rows = 1};
    }
    return capacity == LANES && alea__device_submit(device, requested, NULL, NULL, lanes, LANES,
                                                    b->stream, &b->error) >= 0;
}

/* One token of every slot, in the records of frame 0. */
static bool emit(bench *b, alea_device_completion *device, const alea_completion_layout *layout,
                 int32_t token) {
    const size_t each = (size_t)ALEA_RECORD_HEADER + (size_t)layout->tokens;
    int64_t *records = calloc(LANES * each, sizeof *records);
    alea_completion host = {.layout = *layout, .records = records};
    bool good = records != NULL;
    for (int32_t slot = 0; slot < LANES && good; slot++) {
        const int32_t own =
            (token - turn_of(slot, COMPLETION_VOCAB) + COMPLETION_VOCAB) % COMPLETION_VOCAB;
        const alea_record record = {.epoch = 1,
                                    .slot = slot,
                                    .status = ALEA_RECORD_EMITTED,
                                    .count = 1,
                                    .role = ALEA_ROLE_DECODE,
                                    .end_index = -1};
        good = alea__record_write(&host, 0, &record, &own, &b->error) >= 0;
    }
    if (good)
        good = ok(b, b->api->lab.copy_in(alea__device_records(device, 0), records,
                                         LANES * each * sizeof *records, b->stream)) &&
               ok(b, b->api->lab.stream_wait(b->stream));
    free(records);
    return good;
}

/* A graph of so many "models", kernels that write the logits, each followed by what is measured. */
static void *decode_graph(bench *b, alea_device_completion *device, bool reports) {
    void *graph = NULL;
    if (!ok(b, b->api->lab.capture_begin(b->stream))) return NULL;
    alea_status status = ALEA_OK;
    for (int32_t i = 0; i < REPLAYS && status >= 0; i++) {
        ok(b, b->api->lab.copy_all(b->data, b->data + b->copy_bytes, b->read_bytes, b->stream));
        if (device) status = alea__device_reduce(device, 0, b->stream, &b->error);
        if (reports && status >= 0) status = run_reports(b, b->data, b->out);
    }
    ok(b, b->api->lab.capture_end(b->stream, &graph));
    return status >= 0 && !b->code ? graph : NULL;
}

enum { BARE, UNASKED, ASKED, REPORTED, DECODES, DECODE_ROUNDS = 101 };

/* The graphs in turn, round after round: their differences are what is asked for. */
static bool time_decodes(bench *b, alea_device_completion *device, int32_t capacity,
                         void *const *graphs, double *us) {
    static double samples[DECODES][DECODE_ROUNDS];
    for (int round = -1; round < DECODE_ROUNDS; round++) {
        for (int i = 0; i < DECODES; i++) {
            float ms;
            if ((i == UNASKED || i == ASKED) && !submit(b, device, capacity, i == ASKED))
                return false;
            if (!ok(b, b->api->lab.graph_time(graphs[i], b->stream, &ms))) return false;
            if (round >= 0) samples[i][round] = (double)ms * 1e3 / REPLAYS;
        }
    }
    for (int i = 0; i < DECODES; i++) {
        qsort(samples[i], DECODE_ROUNDS, sizeof samples[i][0], by_value);
        us[i] = samples[i][DECODE_ROUNDS / 2];
    }
    return true;
}

/* Model alone, with the reduction unused, with it used by all, and with the operator instead. */
static bool bench_completion(bench *b, double us[DECODES]) {
    const alea_completion_layout layout = alea__layout_complete(LANES, 0, 0);
    const alea_device_config config = {.layout = layout,
                                       .lanes = LANES,
                                       .logits = b->data,
                                       .row_bytes = COMPLETION_VOCAB * (int64_t)sizeof(float),
                                       .rows = LANES,
                                       .vocab = COMPLETION_VOCAB,
                                       .dtype = ALEA_CUDA_F32};
    alea_device_completion *device = NULL;
    if (alea__device_create(b->api, &config, &device, &b->error) < 0) return false;
    float *row = malloc(COMPLETION_VOCAB * sizeof *row);
    bool good = row != NULL;
    if (good) fill_sample(row, COMPLETION_VOCAB, LIKE_A_MODEL);
    good = good && emit(b, device, &layout, likely_token(row, COMPLETION_VOCAB));
    free(row);
    void *bare = decode_graph(b, NULL, false), *reduced = decode_graph(b, device, false);
    void *reported = decode_graph(b, NULL, true);
    void *const graphs[DECODES] = {bare, reduced, reduced, reported};
    good =
        good && bare && reduced && reported && time_decodes(b, device, layout.capacity, graphs, us);
    if (bare) b->api->lab.graph_destroy(bare);
    if (reduced) b->api->lab.graph_destroy(reduced);
    if (reported) b->api->lab.graph_destroy(reported);
    alea__device_destroy(device);
    return good;
}

/* The rows of a case; false: none are there, and why is said where that is a fault. */
static bool samples_open(const cuda_case *c, sample_rows *rows) {
    *rows = (sample_rows){NULL, 1, c->vocab};
    const char *path = getenv("ALEA_BENCH_ROWS");
    FILE *file = NULL;
    if (c->data == REAL) {
        int32_t sizes[2];
        if (!path) return false;
        file = fopen(path, "rb");
        if (!file || fread(sizes, sizeof sizes, 1, file) != 1 || sizes[0] < 1 || sizes[0] > 4096 ||
            sizes[1] < 1 || sizes[1] > ALEA_OP_VOCAB_MAX) {
            alea__complain("bench: %s holds no rows", path);
            if (file) fclose(file);
            return false;
        }
        rows->n = sizes[0];
        rows->vocab = sizes[1];
    }
    const size_t count = (size_t)rows->n * (size_t)rows->vocab;
    rows->x = malloc(count * sizeof *rows->x);
    bool good = rows->x != NULL;
    if (good && file) good = fread(rows->x, sizeof *rows->x, count, file) == count;
    if (good && !file) fill_sample(rows->x, rows->vocab, c->data);
    if (file) fclose(file);
    if (!good) alea__complain("bench: %s", file ? path : "out of memory");
    if (!good) free(rows->x);
    return good;
}

static bool print_completion(const double us[DECODES], bool json, FILE *out) {
    static const char *const names[DECODES] = {
        "decode graph of 64 x 128256 float32", "with the reduction, nobody asks",
        "with the reduction, 64 ask for 20", "with logprobs k=20 instead"};
    for (int i = 0; i < DECODES; i++) {
        if (json)
            fprintf(out, "{\"bench\":\"completion\",\"case\":\"%s\",\"median_us\":%.3f}\n",
                    names[i], us[i]);
        else
            fprintf(out, "%-52s %9.2f   +%.2f\n", names[i], us[i], us[i] - us[0]);
    }
    return !ferror(out);
}

alea_exit alea__bench_cuda(const alea_settings *settings, FILE *out) {
    alea_error error = {0};
    const alea_cuda_api *api = alea__cuda_open(&error);
    if (!api) {
        alea__complain("bench: %s", error.message);
        return ALEA_EXIT_FAILURE;
    }
    if (!settings->json)
        fprintf(out, "%-52s %9s %9s %9s %7s\n", "operator", "cold us", "hot us", "floor us",
                "x floor");
    for (int32_t i = 0; i < CASES; i++) {
        bench b = {.api = api};
        if (!samples_open(&cases[i], &b.rows)) continue;
        cuda_case own = cases[i];
        own.vocab = b.rows.vocab;
        b.c = &own;
        result r = {{0}};
        char name[96];
        case_name(b.c, name, sizeof name);
        double completion[DECODES];
        bool good = bench_begin(&b) && measure(&b, &r);
        if (good && settings->json) good = print_json(&b, &r, name, out);
        if (good && !settings->json)
            fprintf(out, "%-52s %9.2f %9.2f %9.2f %7.2f\n", name, r.us[COLD], r.us[HOT],
                    r.us[FLOOR], r.us[COLD] / r.us[FLOOR]);
        if (good && i == COMPLETION_AFTER)
            good = bench_completion(&b, completion) &&
                   print_completion(completion, settings->json, out);
        fflush(out);
        bench_end(&b);
        free(b.rows.x);
        if (good) continue;
        alea__complain("bench: %s: %s", name,
                       b.error.message[0] ? b.error.message
                       : b.code           ? api->error_text(b.code)
                                          : "out of memory");
        return ALEA_EXIT_FAILURE;
    }
    return ALEA_EXIT_OK;
}
