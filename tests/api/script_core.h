/*
 * A core that says what a test wrote down: the vocabulary and the tokenizer of another core, and
 * rows in which the script's next token stands out. What comes behind the script is its end token.
 */
#ifndef ALEA_TESTS_SCRIPT_CORE_H
#define ALEA_TESTS_SCRIPT_CORE_H

#include "alea/core.h"

/* Takes the inner core over: it is closed with the result. One at a time. */
alea_core *script_core_open(alea_core *inner, int32_t context_tokens, int32_t sequences);

/* The row behind position `first` is for tokens[0], the next one for tokens[1]. Copied. */
void script_core_say(const int32_t *tokens, int32_t n_tokens, int32_t first);

#endif
