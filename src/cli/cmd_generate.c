/*
 * `alea generate`: prompts to requests, requests to samples. Several are computed at once and shown
 * in order; a sample is the same whatever is computed beside it. The seed is drawn here when none
 * is given, and always reported, so that whatever was seen can be seen again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/utf8.h"
#include "cli/printer.h"
#include "cli/question.h"

enum {
    SEED_BITS = 53,      /* any JSON reader keeps such a number whole */
    JOBS_MAX = 32,       /* requests in hand */
    SAMPLES_AHEAD = 256, /* samples in hand: their unread tokens are kept */
    INTERRUPT_MS = 100   /* how late a signal may be seen */
};

/* A request and what its lines are called. */
typedef struct job {
    alea_request *request;
    alea_text_id id;
    char *id_text; /* behind a text id */
    char where[128];
    int32_t first_sample;
    int32_t n_samples;
} job;

typedef struct generate_command {
    const alea_settings *settings;
    const alea_session *session;
    alea_printer *printer;
    alea_engine *engine;
    alea_request_params params;
    alea_bytes stops[ALEA_LIST_MAX];
    job jobs[JOBS_MAX]; /* a ring, in order of arrival */
    int32_t first_job, n_jobs;
    int32_t samples_in_hand;
} generate_command;

static alea_exit choose_seed(const alea_settings *settings, uint64_t *seed) {
    *seed = settings->seed;
    if (settings->seeded) return ALEA_EXIT_OK;
    if (getrandom(seed, sizeof *seed, 0) != (ssize_t)sizeof *seed) {
        alea__complain("no random seed can be drawn; give --seed N");
        return ALEA_EXIT_FAILURE;
    }
    *seed >>= 64 - SEED_BITS;
    return ALEA_EXIT_OK;
}

static void fill_params(generate_command *self, uint64_t seed) {
    const alea_settings *settings = self->settings;
    self->params = alea__params_default();
    self->params.sampling = (alea_sampling){(float)settings->temperature, (int32_t)settings->top_k,
                                            (float)settings->top_p, (float)settings->min_p};
    self->params.seed = seed;
    self->params.seeded = true;
    self->params.max_tokens = (int32_t)settings->max_tokens;
    self->params.ignore_end = settings->ignore_end;
    self->params.top = settings->logprobs > 0 ? (int32_t)settings->logprobs : 0;
    self->params.want_rank = settings->json || settings->logprobs >= 0;
    for (int i = 0; i < settings->stops.n; i++) {
        const char *stop = settings->stops.words[i];
        self->stops[i] = (alea_bytes){(const uint8_t *)stop, strlen(stop)};
    }
    self->params.stops = self->stops;
    self->params.n_stops = settings->stops.n;
}

/* ---- showing ---- */

static alea_status show_token(generate_command *self, const alea_event *event) {
    if (event->ends) return ALEA_OK; /* an end token has no entry and no text */
    alea_row_report report = {.token = event->token,
                              .logprob = event->logprob,
                              .rank = event->rank,
                              .n_top = event->n_alternatives};
    for (int32_t i = 0; i < event->n_alternatives; i++)
        report.top[i] = event->alternatives[i];
    const alea_sampled sampled = {event->index, event->visible_bytes, &report};
    return self->printer->api->sample_token(self->printer, &sampled);
}

static alea_exit exit_of_print(const generate_command *self, alea_status status) {
    if (status >= 0) return ALEA_EXIT_OK;
    /* The output and the spool have said why. */
    if (self->printer->output->failed || status == ALEA_EIO) return ALEA_EXIT_OUTPUT;
    return alea__exit_of(status);
}

static alea_exit show_finish(generate_command *self, const job *of, const alea_event *event) {
    if (event->finish == ALEA_FINISH_ERROR) {
        alea__complain("%s: %s", of->where, event->message);
        return alea__exit_of(event->status);
    }
    const bool stopped = event->finish == ALEA_FINISH_STOP;
    const alea_sample_end end = {event->finish,
                                 stopped ? self->settings->stops.words[event->stop] : NULL};
    return exit_of_print(self, self->printer->api->sample_end(self->printer, &end));
}

