/*
 * What `alea score` is given: whole files, or lines of JSON in one of three forms. Everything is
 * checked here, so that scoring sees valid UTF-8 and complete questions only.
 */
#ifndef ALEA_CLI_INPUT_H
#define ALEA_CLI_INPUT_H

#include <stdbool.h>

#include "alea/base.h"

#ifndef ALEA_INPUT_BYTES_MAX /* a test has less memory */
#define ALEA_INPUT_BYTES_MAX ((size_t)1 << 30)
#endif

/* Bytes of our own, growing. */
typedef struct alea_input_buffer {
    uint8_t *data;
    size_t length, capacity;
} alea_input_buffer;

void alea__buffer_free(alea_input_buffer *buffer);

/* Lines as they come from a descriptor. Start with {.fd = …}. */
typedef struct alea_lines {
    int fd;
    size_t at, end; /* what is unread of `bytes` */
    uint8_t bytes[1 << 14];
} alea_lines;

/* Whether reading on would wait for whoever writes. */
bool alea__lines_would_wait(const alea_lines *lines);

/* The next line, its newline included; empty at the end. `name` names it in complaints; ALEA_EIO,
 * ALEA_ELIMIT, ALEA_ENOMEM, ALEA_ECANCELLED. */
alea_status alea__read_line(alea_lines *lines, const char *name,
                            alea_input_buffer *line) ALEA_MUST_USE;

/* Read a whole file; "-" is standard input. Complains; ALEA_EIO, ALEA_EFORMAT (not UTF-8, at which
 * byte), ALEA_ELIMIT, ALEA_ENOMEM, ALEA_ECANCELLED. */
alea_status alea__read_text(const char *path, alea_input_buffer *buffer) ALEA_MUST_USE;

/* The same as a string, which the caller frees. A NUL in it would cut it: ALEA_EFORMAT. */
alea_status alea__read_string(const char *path, char **text) ALEA_MUST_USE;

#endif
