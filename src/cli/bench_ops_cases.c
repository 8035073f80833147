/*
 * Rows like a model's: logits fall with the logarithm of their rank, which gives a few probable
 * tokens and a long tail, in shuffled order. Normal rows beside them are the hard case of every
 * method that hopes for few candidates. Nothing is zero, nothing is sorted.
 */
#include "cli/bench_ops_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "alea/ops.h"
#include "base/half.h"
#include "cli/bench_floor.h"
#include "core/llama/peers.h"

enum { VOCAB = 128256, ROWS = 64, WINDOW = 65536, SLOTS = 2048, DRAFTS = 4, TOP = 20 };
enum { BEST = 50 }; /* k of the filters */

struct alea_bench_data {
    float *row, *flat;       /* [VOCAB] like a model's; normal */
    float *rows;             /* [ROWS, VOCAB] */
    float *scores;           /* [ROWS, WINDOW] */
    float *probs;            /* [DRAFTS + 1, VOCAB], the first of `row` */
    float *drafts;           /* [DRAFTS, VOCAB] */
    uint16_t *half, *brain;  /* [VOCAB] `row` in float16 and bfloat16 */
    void *out;               /* [VOCAB] floats */
    int32_t *indices;        /* [ROWS, SLOTS] */
    int32_t ids[ROWS * TOP]; /* results of reports */
    float logprobs[ROWS * TOP];
    int32_t tokens[ROWS], ranks[ROWS], starts[ROWS], ends[ROWS];
    int32_t row_token, flat_token, draft_tokens[DRAFTS];
    volatile float sink; /* of what returns a number only */

    alea_topk_select *select_one, *select_many;
    alea_topk_mask *topk;
    alea_minp_mask *minp;
    alea_topp_mask *topp;
    alea_topk_topp_mask *topk_topp;
    alea_sample_probs *sample_probs;
    alea_chain_sample *chain;
    alea_logprobs *report, *report_wide;
    alea_sample_logits *sample_logits;
    alea_peers *llama;
    alea_error *error; /* of the caller; set where a run fails */
};

/* ---- data ---- */

static double uniform(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return ((double)(*state >> 33) + 0.5) * 0x1p-31;
}

static float normal(uint64_t *state) {
    const double radius = sqrt(-2.0 * log(uniform(state)));
    return (float)(radius * cos(6.283185307179586 * uniform(state)));
}

static void fill_normal(float *x, int64_t n, float deviation, uint64_t seed) {
    for (int64_t i = 0; i < n; i++)
        x[i] = deviation * normal(&seed);
}

static void fill_like_a_model(float *x, int32_t n, uint64_t seed) {
    for (int32_t rank = 0; rank < n; rank++)
        x[rank] = 18.0f - 1.6f * logf(1.0f + (float)rank) + 0.3f * normal(&seed);
    for (int32_t i = n - 1; i > 0; i--) {
        const int32_t j = (int32_t)(uniform(&seed) * (i + 1));
        const float moved = x[i];
        x[i] = x[j];
        x[j] = moved;
    }
}

static void softmax(float *probs, const float *x, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += exp((double)x[i]);
    for (int32_t i = 0; i < n; i++)
        probs[i] = (float)(exp((double)x[i]) / sum);
}

/* A token that a model might have been asked about: the tenth best or so. */
static int32_t likely_token(const float *x, int32_t n) {
    const float most = alea__bench_scan(x, n);
    int32_t best = 0;
    for (int32_t i = 0; i < n; i++)
        if (fabsf(x[i] - (most - 3.5f)) < fabsf(x[best] - (most - 3.5f))) best = i;
    return best;
}

