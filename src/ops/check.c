/*
 * Checks that read no values: presence, rank, dtype, device, shape, strides, address, extent,
 * overlap, limits, in this order. The first fault found is named with its argument.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "ops/check.h"

/* The bytes that a tensor touches: [first, end), and for two dimensions its rows' distance. */
typedef struct extent {
    uintptr_t first, end;
    size_t row_bytes, pitch_bytes; /* of the last dimension and the one before; 0: one row */
} extent;

typedef struct checker {
    const alea_op_rules *rules;
    const alea_op_config *config;
    const DLTensor *const *tensors;
    int64_t sizes[128]; /* by letter; -1: not seen yet */
    int32_t owner[128]; /* the argument that set it */
    extent extents[ALEA_OP_TENSORS_MAX];
    alea_error *error;
} checker;

uint32_t alea__dtype_bit(DLDataType dtype) {
    if (dtype.lanes != 1) return 0;
    if (dtype.code == kDLFloat) {
        return dtype.bits == 16   ? ALEA_BIT_F16
               : dtype.bits == 32 ? ALEA_BIT_F32
               : dtype.bits == 64 ? ALEA_BIT_F64
                                  : 0;
    }
    if (dtype.code == kDLBfloat) return dtype.bits == 16 ? ALEA_BIT_BF16 : 0;
    if (dtype.code == kDLInt) {
        return dtype.bits == 32 ? ALEA_BIT_I32 : dtype.bits == 64 ? ALEA_BIT_I64 : 0;
    }
    return 0;
}

int32_t alea__device_type(const DLTensor *tensor) {
    const int32_t type = (int32_t)tensor->device.device_type;
    return type == kDLCUDAHost ? kDLCPU : type;
}

static const char *dtype_names(uint32_t bits) {
    switch (bits) {
    case ALEA_BIT_F16: return "float16";
    case ALEA_BIT_BF16: return "bfloat16";
    case ALEA_BIT_F32: return "float32";
    case ALEA_BIT_F64: return "float64";
    case ALEA_BIT_I32: return "int32";
    case ALEA_BIT_I64: return "int64";
    case ALEA_BIT_LOGITS: return "float16, bfloat16 or float32";
    default: return "a dtype that no operator takes";
    }
}

static const char *letter_name(char letter) {
    switch (letter) {
    case 'r': return "rows";
    case 'v': return "vocab";
    case 'n': return "drafts";
    case 'm': return "drafts + 1";
    case 'b': return "batch";
    case 's': return "queries";
    case 'g': return "groups";
    case 't': return "topk";
    default: return "1 or rows";
    }
}

static uint32_t config_dtype(const alea_op_config *config) {
    switch (config->dtype) {
    case ALEA_FLOAT16: return ALEA_BIT_F16;
    case ALEA_BFLOAT16: return ALEA_BIT_BF16;
    case ALEA_FLOAT32: return ALEA_BIT_F32;
    default: return ALEA_BIT_LOGITS;
    }
}

static alea_status check_dtype(checker *c, int32_t i) {
    const alea_op_argument *rule = &c->rules->arguments[i];
    const DLTensor *tensor = c->tensors[i];
    const uint32_t bit = alea__dtype_bit(tensor->dtype);
    const bool logits = rule->dtypes == ALEA_BIT_LOGITS;
    const uint32_t allowed = logits ? config_dtype(c->config) : rule->dtypes;
    if (!(bit & allowed)) {
        return alea_error_set(c->error, ALEA_EINVAL,
                              "%s has dtype code %d of %d bits and %d lanes; it must be %s",
                              rule->name, tensor->dtype.code, tensor->dtype.bits,
                              tensor->dtype.lanes, dtype_names(allowed));
    }
    return ALEA_OK;
}

