/*
 * Stop strings over a stream of bytes: which one is complete, and how many of the last bytes might
 * still become one and so must not be shown. Bytes, not characters: a stop may begin or end inside
 * a token, and a token inside a character.
 *
 * The first stop to be complete wins; of several that end on the same byte, the longest.
 */
#ifndef ALEA_TEXT_STOP_H
#define ALEA_TEXT_STOP_H

#include "alea/base.h"

/* The strings of one request with their failure links; read-only after the start. */
typedef struct alea_stops {
    const alea_bytes *strings; /* borrowed, none empty */
    int32_t *const *links;     /* [n][length] */
    int32_t n;
} alea_stops;

/* How far each string has matched at the end of one stream. */
typedef struct alea_stop_match {
    int32_t *matched; /* [n] bytes of each string */
} alea_stop_match;

/* Bytes for alea__stops_init and for one stream's alea__stop_match_init. */
size_t alea__stops_bytes(const alea_bytes *strings, int32_t n);
size_t alea__stop_match_bytes(int32_t n);

/* `memory` is aligned to 8 and lives as long as the result. */
void alea__stops_init(alea_stops *stops, const alea_bytes *strings, int32_t n, void *memory);
void alea__stop_match_init(alea_stop_match *match, int32_t n, void *memory);

/*
 * Take the stream's next byte. Returns the index of the string that it completes, or -1; *held is
 * the length of the longest suffix of the stream that is a proper beginning of some string.
 */
int32_t alea__stop_feed(const alea_stops *stops, alea_stop_match *match, uint8_t byte,
                        int32_t *held);

#endif