static void fill(alea_bench_data *d) {
    fill_like_a_model(d->row, VOCAB, 1);
    fill_normal(d->flat, VOCAB, 3.0f, 2);
    fill_normal(d->scores, (int64_t)ROWS * WINDOW, 1.0f, 3);
    for (int32_t i = 0; i < ROWS; i++) {
        float *x = d->rows + (int64_t)i * VOCAB;
        fill_like_a_model(x, VOCAB, 100 + (uint64_t)i);
        d->ends[i] = WINDOW;
    }
    softmax(d->probs, d->row, VOCAB);
    for (int32_t i = 0; i < DRAFTS; i++) { /* as likely as a draft that is rejected at once */
        const float *target = d->rows + (int64_t)i * VOCAB, *draft = target + DRAFTS * VOCAB;
        softmax(d->probs + (int64_t)(i + 1) * VOCAB, target, VOCAB);
        softmax(d->drafts + (int64_t)i * VOCAB, draft, VOCAB);
        d->draft_tokens[i] = likely_token(draft, VOCAB);
    }
    for (int32_t i = 0; i < VOCAB; i++) {
        d->half[i] = alea__f16_narrow(d->row[i]);
        d->brain[i] = alea__bf16_narrow(d->row[i]);
    }
    for (int32_t i = 0; i < ROWS; i++)
        d->tokens[i] = likely_token(d->rows + (int64_t)i * VOCAB, VOCAB);
    d->row_token = likely_token(d->row, VOCAB);
    d->flat_token = likely_token(d->flat, VOCAB);
}

/* ---- operators ---- */

static const DLDataType f32 = {kDLFloat, 32, 1}, f16 = {kDLFloat, 16, 1}, bf16 = {kDLBfloat, 16, 1};
static const DLDataType i32 = {kDLInt, 32, 1}, i64 = {kDLInt, 64, 1};

/* A tensor with its own shape; the struct must stay where it is while it is used. */
typedef struct tensor {
    DLTensor dl;
    int64_t shape[4];
} tensor;

static DLTensor *wrap(tensor *t, const void *data, DLDataType type, int32_t rank, int64_t a,
                      int64_t b, int64_t c, int64_t d) {
    const int64_t shape[] = {a, b, c, d};
    memcpy(t->shape, shape, sizeof shape);
    t->dl = (DLTensor){.data = (void *)(uintptr_t)data,
                       .device = {kDLCPU, 0},
                       .ndim = rank,
                       .dtype = type,
                       .shape = t->shape};
    return &t->dl;
}

static DLTensor *vector(tensor *t, const void *data, DLDataType type, int64_t n) {
    return wrap(t, data, type, 1, n, 0, 0, 0);
}

static DLTensor *matrix(tensor *t, const void *data, DLDataType type, int64_t rows, int64_t n) {
    return wrap(t, data, type, 2, rows, n, 0, 0);
}

static bool logprobs_of(alea_bench_data *d, alea_logprobs *op, const void *x, DLDataType type,
                        const int32_t *tokens, int32_t rows) {
    tensor t[6];
    const alea_logprobs_tensors tensors = {
        .struct_bytes = sizeof tensors,
        .logprobs = vector(&t[0], d->out, f32, rows),
        .ranks = vector(&t[1], d->ranks, i32, rows),
        .alternatives = matrix(&t[2], d->ids, i32, rows, TOP),
        .alternative_logprobs = matrix(&t[3], d->logprobs, f32, rows, TOP),
        .logits = matrix(&t[4], x, type, rows, VOCAB),
        .tokens = vector(&t[5], tokens, i32, rows),
    };
    return alea_logprobs_run(op, &tensors, NULL, d->error) >= 0;
}

static bool run_logprobs(alea_bench_data *d) {
    return logprobs_of(d, d->report, d->row, f32, &d->row_token, 1);
}

static bool run_logprobs_flat(alea_bench_data *d) {
    return logprobs_of(d, d->report, d->flat, f32, &d->flat_token, 1);
}

static bool run_logprobs_bf16(alea_bench_data *d) {
    return logprobs_of(d, d->report, d->brain, bf16, &d->row_token, 1);
}

static bool run_logprobs_rows(alea_bench_data *d) {
    return logprobs_of(d, d->report, d->rows, f32, d->tokens, ROWS);
}

static bool run_logprobs_wide(alea_bench_data *d) {
    return logprobs_of(d, d->report_wide, d->rows, f32, d->tokens, ROWS);
}

