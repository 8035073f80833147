/* The incremental decoder: bulk copies between characters, byte by byte while one is incomplete. */
#include "text/stream.h"

#include <string.h>

static size_t put_replacement(alea_text_stream *stream, uint8_t *out) {
    memcpy(out, ALEA_UTF8_REPLACEMENT, ALEA_UTF8_REPLACEMENT_BYTES);
    stream->characters++;
    return ALEA_UTF8_REPLACEMENT_BYTES;
}

/* Bytes of `bytes` that finish or break the held beginning; what is put out goes to *n_out. */
static size_t finish_held(alea_text_stream *stream, alea_bytes bytes, uint8_t *out, size_t *n_out) {
    uint8_t joined[ALEA_UTF8_MAX];
    size_t used = 0;
    memcpy(joined, stream->held, stream->n_held);
    while (used < bytes.length) {
        joined[stream->n_held] = bytes.data[used];
        const alea_utf8_unit unit =
            alea__utf8_first((alea_bytes){joined, (size_t)stream->n_held + 1});
        if (unit.kind == ALEA_UTF8_INVALID) { /* the new byte starts anew */
            stream->n_held = 0;
            *n_out += put_replacement(stream, out + *n_out);
            return used;
        }
        used++;
        if (unit.kind == ALEA_UTF8_CHARACTER) {
            stream->n_held = 0;
            memcpy(out + *n_out, joined, unit.length);
            *n_out += unit.length;
            stream->characters++;
            return used;
        }
        stream->held[stream->n_held++] = bytes.data[used - 1];
    }
    return used;
}

size_t alea__text_stream_push(alea_text_stream *stream, alea_bytes bytes, uint8_t *out,
                              uint64_t *offset) {
    const uint64_t before = stream->characters;
    size_t n_out = 0, at = 0;
    uint64_t start = before;
    if (stream->n_held && bytes.length) {
        at = finish_held(stream, bytes, out, &n_out);
        /* A first byte that breaks the held character starts behind its replacement. */
        if (at == 0) start = before + 1;
    }
    while (at < bytes.length) {
        const alea_bytes rest = {bytes.data + at, bytes.length - at};
        const size_t whole = alea__utf8_valid_length(rest);
        if (whole) {
            memcpy(out + n_out, rest.data, whole);
            n_out += whole;
            at += whole;
            stream->characters += alea__utf8_count((alea_bytes){rest.data, whole});
            continue;
        }
        const alea_utf8_unit unit = alea__utf8_first(rest);
        if (unit.kind == ALEA_UTF8_PARTIAL) {
            memcpy(stream->held, rest.data, unit.length);
            stream->n_held = (uint8_t)unit.length;
        } else {
            n_out += put_replacement(stream, out + n_out);
        }
        at += unit.length;
    }
    if (offset) *offset = start;
    return n_out;
}

size_t alea__text_stream_flush(alea_text_stream *stream, uint8_t *out) {
    if (!stream->n_held) return 0;
    stream->n_held = 0;
    return put_replacement(stream, out);
}
