/*
 * A job is one exchange that generates. Its prompts are the engine's requests, a few at a time, so
 * that a thousand prompts in one body neither fill the queue nor hold a thousand answers' memory.
 *
 * Ownership: the loop frees a job once its exchange is over and no other thread can reach it. The
 * engine's reach ends with alea__request_notify(…, NULL, NULL), which waits for a call in flight;
 * a job that stands in the list of ready ones, or that a worker has, is freed when it comes out.
 *
 * Memory: what a job holds is counted whenever it may have changed, and all jobs have one budget.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "server/server_parts.h"

#define SMALL_BODY_BYTES 8192    /* read at once: a thread would cost more than it saves */
#define SMALL_ANSWER_TOKENS 1024 /* written at once, likewise */
#define HEAVY_BODY_BYTES (1 << 20)
#define HEAVY_ANSWER_VALUES (1 << 18) /* tokens and their alternatives */
#define RETRY_SECONDS_MAX 60

typedef struct alea_flight {
    alea_request *request; /* NULL: free */
    int32_t prompt;
    int32_t n_tokens;   /* of all choices so far */
    int32_t n_finished; /* choices */
    size_t bytes;
    uint64_t last_token_ns;
} alea_flight;

/* ---- what other threads say ---- */

void alea__job_tell(alea_job *job) {
    if (atomic_exchange(&job->is_ready, true)) return;
    alea_server *server = job->server;
    alea_job *first = atomic_load(&server->ready_jobs);
    do
        job->next_ready = first;
    while (!atomic_compare_exchange_weak(&server->ready_jobs, &first, job));
    if (!first) alea__http_wake(server->http);
}

static void on_notify(void *user) {
    alea__job_tell(user);
}

/* ---- ends ---- */

/* Choices that run are cancelled, and nobody else will learn of their end. */
static void end_flight(const alea_job *job, alea_flight *flight) {
    if (!flight->request) return;
    job->server->metrics.finished[ALEA_FINISH_CANCELLED] +=
        (uint64_t)(job->asked->params.choices - flight->n_finished);
    alea__request_notify(flight->request, NULL, NULL);
    alea__request_cancel(
        flight->request); /* wakes the engine: its slot is free in the next round */
    alea__request_release(flight->request);
    flight->request = NULL;
}

static void free_job(alea_job *job) {
    job->server->held_bytes -= job->held_bytes;
    alea__api_answer_free(job->answer);
    alea__api_job_free(job->asked);
    alea__api_text_free(&job->text);
    free(job->flights);
    free(job->body);
    free(job);
}

/* The client has its answer, or has left. */
static void end_job(alea_job *job) {
    alea_server *server = job->server;
    for (int32_t i = 0; i < job->n_flights; i++)
        end_flight(job, &job->flights[i]);
    if (job->previous)
        job->previous->next = job->next;
    else
        server->jobs = job->next;
    if (job->next) job->next->previous = job->previous;
    server->n_jobs--;
    job->exchange = NULL;
    job->visit = NULL;
    const bool is_work = job->phase == ALEA_JOB_READING || job->phase == ALEA_JOB_WRITING;
    const bool worker_has = is_work && !alea__workers_forget(server, job);
    if (!worker_has && !atomic_load(&job->is_ready)) free_job(job);
}

static void fail_job(alea_job *job, const alea_api_error *error) {
    job->fails = true;
    if (job->begun) {
        alea__api_answer_fail(job->answer, error);
        alea__http_stream_end(job->exchange);
    } else {
        alea__server_fail(job->server, job->exchange, error);
    }
    end_job(job);
}

/* Before the engine had it, or after. */
static void fail_early(alea_job *job, alea_status status, const char *message) {
    alea_api_error error = {.int_code = job->server->options.api.vllm_compat};
    alea__api_error_of(&error, status, message);
    fail_job(job, &error);
}

static void fail_late(alea_job *job, alea_status status, const char *message) {
    alea_api_error error = {.int_code = job->server->options.api.vllm_compat};
    alea__api_error_late(&error, status, message);
    fail_job(job, &error);
}

