/*
 * libFuzzer target: one call of one operator, made from the input, on "cpu" and on "cpu-ref".
 *
 * Both give the same bits or the same error. After an error nothing was written; after success
 * nothing outside the outputs was, and they hold what their kind of output can hold. One tensor in
 * four is spoiled in one field, always so that a call that is taken all the same stays inside the
 * buffers.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "alea/ops.h"

enum {
    TENSORS = 17,
    ROWS_MAX = 3,
    VOCAB_MAX = 20000,
    DRAFTS = 2,
    SLACK = 256, /* poisoned bytes on both sides of a tensor */
    /* Room for every shape below, and for one whose sizes were spoiled upwards. */
    BUFFER = 2 * (ROWS_MAX * (DRAFTS + 2) * (VOCAB_MAX + 64) * 4) + 2 * SLACK
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) __builtin_trap();
}

/* The input, as numbers; zeros once it is used up. */
typedef struct source {
    const uint8_t *data;
    size_t size, at;
} source;

static uint32_t take(source *s, int32_t bytes) {
    uint32_t value = 0;
    for (int32_t i = 0; i < bytes; i++)
        value = value << 8 | (s->at < s->size ? s->data[s->at++] : 0);
    return value;
}

static uint32_t pick(source *s, uint32_t n) {
    return take(s, 1) % n;
}

typedef struct tensor {
    DLTensor dl;
    int64_t shape[4], strides[4];
    uint8_t *buffer; /* [BUFFER] */
    size_t watched;  /* bytes of it that are poisoned and compared: twice the tensor, and slack */
    bool is_output;
} tensor;

typedef struct call {
    alea_op_kind kind;
    int64_t rows;
    int32_t vocab, topk;
    uint32_t flags;
    alea_dtype dtype;
    tensor t[TENSORS];
    int32_t n;
} call;

static uint8_t *pool;

static tensor *add(call *c, bool is_output, uint8_t code, uint8_t bits, int32_t rank, int64_t a,
                   int64_t b, int64_t d, int64_t e) {
    tensor *t = &c->t[c->n];
    t->buffer = pool + (size_t)c->n++ * BUFFER;
    t->is_output = is_output;
    t->shape[0] = a;
    t->shape[1] = b;
    t->shape[2] = d;
    t->shape[3] = e;
    t->dl = (DLTensor){t->buffer + SLACK, {kDLCPU, 0}, rank, {code, bits, 1}, t->shape, NULL, 0};
    t->watched = 4 * SLACK + 2 * (bits / 8u);
    for (int32_t i = 0, n = 1; i < rank; i++) {
        n *= (int32_t)t->shape[i];
        if (i == rank - 1) t->watched += 2 * (size_t)n * (bits / 8u);
    }
    if (t->watched > BUFFER) t->watched = BUFFER;
    return t;
}

static tensor *add_i32(call *c, bool is_output, int64_t n) {
    return add(c, is_output, kDLInt, 32, 1, n, 0, 0, 0);
}

static tensor *add_f32(call *c, bool is_output, int64_t n) {
    return add(c, is_output, kDLFloat, 32, 1, n, 0, 0, 0);
}

static tensor *add_logits(call *c, bool is_output) {
    static const uint8_t codes[] = {0, kDLFloat, kDLBfloat, kDLFloat};
    return add(c, is_output, codes[c->dtype], c->dtype == ALEA_FLOAT32 ? 32 : 16, 2, c->rows,
               c->vocab, 0, 0);
}

static size_t elements(const tensor *t) {
    size_t n = 1;
    for (int32_t d = 0; d < t->dl.ndim; d++)
        n *= (size_t)t->shape[d];
    return n;
}

