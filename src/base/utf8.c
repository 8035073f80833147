/* Strict UTF-8 by the table of well-formed sequences (The Unicode Standard, table 3-7). */
#include "base/utf8.h"

#include <string.h>

/* How many bytes follow a lead byte (0: none is a lead), and what the first of them may be: this
 * range alone refuses overlong forms, surrogates and what lies above U+10FFFF. */
typedef struct lead {
    uint32_t following;
    uint8_t low, high;
} lead;

static lead lead_of(uint8_t byte) {
    if (byte < 0xc2) return (lead){0, 0, 0};
    if (byte < 0xe0) return (lead){1, 0x80, 0xbf};
    if (byte < 0xf0) return (lead){2, byte == 0xe0 ? 0xa0 : 0x80, byte == 0xed ? 0x9f : 0xbf};
    if (byte < 0xf5) return (lead){3, byte == 0xf0 ? 0x90 : 0x80, byte == 0xf4 ? 0x8f : 0xbf};
    return (lead){0, 0, 0};
}

alea_utf8_unit alea__utf8_first(alea_bytes text) {
    const uint8_t *p = text.data;
    if (p[0] < 0x80) return (alea_utf8_unit){ALEA_UTF8_CHARACTER, 1};
    const lead l = lead_of(p[0]);
    if (!l.following) return (alea_utf8_unit){ALEA_UTF8_INVALID, 1};
    for (uint32_t i = 1; i <= l.following; i++) {
        if (i == text.length) return (alea_utf8_unit){ALEA_UTF8_PARTIAL, i};
        const uint8_t low = i == 1 ? l.low : 0x80, high = i == 1 ? l.high : 0xbf;
        if (p[i] < low || p[i] > high) return (alea_utf8_unit){ALEA_UTF8_INVALID, i};
    }
    return (alea_utf8_unit){ALEA_UTF8_CHARACTER, l.following + 1};
}

static alea_bytes rest_of(alea_bytes text, size_t from) {
    return (alea_bytes){text.data + from, text.length - from};
}

/* Eight bytes without a high bit at once: most text is mostly ASCII. */
static size_t skip_ascii(alea_bytes text, size_t at) {
    uint64_t eight;
    while (text.length - at >= sizeof eight) {
        memcpy(&eight, text.data + at, sizeof eight);
        if (eight & UINT64_C(0x8080808080808080)) break;
        at += sizeof eight;
    }
    while (at < text.length && text.data[at] < 0x80)
        at++;
    return at;
}

size_t alea__utf8_valid_length(alea_bytes text) {
    size_t at = 0;
    while ((at = skip_ascii(text, at)) < text.length) {
        const alea_utf8_unit unit = alea__utf8_first(rest_of(text, at));
        if (unit.kind != ALEA_UTF8_CHARACTER) break;
        at += unit.length;
    }
    return at;
}

bool alea__utf8_valid(alea_bytes text) {
    return alea__utf8_valid_length(text) == text.length;
}

size_t alea__utf8_safe_length(alea_bytes text) {
    /* A partial unit is at most three bytes long and starts with its lead byte. A byte that can
     * follow is never a lead, so the last lead in reach decides. */
    for (size_t back = 1; back < ALEA_UTF8_MAX && back <= text.length; back++) {
        const size_t at = text.length - back;
        if (text.data[at] < 0x80) break;
        if (text.data[at] < 0xc0) continue;
        return alea__utf8_first(rest_of(text, at)).kind == ALEA_UTF8_PARTIAL ? at : text.length;
    }
    return text.length;
}

size_t alea__utf8_count(alea_bytes text) {
    size_t count = 0;
    for (size_t at = 0; at < text.length; count++)
        at += alea__utf8_first(rest_of(text, at)).length;
    return count;
}