static void note_abort(alea_job *job) {
    if (job->n_flights > 0) job->visit->finish = "abort"; /* for the log */
}

/* ---- memory ---- */

size_t alea__jobs_bytes(const alea_server *server) {
    alea_http_stats http;
    alea__http_stats_read(server->http, &http);
    return server->held_bytes + http.answer_bytes_held;
}

static void count_bytes(alea_job *job) {
    size_t bytes = sizeof *job + job->body_length + job->asked_bytes + job->text.length +
                   job->flight_bytes + (size_t)job->n_flights * sizeof *job->flights;
    if (job->answer) bytes += alea__api_answer_bytes(job->answer);
    job->server->held_bytes += bytes - job->held_bytes;
    job->held_bytes = bytes;
}

/* Over the budget, whoever grows and holds more than a share of it has to go: requests that need
 * little are served beside those that need much, and all together hold less than twice the budget.
 */
static bool is_greedy(alea_job *job) {
    alea_server *server = job->server;
    const size_t budget = server->options.request_bytes;
    count_bytes(job);
    const size_t own = job->held_bytes + alea__http_answer_held(job->exchange);
    const bool greedy = alea__jobs_bytes(server) > budget && own > budget / (size_t)server->n_jobs;
    if (greedy) server->metrics.starved++;
    return greedy;
}

static void fail_greedy(alea_job *job) {
    note_abort(job);
    fail_late(
        job, ALEA_ENOMEM,
        "the request needs more memory than is left for it: ask for fewer prompts, choices or "
        "logprobs in one, or try again later");
}

/* False: the job has failed and is gone. */
static bool stays_within(alea_job *job) {
    if (!is_greedy(job)) return true;
    fail_greedy(job);
    return false;
}

/* ---- ends from outside ---- */

static void on_gone(void *user) {
    note_abort(user);
    end_job(user);
}

void alea__jobs_fail(alea_server *server, const char *message) {
    alea_api_error error = {.int_code = server->options.api.vllm_compat};
    alea__api_error_set(&error, ALEA_FAULT_UNAVAILABLE, NULL, "%s", message);
    while (server->jobs) {
        alea_job *job = server->jobs;
        note_abort(job);
        fail_job(job, &error);
    }
}

static void give_answer(alea_job *job) {
    if (job->status < 0) {
        fail_late(job, job->status, NULL);
        return;
    }
    alea__server_give(job->server, job->exchange, job->http_status, &job->text);
    end_job(job);
}

/* Tokens of the whole answer. A scored prompt is written into each of its choices. */
static int64_t tokens_of(const alea_job *job) {
    const alea_request_params *params = &job->asked->params;
    const int64_t generated = job->visit->output_tokens;
    if (params->prompt_top < 0) return generated;
    return generated + (int64_t)job->visit->prompt_tokens * params->choices;
}

static void write_aside(alea_job *job) {
    const alea_request_params *params = &job->asked->params;
    const int32_t listed =
        params->selected.count > params->top ? params->selected.count : params->top;
    const int32_t most = listed > params->prompt_top ? listed : params->prompt_top;
    job->phase = ALEA_JOB_WRITING;
    job->is_heavy = tokens_of(job) * (most + 2) > HEAVY_ANSWER_VALUES;
    alea__workers_take(job->server, job, job->is_heavy);
}

static void complete(alea_job *job) {
    alea_server *server = job->server;
    const double taken_s = (double)(alea__clock_ns() - job->arrived_ns) / 1e9;
    alea__metrics_observe(&server->metrics, ALEA_HISTOGRAM_REQUEST, taken_s, 1);
    server->job_seconds += (taken_s - server->job_seconds) / 8;
    if (job->begun) {
        alea__http_stream_end(job->exchange);
        end_job(job);
        return;
    }
    if (tokens_of(job) <= SMALL_ANSWER_TOKENS) { /* more may be felt by the streams */
        alea__job_write(job, NULL);
        give_answer(job);
        return;
    }
    for (int32_t i = 0; i < job->n_flights; i++)
        end_flight(job, &job->flights[i]);
    job->flight_bytes = 0;
    count_bytes(job);
    if (atomic_load(&job->is_ready))
        job->phase = ALEA_JOB_COMPLETE;
    else
        write_aside(job);
}

