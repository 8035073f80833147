/*
 * Parameters of model and context, and every reason to refuse a model. libllama's defaults are
 * taken first and changed by name, because its structs change between releases.
 */
#include "core/llama/open.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/pool.h"
#include "core/llama/guard.h"
#include "core/llama/kernels.h"
#include "core/llama/llama_log.h"
#include "ggml-backend.h"
#include "llama.h"

#if defined(__x86_64__)
/* Parameters are passed by value: another release's header would corrupt them silently. */
_Static_assert(sizeof(struct llama_model_params) == 80, "llama.h is not of the pinned release");
_Static_assert(sizeof(struct llama_context_params) == 160, "llama.h is not of the pinned release");
_Static_assert(sizeof(struct llama_batch) == 56, "llama.h is not of the pinned release");
_Static_assert(sizeof(struct ggml_tensor) == 336, "ggml.h is not of the pinned release");
#endif

enum { SEQUENCES_MAX = 256, CELLS_STEP = 256, ROWS_STANDARD = 64, ROWS_BYTES = 4 << 20 };

static pthread_once_t backend_once = PTHREAD_ONCE_INIT;

static void start_backend(void) {
    alea__llama_log_take();
    llama_backend_init();
}

static alea_status complain(alea_error *error, alea_status status, const char *path,
                            const char *what, const char *thrown) {
    char complaint[200];
    alea__llama_log_complaint(complaint, sizeof(complaint));
    return alea_error_set(error, status, "model '%.60s': %s: %.160s", alea__path_tail(path), what,
                          complaint[0] != '\0' ? complaint
                          : thrown[0] != '\0'  ? thrown
                                               : "libllama gives no reason");
}

/* ---- the model ---- */

typedef struct load_call {
    const char *path;
    struct llama_model_params params;
    struct llama_model *model;
} load_call;

static void load(void *argument) {
    load_call *call = argument;
    call->model = llama_model_load_from_file(call->path, call->params);
}

typedef struct progress_relay {
    const alea_core_options *options;
    bool cancelled;
} progress_relay;

static bool relay_progress(float done, void *user) {
    progress_relay *relay = user;
    if (relay->options->progress == NULL) return true;
    if (!relay->options->progress(done, relay->options->progress_user)) relay->cancelled = true;
    return !relay->cancelled;
}

static alea_status load_model(const alea_core_options *options, const alea_gguf_facts *facts,
                              bool trial, struct llama_model **model, alea_error *error) {
    load_call call = {.path = options->model, .params = llama_model_default_params()};
    progress_relay relay = {.options = options};
    char thrown[160] = "";
    call.params.n_gpu_layers = 0;
    call.params.vocab_only = (options->flags & ALEA_CORE_VOCAB_ONLY) != 0;
    call.params.use_extra_bufts = !trial && ((options->flags & ALEA_CORE_FAST) != 0 ||
                                             alea__llama_kernels_may_rearrange(facts));
    call.params.progress_callback = relay_progress;
    call.params.progress_callback_user_data = &relay;
    alea__llama_log_clear();
    if (!alea__guard(load, &call, thrown, sizeof(thrown)) || call.model == NULL) {
        if (relay.cancelled) return alea_error_set(error, ALEA_ECANCELLED, "loading was cancelled");
        return complain(error, ALEA_EFORMAT, options->model, "libllama cannot load it", thrown);
    }
    *model = call.model;
    return ALEA_OK;
}

static bool meta_is(const struct llama_model *model, const char *key, const char *value) {
    char architecture[64] = "";
    char full[128];
    char found[32];
    if (llama_model_meta_val_str(model, "general.architecture", architecture,
                                 sizeof(architecture)) < 0)
        return false;
    snprintf(full, sizeof(full), "%s.%s", architecture, key);
    return llama_model_meta_val_str(model, full, found, sizeof(found)) >= 0 &&
           strcmp(found, value) == 0;
}

/* Models that give no next-token logits, or not in rows that only look back. */
static alea_status refuse_unfit(const struct llama_model *model, const char *path,
                                alea_error *error) {
    const char *name = alea__path_tail(path);
    if (llama_model_has_encoder(model))
        return alea_error_set(error, ALEA_EUNSUPPORTED,
                              "model '%s' has an encoder; only decoder models are run", name);
    if (llama_model_is_diffusion(model))
        return alea_error_set(error, ALEA_EUNSUPPORTED,
                              "model '%s' is a diffusion model; it has no next-token logits", name);
    if (!llama_model_has_decoder(model) || meta_is(model, "attention.causal", "false"))
        return alea_error_set(error, ALEA_EUNSUPPORTED,
                              "model '%s' is an embedding model; it has no next-token logits",
                              name);
    if (llama_vocab_n_tokens(llama_model_get_vocab(model)) < 1)
        return alea_error_set(error, ALEA_EUNSUPPORTED, "model '%s' has no vocabulary", name);
    return ALEA_OK;
}

