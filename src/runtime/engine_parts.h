/*
 * The engine's own structures, shared by its files and by nobody else:
 *   request.c  what a client holds: copied parameters, the rings it reads
 *   admit.c    waiting choices, slots, the prefix cache
 *   plan.c     what the next round computes
 *   prompt.c   scored prompts: rows of their rounds, the scores on their way, the scored cache
 *   draw.c     from rows to tokens, records and payloads
 *   present.c  from a finished frame to the rings, stop strings included
 *   engine.c   life, threads and the order of these within a step
 *
 * Everything but a ring's reader side and the inbox belongs to the stepping thread. While the core
 * computes, the presenter has the pending plan, its runs with their rings, the slots' scores and
 * what presenting counts; the stepping thread touches none of them until it is done. Below, "the
 * stepping thread" is whichever of the two has it.
 */
#ifndef ALEA_RUNTIME_ENGINE_PARTS_H
#define ALEA_RUNTIME_ENGINE_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "contract/commit.h"
#include "contract/decode.h"
#include "contract/reduce.h"
#include "contract/scoring.h"
#include "runtime/engine.h"
#include "runtime/history.h"
#include "runtime/pipeline.h"
#include "text/stop.h"

/* A copied prefix pays from about here on: a copy costs what computing a few tokens does. */
#define ALEA_PREFIX_MIN_TOKENS 16

/* One token on its way to the reader. Its alternatives lie beside it, `width` of them. */
typedef struct alea_ring_entry {
    int32_t token;
    int32_t index;
    int32_t visible_bytes;
    uint64_t end; /* bytes of the choice's stream up to and including this token */
    bool has_entry;
    bool ends;
    float logprob, sampled_logprob, kept_mass, entropy;
    int32_t rank;
    bool is_greedy;
    int32_t n_alternatives;
} alea_ring_entry;

/*
 * head <= released <= tail. The reader takes [head, released); what lies between released and tail
 * may still turn out to belong to a stop string. Guarded by the request's mutex.
 */
typedef struct alea_ring {
    alea_ring_entry *entries;       /* [capacity] */
    alea_alternative *alternatives; /* [capacity][width] */
    _Atomic uint64_t head;          /* the planner looks at it without the mutex */
    uint64_t released, tail;
    int32_t capacity;
    int32_t width;
} alea_ring;

/* One scored prompt position on its way to the reader. */
typedef struct alea_score_entry {
    int32_t token;
    int32_t rank; /* 0: no entry, as at position 0 */
    float logprob;
    bool is_greedy;
    int32_t n_alternatives;
} alea_score_entry;

/* Prompt positions in order, one at a time, so that `tail` is also the next position to come.
 * `tail` is guarded by the request's mutex and written by the stepping thread alone. */
typedef struct alea_score_ring {
    alea_score_entry *entries;      /* [capacity] */
    alea_alternative *alternatives; /* [capacity][width] */
    _Atomic int32_t head;           /* the planner looks at it without the mutex */
    int32_t tail;
    int32_t capacity; /* 0: the prompt is not scored */
    int32_t width;
} alea_score_ring;

typedef enum alea_run_state {
    ALEA_RUN_WAITING, /* for a slot */
    ALEA_RUN_ACTIVE,  /* holds a slot */
    ALEA_RUN_OVER     /* computes nothing more; its last frame may still be pending */
} alea_run_state;

/* One choice of a request. */
typedef struct alea_run {
    alea_request *request;
    int32_t index;
    alea_run_state state;
    int32_t slot;
    int64_t epoch;
    int32_t *tokens; /* prompt, then output: [n_prompt + max_tokens] */
    int32_t n_tokens;
    int32_t n_prompt;
    bool placed;            /* has had a slot before: what it reuses now is its own */
    uint64_t planned_round; /* the last round that it has an item in */
    /* A scored prompt's, in choice 0: the scores of positions below n_stored come from the slot,
     * those below n_scored are there or on their way. */
    int32_t n_stored, n_scored;
    int32_t passed_by; /* how often it waited on for another's sake: start_followers */
    alea_history history;

    bool thinking;    /* the thinking budget runs */
    int32_t n_forced; /* ids of the close that were forced so far */

    uint64_t stream_bytes; /* presented so far */
    alea_stop_match stop_match;
    alea_ring ring;

    /* Set once, by the stepping thread; read by it alone until `finished`. */
    alea_finish finish;
    int32_t stop;
    alea_error error;

    bool finished;         /* nothing more will enter the ring; guarded by the request's mutex */
    bool finish_told;      /* the reader has had the FINISH event */
    struct alea_run *next; /* in the waiting list */
} alea_run;

