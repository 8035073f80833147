/*
 * The wire formats of OpenAI and vLLM, as pure functions: the bytes of a body become a validated
 * job; the engine's events become a whole body or the payloads of a stream. No sockets, no
 * clock, no engine calls and no threads but those of a pool that is lent: the server joins those.
 *
 * The one thing to know: a streamed and a whole answer are written by one code path. A chunk is
 * what was collected since the last one, a whole body is one chunk that never ended, so both hold
 * the same text, tokens, logprobs and usage.
 */
#ifndef ALEA_API_API_H
#define ALEA_API_API_H

#include "base/pool.h"
#include "core/manifest/manifest.h"
#include "runtime/engine.h"

/* ---- what is served ---- */

typedef struct alea_api alea_api;

/* Zero means off, or the default that is named. Strings and lists are copied. */
typedef struct alea_api_options {
    const char *const *model_names;    /* by which clients may ask; the first is what answers say */
    int32_t n_model_names;             /* at least 1 */
    const char *chat_template;         /* its source; NULL: the model's own */
    int64_t created_s;                 /* Unix time, for the list of models */
    const alea_capability *capability; /* NULL: the core offers everything */
    alea_token_list thinking_close; /* closes an overdue thinking budget; none: 400 for budgets */
    size_t body_bytes_max;          /* 64 MiB */
    int32_t prompts_max;            /* of one request; 1024 */
    bool vllm_compat;               /* what a request's vllm_compat is when it has none */
    bool trust_request_chat_template;
    bool tokens_as_token_ids; /* what return_tokens_as_token_ids is when a request has none */
    bool refuse_unknown_fields;
    bool prompt_tokens_details; /* cached tokens in usage */
    bool force_include_usage;   /* usage in every chunk of every stream */
    bool prompt_logprobs_off;   /* the engine was made without: what refusals say */
} alea_api_options;

/*
 * Shape     —
 * Domain    an open core, which must outlive the result
 * Result    *api: nothing in it changes afterwards
 * Exact     —
 * Errors    ALEA_EINVAL (an option, named), ALEA_EFORMAT (the chat template), ALEA_ENOMEM: *api
 *           untouched
 * Memory    the heap
 * Threads   any number use the result at once
 */
alea_status alea__api_create(const alea_core *core, const alea_api_options *options, alea_api **api,
                             alea_error *error) ALEA_MUST_USE;

/* NULL is allowed. Jobs and answers end before it. */
void alea__api_destroy(alea_api *api);

/* ---- errors ---- */

/* What is wrong; each has its HTTP status, its `type` and its `code` (error.c). */
typedef enum alea_api_fault {
    ALEA_FAULT_NONE,
    ALEA_FAULT_JSON,          /* 400: the body is no JSON object */
    ALEA_FAULT_MISSING,       /* 400 */
    ALEA_FAULT_TYPE,          /* 400 */
    ALEA_FAULT_VALUE,         /* 400: out of range, or at odds with another field */
    ALEA_FAULT_UNSUPPORTED,   /* 400: known, and not offered here */
    ALEA_FAULT_UNKNOWN_FIELD, /* 400: only where the server refuses unknown fields */
    ALEA_FAULT_CONTEXT,       /* 400: context_length_exceeded */
    ALEA_FAULT_KEY,           /* 401 */
    ALEA_FAULT_MODEL,         /* 404 */
    ALEA_FAULT_ROUTE,         /* 404 */
    ALEA_FAULT_METHOD,        /* 405 */
    ALEA_FAULT_BUSY,          /* 429 */
    ALEA_FAULT_INTERNAL,      /* 500 */
    ALEA_FAULT_UNAVAILABLE,   /* 503: loading, or shutting down */
    ALEA_FAULT_HTTP           /* any other status: alea__api_error_http */
} alea_api_fault;

typedef struct alea_api_error {
    alea_api_fault fault;
    int status;     /* HTTP */
    bool int_code;  /* vLLM's: code is the status as a number */
    char param[64]; /* "": null */
    char message[400];
} alea_api_error;

/* Fill an error and hand back ALEA_EINVAL. `param` may be NULL. The message is made valid UTF-8. */
alea_status alea__api_error_set(alea_api_error *error, alea_api_fault fault, const char *param,
                                const char *format, ...) ALEA_PRINTF(4, 5);

/* For what HTTP itself refuses: 408, 411, 413, 414, 415, 431, 501, 505, … */
void alea__api_error_http(alea_api_error *error, int status, const char *message);

/* What alea__engine_submit reported: a full queue 429, a long prompt 400, a stopping engine 503, an
 * argument or a constraint without tokens 400, the rest 500. */
void alea__api_error_of(alea_api_error *error, alea_status status, const char *message);