/* Values: bits of the input, few distinct ones, or noise from a seed with specials sown in. */
static void fill_floats(source *s, tensor *t) {
    static const uint32_t specials[] = {0x7fc00000u, 0xffc12345u, 0x7f800000u, 0xff800000u,
                                        0x80000000u, 0u,          1u,          0x7f7fffffu};
    const size_t n = elements(t);
    const bool half = t->dl.dtype.bits == 16;
    const uint32_t mode = pick(s, 4);
    uint32_t state = take(s, 2) * 2654435761u + 1;
    const uint32_t few = 1 + pick(s, 9);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        state = state * 1664525u + 1013904223u;
        if (mode == 0 && s->at + 4 <= s->size) {
            bits = take(s, 4);
        } else if (mode == 1) {
            const float value = (float)(state >> 8 & 0xff) / 16 - 8;
            memcpy(&bits, &value, 4);
            if (state >> 28 == 0) bits = specials[state >> 25 & 7];
        } else {
            const float value = (float)((state >> 16) % few) * 0.75f - (mode == 3);
            memcpy(&bits, &value, 4);
        }
        if (half) {
            const uint16_t upper = (uint16_t)(bits >> 16); /* bfloat16, and some float16 */
            memcpy(t->buffer + SLACK + 2 * i, &upper, 2);
        } else {
            memcpy(t->buffer + SLACK + 4 * i, &bits, 4);
        }
    }
}

/* Probabilities: not negative, with zeros; one row in eight is anything. */
static void fill_probs(source *s, tensor *t) {
    fill_floats(s, t);
    if (pick(s, 8) == 0) return;
    float *x = (float *)(void *)(t->buffer + SLACK);
    const size_t n = elements(t);
    for (size_t i = 0; i < n; i++)
        x[i] = isfinite(x[i]) && x[i] > 0 ? x[i] : 0;
}

static void fill_ints(source *s, tensor *t, int32_t low, int32_t high) {
    const size_t n = elements(t);
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = take(s, 4);
        int32_t value = (int32_t)bits;
        if (bits % 16) value = low + (int32_t)(bits / 16 % (uint32_t)(high - low + 1));
        if (t->dl.dtype.bits == 64) {
            const uint64_t wide = (uint64_t)bits << (bits % 3 * 16);
            memcpy(t->buffer + SLACK + 8 * i, &wide, 8);
        } else {
            memcpy(t->buffer + SLACK + 4 * i, &value, 4);
        }
    }
}

static void fill_shares(source *s, tensor *t) {
    const size_t n = elements(t);
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = take(s, 3);
        const float value = bits % 8 ? (float)(bits >> 3) / (float)(1 << 21)
                                     : (float)((int32_t)(bits >> 3 & 7) - 2);
        memcpy(t->buffer + SLACK + 4 * i, &value, 4);
    }
}

static void add_stream(source *s, call *c) {
    const int64_t n = pick(s, 2) ? c->rows : 1;
    fill_ints(s, add(c, false, kDLInt, 64, 1, n, 0, 0, 0), 0, 9);
    fill_ints(s, add(c, false, kDLInt, 64, 1, n, 0, 0, 0), 0, 9);
    fill_ints(s, add_i32(c, false, c->rows), 0, 9);
}

static void make_mask(source *s, call *c) {
    add_logits(c, true);
    fill_floats(s, add_logits(c, false));
    if (c->kind == ALEA_OP_TOPK_MASK || c->kind == ALEA_OP_TOPK_TOPP_MASK) {
        fill_ints(s, add_i32(c, false, c->rows), 1, c->vocab + 2);
    }
    if (c->kind != ALEA_OP_TOPK_MASK) fill_shares(s, add_f32(c, false, c->rows));
}

static void make_logprobs(source *s, call *c) {
    const bool given = pick(s, 2);
    const int64_t n = given ? (int64_t)pick(s, 20) : (int64_t)c->topk;
    add(c, true, kDLFloat, 64, 1, c->rows, 0, 0, 0);
    add_f32(c, true, c->rows);
    add_i32(c, true, c->rows);
    add(c, true, kDLInt, 32, 2, c->rows, n, 0, 0);
    add(c, true, kDLFloat, 32, 2, c->rows, n, 0, 0);
    add_f32(c, true, c->rows);
    add_i32(c, true, c->rows);
    fill_floats(s, add_logits(c, false));
    fill_ints(s, add_i32(c, false, c->rows), -1, c->vocab > 0 ? c->vocab - 1 : 0);
    tensor *ids = add(c, false, kDLInt, 32, 2, c->rows, n, 0, 0);
    fill_ints(s, ids, -1, c->vocab > 0 ? c->vocab - 1 : 0);
    if (!given) ids->buffer = NULL;
}

