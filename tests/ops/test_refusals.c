/*
 * Bad calls: each gets an error that names the argument, and writes nothing. The table below is
 * one good call per operator and one fault at a time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "ops/rig.h"

enum { ROWS = 2, VOCAB = 64, DRAFTS = 2, TOPK = 3, BUFFER = 4096, TENSORS = 17 };

/* A good call of one operator, to be spoiled. */
typedef struct call {
    alea_op_kind kind;
    alea_op_config config;
    int32_t n;
    rig_tensor tensors[TENSORS];
    DLTensor *t[TENSORS];
    char buffers[TENSORS][BUFFER];
} call;

static void add(call *c, rig_dtype dtype, const char *shape) {
    rig_tensor *t = &c->tensors[c->n];
    int64_t sizes[4] = {0};
    int32_t rank = 0;
    for (; shape[rank]; rank++) {
        switch (shape[rank]) {
        case 'r': sizes[rank] = ROWS; break;
        case 'v': sizes[rank] = VOCAB; break;
        case 'n': sizes[rank] = DRAFTS; break;
        case 'm': sizes[rank] = DRAFTS + 1; break;
        case 't': sizes[rank] = TOPK; break;
        default: sizes[rank] = 1;
        }
    }
    c->t[c->n] = rig_4d(t, c->buffers[c->n], dtype, sizes[0], sizes[1], sizes[2], sizes[3]);
    t->dl.ndim = rank;
    c->n++;
}

static void set_i32(call *c, int32_t argument, int32_t value) {
    for (size_t i = 0; i < BUFFER / 4; i++)
        memcpy(c->buffers[argument] + 4 * i, &value, 4);
}

static void set_f32(call *c, int32_t argument, float value) {
    for (size_t i = 0; i < BUFFER / 4; i++)
        memcpy(c->buffers[argument] + 4 * i, &value, 4);
}

static void call_make(call *c, alea_op_kind kind) {
    memset(c, 0, sizeof *c);
    c->kind = kind;
    c->config = rig_config((rig_how){.flags = ALEA_OP_CHECK_VALUES}, VOCAB, 0);
    switch (kind) {
    case ALEA_OP_TOPK_SELECT:
        c->config.topk = TOPK;
        add(c, RIG_I32, "1r1t");
        add(c, RIG_F32, "1rv1");
        add(c, RIG_I32, "1r");
        add(c, RIG_I32, "1r");
        set_i32(c, 3, VOCAB);
        break;
    case ALEA_OP_TOPK_MASK:
    case ALEA_OP_MINP_MASK:
    case ALEA_OP_TOPP_MASK:
    case ALEA_OP_TOPK_TOPP_MASK:
        add(c, RIG_F32, "rv");
        add(c, RIG_F32, "rv");
        if (kind == ALEA_OP_TOPK_MASK || kind == ALEA_OP_TOPK_TOPP_MASK) {
            add(c, RIG_I32, "r");
            set_i32(c, 2, 5);
        }
        if (kind != ALEA_OP_TOPK_MASK) {
            add(c, RIG_F32, "r");
            set_f32(c, c->n - 1, 0.5f);
        }
        break;
    case ALEA_OP_SAMPLE_PROBS:
        add(c, RIG_I32, "r");
        add(c, RIG_F32, "rv");
        add(c, RIG_I64, "1");
        add(c, RIG_I64, "1");
        add(c, RIG_I32, "r");
        set_f32(c, 1, 0.5f);
        break;
    case ALEA_OP_CHAIN_SAMPLE:
        add(c, RIG_I32, "rm");
        add(c, RIG_I32, "r");
        add(c, RIG_F32, "rnv");
        add(c, RIG_I32, "rn");
        add(c, RIG_F32, "rmv");
        add(c, RIG_I64, "1");
        add(c, RIG_I64, "1");
        add(c, RIG_I32, "r");
        set_f32(c, 2, 0.25f);
        set_f32(c, 4, 0.25f);
        break;
    case ALEA_OP_LOGPROBS:
        c->config.topk = TOPK;
        add(c, RIG_F64, "r");
        add(c, RIG_F32, "r");
        add(c, RIG_I32, "r");
        add(c, RIG_I32, "rt");
        add(c, RIG_F32, "rt");
        add(c, RIG_F32, "r");
        add(c, RIG_I32, "r");
        add(c, RIG_F32, "rv");
        add(c, RIG_I32, "r");
        add(c, RIG_I32, "rt");
        break;
    case ALEA_OP_CHAIN_LOGITS:
        add(c, RIG_I32, "rm");
        add(c, RIG_I32, "r");
        add(c, RIG_I32, "r");
        add(c, RIG_F32, "rnv");
        add(c, RIG_I32, "rn");
        add(c, RIG_F32, "rmv");
        add(c, RIG_F32, "r");
        add(c, RIG_I64, "1");
        add(c, RIG_I64, "1");
        add(c, RIG_I32, "r");
        set_f32(c, 6, 1);
        break;
    default:
        c->config.topk = TOPK;
        add(c, RIG_I32, "r");
        add(c, RIG_F32, "r");
        add(c, RIG_F32, "r");
        add(c, RIG_F32, "r");
        add(c, RIG_I32, "r");
        add(c, RIG_F64, "r");
        add(c, RIG_I32, "r");
        add(c, RIG_I32, "rt");
        add(c, RIG_F32, "rt");
        add(c, RIG_F32, "rv");
        add(c, RIG_F32, "r");
        add(c, RIG_I32, "r");
        add(c, RIG_F32, "r");
        add(c, RIG_F32, "r");
        add(c, RIG_I64, "1");
        add(c, RIG_I64, "1");
        add(c, RIG_I32, "r");
        set_f32(c, 10, 1);
        set_f32(c, 12, 1);
    }
}

