/*
 * The core's table: rounds, rows and sequences over a libllama context. It relies on the checks of
 * src/core/core.c; libllama would answer bad input by ending the process.
 *
 * Sequence lengths are kept here: asking libllama is slow for long sequences, and a pending copy
 * must count at once.
 */
#include "core/llama/core_llama.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "core/llama/guard.h"
#include "core/llama/kernels.h"
#include "core/llama/llama_log.h"
#include "core/llama/open.h"
#include "core/llama/vocab.h"
#include "llama.h"

typedef struct llama_core {
    alea_core base; /* first: the core is a pointer to it */
    alea_llama_engine engine;
    alea_llama_vocab vocab;
    struct llama_batch_ext *batch;
    bool invariant;
    int32_t *lengths; /* [sequences] positions of each */
    int32_t *order;   /* [sequences] items of the round by rising sequence id */
    int32_t *row_at;  /* [round_rows] index in the batch of the round's rows */
    int32_t *touched; /* [sequences] sequences of the round in flight */
    int32_t *grown;   /* [sequences] and what they grow to */
    int32_t n_touched;
    alea_core_info info;
    char build[128];
    char model[448];
    char architecture[64];
} llama_core;

static llama_core *core_of(alea_core *core) {
    return (llama_core *)core;
}

static const llama_core *const_core_of(const alea_core *core) {
    return (const llama_core *)core;
}

/* ---- open, close, describe ---- */

/* The file's name, and behind a comma what it does not say itself: "SmolLM2-135M-Instruct.Q4_1",
 * but "model, 135M Q4_1". libllama tells the size by the number of layers, and is wrong where two
 * sizes have the same. */
static void name_model(llama_core *core, const char *path) {
    char described[128] = "", name[256], size[32];
    (void)llama_model_desc(core->engine.model, described, sizeof(described));
    const char *type = strchr(described, ' '); /* behind the architecture and the size */
    type = type ? strchr(type + 1, ' ') : NULL;
    type = type ? type + 1 : "";
    const char *slash = strrchr(path, '/');
    snprintf(name, sizeof(name), "%s", slash ? slash + 1 : path);
    const size_t length = strlen(name);
    if (length > 5 && strcmp(name + length - 5, ".gguf") == 0) name[length - 5] = 0;
    const bool is_text = alea__utf8_valid((alea_bytes){(const uint8_t *)name, strlen(name)});
    for (char *at = name; *at; at++)
        if (iscntrl((unsigned char)*at) || (!is_text && !isascii((unsigned char)*at))) *at = '?';
    char letter = 'K';
    double parameters = (double)llama_model_n_params(core->engine.model) / 1e3;
    for (const char *next = "MB"; *next && parameters >= 999.5; next++, parameters /= 1e3)
        letter = *next;
    snprintf(size, sizeof(size), "%.*f%c", letter == 'B', parameters, letter);
    const bool has_size = strstr(name, size) != NULL;
    const bool has_type = strstr(name, type) != NULL;
    snprintf(core->model, sizeof(core->model), "%s%s%s%s%s%s", name,
             has_size && has_type ? "" : ",", has_size ? "" : " ", has_size ? "" : size,
             has_type ? "" : " ", has_type ? "" : type);
}