static void make_sample_logits(source *s, call *c) {
    add_i32(c, true, c->rows);
    for (int i = 0; i < 3; i++)
        add_f32(c, true, c->rows);
    add_i32(c, true, c->rows);
    add(c, true, kDLFloat, 64, 1, c->rows, 0, 0, 0);
    add_i32(c, true, c->rows);
    add(c, true, kDLInt, 32, 2, c->rows, c->topk, 0, 0);
    add(c, true, kDLFloat, 32, 2, c->rows, c->topk, 0, 0);
    fill_floats(s, add_logits(c, false));
    fill_floats(s, add_f32(c, false, c->rows));
    fill_ints(s, add_i32(c, false, c->rows), 0, c->vocab + 2);
    fill_shares(s, add_f32(c, false, c->rows));
    fill_shares(s, add_f32(c, false, c->rows));
    add_stream(s, c);
}

/* Logits of so many positions. */
static tensor *add_chain(call *c, int64_t positions) {
    tensor *t = add_logits(c, false);
    t->dl.ndim = 3;
    t->shape[1] = positions;
    t->shape[2] = c->vocab;
    t->watched = BUFFER;
    return t;
}

static void make_chain_logits(source *s, call *c) {
    add(c, true, kDLInt, 32, 2, c->rows, DRAFTS + 1, 0, 0);
    add_i32(c, true, c->rows);
    add_i32(c, true, c->rows);
    const bool certain = pick(s, 2);
    tensor *draft = add_chain(c, DRAFTS);
    fill_floats(s, draft);
    fill_ints(s, add(c, false, kDLInt, 32, 2, c->rows, DRAFTS, 0, 0), 0,
              c->vocab > 0 ? c->vocab - 1 : 0);
    fill_floats(s, add_chain(c, DRAFTS + 1));
    fill_floats(s, add_f32(c, false, c->rows));
    add_stream(s, c);
    if (certain) draft->buffer = NULL;
}

static void make_tensors(source *s, call *c) {
    switch (c->kind) {
    case ALEA_OP_TOPK_SELECT: {
        const int64_t groups = 1 + pick(s, 2);
        add(c, true, kDLInt, 32, 4, 1, c->rows, groups, c->topk);
        fill_floats(s, add(c, false, kDLFloat, 32, 4, 1, c->rows, c->vocab, groups));
        fill_ints(s, add(c, false, kDLInt, 32, 2, 1, c->rows, 0, 0), 0, c->vocab);
        fill_ints(s, add(c, false, kDLInt, 32, 2, 1, c->rows, 0, 0), 0, c->vocab);
        return;
    }
    case ALEA_OP_SAMPLE_PROBS:
        add_i32(c, true, c->rows);
        fill_probs(s, add(c, false, kDLFloat, 32, 2, c->rows, c->vocab, 0, 0));
        add_stream(s, c);
        return;
    case ALEA_OP_CHAIN_SAMPLE:
        add(c, true, kDLInt, 32, 2, c->rows, DRAFTS + 1, 0, 0);
        add_i32(c, true, c->rows);
        fill_probs(s, add(c, false, kDLFloat, 32, 3, c->rows, DRAFTS, c->vocab, 0));
        fill_ints(s, add(c, false, kDLInt, 32, 2, c->rows, DRAFTS, 0, 0), 0,
                  c->vocab > 0 ? c->vocab - 1 : 0);
        fill_probs(s, add(c, false, kDLFloat, 32, 3, c->rows, DRAFTS + 1, c->vocab, 0));
        add_stream(s, c);
        return;
    case ALEA_OP_LOGPROBS: make_logprobs(s, c); return;
    case ALEA_OP_SAMPLE_LOGITS: make_sample_logits(s, c); return;
    case ALEA_OP_CHAIN_LOGITS: make_chain_logits(s, c); return;
    default: make_mask(s, c);
    }
}