#define MAKE_AND(type, RUN)                                                                        \
    do {                                                                                           \
        type *op = NULL;                                                                           \
        alea_status status = type##_create(&c->config, &op, error);                                \
        if (status < 0) return status;                                                             \
        status = RUN;                                                                              \
        type##_destroy(op);                                                                        \
        return status;                                                                             \
    } while (0)

static alea_status call_run(call *c, alea_error *error) {
    DLTensor **t = c->t;
    switch (c->kind) {
    case ALEA_OP_TOPK_SELECT:
        MAKE_AND(alea_topk_select, alea_topk_select_run(op, t[0], t[1], t[2], t[3], NULL, error));
    case ALEA_OP_TOPK_MASK:
        MAKE_AND(alea_topk_mask, alea_topk_mask_run(op, t[0], t[1], t[2], NULL, error));
    case ALEA_OP_MINP_MASK:
        MAKE_AND(alea_minp_mask, alea_minp_mask_run(op, t[0], t[1], t[2], NULL, error));
    case ALEA_OP_TOPP_MASK:
        MAKE_AND(alea_topp_mask, alea_topp_mask_run(op, t[0], t[1], t[2], NULL, error));
    case ALEA_OP_TOPK_TOPP_MASK:
        MAKE_AND(alea_topk_topp_mask,
                 alea_topk_topp_mask_run(op, t[0], t[1], t[2], t[3], NULL, error));
    case ALEA_OP_SAMPLE_PROBS:
        MAKE_AND(alea_sample_probs,
                 alea_sample_probs_run(op, t[0], t[1], t[2], t[3], t[4], NULL, error));
    case ALEA_OP_CHAIN_SAMPLE:
        MAKE_AND(alea_chain_sample, alea_chain_sample_run(op, t[0], t[1], t[2], t[3], t[4], t[5],
                                                          t[6], t[7], NULL, error));
    case ALEA_OP_LOGPROBS: {
        const alea_logprobs_tensors tensors = {sizeof tensors, t[0], t[1], t[2], t[3], t[4],
                                               t[5],           t[6], t[7], t[8], t[9]};
        MAKE_AND(alea_logprobs, alea_logprobs_run(op, &tensors, NULL, error));
    }
    case ALEA_OP_CHAIN_LOGITS: {
        const alea_chain_logits_tensors tensors = {sizeof tensors, t[0], t[1], t[2], t[3], t[4],
                                                   t[5],           t[6], t[7], t[8], t[9]};
        MAKE_AND(alea_chain_logits, alea_chain_logits_run(op, &tensors, NULL, error));
    }
    default: {
        const alea_sample_logits_tensors tensors = {
            sizeof tensors, t[0], t[1],  t[2],  t[3],  t[4],  t[5],  t[6],  t[7],
            t[8],           t[9], t[10], t[11], t[12], t[13], t[14], t[15], t[16]};
        MAKE_AND(alea_sample_logits, alea_sample_logits_run(op, &tensors, NULL, error));
    }
    }
}

/* The call fails, its message holds `name`, and no buffer has changed. */
static void expect(call *c, alea_status status, const char *name) {
    static char before[TENSORS][BUFFER];
    memcpy(before, c->buffers, sizeof before);
    alea_error error = {0};
    const alea_status got = call_run(c, &error);
    if (got != status || !strstr(error.message, name)) {
        fail_msg("%s: expected \"%s\" (%d), got \"%s\" (%d)", alea_op_name(c->kind), name, status,
                 error.message, got);
    }
    assert_int_equal(error.status, status);
    assert_memory_equal(before, c->buffers, sizeof before);
    assert_int_equal(call_run(c, NULL), status); /* the error itself is optional */
}

static const char *const names[ALEA_OP_KINDS][TENSORS] = {
    [ALEA_OP_TOPK_SELECT] = {"indices", "scores", "starts", "ends"},
    [ALEA_OP_TOPK_MASK] = {"masked", "logits", "k"},
    [ALEA_OP_MINP_MASK] = {"masked", "logits", "min_p"},
    [ALEA_OP_TOPP_MASK] = {"masked", "logits", "p"},
    [ALEA_OP_TOPK_TOPP_MASK] = {"masked", "logits", "k", "p"},
    [ALEA_OP_SAMPLE_PROBS] = {"tokens", "probs", "seed", "offset", "row_words"},
    [ALEA_OP_CHAIN_SAMPLE] = {"tokens", "accepted", "draft_probs", "draft_tokens", "target_probs",
                              "seed", "offset", "row_words"},
    [ALEA_OP_LOGPROBS] = {"lse", "logprobs", "ranks", "alternatives", "alternative_logprobs",
                          "entropy", "verdicts", "logits", "tokens", "given"},
    [ALEA_OP_SAMPLE_LOGITS] = {"tokens", "logprobs", "sampled_logprobs", "kept_mass", "verdicts",
                               "lse", "ranks", "alternatives", "alternative_logprobs", "logits",
                               "temperature", "top_k", "top_p", "min_p", "seed", "offset",
                               "row_words"},
    [ALEA_OP_CHAIN_LOGITS] = {"tokens", "accepted", "verdicts", "draft_logits", "draft_tokens",
                              "target_logits", "temperature", "seed", "offset", "row_words"}};

