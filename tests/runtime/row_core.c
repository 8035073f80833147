#include "runtime/row_core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUND_TOKENS = 64, ROUND_ROWS = 16 };

typedef struct row_core {
    alea_core base;
    int32_t lengths[ROW_CORE_SEQUENCES];
    int32_t first[ROW_CORE_SEQUENCES];
    const float *rows[ROUND_ROWS];
    int32_t rounds;
} row_core;

static row_core_ways ways;

static alea_status core_open(const alea_core_options *options, alea_core **core,
                             alea_error *error) {
    (void)options, (void)error;
    row_core *self = calloc(1, sizeof *self);
    if (!self) return ALEA_ENOMEM;
    *core = &self->base;
    return ALEA_OK;
}

static void core_close(alea_core *core) {
    free(core);
}

static void core_describe(const alea_core *core, alea_core_info *info) {
    (void)core;
    info->core = "rows";
    info->build = info->model = info->architecture = info->tokenizer = "";
    info->vocab = ways.vocab;
    info->context_tokens = ROW_CORE_CONTEXT;
    info->sequences = ROW_CORE_SEQUENCES;
    info->round_tokens = ROUND_TOKENS;
    info->round_rows = ROUND_ROWS;
    info->bos = info->eos = info->eot = info->pad = -1;
    info->batch_invariant = true;
}

static void core_token(const alea_core *core, int32_t token, alea_token_info *info) {
    (void)core;
    static const uint8_t letters[] = "abcdefghijklmnopqrstuvwxyz";
    info->bytes = (alea_bytes){letters + token % 26, 1};
    info->name = info->bytes;
    info->flags = token == ways.end_token ? ALEA_TOKEN_END : 0;
}

static alea_status core_tokenize(const alea_core *core, alea_bytes text, uint32_t flags,
                                 int32_t *tokens, size_t capacity, size_t *count) {
    (void)core, (void)text, (void)flags, (void)tokens, (void)capacity;
    *count = 0;
    return ALEA_OK;
}

static alea_status core_submit(alea_core *core, const alea_round *round, alea_error *error) {
    (void)error;
    row_core *self = (row_core *)core;
    int32_t n_rows = 0;
    for (int32_t i = 0; i < round->n_items; i++) {
        const alea_round_item *item = &round->items[i];
        int32_t *length = &self->lengths[item->sequence];
        if (*length == 0) self->first[item->sequence] = item->span.tokens[0];
        for (int32_t at = item->first_row; at < item->span.length; at++)
            self->rows[n_rows++] = ways.row(self->first[item->sequence], *length + at);
        *length += item->span.length;
    }
    return ALEA_OK;
}

static alea_status core_wait(alea_core *core, alea_error *error) {
    row_core *self = (row_core *)core;
    const struct timespec nap = {ways.hang_ms / 1000, ways.hang_ms % 1000 * 1000000L};
    if (ways.hang_ms > 0) nanosleep(&nap, NULL);
    if (++self->rounds == ways.fail_round)
        return alea_error_set(error, ALEA_ECORE, "the engine is out of order");
    return ALEA_OK;
}

static const float *core_row(alea_core *core, int32_t index) {
    return ((row_core *)core)->rows[index];
}

static int32_t core_length(const alea_core *core, int32_t sequence) {
    return ((const row_core *)core)->lengths[sequence];
}

static alea_status core_copy(alea_core *core, int32_t from, int32_t to) {
    row_core *self = (row_core *)core;
    self->lengths[to] = self->lengths[from];
    self->first[to] = self->first[from];
    return ALEA_OK;
}

static alea_status core_trim(alea_core *core, int32_t sequence, int32_t length) {
    ((row_core *)core)->lengths[sequence] = length;
    return ALEA_OK;
}

rig row_core_open(const row_core_ways *asked, alea_engine_options options) {
    static const alea_core_api api = {
        .abi = ALEA_CORE_ABI,
        .struct_bytes = sizeof api,
        .name = "rows",
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
    ways = *asked;
    rig r = {0};
    alea_error error = {0};
    const alea_core_options core = {.struct_bytes = sizeof core, .model = ""};
    if (options.brief_rows == 0) options.brief_rows = -1; /* as rig_open does */
    if (alea_core_open(&api, &core, &r.core, &error) < 0 ||
        alea__engine_create(r.core, &options, &r.engine, &error) < 0)
        fail_msg("%s", error.message);
    return r;
}
