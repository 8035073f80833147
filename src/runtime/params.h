/*
 * What a client may ask of one request, in the runtime's words, and the checks that make the rest
 * of the runtime free of doubt: after alea__params_check every field is inside its domain.
 *
 * Arrays are borrowed until the request is submitted; the request copies what it keeps.
 */
#ifndef ALEA_RUNTIME_PARAMS_H
#define ALEA_RUNTIME_PARAMS_H

#include <stdbool.h>

#include "contract/completion.h"
#include "kernel/row.h"

#define ALEA_CHOICES_MAX 128
#define ALEA_STOPS_MAX 64
#define ALEA_STOP_BYTES_MAX 4096
#define ALEA_BAD_WORDS_MAX 1024

typedef struct alea_token_bias {
    int32_t token;
    float bias; /* added to the raw logit; -INFINITY bans */
} alea_token_bias;

typedef struct alea_token_list {
    const int32_t *tokens;
    int32_t count;
} alea_token_list;

/* A stretch of the prompt without tokens, an image or the like, whose positions are -1 there. */
typedef struct alea_opaque {
    int32_t position, length;
    alea_bytes data; /* the thing itself, for the core */
} alea_opaque;

typedef struct alea_request_params {
    alea_sampling sampling;
    uint64_t seed;
    bool seeded;          /* false: the runtime draws a seed and reports it */
    int32_t choices;      /* n >= 1; all share the prompt */
    int32_t first_choice; /* the draws are those of choices first_choice, first_choice + 1, … */

    float repetition_penalty; /* 1: none; over prompt and output */
    float frequency_penalty;  /* 0: none; times the count in the output */
    float presence_penalty;   /* 0: none; once for a token of the output */
    const alea_token_bias *biases;
    int32_t n_biases;
    alea_token_list allowed; /* count 0: all */
    const alea_token_list *bad_words;
    int32_t n_bad_words;

    int32_t min_tokens; /* no end token, stop token or stop string ends a shorter answer */
    int32_t max_tokens; /* 0: no output; scoring or prefill alone */
    bool ignore_end;    /* end tokens are tokens like others */
    alea_token_list stop_tokens;
    const alea_bytes *stops; /* stop strings; none is empty */
    int32_t n_stops;
    bool include_stop;
    bool keep_stopped; /* tokens behind a stop string's cut stay, without text */
    bool show_control; /* control tokens are text by their names, for stop strings too */

    int32_t thinking_budget;        /* tokens before the close is forced; -1: none */
    alea_token_list thinking_close; /* ids that are forced then, without entries */

    int32_t top;              /* alternatives per token, 0..20; -1: no logprobs */
    alea_token_list selected; /* ids whose logprobs replace the alternatives */
    bool want_sampled;        /* also the as-sampled logprob and the kept mass */
    bool want_entropy;
    bool want_rank; /* of the chosen token in the raw row; costs a pass over the row */

    /*
     * Score the prompt too, with this many alternatives a position, 0..20; -1: no. The prompt is
     * then computed anew, whatever prefix is at hand, but for the scored cache: positions whose
     * scores an earlier request has left, bit for bit what they were. Never with `selected` or
     * no_scored_cache. With max_tokens 0 the request is over when its last position is scored.
     */
    int32_t prompt_top;
    bool no_scored_cache;

    const alea_opaque *opaques; /* of the prompt: rising, and none overlaps another */
    int32_t n_opaques;

    uint64_t cache_salt;  /* what is computed serves requests of the same salt alone */
    uint64_t deadline_ns; /* on the runtime's clock; 0: none */
    int32_t priority;     /* smaller first; equal: order of arrival */
} alea_request_params;

/* One choice, greedy off, nothing penalized, 16 tokens, no logprobs, of prompt or answer. */
alea_request_params alea__params_default(void);

/* Whether what came before changes what comes: only then is it counted. */
static inline bool alea__params_penalize(const alea_request_params *params) {
    return params->repetition_penalty != 1.0f || params->frequency_penalty != 0.0f ||
           params->presence_penalty != 0.0f;
}

/*
 * Refuse what is outside its domain, naming the field, the value and the range. `vocab` bounds
 * every token id. NaN is outside every domain. ALEA_OK or ALEA_EINVAL.
 */
alea_status alea__params_check(const alea_request_params *params, int32_t vocab,
                               alea_error *error) ALEA_MUST_USE;

#endif
