/*
 * What the files of this layer share:
 *   server.c   the order of beginning and ending
 *   routes.c   from a path to what serves it; the small answers
 *   jobs.c     what generates: from an exchange to the engine's requests and back
 *   worker.c   the threads that read bodies and write answers, where that takes time
 *   keys.c, metrics.c, server_log.c, systemd.c   one thing each
 */
#ifndef ALEA_SERVER_SERVER_PARTS_H
#define ALEA_SERVER_SERVER_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "server/keys.h"
#include "server/metrics.h"
#include "server/server.h"

#define ALEA_VISIT_ID_BYTES 129
#define ALEA_SERVER_WORKERS 3

typedef struct alea_server alea_server;
typedef struct alea_job alea_job;

/* What is remembered of an exchange until it is over: its name, and what the log says of it. */
typedef struct alea_visit {
    char id[ALEA_VISIT_ID_BYTES]; /* the client's X-Request-Id, or one of ours */
    bool id_is_theirs;
    uint64_t random[2];
    size_t route;
    int32_t n_prompts, prompt_tokens, cached_tokens, output_tokens;
    const char *finish; /* NULL: nothing was generated */
    uint64_t first_token_ns;
} alea_visit;

/* Who has a job: the workers in the first and the last, where nobody else may tell of it. */
typedef enum alea_job_phase {
    ALEA_JOB_READING,  /* its body is read */
    ALEA_JOB_RUNNING,  /* the loop's */
    ALEA_JOB_COMPLETE, /* the loop's, until what the engine told last has come out of the list */
    ALEA_JOB_WRITING   /* its answer is written */
} alea_job_phase;

/* Jobs that wait for a worker, oldest first. */
typedef struct alea_work_list {
    alea_job *first, *last;
} alea_work_list;

/* The body of a request on its way to an answer: read, perhaps by a worker, then generated. It
 * outlives its exchange where another thread still holds it. */
struct alea_job {
    alea_server *server;
    alea_http_exchange *exchange; /* NULL: over, for the client */
    alea_visit *visit;            /* lives as long as the exchange */
    alea_job *previous, *next;    /* of all */
    alea_job *next_ready;
    atomic_bool is_ready;      /* in the list of those that have something new */
    alea_work_list *work_list; /* that it is in, guarded by the workers' mutex; NULL: none */
    alea_job *previous_work, *next_work;
    alea_job_phase phase;
    size_t held_bytes; /* of the server's: what follows, as last counted */

    alea_api_endpoint endpoint;
    uint8_t *body;
    size_t body_length;
    alea_api_context context;
    char id[ALEA_VISIT_ID_BYTES], priority[24]; /* what the context points to */
    alea_status status; /* of the reading: with `error`, or one of the two results */
    alea_api_error error;
    alea_api_job *asked;
    size_t asked_bytes;
    alea_api_text text; /* the answer, where it is whole */
    bool is_heavy;      /* it takes much memory to write */
    int http_status;    /* of it */

    alea_api_answer *answer;
    bool begun;                  /* the stream is */
    bool fails;                  /* what is emitted now says why */
    struct alea_flight *flights; /* [n_flights]: prompts that the engine has */
    int32_t n_flights, next_prompt;
    size_t flight_bytes; /* that the engine holds for them */
    uint64_t arrived_ns;
};

struct alea_server {
    alea_server_options options;
    alea_http_server *http;
    alea_keys keys;
    bool has_keys;
    alea_metrics metrics;

    pthread_t loader;
    bool loader_started;
    atomic_bool loaded; /* what follows is there, or load_status says why not */
    alea_status load_status;
    alea_error load_error;
    alea_core *core;
    alea_api *api;
    alea_engine *engine;
    bool ready; /* the loop has seen it */

    bool draining;
    int n_signals;
    alea_job *jobs;
    int32_t n_jobs, slots;
    size_t held_bytes;  /* by jobs, those too whose clients have left */
    double job_seconds; /* how long one takes, smoothed */
    int retry_after_s;  /* what a refused client is told */
    _Atomic(alea_job *) ready_jobs;

    pthread_t workers[ALEA_SERVER_WORKERS];
    int n_workers;
    bool workers_stop;
    pthread_mutex_t work_mutex;
    pthread_cond_t work;
    alea_work_list light, heavy; /* jobs whose body or whose answer is due */
    alea_pool *writers;          /* write one answer, guarded by the mutex */
    pthread_mutex_t writers_mutex;
};

/* ---- routes.c ---- */

void alea__server_request(void *server, alea_http_exchange *exchange);
void alea__server_ended(void *server, const alea_http_exchange *exchange);
size_t alea__server_refusal(void *server, int status, const char *message, char *body,
                            size_t capacity);

/* With X-Request-Id and what the status asks for besides. */
void alea__server_answer(alea_server *server, alea_http_exchange *exchange, int status,
                         const char *content_type, alea_bytes body);
/* The same with JSON, which is taken away: a long text is not copied. */
void alea__server_give(alea_server *server, alea_http_exchange *exchange, int status,
                       alea_api_text *text);
void alea__server_fail(alea_server *server, alea_http_exchange *exchange,
                       const alea_api_error *error);

/* ---- jobs.c ---- */

/* Take a request over: it is answered sooner or later. */
void alea__job_begin(alea_server *server, alea_http_exchange *exchange, alea_visit *visit,
                     alea_api_endpoint endpoint);
/* What was told by other threads. */
void alea__jobs_go_on(alea_server *server);
/* The drain is over: whatever is not done fails. */
void alea__jobs_fail(alea_server *server, const char *message);
/* After the last exchange, and without the other threads: what they had not given back. */
void alea__jobs_free(alea_server *server);
/* Any thread: the job has something new. */
void alea__job_tell(alea_job *job);
/* What requests hold, and the answers that are still being sent. */
size_t alea__jobs_bytes(const alea_server *server);

/* ---- worker.c ---- */

/* After a failure too, stop. */
alea_status alea__workers_start(alea_server *server) ALEA_MUST_USE;
void alea__workers_stop(alea_server *server);
void alea__workers_take(alea_server *server, alea_job *job, bool heavy);
/* Whether it was still waiting: then it is the loop's again. */
bool alea__workers_forget(alea_server *server, alea_job *job) ALEA_MUST_USE;
/* Read the body, write the whole answer: what workers do, and the loop for small ones. */
void alea__job_read(alea_job *job);
void alea__job_write(alea_job *job, alea_pool *pool);

#endif
