/*
 * The layer's own structures, shared by its files and by nobody else:
 *   fields*.c   the table of fields, and what is made of it
 *   error.c     errors as clients read them
 *   service.c   what is served
 *   job*.c      from values to a job; prompt.c and chat.c make its token ids
 *   prompt_scores.c   scores of prompts: what may be asked, what came, how it is written
 *   score.c     one prompt and many continuations, whole
 *   document.c  the same for a document in windows
 *   answer.c    what was collected of an answer; answer_write.c writes it
 *   bodies.c    models, tokens, version; routes.c, the table of what there is; openapi.c
 */
#ifndef ALEA_API_API_PARTS_H
#define ALEA_API_API_PARTS_H

#include "api/api.h"
#include "api/fields.h"
#include "base/arena.h"
#include "base/utf8.h"
#include "text/chat_template.h"
#include "text/chat_tokens.h"
#include "json/json_read.h"
#include "json/json_write.h"

/* Most bytes of an answer, and of what is written for the chat template. */
#define ALEA_API_BODY_BYTES_MAX ((size_t)1 << 30)

struct alea_api {
    const alea_core *core;
    alea_core_info info;
    alea_api_options options; /* pointers lead into `arena` */
    bool allow_logprobs, allow_token_ids, allow_prompt_logprobs;
    alea_arena arena;
    alea_chat_template *chat; /* NULL: there is none that works */
    alea_chat_tokenizer *chat_tokenizer;
    const char *chat_source; /* NULL: none */
    char chat_error[256];    /* why `chat` is NULL */
    char fingerprint[24];
    size_t token_bytes_max; /* of the longest token: bounds what a text can shrink to */
};

/* Which distribution the reported numbers are of. */
typedef enum alea_api_mode { ALEA_MODE_RAW, ALEA_MODE_PROCESSED, ALEA_MODE_ALL } alea_api_mode;

/* How a job's answer is written. */
struct alea_api_presentation {
    bool logprobs;
    int32_t top; /* alternatives that are shown */
    alea_api_mode mode;
    bool vllm_compat;
    bool tokens_as_token_ids;
    bool return_token_ids;
    bool show_special;  /* control tokens by their names */
    bool echo;          /* the prompt's text opens the answer's */
    bool echo_logprobs; /* and its tokens the answer's arrays */
    int32_t prompt_top; /* alternatives of a prompt's position; -1: prompts are not scored */
    bool include_usage, continuous_usage;
    int32_t stream_interval; /* tokens */
    alea_bytes role;         /* chat */
    alea_bytes prompt_text;  /* chat; data NULL: not asked for */
};

/* A job in the making, and what it owns. */
typedef struct alea_api_draft {
    alea_api_job job; /* first: a job is freed as its draft */
    alea_arena arena;
    alea_api_prompt *prompts;
    alea_api_presentation presentation;
} alea_api_draft;

/* What its makers share. */
typedef struct alea_api_maker {
    const alea_api *api;
    const alea_api_values *values;
    const alea_api_context *context;
    alea_api_draft *draft;
    alea_api_error *error;
} alea_api_maker;

static inline alea_bytes alea__api_bytes(const char *text) {
    return (alea_bytes){(const uint8_t *)text, __builtin_strlen(text)};
}

/* So much of a client's text as an error may quote: whole characters, at most `most` bytes. */
static inline int alea__api_quoted(alea_bytes text, size_t most) {
    if (text.length > most) text.length = most;
    return (int)alea__utf8_safe_length(text);
}

static inline bool alea__api_is(alea_bytes text, const char *word) {
    const size_t length = __builtin_strlen(word);
    return text.length == length && !__builtin_memcmp(text.data, word, length);
}

/* ALEA_EINVAL with a 400: a field's value is out of range, or at odds with another field. */
static inline alea_status alea__api_refuse(alea_api_error *error, const char *param,
                                           const char *message) {
    return alea__api_error_set(error, ALEA_FAULT_VALUE, param, "%s", message);
}

/* ALEA_EINVAL with a 503 of memory. */
alea_status alea__api_no_memory(alea_api_error *error);

/* service.c: 404 for another model than the one that is served. */
alea_status alea__api_check_model(const alea_api *api, const alea_api_string *model,
                                  alea_api_error *error) ALEA_MUST_USE;

/* job_lists.c: the fields that are lists, into the draft's params. */
alea_status alea__api_read_lists(alea_api_maker *maker) ALEA_MUST_USE;

/* A list of ids in [0, vocab), copied to the arena. */
alea_status alea__api_read_ids(const alea_json_value *list, const char *name, int32_t vocab,
                               alea_arena *arena, alea_token_list *out,
                               alea_api_error *error) ALEA_MUST_USE;

/* prompt_scores.c: echo and prompt_logprobs, into the draft. After the other reports were read. */
alea_status alea__api_read_scoring(alea_api_maker *maker) ALEA_MUST_USE;

/* 400 where prompts cannot be scored; the message names the switch. */
alea_status alea__api_check_scoring(const alea_api *api, const char *param,
                                    alea_api_error *error) ALEA_MUST_USE;

/* Find out what the tokens of a text have that the text has not. */
void alea__api_compare_text(const alea_api *api, alea_bytes text, alea_api_prompt *prompt);

/* score.c: the whole of a job. document.c: its prompts, where no continuations are given. */
alea_status alea__api_read_score(alea_api_maker *maker) ALEA_MUST_USE;
alea_status alea__api_read_document(alea_api_maker *maker) ALEA_MUST_USE;

/* prompt.c: a completion's prompts, and the cut of any prompt to the context. */
alea_status alea__api_read_prompts(alea_api_maker *maker) ALEA_MUST_USE;
alea_status alea__api_fit_prompts(alea_api_maker *maker) ALEA_MUST_USE;

/* Token ids of a text that its sender may mark up, in the arena. */
alea_status alea__api_encode(const alea_api *api, alea_bytes text, bool add_special,
                             const char *param, alea_arena *arena, alea_token_list *out,
                             alea_api_error *error) ALEA_MUST_USE;

/* chat.c: messages to token ids, in the arena. `must_fit`: what cannot fit the context is not
 * tokenized to find that out. `text` may be NULL; it gets what was rendered. */
alea_status alea__api_chat_encode(const alea_api *api, const alea_api_values *values, int64_t now_s,
                                  bool must_fit, alea_arena *arena, alea_token_list *out,
                                  alea_bytes *text, alea_api_error *error) ALEA_MUST_USE;

/* Whether an answer without tool calls is what was asked for. */
alea_status alea__api_check_tool_choice(const alea_api_values *values,
                                        alea_api_error *error) ALEA_MUST_USE;

/* The role of the answer: the assistant's, or that of the message that it continues. */
alea_bytes alea__api_chat_role(const alea_api_values *values);

/* A JSON value as it was read. */
void alea__api_copy_value(alea_json_writer *writer, const alea_json_value *value);

/* A finished writer's buffer becomes the caller's text; the writer's memory is freed on failure. */
alea_status alea__api_text_of(alea_json_writer *writer, alea_api_text *text) ALEA_MUST_USE;

#endif
