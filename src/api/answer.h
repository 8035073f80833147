/*
 * What has been collected of an answer and not been written yet. answer.c collects, answer_write.c
 * writes; for a whole answer nothing is written before the end.
 */
#ifndef ALEA_API_ANSWER_H
#define ALEA_API_ANSWER_H

#include "api/api_parts.h"
#include "text/stream.h"

#define ALEA_COMPAT_CONTEXT 4 /* earlier tokens that vLLM completes a character with */

/* One token that is shown with its numbers. */
typedef struct alea_api_entry {
    int32_t token;
    int32_t n_alternatives;
    size_t first_alternative; /* in the choice's list */
    uint64_t offset;          /* code points of the text before it */
    float logprob, sampled_logprob, kept_mass, entropy;
    int32_t before[ALEA_COMPAT_CONTEXT]; /* the tokens before it, nearest first; -1: none */
    bool of_prompt;                      /* was not drawn */
    bool blank;                          /* of the prompt, without a row before it */
} alea_api_entry;

/* A growing list of elements of one size. */
typedef struct alea_api_list {
    void *items;
    size_t n, capacity;
} alea_api_list;

/* One position of a scored prompt. */
typedef struct alea_api_score {
    int32_t token; /* -1: none */
    int32_t rank;  /* 0: no row before it */
    float logprob;
    bool is_greedy;
    int32_t n_alternatives;
    size_t first_alternative; /* in the prompt's list */
    uint64_t offset;          /* code points of the text before it */
} alea_api_score;

/* A prompt's scores, in order from position 0, as they come. */
typedef struct alea_api_scores {
    alea_api_list rows;         /* alea_api_score */
    alea_api_list alternatives; /* alea_alternative */
    alea_text_stream stream;    /* for the places in the text */
    uint64_t compat_offset;
    bool complete; /* no more will come */
} alea_api_scores;

/* One choice of one prompt: what came since the last write, and what must outlast it. */
typedef struct alea_api_choice {
    int32_t prompt; /* of the job */
    alea_text_stream stream;
    alea_api_list text;         /* bytes, whole characters */
    alea_api_list entries;      /* alea_api_entry */
    alea_api_list alternatives; /* alea_alternative */
    alea_api_list ids;          /* int32_t */
    int32_t pending_tokens;     /* that came since the last write */
    int32_t n_tokens;           /* in all, hidden ones included */
    int32_t before[ALEA_COMPAT_CONTEXT];
    uint64_t compat_offset; /* code points of the token strings so far */
    bool written;           /* a chunk of it has gone out */
    bool finished;
    alea_finish finish;
    int32_t stop;
    int32_t last_token; /* the terminating one; -1: none */
    int32_t output_tokens;
} alea_api_choice;

/* What is held of one prompt. Made with its first event; a stream gives it back with its last. */
typedef struct alea_api_group {
    alea_api_scores scores;
    int32_t n_open;            /* choices whose end has not been emitted */
    alea_api_choice choices[]; /* [job->params.choices] */
} alea_api_group;

struct alea_api_answer {
    const alea_api_job *job;
    const alea_api *api;
    const alea_api_presentation *shown;
    alea_api_emit emit; /* NULL: a whole answer */
    void *user;
    alea_api_group **groups; /* [job->n_prompts]; NULL: nothing came yet, or all was given */
    int32_t n_choices, n_finished;
    int64_t output_tokens; /* of those */
    size_t held_bytes;     /* of groups and their lists */
    alea_json_writer writer;
    char *scratch; /* [2 * scratch_bytes]: two tokens' texts */
    size_t scratch_bytes;
    int32_t cached_tokens;
    bool done;
    bool failed;
    alea_api_error error;
};

/* Of an open group. */
static inline alea_api_choice *alea__api_choice_of(const alea_api_answer *answer, int32_t index) {
    const int32_t n = answer->job->params.choices;
    return &answer->groups[index / n]->choices[index % n];
}

static inline alea_api_scores *alea__api_scores_of(const alea_api_answer *answer, int32_t prompt) {
    return &answer->groups[prompt]->scores;
}

/* answer_write.c: a whole body, or the payload of one chunk, into answer->writer. */
typedef enum alea_api_chunk {
    ALEA_CHUNK_ROLE,   /* chat: opens a choice */
    ALEA_CHUNK_TOKENS, /* what is pending */
    ALEA_CHUNK_FINISH, /* the same, with the reason of the end */
    ALEA_CHUNK_USAGE   /* no choice */
} alea_api_chunk;

/* With a pool its threads write choices beside each other. */
alea_status alea__api_write_whole(alea_api_answer *answer, alea_pool *pool) ALEA_MUST_USE;
void alea__api_write_choice(alea_api_answer *answer, int32_t index); /* of a whole body */
alea_status alea__api_write_chunk(alea_api_answer *answer, alea_api_chunk kind, int32_t index,
                                  bool last) ALEA_MUST_USE;

/* Room for `more` elements, or one more, counted as the answer's; false: out of memory. */
bool alea__api_list_reserve(alea_api_answer *answer, alea_api_list *list, size_t more,
                            size_t element_bytes);
bool alea__api_list_append(alea_api_answer *answer, alea_api_list *list, const void *element,
                           size_t element_bytes);
void alea__api_list_free(alea_api_answer *answer, alea_api_list *list, size_t element_bytes);

/* Show a part of a text in a choice; *offset may be NULL. */
alea_status alea__api_add_text(alea_api_answer *answer, alea_api_choice *choice, alea_bytes bytes,
                               uint64_t *offset) ALEA_MUST_USE;

/* answer_beside.c: the items of "choices", by the pool's threads. False, and nothing written: there
 * is one, memory is short or they are too long to stand in it twice; one thread has to do it. */
bool alea__api_write_beside(alea_api_answer *answer, alea_pool *pool);

/* answer_tokens.c: the logprobs of a choice's pending entries, as the endpoint writes them. */
void alea__api_write_logprobs(alea_api_answer *answer, const alea_api_choice *choice);

/* A token by itself, never as an id; valid until the next call. */
alea_bytes alea__api_token_text(const alea_api_answer *answer, int32_t token,
                                const int32_t *before);

/* prompt_scores.c. Take: a PROMPT event, of an open group. */
alea_status alea__api_scores_take(alea_api_answer *answer, int32_t prompt,
                                  const alea_event *event) ALEA_MUST_USE;

/* Whether the beginning of a choice's arrays is there to be written. */
bool alea__api_scores_complete(const alea_api_answer *answer, int32_t prompt);

/* The prompt's text into a choice that has nothing yet. */
alea_status alea__api_echo(alea_api_answer *answer, alea_api_choice *choice) ALEA_MUST_USE;

/* A position as an entry of a choice's arrays. */
alea_api_entry alea__api_prompt_entry(const alea_api_answer *answer, int32_t prompt, size_t at);

/* The member prompt_logprobs, null where it was not asked for. */
void alea__api_write_prompt_logprobs(alea_api_answer *answer, int32_t prompt);

/* score.c: the body of a score. */
alea_status alea__api_write_score(alea_api_answer *answer) ALEA_MUST_USE;

/* Code points of a token as it is written, for vLLM's offsets. */
uint64_t alea__api_compat_length(const alea_api_answer *answer, int32_t token,
                                 const int32_t *before);

#endif
