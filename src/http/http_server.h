/*
 * An HTTP/1.1 server on one event loop: sockets, parsing, time limits, back pressure, answers whole
 * or as server-sent events, draining. It knows no JSON and no models, and offers no TLS: a proxy
 * in front does that.
 *
 * The one thing to know: an exchange (one request and its answer) is the owner's from the call of
 * `request` until it answers whole, ends the stream, or is told that the client has gone; then the
 * pointer is dead. The owner's calls only append and mark; nothing calls back from within them.
 *
 * A client that closes its sending side counts as gone, in every phase. Everything here is for the
 * loop's thread, except alea__http_wake.
 */
#ifndef ALEA_HTTP_HTTP_SERVER_H
#define ALEA_HTTP_HTTP_SERVER_H

#include <stdbool.h>

#include "alea/base.h"

typedef struct alea_http_server alea_http_server;
typedef struct alea_http_exchange alea_http_exchange;

/* Zero in a number means the default. */
typedef struct alea_http_options {
    const char *host;        /* each of its addresses; NULL: 127.0.0.1, or with unix_path none */
    int32_t port;            /* 0: any free one */
    const char *unix_path;   /* NULL: none */
    const char *cors_origin; /* for browsers: "*", one origin, or NULL: none */

    size_t header_bytes;     /* of one request, its first line included; 16 KiB */
    size_t body_bytes;       /* of one request; 64 MiB */
    size_t body_bytes_total; /* of all requests that are arriving, or sent ahead; 512 MiB */
    int32_t connections;     /* open at once; 16384, less where descriptors are fewer */

    int32_t header_ms; /* from a request's first byte to the end of its header; 10 s */
    int32_t body_ms;   /* for a body, and a second more for each 4 KiB of it; 30 s */
    int32_t idle_ms;   /* between requests, and before the first; 75 s */
    int32_t stall_ms;  /* without a byte taken while some are waiting; 30 s */
    int32_t ping_ms;   /* of silence on an event stream before a comment is sent; 15 s */
    int32_t linger_ms; /* for the client to read an answer after which we close; 2 s */
    int32_t grace_ms;  /* after a drain begins: idle connections and the listener stay; 300 ms */

    size_t queue_bytes; /* unsent, above which a stream is no longer writable; 32 KiB */
} alea_http_options;

typedef struct alea_http_header {
    const char *name;
    const char *value;
} alea_http_header;

typedef struct alea_http_handlers {
    /* A whole request is here. */
    void (*request)(void *user, alea_http_exchange *exchange);
    /* The exchange is over, answered, refused or abandoned: for logs and counters. A request that
     * was refused before it was whole comes here alone. NULL: not wanted. */
    void (*ended)(void *user, const alea_http_exchange *exchange);
    /* The body of an answer that this layer gives itself: JSON of at most `capacity` bytes; returns
     * its length. NULL: the message as plain text. */
    size_t (*refusal)(void *user, int status, const char *message, char *body, size_t capacity);
    void (*wake)(void *user);               /* after alea__http_wake */
    void (*alarm)(void *user);              /* after alea__http_alarm */
    void (*signal)(void *user, int number); /* SIGINT or SIGTERM; NULL: not watched */
    void *user;
} alea_http_handlers;

/*
 * Take addresses and begin to listen; clients wait until alea__http_run. The process ignores
 * SIGPIPE from now on.
 *
 * Errors    ALEA_EINVAL (the host), ALEA_EIO (an address that cannot be had, named), ALEA_ENOMEM
 * Memory    `options` strings and `handlers` are copied
 */
alea_status alea__http_create(const alea_http_options *options, const alea_http_handlers *handlers,
                              alea_http_server **server, alea_error *error) ALEA_MUST_USE;

/* After alea__http_run, or instead of it. */
void alea__http_destroy(alea_http_server *server);

/* "http://127.0.0.1:8000" or "unix:/path": where the server listens, the first of all. */
const char *alea__http_address(const alea_http_server *server);

/* Serve until a drain has ended or alea__http_stop. */
void alea__http_run(alea_http_server *server);

/* Take no new connection; close idle ones after the grace; run ends once no connection is left.
 * Requests that still arrive on open connections are handed over as ever. */
void alea__http_drain(alea_http_server *server);

