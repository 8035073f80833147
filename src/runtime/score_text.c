/* Joint encoding, and sums in position order. The one rule to know: a token belongs to the
 * continuation as soon as one of its bytes does. */
#include "runtime/score_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

void alea__token_ids_free(alea_token_ids *ids) {
    free(ids->tokens);
    *ids = (alea_token_ids){.continuation = ALEA_NO_CONTINUATION};
}

alea_status alea__text_encode(const alea_core *core, alea_bytes text, uint32_t flags,
                              alea_token_ids *ids, alea_error *error) {
    size_t capacity = text.length / 3 + 16; /* a guess that most texts fit */
    int32_t *tokens = NULL;
    for (;;) {
        size_t bytes;
        int32_t *grown =
            alea__size_mul(capacity, sizeof *tokens, &bytes) ? realloc(tokens, bytes) : NULL;
        if (!grown) {
            free(tokens);
            return alea_error_set(error, ALEA_ENOMEM, "out of memory for the tokens of a text");
        }
        tokens = grown;
        size_t count;
        alea_status status = alea_core_tokenize(core, text, flags, tokens, capacity, &count);
        if (status < 0) {
            free(tokens);
            return alea_error_set(error, status, "the text cannot be tokenized: %s",
                                  alea_status_text(status));
        }
        if (count <= capacity) {
            *ids = (alea_token_ids){tokens, count, ALEA_NO_CONTINUATION};
            return ALEA_OK;
        }
        capacity = count;
    }
}

static bool is_blank(uint8_t byte) {
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* Compare the tokens' bytes with the text; some tokenizers put one space in front, *shift then. */
static bool tokens_spell(const alea_core *core, const alea_token_ids *ids, alea_bytes text,
                         size_t *shift) {
    size_t total = 0;
    alea_token_info info;
    for (size_t i = 0; i < ids->n_tokens; i++) {
        if (alea_core_token(core, ids->tokens[i], &info) < 0) return false;
        total += info.bytes.length;
    }
    if (total < text.length || total > text.length + 1) return false;
    *shift = total - text.length;
    size_t at = 0; /* in the shifted text */
    for (size_t i = 0; i < ids->n_tokens; i++) {
        if (alea_core_token(core, ids->tokens[i], &info) < 0) return false;
        for (size_t j = 0; j < info.bytes.length; j++, at++) {
            const uint8_t expected = at < *shift ? ' ' : text.data[at - *shift];
            if (info.bytes.data[j] != expected) return false;
        }
    }
    return true;
}

/* The first token with a byte at or behind `boundary` of the text. */
static size_t first_token_from(const alea_core *core, const alea_token_ids *ids, size_t boundary) {
    size_t end = 0;
    for (size_t i = 0; i < ids->n_tokens; i++) {
        alea_token_info info;
        if (alea_core_token(core, ids->tokens[i], &info) < 0) break;
        end += info.bytes.length;
        if (end > boundary) return i;
    }
    return ids->n_tokens;
}

static alea_status place_continuation(const alea_core *core, alea_bytes text, size_t boundary,
                                      alea_token_ids *ids, alea_error *error) {
    size_t shift;
    if (!tokens_spell(core, ids, text, &shift))
        return alea_error_set(error, ALEA_EUNSUPPORTED,
                              "the tokens do not spell the text, so the continuation has no place; "
                              "check that the text is UTF-8 in the model's alphabet");
    ids->continuation = first_token_from(core, ids, boundary + shift);
    if (ids->continuation == 0)
        return alea_error_set(error, ALEA_EINVAL,
                              "the continuation's first token has no token before it; "
                              "give a longer prompt");
    return ALEA_OK;
}

alea_status alea__joint_encode(const alea_core *core, alea_bytes prompt, alea_bytes continuation,
                               uint32_t flags, alea_token_ids *ids, alea_error *error) {
    if (continuation.length == 0)
        return alea_error_set(error, ALEA_EINVAL, "the continuation is empty");
    size_t length;
    uint8_t *joint =
        alea__size_add(prompt.length, continuation.length, &length) ? malloc(length) : NULL;
    if (!joint) return alea_error_set(error, ALEA_ENOMEM, "out of memory for a text");
    if (prompt.length) memcpy(joint, prompt.data, prompt.length);
    memcpy(joint + prompt.length, continuation.data, continuation.length);
    size_t boundary = prompt.length;
    while (boundary > 0 && is_blank(joint[boundary - 1]))
        boundary--;

    const alea_bytes text = {joint, length};
    alea_token_ids found;
    alea_status status = alea__text_encode(core, text, flags, &found, error);
    if (status >= 0) {
        status = place_continuation(core, text, boundary, &found, error);
        if (status < 0) {
            alea__token_ids_free(&found);
        } else {
            *ids = found;
        }
    }
    free(joint);
    return status;
}

alea_score_sums alea__score_sums_start(size_t continuation) {
    return (alea_score_sums){.continuation = continuation, .is_greedy = true};
}

void alea__score_sums_add(alea_score_sums *sums, const alea_scored *scored, size_t token_bytes) {
    sums->n_tokens++;
    if (scored->index == 0) return;
    const alea_row_report *report = scored->report;
    sums->n_scored++;
    sums->scored_bytes += token_bytes;
    sums->sum_logprob += (double)report->logprob;
    if (scored->index < sums->continuation) return;
    sums->continuation_sum_logprob += (double)report->logprob;
    if (report->greedy != scored->token) sums->is_greedy = false;
}

double alea__score_perplexity(const alea_score_sums *sums) {
    if (sums->n_scored == 0) return (double)NAN;
    return exp(-sums->sum_logprob / (double)sums->n_scored);
}

double alea__score_bits_per_byte(const alea_score_sums *sums) {
    const double ln2 = 0x1.62e42fefa39efp-1;
    if (sums->scored_bytes == 0) return (double)NAN;
    return -sums->sum_logprob / ln2 / (double)sums->scored_bytes;
}
