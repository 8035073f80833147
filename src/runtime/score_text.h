/*
 * Between a text and its score: token ids of a text or of a prompt with its continuation, and the
 * sums over the records of alea__score_tokens. No I/O.
 */
#ifndef ALEA_RUNTIME_SCORE_TEXT_H
#define ALEA_RUNTIME_SCORE_TEXT_H

#include "alea/core.h"
#include "runtime/score.h"

#define ALEA_NO_CONTINUATION SIZE_MAX

/* The ids of one text. `tokens` is malloc'ed; alea__token_ids_free takes it back. */
typedef struct alea_token_ids {
    int32_t *tokens;
    size_t n_tokens;
    size_t continuation; /* index of its first token, or ALEA_NO_CONTINUATION */
} alea_token_ids;

void alea__token_ids_free(alea_token_ids *ids);

/* Tokenize; `flags` are those of alea_core_tokenize. An empty text gives what the model puts in
 * front, which may be nothing. */
alea_status alea__text_encode(const alea_core *core, alea_bytes text, uint32_t flags,
                              alea_token_ids *ids, alea_error *error) ALEA_MUST_USE;

/*
 * Tokenize prompt and continuation as the one text that they are: encoded apart they would give
 * ids that the model never sees side by side.
 *
 * Domain    the continuation is not empty
 * Result    ids->continuation is the first token that holds any byte of the continuation, to which
 *           the blanks (ASCII white space) at the end of the prompt are counted; where the last
 *           character of the prompt and the first of the continuation share a token, that token
 * Exact     a function of the model and of prompt + continuation
 * Errors    ALEA_EINVAL: the continuation is empty, or its first token has nothing before it;
 *           ALEA_EUNSUPPORTED: the tokens' bytes are not the text, so the place cannot be told
 */
alea_status alea__joint_encode(const alea_core *core, alea_bytes prompt, alea_bytes continuation,
                               uint32_t flags, alea_token_ids *ids,
                               alea_error *error) ALEA_MUST_USE;

/*
 * Sums of one text. The addition is in double, in position order, of the float32 values that are
 * reported: whoever adds the printed values in the same order gets the same double.
 */
typedef struct alea_score_sums {
    size_t n_tokens;
    size_t n_scored; /* tokens that had a context */
    uint64_t scored_bytes;
    double sum_logprob;
    size_t continuation; /* as in alea_token_ids; set it before the first add */
    double continuation_sum_logprob;
    bool is_greedy; /* every continuation token is the one that temperature 0 would emit */
} alea_score_sums;

alea_score_sums alea__score_sums_start(size_t continuation);
void alea__score_sums_add(alea_score_sums *sums, const alea_scored *scored, size_t token_bytes);

/* exp(-sum / n_scored); NaN where nothing was scored. By libm: the last bits are the host's. */
double alea__score_perplexity(const alea_score_sums *sums);

/* -sum / ln 2 / bytes of the scored tokens; NaN where they have none. */
double alea__score_bits_per_byte(const alea_score_sums *sums);

#endif