/* One field of one tensor. Sizes change by one, strides shrink: the buffers hold all of that. */
static void spoil(source *s, call *c) {
    tensor *t = &c->t[pick(s, (uint32_t)c->n)];
    const int32_t d = (int32_t)pick(s, 4);
    switch (pick(s, 9)) {
    case 0: t->dl.ndim = (int32_t)pick(s, 6) - 1; break;
    case 1: t->shape[d] += pick(s, 2) ? 1 : -1; break;
    case 2: t->shape[d] = -(int64_t)take(s, 4); break;
    case 3: t->dl.byte_offset = pick(s, 17); break;
    case 4: t->dl.dtype.bits = (uint8_t)take(s, 1); break;
    case 5: t->dl.dtype.code = (uint8_t)pick(s, 6); break;
    case 6: t->dl.device.device_type = (DLDeviceType)pick(s, 14); break;
    case 7: t->dl.data = NULL; break;
    default:
        t->dl.strides = t->strides;
        for (int32_t i = 0; i < 4; i++) /* -1, 0, 1 or 2 */
            t->strides[i] = (int64_t)pick(s, 4) - 1;
    }
    /* More bits of an element would reach past the buffer; others are refused by name. */
    if (t->dl.dtype.bits > 32 && t->dl.dtype.bits != 64) t->dl.dtype.bits = 8;
}

#define RUN(type, CALL)                                                                            \
    do {                                                                                           \
        type *op = NULL;                                                                           \
        status = type##_create(&config, &op, error);                                               \
        if (status < 0) return status;                                                             \
        status = CALL;                                                                             \
        type##_destroy(op);                                                                        \
        return status;                                                                             \
    } while (0)

static alea_status run(const call *c, const char *target, int32_t threads, DLTensor **t,
                       alea_error *error) {
    const alea_op_config config = {.struct_bytes = sizeof config,
                                   .flags = c->flags,
                                   .target = target,
                                   .threads = threads,
                                   .max_vocab = VOCAB_MAX,
                                   .topk = c->topk};
    alea_status status;
    switch (c->kind) {
    case ALEA_OP_TOPK_SELECT:
        RUN(alea_topk_select, alea_topk_select_run(op, t[0], t[1], t[2], t[3], NULL, error));
    case ALEA_OP_TOPK_MASK:
        RUN(alea_topk_mask, alea_topk_mask_run(op, t[0], t[1], t[2], NULL, error));
    case ALEA_OP_MINP_MASK:
        RUN(alea_minp_mask, alea_minp_mask_run(op, t[0], t[1], t[2], NULL, error));
    case ALEA_OP_TOPP_MASK:
        RUN(alea_topp_mask, alea_topp_mask_run(op, t[0], t[1], t[2], NULL, error));
    case ALEA_OP_TOPK_TOPP_MASK:
        RUN(alea_topk_topp_mask, alea_topk_topp_mask_run(op, t[0], t[1], t[2], t[3], NULL, error));
    case ALEA_OP_SAMPLE_PROBS:
        RUN(alea_sample_probs,
            alea_sample_probs_run(op, t[0], t[1], t[2], t[3], t[4], NULL, error));
    case ALEA_OP_CHAIN_SAMPLE:
        RUN(alea_chain_sample,
            alea_chain_sample_run(op, t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], NULL, error));
    case ALEA_OP_LOGPROBS: {
        const alea_logprobs_tensors tensors = {sizeof tensors, t[0], t[1], t[2], t[3], t[4],
                                               t[5],           t[6], t[7], t[8], t[9]};
        RUN(alea_logprobs, alea_logprobs_run(op, &tensors, NULL, error));
    }
    case ALEA_OP_CHAIN_LOGITS: {
        const alea_chain_logits_tensors tensors = {sizeof tensors, t[0], t[1], t[2], t[3], t[4],
                                                   t[5],           t[6], t[7], t[8], t[9]};
        RUN(alea_chain_logits, alea_chain_logits_run(op, &tensors, NULL, error));
    }
    default: {
        const alea_sample_logits_tensors tensors = {
            sizeof tensors, t[0], t[1],  t[2],  t[3],  t[4],  t[5],  t[6],  t[7],
            t[8],           t[9], t[10], t[11], t[12], t[13], t[14], t[15], t[16]};
        RUN(alea_sample_logits, alea_sample_logits_run(op, &tensors, NULL, error));
    }
    }
}

static void poison_outputs(const call *c) {
    for (int32_t i = 0; i < c->n; i++) {
        if (c->t[i].is_output) memset(c->t[i].buffer, 0x5a, c->t[i].watched);
    }
}