struct alea_request {
    alea_engine *engine;
    atomic_int references;
    atomic_bool cancelled;
    pthread_mutex_t mutex;
    pthread_cond_t readable;
    void (*notify)(void *user);
    void *notify_user;

    alea_request_params params; /* pointers lead into this request's own memory */
    uint64_t arrival;
    bool begun; /* a run of it has had a slot, or all have ended; the stepping thread's */
    alea_stops stops;
    alea_score_ring scores; /* of the prompt; choice 0 computes them */
    alea_run *runs;         /* [params.choices] */
    int32_t next_choice;    /* where the reader looks first, so that no choice starves another */
    alea_alternative shown[ALEA_TOKEN_IDS_MAX]; /* of the event that the reader holds */
    alea_request_usage usage;
    alea_request *next; /* in the inbox */
};

/* A sequence of the core and what it holds. */
typedef struct alea_slot {
    int32_t *tokens; /* [context] */
    int32_t length;
    int64_t epoch;
    alea_run *run; /* NULL: idle, its content is the prefix cache */
    uint64_t last_round;
    uint64_t salt; /* whose its content is */
    /*
     * The scored cache: packed scores of positions 1 .. n_scores - 1, each the score of the token
     * that it names behind tokens[0 .. position - 1]. The last may name a token that the sequence
     * has not, or no longer: whoever reuses it compares. NULL: no such cache.
     */
    int32_t *scores; /* [context + 1][ALEA_STORED_WORDS] */
    int32_t n_scores;
} alea_slot;

/* A packed score, and the greedy token of its row. */
#define ALEA_STORED_WORDS (ALEA_SCORE_WORDS + 1)

/* The extra numbers of a token that the payload has no room for. */
typedef struct alea_extra {
    float sampled_logprob, kept_mass, entropy;
    int32_t rank;
    bool is_greedy;
} alea_extra;

/* What one round computes, and afterwards what its frame holds. One for each frame. */
typedef struct alea_plan {
    int32_t n_items;
    int32_t n_rows;
    int32_t frame;   /* -1: none */
    alea_run **runs; /* [slots], of each item */
    alea_round_item *items;
    int32_t *row;       /* [slots] of each item: the row that it samples; -1: none */
    int32_t *score_row; /* [slots] of each item: its first row to score; -1: none */
    int32_t *greedy;    /* [scored rows] */
    bool scored;        /* a round of scored prompts, which never mix with others */
    alea_lane *lanes;   /* [slots] */
    alea_extra *extras; /* [slots] */
} alea_plan;

/* The drawn token of one row. */
typedef struct alea_drawn {
    alea_status status;
    bool forced;
    int32_t token;
    alea_error error;
} alea_drawn;

struct alea_engine {
    atomic_int references; /* the owner's and one for each request: readers use the mutex */
    alea_core *core;
    alea_core_info info;
    alea_capability capability;
    alea_engine_options options;
    const alea_kernel_table *kernels;
    alea_pool *pool;
    int32_t *end_tokens;
    int32_t n_end_tokens;

    alea_slot *slots;  /* [options.slots] */
    alea_run *waiting; /* by priority, then arrival */
    alea_completion completion;
    alea_frames frames;
    alea_plan plans[ALEA_FRAMES];
    int32_t active;     /* index of the plan of the present round */
    int32_t pending;    /* index of the plan to present; -1: none */
    const float **rows; /* [round rows of the core, or slots if they are more] */
    alea_drawn *drawn;  /* [slots], by item */
    alea_reduce_lane *reduce_lanes;
    float *scratch; /* [pool threads][vocab] */
    void *block;    /* one allocation behind the arrays above */
    size_t block_bytes;
    uint64_t now_ns;
    uint64_t round;
    alea_status fault; /* the first broken rule of the contract: no round runs after it */
    alea_reduce_stats reduced;
    uint64_t n_output_tokens; /* committed */
    uint64_t n_scored_positions, n_preempted;
    int32_t scored_rows;  /* most rows of a scored round; 0: no scoring */
    int32_t queue_scores; /* unread positions of a scored prompt before it pauses */
    bool last_was_scored; /* scored and other rounds take turns where there are both */

