/*
 * The core that runs models through libllama on the CPU. llama.h is included in this folder only.
 *
 * Rows are batch invariant by default: the bits of a row depend on its sequence's tokens alone, not
 * on chunking, neighbours, copies or threads. ALEA_CORE_FAST leaves the choice of kernels to
 * libllama.
 */
#ifndef ALEA_CORE_LLAMA_CORE_LLAMA_H
#define ALEA_CORE_LLAMA_CORE_LLAMA_H

#include "alea/core.h"

const alea_core_api *alea__core_llama(void);

/* Version, variant and source of the libllama that is built in, for reports. */
const char *alea__core_llama_build(void);

#endif
