/* The table of the toy core's tokens above the single bytes, and the greedy match over it. */
#include "core/toy/toy_vocab.h"

#include <string.h>

static const struct {
    const char *text;
    uint32_t flags;
} specials[] = {
    {"<|bos|>", ALEA_TOKEN_CONTROL},
    {"<|eos|>", ALEA_TOKEN_CONTROL | ALEA_TOKEN_END},
    {"<|im_start|>", ALEA_TOKEN_CONTROL},
    {"<|im_end|>", ALEA_TOKEN_CONTROL | ALEA_TOKEN_END},
    {"<|pad|>", ALEA_TOKEN_CONTROL},
    {"<think>", ALEA_TOKEN_USER},
    {"</think>", ALEA_TOKEN_USER},
    {"the", 0},
    {" the", 0},
    {" the", 0}, /* the twin: two ids, one text; a text never becomes the second */
    {" and", 0},
    {" of", 0},
    {" to", 0},
    {" in", 0},
    {" is", 0},
    {" a", 0},
    {"ing", 0},
    {"er", 0},
    {"re", 0},
    {"on", 0},
    {"hello", 0},
    {" world", 0},
    {"  ", 0},
    {"    ", 0},
    {"\n\n", 0},
    {"\r\n", 0},
    {". ", 0},
    {"():", 0},
    {"é", 0},
    {" é", 0},
    {"при", 0},
    {"вет", 0},
    {"中国", 0},
    {"的", 0},
    {"🙂", 0},
    {"\xF0\x9F", 0},       /* half of many emoji */
    {"\xF0\x9F\x9A", 0},   /* three quarters of one */
    {"\n\xF0\x9F\x9A", 0}, /* text, then a fragment */
    {"\x82 ", 0},          /* the end of a character, then text */
    {"\xE4\xB8", 0},
    {"\xAD\xE5\x9B\xBD", 0}, /* the end of one character and a whole one */
};

enum { N_SPECIALS = sizeof specials / sizeof *specials };

static const char unused_name[] = "<unused>";

/* Byte i at index i, so that every single byte has an address. */
#define BYTES4(n) (n), (n) + 1, (n) + 2, (n) + 3
#define BYTES16(n) BYTES4(n), BYTES4((n) + 4), BYTES4((n) + 8), BYTES4((n) + 12)
#define BYTES64(n) BYTES16(n), BYTES16((n) + 16), BYTES16((n) + 32), BYTES16((n) + 48)
static const uint8_t all_bytes[256] = {BYTES64(0), BYTES64(64), BYTES64(128), BYTES64(192)};

static alea_bytes bytes_of(const char *text) {
    return (alea_bytes){(const uint8_t *)text, strlen(text)};
}

void alea__toy_token_info(int32_t token, alea_token_info *info) {
    const alea_bytes none = {all_bytes, 0};
    if (token < TOY_BOS) {
        const alea_bytes byte = {all_bytes + token, 1};
        *info = (alea_token_info){byte, byte, ALEA_TOKEN_BYTE};
    } else if (token < TOY_BOS + N_SPECIALS) {
        const alea_bytes text = bytes_of(specials[token - TOY_BOS].text);
        const uint32_t flags = specials[token - TOY_BOS].flags;
        *info = (alea_token_info){flags & ALEA_TOKEN_CONTROL ? none : text, text, flags};
    } else {
        *info = (alea_token_info){none, bytes_of(unused_name), ALEA_TOKEN_UNUSED};
    }
}

static int32_t longest_match(int32_t vocab, alea_bytes text, bool markup, size_t *length) {
    int32_t best = text.data[0];
    *length = 1;
    for (int32_t i = 0; i < N_SPECIALS && i < vocab - TOY_BOS; i++) {
        if ((specials[i].flags & ALEA_TOKEN_CONTROL) && !markup) continue;
        const size_t n = strlen(specials[i].text);
        if (n <= *length || n > text.length || memcmp(text.data, specials[i].text, n)) continue;
        best = TOY_BOS + i;
        *length = n;
    }
    return best;
}

size_t alea__toy_tokenize(int32_t vocab, alea_bytes text, bool markup, int32_t *tokens,
                          size_t capacity) {
    size_t count = 0;
    while (text.length) {
        size_t length;
        const int32_t token = longest_match(vocab, text, markup, &length);
        if (count < capacity) tokens[count] = token;
        count++;
        text.data += length;
        text.length -= length;
    }
    return count;
}