static bool select_of(alea_bench_data *d, alea_topk_select *op, const float *x, int64_t rows,
                      int64_t n, int64_t k) {
    tensor t[4];
    for (int64_t i = 0; i < rows; i++)
        d->ends[i] = (int32_t)n;
    return alea_topk_select_run(op, wrap(&t[0], d->indices, i32, 4, rows, 1, 1, k),
                                wrap(&t[1], x, f32, 4, rows, 1, n, 1),
                                matrix(&t[2], d->starts, i32, rows, 1),
                                matrix(&t[3], d->ends, i32, rows, 1), NULL, d->error) >= 0;
}

static bool run_select_one(alea_bench_data *d) {
    return select_of(d, d->select_one, d->row, 1, VOCAB, TOP);
}

static bool run_select_many(alea_bench_data *d) {
    return select_of(d, d->select_many, d->scores, ROWS, WINDOW, SLOTS);
}

static bool topk_of(alea_bench_data *d, const void *x, DLDataType type) {
    tensor t[3];
    int32_t k = BEST;
    return alea_topk_mask_run(d->topk, matrix(&t[0], d->out, type, 1, VOCAB),
                              matrix(&t[1], x, type, 1, VOCAB), vector(&t[2], &k, i32, 1), NULL,
                              d->error) >= 0;
}

static bool run_topk(alea_bench_data *d) {
    return topk_of(d, d->row, f32);
}

static bool run_topk_f16(alea_bench_data *d) {
    return topk_of(d, d->half, f16);
}

static bool run_minp(alea_bench_data *d) {
    tensor t[3];
    float min_p = 0.05f;
    return alea_minp_mask_run(d->minp, matrix(&t[0], d->out, f32, 1, VOCAB),
                              matrix(&t[1], d->row, f32, 1, VOCAB), vector(&t[2], &min_p, f32, 1),
                              NULL, d->error) >= 0;
}

static bool topp_of(alea_bench_data *d, const float *x) {
    tensor t[3];
    float p = 0.9f;
    return alea_topp_mask_run(d->topp, matrix(&t[0], d->out, f32, 1, VOCAB),
                              matrix(&t[1], x, f32, 1, VOCAB), vector(&t[2], &p, f32, 1), NULL,
                              d->error) >= 0;
}

static bool run_topp(alea_bench_data *d) {
    return topp_of(d, d->row);
}

static bool run_topp_flat(alea_bench_data *d) {
    return topp_of(d, d->flat);
}

static bool run_topk_topp(alea_bench_data *d) {
    tensor t[4];
    int32_t k = BEST;
    float p = 0.9f;
    return alea_topk_topp_mask_run(d->topk_topp, matrix(&t[0], d->out, f32, 1, VOCAB),
                                   matrix(&t[1], d->row, f32, 1, VOCAB), vector(&t[2], &k, i32, 1),
                                   vector(&t[3], &p, f32, 1), NULL, d->error) >= 0;
}

static bool run_sample_probs(alea_bench_data *d) {
    tensor t[4];
    int64_t seed = 1, offset = 0;
    return alea_sample_probs_run(d->sample_probs, vector(&t[0], d->ranks, i32, 1),
                                 matrix(&t[1], d->probs, f32, 1, VOCAB),
                                 vector(&t[2], &seed, i64, 1), vector(&t[3], &offset, i64, 1), NULL,
                                 NULL, d->error) >= 0;
}

static bool run_chain(alea_bench_data *d) {
    tensor t[7];
    int64_t seed = 1, offset = 0;
    return alea_chain_sample_run(
               d->chain, matrix(&t[0], d->ids, i32, 1, DRAFTS + 1), vector(&t[1], d->ranks, i32, 1),
               wrap(&t[2], d->drafts, f32, 3, 1, DRAFTS, VOCAB, 0),
               matrix(&t[3], d->draft_tokens, i32, 1, DRAFTS),
               wrap(&t[4], d->probs, f32, 3, 1, DRAFTS + 1, VOCAB, 0), vector(&t[5], &seed, i64, 1),
               vector(&t[6], &offset, i64, 1), NULL, NULL, d->error) >= 0;
}

