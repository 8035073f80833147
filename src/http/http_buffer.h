/* Bytes that grow at the end. An empty buffer has no memory. */
#ifndef ALEA_HTTP_HTTP_BUFFER_H
#define ALEA_HTTP_HTTP_BUFFER_H

#include "alea/base.h"

typedef struct alea_http_buffer {
    char *data;
    size_t length, capacity;
} alea_http_buffer;

/* ALEA_OK or ALEA_ENOMEM, which leaves the buffer as it was. */
alea_status alea__http_buffer_add(alea_http_buffer *buffer, const void *data,
                                  size_t length) ALEA_MUST_USE;
alea_status alea__http_buffer_text(alea_http_buffer *buffer, const char *text) ALEA_MUST_USE;
alea_status alea__http_buffer_format(alea_http_buffer *buffer, const char *format, ...)
    ALEA_PRINTF(2, 3) ALEA_MUST_USE; /* of less than 256 bytes; ALEA_ELIMIT */

/* Forget the first `length` bytes. */
void alea__http_buffer_drop(alea_http_buffer *buffer, size_t length);

/* Empty it; memory beyond `keep_bytes` is given back. */
void alea__http_buffer_clear(alea_http_buffer *buffer, size_t keep_bytes);

#endif