/* ---- the context ---- */

typedef struct context_call {
    struct llama_model *model;
    struct llama_context_params params;
    struct llama_context *context;
} context_call;

static void make(void *argument) {
    context_call *call = argument;
    call->context = llama_init_from_model(call->model, call->params);
}

static uint64_t meta_number(const struct llama_model *model, const char *key, uint64_t otherwise) {
    char architecture[64] = "";
    char full[128];
    char text[32];
    if (llama_model_meta_val_str(model, "general.architecture", architecture,
                                 sizeof(architecture)) < 0)
        return otherwise;
    snprintf(full, sizeof(full), "%s.%s", architecture, key);
    if (llama_model_meta_val_str(model, full, text, sizeof(text)) < 0) return otherwise;
    const unsigned long long value = strtoull(text, NULL, 10);
    return value > 0 && value < 1u << 20 ? value : otherwise;
}

/* Keys and values of every cell in F16, for plain attention with equal layers. */
static uint64_t cache_bytes_of(const struct llama_model *model, uint64_t cells) {
    const int32_t heads = llama_model_n_head(model);
    const uint64_t head = heads > 0 ? (uint64_t)llama_model_n_embd(model) / (uint64_t)heads : 0;
    const uint64_t width = meta_number(model, "attention.key_length", head) +
                           meta_number(model, "attention.value_length", head);
    const int32_t kv_heads = llama_model_n_head_kv(model);
    const int32_t layers = llama_model_n_layer(model);
    if (kv_heads < 0 || layers < 0) return 0;
    return cells * width * (uint64_t)kv_heads * (uint64_t)layers * sizeof(uint16_t);
}

/* What the kernel says could be had without swapping; 0: unknown. */
static uint64_t available_bytes(void) {
    FILE *file = fopen("/proc/meminfo", "re");
    unsigned long long kilobytes = 0;
    char line[128];
    if (file == NULL) return 0;
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1) break;
    }
    fclose(file);
    return kilobytes * 1024;
}

static int32_t larger(int32_t a, int32_t b) {
    return a > b ? a : b;
}

/* 64, which bounds what rows take of memory; or as many as little memory holds: with a vocabulary
 * of some hundred tokens a round of 64 costs more than its rows. */
static int32_t default_rows(const alea_core_options *options, const struct llama_model *model) {
    const int32_t vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    if (options->round_rows > 0) return options->round_rows;
    return larger(ROWS_STANDARD, ROWS_BYTES / ((int32_t)sizeof(float) * vocab));
}

static alea_status size_context(const alea_core_options *options, const struct llama_model *model,
                                struct llama_context_params *params, uint64_t *cache_bytes,
                                alea_error *error) {
    const int32_t trained = llama_model_n_ctx_train(model);
    const int32_t cells = options->context_tokens > 0 ? options->context_tokens : trained;
    const int32_t sequences = options->sequences > 0 ? options->sequences : 1;
    if (trained < 1)
        return alea_error_set(error, ALEA_EFORMAT,
                              "model '%s' claims a context of %d tokens: it is damaged",
                              alea__path_tail(options->model), trained);
    if (cells > trained)
        return alea_error_set(error, ALEA_EINVAL,
                              "context of %d tokens: model '%s' supports at most %d", cells,
                              alea__path_tail(options->model), trained);
    if (sequences > SEQUENCES_MAX)
        return alea_error_set(error, ALEA_EINVAL, "%d sequences: libllama has at most %d",
                              sequences, SEQUENCES_MAX);
    const uint64_t padded = ((uint64_t)cells + CELLS_STEP - 1) / CELLS_STEP * CELLS_STEP;
    const uint64_t all = padded * (uint64_t)sequences;
    if (all > UINT32_MAX / 2)
        return alea_error_set(error, ALEA_ELIMIT,
                              "%d sequences of %d tokens are too many cells; use fewer", sequences,
                              cells);
    const int32_t tokens =
        larger(options->round_tokens > 0 ? options->round_tokens : 512, sequences);
    int32_t rows = larger(default_rows(options, model), sequences);
    if (rows > tokens) rows = tokens;
    params->n_ctx = (uint32_t)all;
    params->n_seq_max = (uint32_t)sequences;
    params->n_batch = (uint32_t)tokens;
    params->n_ubatch = (uint32_t)(tokens < 512 ? tokens : 512);
    params->n_outputs_max = (uint32_t)rows; /* more rows than this would end the process */
    *cache_bytes = cache_bytes_of(model, all);
    return ALEA_OK;
}