static bool run_sample_logits(alea_bench_data *d) {
    tensor t[7];
    int64_t seed = 1, offset = 0;
    int32_t k = BEST;
    float p = 0.95f, temperature = 0.8f;
    const alea_sample_logits_tensors tensors = {
        .struct_bytes = sizeof tensors,
        .tokens = vector(&t[0], d->ranks, i32, 1),
        .logits = matrix(&t[1], d->row, f32, 1, VOCAB),
        .temperature = vector(&t[2], &temperature, f32, 1),
        .top_k = vector(&t[3], &k, i32, 1),
        .top_p = vector(&t[4], &p, f32, 1),
        .seed = vector(&t[5], &seed, i64, 1),
        .offset = vector(&t[6], &offset, i64, 1),
    };
    return alea_sample_logits_run(d->sample_logits, &tensors, NULL, d->error) >= 0;
}

/* ---- floors and peers ---- */

static bool scan(alea_bench_data *d, const void *x, int64_t bytes) {
    d->sink = alea__bench_scan(x, bytes / (int64_t)sizeof(float));
    return true;
}

static bool scan_row(alea_bench_data *d) {
    return scan(d, d->row, VOCAB * 4);
}

static bool scan_flat(alea_bench_data *d) {
    return scan(d, d->flat, VOCAB * 4);
}

/* Half the bytes of a float32 row, whatever they mean. */
static bool scan_half(alea_bench_data *d) {
    return scan(d, d->row, VOCAB * 2);
}

static bool scan_rows(alea_bench_data *d) {
    return scan(d, d->rows, (int64_t)ROWS * VOCAB * 4);
}

static bool scan_scores(alea_bench_data *d) {
    return scan(d, d->scores, (int64_t)ROWS * WINDOW * 4);
}

static bool scan_probs(alea_bench_data *d) {
    return scan(d, d->probs, VOCAB * 4);
}

static bool scan_chain(alea_bench_data *d) { /* the rows whose values must be summed or compared */
    return scan(d, d->probs, 2 * VOCAB * 4);
}

static bool copy_row(alea_bench_data *d) {
    memcpy(d->out, d->row, (size_t)VOCAB * sizeof(float));
    return true;
}

static bool llama_server(alea_bench_data *d) {
    d->sink = alea__peer_server_logprobs(d->llama, d->row, VOCAB, TOP);
    return true;
}

static bool llama_server_flat(alea_bench_data *d) {
    d->sink = alea__peer_server_logprobs(d->llama, d->flat, VOCAB, TOP);
    return true;
}

static bool llama_server_rows(alea_bench_data *d) {
    for (int64_t i = 0; i < ROWS; i++)
        d->sink = alea__peer_server_logprobs(d->llama, d->rows + i * VOCAB, VOCAB, TOP);
    return true;
}

static bool llama_filter(alea_bench_data *d, const float *x, int32_t k, float p, float min_p) {
    d->sink = alea__peer_filter(d->llama, x, VOCAB, k, p, min_p);
    return true;
}

static bool llama_topk(alea_bench_data *d) {
    return llama_filter(d, d->row, BEST, 1.0f, 0.0f);
}

static bool llama_best(alea_bench_data *d) {
    return llama_filter(d, d->row, TOP, 1.0f, 0.0f);
}

static bool llama_minp(alea_bench_data *d) {
    return llama_filter(d, d->row, 0, 1.0f, 0.05f);
}

static bool llama_topp(alea_bench_data *d) {
    return llama_filter(d, d->row, 0, 0.9f, 0.0f);
}

static bool llama_topp_flat(alea_bench_data *d) {
    return llama_filter(d, d->flat, 0, 0.9f, 0.0f);
}

static bool llama_topk_topp(alea_bench_data *d) {
    return llama_filter(d, d->row, BEST, 0.9f, 0.0f);
}

static bool llama_sample(alea_bench_data *d) {
    d->sink = alea__peer_sample(d->llama, d->row, VOCAB, BEST, 0.95f, 0.8f);
    return true;
}

/* ---- what a peer found, for only the time of the same work is worth a look ---- */

static bool server_agrees(alea_bench_data *d) { /* float32 sums of it are off by up to 1e-3 */
    return fabsf(d->logprobs[TOP - 1] - d->sink) < 2e-3f;
}

static bool server_rows_agree(alea_bench_data *d) {
    return fabsf(d->logprobs[ROWS * TOP - 1] - d->sink) < 2e-3f;
}

