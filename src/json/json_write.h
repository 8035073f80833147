/*
 * A streaming JSON writer: commas, escapes and numbers are right by construction. It writes into a
 * heap buffer that grows to a bound, or through the caller's bytes into a flush function; then
 * memory is flat however long the document is.
 *
 * The one thing to know: errors stick. Write a whole document, then ask alea__json_finish once;
 * after an error nothing more is written, so what was flushed before is a prefix of the document.
 */
#ifndef ALEA_JSON_JSON_WRITE_H
#define ALEA_JSON_JSON_WRITE_H

#include <stdbool.h>

#include "alea/base.h"

#define ALEA_JSON_WRITE_DEPTH_MAX 64

/* Takes all bytes or fails; its failure becomes the writer's. */
typedef alea_status (*alea_json_flush)(void *user, const char *data, size_t length);

/* Read `data` and `length` in a growing buffer; leave the rest alone. */
typedef struct alea_json_writer {
    char *data;
    size_t length, capacity;
    size_t bytes_max;      /* growing buffer: its bound */
    alea_json_flush flush; /* NULL: growing buffer */
    void *flush_user;
    alea_status status;
    int32_t depth;
    uint64_t is_object; /* bit d: the container at depth d is an object */
    uint64_t has_items; /* bit d: the next item at depth d needs a comma */
    bool after_key;
    bool document_done; /* at depth 0: only a newline may follow */
} alea_json_writer;

/* A growing buffer of at most `bytes_max` bytes; takes no memory yet. */
void alea__json_write_to_buffer(alea_json_writer *writer, size_t bytes_max);

/* Through buffer [capacity], capacity > 0, which the caller keeps. */
void alea__json_write_to_flush(alea_json_writer *writer, char *buffer, size_t capacity,
                               alea_json_flush flush, void *user);

/* Begin again, with the memory that is there; forgets an error too. */
void alea__json_write_reset(alea_json_writer *writer);

/* Give a growing buffer back. */
void alea__json_write_free(alea_json_writer *writer);

void alea__json_begin_object(alea_json_writer *writer);
void alea__json_end_object(alea_json_writer *writer);
void alea__json_begin_array(alea_json_writer *writer);
void alea__json_end_array(alea_json_writer *writer);

/* A member's name, valid UTF-8. Its value must follow. */
void alea__json_key(alea_json_writer *writer, const char *name);
void alea__json_key_bytes(alea_json_writer *writer, alea_bytes name);

void alea__json_null(alea_json_writer *writer);
void alea__json_bool(alea_json_writer *writer, bool value);
void alea__json_int(alea_json_writer *writer, int64_t value);
void alea__json_uint(alea_json_writer *writer, uint64_t value);
void alea__json_float(alea_json_writer *writer, float value);   /* not finite: ALEA_EINVAL */
void alea__json_double(alea_json_writer *writer, double value); /* not finite: ALEA_EINVAL */
void alea__json_logprob_value(alea_json_writer *writer, float logprob); /* NaN, +inf: ALEA_EROW */

/* A key and its value. */
void alea__json_put_cstring(alea_json_writer *writer, const char *name, const char *text);
void alea__json_put_int(alea_json_writer *writer, const char *name, int64_t value);
void alea__json_put_bool(alea_json_writer *writer, const char *name, bool value);
void alea__json_put_null(alea_json_writer *writer, const char *name);

/* Invalid UTF-8 is ALEA_EFORMAT: bytes travel as arrays of numbers. U+0085, U+2028 and U+2029 are
 * escaped: some readers of a stream take them for the end of a line. */
void alea__json_string(alea_json_writer *writer, alea_bytes text);
void alea__json_cstring(alea_json_writer *writer, const char *text);

/* [1,2,255] */
void alea__json_byte_array(alea_json_writer *writer, alea_bytes bytes);

/* A document that another writer has finished, as one value. It is not looked at. */
void alea__json_document(alea_json_writer *writer, alea_bytes document);

/* Ends a line between two documents: JSON lines. */
void alea__json_newline(alea_json_writer *writer);

/*
 * Whether the document is whole and written.
 *
 * Shape     —
 * Domain    once the last container is closed; with a flush function this sends the rest
 * Result    ALEA_OK: every byte is in the buffer or was flushed
 * Exact     the bytes are a function of the calls alone
 * Errors    the first failure: ALEA_ELIMIT (bound, depth), ALEA_ENOMEM, ALEA_EFORMAT, ALEA_EROW,
 *           ALEA_EINVAL (a number, or calls that make no JSON), what flush returned
 * Memory    none
 * Threads   one per writer
 */
alea_status alea__json_finish(alea_json_writer *writer) ALEA_MUST_USE;

#endif
