/*
 * Where results go: stdout, or a file that appears under its name only when it is complete. The
 * first failed write is reported in one line; after it everything is refused.
 */
#ifndef ALEA_CLI_OUTPUT_H
#define ALEA_CLI_OUTPUT_H

#include "cli/cli.h"

#define ALEA_OUTPUT_BUFFER_BYTES (1 << 16)

typedef struct alea_output {
    int fd;
    bool failed;
    char *temporary;  /* what --output is written to; NULL: written in place */
    char *target;     /* what the temporary file will replace: path, links followed */
    const char *path; /* NULL: stdout */
    size_t used;
    char buffer[ALEA_OUTPUT_BUFFER_BYTES];
} alea_output;

/* `path` as --output gives it, or NULL. A device or a pipe is written in place, anything else
 * through a temporary file beside it, which takes over the rights of a file that it replaces; a
 * symbolic link stays and what it names is replaced. Complains on failure. */
alea_status alea__output_open(alea_output *output, const char *path) ALEA_MUST_USE;

/* Both complain once, with the reason; then ALEA_EIO for good. */
alea_status alea__output_write(alea_output *output, const void *data, size_t bytes) ALEA_MUST_USE;
alea_status alea__output_flush(alea_output *output) ALEA_MUST_USE;

/* Removes what an open output has written so far. For a signal that ends the process. */
void alea__output_abandon(void);

/* Write what is left. With keep == false, or after a failure, an --output file is not made. */
alea_status alea__output_close(alea_output *output, bool keep) ALEA_MUST_USE;

/* The same at the end of a command: kept where `code` is ALEA_EXIT_OK; the code that follows. */
alea_exit alea__output_finish(alea_output *output, alea_exit code);

#endif