static alea_exit show_sample(generate_command *self, const job *of, int32_t index) {
    const alea_sample sample = {self->settings->jsonl ? &of->id : NULL, of->first_sample + index};
    alea_exit code = exit_of_print(self, self->printer->api->sample_begin(self->printer, &sample));
    while (code == ALEA_EXIT_OK) {
        if (alea__interrupted) {
            alea__complain("interrupted");
            return ALEA_EXIT_INTERRUPTED;
        }
        alea_event event;
        const alea_status status = alea__request_next_of(of->request, index, INTERRUPT_MS, &event);
        if (status == ALEA_MORE) continue;
        if (event.kind == ALEA_EVENT_FINISH) return show_finish(self, of, &event);
        code = exit_of_print(self, show_token(self, &event));
    }
    return code;
}

static void drop_oldest(generate_command *self) {
    job *oldest = &self->jobs[self->first_job];
    self->samples_in_hand -= oldest->n_samples;
    self->first_job = (self->first_job + 1) % JOBS_MAX;
    self->n_jobs--;
    alea__request_release(oldest->request);
    free(oldest->id_text);
}

static alea_exit show_oldest(generate_command *self) {
    const job *oldest = &self->jobs[self->first_job];
    alea_exit code = ALEA_EXIT_OK;
    for (int32_t i = 0; i < oldest->n_samples && code == ALEA_EXIT_OK; i++)
        code = show_sample(self, oldest, i);
    drop_oldest(self);
    return code;
}

static alea_exit make_room(generate_command *self, int32_t n_samples) {
    while (self->n_jobs == JOBS_MAX ||
           (self->n_jobs > 0 && self->samples_in_hand + n_samples > SAMPLES_AHEAD)) {
        const alea_exit code = show_oldest(self);
        if (code != ALEA_EXIT_OK) return code;
    }
    return ALEA_EXIT_OK;
}

/* ---- asking ---- */

static alea_exit refuse(const alea_question *question, alea_status status,
                        const alea_error *error) {
    alea__complain("%s: %s", question->where, error->message);
    return alea__exit_of(status);
}

static alea_status name_job(job *named, const alea_question *question, alea_error *error) {
    named->id = question->id;
    snprintf(named->where, sizeof named->where, "%s", question->where);
    if (question->id.kind != ALEA_ID_TEXT) return ALEA_OK;
    const size_t length = question->id.text.length;
    named->id_text = malloc(length + 1);
    if (!named->id_text) return alea_error_set(error, ALEA_ENOMEM, "out of memory for an id");
    memcpy(named->id_text, question->id.text.data, length);
    named->id.text.data = (const uint8_t *)named->id_text;
    return ALEA_OK;
}

static alea_exit ask(generate_command *self, const alea_question *question,
                     const alea_token_ids *ids, int32_t first_sample, int32_t n_samples) {
    const alea_exit code = make_room(self, n_samples);
    if (code != ALEA_EXIT_OK) return code;
    alea_error error = {.status = ALEA_OK, .message = ""};
    job asked = {.first_sample = first_sample, .n_samples = n_samples};
    alea_status status = name_job(&asked, question, &error);
    self->params.first_choice = first_sample;
    self->params.choices = n_samples;
    if (status >= 0)
        status = alea__engine_submit(self->engine, ids->tokens, (int32_t)ids->n_tokens,
                                     &self->params, &asked.request, &error);
    if (status < 0) {
        free(asked.id_text);
        return refuse(question, status, &error);
    }
    self->jobs[(self->first_job + self->n_jobs++) % JOBS_MAX] = asked;
    self->samples_in_hand += n_samples;
    return ALEA_EXIT_OK;
}

static alea_exit visit(void *user, const alea_question *question) {
    generate_command *self = user;
    alea_error error = {.status = ALEA_OK, .message = ""};
    const size_t valid = alea__utf8_valid_length(question->text);
    if (valid < question->text.length) {
        const alea_status bad =
            alea_error_set(&error, ALEA_EFORMAT,
                           "the prompt is not UTF-8 at byte %zu; convert it to UTF-8", valid);
        return refuse(question, bad, &error);
    }
    alea_token_ids ids;
    const uint32_t flags =
        ALEA_TOKENIZE_SPECIAL | (self->settings->markup ? (uint32_t)ALEA_TOKENIZE_MARKUP : 0u);
    const alea_status status =
        alea__text_encode(self->session->core, question->text, flags, &ids, &error);
    if (status < 0) return refuse(question, status, &error);
    alea_exit code = ALEA_EXIT_OK;
    const int32_t n = (int32_t)self->settings->n;
    for (int32_t at = 0; at < n && code == ALEA_EXIT_OK; at += ALEA_CHOICES_MAX)
        code = ask(self, question, &ids, at, n - at < ALEA_CHOICES_MAX ? n - at : ALEA_CHOICES_MAX);
    alea__token_ids_free(&ids);
    return code;
}