/* An output that is like another tensor has its dtype too: `masked` that of `logits`. */
static alea_status check_masked(checker *c) {
    if (!(c->rules->arguments[0].flags & ALEA_ARG_MASKED)) return ALEA_OK;
    if (alea__dtype_bit(c->tensors[0]->dtype) == alea__dtype_bit(c->tensors[1]->dtype)) {
        return ALEA_OK;
    }
    return alea_error_set(c->error, ALEA_EINVAL, "masked is %s and logits is %s: they must agree",
                          dtype_names(alea__dtype_bit(c->tensors[0]->dtype)),
                          dtype_names(alea__dtype_bit(c->tensors[1]->dtype)));
}

static alea_status bind_size(checker *c, int32_t i, int32_t d, char letter, int64_t size) {
    const char *name = c->rules->arguments[i].name;
    if (letter == '1') {
        if (size == 1 || size == c->sizes['r']) return ALEA_OK;
        return alea_error_set(c->error, ALEA_EINVAL,
                              "%s has %lld entries; it takes 1, or one for each of %lld rows", name,
                              (long long)size, (long long)c->sizes['r']);
    }
    /* Drafts are counted by `n`; rows of drafts and one more by `m`. */
    const int64_t less = letter == 'm' ? 1 : 0;
    const unsigned char slot = (unsigned char)(letter == 'm' ? 'n' : letter);
    if (c->sizes[slot] < 0) {
        c->sizes[slot] = size - less;
        c->owner[slot] = i;
        return ALEA_OK;
    }
    if (c->sizes[slot] == size - less) return ALEA_OK;
    return alea_error_set(
        c->error, ALEA_EINVAL, "%s has %lld in dimension %d (%s) where %s calls for %lld", name,
        (long long)size, d, letter_name(letter),
        c->owner[slot] < 0 ? "the config's topk" : c->rules->arguments[c->owner[slot]].name,
        (long long)(c->sizes[slot] + less));
}

static alea_status check_shape(checker *c, int32_t i) {
    const alea_op_argument *rule = &c->rules->arguments[i];
    const DLTensor *tensor = c->tensors[i];
    for (int32_t d = 0; d < tensor->ndim; d++) {
        if (tensor->shape[d] < 0) {
            return alea_error_set(c->error, ALEA_EINVAL, "%s has the negative size %lld",
                                  rule->name, (long long)tensor->shape[d]);
        }
        const alea_status status = bind_size(c, i, d, rule->shape[d], tensor->shape[d]);
        if (status < 0) return status;
    }
    return ALEA_OK;
}

static alea_status check_one(checker *c, int32_t i) {
    const alea_op_argument *rule = &c->rules->arguments[i];
    const DLTensor *tensor = c->tensors[i];
    const int32_t rank = (int32_t)strlen(rule->shape);
    if (tensor->ndim != rank) {
        return alea_error_set(c->error, ALEA_EINVAL, "%s has %d dimensions; it must have %d",
                              rule->name, tensor->ndim, rank);
    }
    if (!tensor->shape) {
        return alea_error_set(c->error, ALEA_EINVAL, "%s has no shape", rule->name);
    }
    alea_status status = check_dtype(c, i);
    if (status < 0) return status;
    const DLTensor *first = NULL;
    for (int32_t j = 0; !first; j++)
        first = c->tensors[j];
    if (alea__device_type(tensor) != alea__device_type(first) ||
        (alea__device_type(tensor) != kDLCPU &&
         tensor->device.device_id != first->device.device_id)) {
        return alea_error_set(c->error, ALEA_EINVAL,
                              "%s is on device %d:%d and other tensors are on %d:%d", rule->name,
                              (int)tensor->device.device_type, tensor->device.device_id,
                              (int)first->device.device_type, first->device.device_id);
    }
    return check_shape(c, i);
}

static int64_t stride_of(const DLTensor *tensor, int32_t d) {
    if (tensor->strides) return tensor->strides[d];
    int64_t stride = 1;
    for (int32_t e = d + 1; e < tensor->ndim; e++) {
        if (__builtin_mul_overflow(stride, tensor->shape[e], &stride)) return INT64_MAX;
    }
    return stride;
}

/* Every element of an output has an address of its own: sorted by stride, each dimension steps
 * over all that the smaller ones reach. What it spans is known to fit. */
