/*
 * Strict UTF-8: overlong forms, surrogates and anything above U+10FFFF are invalid, as Unicode's
 * table of well-formed sequences has it. Where bytes are invalid they are cut as Unicode advises
 * and browsers and Python do: the longest beginning of some character is one unit, so that every
 * reader puts the same number of U+FFFD in its place.
 */
#ifndef ALEA_BASE_UTF8_H
#define ALEA_BASE_UTF8_H

#include <stdbool.h>

#include "alea/base.h"

#define ALEA_UTF8_MAX 4                      /* bytes of one character */
#define ALEA_UTF8_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */
#define ALEA_UTF8_REPLACEMENT_BYTES 3

typedef enum alea_utf8_kind {
    ALEA_UTF8_CHARACTER, /* a whole character */
    ALEA_UTF8_PARTIAL,   /* the bytes end inside a character that may still become valid */
    ALEA_UTF8_INVALID    /* bytes that no continuation can save: one U+FFFD */
} alea_utf8_kind;

typedef struct alea_utf8_unit {
    alea_utf8_kind kind;
    uint32_t length; /* 1..4 bytes; PARTIAL: all that was left */
} alea_utf8_unit;

/* The first unit of text that is not empty. */
alea_utf8_unit alea__utf8_first(alea_bytes text);

/* Length of the longest beginning that consists of whole characters. */
size_t alea__utf8_valid_length(alea_bytes text);

/* Whether the whole text is valid; an empty one is. */
bool alea__utf8_valid(alea_bytes text);

/*
 * How much may be shown now: all but a character at the end that more bytes may complete. Showing
 * half a character makes a client store U+FFFD, send that back, and no longer match what the
 * model wrote. Invalid bytes count as showable.
 */
size_t alea__utf8_safe_length(alea_bytes text);

/* Code points of the text as a reader sees it: each invalid unit and a partial end count 1. */
size_t alea__utf8_count(alea_bytes text);

#endif
