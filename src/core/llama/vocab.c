/*
 * The token table. libllama shows a token in two ways: as text, where control tokens are empty,
 * and with markup, where they show their name. Both are taken down once, so that a lookup is a
 * copy of two pointers.
 */
#include "core/llama/vocab.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/utf8.h"
#include "core/llama/guard.h"
#include "llama.h"

static const char unmapped[] = "[UNK_BYTE_0x";

typedef struct builder {
    alea_llama_vocab *vocab;
    size_t used;
    size_t capacity;
    alea_status status;
} builder;

static bool grow(builder *b, size_t more) {
    size_t needed = 0;
    if (!alea__size_add(b->used, more, &needed)) return false;
    if (needed <= b->capacity) return true;
    size_t capacity = 0;
    if (!alea__size_mul(needed, 2, &capacity)) return false;
    uint8_t *bytes = realloc(b->vocab->bytes, capacity);
    if (bytes == NULL) return false;
    b->vocab->bytes = bytes;
    b->capacity = capacity;
    return true;
}

/* Appends a token's piece; the table keeps offsets until the bytes stop moving. */
static bool append_piece(builder *b, int32_t token, bool markup, alea_bytes *piece) {
    if (!grow(b, 256)) return false;
    int32_t n = llama_token_to_piece(b->vocab->llama, token, (char *)b->vocab->bytes + b->used,
                                     (int32_t)256, 0, markup);
    if (n < 0) {
        if (n == INT32_MIN || !grow(b, (size_t)-n)) return false;
        n = llama_token_to_piece(b->vocab->llama, token, (char *)b->vocab->bytes + b->used, -n, 0,
                                 markup);
        if (n < 0) return false;
    }
    piece->data = NULL;
    piece->length = (size_t)n;
    return true;
}

static bool append_text(builder *b, int32_t token, alea_bytes *piece) {
    const char *text = llama_vocab_get_text(b->vocab->llama, token);
    const size_t length = text != NULL ? strlen(text) : 0;
    if (!grow(b, length)) return false;
    if (length > 0) memcpy(b->vocab->bytes + b->used, text, length);
    piece->data = NULL;
    piece->length = length;
    return true;
}

static uint32_t flags_of(const struct llama_vocab *llama, int32_t token) {
    const enum llama_token_attr attr = llama_vocab_get_attr(llama, token);
    uint32_t flags = 0;
    if (llama_vocab_is_control(llama, token)) flags |= ALEA_TOKEN_CONTROL;
    if (llama_vocab_is_eog(llama, token)) flags |= ALEA_TOKEN_END;
    if ((attr & LLAMA_TOKEN_ATTR_BYTE) != 0) flags |= ALEA_TOKEN_BYTE;
    if ((attr & LLAMA_TOKEN_ATTR_UNKNOWN) != 0) flags |= ALEA_TOKEN_UNKNOWN;
    if ((attr & LLAMA_TOKEN_ATTR_UNUSED) != 0) flags |= ALEA_TOKEN_UNUSED;
    if ((attr & LLAMA_TOKEN_ATTR_USER_DEFINED) != 0) flags |= ALEA_TOKEN_USER;
    return flags;
}

static bool add_token(builder *b, int32_t token) {
    alea_token_info *info = &b->vocab->info[token];
    info->flags = flags_of(b->vocab->llama, token);
    const bool hidden = (info->flags & (ALEA_TOKEN_CONTROL | ALEA_TOKEN_UNKNOWN)) != 0;
    info->bytes.length = 0;
    if (!hidden) {
        if (!append_piece(b, token, false, &info->bytes)) return false;
        const bool odd = info->bytes.length >= sizeof(unmapped) - 1 &&
                         memcmp(b->vocab->bytes + b->used, unmapped, sizeof(unmapped) - 1) == 0;
        if (odd) {
            /* The text holds a character outside the byte alphabet: then it means itself. */
            if (!append_text(b, token, &info->bytes)) return false;
            b->vocab->literal++;
        }
    }
    if (info->bytes.length > 0) {
        info->name.length = info->bytes.length;
    } else if (!append_piece(b, token, true, &info->name) ||
               (info->name.length == 0 && !append_text(b, token, &info->name))) {
        return false;
    }
    b->used += info->name.length;
    return true;
}

