/*
 * The toy core: no weights, no files, the whole core ABI. Its logits are a hash of everything
 * that the sequence holds, tokens and opaque spans alike, so a wrong token, a wrong position, a
 * neighbour that leaks or a stale prefix changes every number of a row. Rows do not depend on
 * chunking or on the batch. It is the test bed of all that stands above a core.
 *
 * options->model is "key=value,…"; "" is all defaults. Where the options give a number too, it
 * wins.
 *
 *   vocab=320      261 or more; src/core/toy/toy_vocab.c lists the tokens, the rest is unused
 *   context=4096   positions of one sequence
 *   sequences=1
 *   seed=1         another seed, another model
 *   bos=1          whether the tokenizer adds the first token
 *   chat=1         whether there is a chat template
 *   trim=1         0: a sequence can only be dropped as a whole
 *
 * Logits lie in -10..10, uniform, unless:
 *   peak=N         id (last id + 1) mod vocab stands N above every other's bound
 *   text=1         text-like: a power law, letters and words first, an end about every few
 *                  hundred tokens
 *   ties=N         N different values only
 *   holes=P        P percent of the logits are -inf, never all
 *
 * Faults, off at -1:
 *   nan_at=P inf_at=P empty_at=P   the row behind position P holds NaN, holds +inf, is all -inf
 *   fault_sequence=S               the three above in sequence S alone
 *   refuse_at=R    submit of round R (counted from 0 over accepted and refused) fails, once
 *   fail_at=R      wait of round R fails, once; its sequences keep what submit appended
 *   slow_ms=N      a round takes N milliseconds longer
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "alea/core.h"
#include "base/size.h"
#include "core/toy/toy_model.h"
#include "core/toy/toy_vocab.h"

#define MEMORY_MAX_BYTES ((size_t)1 << 30) /* of one instance: refuse before the machine swaps */

typedef struct toy_position {
    uint64_t hash; /* of the sequence up to and including this position */
    int32_t token; /* -1: opaque */
} toy_position;

typedef struct toy_core {
    alea_core base;
    toy_settings settings;
    int32_t round_tokens;
    int32_t round_rows;
    bool vocab_only;
    toy_position *positions; /* [sequences, context] */
    int32_t *lengths;        /* [sequences] */
    toy_row *rows;           /* [round_rows]: what the present round asked for */
    float *logits;           /* [round_rows, vocab] */
    int32_t n_rows;
    int64_t round; /* number of the present round */
    char build[32];
    char model[96];
} toy_core;

static const char chat_template[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}";

static const toy_core *toy_of(const alea_core *core) {
    return (const toy_core *)(const void *)core;
}

static toy_core *toy_of_mutable(alea_core *core) {
    return (toy_core *)(void *)core;
}

static toy_position *sequence_of(const toy_core *toy, int32_t sequence) {
    return toy->positions + (size_t)sequence * (size_t)toy->settings.context;
}

/* ---- open and close ---- */

static void toy_close(alea_core *core) {
    toy_core *toy = toy_of_mutable(core);
    free(toy->positions);
    free(toy->lengths);
    free(toy->rows);
    free(toy->logits);
    free(toy);
}

static alea_status allocate(toy_core *toy, alea_error *error) {
    const size_t n_sequences = (size_t)toy->settings.sequences;
    size_t positions, logits, total;
    if (!alea__size_mul(n_sequences, (size_t)toy->settings.context, &positions) ||
        !alea__size_mul(positions, sizeof *toy->positions, &positions) ||
        !alea__size_mul((size_t)toy->round_rows, (size_t)toy->settings.vocab, &logits) ||
        !alea__size_mul(logits, sizeof *toy->logits, &logits) ||
        !alea__size_add(positions, logits, &total) || total > MEMORY_MAX_BYTES)
        return alea_error_set(
            error, ALEA_ELIMIT,
            "toy model: it would need more than 1 GiB; ask for a smaller context, "
            "fewer sequences or fewer rows a round");
    toy->positions = malloc(positions);
    toy->lengths = calloc(n_sequences, sizeof *toy->lengths);
    toy->rows = calloc((size_t)toy->round_rows, sizeof *toy->rows);
    toy->logits = malloc(logits);
    if (!toy->positions || !toy->lengths || !toy->rows || !toy->logits)
        return alea_error_set(error, ALEA_ENOMEM, "toy model: out of memory");
    return ALEA_OK;
}