/* ---- generating ---- */

/* With the first event, so that what fails before it has a status of its own; or after some time of
 * waiting, so that the client sees signs of life. */
static void begin_stream(void *user) {
    alea_job *job = user;
    if (job->begun) return;
    const alea_http_header header = {"x-request-id", job->visit->id};
    alea__http_stream_begin(job->exchange, &header, 1);
    job->begun = true;
}

static alea_status emit(void *user, alea_bytes payload) {
    alea_job *job = user;
    begin_stream(job);
    alea__http_stream_event(job->exchange, payload);
    return job->fails || !is_greedy(job) ? ALEA_OK : ALEA_ELIMIT;
}

static const char *word_of(alea_finish finish) {
    switch (finish) {
    case ALEA_FINISH_END:
    case ALEA_FINISH_STOP_TOKEN:
    case ALEA_FINISH_STOP: return "stop";
    case ALEA_FINISH_LENGTH: return "length";
    case ALEA_FINISH_ERROR: return "error";
    default: return "abort";
    }
}

/* Counters and what the log says; `now` is when the loop looked, a little after the token came. */
static void note(alea_job *job, alea_flight *flight, const alea_event *event, uint64_t now) {
    alea_metrics *metrics = &job->server->metrics;
    if (event->kind == ALEA_EVENT_FINISH) {
        metrics->finished[event->finish]++;
        flight->n_finished++;
        job->visit->output_tokens += event->output_tokens - event->index; /* the hidden ones */
        job->visit->finish = word_of(event->finish);
        alea__metrics_observe(metrics, ALEA_HISTOGRAM_OUTPUT, event->output_tokens, 1);
        return;
    }
    if (event->kind != ALEA_EVENT_TOKEN) return;
    job->visit->output_tokens++; /* as they come: whoever leaves has had them */
    if (!job->visit->first_token_ns) job->visit->first_token_ns = now;
    if (flight->n_tokens++ == 0) {
        alea__metrics_observe(metrics, ALEA_HISTOGRAM_FIRST_TOKEN,
                              (double)(now - job->arrived_ns) / 1e9, 1);
    } else {
        alea__metrics_observe(metrics, ALEA_HISTOGRAM_BETWEEN_TOKENS,
                              (double)(now - flight->last_token_ns) / 1e9, 1);
    }
    flight->last_token_ns = now;
}

/* False: the job has failed and is gone. */
static bool start_next(alea_job *job, alea_flight *flight) {
    if (job->next_prompt == job->asked->n_prompts) return true;
    const int32_t at = job->next_prompt;
    const alea_api_prompt *prompt = &job->asked->prompts[at];
    const alea_request_params params = alea__api_job_params(job->asked, at);
    alea_error error = {.status = ALEA_OK, .message = ""};
    flight->bytes = alea__engine_request_bytes(job->server->engine, prompt->n_tokens, &params);
    job->flight_bytes += flight->bytes;
    if (!stays_within(job)) return false;
    const alea_status status = alea__engine_submit(
        job->server->engine, prompt->tokens, prompt->n_tokens, &params, &flight->request, &error);
    if (status < 0) {
        flight->request = NULL;
        fail_early(job, status, error.message);
        return false;
    }
    job->next_prompt++;
    flight->prompt = at;
    flight->n_tokens = flight->n_finished = 0;
    job->visit->prompt_tokens += prompt->n_tokens;
    alea__metrics_observe(&job->server->metrics, ALEA_HISTOGRAM_PROMPT, prompt->n_tokens, 1);
    alea__request_notify(flight->request, on_notify, job);
    alea__job_tell(job); /* what came before the line above was told to nobody */
    return true;
}