static call the_call; /* 50 KB: not for the stack */

#define EACH_ARGUMENT(c)                                                                           \
    for (alea_op_kind kind = 0; kind < ALEA_OP_KINDS; kind++)                                      \
        for (int32_t i = 0; call_make(c, kind), i < (c)->n; i++)

static void test_good_calls_are_taken(void **state) {
    (void)state;
    for (alea_op_kind kind = 0; kind < ALEA_OP_KINDS; kind++) {
        alea_error error = {0};
        call_make(&the_call, kind);
        const alea_status status = call_run(&the_call, &error);
        if (status < 0) fail_msg("%s: %s", alea_op_name(kind), error.message);
    }
}

static void test_missing_tensors_are_named(void **state) {
    (void)state;
    for (alea_op_kind kind = 0; kind <= ALEA_OP_CHAIN_SAMPLE; kind++) {
        for (int32_t i = 0; call_make(&the_call, kind), i < the_call.n; i++) {
            the_call.t[i] = NULL;
            if (strcmp(names[kind][i], "row_words") == 0) continue;
            expect(&the_call, ALEA_EINVAL, names[kind][i]);
        }
    }
    call_make(&the_call, ALEA_OP_LOGPROBS);
    the_call.t[8] = NULL;
    expect(&the_call, ALEA_EINVAL, "logprobs is given without tokens");
    the_call.t[1] = NULL;
    expect(&the_call, ALEA_EINVAL, "ranks is given without tokens");
    the_call.t[7] = NULL;
    the_call.t[2] = NULL;
    expect(&the_call, ALEA_EINVAL, "logits is NULL");
    static const struct {
        alea_op_kind kind;
        int32_t argument;
    } needed[] = {
        {ALEA_OP_SAMPLE_LOGITS, 9}, {ALEA_OP_SAMPLE_LOGITS, 14}, {ALEA_OP_SAMPLE_LOGITS, 15},
        {ALEA_OP_CHAIN_LOGITS, 0},  {ALEA_OP_CHAIN_LOGITS, 1},   {ALEA_OP_CHAIN_LOGITS, 4},
        {ALEA_OP_CHAIN_LOGITS, 5},  {ALEA_OP_CHAIN_LOGITS, 7},   {ALEA_OP_CHAIN_LOGITS, 8}};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        call_make(&the_call, needed[i].kind);
        the_call.t[needed[i].argument] = NULL;
        expect(&the_call, ALEA_EINVAL, names[needed[i].kind][needed[i].argument]);
    }
}

static void test_structs_of_another_size_are_named(void **state) {
    (void)state;
    const alea_op_config config = rig_config((rig_how){0}, VOCAB, 0);
    const alea_logprobs_tensors old = {.struct_bytes = sizeof old - 8};
    const alea_sample_logits_tensors older = {.struct_bytes = 0};
    alea_logprobs *report = NULL;
    alea_sample_logits *choose = NULL;
    alea_error error = {0};
    assert_int_equal(alea_logprobs_create(&config, &report, NULL), ALEA_OK);
    assert_int_equal(alea_sample_logits_create(&config, &choose, NULL), ALEA_OK);
    assert_int_equal(alea_logprobs_run(report, &old, NULL, &error), ALEA_EINVAL);
    assert_non_null(strstr(error.message, "tensors.struct_bytes is 80; this library's is 88"));
    assert_int_equal(alea_sample_logits_run(choose, &older, NULL, &error), ALEA_EINVAL);
    assert_non_null(strstr(error.message, "tensors.struct_bytes is 0"));
    assert_int_equal(alea_logprobs_run(report, NULL, NULL, &error), ALEA_EINVAL);
    assert_string_equal(error.message, "tensors is NULL");
    assert_int_equal(alea_sample_logits_run(choose, NULL, NULL, &error), ALEA_EINVAL);
    assert_string_equal(error.message, "tensors is NULL");
    alea_logprobs_destroy(report);
    alea_sample_logits_destroy(choose);
}

