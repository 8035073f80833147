/*
 * A core in one file: a byte-level bigram model. "--model some.txt" makes it count, in that text,
 * which byte follows which; its rows are the logarithms of those counts.
 *
 * It shows the whole of alea/core.h: what a core owns, what it may take for granted (arguments
 * were checked above it) and what it must leave to Alea (sampling and scoring). It is a shared
 * object that links nothing of Alea, so it fills errors by itself.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alea/core.h"

enum {
    BYTES = 256,
    END = 256, /* a token of its own: the text is over */
    VOCAB = 257,
    CONTEXTS = 258, /* what a row may follow: any token, or nothing known */
    UNKNOWN = 257
};

typedef struct bigram {
    alea_core base; /* first, so that the two pointers are one */
    int32_t context_tokens, sequences, round_tokens, round_rows;
    uint16_t *memory;  /* [sequences, context_tokens]: what each position holds */
    int32_t *lengths;  /* [sequences] */
    uint16_t *pending; /* [round_rows]: the context of each row of the round */
    int32_t n_rows;
    uint8_t bytes[BYTES]; /* the identity, for token_info to point into */
    float logits[CONTEXTS][VOCAB];
} bigram;

static alea_status fail(alea_error *error, alea_status status, const char *format, ...) {
    if (error) {
        va_list args;
        va_start(args, format);
        vsnprintf(error->message, sizeof error->message, format, args);
        va_end(args);
        error->status = status;
    }
    return status;
}

/* Every continuation keeps a little probability: a row must hold something finite. */
static alea_status learn(bigram *core, const char *path, alea_error *error) {
    static const double smoothing = 0.01;
    FILE *file = fopen(path, "rb");
    if (!file) return fail(error, ALEA_EIO, "bigram: cannot read %.160s; name a text file", path);
    double(*counts)[VOCAB] = calloc(CONTEXTS, sizeof *counts);
    if (!counts) {
        fclose(file);
        return fail(error, ALEA_ENOMEM, "bigram: out of memory");
    }
    int before = UNKNOWN;
    for (int byte; (byte = fgetc(file)) != EOF; before = byte) {
        counts[before][byte]++;
        if (before != UNKNOWN) counts[UNKNOWN][byte]++;
    }
    if (before != UNKNOWN) counts[before][END]++;
    const bool broken = ferror(file) != 0;
    fclose(file);
    for (int i = 0; i < CONTEXTS; i++)
        for (int j = 0; j < VOCAB; j++)
            core->logits[i][j] = (float)log(counts[i][j] + smoothing);
    free(counts);
    return broken ? fail(error, ALEA_EIO, "bigram: reading %.160s failed", path) : ALEA_OK;
}

static void bigram_close(alea_core *base) {
    bigram *core = (bigram *)base;
    free(core->memory);
    free(core->lengths);
    free(core->pending);
    free(core);
}

static int32_t or_default(int32_t value, int32_t otherwise) {
    return value > 0 ? value : otherwise;
}

static alea_status bigram_open(const alea_core_options *options, alea_core **opened,
                               alea_error *error) {
    bigram *core = calloc(1, sizeof *core);
    if (!core) return fail(error, ALEA_ENOMEM, "bigram: out of memory");
    core->context_tokens = or_default(options->context_tokens, 4096);
    core->sequences = or_default(options->sequences, 1);
    core->round_tokens = or_default(options->round_tokens, 512);
    core->round_rows = or_default(options->round_rows, 64);
    const size_t positions = (size_t)core->context_tokens * (size_t)core->sequences;
    core->memory = calloc(positions, sizeof *core->memory);
    core->lengths = calloc((size_t)core->sequences, sizeof *core->lengths);
    core->pending = calloc((size_t)core->round_rows, sizeof *core->pending);
    for (int i = 0; i < BYTES; i++)
        core->bytes[i] = (uint8_t)i;
    alea_status status = ALEA_OK;
    if (!core->memory || !core->lengths || !core->pending)
        status = fail(error, ALEA_ENOMEM, "bigram: %zu positions were refused", positions);
    if (status == ALEA_OK && !(options->flags & ALEA_CORE_VOCAB_ONLY))
        status = learn(core, options->model, error);
    if (status < 0)
        bigram_close(&core->base);
    else
        *opened = &core->base;
    return status;
}

