/*
 * A line in the making. It may be longer than memory should hold (a book's tokens are gigabytes
 * of JSON), and it may never be finished; so it grows in memory, then in a file without a name,
 * and reaches the output only when it is whole. An interrupted run therefore leaves whole lines.
 */
#ifndef ALEA_CLI_SPOOL_H
#define ALEA_CLI_SPOOL_H

#include "cli/output.h"

#define ALEA_SPOOL_MEMORY_BYTES ((size_t)8 << 20)

typedef struct alea_spool {
    uint8_t *memory;
    size_t used, capacity;
    uint64_t file_bytes; /* what went to the file, in front of what is in memory */
    int fd;              /* -1: no file yet */
    bool complained;
} alea_spool;

void alea__spool_init(alea_spool *spool);

/* Complains on failure: ALEA_ENOMEM, or ALEA_EIO where the directory for temporary files (TMPDIR,
 * else /tmp) cannot take it. */
alea_status alea__spool_write(alea_spool *spool, const void *data, size_t bytes) ALEA_MUST_USE;

/* Hand the whole to the output and be empty again. */
alea_status alea__spool_drain(alea_spool *spool, alea_output *output) ALEA_MUST_USE;

void alea__spool_clear(alea_spool *spool);
void alea__spool_free(alea_spool *spool);

#endif
