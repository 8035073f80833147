/*
 * A rendered chat to token ids. Names of control tokens become those tokens in the template's own
 * text alone; between two of them, template and message are tokenized as one text, so that ids are
 * those of the whole text tokenized at once wherever no message holds such a name.
 *
 * Tokens that a model's author added as text (ALEA_TOKEN_USER, "<think>") are text here too, from
 * whomever it comes; but for those that look like control tokens ("<|start|>"): they are such.
 */
#ifndef ALEA_TEXT_CHAT_TOKENS_H
#define ALEA_TEXT_CHAT_TOKENS_H

#include "alea/core.h"
#include "text/chat_template.h"

typedef struct alea_chat_tokenizer alea_chat_tokenizer;

/*
 * Gather a core's control tokens.
 *
 * Shape     —
 * Domain    an open core, which must outlive the result
 * Result    *tokenizer
 * Exact     —
 * Errors    ALEA_ENOMEM: *tokenizer untouched
 * Memory    32 bytes per control token
 * Threads   reentrant
 */
alea_status alea__chat_tokenizer_create(const alea_core *core, alea_chat_tokenizer **tokenizer,
                                        alea_error *error) ALEA_MUST_USE;

/* NULL is allowed. */
void alea__chat_tokenizer_destroy(alea_chat_tokenizer *tokenizer);

/*
 * Tokenize.
 *
 * Shape     —
 * Domain    add_special: put bos in front where the model says so and the text does not begin
 *           with it (clients call it add_special_tokens; off for chats, whose templates write bos)
 * Result    *tokens [*count], to be freed by free(); NULL where there are none
 * Exact     a function of core and text
 * Errors    ALEA_ELIMIT: more than tokens_max; ALEA_EFORMAT, ALEA_ENOMEM, ALEA_ECORE: outputs
 *           untouched
 * Memory    the heap
 * Threads   reentrant, also on one tokenizer
 */
alea_status alea__chat_tokenize(const alea_chat_tokenizer *tokenizer, const alea_chat_text *text,
                                bool add_special, size_t tokens_max, int32_t **tokens,
                                size_t *count, alea_error *error) ALEA_MUST_USE;

#endif
