#include "api/script_core.h"

#include <stdlib.h>
#include <string.h>

enum { ROUND_TOKENS = 4096, ROUND_ROWS = 64, SEQUENCES_MAX = 64 };

typedef struct script_core {
    alea_core base;
    alea_core *inner;
    alea_core_info info;
    int32_t lengths[SEQUENCES_MAX];
    int32_t said[ROUND_ROWS]; /* the token that stands out in each row */
    float *row;
    int32_t raised; /* which one of the row stands out at present */
} script_core;

static struct {
    alea_core *inner;
    int32_t context_tokens, sequences;
    int32_t *tokens;
    int32_t n_tokens, first;
} script;

static const script_core *self_of(const alea_core *core) {
    return (const script_core *)(const void *)core;
}

/* Spread over -9..-1, so that alternatives differ and the order of ids says nothing. */
static float plain_logit(int32_t token) {
    return -1.0f - (float)((uint32_t)token * 2654435761u >> 16) / 8192.0f;
}

static alea_status core_open(const alea_core_options *options, alea_core **core,
                             alea_error *error) {
    (void)options, (void)error;
    script_core *self = calloc(1, sizeof *self);
    if (!self) return ALEA_ENOMEM;
    self->inner = script.inner;
    alea_core_describe(script.inner, &self->info);
    self->row = malloc((size_t)self->info.vocab * sizeof *self->row);
    for (int32_t token = 0; token < self->info.vocab; token++)
        self->row[token] = plain_logit(token);
    *core = &self->base;
    return ALEA_OK;
}

static void core_close(alea_core *core) {
    script_core *self = (script_core *)(void *)core;
    alea_core_close(self->inner);
    free(self->row);
    free(self);
    free(script.tokens);
    script.tokens = NULL;
}

static void core_describe(const alea_core *core, alea_core_info *info) {
    const uint32_t bytes = info->struct_bytes;
    *info = self_of(core)->info;
    info->struct_bytes = bytes;
    info->context_tokens = script.context_tokens;
    info->sequences = script.sequences;
    info->round_tokens = ROUND_TOKENS;
    info->round_rows = ROUND_ROWS;
    info->batch_invariant = true;
}

static void core_token(const alea_core *core, int32_t token, alea_token_info *info) {
    if (alea_core_token(self_of(core)->inner, token, info) < 0) abort();
}

static alea_status core_tokenize(const alea_core *core, alea_bytes text, uint32_t flags,
                                 int32_t *tokens, size_t capacity, size_t *count) {
    return alea_core_tokenize(self_of(core)->inner, text, flags, tokens, capacity, count);
}

static int32_t said_behind(const script_core *self, int32_t position) {
    const int32_t at = position - script.first;
    return at >= 0 && at < script.n_tokens ? script.tokens[at] : self->info.eos;
}

static alea_status core_submit(alea_core *core, const alea_round *round, alea_error *error) {
    (void)error;
    script_core *self = (script_core *)(void *)core;
    int32_t n_rows = 0;
    for (int32_t i = 0; i < round->n_items; i++) {
        const alea_round_item *item = &round->items[i];
        int32_t *length = &self->lengths[item->sequence];
        for (int32_t at = item->first_row; at < item->span.length; at++)
            self->said[n_rows++] = said_behind(self, *length + at);
        *length += item->span.length;
    }
    return ALEA_OK;
}

static alea_status core_wait(alea_core *core, alea_error *error) {
    (void)core, (void)error;
    return ALEA_OK;
}

/* One row of memory serves all: the engine of these tests has one row a round. */
static const float *core_row(alea_core *core, int32_t index) {
    script_core *self = (script_core *)(void *)core;
    self->row[self->raised] = plain_logit(self->raised);
    self->raised = self->said[index];
    self->row[self->raised] = 2.0f;
    return self->row;
}

static int32_t core_length(const alea_core *core, int32_t sequence) {
    return self_of(core)->lengths[sequence];
}

static alea_status core_copy(alea_core *core, int32_t from, int32_t to) {
    script_core *self = (script_core *)(void *)core;
    self->lengths[to] = self->lengths[from];
    return ALEA_OK;
}

static alea_status core_trim(alea_core *core, int32_t sequence, int32_t length) {
    script_core *self = (script_core *)(void *)core;
    self->lengths[sequence] = length;
    return ALEA_OK;
}

alea_core *script_core_open(alea_core *inner, int32_t context_tokens, int32_t sequences) {
    static const alea_core_api api = {
        .abi = ALEA_CORE_ABI,
        .struct_bytes = sizeof api,
        .name = "script",
        .open = core_open,
        .close = core_close,
        .describe = core_describe,
        .token_info = core_token,
        .tokenize = core_tokenize,
        .submit = core_submit,
        .wait = core_wait,
        .row = core_row,
        .sequence_length = core_length,
        .sequence_copy = core_copy,
        .sequence_trim = core_trim,
    };
    const alea_core_options options = {.struct_bytes = sizeof options, .model = ""};
    script.inner = inner;
    script.context_tokens = context_tokens;
    script.sequences = sequences;
    alea_core *core = NULL;
    return alea_core_open(&api, &options, &core, NULL) < 0 ? NULL : core;
}

void script_core_say(const int32_t *tokens, int32_t n_tokens, int32_t first) {
    free(script.tokens);
    script.tokens = malloc((size_t)n_tokens * sizeof *tokens + 1);
    memcpy(script.tokens, tokens, (size_t)n_tokens * sizeof *tokens);
    script.n_tokens = n_tokens;
    script.first = first;
}