static bool elements_are_distinct(const DLTensor *tensor) {
    int64_t reach = 0;
    uint32_t done = 0;
    for (int32_t n = 0; n < tensor->ndim; n++) {
        int32_t best = -1;
        for (int32_t d = 0; d < tensor->ndim; d++) {
            if (done & 1u << d) continue;
            if (best < 0 || stride_of(tensor, d) < stride_of(tensor, best)) best = d;
        }
        done |= 1u << best;
        if (tensor->shape[best] < 2) continue;
        const int64_t stride = stride_of(tensor, best);
        if (stride <= reach) return false;
        reach += stride * (tensor->shape[best] - 1);
    }
    return true;
}

/* Strides, address and the bytes touched. */
static alea_status check_memory(checker *c, int32_t i) {
    const alea_op_argument *rule = &c->rules->arguments[i];
    const DLTensor *tensor = c->tensors[i];
    const size_t element_bytes = tensor->dtype.bits / 8u;
    bool empty = false;
    size_t reach = 0; /* elements from the first to the last */
    for (int32_t d = 0; d < tensor->ndim; d++)
        empty |= tensor->shape[d] == 0;
    if (empty) return ALEA_OK;
    for (int32_t d = 0; d < tensor->ndim; d++) {
        if (tensor->shape[d] == 1) continue;
        const int64_t stride = stride_of(tensor, d);
        if (stride < 0) {
            return alea_error_set(c->error, ALEA_EINVAL, "%s has the negative stride %lld",
                                  rule->name, (long long)stride);
        }
        if (d == tensor->ndim - 1 && stride != 1 && !(rule->flags & ALEA_ARG_ANY_STRIDE)) {
            return alea_error_set(c->error, ALEA_EINVAL,
                                  "%s has stride %lld in its last dimension; it must be 1, so make "
                                  "the tensor contiguous",
                                  rule->name, (long long)stride);
        }
        size_t step;
        if (!alea__size_mul((size_t)stride, (size_t)(tensor->shape[d] - 1), &step) ||
            !alea__size_add(reach, step, &reach)) {
            return alea_error_set(c->error, ALEA_ELIMIT, "%s spans more than the address space",
                                  rule->name);
        }
    }
    size_t bytes;
    const uintptr_t base = (uintptr_t)tensor->data;
    uintptr_t first, end;
    if (!alea__size_add(reach, 1, &bytes) || !alea__size_mul(bytes, element_bytes, &bytes) ||
        __builtin_add_overflow(base, (uintptr_t)tensor->byte_offset, &first) ||
        __builtin_add_overflow(first, (uintptr_t)bytes, &end) || bytes > PTRDIFF_MAX) {
        return alea_error_set(c->error, ALEA_ELIMIT, "%s spans more than the address space",
                              rule->name);
    }
    if (!tensor->data) {
        return alea_error_set(c->error, ALEA_EINVAL, "%s has no data", rule->name);
    }
    if (first % element_bytes != 0) {
        return alea_error_set(
            c->error, ALEA_EINVAL,
            "%s is misaligned: data + byte_offset must be a multiple of %zu bytes", rule->name,
            element_bytes);
    }
    if ((rule->flags & ALEA_ARG_OUT) && !elements_are_distinct(tensor)) {
        return alea_error_set(c->error, ALEA_EINVAL,
                              "%s has strides that make its elements overlap", rule->name);
    }
    extent *e = &c->extents[i];
    e->first = first;
    e->end = end;
    if (tensor->ndim == 2 && tensor->shape[0] > 1) {
        e->row_bytes = ((size_t)tensor->shape[1] - 1) * (size_t)stride_of(tensor, 1) *
                           element_bytes * (tensor->shape[1] > 1) +
                       element_bytes;
        e->pitch_bytes = (size_t)stride_of(tensor, 0) * element_bytes;
    }
    return ALEA_OK;
}

