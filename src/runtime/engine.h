/*
 * The engine: many requests over one core. It owns the core's sequences, decides what each round
 * computes, draws the tokens and hands out, for every choice of every request, its tokens in order
 * with their logprobs. It does no I/O and reads no clock: time is an argument of a step.
 *
 * A request's tokens and logprobs are a function of the request and the model alone. What shares
 * its rounds, how its prompt was cut, whether a prefix was reused and when it was paused decide
 * only when they come, never what they are (on a core that says batch_invariant).
 *
 * One thread steps the engine; any thread submits, reads events and cancels.
 */
#ifndef ALEA_RUNTIME_ENGINE_H
#define ALEA_RUNTIME_ENGINE_H

#include "alea/core.h"
#include "base/pool.h"
#include "core/manifest/manifest.h"
#include "runtime/params.h"

typedef struct alea_engine alea_engine;
typedef struct alea_request alea_request;

/* Whether a scored prompt may begin with positions that an earlier one has had scored. */
typedef enum alea_scored_cache {
    ALEA_SCORED_CACHE_AUTO, /* where the core says batch_invariant */
    ALEA_SCORED_CACHE_ON,   /* the same, and creation fails on any other core */
    ALEA_SCORED_CACHE_OFF
} alea_scored_cache;

/* Zero in a number means the default. */
typedef struct alea_engine_options {
    int32_t slots;          /* sequences in use; all that the core has */
    int32_t round_tokens;   /* most tokens of one round; what the core takes */
    int32_t queue_requests; /* waiting requests before submission is refused; 1024 */
    int32_t queue_tokens;   /* unread tokens of a choice before it pauses, and positions of a scored
                               prompt; 256, and of those two rounds if that is more */
    int32_t threads;        /* for the rows; the affinity mask */
    int32_t brief_rows;     /* rounds of so few rows are presented before the next one is computed,
                               not beside it; 4; -1: none */
    bool no_prefix_cache;
    bool no_overlap;      /* compute and present in turn, on one thread */
    bool prompt_logprobs; /* take the memory that scored prompts need; else they are refused */
    alea_scored_cache scored_cache; /* of use with prompt_logprobs alone */
} alea_engine_options;

/* Why a choice ended. */
typedef enum alea_finish {
    ALEA_FINISH_NONE,
    ALEA_FINISH_END,        /* an end token of the model */
    ALEA_FINISH_STOP_TOKEN, /* stop: its id */
    ALEA_FINISH_STOP,       /* stop: the index of the string */
    ALEA_FINISH_LENGTH,     /* max_tokens, or the context is full */
    ALEA_FINISH_CANCELLED,
    ALEA_FINISH_DEADLINE,
    ALEA_FINISH_ERROR
} alea_finish;

/*
 * PROMPT comes for requests with prompt_top >= 0 alone: once for every prompt position, in order
 * from 0, as events of choice 0 and before its first TOKEN. What a prompt position holds is the
 * report of the row before it on the prompt's own token: position 0 has none (has_entry false).
 */
enum alea_event_kind { ALEA_EVENT_TOKEN, ALEA_EVENT_FINISH, ALEA_EVENT_PROMPT };

/* What a reader gets. Pointers live until the next call of alea_request_next on the request. */
typedef struct alea_event {
    enum alea_event_kind kind;
    int32_t choice;
    int32_t index; /* TOKEN: of the token in its choice; PROMPT: position in the prompt; FINISH: how
                      many TOKENs the choice has had */

    int32_t token;         /* TOKEN, PROMPT; -1: a prompt position that holds no token */
    int32_t visible_bytes; /* TOKEN: how many of its bytes belong to the returned text */
    bool has_entry;        /* false: forced, not asked for, or a prompt position without a row */
    bool ends;             /* the terminating token: what is shown has no entry for it */
    float logprob;         /* NaN without an entry */
    float sampled_logprob; /* NaN unless asked for */
    float kept_mass;       /* NaN unless asked for */
    float entropy;         /* NaN unless asked for */
    int32_t rank;   /* 1 + tokens with a greater logprob; 0 unless asked for; PROMPT: always */
    bool is_greedy; /* where rank is not 0: the token has the largest raw logit, and of equal ones
                       the smallest id. Distinct logits may meet in one logprob, so a token of
                       rank 1 need not be greedy */
    int32_t n_alternatives;
    const alea_alternative *alternatives;

    alea_finish finish; /* FINISH */
    int32_t stop;
    int32_t output_tokens; /* generated, terminating and hidden ones included */
    alea_status status;    /* ERROR: its kind */
    const char *message;   /* ERROR: one line */
} alea_event;

/* What a request has cost and drawn from, for reports. */
typedef struct alea_request_usage {
    int32_t prompt_tokens;
    int32_t cached_tokens; /* of the prompt, reused by the first choice; where the prompt is scored,
                              the positions whose scores were reused too */
    int32_t output_tokens;
    uint64_t seed;
    uint64_t first_token_ns; /* engine time; 0: none yet */
} alea_request_usage;