static alea_status toy_open(const alea_core_options *options, alea_core **core, alea_error *error) {
    toy_settings settings;
    alea_status status = alea__toy_settings_parse(options->model, &settings, error);
    if (status < 0) return status;
    if (options->context_tokens) settings.context = options->context_tokens;
    if (options->sequences) settings.sequences = options->sequences;
    if (options->progress && !options->progress(0.0f, options->progress_user))
        return alea_error_set(error, ALEA_ECANCELLED, "toy model: opening was cancelled");

    toy_core *toy = calloc(1, sizeof *toy);
    if (!toy) return alea_error_set(error, ALEA_ENOMEM, "toy model: out of memory");
    toy->base.api = alea_core_toy();
    toy->settings = settings;
    const int32_t all = (int32_t)toy->settings.sequences; /* may decode in one round */
    toy->round_tokens = options->round_tokens ? options->round_tokens : all > 512 ? all : 512;
    toy->round_rows = options->round_rows ? options->round_rows : all > 64 ? all : 64;
    toy->vocab_only = options->flags & ALEA_CORE_VOCAB_ONLY;
    toy->round = -1;
    snprintf(toy->build, sizeof toy->build, "toy %s", alea_version());
    snprintf(toy->model, sizeof toy->model, "toy, %lld tokens, seed %lld",
             (long long)settings.vocab, (long long)settings.seed);
    if (!toy->vocab_only && (status = allocate(toy, error)) < 0) {
        toy_close(&toy->base);
        return status;
    }
    if (options->progress && !options->progress(1.0f, options->progress_user)) {
        toy_close(&toy->base);
        return alea_error_set(error, ALEA_ECANCELLED, "toy model: opening was cancelled");
    }
    *core = &toy->base;
    return ALEA_OK;
}

static void toy_describe(const alea_core *core, alea_core_info *info) {
    const toy_core *toy = toy_of(core);
    const toy_settings *s = &toy->settings;
    *info = (alea_core_info){
        .struct_bytes = sizeof *info,
        .core = "toy",
        .build = toy->build,
        .model = toy->model,
        .architecture = "toy",
        .tokenizer = "bytes",
        .chat_template = s->chat ? chat_template : NULL,
        .vocab = (int32_t)s->vocab,
        .trained_context_tokens = (int32_t)s->context,
        .context_tokens = (int32_t)s->context,
        .sequences = (int32_t)s->sequences,
        .round_tokens = toy->round_tokens,
        .round_rows = toy->round_rows,
        .threads = 1,
        .bos = TOY_BOS,
        .eos = TOY_EOS,
        .eot = TOY_IM_END,
        .pad = TOY_PAD,
        .adds_bos = s->bos,
        .batch_invariant = true,
    };
    if (toy->vocab_only) return;
    info->cache_bytes = (uint64_t)s->sequences * (uint64_t)s->context * sizeof(toy_position);
    info->row_bytes = (uint64_t)toy->round_rows * (uint64_t)s->vocab * sizeof(float);
}

/* ---- tokens ---- */

static void toy_token_info(const alea_core *core, int32_t token, alea_token_info *info) {
    (void)core;
    alea__toy_token_info(token, info);
}

static alea_status toy_tokenize(const alea_core *core, alea_bytes text, uint32_t flags,
                                int32_t *tokens, size_t capacity, size_t *count) {
    const toy_settings *s = &toy_of(core)->settings;
    const bool markup = flags & ALEA_TOKENIZE_MARKUP;
    const size_t n_bos = (flags & ALEA_TOKENIZE_SPECIAL) && s->bos ? 1 : 0;
    if (n_bos && capacity) tokens[0] = TOY_BOS;
    const bool room = capacity > n_bos;
    *count = n_bos + alea__toy_tokenize((int32_t)s->vocab, text, markup,
                                        room ? tokens + n_bos : NULL, room ? capacity - n_bos : 0);
    return ALEA_OK;
}

/* ---- rounds ---- */