static void fill_info(llama_core *core, const alea_core_options *options,
                      const alea_gguf_facts *facts) {
    struct llama_model *model = core->engine.model;
    struct llama_context *context = core->engine.context;
    const struct llama_vocab *vocab = core->vocab.llama;
    alea_core_info *info = &core->info;
    snprintf(core->build, sizeof(core->build), "libllama %s, %s kernels", ALEA_LLAMA_BUILD,
             core->invariant ? "batch-invariant" : "stock");
    name_model(core, options->model);
    snprintf(core->architecture, sizeof(core->architecture), "%s", facts->architecture);
    *info = (alea_core_info){
        .struct_bytes = sizeof(*info),
        .core = "llama",
        .build = core->build,
        .model = core->model,
        .architecture = core->architecture,
        .tokenizer = alea__llama_vocab_type(vocab),
        .chat_template = llama_model_chat_template(model, NULL),
        .vocab = core->vocab.tokens,
        .trained_context_tokens = llama_model_n_ctx_train(model),
        .layers = llama_model_n_layer(model),
        .embedding = llama_model_n_embd(model),
        .parameters = llama_model_n_params(model),
        .weight_bytes = llama_model_size(model),
        .bos = llama_vocab_bos(vocab),
        .eos = llama_vocab_eos(vocab),
        .eot = llama_vocab_eot(vocab),
        .pad = llama_vocab_pad(vocab),
        .adds_bos = llama_vocab_get_add_bos(vocab),
        .batch_invariant = core->invariant && context != NULL,
    };
    if (context == NULL) return;
    info->context_tokens =
        options->context_tokens > 0 ? options->context_tokens : info->trained_context_tokens;
    info->sequences = (int32_t)llama_n_seq_max(context);
    info->round_tokens = (int32_t)llama_n_batch(context);
    info->round_rows = core->engine.round_rows;
    info->threads = core->engine.threads;
    info->cache_bytes = core->engine.cache_bytes;
    info->row_bytes = (uint64_t)info->round_rows * (uint64_t)core->vocab.tokens * sizeof(float);
}

static int32_t *new_array(int32_t count) {
    return calloc((size_t)count, sizeof(int32_t));
}

static alea_status make_buffers(llama_core *core, alea_error *error) {
    core->batch = llama_batch_ext_init(core->engine.context);
    core->lengths = new_array(core->info.sequences);
    core->order = new_array(core->info.sequences);
    core->touched = new_array(core->info.sequences);
    core->grown = new_array(core->info.sequences);
    core->row_at = new_array(core->info.round_rows);
    if (core->batch == NULL || core->lengths == NULL || core->order == NULL ||
        core->touched == NULL || core->grown == NULL || core->row_at == NULL)
        return alea_error_set(error, ALEA_ENOMEM, "out of memory for the rounds of %d sequences",
                              core->info.sequences);
    return ALEA_OK;
}

static void core_close(alea_core *base) {
    llama_core *core = core_of(base);
    if (core->batch != NULL) llama_batch_ext_free(core->batch);
    alea__llama_vocab_free(&core->vocab);
    alea__llama_engine_close(&core->engine);
    free(core->lengths);
    free(core->order);
    free(core->touched);
    free(core->grown);
    free(core->row_at);
    free(core);
}

static alea_status open_checked(llama_core *core, const alea_core_options *options,
                                const alea_gguf_facts *facts, alea_error *error) {
    const bool fast = (options->flags & ALEA_CORE_FAST) != 0;
    alea_status status = alea__llama_probe(options, facts, error);
    if (status == ALEA_OK)
        status = alea__llama_engine_open(options, facts, false, &core->engine, error);
    if (status == ALEA_OK)
        status =
            alea__llama_vocab_load(&core->vocab, llama_model_get_vocab(core->engine.model), error);
    if (status < 0) return status;
    const struct llama_model *model = core->engine.model;
    core->invariant = !fast && alea__llama_kernels_invariant(facts) &&
                      !llama_model_is_recurrent(model) && !llama_model_is_hybrid(model);
    fill_info(core, options, facts);
    return core->engine.context != NULL ? make_buffers(core, error) : ALEA_OK;
}

static alea_status core_open(const alea_core_options *options, alea_core **out, alea_error *error) {
    alea_gguf_facts facts;
    alea_status status = alea__llama_kernels_check(error);
    if (status == ALEA_OK) status = alea__gguf_check(options->model, &facts, error);
    if (status < 0) return status;
    llama_core *core = calloc(1, sizeof(*core));
    if (core == NULL) return alea_error_set(error, ALEA_ENOMEM, "out of memory for a core");
    status = open_checked(core, options, &facts, error);
    if (status < 0) {
        core_close(&core->base);
        return status;
    }
    *out = &core->base;
    return ALEA_OK;
}

