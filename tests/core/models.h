/* Models for the tests of the libllama core: tiny ones made on the spot, and the real one. */
#ifndef TESTS_CORE_MODELS_H
#define TESTS_CORE_MODELS_H

#include "alea/core.h"

#define MODEL_PATH_BYTES 512

/* Makes a tiny model with alea-tiny-gguf's options ("--type q4_k"); fails the test if it cannot. */
void tiny_model(const char *options, char path[MODEL_PATH_BYTES]);
/* Deletes what tiny_model and scratch_path made. */
void remove_models(void);
/* A path for a file of the test's own. */
void scratch_path(const char *name, char path[MODEL_PATH_BYTES]);

/* The default model, or ALEA_TEST_MODEL; NULL where it is absent: skip then. */
const char *real_model(void);

/* Opens or fails the test; 0 in a number is the core's choice. */
alea_core *open_llama(const char *path, uint32_t flags, int32_t context_tokens, int32_t sequences,
                      int32_t rows, int32_t threads);

#endif