    pthread_mutex_t mutex; /* inbox, counters, stopping */
    pthread_cond_t work;
    alea_request *inbox;
    alea_request *inbox_last;
    int32_t n_waiting_requests; /* none of whose runs has had a slot */
    alea_engine_stats stats;
    uint64_t arrivals;
    bool stopping;
    bool started;
    pthread_t thread;

    /* The presenter: presents the last frame while the stepping thread computes the active plan. */
    pthread_t presenter;
    bool has_presenter;
    pthread_mutex_t presenter_mutex;
    pthread_cond_t presenter_cond;
    enum {
        ALEA_PRESENTER_IDLE,
        ALEA_PRESENTER_ASKED, /* and not awake yet: the stepping thread may take it back */
        ALEA_PRESENTER_BUSY,
        ALEA_PRESENTER_QUIT
    } presenter_state;
};

/* engine.c */
void alea__engine_unref(alea_engine *engine);
void alea__present_pending(alea_engine *engine);

/* request.c */
void alea__request_unref(alea_request *request);
bool alea__ring_has_room(const alea_ring *ring, int32_t entries);
void alea__run_tell(alea_run *run); /* wake the reader after a change under its mutex */

/* admit.c */
void alea__admit(alea_engine *engine);
void alea__run_end(alea_run *run, alea_finish finish, int32_t stop, const alea_error *error);
void alea__slot_forget(alea_engine *engine, int32_t slot);
bool alea__run_is_pending(const alea_engine *engine, const alea_run *run); /* in a frame */

/* prompt.c */
bool alea__run_scores_prompt(const alea_run *run); /* its reader gets the prompt's scores */
bool alea__run_is_scoring(const alea_run *run);
int32_t alea__score_room(const alea_run *run); /* of the ring, less what is on its way */
/* Positions of the run's prompt whose scores a slot can give, 0 without any. */
int32_t alea__stored_scores(const alea_slot *slot, const alea_run *run);
/* Another run computes what this one could take over soon. */
bool alea__scores_are_coming(const alea_engine *engine, const alea_run *run);
/* Hand stored scores to their readers, end prompts that are done; true: something was done. */
bool alea__feed_scores(alea_engine *engine);
alea_status alea__begin_scores(alea_engine *engine, const alea_plan *plan,
                               alea_error *error) ALEA_MUST_USE;
void alea__reduce_scores(alea_engine *engine, alea_plan *plan);
/* The request's mutex is held. */
alea_status alea__present_scores(alea_engine *engine, alea_plan *plan, int32_t item,
                                 alea_error *error) ALEA_MUST_USE;

/* plan.c: fills the active plan; false: there is nothing to compute. */
bool alea__plan_round(alea_engine *engine, alea_plan *plan);

/* draw.c: rows are ready; leaves the plan's frame pending. */
void alea__draw_round(alea_engine *engine, alea_plan *plan);

/* present.c: leaves the plan's frame free. */
void alea__present_round(alea_engine *engine, alea_plan *plan);

static inline int32_t alea__run_outputs(const alea_run *run) {
    return run->n_tokens - run->n_prompt;
}

/* For calls that cannot fail while the engine keeps the contract's rules. */
static inline void alea__engine_note(alea_engine *engine, alea_status status) {
    if (status < 0 && engine->fault >= 0) engine->fault = status;
}

/* Positions that the sequence holds in the end of a run without output: a scored prompt's last
 * token would only cost its row, which tells of nothing. */
static inline int32_t alea__run_prefill(const alea_run *run) {
    const bool spare = run->request->scores.capacity > 0 && run->tokens[run->n_prompt - 1] >= 0;
    return spare ? run->n_prompt - 1 : run->n_prompt;
}

static inline bool alea__wants_logprobs(const alea_request_params *params) {
    return params->top >= 0;
}

#endif
