/*
 * The one table of request fields. Validation, /openapi.json and the table in docs/api.md are all
 * made of it, so what is documented is what is checked. Rules that tie fields together are code
 * (job.c); a row's note says them in words.
 */
#ifndef ALEA_API_FIELDS_H
#define ALEA_API_FIELDS_H

#include <stdbool.h>

#include "api/api.h"
#include "json/json_read.h"
#include "json/json_write.h"

/* What a row's values are, and the member of alea_api_values that they are kept in. */
typedef enum alea_api_type {
    ALEA_TYPE_BOOL,    /* alea_api_bool */
    ALEA_TYPE_INT,     /* alea_api_int */
    ALEA_TYPE_NUMBER,  /* alea_api_number */
    ALEA_TYPE_STRING,  /* alea_api_string */
    ALEA_TYPE_STRINGS, /* a string or a list of strings: the JSON value */
    ALEA_TYPE_WORDS,   /* a list of strings: the JSON value */
    ALEA_TYPE_IDS,     /* a list of token ids: the JSON value */
    ALEA_TYPE_BIAS,    /* an object of numbers: the JSON value */
    ALEA_TYPE_PROMPT,  /* a prompt's four forms: the JSON value */
    ALEA_TYPE_OBJECTS, /* a list of objects: the JSON value */
    ALEA_TYPE_OBJECT,  /* the JSON value */
    ALEA_TYPE_ANY,     /* the JSON value */
    ALEA_TYPE_TEXT     /* a string or a list of token ids: the JSON value */
} alea_api_type;

typedef enum alea_api_treatment {
    ALEA_FIELD_HONOURED,
    ALEA_FIELD_REFUSED,  /* 400 unless null or the default */
    ALEA_FIELD_NO_EFFECT /* its type is checked; its value changes nothing */
} alea_api_treatment;

typedef struct alea_api_field {
    const char *name;
    alea_api_type type;
    unsigned at; /* alea_api_endpoint bits */
    alea_api_treatment treatment;
    bool no_null;             /* null is refused; otherwise null is the same as absent */
    bool required;            /* absent is refused, and null too */
    bool above;               /* NUMBER: low itself is outside */
    int64_t min, max;         /* INT; the length of WORDS, IDS and STRINGS */
    double low, high;         /* NUMBER */
    const char *const *words; /* STRING: the values there are, NULL-terminated */
    const char *fallback;     /* the default as JSON; NULL: none */
    size_t offset;            /* in alea_api_values */
    const char *note;         /* for docs/api.md and /openapi.json */
} alea_api_field;

typedef struct alea_api_bool {
    bool given, value;
} alea_api_bool;

typedef struct alea_api_int {
    bool given;
    int64_t value;
} alea_api_int;

typedef struct alea_api_number {
    bool given;
    double value;
} alea_api_number;

typedef struct alea_api_string {
    bool given;
    alea_bytes value;
} alea_api_string;

/* A request's fields as they were given; a JSON value is NULL where it was not. */
typedef struct alea_api_values {
    alea_api_string model, request_id, cache_salt, logprobs_mode, truncation_side, chat_template,
        prompt_text, reasoning_effort;
    alea_api_int max_tokens, max_completion_tokens, n, seed, top_k, logprobs, top_logprobs,
        min_tokens, truncate_prompt_tokens, stream_interval, priority, thinking_token_budget,
        prompt_logprobs, window, stride;
    alea_api_number temperature, top_p, min_p, presence_penalty, frequency_penalty,
        repetition_penalty;
    alea_api_bool chat_logprobs, return_tokens_as_token_ids, return_token_ids,
        include_stop_str_in_output, ignore_eos, skip_special_tokens, add_special_tokens, stream,
        vllm_compat, add_generation_prompt, continue_final_message, return_prompt_text,
        return_token_strs, echo, scored_cache;
    const alea_json_value *prompt, *messages, *logit_bias, *logprob_token_ids, *stop,
        *stop_token_ids, *allowed_token_ids, *bad_words, *stream_options, *response_format, *tools,
        *tool_choice, *documents, *chat_template_kwargs, *modalities, *tokens, *continuations;
} alea_api_values;

extern const alea_api_field alea__api_fields[];
extern const size_t alea__api_n_fields;

/* The row of a field at an endpoint, or NULL. */
const alea_api_field *alea__api_field(alea_api_endpoint endpoint, alea_bytes name);

/*
 * Read and check a body's members by the table. `strict`: unknown ones are errors.
 *
 * Result    *values; JSON values live as long as the document
 * Errors    ALEA_EINVAL with *error
 */
alea_status alea__api_values_read(alea_api_endpoint endpoint, const alea_json_value *root,
                                  bool strict, alea_api_values *values,
                                  alea_api_error *error) ALEA_MUST_USE;

/* The rows as Markdown, for docs/api.md: fields of one treatment. `put` takes each piece. */
void alea__api_fields_markdown(alea_api_treatment treatment,
                               void (*put)(void *user, const char *text), void *user);

/* A row's JSON Schema, for /openapi.json. */
void alea__api_field_schema(const alea_api_field *field, alea_json_writer *writer);

#endif