/* A dense mask holds, entry for entry, the input or -inf. */
static void check_mask(const call *c) {
    const size_t n = (size_t)c->rows * (size_t)c->vocab;
    const bool half = c->dtype != ALEA_FLOAT32;
    const uint32_t dropped = !half ? 0xff800000u : c->dtype == ALEA_FLOAT16 ? 0xfc00u : 0xff80u;
    for (size_t i = 0; i < n; i++) {
        uint32_t in = 0, out = 0;
        memcpy(&in, c->t[1].buffer + SLACK + i * (half ? 2 : 4), half ? 2 : 4);
        memcpy(&out, c->t[0].buffer + SLACK + i * (half ? 2 : 4), half ? 2 : 4);
        check(out == in || out == dropped);
    }
}

static void check_written(const call *c, alea_status status, bool spoiled) {
    for (int32_t i = 0; i < c->n; i++) {
        const tensor *t = &c->t[i];
        if (!t->is_output || spoiled) continue;
        const size_t bytes = status < 0 ? 0 : elements(t) * (t->dl.dtype.bits / 8u);
        for (size_t j = 0; j < t->watched; j++) {
            if (j < SLACK || j >= SLACK + bytes) check(t->buffer[j] == 0x5a);
        }
    }
    if (status < 0 || spoiled) return;
    const bool is_mask = c->kind >= ALEA_OP_TOPK_MASK && c->kind <= ALEA_OP_TOPK_TOPP_MASK;
    if (is_mask) check_mask(c);
    if (c->kind == ALEA_OP_SAMPLE_PROBS) {
        for (int64_t i = 0; i < c->rows; i++) {
            int32_t token;
            memcpy(&token, c->t[0].buffer + SLACK + 4 * i, 4);
            check(token >= 0 && token < c->vocab);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int32_t vocabs[] = {0,    1,    2,    3,    5,    8,        13,   16,
                                     17,   31,   33,   64,   65,   100,      1023, 1024,
                                     1025, 1500, 2049, 4099, 9000, VOCAB_MAX};
    static uint8_t *kept; /* outputs of the first run */
    static call c;
    source s = {data, size, 0};
    if (!pool) pool = malloc((size_t)TENSORS * BUFFER);
    if (!kept) kept = malloc((size_t)TENSORS * BUFFER);
    if (!pool || !kept) return 0;

    memset(&c, 0, sizeof c);
    c.kind = (alea_op_kind)pick(&s, ALEA_OP_KINDS);
    c.dtype = (alea_dtype)(1 + pick(&s, 3));
    c.rows = pick(&s, ROWS_MAX + 1);
    c.vocab = vocabs[pick(&s, sizeof vocabs / sizeof *vocabs)];
    c.flags = pick(&s, 4) == 0 ? ALEA_OP_CHECK_VALUES : 0;
    c.topk = c.kind == ALEA_OP_TOPK_SELECT ? 1 + (int32_t)pick(&s, 40)
             : c.kind == ALEA_OP_LOGPROBS || c.kind == ALEA_OP_SAMPLE_LOGITS ? (int32_t)pick(&s, 22)
                                                                             : 0;
    const int32_t threads = pick(&s, 16) == 0 ? 3 : 1;
    const bool spoiled = pick(&s, 4) == 0;
    make_tensors(&s, &c);
    if (spoiled) spoil(&s, &c);
    DLTensor *t[TENSORS] = {NULL};
    for (int32_t i = 0; i < c.n; i++)
        t[i] = c.t[i].buffer ? &c.t[i].dl : NULL;
    for (int32_t i = 0; i < c.n; i++) { /* an argument left out keeps its place, not its memory */
        if (!c.t[i].buffer) c.t[i].buffer = pool + (size_t)i * BUFFER;
    }

    alea_error error = {0}, reference_error = {0};
    poison_outputs(&c);
    const alea_status status = run(&c, "cpu", threads, t, &error);
    check_written(&c, status, spoiled);
    check(status >= 0 || error.message[0] != 0);
    for (int32_t i = 0; i < c.n; i++) {
        if (c.t[i].is_output) memcpy(kept + (size_t)i * BUFFER, c.t[i].buffer, c.t[i].watched);
    }
    poison_outputs(&c);
    check(run(&c, "cpu-ref", 1, t, &reference_error) == status);
    for (int32_t i = 0; i < c.n; i++) {
        if (!c.t[i].is_output) continue;
        check(!memcmp(kept + (size_t)i * BUFFER, c.t[i].buffer, c.t[i].watched));
    }
    return 0;
}
