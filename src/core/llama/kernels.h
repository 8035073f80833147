/*
 * ggml's CPU kernels as Alea uses them: whether this machine can run them, which mode they are in,
 * and for which weights their sums are the same for every batch.
 */
#ifndef ALEA_CORE_LLAMA_KERNELS_H
#define ALEA_CORE_LLAMA_KERNELS_H

#include "core/llama/gguf_check.h"

/* ALEA_EUNSUPPORTED: they were compiled for instructions that this machine lacks; names them. */
alea_status alea__llama_kernels_check(alea_error *error) ALEA_MUST_USE;

/*
 * Weights in libllama's rearranged layouts are faster. Some of those layouts take another sum for
 * a few rows than for many (Q4_K, Q2_K, IQ4_NL); with them in the model, keep to the plain ones.
 */
bool alea__llama_kernels_may_rearrange(const alea_gguf_facts *facts);

/* Whether the invariant mode covers a model of such weights. */
bool alea__llama_kernels_invariant(const alea_gguf_facts *facts);

/*
 * Between enter and leave, ggml computes in the given mode. The mode is one for the process:
 * entering waits until nobody computes in the other one.
 */
void alea__llama_kernels_enter(bool invariant);
void alea__llama_kernels_leave(void);

#endif