/* Counters since the start; one consistent snapshot. */
typedef struct alea_engine_stats {
    uint64_t rounds;
    uint64_t prompt_tokens; /* computed: those that were found are cached_tokens */
    uint64_t cached_tokens;
    uint64_t output_tokens; /* the sum of the choices' own: their readers see no other */
    uint64_t requests;
    uint64_t finished, cancelled, failed; /* choices, by how they ended */
    int32_t waiting;                      /* requests of which no choice has had a slot yet */
    int32_t running;                      /* choices that hold a slot */
    int32_t slots;
    uint64_t reduced_positions; /* rows that a logprob request made the reduction read */
    uint64_t scored_positions;  /* prompt positions scored from rows; cached ones do not count */
    uint64_t preempted;         /* choices that gave their slot to one of smaller priority */
    size_t memory_bytes;        /* allocated at the start, cores apart */
} alea_engine_stats;

/*
 * Errors    ALEA_EINVAL (an option, named), ALEA_ENOMEM: *engine untouched
 * Memory    everything that rounds need is allocated here
 */
alea_status alea__engine_create(alea_core *core, const alea_engine_options *options,
                                alea_engine **engine, alea_error *error) ALEA_MUST_USE;

/* Ends every request as cancelled; requests still held stay readable until released. */
void alea__engine_destroy(alea_engine *engine);

/* What requests may ask of this engine: submission refuses the rest. Lives as long as the engine;
 * allow_prompt_logprobs is false also where the options left scoring out. */
const alea_capability *alea__engine_capability(const alea_engine *engine);

/*
 * Queue a request. The parameters and the prompt are copied.
 *
 * Domain    1 <= n_prompt; prompt and max_tokens fit the context, or the context cuts max_tokens;
 *           a prompt that is scored and not continued may have one token more; prompt is -1
 *           exactly where params->opaques are
 * Result    *request, to be released by alea__request_release
 * Errors    ALEA_EINVAL (a field, named), ALEA_EUNSUPPORTED (logprobs, ids or prompt scores that
 *           this core or this engine does not offer), ALEA_ECONTEXT (the prompt alone is too long),
 *           ALEA_ELIMIT (the queue is full), ALEA_ENOMEM
 * Memory    one block: 4 bytes a token of prompt and answer for each choice, with penalties at most
 *           36, and queues that do not grow with the prompt
 * Threads   any
 */
alea_status alea__engine_submit(alea_engine *engine, const int32_t *prompt, int32_t n_prompt,
                                const alea_request_params *params, alea_request **request,
                                alea_error *error) ALEA_MUST_USE;

/* Memory of such a request, once submitted; 0: there can be none. */
size_t alea__engine_request_bytes(const alea_engine *engine, int32_t n_prompt,
                                  const alea_request_params *params);

/*
 * One round: admit, compute, draw, present. `now_ns` is the caller's clock.
 * Result    ALEA_OK: something was done; ALEA_DONE: nothing to do, call again after a submission
 *           or after a reader made room
 * Threads   one
 */
alea_status alea__engine_step(alea_engine *engine, uint64_t now_ns) ALEA_MUST_USE;

/* Step on a thread of the engine's own until stopped; the clock is alea__clock_ns. */
alea_status alea__engine_start(alea_engine *engine, alea_error *error) ALEA_MUST_USE;
void alea__engine_stop(alea_engine *engine);

void alea__engine_stats_read(alea_engine *engine, alea_engine_stats *stats);

/*
 * The next event of any choice, in order within each choice, those of the prompt first. ALEA_MORE:
 * none now (after waiting at most `timeout_ms`; 0: no waiting, negative: for ever); ALEA_DONE: all
 * choices have finished and everything was read.
 * Threads   one reader a request
 */
alea_status alea__request_next(alea_request *request, int32_t timeout_ms,
                               alea_event *event) ALEA_MUST_USE;

/*
 * The same for one choice: ALEA_DONE once its FINISH was read. A reader that takes the choices one
 * after the other leaves the others' tokens in their queues: let queue_tokens hold a whole answer.
 */
alea_status alea__request_next_of(alea_request *request, int32_t choice, int32_t timeout_ms,
                                  alea_event *event) ALEA_MUST_USE;

/* End the request at the next round; its choices finish as cancelled. Any thread, any time. */
void alea__request_cancel(alea_request *request);

/* Called whenever the request has something new, on a thread of the engine's, never two at once;
 * must only signal. */
void alea__request_notify(alea_request *request, void (*notify)(void *user), void *user);

void alea__request_usage_read(alea_request *request, alea_request_usage *usage);

/* Give the handle back; a running request is cancelled first. */
void alea__request_release(alea_request *request);

#endif