/* End at once: every client is cut off, every running exchange is told that it has gone. */
void alea__http_stop(alea_http_server *server);

/* Call handlers.wake on the loop soon; many calls may make one. Any thread, any time between
 * create and destroy. */
void alea__http_wake(alea_http_server *server);

/* Call handlers.alarm once, in `ms`; a later call replaces an earlier one. */
void alea__http_alarm(alea_http_server *server, int32_t ms);

/* ---- what was asked ---- */

/* Valid as long as the exchange. The target's path is as sent, not decoded; query is what follows
 * its '?', or empty. In `ended` any of them may be empty: the request was not read that far. */
const char *alea__http_method(const alea_http_exchange *exchange);
const char *alea__http_path(const alea_http_exchange *exchange);
const char *alea__http_query(const alea_http_exchange *exchange);
/* The first header of that name, in lower case; NULL: none. */
const char *alea__http_header_of(const alea_http_exchange *exchange, const char *name);

/* Valid during `request` alone: a long body does not stay for as long as its answer takes. */
alea_bytes alea__http_body(const alea_http_exchange *exchange);
/* During `request`, once: the body becomes the caller's, who frees it. NULL: it is empty. */
uint8_t *alea__http_take_body(alea_http_exchange *exchange, size_t *length) ALEA_MUST_USE;

/* ---- the answer ---- */

/* Answer whole. `headers` besides Content-Type, Content-Length, Date, Connection and CORS. */
void alea__http_answer(alea_http_exchange *exchange, int status, const char *content_type,
                       const alea_http_header *headers, size_t n_headers, alea_bytes body);
/* The same with a body from the heap, which becomes this layer's: a long one is not copied. */
void alea__http_answer_text(alea_http_exchange *exchange, int status, const char *content_type,
                            const alea_http_header *headers, size_t n_headers, char *body,
                            size_t length);

/* Begin a stream of events with status 200; then events, then the end. After the begin a silent
 * stream is kept alive by comments. */
void alea__http_stream_begin(alea_http_exchange *exchange, const alea_http_header *headers,
                             size_t n_headers);
/* "data: …" and an empty line. The bytes hold no line end. */
void alea__http_stream_event(alea_http_exchange *exchange, alea_bytes data);
void alea__http_stream_end(alea_http_exchange *exchange);

/* What of the answer is held for the client: a part of answer_bytes_held. */
size_t alea__http_answer_held(const alea_http_exchange *exchange);

/* Whether the client keeps up. False: stop adding; `on_writable` is called once it does again. */
bool alea__http_writable(alea_http_exchange *exchange);

/* All three are called on the loop, never from within a call of the owner, with the `user` of
 * alea__http_on_gone. NULL forgets. */
void alea__http_on_gone(alea_http_exchange *exchange, void (*gone)(void *user), void *user);
void alea__http_on_writable(alea_http_exchange *exchange, void (*writable)(void *user));
/* Called once when there was no answer for ping_ms: the time to begin a stream, so that proxies see
 * that somebody is there. */
void alea__http_on_silence(alea_http_exchange *exchange, void (*silent)(void *user));

/* ---- for logs, counters and `ended` ---- */

/* A word of the owner's that travels with the exchange; NULL until it is set. */
void alea__http_tag(alea_http_exchange *exchange, void *tag);
void *alea__http_tag_of(const alea_http_exchange *exchange);

typedef struct alea_http_record {
    int status;           /* as sent; 0: none was */
    bool complete;        /* the answer was given whole; false: the client went before, or */
    bool out_of_memory;   /* it was lost here */
    size_t request_bytes; /* of the body */
    size_t answer_bytes;  /* of the body, chunk marks included */
    uint64_t started_ns;  /* of alea__clock_ns: the request's first byte */
} alea_http_record;

alea_http_record alea__http_record_of(const alea_http_exchange *exchange);

typedef struct alea_http_stats {
    uint64_t accepted, refused_connections; /* refused: over the limit */
    int32_t open;
    size_t body_bytes_held;
    size_t answer_bytes_held; /* of answers that are not sent yet, beside the kernel's */
} alea_http_stats;

void alea__http_stats_read(const alea_http_server *server, alea_http_stats *stats);

/* "Not Found" for 404; "Unknown" for what has no phrase here. */
const char *alea__http_phrase(int status);

#endif