static void core_describe(const alea_core *base, alea_core_info *info) {
    *info = const_core_of(base)->info;
}

static void core_token_info(const alea_core *base, int32_t token, alea_token_info *info) {
    *info = const_core_of(base)->vocab.info[token];
}

static alea_status core_tokenize(const alea_core *base, alea_bytes text, uint32_t flags,
                                 int32_t *tokens, size_t capacity, size_t *count) {
    return alea__llama_vocab_tokenize(&const_core_of(base)->vocab, text, flags, tokens, capacity,
                                      count);
}

/* ---- rounds ---- */

typedef struct round_call {
    llama_core *core;
    const alea_round *round;
    int32_t result;
} round_call;

/* Items by rising sequence: libllama computes neighbouring ids together and others apart. */
static void sort_items(llama_core *core, const alea_round *round) {
    for (int32_t i = 0; i < round->n_items; i++) {
        int32_t at = i;
        while (at > 0 && round->items[core->order[at - 1]].sequence > round->items[i].sequence) {
            core->order[at] = core->order[at - 1];
            at--;
        }
        core->order[at] = i;
    }
}

static int32_t first_row_of(const alea_round *round, int32_t item) {
    int32_t row = 0;
    for (int32_t i = 0; i < item; i++)
        row += round->items[i].span.length - round->items[i].first_row;
    return row;
}

static bool add_item(llama_core *core, const alea_round_item *item, int32_t row) {
    for (int32_t i = 0; i < item->span.length; i++) {
        const llama_pos position = item->position + i;
        const int32_t at =
            llama_batch_ext_add_token(core->batch, item->sequence, item->span.tokens[i]);
        if (at < 0 || !llama_batch_ext_set_pos(core->batch, at, &position)) return false;
        if (i < item->first_row) continue;
        if (!llama_batch_ext_set_output_logits(core->batch, at, true)) return false;
        core->row_at[row++] = at;
    }
    return true;
}

static void build_batch(void *argument) {
    round_call *call = argument;
    llama_core *core = call->core;
    llama_batch_ext_clear(core->batch);
    for (int32_t i = 0; i < call->round->n_items; i++) {
        const int32_t at = core->order[i];
        if (!add_item(core, &call->round->items[at], first_row_of(call->round, at))) {
            call->result = -1;
            return;
        }
    }
    call->result = 0;
}

static alea_status core_submit(alea_core *base, const alea_round *round, alea_error *error) {
    llama_core *core = core_of(base);
    for (int32_t i = 0; i < round->n_items; i++) {
        if (round->items[i].span.kind != ALEA_SPAN_TOKENS)
            return alea_error_set(error, ALEA_EUNSUPPORTED,
                                  "round item %d: this core takes tokens only", i);
    }
    char thrown[128] = "the batch is full";
    round_call call = {.core = core, .round = round, .result = -1};
    sort_items(core, round);
    if (!alea__guard(build_batch, &call, thrown, sizeof(thrown)) || call.result != 0)
        return alea_error_set(error, ALEA_ECORE, "libllama took no batch: %s", thrown);
    core->n_touched = round->n_items;
    for (int32_t i = 0; i < round->n_items; i++) {
        const alea_round_item *item = &round->items[i];
        core->touched[i] = item->sequence;
        core->grown[i] = item->position + item->span.length;
    }
    return ALEA_OK;
}

static void process(void *argument) {
    round_call *call = argument;
    struct llama_context *context = call->core->engine.context;
    call->result = llama_process(context, LLAMA_PROCESS_TYPE_DECODE, call->core->batch);
    llama_synchronize(context);
}

/* After a failure some of the round may be in the cache: ask what is there. */
static void recount(void *argument) {
    llama_core *core = argument;
    llama_memory_t memory = llama_get_memory(core->engine.context);
    for (int32_t i = 0; i < core->n_touched; i++) {
        const int32_t sequence = core->touched[i];
        core->lengths[sequence] = (int32_t)llama_memory_seq_pos_max(memory, sequence) + 1;
    }
}

