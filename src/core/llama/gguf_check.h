/*
 * A GGUF file's structure, checked before an engine sees it: magic, version, counts, string
 * lengths, value types, tensor shapes and types, alignment, and that all tensor data lies inside
 * the file. What the keys mean is left to the engine.
 */
#ifndef ALEA_CORE_LLAMA_GGUF_CHECK_H
#define ALEA_CORE_LLAMA_GGUF_CHECK_H

#include <stdbool.h>

#include "alea/base.h"

typedef struct alea_gguf_facts {
    char architecture[64]; /* empty: the file names none */
    uint64_t file_bytes;
    uint64_t tensors;
    uint64_t matrix_types; /* bit per ggml type below 64 among tensors of two or more dimensions */
    uint64_t unaligned_types; /* those of them with a tensor whose rows are no multiple of 32 */
    bool experts;             /* a mixture of experts */
    bool split;               /* more files belong to it; they were not looked at */
} alea_gguf_facts;

/*
 * Check the file at `path`.
 *
 * Shape     —
 * Domain    any bytes, any path
 * Result    *facts
 * Exact     —
 * Errors    ALEA_EIO (no such file, a directory, unreadable), ALEA_EFORMAT (what is wrong and
 *           where), ALEA_EUNSUPPORTED (version, byte order): *facts untouched
 * Memory    one fixed buffer on the stack; nothing in proportion to what the file claims
 * Threads   reentrant
 */
alea_status alea__gguf_check(const char *path, alea_gguf_facts *facts,
                             alea_error *error) ALEA_MUST_USE;

/* The end of a path, short enough for an error message. */
const char *alea__path_tail(const char *path);

#endif