/* What came for one prompt. False: the job is over and gone. */
static bool go_on(alea_job *job, alea_flight *flight, uint64_t now) {
    while (flight->request) {
        alea_event event;
        alea_request_usage usage;
        if (job->asked->stream && !alea__http_writable(job->exchange)) return true;
        alea_status status = alea__request_next(flight->request, 0, &event);
        if (status == ALEA_DONE) {
            end_flight(job, flight);
            job->flight_bytes -= flight->bytes;
            if (!start_next(job, flight)) return false;
            continue;
        }
        if (status != ALEA_OK) return true;
        note(job, flight, &event, now);
        if (event.kind == ALEA_EVENT_FINISH) {
            alea__request_usage_read(flight->request, &usage);
            if (event.choice == 0) job->visit->cached_tokens += usage.cached_tokens;
            if (event.finish == ALEA_FINISH_ERROR && !job->begun) {
                fail_late(job, event.status, event.message);
                return false;
            }
        }
        status = alea__api_answer_take(job->answer, flight->prompt, &event,
                                       event.kind == ALEA_EVENT_FINISH ? &usage : NULL);
        if (status == ALEA_OK && stays_within(job)) continue;
        if (status == ALEA_OK) return false;
        if (status == ALEA_DONE)
            complete(job);
        else if (status == ALEA_ELIMIT) /* emit's word */
            fail_greedy(job);
        else
            fail_late(job, status, NULL);
        return false;
    }
    return true;
}

static void go_on_all(alea_job *job) {
    const uint64_t now = alea__clock_ns();
    const int32_t n = job->n_flights;
    for (int32_t i = 0; i < n; i++)
        if (!go_on(job, &job->flights[i], now)) return;
}

static void on_writable(void *user) {
    go_on_all(user);
}

/* Prompts in flight: choices for every slot twice, and one prompt to go on with. */
static int32_t flights_of(const alea_job *job) {
    const int32_t most = 2 + (2 * job->server->slots - 2) / job->asked->params.choices;
    return job->asked->n_prompts < most ? job->asked->n_prompts : most;
}

static void start(alea_job *job) {
    const int32_t n = flights_of(job);
    job->visit->n_prompts = job->asked->n_prompts;
    job->flights = calloc((size_t)n, sizeof *job->flights);
    alea_status status = job->flights ? ALEA_OK : ALEA_ENOMEM;
    if (status >= 0)
        status =
            alea__api_answer_begin(job->asked, job->asked->stream ? emit : NULL, job, &job->answer);
    if (status < 0) {
        fail_early(job, status, NULL);
        return;
    }
    job->n_flights = n;
    alea__http_on_writable(job->exchange, on_writable);
    if (job->asked->stream) alea__http_on_silence(job->exchange, begin_stream);
    for (int32_t i = 0; i < n; i++)
        if (!start_next(job, &job->flights[i])) return;
}

/* The body was read. */
static void act(alea_job *job) {
    if (job->status < 0) {
        fail_job(job, &job->error);
    } else if (job->asked) {
        start(job);
    } else {
        alea__server_give(job->server, job->exchange, 200, &job->text);
        end_job(job);
    }
}

static void wake_up(alea_job *job) {
    const alea_job_phase phase = job->phase;
    atomic_store(&job->is_ready, false);
    job->phase = ALEA_JOB_RUNNING;
    if (!job->exchange) {
        free_job(job);
        return;
    }
    switch (phase) {
    case ALEA_JOB_READING: act(job); break;
    case ALEA_JOB_RUNNING: go_on_all(job); break;
    case ALEA_JOB_COMPLETE: write_aside(job); break;
    case ALEA_JOB_WRITING: give_answer(job); break;
    }
}

void alea__jobs_go_on(alea_server *server) {
    alea_job *last = atomic_exchange(&server->ready_jobs, NULL), *first = NULL;
    while (last) { /* first come, first served */
        alea_job *next = last->next_ready;
        last->next_ready = first;
        first = last;
        last = next;
    }
    while (first) {
        alea_job *next = first->next_ready;
        wake_up(first);
        first = next;
    }
}

