#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "cuda/cuda_copy.h"
#include "ops/rig.h"
#include "support/fill.h"

static const DLDataType dtypes[] = {
    [RIG_F16] = {kDLFloat, 16, 1}, [RIG_BF16] = {kDLBfloat, 16, 1}, [RIG_F32] = {kDLFloat, 32, 1},
    [RIG_F64] = {kDLFloat, 64, 1}, [RIG_I32] = {kDLInt, 32, 1},     [RIG_I64] = {kDLInt, 64, 1}};

size_t rig_bytes(rig_dtype dtype) {
    return dtypes[dtype].bits / 8u;
}

DLTensor *rig_4d(rig_tensor *t, void *data, rig_dtype dtype, int64_t a, int64_t b, int64_t c,
                 int64_t d) {
    *t =
        (rig_tensor){.dl = {.data = data, .device = {kDLCPU, 0}, .ndim = 4, .dtype = dtypes[dtype]},
                     .shape = {a, b, c, d}};
    t->dl.shape = t->shape;
    return &t->dl;
}

DLTensor *rig_3d(rig_tensor *t, void *data, rig_dtype dtype, int64_t a, int64_t b, int64_t c) {
    rig_4d(t, data, dtype, a, b, c, 0)->ndim = 3;
    return &t->dl;
}

DLTensor *rig_2d(rig_tensor *t, void *data, rig_dtype dtype, int64_t rows, int64_t columns) {
    rig_4d(t, data, dtype, rows, columns, 0, 0)->ndim = 2;
    return &t->dl;
}

DLTensor *rig_1d(rig_tensor *t, void *data, rig_dtype dtype, int64_t n) {
    rig_4d(t, data, dtype, n, 0, 0, 0)->ndim = 1;
    return &t->dl;
}

void *rig_alloc(size_t bytes) {
    void *data = malloc(bytes ? bytes : 1);
    if (!data) abort();
    return data;
}

void rig_narrow(void *out, float *values, int64_t n, rig_dtype dtype) {
    for (int64_t i = 0; i < n; i++) {
        if (dtype == RIG_F32) {
            memcpy((float *)out + i, values + i, sizeof(float));
        } else {
            uint16_t *half = (uint16_t *)out + i;
            *half = dtype == RIG_F16 ? alea__f16_narrow(values[i]) : alea__bf16_narrow(values[i]);
            values[i] = rig_value(out, i, dtype);
        }
    }
}

float rig_value(const void *data, int64_t i, rig_dtype dtype) {
    if (dtype == RIG_F32) return ((const float *)data)[i];
    const uint16_t half = ((const uint16_t *)data)[i];
    return dtype == RIG_F16 ? alea__f16_widen(half) : alea__bf16_widen(half);
}

alea_op_config rig_config(rig_how how, int32_t vocab, int32_t topk) {
    return (alea_op_config){.struct_bytes = sizeof(alea_op_config),
                            .flags = how.flags,
                            .target = how.target ? how.target : cuda_copy_wanted(),
                            .threads = how.threads ? how.threads : 1,
                            .max_vocab = vocab > 0 ? vocab : 1,
                            .topk = topk};
}

static void must(alea_status status, const alea_error *error) {
    if (status < 0) fail_msg("%s: %s", alea_status_text(status), error->message);
}