static void test_wrong_dtypes_are_named(void **state) {
    (void)state;
    EACH_ARGUMENT(&the_call) {
        the_call.t[i]->dtype = (DLDataType){kDLUInt, 8, 1};
        expect(&the_call, ALEA_EINVAL, names[kind][i]);
        the_call.t[i]->dtype = (DLDataType){kDLInt, 16, 1};
        expect(&the_call, ALEA_EINVAL, names[kind][i]);
        the_call.t[i]->dtype = (DLDataType){kDLFloat, 32, 4};
        expect(&the_call, ALEA_EINVAL, names[kind][i]);
    }
    /* An integer tensor where scores belong, for all that take any. */
    for (alea_op_kind kind = ALEA_OP_TOPK_MASK; kind <= ALEA_OP_CHAIN_SAMPLE; kind++) {
        const int32_t first = kind == ALEA_OP_CHAIN_SAMPLE ? 2 : 1;
        call_make(&the_call, kind);
        the_call.t[first]->dtype = (DLDataType){kDLInt, 32, 1};
        expect(&the_call, ALEA_EINVAL, names[kind][first]);
    }
    call_make(&the_call, ALEA_OP_TOPK_MASK);
    the_call.t[0]->dtype = (DLDataType){kDLFloat, 16, 1};
    expect(&the_call, ALEA_EINVAL, "masked is float16 and logits is float32");
    call_make(&the_call, ALEA_OP_CHAIN_LOGITS);
    the_call.t[3]->dtype = (DLDataType){kDLFloat, 16, 1};
    expect(&the_call, ALEA_EINVAL, "draft_logits is float16 and target_logits is float32");
    call_make(&the_call, ALEA_OP_TOPK_MASK);
    the_call.config.dtype = ALEA_BFLOAT16;
    expect(&the_call, ALEA_EINVAL, "it must be bfloat16");
    the_call.config.dtype = ALEA_FLOAT16;
    expect(&the_call, ALEA_EINVAL, "it must be float16");
    the_call.config.dtype = ALEA_FLOAT32;
    assert_int_equal(call_run(&the_call, NULL), ALEA_OK);
}

static void test_wrong_ranks_are_named(void **state) {
    (void)state;
    EACH_ARGUMENT(&the_call) {
        the_call.t[i]->ndim += the_call.t[i]->ndim == 4 ? -1 : 1;
        expect(&the_call, ALEA_EINVAL, names[kind][i]);
        the_call.t[i]->ndim = 0;
        expect(&the_call, ALEA_EINVAL, names[kind][i]);
        the_call.t[i]->ndim = -1;
        expect(&the_call, ALEA_EINVAL, names[kind][i]);
    }
}

static void test_wrong_devices_are_named(void **state) {
    (void)state;
    EACH_ARGUMENT(&the_call) {
        the_call.t[i]->device.device_type = kDLCUDA;
        expect(&the_call, ALEA_EINVAL, "on device");
    }
}

static void test_tensors_of_a_device_without_target_list_the_targets(void **state) {
    (void)state;
    for (alea_op_kind kind = 0; kind < ALEA_OP_KINDS; kind++) {
        call_make(&the_call, kind);
        for (int32_t i = 0; i < the_call.n; i++)
            the_call.t[i]->device.device_type = kDLMetal;
        expect(&the_call, ALEA_EUNSUPPORTED, "cpu: serves device type 1, these tensors are on 8");
    }
}

static void test_mismatched_shapes_are_named(void **state) {
    (void)state;
    EACH_ARGUMENT(&the_call) {
        /* A size that only this tensor has is free; every other one is held against the rest. */
        for (int32_t d = 0; d < the_call.t[i]->ndim; d++) {
            call_make(&the_call, kind);
            the_call.t[i]->shape[d] = -1;
            expect(&the_call, ALEA_EINVAL, names[kind][i]);
        }
        call_make(&the_call, kind);
        the_call.t[i]->shape[0] += 2; /* seeds may be as many as rows */
        alea_error error = {0};
        const alea_status status = call_run(&the_call, &error);
        assert_true(status < 0 && error.message[0]);
    }
    static const struct {
        alea_op_kind kind;
        int32_t argument, dimension;
        const char *message;
    } mismatches[] = {
        {ALEA_OP_TOPK_MASK, 2, 0, "k has 3 in dimension 0 (rows) where logits calls for 2"},
        {ALEA_OP_TOPP_MASK, 0, 1, "masked has 65 in dimension 1 (vocab) where logits calls for 64"},
        {ALEA_OP_TOPK_SELECT, 2, 0, "starts has 2 in dimension 0 (batch) where scores calls for 1"},
        {ALEA_OP_TOPK_SELECT, 3, 1, "ends has 3 in dimension 1 (queries) where scores calls for 2"},
        {ALEA_OP_TOPK_SELECT, 0, 2, "indices has 2 in dimension 2 (groups) where scores calls"},
        {ALEA_OP_TOPK_SELECT, 0, 3, "indices has 4 in dimension 3 (topk) where the config's topk"},
        {ALEA_OP_CHAIN_SAMPLE, 3, 1,
         "draft_tokens has 3 in dimension 1 (drafts) where draft_probs"},
        {ALEA_OP_CHAIN_SAMPLE, 0, 1, "tokens has 4 in dimension 1 (drafts + 1) where draft_probs"},
        {ALEA_OP_LOGPROBS, 3, 1,
         "alternatives has 4 in dimension 1 (topk) where given calls for 3"},
    };
    for (size_t i = 0; i < sizeof mismatches / sizeof *mismatches; i++) {
        call_make(&the_call, mismatches[i].kind);
        the_call.t[mismatches[i].argument]->shape[mismatches[i].dimension]++;
        expect(&the_call, ALEA_EINVAL, mismatches[i].message);
    }
    call_make(&the_call, ALEA_OP_CHAIN_SAMPLE);
    the_call.t[4]->shape[1] = 2;
    expect(&the_call, ALEA_EINVAL, "target_probs has 2 in dimension 1 (drafts + 1)");
    call_make(&the_call, ALEA_OP_SAMPLE_PROBS);
    the_call.t[2]->shape[0] = 3;
    expect(&the_call, ALEA_EINVAL, "seed has 3 entries; it takes 1, or one for each of 2 rows");
}