/* Rows that take turns in one buffer do not overlap although their extents do. */
static bool extents_overlap(const extent *a, const extent *b) {
    if (a->first == a->end || b->first == b->end) return false;
    if (a->end <= b->first || b->end <= a->first) return false;
    if (a->pitch_bytes == 0 || a->pitch_bytes != b->pitch_bytes) return true;
    const size_t pitch = a->pitch_bytes;
    const size_t ahead = a->first >= b->first ? (a->first - b->first) % pitch
                                              : (pitch - (b->first - a->first) % pitch) % pitch;
    return ahead < b->row_bytes || pitch - ahead < a->row_bytes;
}

static bool same_elements(const DLTensor *a, const DLTensor *b) {
    if ((char *)a->data + a->byte_offset != (char *)b->data + b->byte_offset) return false;
    for (int32_t d = 0; d < a->ndim; d++) {
        if (a->shape[d] > 1 && stride_of(a, d) != stride_of(b, d)) return false;
    }
    return true;
}

static alea_status check_overlap(checker *c) {
    for (int32_t i = 0; i < c->rules->n_arguments; i++) {
        const alea_op_argument *out = &c->rules->arguments[i];
        if (!c->tensors[i] || !(out->flags & ALEA_ARG_OUT)) continue;
        for (int32_t j = 0; j < c->rules->n_arguments; j++) {
            const alea_op_argument *other = &c->rules->arguments[j];
            if (j == i || !c->tensors[j] || ((other->flags & ALEA_ARG_OUT) && j < i)) continue;
            if (!extents_overlap(&c->extents[i], &c->extents[j])) continue;
            const bool may = (out->flags & ALEA_ARG_MASKED) && j == 1;
            if (may && (c->config->flags & ALEA_OP_IN_PLACE) &&
                same_elements(c->tensors[i], c->tensors[j])) {
                continue;
            }
            return alea_error_set(c->error, ALEA_EINVAL, "%s overlaps %s%s", out->name, other->name,
                                  may ? "; working in place takes ALEA_OP_IN_PLACE and the same "
                                        "address and strides"
                                      : "");
        }
    }
    return ALEA_OK;
}

static alea_status check_limits(checker *c, alea_op_kind kind) {
    const alea_op_config *config = c->config;
    const char *row = kind == ALEA_OP_TOPK_SELECT ? "S_kv" : "vocab";
    const int64_t vocab = c->sizes['v'];
    const int64_t rows = c->sizes['r'];
    if (vocab == 0 && !c->rules->empty_rows) {
        return alea_error_set(c->error, ALEA_EINVAL, "%s has no entries: %s must be at least 1",
                              c->rules->arguments[c->owner['v']].name, row);
    }
    if (vocab > config->max_vocab) {
        return alea_error_set(c->error, ALEA_ELIMIT, "%s has %s %lld; the operator was made for %d",
                              c->rules->arguments[c->owner['v']].name, row, (long long)vocab,
                              config->max_vocab);
    }
    if (config->max_rows > 0 && rows > config->max_rows) {
        return alea_error_set(
            c->error, ALEA_ELIMIT, "%s has %lld rows; the operator was made for %lld",
            c->rules->arguments[c->owner['v']].name, (long long)rows, (long long)config->max_rows);
    }
    if (kind == ALEA_OP_TOPK_SELECT && config->topk > vocab) {
        return alea_error_set(c->error, ALEA_EINVAL, "topk is %d and scores has only S_kv %lld",
                              config->topk, (long long)vocab);
    }
    const bool chain = kind == ALEA_OP_CHAIN_SAMPLE || kind == ALEA_OP_CHAIN_LOGITS;
    if (chain && c->sizes['n'] < 1) {
        return alea_error_set(c->error, ALEA_EINVAL,
                              "draft_tokens has no drafts; N must be at least 1");
    }
    if (chain && c->sizes['n'] >= INT32_MAX) {
        return alea_error_set(c->error, ALEA_ELIMIT,
                              "draft_tokens has %lld drafts; 2^31 - 2 is the most",
                              (long long)c->sizes['n']);
    }
    return ALEA_OK;
}