/* Create, run, destroy; CALL is the run with `op` and `error`. */
#define WITH(type, config, CALL)                                                                   \
    do {                                                                                           \
        type *op = NULL;                                                                           \
        alea_error error = {0};                                                                    \
        const alea_op_config made = config;                                                        \
        must(type##_create(&made, &op, &error), &error);                                           \
        must(CALL, &error);                                                                        \
        type##_destroy(op);                                                                        \
    } while (0)

void rig_mask(alea_op_kind kind, rig_how how, void *out, void *in, rig_dtype dtype, int64_t rows,
              int32_t vocab, const int32_t *k, const float *p) {
    rig_tensor a, b, c, d;
    DLTensor *masked = rig_2d(&a, out, dtype, rows, vocab);
    DLTensor *logits = rig_2d(&b, in, dtype, rows, vocab);
    DLTensor *ks = rig_1d(&c, (void *)(uintptr_t)k, RIG_I32, rows);
    DLTensor *ps = rig_1d(&d, (void *)(uintptr_t)p, RIG_F32, rows);
    const alea_op_config config = rig_config(how, vocab, 0);
    switch (kind) {
    case ALEA_OP_TOPK_MASK:
        WITH(alea_topk_mask, config, alea_topk_mask_run(op, masked, logits, ks, NULL, &error));
        break;
    case ALEA_OP_MINP_MASK:
        WITH(alea_minp_mask, config, alea_minp_mask_run(op, masked, logits, ps, NULL, &error));
        break;
    case ALEA_OP_TOPP_MASK:
        WITH(alea_topp_mask, config, alea_topp_mask_run(op, masked, logits, ps, NULL, &error));
        break;
    default:
        WITH(alea_topk_topp_mask, config,
             alea_topk_topp_mask_run(op, masked, logits, ks, ps, NULL, &error));
    }
}

void rig_sample_probs(rig_how how, int32_t *tokens, const float *probs, int64_t rows, int32_t vocab,
                      const int64_t *seed, const int64_t *offset, int64_t n_seeds) {
    rig_tensor a, b, c, d;
    WITH(alea_sample_probs, rig_config(how, vocab, 0),
         alea_sample_probs_run(op, rig_1d(&a, tokens, RIG_I32, rows),
                               rig_2d(&b, (void *)(uintptr_t)probs, RIG_F32, rows, vocab),
                               rig_1d(&c, (void *)(uintptr_t)seed, RIG_I64, n_seeds),
                               rig_1d(&d, (void *)(uintptr_t)offset, RIG_I64, n_seeds), NULL, NULL,
                               &error));
}

void rig_chain(rig_how how, int32_t *tokens, int32_t *accepted, const float *draft,
               const int32_t *ids, const float *target, int64_t rows, int32_t n_drafts,
               int32_t vocab, int64_t seed, int64_t offset) {
    rig_tensor a, b, c, d, e, f, g;
    WITH(alea_chain_sample, rig_config(how, vocab, 0),
         alea_chain_sample_run(
             op, rig_2d(&a, tokens, RIG_I32, rows, n_drafts + 1),
             rig_1d(&b, accepted, RIG_I32, rows),
             rig_3d(&c, (void *)(uintptr_t)draft, RIG_F32, rows, n_drafts, vocab),
             rig_2d(&d, (void *)(uintptr_t)ids, RIG_I32, rows, n_drafts),
             rig_3d(&e, (void *)(uintptr_t)target, RIG_F32, rows, n_drafts + 1, vocab),
             rig_1d(&f, &seed, RIG_I64, 1), rig_1d(&g, &offset, RIG_I64, 1), NULL, NULL, &error));
}

void rig_chain_logits(rig_how how, int32_t *tokens, int32_t *accepted, int32_t *verdicts,
                      rig_chain_logits_args args, rig_dtype dtype, int64_t rows, int32_t n_drafts,
                      int32_t vocab) {
    rig_tensor t[9];
    const alea_chain_logits_tensors tensors = {
        .struct_bytes = sizeof tensors,
        .tokens = rig_2d(&t[0], tokens, RIG_I32, rows, n_drafts + 1),
        .accepted = rig_1d(&t[1], accepted, RIG_I32, rows),
        .verdicts = verdicts ? rig_1d(&t[2], verdicts, RIG_I32, rows) : NULL,
        .draft_logits = args.draft ? rig_3d(&t[3], args.draft, dtype, rows, n_drafts, vocab) : NULL,
        .draft_tokens = rig_2d(&t[4], args.ids, RIG_I32, rows, n_drafts),
        .target_logits = rig_3d(&t[5], args.target, dtype, rows, n_drafts + 1, vocab),
        .temperature = args.temperature ? rig_1d(&t[6], args.temperature, RIG_F32, rows) : NULL,
        .seed = rig_1d(&t[7], args.seed, RIG_I64, args.n_seeds),
        .offset = rig_1d(&t[8], args.offset, RIG_I64, args.n_seeds)};
    WITH(alea_chain_logits, rig_config(how, vocab, 0),
         alea_chain_logits_run(op, &tensors, NULL, &error));
}

static int by_position(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

void rig_select(rig_how how, int32_t *indices, const float *scores, const int32_t *starts,
                const int32_t *ends, int64_t batch, int64_t queries, int32_t length, int64_t groups,
                int32_t topk) {
    rig_tensor a, b, c, d;
    WITH(alea_topk_select, rig_config(how, length, topk),
         alea_topk_select_run(
             op, rig_4d(&a, indices, RIG_I32, batch, queries, groups, topk),
             rig_4d(&b, (void *)(uintptr_t)scores, RIG_F32, batch, queries, length, groups),
             rig_2d(&c, (void *)(uintptr_t)starts, RIG_I32, batch, queries),
             rig_2d(&d, (void *)(uintptr_t)ends, RIG_I32, batch, queries), NULL, &error));
    /* A set, whose order only the CPU keeps: tests that compare sets find them sorted. */
    for (int64_t row = 0; cuda_copy_wanted() && row < batch * queries * groups; row++)
        qsort(indices + row * topk, (size_t)topk, sizeof *indices, by_position);
}

void rig_logprobs(rig_how how, rig_report out, void *logits, rig_dtype dtype, int64_t rows,
                  int32_t vocab, int32_t k, int32_t *tokens, int32_t *given, int32_t n_given) {
    rig_tensor t[10];
    const int64_t n = given ? n_given : k;
    const alea_logprobs_tensors tensors = {
        .struct_bytes = sizeof tensors,
        .lse = out.lse ? rig_1d(&t[0], out.lse, RIG_F64, rows) : NULL,
        .logprobs = out.logprobs ? rig_1d(&t[1], out.logprobs, RIG_F32, rows) : NULL,
        .ranks = out.ranks ? rig_1d(&t[2], out.ranks, RIG_I32, rows) : NULL,
        .alternatives = out.ids ? rig_2d(&t[3], out.ids, RIG_I32, rows, n) : NULL,
        .alternative_logprobs =
            out.id_logprobs ? rig_2d(&t[4], out.id_logprobs, RIG_F32, rows, n) : NULL,
        .entropy = out.entropy ? rig_1d(&t[5], out.entropy, RIG_F32, rows) : NULL,
        .verdicts = out.verdicts ? rig_1d(&t[6], out.verdicts, RIG_I32, rows) : NULL,
        .logits = rig_2d(&t[7], logits, dtype, rows, vocab),
        .tokens = tokens ? rig_1d(&t[8], tokens, RIG_I32, rows) : NULL,
        .given = given ? rig_2d(&t[9], given, RIG_I32, rows, n_given) : NULL};
    WITH(alea_logprobs, rig_config(how, vocab, k), alea_logprobs_run(op, &tensors, NULL, &error));
}

void rig_sample_logits(rig_how how, rig_choice out, void *logits, rig_dtype dtype, int64_t rows,
                       int32_t vocab, rig_params params) {
    rig_tensor t[16];
    const alea_sample_logits_tensors tensors = {
        .struct_bytes = sizeof tensors,
        .tokens = out.tokens ? rig_1d(&t[0], out.tokens, RIG_I32, rows) : NULL,
        .logprobs = out.logprobs ? rig_1d(&t[1], out.logprobs, RIG_F32, rows) : NULL,
        .sampled_logprobs = out.sampled ? rig_1d(&t[2], out.sampled, RIG_F32, rows) : NULL,
        .kept_mass = out.kept ? rig_1d(&t[3], out.kept, RIG_F32, rows) : NULL,
        .verdicts = out.verdicts ? rig_1d(&t[4], out.verdicts, RIG_I32, rows) : NULL,
        .lse = out.lse ? rig_1d(&t[12], out.lse, RIG_F64, rows) : NULL,
        .ranks = out.ranks ? rig_1d(&t[13], out.ranks, RIG_I32, rows) : NULL,
        .alternatives = out.ids ? rig_2d(&t[14], out.ids, RIG_I32, rows, out.k) : NULL,
        .alternative_logprobs =
            out.id_logprobs ? rig_2d(&t[15], out.id_logprobs, RIG_F32, rows, out.k) : NULL,
        .logits = rig_2d(&t[5], logits, dtype, rows, vocab),
        .temperature = params.temperature ? rig_1d(&t[6], params.temperature, RIG_F32, rows) : NULL,
        .top_k = params.top_k ? rig_1d(&t[7], params.top_k, RIG_I32, rows) : NULL,
        .top_p = params.top_p ? rig_1d(&t[8], params.top_p, RIG_F32, rows) : NULL,
        .min_p = params.min_p ? rig_1d(&t[9], params.min_p, RIG_F32, rows) : NULL,
        .seed = rig_1d(&t[10], params.seed, RIG_I64, params.n_seeds),
        .offset = rig_1d(&t[11], params.offset, RIG_I64, params.n_seeds)};
    WITH(alea_sample_logits, rig_config(how, vocab, out.k),
         alea_sample_logits_run(op, &tensors, NULL, &error));
}

void rig_normal(float *x, int64_t n, uint64_t seed) {
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)test_normal(&seed);
}

void rig_random_probs(float *x, int64_t rows, int32_t vocab, uint64_t seed) {
    for (int64_t r = 0; r < rows; r++) {
        float *row = x + r * vocab;
        double sum = 0;
        for (int32_t i = 0; i < vocab; i++) {
            row[i] = (float)exp(test_normal(&seed));
            sum += row[i];
        }
        for (int32_t i = 0; i < vocab; i++)
            row[i] = (float)(row[i] / sum);
    }
}