static void test_missing_or_misaligned_memory_is_named(void **state) {
    (void)state;
    EACH_ARGUMENT(&the_call) {
        the_call.t[i]->data = NULL;
        expect(&the_call, ALEA_EINVAL, names[kind][i]);
        call_make(&the_call, kind);
        the_call.t[i]->byte_offset = 1;
        expect(&the_call, ALEA_EINVAL, "misaligned");
        the_call.t[i]->byte_offset = UINT64_MAX - 3;
        expect(&the_call, ALEA_ELIMIT, names[kind][i]);
        call_make(&the_call, kind);
        the_call.t[i]->shape = NULL;
        expect(&the_call, ALEA_EINVAL, names[kind][i]);
    }
}

static void test_strides_that_no_row_has_are_named(void **state) {
    (void)state;
    call_make(&the_call, ALEA_OP_TOPK_MASK);
    int64_t strides[] = {VOCAB, 2};
    the_call.t[1]->strides = strides;
    expect(&the_call, ALEA_EINVAL, "logits has stride 2 in its last dimension");
    strides[0] = -VOCAB;
    strides[1] = 1;
    expect(&the_call, ALEA_EINVAL, "logits has the negative stride");
    strides[0] = INT64_MAX / 2;
    expect(&the_call, ALEA_ELIMIT, "logits spans more than the address space");
    the_call.t[1]->strides = NULL;
    the_call.t[0]->strides = strides;
    strides[0] = VOCAB - 1;
    expect(&the_call, ALEA_EINVAL, "masked has strides that make its elements overlap");
    strides[0] = 0;
    expect(&the_call, ALEA_EINVAL, "masked has strides that make its elements overlap");
}

static void test_overlap_is_named(void **state) {
    (void)state;
    call_make(&the_call, ALEA_OP_TOPK_MASK);
    the_call.t[0]->data = the_call.t[1]->data;
    expect(&the_call, ALEA_EINVAL, "masked overlaps logits; working in place takes");
    the_call.t[0]->byte_offset = 4;
    the_call.config.flags |= ALEA_OP_IN_PLACE;
    expect(&the_call, ALEA_EINVAL, "masked overlaps logits");
    call_make(&the_call, ALEA_OP_TOPK_MASK);
    the_call.t[2]->data = the_call.buffers[0];
    set_i32(&the_call, 0, 5);
    expect(&the_call, ALEA_EINVAL, "masked overlaps k");
    call_make(&the_call, ALEA_OP_LOGPROBS);
    the_call.t[1]->data = the_call.t[5]->data;
    expect(&the_call, ALEA_EINVAL, "logprobs overlaps entropy");
    /* Rows that take turns in one buffer do not overlap. */
    call_make(&the_call, ALEA_OP_MINP_MASK);
    int64_t strides[] = {2 * VOCAB, 1};
    the_call.t[0]->strides = the_call.t[1]->strides = strides;
    the_call.t[0]->data = the_call.buffers[1];
    the_call.t[0]->byte_offset = VOCAB * 4;
    assert_int_equal(call_run(&the_call, NULL), ALEA_OK);
    the_call.t[0]->byte_offset = VOCAB * 4 - 4;
    expect(&the_call, ALEA_EINVAL, "masked overlaps logits");
}

static void test_sizes_beyond_the_limits_are_named(void **state) {
    (void)state;
    for (alea_op_kind kind = 0; kind < ALEA_OP_KINDS; kind++) {
        call_make(&the_call, kind);
        the_call.config.max_vocab = kind == ALEA_OP_TOPK_SELECT ? VOCAB - 1 : 8;
        expect(&the_call, ALEA_ELIMIT, kind == ALEA_OP_TOPK_SELECT ? "S_kv 64" : "vocab 64");
        call_make(&the_call, kind);
        the_call.config.max_rows = 1;
        expect(&the_call, ALEA_ELIMIT, "has 2 rows; the operator was made for 1");
        call_make(&the_call, kind);
        the_call.config.max_vocab = ALEA_OP_VOCAB_MAX + 1;
        expect(&the_call, ALEA_ELIMIT, "config.max_vocab is 4194305");
    }
    call_make(&the_call, ALEA_OP_LOGPROBS);
    the_call.t[9]->shape[1] = 129;
    expect(&the_call, ALEA_ELIMIT, "given has 129 ids");
    call_make(&the_call, ALEA_OP_CHAIN_SAMPLE);
    for (int32_t i = 0; i < 5; i++) {
        if (i != 1) the_call.t[i]->shape[1] -= DRAFTS;
    }
    expect(&the_call, ALEA_EINVAL, "draft_tokens has no drafts; N must be at least 1");
    for (int32_t i = 0; i < 5; i++) {
        if (i != 1) the_call.t[i]->shape[1] += INT32_MAX;
    }
    expect(&the_call, ALEA_ELIMIT, "draft_tokens has 2147483647 drafts; 2^31 - 2 is the most");
    call_make(&the_call, ALEA_OP_TOPK_SELECT);
    for (int32_t i = 0; i < 4; i++)
        the_call.t[i]->shape[0] = INT64_MAX / 2 + 1;
    expect(&the_call, ALEA_ELIMIT, "scores has too many rows: B * S * G");
    call_make(&the_call, ALEA_OP_TOPK_SELECT);
    the_call.config.topk = VOCAB;
    the_call.t[0]->shape[3] = VOCAB;
    the_call.t[1]->shape[2] = VOCAB - 1;
    expect(&the_call, ALEA_EINVAL, "topk is 64 and scores has only S_kv 63");
}

