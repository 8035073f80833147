/* From a path to a loaded model and a context, and the trial of both in another process. */
#ifndef ALEA_CORE_LLAMA_OPEN_H
#define ALEA_CORE_LLAMA_OPEN_H

#include "alea/core.h"
#include "core/llama/gguf_check.h"

struct llama_model;
struct llama_context;
struct ggml_threadpool;

typedef struct alea_llama_engine {
    struct llama_model *model;
    struct llama_context *context; /* NULL with ALEA_CORE_VOCAB_ONLY */
    struct ggml_threadpool *pool;  /* NULL with one thread */
    int32_t threads;
    int32_t round_rows;
    uint64_t cache_bytes;
} alea_llama_engine;

/*
 * Load the model and make a context for it. With `trial` the weights stay where the file maps
 * them, so that the load is quick and takes no memory of its own.
 */
alea_status alea__llama_engine_open(const alea_core_options *options, const alea_gguf_facts *facts,
                                    bool trial, alea_llama_engine *engine,
                                    alea_error *error) ALEA_MUST_USE;
void alea__llama_engine_close(alea_llama_engine *engine);

/*
 * Load the model in a forked child, tokenize there and compute a few tokens, so that an assertion,
 * a fault or an endless loop over a damaged file ends the child only. Its complaint becomes the
 * error.
 *
 * This is the cheapest trial that can be trusted. Loading alone, even with the graphs laid out,
 * lets pass what ggml asserts only while it computes (a negative epsilon, a rope of no width). The
 * file is mapped, so the child reads each page of the weights once, which the load after it then
 * finds in memory: on a model of 135 M parameters the trial takes 0.1 s.
 */
alea_status alea__llama_probe(const alea_core_options *options, const alea_gguf_facts *facts,
                              alea_error *error) ALEA_MUST_USE;

#endif
