/* From a path to a loaded model and a context, and the trial of both in another process. */
#ifndef ALEA_CORE_LLAMA_OPEN_H
#define ALEA_CORE_LLAMA_OPEN_H

#include "alea/core.h"
#include "core/llama/gguf_check.h"

struct llama_model;
struct llama_context;

typedef struct alea_llama_engine {
    struct llama_model *model;
    struct llama_context *context; /* NULL with ALEA_CORE_VOCAB_ONLY */
    int32_t threads;
    uint64_t cache_bytes;
} alea_llama_engine;

/*
 * Load the model and make a context for it. With `trial` no weights are read and no memory for
 * them or for the context is taken; everything else is done.
 */
alea_status alea__llama_engine_open(const alea_core_options *options, const alea_gguf_facts *facts,
                                    bool trial, alea_llama_engine *engine,
                                    alea_error *error) ALEA_MUST_USE;
void alea__llama_engine_close(alea_llama_engine *engine);

/*
 * Try alea__llama_engine_open in a forked child and tokenize there, so that an assertion, a fault
 * or an endless loop over a damaged file ends the child only. Its complaint becomes the error.
 *
 * This is the cheapest trial that can be trusted: loading of the vocabulary and of the
 * hyperparameters, the tensors' shapes and the layout of the graphs are where libllama asserts,
 * and all of them run; weights are numbers that no check depends on, and they are not read.
 */
alea_status alea__llama_probe(const alea_core_options *options, const alea_gguf_facts *facts,
                              alea_error *error) ALEA_MUST_USE;

#endif