/* A product of sizes beyond 2^31, which others refuse, is no fault here; only memory that cannot
 * exist is. */
static void test_products_of_sizes_are_checked(void **state) {
    (void)state;
    for (alea_op_kind kind = ALEA_OP_TOPK_MASK; kind < ALEA_OP_KINDS; kind++) {
        const int32_t at = kind == ALEA_OP_CHAIN_SAMPLE    ? 2
                           : kind == ALEA_OP_LOGPROBS      ? 7
                           : kind == ALEA_OP_SAMPLE_LOGITS ? 9
                           : kind == ALEA_OP_CHAIN_LOGITS  ? 5
                                                           : 1;
        call_make(&the_call, kind);
        for (int32_t i = 0; i < the_call.n; i++) {
            if (the_call.t[i]->shape[0] == ROWS) the_call.t[i]->shape[0] = INT64_MAX / 8;
        }
        alea_error error = {0};
        assert_int_equal(call_run(&the_call, &error), ALEA_ELIMIT);
        assert_non_null(strstr(error.message, "spans more than the address space"));
        assert_true(at > 0);
    }
}

static void test_empty_vocabularies_follow_their_rule(void **state) {
    (void)state;
    for (alea_op_kind kind = 0; kind < ALEA_OP_KINDS; kind++) {
        call_make(&the_call, kind);
        for (int32_t i = 0; i < the_call.n; i++) {
            for (int32_t d = 0; d < the_call.t[i]->ndim; d++) {
                if (the_call.t[i]->shape[d] == VOCAB) the_call.t[i]->shape[d] = 0;
            }
        }
        if (kind == ALEA_OP_TOPK_MASK) {
            assert_int_equal(call_run(&the_call, NULL), ALEA_OK);
            continue;
        }
        expect(&the_call, ALEA_EINVAL, "has no entries");
    }
}

static void test_batches_without_rows_do_nothing(void **state) {
    (void)state;
    for (alea_op_kind kind = 0; kind < ALEA_OP_KINDS; kind++) {
        call_make(&the_call, kind);
        for (int32_t i = 0; i < the_call.n; i++) {
            for (int32_t d = 0; d < 2 && d < the_call.t[i]->ndim; d++) {
                if (the_call.t[i]->shape[d] != ROWS || the_call.t[i]->ndim > 2) continue;
                if (d == 1 && the_call.t[i]->ndim == 2 && kind != ALEA_OP_TOPK_SELECT) continue;
                the_call.t[i]->shape[d] = 0;
                the_call.t[i]->data = NULL;
            }
            if (the_call.t[i]->ndim > 2) {
                the_call.t[i]->shape[kind == ALEA_OP_TOPK_SELECT ? 1 : 0] = 0;
                the_call.t[i]->data = NULL;
            }
        }
        alea_error error = {0};
        const alea_status status = call_run(&the_call, &error);
        if (status < 0) fail_msg("%s: %s", alea_op_name(kind), error.message);
    }
}

typedef struct bad_value {
    alea_op_kind kind;
    int32_t argument;
    bool is_float;
    double value;
    bool always; /* refused without ALEA_OP_CHECK_VALUES too */
    const char *message;
} bad_value;

