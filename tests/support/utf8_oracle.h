/*
 * UTF-8 by definition: decode the number, then check it. Slow, and written apart from base/utf8.c,
 * so that the two can judge each other.
 */
#ifndef ALEA_TESTS_UTF8_ORACLE_H
#define ALEA_TESTS_UTF8_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Whether exactly these n bytes are one character. */
static inline bool oracle_is_character(const uint8_t *p, size_t n) {
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (n == 1) return p[0] < 0x80;
    if (n < 2 || n > 4) return false;
    const uint32_t mark = (0xf00u >> n) & 0xffu;  /* 110…, 1110…, 11110… */
    const uint32_t mask = (0xff80u >> n) & 0xffu; /* the mark and the 0 behind it */
    if ((p[0] & mask) != mark) return false;
    uint32_t code = p[0] & ~mask & 0xffu;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) return false;
        code = code << 6 | (p[i] & 0x3fu);
    }
    return code >= smallest[n] && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff);
}

/* Whether these n bytes begin some character that is longer. */
static inline bool oracle_begins_character(const uint8_t *p, size_t n) {
    /* Enough continuations to meet every bound that a character has. */
    static const uint8_t tries[] = {0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf};
    uint8_t bytes[4];
    if (n >= 4) return false;
    memcpy(bytes, p, n);
    for (size_t i = 0; i < sizeof tries; i++) {
        bytes[n] = tries[i];
        if (oracle_is_character(bytes, n + 1) || oracle_begins_character(bytes, n + 1)) return true;
    }
    return false;
}

/* Length of the first unit of p[0, n), n > 0; *valid, whether it is a character. */
static inline size_t oracle_unit(const uint8_t *p, size_t n, bool *valid) {
    *valid = false;
    for (size_t i = 1; i <= 4 && i <= n; i++)
        if (oracle_is_character(p, i)) {
            *valid = true;
            return i;
        }
    size_t length = 1;
    while (length < n && oracle_begins_character(p, length + 1))
        length++;
    return length;
}

/* The text with U+FFFD in place of invalid units, into out [3 n]; returns its length. Where unit is
 * given, unit[i] is the number of the unit that holds byte i. */
static inline size_t oracle_decode(const uint8_t *p, size_t n, uint8_t *out, size_t *unit) {
    size_t n_out = 0, count = 0;
    for (size_t at = 0; at < n; count++) {
        bool valid;
        const size_t length = oracle_unit(p + at, n - at, &valid);
        memcpy(out + n_out, valid ? (const void *)(p + at) : "\xEF\xBF\xBD", valid ? length : 3);
        n_out += valid ? length : 3;
        for (size_t i = 0; unit && i < length; i++)
            unit[at + i] = count;
        at += length;
    }
    return n_out;
}

/* Random bytes that meet the borders of UTF-8 often: leads, continuations, letters and noise. */
static inline uint8_t oracle_random_byte(uint64_t *state) {
    static const uint8_t favourites[] = {0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0,
                                         0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1,
                                         0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5};
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    const uint32_t r = (uint32_t)(*state >> 33);
    if (r % 4 == 0) return (uint8_t)(r >> 8);
    return favourites[(r >> 8) % sizeof favourites];
}

#endif