static bool slots_agree(alea_bench_data *d) {
    int32_t used = 0;
    for (int32_t i = 0; i < TOP; i++)
        used += d->indices[i] < VOCAB;
    return (float)used == d->sink;
}

static bool kept_agrees(alea_bench_data *d) { /* sums in float32 move the edge a little */
    const float *out = d->out;
    int32_t kept = 0;
    for (int32_t i = 0; i < VOCAB; i++)
        kept += out[i] > -INFINITY;
    return fabsf((float)kept - d->sink) <= 1.0f + (float)kept / 100;
}

static bool token_agrees(alea_bench_data *d) { /* both drew one of the best */
    const float drawn = d->row[d->ranks[0]], theirs = d->row[(int32_t)d->sink];
    int32_t better = 0, better_than_theirs = 0;
    for (int32_t i = 0; i < VOCAB; i++) {
        better += d->row[i] > drawn;
        better_than_theirs += d->row[i] > theirs;
    }
    return better < BEST && better_than_theirs < BEST;
}

#define ROW_BYTES ((int64_t)VOCAB * 4)

const alea_bench_case alea__bench_cases[] = {
    {"logprobs top 20 1x128256 f32",
     run_logprobs,
     scan_row,
     ROW_BYTES,
     false,
     {{"llama-server", llama_server, server_agrees}}},
    {"logprobs top 20 1x128256 f32 normal",
     run_logprobs_flat,
     scan_flat,
     ROW_BYTES,
     false,
     {{"llama-server", llama_server_flat, server_agrees}}},
    {"logprobs top 20 1x128256 bf16",
     run_logprobs_bf16,
     scan_half,
     ROW_BYTES / 2,
     false,
     {{NULL, NULL, NULL}}},
    {"logprobs top 20 64x128256 f32",
     run_logprobs_rows,
     scan_rows,
     ROWS *ROW_BYTES,
     false,
     {{"llama-server", llama_server_rows, server_rows_agree}}},
    {"logprobs top 20 64x128256 f32 wide",
     run_logprobs_wide,
     scan_rows,
     ROWS *ROW_BYTES,
     true,
     {{NULL, NULL, NULL}}},
    {"topk_select k=20 1x128256 f32",
     run_select_one,
     scan_row,
     ROW_BYTES,
     false,
     {{"llama top_k", llama_best, slots_agree}}},
    {"topk_select k=2048 64x65536 f32",
     run_select_many,
     scan_scores,
     (int64_t)ROWS *WINDOW * 4,
     false,
     {{NULL, NULL, NULL}}},
    {"copy 1x128256 f32", copy_row, scan_row, ROW_BYTES, false, {{NULL, NULL, NULL}}},
    {"topk_mask k=50 1x128256 f32",
     run_topk,
     scan_row,
     ROW_BYTES,
     false,
     {{"llama top_k", llama_topk, kept_agrees}}},
    {"topk_mask k=50 1x128256 f16",
     run_topk_f16,
     scan_half,
     ROW_BYTES / 2,
     false,
     {{NULL, NULL, NULL}}},
    {"minp_mask 0.05 1x128256 f32",
     run_minp,
     scan_row,
     ROW_BYTES,
     false,
     {{"llama min_p", llama_minp, kept_agrees}}},
    {"topp_mask 0.9 1x128256 f32",
     run_topp,
     scan_row,
     ROW_BYTES,
     false,
     {{"llama top_k(0)+top_p", llama_topp, kept_agrees}}},
    {"topp_mask 0.9 1x128256 f32 normal",
     run_topp_flat,
     scan_flat,
     ROW_BYTES,
     false,
     {{"llama top_k(0)+top_p", llama_topp_flat, kept_agrees}}},
    {"topk_topp_mask k=50 0.9 1x128256 f32",
     run_topk_topp,
     scan_row,
     ROW_BYTES,
     false,
     {{"llama top_k+top_p", llama_topk_topp, kept_agrees},
      {"llama top_k(0)+top_p", llama_topp, NULL}}},
    {"sample_probs 1x128256 f32",
     run_sample_probs,
     scan_probs,
     ROW_BYTES,
     false,
     {{NULL, NULL, NULL}}},
    {"chain_sample N=4 1x128256 f32",
     run_chain,
     scan_chain,
     2 * ROW_BYTES,
     false,
     {{NULL, NULL, NULL}}},
    {"sample_logits k=50 0.95 1x128256 f32",
     run_sample_logits,
     scan_row,
     ROW_BYTES,
     false,
     {{"llama chain", llama_sample, token_agrees}}},
};
const int32_t alea__n_bench_cases = sizeof alea__bench_cases / sizeof *alea__bench_cases;