static const bad_value bad_values[] = {
    {ALEA_OP_TOPK_SELECT, 2, false, -1, false, "starts holds -1"},
    {ALEA_OP_TOPK_SELECT, 3, false, VOCAB + 1, false, "ends holds 65"},
    {ALEA_OP_TOPK_MASK, 2, false, 0, false, "k holds 0 in row 0; the range is 1"},
    {ALEA_OP_TOPK_MASK, 2, false, -5, false, "k holds -5"},
    {ALEA_OP_MINP_MASK, 2, true, 1.5, false, "min_p holds 1.5 in row 0; the range is 0..1"},
    {ALEA_OP_MINP_MASK, 2, true, -0.5, false, "min_p holds -0.5"},
    {ALEA_OP_MINP_MASK, 2, true, NAN, false, "min_p holds "},
    {ALEA_OP_TOPP_MASK, 2, true, 1.25, false, "p holds 1.25"},
    {ALEA_OP_TOPP_MASK, 2, true, NAN, false, "p holds "},
    {ALEA_OP_TOPK_TOPP_MASK, 2, false, 0, false, "k holds 0"},
    {ALEA_OP_TOPK_TOPP_MASK, 3, true, -1, false, "p holds -1"},
    {ALEA_OP_SAMPLE_PROBS, 1, true, -0.5, false, "probs holds -0.5 in row 0"},
    {ALEA_OP_SAMPLE_PROBS, 1, true, INFINITY, false, "probs holds inf"},
    {ALEA_OP_SAMPLE_PROBS, 1, true, NAN, false, "probs holds "},
    {ALEA_OP_SAMPLE_PROBS, 1, true, 0, false, "probs has no positive weight in row 0"},
    {ALEA_OP_CHAIN_SAMPLE, 2, true, NAN, false, "draft_probs holds "},
    {ALEA_OP_CHAIN_SAMPLE, 4, true, 0, false, "target_probs has no positive weight"},
    {ALEA_OP_CHAIN_SAMPLE, 3, false, -1, true, "draft_tokens holds -1"},
    {ALEA_OP_CHAIN_SAMPLE, 3, false, VOCAB, true,
     "draft_tokens holds 64 in row 0; the range is 0..63"},
    {ALEA_OP_LOGPROBS, 8, false, VOCAB, true, "tokens holds 64"},
    {ALEA_OP_LOGPROBS, 8, false, -2, true, "tokens holds -2"},
    {ALEA_OP_LOGPROBS, 9, false, VOCAB, true, "given holds 64"},
    {ALEA_OP_SAMPLE_LOGITS, 10, true, NAN, true, "row 0: temperature is "},
    {ALEA_OP_SAMPLE_LOGITS, 10, true, -1, true, "row 0: temperature is -1"},
    {ALEA_OP_SAMPLE_LOGITS, 11, false, -1, true, "row 0: top_k is -1"},
    {ALEA_OP_SAMPLE_LOGITS, 12, true, 0, true, "row 0: top_p is 0"},
    {ALEA_OP_SAMPLE_LOGITS, 12, true, 1.5, true, "row 0: top_p is 1.5"},
    {ALEA_OP_SAMPLE_LOGITS, 13, true, 2, true, "row 0: min_p is 2"},
    {ALEA_OP_CHAIN_LOGITS, 4, false, -1, true, "draft_tokens holds -1"},
    {ALEA_OP_CHAIN_LOGITS, 4, false, VOCAB, true, "draft_tokens holds 64 in row 0"},
    {ALEA_OP_CHAIN_LOGITS, 6, true, -1, true, "row 0: temperature is -1"},
    {ALEA_OP_CHAIN_LOGITS, 6, true, NAN, true, "row 0: temperature is "},
};

static void test_values_outside_their_range_are_named(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_values / sizeof *bad_values; i++) {
        const bad_value *bad = &bad_values[i];
        call_make(&the_call, bad->kind);
        if (bad->is_float) {
            set_f32(&the_call, bad->argument, (float)bad->value);
        } else {
            set_i32(&the_call, bad->argument, (int32_t)bad->value);
        }
        expect(&the_call, ALEA_EINVAL, bad->message);
        the_call.config.flags = 0;
        if (bad->always) {
            expect(&the_call, ALEA_EINVAL, bad->message);
        } else { /* unchecked, it does no harm */
            assert_int_equal(call_run(&the_call, NULL), ALEA_OK);
        }
    }
}

static void test_bad_configs_are_named(void **state) {
    (void)state;
    for (alea_op_kind kind = 0; kind < ALEA_OP_KINDS; kind++) {
        call_make(&the_call, kind);
        the_call.config.struct_bytes = 4;
        expect(&the_call, ALEA_EINVAL, "config.struct_bytes is 4");
        call_make(&the_call, kind);
        the_call.config.flags = 1u << 30;
        expect(&the_call, ALEA_EINVAL, "config.flags");
        call_make(&the_call, kind);
        the_call.config.threads = -1;
        expect(&the_call, ALEA_EINVAL, "config.threads is -1");
        call_make(&the_call, kind);
        the_call.config.max_vocab = 0;
        expect(&the_call, ALEA_EINVAL, "config.max_vocab is 0");
        call_make(&the_call, kind);
        the_call.config.max_rows = -1;
        expect(&the_call, ALEA_EINVAL, "config.max_rows is -1");
        call_make(&the_call, kind);
        the_call.config.topk = kind == ALEA_OP_LOGPROBS || kind == ALEA_OP_SAMPLE_LOGITS ? 21 : -1;
        expect(&the_call, ALEA_EINVAL, "config.topk is ");
        call_make(&the_call, kind);
        the_call.config.dtype = (alea_dtype)9;
        expect(&the_call, ALEA_EINVAL, "config.dtype is 9");
        call_make(&the_call, kind);
        the_call.config.target = "gpu-of-the-neighbour";
        expect(&the_call, ALEA_EUNSUPPORTED,
               "no target is named \"gpu-of-the-neighbour\"; there are builtin, cpu, cpu-ref, "
               "cuda");
        if (kind >= ALEA_OP_TOPK_MASK && kind <= ALEA_OP_TOPK_TOPP_MASK) continue;
        call_make(&the_call, kind);
        the_call.config.flags = ALEA_OP_IN_PLACE;
        expect(&the_call, ALEA_EINVAL, "is no mask");
    }
    alea_error error = {0};
    alea_topk_mask *op = NULL;
    assert_int_equal(alea_topk_mask_create(NULL, &op, &error), ALEA_EINVAL);
    assert_int_equal(alea_topk_mask_create(&the_call.config, NULL, &error), ALEA_EINVAL);
    assert_int_equal(alea_topk_mask_run(NULL, NULL, NULL, NULL, NULL, &error), ALEA_EINVAL);
    alea_topk_mask_destroy(NULL);
    assert_null(op);
}