static void bigram_describe(const alea_core *base, alea_core_info *info) {
    const bigram *core = (const bigram *)base;
    info->core = "bigram";
    info->build = "example";
    info->model = "byte bigrams of a text";
    info->architecture = "bigram";
    info->tokenizer = "bytes";
    info->vocab = VOCAB;
    info->context_tokens = core->context_tokens;
    info->sequences = core->sequences;
    info->round_tokens = core->round_tokens;
    info->round_rows = core->round_rows;
    info->threads = 1;
    info->parameters = (uint64_t)CONTEXTS * VOCAB;
    info->weight_bytes = sizeof core->logits;
    info->bos = info->pad = -1;
    info->eos = info->eot = END;
    info->batch_invariant = true; /* a row is a line of a table */
}

static void bigram_token_info(const alea_core *base, int32_t token, alea_token_info *info) {
    static const char end[] = "<end>";
    const bigram *core = (const bigram *)base;
    *info = (alea_token_info){.flags = ALEA_TOKEN_CONTROL | ALEA_TOKEN_END};
    info->name = (alea_bytes){(const uint8_t *)end, sizeof end - 1};
    if (token == END) return;
    info->bytes = info->name = (alea_bytes){&core->bytes[token], 1};
    info->flags = 0;
}

static alea_status bigram_tokenize(const alea_core *base, alea_bytes text, uint32_t flags,
                                   int32_t *tokens, size_t capacity, size_t *count) {
    (void)base;
    (void)flags;
    for (size_t i = 0; i < text.length && i < capacity; i++)
        tokens[i] = text.data[i];
    *count = text.length;
    return ALEA_OK;
}

/* All work of a round happens here: remember each position, note which rows were asked for. */
static alea_status bigram_submit(alea_core *base, const alea_round *round, alea_error *error) {
    bigram *core = (bigram *)base;
    (void)error;
    core->n_rows = 0;
    for (int32_t i = 0; i < round->n_items; i++) {
        const alea_round_item *item = &round->items[i];
        uint16_t *memory = core->memory + (size_t)item->sequence * (size_t)core->context_tokens;
        for (int32_t j = 0; j < item->span.length; j++) {
            const bool token = item->span.kind == ALEA_SPAN_TOKENS;
            const uint16_t held = token ? (uint16_t)item->span.tokens[j] : UNKNOWN;
            memory[item->position + j] = held;
            if (j >= item->first_row) core->pending[core->n_rows++] = held;
        }
        core->lengths[item->sequence] = item->position + item->span.length;
    }
    return ALEA_OK;
}

static alea_status bigram_wait(alea_core *base, alea_error *error) {
    (void)base;
    (void)error;
    return ALEA_OK;
}

static const float *bigram_row(alea_core *base, int32_t index) {
    const bigram *core = (const bigram *)base;
    return core->logits[core->pending[index]];
}

static int32_t bigram_sequence_length(const alea_core *base, int32_t sequence) {
    return ((const bigram *)base)->lengths[sequence];
}

static alea_status bigram_sequence_copy(alea_core *base, int32_t from, int32_t to) {
    bigram *core = (bigram *)base;
    const size_t stride = (size_t)core->context_tokens;
    memmove(core->memory + (size_t)to * stride, core->memory + (size_t)from * stride,
            stride * sizeof *core->memory);
    core->lengths[to] = core->lengths[from];
    return ALEA_OK;
}

static alea_status bigram_sequence_trim(alea_core *base, int32_t sequence, int32_t length) {
    ((bigram *)base)->lengths[sequence] = length;
    return ALEA_OK;
}

/* The one symbol that a core exports. The build hides every other. */
ALEA_API const alea_core_api *alea_core_entry(void);

const alea_core_api *alea_core_entry(void) {
    static const alea_core_api api = {
        .abi = ALEA_CORE_ABI,
        .struct_bytes = sizeof api,
        .name = "bigram",
        .open = bigram_open,
        .close = bigram_close,
        .describe = bigram_describe,
        .token_info = bigram_token_info,
        .tokenize = bigram_tokenize,
        .submit = bigram_submit,
        .wait = bigram_wait,
        .row = bigram_row,
        .sequence_length = bigram_sequence_length,
        .sequence_copy = bigram_sequence_copy,
        .sequence_trim = bigram_sequence_trim,
        .manifest = NULL, /* raw rows: Alea does the rest, with everything it can offer */
    };
    return &api;
}