static alea_status check_memory(const alea_core_options *options, const struct llama_model *model,
                                const struct llama_context_params *params, uint64_t cache_bytes,
                                alea_error *error) {
    const uint64_t vocab = (uint64_t)llama_vocab_n_tokens(llama_model_get_vocab(model));
    const uint64_t rows = 2 * vocab * sizeof(float) * params->n_outputs_max;
    const uint64_t available = available_bytes();
    if (available == 0 || cache_bytes + rows <= available) return ALEA_OK;
    return alea_error_set(error, ALEA_ENOMEM,
                          "%u sequences of %u tokens need %llu MiB and %llu are free; lower the "
                          "context or the number of sequences (model '%.60s')",
                          params->n_seq_max, params->n_ctx / params->n_seq_max,
                          (unsigned long long)((cache_bytes + rows) >> 20),
                          (unsigned long long)(available >> 20), alea__path_tail(options->model));
}

static alea_status make_context(const alea_core_options *options, alea_llama_engine *engine,
                                alea_error *error) {
    context_call call = {.model = engine->model, .params = llama_context_default_params()};
    alea_status status =
        size_context(options, engine->model, &call.params, &engine->cache_bytes, error);
    if (status == ALEA_OK)
        status = check_memory(options, engine->model, &call.params, engine->cache_bytes, error);
    if (status < 0) return status;
    engine->round_rows = (int32_t)call.params.n_outputs_max;
    char thrown[160] = "";
    const bool fast = (options->flags & ALEA_CORE_FAST) != 0;
    engine->threads = options->threads > 0 ? options->threads : alea__cpu_count();
    if (engine->threads > GGML_MAX_N_THREADS) engine->threads = GGML_MAX_N_THREADS;
    call.params.n_threads = engine->threads;
    call.params.n_threads_batch = engine->threads;
    call.params.flash_attn_type = fast ? LLAMA_FLASH_ATTN_TYPE_AUTO : LLAMA_FLASH_ATTN_TYPE_ENABLED;
    /* One stream for each sequence, from cell 0 on: the attention kernel sums in tiles of cells. */
    call.params.kv_unified = false;
    call.params.type_k = GGML_TYPE_F16;
    call.params.type_v = GGML_TYPE_F16;
    call.params.swa_full = true; /* cells that slid out of a window are kept: trims need them */
    call.params.offload_kqv = false;
    call.params.op_offload = false;
    call.params.no_perf = true;
    alea__llama_log_clear();
    if (!alea__guard(make, &call, thrown, sizeof(thrown)) || call.context == NULL)
        return complain(error, ALEA_ECORE, options->model, "libllama makes no context", thrown);
    engine->context = call.context;
    if (llama_pooling_type(call.context) > LLAMA_POOLING_TYPE_NONE ||
        !llama_get_causal_attn(call.context))
        return alea_error_set(error, ALEA_EUNSUPPORTED,
                              "model '%s' is an embedding model; it has no next-token logits",
                              alea__path_tail(options->model));
    return ALEA_OK;
}

/*
 * Without a pool libllama makes threads for every round and ends them. They do not poll for the
 * next one: between rounds the processors are those of the rows' reduction. Signals stay with the
 * threads that wait for them.
 */
static alea_status attach_pool(alea_llama_engine *engine, alea_error *error) {
    if (engine->threads < 2) return ALEA_OK;
    struct ggml_threadpool_params params = ggml_threadpool_params_default(engine->threads);
    params.poll = 0;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    engine->pool = ggml_threadpool_new(&params);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (engine->pool == NULL)
        return alea_error_set(error, ALEA_ENOMEM, "libllama makes no pool of %d threads",
                              (int)engine->threads);
    llama_attach_threadpool(engine->context, engine->pool, engine->pool);
    return ALEA_OK;
}

alea_status alea__llama_engine_open(const alea_core_options *options, const alea_gguf_facts *facts,
                                    bool trial, alea_llama_engine *engine, alea_error *error) {
    alea_llama_engine made = {.model = NULL};
    pthread_once(&backend_once, start_backend);
    if (strcmp(llama_version(), ALEA_LLAMA_VERSION) != 0 ||
        ggml_cpu_alea_version() != GGML_CPU_ALEA)
        return alea_error_set(error, ALEA_EUNSUPPORTED,
                              "libllama %s is linked, %s with Alea's edits is needed; run "
                              "tools/build-llama and build again",
                              llama_version(), ALEA_LLAMA_VERSION);
    alea_status status = load_model(options, facts, trial, &made.model, error);
    if (status < 0) return status;
    const bool vocab_only = (options->flags & ALEA_CORE_VOCAB_ONLY) != 0;
    if (!vocab_only) status = refuse_unfit(made.model, options->model, error);
    if (!vocab_only && status == ALEA_OK) status = make_context(options, &made, error);
    if (!vocab_only && status == ALEA_OK) status = attach_pool(&made, error);
    if (status < 0) {
        alea__llama_engine_close(&made);
        return status;
    }
    *engine = made;
    return ALEA_OK;
}

void alea__llama_engine_close(alea_llama_engine *engine) {
    if (engine->context != NULL) llama_free(engine->context);
    if (engine->pool != NULL) ggml_threadpool_free(engine->pool);
    if (engine->model != NULL) llama_model_free(engine->model);
    *engine = (alea_llama_engine){.model = NULL};
}
