/*
 * The order of beginning (listen, load, serve) and of ending (drain, fail what is left, stop). What
 * the loader made is the loop's once `loaded` was seen.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/server_parts.h"
#include "server/systemd.h"

#define QUEUE_REQUESTS 65536 /* of the engine: this layer refuses earlier */
#define REQUEST_BYTES ((size_t)1 << 30)
#define LAST_WORDS_MS 2000 /* for clients to read that the drain is over */

/* ---- loading ---- */

static alea_status load_parts(alea_server *server, alea_error *error) {
    alea_status status =
        alea__engine_create(server->core, &server->options.engine, &server->engine, error);
    if (status < 0) return status;
    server->options.api.capability = alea__engine_capability(server->engine);
    status = alea__api_create(server->core, &server->options.api, &server->api, error);
    if (status < 0) return status;
    status = alea__engine_start(server->engine, error);
    if (status < 0) return status;
    status = alea__workers_start(server);
    return status < 0 ? alea_error_set(error, status, "no threads for the workers") : status;
}

static void *load(void *user) {
    alea_server *server = user;
    const alea_server_options *options = &server->options;
    alea_status status = options->open(options->user, &server->core, &server->load_error);
    if (status >= 0) status = load_parts(server, &server->load_error);
    server->load_status = status;
    atomic_store(&server->loaded, true);
    alea__http_wake(server->http);
    return NULL;
}

static void see_loaded(alea_server *server) {
    if (server->ready || !atomic_load(&server->loaded)) return;
    if (server->load_status < 0) {
        alea__http_stop(server->http);
        return;
    }
    alea_engine_stats stats;
    alea__engine_stats_read(server->engine, &stats);
    server->slots = stats.slots;
    server->ready = true;
    if (server->draining) return;
    alea__systemd_notify("READY=1\nSTATUS=serving");
    if (server->options.ready)
        server->options.ready(server->options.user, alea__http_address(server->http),
                              server->options.api.capability);
}

/* ---- events of the loop ---- */

static void on_wake(void *user) {
    alea_server *server = user;
    see_loaded(server);
    alea__jobs_go_on(server);
}

static void on_signal(void *user, int number) {
    alea_server *server = user;
    (void)number;
    if (server->n_signals++ > 0) {
        alea__http_stop(server->http);
        return;
    }
    alea__systemd_notify("STOPPING=1\nSTATUS=finishing what runs");
    server->draining = true;
    if (!server->ready && server->options.give_up) server->options.give_up(server->options.user);
    alea__http_drain(server->http);
    alea__http_alarm(server->http, server->options.drain_ms);
}

/* First the end of the drain, then the end. */
static void on_alarm(void *user) {
    alea_server *server = user;
    if (server->n_jobs == 0) {
        alea__http_stop(server->http);
        return;
    }
    alea__jobs_fail(server, "the server has shut down before the answer was complete");
    alea__http_alarm(server->http, LAST_WORDS_MS);
}

/* ---- beginning and end ---- */

static alea_status begin(alea_server *server, alea_error *error) {
    alea_server_options *options = &server->options;
    const alea_http_handlers handlers = {.request = alea__server_request,
                                         .ended = alea__server_ended,
                                         .refusal = alea__server_refusal,
                                         .wake = on_wake,
                                         .alarm = on_alarm,
                                         .signal = on_signal,
                                         .user = server};
    alea_status status = ALEA_OK;
    if (options->api_key_file) {
        status = alea__keys_read(options->api_key_file, &server->keys, error);
        server->has_keys = true;
    }
    if (status < 0) return status;
    status = alea__http_create(&options->http, &handlers, &server->http, error);
    if (status < 0) return status;
    if (options->listening) options->listening(options->user, alea__http_address(server->http));
    alea__systemd_notify("STATUS=loading the model");
    if (pthread_create(&server->loader, NULL, load, server) != 0)
        return alea_error_set(error, ALEA_ENOMEM, "no thread to load the model on");
    server->loader_started = true;
    return ALEA_OK;
}

static void end(alea_server *server) {
    const bool opened = server->loader_started && server->core;
    alea__workers_stop(server);
    alea__jobs_free(server);
    alea__engine_destroy(server->engine);
    alea__http_destroy(server->http);
    alea__api_destroy(server->api);
    if (opened && server->options.close) server->options.close(server->options.user);
    alea__keys_free(&server->keys);
    pthread_cond_destroy(&server->work);
    pthread_mutex_destroy(&server->work_mutex);
    pthread_mutex_destroy(&server->writers_mutex);
    free(server);
}

alea_status alea__server_run(const alea_server_options *options, alea_error *error) {
    alea_server *server = calloc(1, sizeof *server);
    if (!server) return alea_error_set(error, ALEA_ENOMEM, "out of memory for the server");
    server->options = *options;
    if (!server->options.engine.queue_requests)
        server->options.engine.queue_requests = QUEUE_REQUESTS;
    if (!server->options.request_bytes) server->options.request_bytes = REQUEST_BYTES;
    server->slots = 1;
    server->retry_after_s = 1;
    server->metrics.start_s = (double)time(NULL);
    atomic_init(&server->loaded, false);
    atomic_init(&server->ready_jobs, NULL);
    pthread_mutex_init(&server->work_mutex, NULL);
    pthread_mutex_init(&server->writers_mutex, NULL);
    pthread_cond_init(&server->work, NULL);
    alea_status status = begin(server, error);
    if (status >= 0) alea__http_run(server->http);
    if (server->loader_started) pthread_join(server->loader, NULL);
    /* Asked to end before the model was there: that is no failure. */
    if (status >= 0 && server->load_status < 0 && server->n_signals == 0) {
        status = server->load_status;
        if (error) *error = server->load_error;
    }
    end(server);
    return status;
}