void alea__jobs_free(alea_server *server) {
    for (alea_job *job = atomic_exchange(&server->ready_jobs, NULL), *next; job; job = next) {
        next = job->next_ready;
        free_job(job);
    }
}

/* ---- the beginning ---- */

static bool is_full(alea_server *server, alea_http_exchange *exchange) {
    const int32_t queue = server->n_jobs - server->slots;
    if (queue < server->options.max_queue) return false;
    server->metrics.busy++;
    double seconds = server->job_seconds * (queue + 1) / server->slots;
    if (!(seconds >= 1)) seconds = 1;
    if (seconds > RETRY_SECONDS_MAX) seconds = RETRY_SECONDS_MAX;
    alea_api_error error = {.int_code = server->options.api.vllm_compat};
    alea__api_error_set(&error, ALEA_FAULT_BUSY, NULL,
                        "the queue is full (%d waiting): try again in %.0f s", queue, seconds);
    server->retry_after_s = (int)seconds;
    alea__server_fail(server, exchange, &error);
    return true;
}

/* Whether reading the body may take long enough to be felt by the streams: its bytes are many, or
 * few of them ask for much, as continuations of one prompt do, and messages in a template of which
 * nobody knows what it does. */
static bool is_long(alea_api_endpoint endpoint, size_t body_bytes) {
    return body_bytes > SMALL_BODY_BYTES || endpoint == ALEA_API_SCORE ||
           endpoint == ALEA_API_CHAT || endpoint == ALEA_API_TOKENIZE;
}

/* Whether it takes much memory meanwhile: a continuation may be a context long, and the text of an
 * id a hundred bytes. */
static bool is_heavy(alea_api_endpoint endpoint, size_t body_bytes) {
    const bool swells = endpoint == ALEA_API_SCORE || endpoint == ALEA_API_DETOKENIZE;
    return body_bytes > (swells ? SMALL_BODY_BYTES : HEAVY_BODY_BYTES);
}

static void fill_context(alea_job *job, const alea_visit *visit) {
    const char *priority = alea__http_header_of(job->exchange, "x-vllm-priority");
    snprintf(job->priority, sizeof job->priority, "%s", priority ? priority : "");
    snprintf(job->id, sizeof job->id, "%s", visit->id_is_theirs ? visit->id : "");
    job->context = (alea_api_context){
        .request_id = {(const uint8_t *)job->id, strlen(job->id)},
        .priority = {(const uint8_t *)job->priority, strlen(job->priority)},
        .random = {visit->random[0], visit->random[1]},
        .now_s = time(NULL),
    };
}

void alea__job_begin(alea_server *server, alea_http_exchange *exchange, alea_visit *visit,
                     alea_api_endpoint endpoint) {
    if (is_full(server, exchange)) return;
    const size_t body_bytes = alea__http_body(exchange).length;
    alea_job *job = calloc(1, sizeof *job);
    if (!job) {
        alea_api_error error = {.int_code = server->options.api.vllm_compat};
        alea__api_error_of(&error, ALEA_ENOMEM, "out of memory for this request");
        alea__server_fail(server, exchange, &error);
        return;
    }
    job->server = server;
    job->exchange = exchange;
    job->visit = visit;
    job->endpoint = endpoint;
    job->phase = ALEA_JOB_RUNNING;
    job->body = alea__http_take_body(exchange, &job->body_length);
    job->arrived_ns = alea__http_record_of(exchange).started_ns;
    atomic_init(&job->is_ready, false);
    fill_context(job, visit);
    job->next = server->jobs;
    if (server->jobs) server->jobs->previous = job;
    server->jobs = job;
    server->n_jobs++;
    alea__http_on_gone(exchange, on_gone, job);
    if (!stays_within(job)) return;
    if (is_long(endpoint, body_bytes)) {
        job->phase = ALEA_JOB_READING;
        alea__workers_take(server, job, is_heavy(endpoint, body_bytes));
        return;
    }
    alea__job_read(job);
    act(job);
}
