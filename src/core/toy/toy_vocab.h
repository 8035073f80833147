/*
 * The toy core's vocabulary: 256 single bytes, so that any text can be written; control tokens;
 * two tokens that an author added; pieces of several bytes, some of which end inside a character
 * and two of which have the same bytes; unused ids up to the size that was asked for.
 */
#ifndef ALEA_CORE_TOY_TOY_VOCAB_H
#define ALEA_CORE_TOY_TOY_VOCAB_H

#include "alea/core.h"

enum {
    TOY_BOS = 256,
    TOY_EOS = 257,
    TOY_IM_START = 258,
    TOY_IM_END = 259,
    TOY_PAD = 260,
    TOY_VOCAB_MIN = 261, /* bytes and control tokens */
    TOY_VOCAB_DEFAULT = 320
};

/* 0 <= token < the vocabulary's size. */
void alea__toy_token_info(int32_t token, alea_token_info *info);

/* Greedy, longest token first, the smaller id among equals. Ids at or above `vocab` are not used.
 * Writes at most `capacity` ids and returns the full number. */
size_t alea__toy_tokenize(int32_t vocab, alea_bytes text, bool markup, int32_t *tokens,
                          size_t capacity);

#endif