/* ---- making and ending ---- */

static void *take(bool *good, size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (memory) memset(memory, 0, bytes);
    *good = *good && memory;
    return memory;
}

static bool take_memory(alea_bench_data *d) {
    const size_t row = (size_t)VOCAB * sizeof(float);
    bool good = true;
    d->row = take(&good, row);
    d->flat = take(&good, row);
    d->rows = take(&good, ROWS * row);
    d->scores = take(&good, (size_t)ROWS * WINDOW * sizeof(float));
    d->probs = take(&good, (DRAFTS + 1) * row);
    d->drafts = take(&good, DRAFTS * row);
    d->half = take(&good, row / 2);
    d->brain = take(&good, row / 2);
    d->out = take(&good, row);
    d->indices = take(&good, (size_t)ROWS * SLOTS * sizeof(int32_t));
    d->llama = alea__peers_create(VOCAB);
    return good && d->llama;
}

static alea_status make_operators(alea_bench_data *d, int32_t threads) {
    alea_op_config config = {.struct_bytes = sizeof config, .threads = 1, .max_vocab = VOCAB};
    alea_op_config top = config, many = config;
    top.topk = TOP;
    many.topk = SLOTS;
    many.max_vocab = WINDOW;
    alea_op_config wide = top;
    wide.threads = threads;
    alea_error *e = d->error;
    alea_status status = alea_logprobs_create(&top, &d->report, e);
    if (status >= 0) status = alea_logprobs_create(&wide, &d->report_wide, e);
    if (status >= 0) status = alea_topk_select_create(&top, &d->select_one, e);
    if (status >= 0) status = alea_topk_select_create(&many, &d->select_many, e);
    if (status >= 0) status = alea_topk_mask_create(&config, &d->topk, e);
    if (status >= 0) status = alea_minp_mask_create(&config, &d->minp, e);
    if (status >= 0) status = alea_topp_mask_create(&config, &d->topp, e);
    if (status >= 0) status = alea_topk_topp_mask_create(&config, &d->topk_topp, e);
    if (status >= 0) status = alea_sample_probs_create(&config, &d->sample_probs, e);
    if (status >= 0) status = alea_chain_sample_create(&config, &d->chain, e);
    if (status >= 0) status = alea_sample_logits_create(&config, &d->sample_logits, e);
    return status;
}

alea_bench_data *alea__bench_data_create(int32_t threads, alea_error *error) {
    alea_bench_data *d = calloc(1, sizeof *d);
    if (d) d->error = error;
    if (!d || !take_memory(d)) {
        (void)alea_error_set(error, ALEA_ENOMEM, "out of memory");
    } else if (make_operators(d, threads) >= 0) {
        fill(d);
        return d;
    }
    alea__bench_data_destroy(d);
    return NULL;
}

void alea__bench_data_destroy(alea_bench_data *d) {
    if (!d) return;
    alea_logprobs_destroy(d->report);
    alea_logprobs_destroy(d->report_wide);
    alea_topk_select_destroy(d->select_one);
    alea_topk_select_destroy(d->select_many);
    alea_topk_mask_destroy(d->topk);
    alea_minp_mask_destroy(d->minp);
    alea_topp_mask_destroy(d->topp);
    alea_topk_topp_mask_destroy(d->topk_topp);
    alea_sample_probs_destroy(d->sample_probs);
    alea_chain_sample_destroy(d->chain);
    alea_sample_logits_destroy(d->sample_logits);
    alea__peers_destroy(d->llama);
    void *const memory[] = {d->row,    d->flat, d->rows,  d->scores, d->probs,
                            d->drafts, d->half, d->brain, d->out,    d->indices};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        free(memory[i]);
    free(d);
}
