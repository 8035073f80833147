/*
 * A few threads and two lists. Bodies are read here and answers written, while the streams go on.
 *
 * The one thing to know: heavy work is the first thread's alone, one piece at a time, which bounds
 * the memory that it takes meanwhile; the others take light work alone, so nothing heavy, and no
 * one slow template, holds up everybody.
 */
#include <stdlib.h>

#include "server/server_parts.h"
#include "text/chat_template.h"

#define OWN_STACK_BYTES ((size_t)4 << 20)
#define WRITERS_MAX 4 /* threads on one answer */

void alea__job_read(alea_job *job) {
    static const uint8_t none[1] = {0};
    const alea_bytes body = {job->body ? job->body : none, job->body_length};
    const alea_api *api = job->server->api;
    switch (job->endpoint) {
    case ALEA_API_TOKENIZE:
        job->status = alea__api_tokenize(api, body, &job->context, &job->text, &job->error);
        break;
    case ALEA_API_DETOKENIZE:
        job->status = alea__api_detokenize(api, body, &job->text, &job->error);
        break;
    default:
        job->status =
            alea__api_job_parse(api, job->endpoint, body, &job->context, &job->asked, &job->error);
    }
    if (job->asked) job->asked_bytes = alea__api_job_bytes(job->asked);
    free(job->body);
    job->body = NULL;
    job->body_length = 0;
}

void alea__job_write(alea_job *job, alea_pool *pool) {
    job->status = alea__api_answer_body(job->answer, job->server->options.request_bytes, pool,
                                        &job->http_status, &job->text);
}

/* While the engine computes, its processors are not to be had. What is heavy would stand in memory
 * twice. */
static bool may_share(const alea_job *job) {
    alea_engine_stats stats;
    alea__engine_stats_read(job->server->engine, &stats);
    return !job->is_heavy && stats.running == 0 && alea__pool_threads(job->server->writers) > 1;
}

/* One answer at a time may have the threads that write choices beside each other. */
static void write_answer(alea_job *job) {
    alea_server *server = job->server;
    const bool shares = may_share(job) && pthread_mutex_trylock(&server->writers_mutex) == 0;
    alea__job_write(job, shares ? server->writers : NULL);
    if (shares) pthread_mutex_unlock(&server->writers_mutex);
}

/* ---- lists ---- */

static void append(alea_work_list *list, alea_job *job) {
    job->work_list = list;
    job->previous_work = list->last;
    job->next_work = NULL;
    if (list->last)
        list->last->next_work = job;
    else
        list->first = job;
    list->last = job;
}

static void take_out(alea_job *job) {
    alea_work_list *list = job->work_list;
    if (job->previous_work)
        job->previous_work->next_work = job->next_work;
    else
        list->first = job->next_work;
    if (job->next_work)
        job->next_work->previous_work = job->previous_work;
    else
        list->last = job->previous_work;
    job->work_list = NULL;
}

/* ---- threads ---- */

static alea_job *first_job(const alea_server *server, bool takes_heavy) {
    return takes_heavy && server->heavy.first ? server->heavy.first : server->light.first;
}

/* NULL: the end. */
static alea_job *next_job(alea_server *server, bool takes_heavy) {
    pthread_mutex_lock(&server->work_mutex);
    while (!server->workers_stop && !first_job(server, takes_heavy))
        pthread_cond_wait(&server->work, &server->work_mutex);
    alea_job *job = server->workers_stop ? NULL : first_job(server, takes_heavy);
    if (job) take_out(job);
    pthread_mutex_unlock(&server->work_mutex);
    return job;
}

static void work(alea_server *server, bool takes_heavy) {
    for (alea_job *job; (job = next_job(server, takes_heavy));) {
        if (job->phase == ALEA_JOB_READING)
            alea__job_read(job);
        else
            write_answer(job);
        alea__job_tell(job);
    }
}

static void *work_on_all(void *user) {
    work(user, true);
    return NULL;
}

static void *work_on_light(void *user) {
    work(user, false);
    return NULL;
}

alea_status alea__workers_start(alea_server *server) {
    pthread_attr_t attributes;
    const int32_t n_cpus = alea__cpu_count();
    const alea_status status =
        alea__pool_create(n_cpus < WRITERS_MAX ? n_cpus : WRITERS_MAX, &server->writers);
    if (status < 0) return status;
    if (pthread_attr_init(&attributes) != 0) return ALEA_ENOMEM;
    /* Templates are rendered on it: with less they would need a thread more. */
    bool started =
        pthread_attr_setstacksize(&attributes, ALEA_CHAT_STACK_BYTES + OWN_STACK_BYTES) == 0;
    while (started && server->n_workers < ALEA_SERVER_WORKERS) {
        void *(*start)(void *user) = server->n_workers == 0 ? work_on_all : work_on_light;
        started =
            pthread_create(&server->workers[server->n_workers], &attributes, start, server) == 0;
        server->n_workers += started;
    }
    pthread_attr_destroy(&attributes);
    return started ? ALEA_OK : ALEA_ENOMEM;
}

void alea__workers_stop(alea_server *server) {
    pthread_mutex_lock(&server->work_mutex);
    server->workers_stop = true;
    pthread_cond_broadcast(&server->work);
    pthread_mutex_unlock(&server->work_mutex);
    while (server->n_workers > 0)
        pthread_join(server->workers[--server->n_workers], NULL);
    alea__pool_destroy(server->writers);
    server->writers = NULL;
}

void alea__workers_take(alea_server *server, alea_job *job, bool heavy) {
    pthread_mutex_lock(&server->work_mutex);
    append(heavy ? &server->heavy : &server->light, job);
    pthread_cond_broadcast(&server->work); /* not everybody takes what is heavy */
    pthread_mutex_unlock(&server->work_mutex);
}

bool alea__workers_forget(alea_server *server, alea_job *job) {
    pthread_mutex_lock(&server->work_mutex);
    const bool waits = job->work_list != NULL;
    if (waits) take_out(job);
    pthread_mutex_unlock(&server->work_mutex);
    return waits;
}
