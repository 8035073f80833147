/*
 * Token bytes in, text that may be shown out: whole characters only, while tokens begin and end
 * where they like. Joined, the deltas are the text, whatever the cuts; U+FFFD stands only where the
 * bytes are really invalid.
 *
 * Holds three bytes at most and allocates nothing. Also counts characters, so that each token's
 * place in the text is known.
 */
#ifndef ALEA_TEXT_STREAM_H
#define ALEA_TEXT_STREAM_H

#include "alea/base.h"
#include "base/utf8.h"

/* Most bytes that one push of `n` bytes can put out: each of them and each held one a U+FFFD. */
#define ALEA_STREAM_BOUND(n) (ALEA_UTF8_REPLACEMENT_BYTES * ((size_t)(n) + ALEA_UTF8_MAX - 1))

/* All zero is an empty stream. */
typedef struct alea_text_stream {
    uint64_t characters; /* code points put out so far */
    uint8_t held[ALEA_UTF8_MAX - 1];
    uint8_t n_held; /* beginning of a character that is not yet whole */
} alea_text_stream;

/*
 * Push a token's bytes.
 *
 * Shape     out [ALEA_STREAM_BOUND(bytes.length)]; must not overlap bytes
 * Domain    any bytes; none (a control token) is allowed and puts nothing out
 * Result    number of bytes in out, whole characters; *offset (may be NULL): the code point of the
 *           text at which this token starts, or that of the character inside which it starts
 * Exact     joined over all pushes and the flush: a function of the joined bytes alone
 * Errors    none
 * Memory    allocates nothing
 * Threads   one per stream
 */
size_t alea__text_stream_push(alea_text_stream *stream, alea_bytes bytes, uint8_t *out,
                              uint64_t *offset);

/* The end of the text: a held beginning becomes one U+FFFD. out [3]; returns 0 or 3. */
size_t alea__text_stream_flush(alea_text_stream *stream, uint8_t *out);

#endif
