/* One thread and one list: a body of ten megabytes is tokenized here, and an answer of a hundred is
 * written, while the streams go on. */
#include <stdlib.h>

#include "server/server_parts.h"

void alea__job_read(alea_job *job) {
    const alea_bytes body = {job->body, job->body_length};
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
    free(job->body);
    job->body = NULL;
}

void alea__job_write(alea_job *job) {
    job->status = alea__api_answer_body(job->answer, &job->http_status, &job->text);
}

static alea_job *next_job(alea_server *server) {
    pthread_mutex_lock(&server->work_mutex);
    while (!server->first_work && !server->worker_stops)
        pthread_cond_wait(&server->work, &server->work_mutex);
    alea_job *job = server->worker_stops ? NULL : server->first_work;
    if (job) server->first_work = job->next_of_work;
    pthread_mutex_unlock(&server->work_mutex);
    return job;
}

static void *work(void *user) {
    alea_server *server = user;
    for (alea_job *job; (job = next_job(server));) {
        if (job->phase == ALEA_JOB_READING)
            alea__job_read(job);
        else
            alea__job_write(job);
        alea__job_tell(job);
    }
    return NULL;
}

alea_status alea__worker_start(alea_server *server) {
    if (pthread_create(&server->worker, NULL, work, server) != 0) return ALEA_ENOMEM;
    server->worker_started = true;
    return ALEA_OK;
}

void alea__worker_stop(alea_server *server) {
    if (!server->worker_started) return;
    pthread_mutex_lock(&server->work_mutex);
    server->worker_stops = true;
    pthread_cond_signal(&server->work);
    pthread_mutex_unlock(&server->work_mutex);
    pthread_join(server->worker, NULL);
    server->worker_started = false;
}

void alea__worker_take(alea_server *server, alea_job *job) {
    pthread_mutex_lock(&server->work_mutex);
    job->next_of_work = NULL;
    if (server->first_work)
        server->last_work->next_of_work = job;
    else
        server->first_work = job;
    server->last_work = job;
    pthread_cond_signal(&server->work);
    pthread_mutex_unlock(&server->work_mutex);
}