static void append(toy_core *toy, const alea_round_item *item) {
    toy_position *positions = sequence_of(toy, item->sequence);
    uint64_t hash =
        item->position ? positions[item->position - 1].hash : alea__toy_hash_start(&toy->settings);
    const bool opaque = item->span.kind == ALEA_SPAN_OPAQUE;
    const uint64_t content = opaque ? alea__toy_hash_bytes(item->span.opaque) : 0;
    for (int32_t i = 0; i < item->span.length; i++) {
        const int32_t token = opaque ? -1 : item->span.tokens[i];
        hash = opaque ? alea__toy_hash_opaque(hash, content, i, item->span.length)
                      : alea__toy_hash_token(hash, token);
        positions[item->position + i] = (toy_position){hash, token};
        if (i < item->first_row) continue;
        toy->rows[toy->n_rows++] = (toy_row){hash, token, item->position + i, item->sequence};
    }
    toy->lengths[item->sequence] = item->position + item->span.length;
}

static alea_status toy_submit(alea_core *core, const alea_round *round, alea_error *error) {
    toy_core *toy = toy_of_mutable(core);
    if (toy->vocab_only)
        return alea_error_set(error, ALEA_EUNSUPPORTED,
                              "toy model: it was opened for its vocabulary alone");
    toy->round++;
    if (toy->round == toy->settings.refuse_at)
        return alea_error_set(error, ALEA_ECORE, "toy model: round %lld was refused, as asked",
                              (long long)toy->round);
    toy->n_rows = 0;
    for (int32_t i = 0; i < round->n_items; i++)
        append(toy, &round->items[i]);
    return ALEA_OK;
}

static void sleep_ms(int64_t ms) {
    struct timespec rest = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000L};
    while (nanosleep(&rest, &rest)) {
    }
}

static alea_status toy_wait(alea_core *core, alea_error *error) {
    toy_core *toy = toy_of_mutable(core);
    if (toy->settings.slow_ms) sleep_ms(toy->settings.slow_ms);
    if (toy->round == toy->settings.fail_at)
        return alea_error_set(error, ALEA_ECORE, "toy model: round %lld failed, as asked",
                              (long long)toy->round);
    for (int32_t i = 0; i < toy->n_rows; i++)
        alea__toy_logits(&toy->settings, &toy->rows[i],
                         toy->logits + (size_t)i * (size_t)toy->settings.vocab);
    return ALEA_OK;
}

static const float *toy_row_at(alea_core *core, int32_t index) {
    const toy_core *toy = toy_of(core);
    return toy->logits + (size_t)index * (size_t)toy->settings.vocab;
}

/* ---- sequences ---- */

static int32_t toy_sequence_length(const alea_core *core, int32_t sequence) {
    const toy_core *toy = toy_of(core);
    return toy->lengths ? toy->lengths[sequence] : 0;
}

static alea_status toy_sequence_copy(alea_core *core, int32_t from, int32_t to) {
    toy_core *toy = toy_of_mutable(core);
    if (from == to || !toy->lengths) return ALEA_OK;
    memcpy(sequence_of(toy, to), sequence_of(toy, from),
           (size_t)toy->lengths[from] * sizeof *toy->positions);
    toy->lengths[to] = toy->lengths[from];
    return ALEA_OK;
}

static alea_status toy_sequence_trim(alea_core *core, int32_t sequence, int32_t length) {
    toy_core *toy = toy_of_mutable(core);
    if (!toy->lengths || length >= toy->lengths[sequence]) return ALEA_OK;
    if (length && !toy->settings.trim) return ALEA_EUNSUPPORTED;
    toy->lengths[sequence] = length;
    return ALEA_OK;
}

const alea_core_api *alea_core_toy(void) {
    static const alea_core_api api = {
        .abi = ALEA_CORE_ABI,
        .struct_bytes = sizeof(alea_core_api),
        .name = "toy",
        .open = toy_open,
        .close = toy_close,
        .describe = toy_describe,
        .token_info = toy_token_info,
        .tokenize = toy_tokenize,
        .submit = toy_submit,
        .wait = toy_wait,
        .row = toy_row_at,
        .sequence_length = toy_sequence_length,
        .sequence_copy = toy_sequence_copy,
        .sequence_trim = toy_sequence_trim,
    };
    return &api;
}