/* Both models' logits come in one dtype. */
static alea_status check_chain_logits(checker *c) {
    const DLTensor *draft = c->tensors[3], *target = c->tensors[5];
    if (!draft || alea__dtype_bit(draft->dtype) == alea__dtype_bit(target->dtype)) return ALEA_OK;
    return alea_error_set(
        c->error, ALEA_EINVAL, "draft_logits is %s and target_logits is %s: they must agree",
        dtype_names(alea__dtype_bit(draft->dtype)), dtype_names(alea__dtype_bit(target->dtype)));
}

/* What the shapes alone cannot say about alea_logprobs: who fixes the number of alternatives. */
static alea_status check_logprobs(checker *c) {
    const DLTensor *const *t = c->tensors;
    const bool given = t[9] != NULL;
    if (given && t[9]->ndim == 2 && t[9]->shape && t[9]->shape[1] > ALEA_OP_GIVEN_MAX) {
        return alea_error_set(c->error, ALEA_ELIMIT, "given has %lld ids a row; %d is the most",
                              (long long)t[9]->shape[1], ALEA_OP_GIVEN_MAX);
    }
    if (!given) {
        c->sizes['t'] = c->config->topk;
        c->owner['t'] = -1;
    }
    if ((t[1] || t[2]) && !t[8]) {
        return alea_error_set(c->error, ALEA_EINVAL, "%s is given without tokens to report on",
                              t[1] ? "logprobs" : "ranks");
    }
    return ALEA_OK;
}

static void fill_sizes(const checker *c, alea_op_sizes *sizes) {
    int64_t value[128];
    for (int i = 0; i < 128; i++)
        value[i] = c->sizes[i] < 0 ? 0 : c->sizes[i];
    *sizes = (alea_op_sizes){.rows = value['r'],
                             .vocab = value['v'],
                             .drafts = value['n'],
                             .batch = value['b'],
                             .queries = value['s'],
                             .groups = value['g'],
                             .topk = value['t']};
}

alea_status alea__op_check(alea_op_kind kind, const alea_op_config *config,
                           const DLTensor *const *tensors, alea_op_sizes *sizes,
                           alea_error *error) {
    checker c = {
        .rules = alea__op_rules(kind), .config = config, .tensors = tensors, .error = error};
    for (int i = 0; i < 128; i++)
        c.sizes[i] = -1;
    if (kind == ALEA_OP_TOPK_SELECT || kind == ALEA_OP_SAMPLE_LOGITS) {
        c.sizes['t'] = config->topk;
        c.owner['t'] = -1;
    }
    for (int32_t i = 0; i < c.rules->n_arguments; i++) {
        if (!tensors[i] && !(c.rules->arguments[i].flags & ALEA_ARG_OPTIONAL)) {
            return alea_error_set(error, ALEA_EINVAL, "%s is NULL", c.rules->arguments[i].name);
        }
    }
    alea_status status = kind == ALEA_OP_LOGPROBS ? check_logprobs(&c) : ALEA_OK;
    /* Inputs first: they say what the sizes are, and outputs are held against them. */
    for (uint32_t out = 0; out < 2; out++) {
        for (int32_t i = 0; i < c.rules->n_arguments && status >= 0; i++) {
            if (!tensors[i] || (c.rules->arguments[i].flags & ALEA_ARG_OUT) != out) continue;
            status = check_one(&c, i);
        }
    }
    if (status >= 0) status = check_masked(&c);
    if (status >= 0 && kind == ALEA_OP_CHAIN_LOGITS) status = check_chain_logits(&c);
    if (status >= 0 && kind == ALEA_OP_TOPK_SELECT) {
        int64_t rows;
        if (__builtin_mul_overflow(c.sizes['b'], c.sizes['s'], &rows) ||
            __builtin_mul_overflow(rows, c.sizes['g'], &rows)) {
            return alea_error_set(error, ALEA_ELIMIT, "scores has too many rows: B * S * G");
        }
        c.sizes['r'] = rows;
    }
    if (status >= 0) status = check_limits(&c, kind);
    for (int32_t i = 0; i < c.rules->n_arguments && status >= 0; i++) {
        if (tensors[i]) status = check_memory(&c, i);
    }
    if (status >= 0) status = check_overlap(&c);
    if (status >= 0) fill_sizes(&c, sizes);
    return status;
}