/* The call where the thread's environment was spoiled after its operator was made. */
static void expect_declined(call *c, void (*spoil)(void), const char *reason) {
    static char before[TENSORS][BUFFER];
    fenv_t good;
    alea_topk_mask *op = NULL;
    alea_error error = {0};
    memcpy(before, c->buffers, sizeof before);
    assert_int_equal(alea_topk_mask_create(&c->config, &op, NULL), ALEA_OK);
    fegetenv(&good);
    spoil();
    const alea_status status = alea_topk_mask_run(op, c->t[0], c->t[1], c->t[2], NULL, &error);
    fesetenv(&good);
    assert_int_equal(status, ALEA_EUNSUPPORTED);
    assert_non_null(strstr(error.message, reason));
    assert_memory_equal(before, c->buffers, sizeof before);
    assert_int_equal(alea_topk_mask_run(op, c->t[0], c->t[1], c->t[2], NULL, &error), ALEA_OK);
    alea_topk_mask_destroy(op);
}

static void round_upward(void) {
    fesetround(FE_UPWARD);
}

#if defined(__x86_64__)
static void flush_results(void) {
    _mm_setcsr(_mm_getcsr() | 0x8000);
}

static void flush_operands(void) {
    _mm_setcsr(_mm_getcsr() | 0x0040);
}
#endif

/* Denormals that count as zeros would be drawn never and kept as ties, without a word. */
static void test_another_floating_point_environment_is_declined(void **state) {
    (void)state;
    for (alea_op_kind kind = 0; kind < ALEA_OP_KINDS; kind++) {
        alea_error error = {0};
        call_make(&the_call, kind);
        round_upward();
        const alea_status status = call_run(&the_call, &error); /* threads would inherit it */
        fesetround(FE_TONEAREST);
        assert_int_equal(status, ALEA_EUNSUPPORTED);
        assert_non_null(strstr(error.message, "cpu: floating-point rounding is not to nearest"));
    }
    call_make(&the_call, ALEA_OP_TOPK_MASK);
    expect_declined(&the_call, round_upward, "call fesetround(FE_TONEAREST)");
#if defined(__x86_64__)
    expect_declined(&the_call, flush_results, "cpu: denormals are flushed");
    expect_declined(&the_call, flush_operands, "clear FTZ and DAZ");
#endif
}

/* Frameworks put any number where a dimension has one entry or a tensor none. */
static void test_strides_of_dimensions_without_a_step_are_not_read(void **state) {
    (void)state;
    static int64_t wild[TENSORS][4];
    for (alea_op_kind kind = 0; kind < ALEA_OP_KINDS; kind++) {
        for (int empty = 0; empty < 2; empty++) {
            call_make(&the_call, kind);
            for (int32_t i = 0; i < the_call.n; i++) {
                DLTensor *t = the_call.t[i];
                int64_t dense = 1;
                t->strides = wild[i];
                for (int32_t d = t->ndim; d-- > 0;) {
                    const bool is_rows = t->shape[d] == ROWS && (d == 0 || t->ndim == 4) &&
                                         !(kind == ALEA_OP_TOPK_SELECT && d == 3);
                    if (is_rows || (kind == ALEA_OP_TOPK_SELECT && d == 1)) t->shape[d] = !empty;
                    const bool steps = t->shape[d] > 1 && !empty;
                    wild[i][d] = steps ? dense : d % 2 ? INT64_MIN : INT64_MAX;
                    dense *= t->shape[d];
                }
            }
            alea_error error = {0};
            const alea_status status = call_run(&the_call, &error);
            if (status < 0) fail_msg("%s: %s", alea_op_name(kind), error.message);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_calls_are_taken),
        cmocka_unit_test(test_missing_tensors_are_named),
        cmocka_unit_test(test_structs_of_another_size_are_named),
        cmocka_unit_test(test_wrong_dtypes_are_named),
        cmocka_unit_test(test_wrong_ranks_are_named),
        cmocka_unit_test(test_wrong_devices_are_named),
        cmocka_unit_test(test_tensors_of_a_device_without_target_list_the_targets),
        cmocka_unit_test(test_mismatched_shapes_are_named),
        cmocka_unit_test(test_missing_or_misaligned_memory_is_named),
        cmocka_unit_test(test_strides_that_no_row_has_are_named),
        cmocka_unit_test(test_overlap_is_named),
        cmocka_unit_test(test_sizes_beyond_the_limits_are_named),
        cmocka_unit_test(test_products_of_sizes_are_checked),
        cmocka_unit_test(test_empty_vocabularies_follow_their_rule),
        cmocka_unit_test(test_batches_without_rows_do_nothing),
        cmocka_unit_test(test_values_outside_their_range_are_named),
        cmocka_unit_test(test_bad_configs_are_named),
        cmocka_unit_test(test_another_floating_point_environment_is_declined),
        cmocka_unit_test(test_strides_of_dimensions_without_a_step_are_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