/* The same for what came later, of an ERROR event or of writing the answer: a limit that was met
 * then is none of the queue, and trying again would meet it again: 500. */
void alea__api_error_late(alea_api_error *error, alea_status status, const char *message);

#define ALEA_API_ERROR_BYTES 4096

/* {"error":{"message":…,"type":…,"param":…,"code":…}} into body [ALEA_API_ERROR_BYTES]; its
 * length. */
size_t alea__api_error_body(const alea_api_error *error, char *body);

/* ---- requests ---- */

typedef enum alea_api_endpoint {
    ALEA_API_COMPLETIONS = 1u << 0,
    ALEA_API_CHAT = 1u << 1,
    ALEA_API_TOKENIZE = 1u << 2,
    ALEA_API_DETOKENIZE = 1u << 3,
    ALEA_API_SCORE = 1u << 4
} alea_api_endpoint;

/* ---- routes ---- */

typedef enum alea_api_route_id {
    ALEA_ROUTE_COMPLETIONS,
    ALEA_ROUTE_CHAT,
    ALEA_ROUTE_SCORE,
    ALEA_ROUTE_MODELS,
    ALEA_ROUTE_MODEL,
    ALEA_ROUTE_RESPONSES,
    ALEA_ROUTE_EMBEDDINGS,
    ALEA_ROUTE_TOKENIZE,
    ALEA_ROUTE_DETOKENIZE,
    ALEA_ROUTE_TOKENIZER,
    ALEA_ROUTE_HEALTH,
    ALEA_ROUTE_PING,
    ALEA_ROUTE_VERSION,
    ALEA_ROUTE_METRICS,
    ALEA_ROUTE_LOAD,
    ALEA_ROUTE_OPENAPI,
    ALEA_ROUTES
} alea_api_route_id;

/* What a request must find, or bring, before it is looked at. */
enum alea_api_need {
    ALEA_NEEDS_KEY = 1u << 0,
    ALEA_NEEDS_MODEL = 1u << 1,  /* loaded */
    ALEA_NEEDS_ENGINE = 1u << 2, /* not draining */
    ALEA_NEEDS_JSON = 1u << 3    /* Content-Type */
};

typedef struct alea_api_route {
    const char *path;                /* "{model}" at its end is any text but none */
    const char *methods;             /* as Allow says it */
    unsigned needs;                  /* alea_api_need */
    alea_api_endpoint body;          /* of the request; 0: it has none */
    const char *summary, *operation; /* for the document */
    const char *answer;              /* media type; NULL: no body */
    bool streams;
    const char *refused; /* why it is not offered, where it is not; the document leaves it out */
} alea_api_route;

extern const alea_api_route alea__api_routes[ALEA_ROUTES];

/* ---- */

/* What a request brings besides its body. */
typedef struct alea_api_context {
    alea_bytes request_id; /* X-Request-Id, which wins over the body's; empty: none */
    alea_bytes priority;   /* X-Vllm-Priority, likewise */
    uint64_t random[2];    /* becomes the id when none was given */
    int64_t now_s;         /* Unix time: `created`, and the date in chat templates */
} alea_api_context;

/* One prompt of a job is one request to the engine. */
typedef struct alea_api_prompt {
    const int32_t *tokens;
    int32_t n_tokens;     /* at least 1 */
    int32_t max_tokens;   /* what was asked, cut to the room in the context */
    bool is_text;         /* given as text: control tokens stand in it by their names */
    bool has_blank;       /* its tokens begin with a blank that the text has not */
    int32_t n_added;      /* tokens in front that the text has not */
    int32_t continuation; /* score: the first token that counts */
} alea_api_prompt;

typedef struct alea_api_presentation alea_api_presentation;

/* A validated request. Everything lives until alea__api_job_free. */
typedef struct alea_api_job {
    const alea_api *api;
    alea_api_endpoint endpoint;
    bool stream;
    const char *id; /* "cmpl-…", "chatcmpl-…" or "score-…", for the answer and for logs */
    int64_t created_s;
    const alea_api_prompt *prompts;
    int32_t n_prompts;
    int32_t document_tokens;    /* score: the prompts are windows of a document of so many; or 0 */
    alea_request_params params; /* of every prompt, max_tokens apart: alea__api_job_params */
    const alea_api_presentation *presentation;
} alea_api_job;

/*
 * Bytes of a body to a job.
 *
 * Shape     —
 * Domain    endpoint ALEA_API_COMPLETIONS, ALEA_API_CHAT or ALEA_API_SCORE; any bytes
 * Result    *job, to be freed by alea__api_job_free; the body is not needed any more
 * Exact     a function of api, body and context
 * Errors    negative with *error, whose status is the answer's: *job untouched
 * Memory    the heap, in proportion to the body; about 14 times it while this runs
 * Threads   reentrant
 */
