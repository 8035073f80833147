/*
 * How one token is shown by itself: always valid UTF-8, always the same for the same id. Its exact
 * bytes travel beside it; this text is for people and for clients that key by text.
 */
#ifndef ALEA_TEXT_TOKEN_TEXT_H
#define ALEA_TEXT_TOKEN_TEXT_H

#include "alea/core.h"

/*
 * The presentation of a token:
 *   its bytes, where they are valid UTF-8 by themselves;
 *   "bytes:\xf0\x9f" (every byte, lower-case hex) for a fragment of a character;
 *   the name of a control token, or of another without bytes.
 * U+FFFD never stands in for a fragment: it would hide which bytes they were.
 *
 * Shape     out [capacity], no NUL
 * Domain    info as alea_core_token fills it; capacity 0 asks for the length alone
 * Result    the full length; written only where it fits into capacity
 * Exact     a function of info's bytes, name and flags
 * Errors    none
 * Memory    allocates nothing
 * Threads   reentrant
 */
size_t alea__token_text(const alea_token_info *info, char *out, size_t capacity);

#endif