static alea_status core_wait(alea_core *base, alea_error *error) {
    llama_core *core = core_of(base);
    round_call call = {.core = core, .result = -1};
    char thrown[128] = "";
    alea__llama_log_clear();
    alea__llama_kernels_enter(core->invariant);
    const bool returned = alea__guard(process, &call, thrown, sizeof(thrown));
    alea__llama_kernels_leave();
    if (returned && call.result == 0) {
        for (int32_t i = 0; i < core->n_touched; i++)
            core->lengths[core->touched[i]] = core->grown[i];
        return ALEA_OK;
    }
    char ignored[1]; /* the first failure is the one to report; lengths then stay as they were */
    (void)alea__guard(recount, core, ignored, sizeof(ignored));
    char complaint[200];
    alea__llama_log_complaint(complaint, sizeof(complaint));
    return alea_error_set(error, ALEA_ECORE, "libllama failed to compute a round (%d): %s",
                          call.result, thrown[0] != '\0' ? thrown : complaint);
}

static const float *core_row(alea_core *base, int32_t index) {
    llama_core *core = core_of(base);
    return llama_get_logits_ith(core->engine.context, core->row_at[index]);
}

/* ---- sequences ---- */

static int32_t core_sequence_length(const alea_core *base, int32_t sequence) {
    return const_core_of(base)->lengths[sequence];
}

/* A change of the sequence memory; its functions may throw like the others. */
typedef struct memory_call {
    llama_core *core;
    int32_t from, sequence;
    int32_t length;
    bool done;
} memory_call;

static void copy_sequence(void *argument) {
    memory_call *call = argument;
    llama_core *core = call->core;
    llama_memory_t memory = llama_get_memory(core->engine.context);
    if (!llama_memory_seq_rm(memory, call->sequence, -1, -1)) return;
    core->lengths[call->sequence] = 0;
    /* Whole sequences only: a part across streams would end the process. */
    if (core->lengths[call->from] > 0)
        llama_memory_seq_cp(memory, call->from, call->sequence, -1, -1);
    core->lengths[call->sequence] = core->lengths[call->from];
    call->done = true;
}

static alea_status core_sequence_copy(alea_core *base, int32_t from, int32_t to) {
    memory_call call = {.core = core_of(base), .from = from, .sequence = to};
    char thrown[1]; /* the table takes no words here */
    const bool returned = alea__guard(copy_sequence, &call, thrown, sizeof(thrown));
    return returned && call.done ? ALEA_OK : ALEA_ECORE;
}

static void trim_sequence(void *argument) {
    memory_call *call = argument;
    llama_core *core = call->core;
    const int32_t from = call->length == 0 ? -1 : call->length;
    call->done =
        llama_memory_seq_rm(llama_get_memory(core->engine.context), call->sequence, from, -1);
    if (call->done) core->lengths[call->sequence] = call->length;
}

static alea_status core_sequence_trim(alea_core *base, int32_t sequence, int32_t length) {
    memory_call call = {.core = core_of(base), .sequence = sequence, .length = length};
    char thrown[1];
    if (!alea__guard(trim_sequence, &call, thrown, sizeof(thrown))) return ALEA_ECORE;
    return call.done ? ALEA_OK : ALEA_EUNSUPPORTED;
}

static const alea_core_api table = {
    .abi = ALEA_CORE_ABI,
    .struct_bytes = sizeof(table),
    .name = "llama",
    .open = core_open,
    .close = core_close,
    .describe = core_describe,
    .token_info = core_token_info,
    .tokenize = core_tokenize,
    .submit = core_submit,
    .wait = core_wait,
    .row = core_row,
    .sequence_length = core_sequence_length,
    .sequence_copy = core_sequence_copy,
    .sequence_trim = core_sequence_trim,
};

const alea_core_api *alea__core_llama(void) {
    return &table;
}

const char *alea__core_llama_build(void) {
    return ALEA_LLAMA_BUILD;
}
