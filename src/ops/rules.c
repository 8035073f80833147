/* What each operator takes, in the order of its run function's arguments or struct's members. */
#include "ops/check.h"

#define F32 ALEA_BIT_F32
#define F64 ALEA_BIT_F64
#define I32 ALEA_BIT_I32
#define I64 ALEA_BIT_I64
#define LOGITS ALEA_BIT_LOGITS
#define OUT ALEA_ARG_OUT
#define MAYBE ALEA_ARG_OPTIONAL
#define FREE ALEA_ARG_ANY_STRIDE
#define MASKED (ALEA_ARG_OUT | ALEA_ARG_MASKED)

static const alea_op_argument topk_select[] = {
    {"indices", "bsgt", I32, OUT},
    {"scores", "bsvg", F32, FREE},
    {"starts", "bs", I32, FREE},
    {"ends", "bs", I32, FREE},
};

static const alea_op_argument topk_mask[] = {
    {"masked", "rv", LOGITS, MASKED},
    {"logits", "rv", LOGITS, 0},
    {"k", "r", I32, FREE},
};

static const alea_op_argument minp_mask[] = {
    {"masked", "rv", LOGITS, MASKED},
    {"logits", "rv", LOGITS, 0},
    {"min_p", "r", F32, FREE},
};

static const alea_op_argument topp_mask[] = {
    {"masked", "rv", LOGITS, MASKED},
    {"logits", "rv", LOGITS, 0},
    {"p", "r", F32, FREE},
};

static const alea_op_argument topk_topp_mask[] = {
    {"masked", "rv", LOGITS, MASKED},
    {"logits", "rv", LOGITS, 0},
    {"k", "r", I32, FREE},
    {"p", "r", F32, FREE},
};

static const alea_op_argument sample_probs[] = {
    {"tokens", "r", I32, OUT},
    {"probs", "rv", F32, 0},
    {"seed", "1", I64, FREE},
    {"offset", "1", I64, FREE},
    {"row_words", "r", I32, FREE | MAYBE},
};

static const alea_op_argument chain_sample[] = {
    {"tokens", "rm", I32, OUT},      {"accepted", "r", I32, OUT},
    {"draft_probs", "rnv", F32, 0},  {"draft_tokens", "rn", I32, 0},
    {"target_probs", "rmv", F32, 0}, {"seed", "1", I64, FREE},
    {"offset", "1", I64, FREE},      {"row_words", "r", I32, FREE | MAYBE},
};

static const alea_op_argument logprobs[] = {
    {"lse", "r", F64, OUT | MAYBE},
    {"logprobs", "r", F32, OUT | MAYBE},
    {"ranks", "r", I32, OUT | MAYBE},
    {"alternatives", "rt", I32, OUT | MAYBE},
    {"alternative_logprobs", "rt", F32, OUT | MAYBE},
    {"entropy", "r", F32, OUT | MAYBE},
    {"verdicts", "r", I32, OUT | MAYBE},
    {"logits", "rv", LOGITS, 0},
    {"tokens", "r", I32, FREE | MAYBE},
    {"given", "rt", I32, MAYBE},
};

static const alea_op_argument sample_logits[] = {
    {"tokens", "r", I32, OUT | MAYBE},
    {"logprobs", "r", F32, OUT | MAYBE},
    {"sampled_logprobs", "r", F32, OUT | MAYBE},
    {"kept_mass", "r", F32, OUT | MAYBE},
    {"verdicts", "r", I32, OUT | MAYBE},
    {"lse", "r", F64, OUT | MAYBE},
    {"ranks", "r", I32, OUT | MAYBE},
    {"alternatives", "rt", I32, OUT | MAYBE},
    {"alternative_logprobs", "rt", F32, OUT | MAYBE},
    {"logits", "rv", LOGITS, 0},
    {"temperature", "r", F32, FREE | MAYBE},
    {"top_k", "r", I32, FREE | MAYBE},
    {"top_p", "r", F32, FREE | MAYBE},
    {"min_p", "r", F32, FREE | MAYBE},
    {"seed", "1", I64, FREE},
    {"offset", "1", I64, FREE},
    {"row_words", "r", I32, FREE | MAYBE},
};

static const alea_op_argument chain_logits[] = {
    {"tokens", "rm", I32, OUT},
    {"accepted", "r", I32, OUT},
    {"verdicts", "r", I32, OUT | MAYBE},
    {"draft_logits", "rnv", LOGITS, MAYBE},
    {"draft_tokens", "rn", I32, 0},
    {"target_logits", "rmv", LOGITS, 0},
    {"temperature", "r", F32, FREE | MAYBE},
    {"seed", "1", I64, FREE},
    {"offset", "1", I64, FREE},
    {"row_words", "r", I32, FREE | MAYBE},
};

#define RULES(kind, table, empty, logits)                                                          \
    [kind] = {table, (int32_t)(sizeof table / sizeof table[0]), empty, logits}

static const alea_op_rules all_rules[ALEA_OP_KINDS] = {
    RULES(ALEA_OP_TOPK_SELECT, topk_select, false, 1),
    RULES(ALEA_OP_TOPK_MASK, topk_mask, true, 1),
    RULES(ALEA_OP_MINP_MASK, minp_mask, false, 1),
    RULES(ALEA_OP_TOPP_MASK, topp_mask, false, 1),
    RULES(ALEA_OP_TOPK_TOPP_MASK, topk_topp_mask, false, 1),
    RULES(ALEA_OP_SAMPLE_PROBS, sample_probs, false, 1),
    RULES(ALEA_OP_CHAIN_SAMPLE, chain_sample, false, 2),
    RULES(ALEA_OP_LOGPROBS, logprobs, false, 7),
    RULES(ALEA_OP_SAMPLE_LOGITS, sample_logits, false, 9),
    RULES(ALEA_OP_CHAIN_LOGITS, chain_logits, false, 5),
};

const alea_op_rules *alea__op_rules(alea_op_kind kind) {
    return &all_rules[kind];
}

const char *alea_op_name(alea_op_kind kind) {
    static const char *const names[ALEA_OP_KINDS] = {
        "topk_select",  "topk_mask",    "minp_mask", "topp_mask",     "topk_topp_mask",
        "sample_probs", "chain_sample", "logprobs",  "sample_logits", "chain_logits"};
    return (unsigned)kind < ALEA_OP_KINDS ? names[kind] : "unknown";
}