alea_status alea__api_job_parse(const alea_api *api, alea_api_endpoint endpoint, alea_bytes body,
                                const alea_api_context *context, alea_api_job **job,
                                alea_api_error *error) ALEA_MUST_USE;

/* NULL is allowed. */
void alea__api_job_free(alea_api_job *job);

/* Memory that it holds. */
size_t alea__api_job_bytes(const alea_api_job *job);

/* For alea__engine_submit, with prompts[prompt].tokens. The server may add a deadline. */
alea_request_params alea__api_job_params(const alea_api_job *job, int32_t prompt);

/* ---- answers ---- */

typedef struct alea_api_answer alea_api_answer;

/* A stream's next payload: JSON, or "[DONE]". Valid during the call. A failure ends the answer. */
typedef alea_status (*alea_api_emit)(void *user, alea_bytes payload);

/* A heap text: a whole body. All zero is none. */
typedef struct alea_api_text {
    char *data;
    size_t length;
} alea_api_text;

void alea__api_text_free(alea_api_text *text);

/*
 * Begin the answer of a job; job->stream decides how it is given.
 *
 * Shape     —
 * Domain    emit NULL only where the job does not stream
 * Result    *answer, to be freed by alea__api_answer_free before the job
 * Errors    ALEA_ENOMEM
 * Memory    the heap: 8 bytes a prompt at first. With a prompt's first event come some 200 bytes
 *           for each of its choices, which a stream gives back after their last. A stream keeps no
 *           history, a whole answer 64 bytes a token and 8 for each alternative, a scored prompt
 *           40 and 8
 * Threads   one per answer
 */
alea_status alea__api_answer_begin(const alea_api_job *job, alea_api_emit emit, void *user,
                                   alea_api_answer **answer) ALEA_MUST_USE;

/*
 * Take the next event of the request made of prompts[prompt]; events of different prompts and
 * choices mix freely.
 *
 * Domain    usage: of that request, needed with a FINISH event; else it may be NULL
 * Result    ALEA_OK; ALEA_DONE: that was the last one. A stream has emitted its "[DONE]" then, a
 *           whole answer has its body ready.
 * Errors    ALEA_ENOMEM, what emit returned, ALEA_EROW (an entry that should exist does not): the
 *           answer has failed; alea__api_answer_fail says so to the client
 */
alea_status alea__api_answer_take(alea_api_answer *answer, int32_t prompt, const alea_event *event,
                                  const alea_request_usage *usage) ALEA_MUST_USE;

/* End it with an error: a stream emits it and "[DONE]", a whole answer becomes it. An answer that
 * is done is left alone. */
void alea__api_answer_fail(alea_api_answer *answer, const alea_api_error *error);

/*
 * The body of a whole answer that is done or has failed, and its HTTP status. One that would be
 * longer than bytes_max, or than 1 GiB, becomes an error.
 *
 * Exact     the bytes do not depend on the pool
 * Errors    ALEA_ENOMEM; ALEA_MORE: it is not done yet
 * Memory    the body, and with a pool choices beside it: for each thread at most 32 MiB, or
 *           bytes_max
 * Threads   the caller's and those of the pool, which may be NULL and has no other run meanwhile
 */
alea_status alea__api_answer_body(alea_api_answer *answer, size_t bytes_max, alea_pool *pool,
                                  int *status, alea_api_text *body) ALEA_MUST_USE;

/* Memory that it holds now. */
size_t alea__api_answer_bytes(const alea_api_answer *answer);

/* NULL is allowed. */
void alea__api_answer_free(alea_api_answer *answer);

/* ---- the other bodies ---- */

/* GET /v1/models. */
alea_status alea__api_models(const alea_api *api, alea_api_text *body) ALEA_MUST_USE;

/* GET /v1/models/{name}; the name as the path has it, percent signs decoded. */
alea_status alea__api_model(const alea_api *api, alea_bytes name, alea_api_text *body,
                            alea_api_error *error) ALEA_MUST_USE;

/* POST /tokenize and /detokenize. */
alea_status alea__api_tokenize(const alea_api *api, alea_bytes body,
                               const alea_api_context *context, alea_api_text *answer,
                               alea_api_error *error) ALEA_MUST_USE;
alea_status alea__api_detokenize(const alea_api *api, alea_bytes body, alea_api_text *answer,
                                 alea_api_error *error) ALEA_MUST_USE;

/* GET /tokenizer_info, /version, /openapi.json. */
alea_status alea__api_tokenizer_info(const alea_api *api, alea_api_text *body) ALEA_MUST_USE;
alea_status alea__api_version(alea_api_text *body) ALEA_MUST_USE;
alea_status alea__api_openapi(alea_api_text *body) ALEA_MUST_USE;

#endif