/* No further line is there yet: whoever writes them may be waiting for an answer. */
static alea_exit use_wait(void *user, bool *more) {
    generate_command *self = user;
    const alea_exit code = self->n_jobs > 0 ? show_oldest(self) : ALEA_EXIT_OK;
    *more = self->n_jobs > 0;
    return code;
}

/* What was asked before a bad line is shown all the same. */
static alea_exit walk(generate_command *self) {
    const alea_exit asked = alea__prompts_walk(self->settings, visit, use_wait, self);
    alea_exit shown = ALEA_EXIT_OK;
    while (self->n_jobs > 0 && shown == ALEA_EXIT_OK && asked != ALEA_EXIT_INTERRUPTED)
        shown = show_oldest(self);
    while (self->n_jobs > 0)
        drop_oldest(self);
    return asked != ALEA_EXIT_OK ? asked : shown;
}

/* ---- the command ---- */

static alea_exit start_engine(generate_command *self) {
    const int32_t context = self->session->info.context_tokens;
    const int32_t most = (int32_t)self->settings->max_tokens;
    /* A whole answer fits its queue, so that no sample waits for an earlier one to be read. */
    const alea_engine_options options = {.queue_requests = JOBS_MAX + 1,
                                         .queue_tokens = (most < context ? most : context) + 2,
                                         .threads = (int32_t)self->settings->threads};
    alea_error error;
    alea_status status = alea__engine_create(self->session->core, &options, &self->engine, &error);
    if (status >= 0) {
        status = alea__engine_start(self->engine, &error);
        if (status >= 0) return ALEA_EXIT_OK;
        alea__engine_destroy(self->engine);
    }
    alea__complain("%s", error.message);
    return alea__exit_of(status);
}

static alea_exit run(const alea_settings *settings, const alea_session *session,
                     alea_output *output, uint64_t seed) {
    generate_command *self = calloc(1, sizeof *self);
    if (!self) {
        alea__complain("out of memory");
        return ALEA_EXIT_FAILURE;
    }
    self->settings = settings;
    self->session = session;
    fill_params(self, seed);
    self->printer = settings->json ? alea__printer_json(settings, session, output)
                                   : alea__printer_table(settings, session, output);
    alea_exit code = self->printer ? start_engine(self) : ALEA_EXIT_FAILURE;
    if (code == ALEA_EXIT_OK) {
        self->printer->seed = seed;
        code = walk(self);
        alea__engine_destroy(self->engine);
    }
    if (self->printer) self->printer->api->free(self->printer);
    free(self);
    return code;
}

/* What the kernels refuse is refused before a model is opened. */
static alea_exit check_sampling(const alea_settings *settings) {
    const alea_sampling sampling = {(float)settings->temperature, (int32_t)settings->top_k,
                                    (float)settings->top_p, (float)settings->min_p};
    alea_error error;
    if (alea__sampling_check(&sampling, &error) >= 0) return ALEA_EXIT_OK;
    alea__complain("%s", error.message);
    return ALEA_EXIT_USAGE;
}

/* No more than can be in use: each takes the memory of a whole context. */
static int32_t sequences_for(const alea_settings *settings) {
    const bool few = !settings->jsonl && settings->n < settings->parallel;
    return (int32_t)(few ? settings->n : settings->parallel);
}

alea_exit alea__cmd_generate(const alea_settings *settings) {
    alea_exit code = check_sampling(settings);
    uint64_t seed = 0;
    if (code == ALEA_EXIT_OK) code = choose_seed(settings, &seed);
    if (code == ALEA_EXIT_OK) code = alea__prompts_check(settings);
    if (code != ALEA_EXIT_OK) return code;
    alea_output output;
    if (alea__output_open(&output, settings->output) < 0) return ALEA_EXIT_OUTPUT;
    alea_session session;
    code = alea__session_open(settings, settings->model, 0, sequences_for(settings), &session);
    if (code == ALEA_EXIT_OK) {
        code = run(settings, &session, &output, seed);
        alea__session_close(&session);
    }
    return alea__output_finish(&output, code);
}
