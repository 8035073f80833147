/* The public operators: each puts its arguments in the order of rules.c and hands them on. */
#include "ops/check.h"
#include "ops/target.h"

/* A public type is an operator under a name that the compiler can tell from the others. */
#define OPERATOR(type, kind)                                                                       \
    alea_status type##_create(const alea_op_config *config, type **op, alea_error *error) {        \
        return alea__op_create(kind, config, (alea_op **)op, error);                               \
    }                                                                                              \
    void type##_destroy(type *op) {                                                                \
        alea__op_destroy((alea_op *)op);                                                           \
    }

OPERATOR(alea_topk_select, ALEA_OP_TOPK_SELECT)
OPERATOR(alea_topk_mask, ALEA_OP_TOPK_MASK)
OPERATOR(alea_minp_mask, ALEA_OP_MINP_MASK)
OPERATOR(alea_topp_mask, ALEA_OP_TOPP_MASK)
OPERATOR(alea_topk_topp_mask, ALEA_OP_TOPK_TOPP_MASK)
OPERATOR(alea_sample_probs, ALEA_OP_SAMPLE_PROBS)
OPERATOR(alea_chain_sample, ALEA_OP_CHAIN_SAMPLE)
OPERATOR(alea_logprobs, ALEA_OP_LOGPROBS)
OPERATOR(alea_sample_logits, ALEA_OP_SAMPLE_LOGITS)
OPERATOR(alea_chain_logits, ALEA_OP_CHAIN_LOGITS)

#define RUN(...) alea__op_run((alea_op *)op, (const DLTensor *[]){__VA_ARGS__}, stream, error)

alea_status alea_topk_select_run(alea_topk_select *op, DLTensor *indices, const DLTensor *scores,
                                 const DLTensor *starts, const DLTensor *ends, void *stream,
                                 alea_error *error) {
    return RUN(indices, scores, starts, ends);
}

alea_status alea_topk_mask_run(alea_topk_mask *op, DLTensor *masked, const DLTensor *logits,
                               const DLTensor *k, void *stream, alea_error *error) {
    return RUN(masked, logits, k);
}

alea_status alea_minp_mask_run(alea_minp_mask *op, DLTensor *masked, const DLTensor *logits,
                               const DLTensor *min_p, void *stream, alea_error *error) {
    return RUN(masked, logits, min_p);
}

alea_status alea_topp_mask_run(alea_topp_mask *op, DLTensor *masked, const DLTensor *logits,
                               const DLTensor *p, void *stream, alea_error *error) {
    return RUN(masked, logits, p);
}

alea_status alea_topk_topp_mask_run(alea_topk_topp_mask *op, DLTensor *masked,
                                    const DLTensor *logits, const DLTensor *k, const DLTensor *p,
                                    void *stream, alea_error *error) {
    return RUN(masked, logits, k, p);
}

alea_status alea_sample_probs_run(alea_sample_probs *op, DLTensor *tokens, const DLTensor *probs,
                                  const DLTensor *seed, const DLTensor *offset,
                                  const DLTensor *row_words, void *stream, alea_error *error) {
    return RUN(tokens, probs, seed, offset, row_words);
}

alea_status alea_chain_sample_run(alea_chain_sample *op, DLTensor *tokens, DLTensor *accepted,
                                  const DLTensor *draft_probs, const DLTensor *draft_tokens,
                                  const DLTensor *target_probs, const DLTensor *seed,
                                  const DLTensor *offset, const DLTensor *row_words, void *stream,
                                  alea_error *error) {
    return RUN(tokens, accepted, draft_probs, draft_tokens, target_probs, seed, offset, row_words);
}

static alea_status check_struct(uint32_t given, size_t expected, alea_error *error) {
    if (given == expected) return ALEA_OK;
    return alea_error_set(error, ALEA_EINVAL, "tensors.struct_bytes is %u; this library's is %zu",
                          given, expected);
}

alea_status alea_logprobs_run(alea_logprobs *op, const alea_logprobs_tensors *tensors, void *stream,
                              alea_error *error) {
    if (!tensors) return alea_error_set(error, ALEA_EINVAL, "tensors is NULL");
    const alea_status status = check_struct(tensors->struct_bytes, sizeof *tensors, error);
    if (status < 0) return status;
    const alea_logprobs_tensors *t = tensors;
    return RUN(t->lse, t->logprobs, t->ranks, t->alternatives, t->alternative_logprobs, t->entropy,
               t->verdicts, t->logits, t->tokens, t->given);
}

alea_status alea_sample_logits_run(alea_sample_logits *op,
                                   const alea_sample_logits_tensors *tensors, void *stream,
                                   alea_error *error) {
    if (!tensors) return alea_error_set(error, ALEA_EINVAL, "tensors is NULL");
    const alea_status status = check_struct(tensors->struct_bytes, sizeof *tensors, error);
    if (status < 0) return status;
    const alea_sample_logits_tensors *t = tensors;
    return RUN(t->tokens, t->logprobs, t->sampled_logprobs, t->kept_mass, t->verdicts, t->lse,
               t->ranks, t->alternatives, t->alternative_logprobs, t->logits, t->temperature,
               t->top_k, t->top_p, t->min_p, t->seed, t->offset, t->row_words);
}

alea_status alea_chain_logits_run(alea_chain_logits *op, const alea_chain_logits_tensors *tensors,
                                  void *stream, alea_error *error) {
    if (!tensors) return alea_error_set(error, ALEA_EINVAL, "tensors is NULL");
    const alea_status status = check_struct(tensors->struct_bytes, sizeof *tensors, error);
    if (status < 0) return status;
    const alea_chain_logits_tensors *t = tensors;
    return RUN(t->tokens, t->accepted, t->verdicts, t->draft_logits, t->draft_tokens,
               t->target_logits, t->temperature, t->seed, t->offset, t->row_words);
}