alea_status alea__op_check_config(alea_op_kind kind, const alea_op_config *config,
                                  alea_error *error) {
    if (!config) return alea_error_set(error, ALEA_EINVAL, "config is NULL");
    if (config->struct_bytes != sizeof *config) {
        return alea_error_set(error, ALEA_EINVAL,
                              "config.struct_bytes is %u; this library's is %zu",
                              config->struct_bytes, sizeof *config);
    }
    if (config->flags & ~(uint32_t)(ALEA_OP_CHECK_VALUES | ALEA_OP_IN_PLACE)) {
        return alea_error_set(error, ALEA_EINVAL, "config.flags has unknown bits: 0x%x",
                              config->flags);
    }
    if ((config->flags & ALEA_OP_IN_PLACE) &&
        !(alea__op_rules(kind)->arguments[0].flags & ALEA_ARG_MASKED)) {
        return alea_error_set(error, ALEA_EINVAL, "config.flags asks for in place; %s is no mask",
                              alea_op_name(kind));
    }
    if (config->threads < 0 || config->threads > 1024) {
        return alea_error_set(error, ALEA_EINVAL, "config.threads is %d; the range is 0..1024",
                              config->threads);
    }
    if (config->max_vocab < 1 || config->max_vocab > ALEA_OP_VOCAB_MAX) {
        return alea_error_set(error, config->max_vocab < 1 ? ALEA_EINVAL : ALEA_ELIMIT,
                              "config.max_vocab is %d; the range is 1..%d", config->max_vocab,
                              ALEA_OP_VOCAB_MAX);
    }
    if (config->max_rows < 0) {
        return alea_error_set(error, ALEA_EINVAL, "config.max_rows is %lld; 0 means no limit",
                              (long long)config->max_rows);
    }
    const bool select = kind == ALEA_OP_TOPK_SELECT;
    const int32_t least = select ? 1 : 0;
    const bool reports = kind == ALEA_OP_LOGPROBS || kind == ALEA_OP_SAMPLE_LOGITS;
    const int32_t most = select    ? config->max_vocab
                         : reports ? ALEA_OP_ALTERNATIVES_MAX
                                   : INT32_MAX;
    if (config->topk < least || config->topk > most) {
        return alea_error_set(error, ALEA_EINVAL, "config.topk is %d; the range is %d..%d",
                              config->topk, least, most);
    }
    if ((unsigned)config->dtype > ALEA_FLOAT32) {
        return alea_error_set(error, ALEA_EINVAL, "config.dtype is %d; the range is 0..%d",
                              (int)config->dtype, (int)ALEA_FLOAT32);
    }
    return ALEA_OK;
}

char *alea__tensor_open(const DLTensor *tensor, int64_t *size, int64_t *step) {
    memset(size, 0, ALEA_OP_RANK_MAX * sizeof *size);
    memset(step, 0, ALEA_OP_RANK_MAX * sizeof *step);
    bool empty = false;
    for (int32_t d = 0; d < tensor->ndim; d++) {
        size[d] = tensor->shape[d];
        empty |= tensor->shape[d] == 0;
    }
    const int64_t element_bytes = tensor->dtype.bits / 8;
    int64_t compact = 1;
    for (int32_t d = tensor->ndim; !empty && d-- > 0;) {
        if (tensor->shape[d] == 1) continue;
        step[d] = element_bytes * (tensor->strides ? tensor->strides[d] : compact);
        if (!tensor->strides) compact *= tensor->shape[d];
    }
    return tensor->data ? (char *)tensor->data + tensor->byte_offset : NULL;
}

void alea__call_sizes(alea_op_kind kind, const int64_t *size, int32_t rank, int64_t *rows,
                      int32_t *vocab) {
    const bool select = kind == ALEA_OP_TOPK_SELECT;
    *rows = select ? size[0] * size[1] * size[3] : size[0];
    *vocab = (int32_t)size[select ? 2 : rank - 1];
}
