/*
 * `alea serve`: wires http to api and the engine. It owns who may ask, how many may wait, what is
 * counted and logged, and the order of beginning and ending. It knows no field of a request and no
 * byte of HTTP.
 *
 * The one thing to know: three kinds of thread meet here. The loop (the caller's thread) owns
 * everything in this layer; the engine's only says that a request has something new; a few workers
 * read and write what takes time, so that no stream waits for another client's tokens.
 */
#ifndef ALEA_SERVER_SERVER_H
#define ALEA_SERVER_SERVER_H

#include "api/api.h"
#include "http/http_server.h"
#include "server/server_log.h"

typedef struct alea_server_options {
    alea_http_options http;
    alea_api_options api; /* its capability is the engine's, whatever stands here */
    alea_engine_options engine;

    const char *api_key_file; /* a key a line; NULL: everyone may ask */
    int32_t max_queue;        /* requests that may wait for a slot; 0: none */
    size_t request_bytes;     /* memory that requests may hold together; 0: 1 GiB */
    int32_t drain_ms;         /* for running answers after SIGTERM; 0: none */

    /* Opens the model, on a thread of its own while clients already get 503. */
    alea_status (*open)(void *user, alea_core **core, alea_error *error);
    void (*give_up)(void *user); /* a signal came while `open` runs */
    void (*close)(void *user);   /* after a successful open, when all is over */
    void (*listening)(void *user, const char *address);
    void (*ready)(void *user, const char *address, const alea_capability *capability);
    void *user;
} alea_server_options;

/*
 * Serve until SIGTERM or SIGINT; a second one ends at once.
 *
 * Result    ALEA_OK: ended as asked
 * Errors    an address, a key file or a model that cannot be had; *error says which
 * Threads   one server a process: it takes the two signals
 */
alea_status alea__server_run(const alea_server_options *options, alea_error *error) ALEA_MUST_USE;

#endif