static void build(void *argument) {
    builder *b = argument;
    alea_llama_vocab *vocab = b->vocab;
    for (int32_t token = 0; token < vocab->tokens; token++) {
        if (!add_token(b, token)) return;
    }
    const uint8_t *at = vocab->bytes;
    for (int32_t token = 0; token < vocab->tokens; token++) {
        alea_token_info *info = &vocab->info[token];
        info->name.data = at;
        info->bytes.data = at;
        at += info->name.length;
    }
    b->status = ALEA_OK;
}

alea_status alea__llama_vocab_load(alea_llama_vocab *vocab, const struct llama_vocab *llama,
                                   alea_error *error) {
    *vocab = (alea_llama_vocab){.llama = llama, .tokens = llama_vocab_n_tokens(llama)};
    if (vocab->tokens < 1)
        return alea_error_set(error, ALEA_EFORMAT, "the model has an empty vocabulary");
    vocab->info = calloc((size_t)vocab->tokens, sizeof(*vocab->info));
    builder b = {.vocab = vocab, .status = ALEA_ENOMEM};
    char what[128];
    if (vocab->info == NULL)
        return alea_error_set(error, ALEA_ENOMEM, "out of memory for %d tokens", vocab->tokens);
    if (!alea__guard(build, &b, what, sizeof(what)))
        return alea_error_set(error, ALEA_ECORE, "the vocabulary is broken: %s", what);
    if (b.status < 0) return alea_error_set(error, b.status, "out of memory for the vocabulary");
    return ALEA_OK;
}

void alea__llama_vocab_free(alea_llama_vocab *vocab) {
    free(vocab->info);
    free(vocab->bytes);
    *vocab = (alea_llama_vocab){.tokens = 0};
}

typedef struct tokenize_call {
    const struct llama_vocab *llama;
    alea_bytes text;
    uint32_t flags;
    int32_t *tokens;
    int32_t capacity;
    int32_t result;
} tokenize_call;

static void tokenize(void *argument) {
    tokenize_call *call = argument;
    call->result =
        llama_tokenize(call->llama, (const char *)call->text.data, (int32_t)call->text.length,
                       call->tokens, call->capacity, (call->flags & ALEA_TOKENIZE_SPECIAL) != 0,
                       (call->flags & ALEA_TOKENIZE_MARKUP) != 0);
}

alea_status alea__llama_vocab_tokenize(const alea_llama_vocab *vocab, alea_bytes text,
                                       uint32_t flags, int32_t *tokens, size_t capacity,
                                       size_t *count) {
    static const uint8_t nothing[1];
    if (!alea__utf8_valid(text)) return ALEA_EFORMAT;
    if (text.length == 0) text.data = nothing;
    tokenize_call call = {.llama = vocab->llama,
                          .text = text,
                          .flags = flags,
                          .tokens = tokens,
                          .capacity = capacity > INT32_MAX ? INT32_MAX : (int32_t)capacity};
    char what[64];
    if (!alea__guard(tokenize, &call, what, sizeof(what))) return ALEA_ECORE;
    if (call.result == INT32_MIN) return ALEA_ELIMIT;
    *count = (size_t)(call.result < 0 ? -(int64_t)call.result : call.result);
    return ALEA_OK;
}

const char *alea__llama_vocab_type(const struct llama_vocab *llama) {
    switch (llama_vocab_type(llama)) {
    case LLAMA_VOCAB_TYPE_SPM: return "SPM";
    case LLAMA_VOCAB_TYPE_BPE: return "BPE";
    case LLAMA_VOCAB_TYPE_WPM: return "WPM";
    case LLAMA_VOCAB_TYPE_UGM: return "UGM";
    case LLAMA_VOCAB_TYPE_RWKV: return "RWKV";
    case LLAMA_VOCAB_TYPE_PLAMO2: return "PLaMo2";
    case LLAMA_VOCAB_TYPE_NONE: return "none";
    default: return "other";
    }
}
