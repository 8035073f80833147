/* Growth doubles, so adding n bytes one at a time costs O(n). */
#include "http/http_buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

#define LEAST_BYTES 512

static alea_status reserve(alea_http_buffer *buffer, size_t more) {
    size_t need;
    if (!alea__size_add(buffer->length, more, &need)) return ALEA_ENOMEM;
    if (need <= buffer->capacity) return ALEA_OK;
    size_t capacity = buffer->capacity > LEAST_BYTES / 2 ? buffer->capacity : LEAST_BYTES / 2;
    if (!alea__size_mul(capacity, 2, &capacity) || capacity < need) capacity = need;
    char *data = realloc(buffer->data, capacity);
    if (!data) return ALEA_ENOMEM;
    buffer->data = data;
    buffer->capacity = capacity;
    return ALEA_OK;
}

alea_status alea__http_buffer_add(alea_http_buffer *buffer, const void *data, size_t length) {
    if (length == 0) return ALEA_OK;
    const alea_status status = reserve(buffer, length);
    if (status < 0) return status;
    memcpy(buffer->data + buffer->length, data, length);
    buffer->length += length;
    return ALEA_OK;
}

alea_status alea__http_buffer_text(alea_http_buffer *buffer, const char *text) {
    return alea__http_buffer_add(buffer, text, strlen(text));
}

alea_status alea__http_buffer_format(alea_http_buffer *buffer, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof text) return ALEA_ELIMIT;
    return alea__http_buffer_add(buffer, text, (size_t)length);
}

void alea__http_buffer_drop(alea_http_buffer *buffer, size_t length) {
    if (length == 0) return;
    memmove(buffer->data, buffer->data + length, buffer->length - length);
    buffer->length -= length;
}

void alea__http_buffer_clear(alea_http_buffer *buffer, size_t keep_bytes) {
    buffer->length = 0;
    if (buffer->capacity <= keep_bytes) return;
    free(buffer->data);
    *buffer = (alea_http_buffer){0};
}
