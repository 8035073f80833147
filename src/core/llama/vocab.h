/* What every token adds to a text, found once when a model is opened, and text to tokens. */
#ifndef ALEA_CORE_LLAMA_VOCAB_H
#define ALEA_CORE_LLAMA_VOCAB_H

#include "alea/core.h"

struct llama_vocab;

typedef struct alea_llama_vocab {
    const struct llama_vocab *llama;
    int32_t tokens;
    alea_token_info *info; /* [tokens], pointing into bytes */
    uint8_t *bytes;
    int32_t literal; /* tokens whose text libllama cannot map to bytes; taken literally */
} alea_llama_vocab;

/* ALEA_ENOMEM, or ALEA_ECORE when libllama throws. `vocab` needs the free in either case. */
alea_status alea__llama_vocab_load(alea_llama_vocab *vocab, const struct llama_vocab *llama,
                                   alea_error *error) ALEA_MUST_USE;
void alea__llama_vocab_free(alea_llama_vocab *vocab);

/* As alea_core_api.tokenize. ALEA_EFORMAT: the text is not UTF-8, which libllama would alter. */
alea_status alea__llama_vocab_tokenize(const alea_llama_vocab *vocab, alea_bytes text,
                                       uint32_t flags, int32_t *tokens, size_t capacity,
                                       size_t *count) ALEA_MUST_USE;

/* "BPE", "SPM", … */
const char *alea__llama_vocab_type(const struct llama_vocab *llama);

#endif
