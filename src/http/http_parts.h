/*
 * What the files of this layer share: the server and its connections. A connection holds one
 * exchange at a time; what a client sends ahead waits in `ahead`.
 */
#ifndef ALEA_HTTP_HTTP_PARTS_H
#define ALEA_HTTP_HTTP_PARTS_H

#include <time.h>
#include <uv.h>

#include "http/http_parser.h"
#include "http/http_server.h"

#define ALEA_HTTP_READ_BYTES (64 * 1024)   /* of one read; one buffer serves all connections */
#define ALEA_HTTP_AHEAD_BYTES (256 * 1024) /* sent ahead that is kept; the rest is dropped */
#define ALEA_HTTP_DROPPED_BYTES (16 * 1024 * 1024) /* sent ahead for nothing, before the cut */
#define ALEA_HTTP_KEPT_BYTES 4096          /* of an empty buffer that stays with a connection */
#define ALEA_HTTP_COPIED_BYTES (16 * 1024) /* of an answer that joins its header */
#define ALEA_HTTP_LISTENERS_MAX 8

typedef enum alea_http_phase {
    ALEA_HTTP_IDLE,      /* no byte of the next request yet */
    ALEA_HTTP_HEAD,      /* its header is arriving */
    ALEA_HTTP_BODY,      /* its body is */
    ALEA_HTTP_OWNED,     /* the owner has it, and has begun no answer */
    ALEA_HTTP_STREAMING, /* events */
    ALEA_HTTP_ANSWERED,  /* the next turn of the loop goes on to the next request, or closes */
    ALEA_HTTP_LAST,      /* the last answer is being sent; what the client sends is dropped */
    ALEA_HTTP_LINGER,    /* it was sent, and so was the end; the client may still be reading */
    ALEA_HTTP_CLOSING    /* its handles are being closed */
} alea_http_phase;

/* The connection and its present exchange are one: an exchange pointer is a connection pointer. */
struct alea_http_exchange {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } socket;
    uv_timer_t timer;
    uv_write_t write;
    uv_shutdown_t shutdown;
    alea_http_server *server;
    alea_http_exchange *previous, *next; /* in the server's list of all */
    alea_http_exchange *next_marked;
    bool marked;
    uint8_t n_handles; /* open ones: it is freed with the last */

    alea_http_phase phase;
    bool writing;     /* `sending` is on its way */
    bool peer_ended;  /* nothing more will come */
    bool broken;      /* out of memory or unwritable: to be closed in the next turn */
    bool lost_bytes;  /* of the answer, for want of memory */
    bool close_after; /* this answer is the connection's last */
    bool chunked;     /* the stream's framing; else its end is the connection's */
    bool was_full;    /* the owner was told to wait */
    bool complete;    /* the answer was given whole */
    alea_http_parser parser;
    alea_http_buffer ahead;
    size_t ahead_at;             /* what is before it has been read */
    size_t dropped_bytes;        /* that found no room there: no request can follow them */
    alea_http_buffer out;        /* to be sent before the loop sleeps, */
    alea_http_buffer body;       /* and this behind it: a long answer, not copied */
    alea_http_buffer sending[2]; /* the same, owned by the write that is in flight */

    uint64_t since_ms;   /* loop time: when the phase began */
    uint64_t added_ms;   /* when an event was last added */
    uint64_t stalled_ms; /* since when the write in flight has this many bytes left */
    size_t stalled_bytes;
    uint64_t armed_ms; /* when the timer goes off; 0: it does not */
    size_t held_bytes; /* of the server's body_bytes_held: its body, and what was sent ahead */
    size_t answer_held_bytes; /* of its answer_bytes_held */

    int status;
    size_t request_bytes, answer_bytes;
    uint64_t started_ns;
    void (*gone)(void *user);
    void (*writable)(void *user);
    void (*silent)(void *user);
    void *user; /* of the three */
    void *tag;
};

struct alea_http_server {
    uv_loop_t loop;
    bool loop_ready;
    alea_http_options options;
    alea_http_handlers handlers;
    char *strings[3]; /* copies of the options' */
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } listeners[ALEA_HTTP_LISTENERS_MAX];
    int n_listeners;
    char address[160];
    uv_prepare_t before_sleep; /* these two send what was marked: nothing waits for another */
    uv_check_t after_sleep;    /* event; who is marked meanwhile has its turn after the next poll */
    uv_async_t wake;
    uv_timer_t alarm, grace, retry;
    uv_signal_t signals[2];
    alea_http_exchange *all, *marked;
    bool draining, grace_over, stopping, stopped;
    alea_http_stats stats;
    time_t date_s;
    char date[40];
    char read_buffer[ALEA_HTTP_READ_BYTES];
};

/* ---- http_connection.c ---- */

void alea__http_accept(alea_http_server *server, uv_stream_t *listener);
/* Have the connection looked at before the loop sleeps. */
void alea__http_mark(alea_http_exchange *connection);
/* What the loop then does for it. */
void alea__http_settle(alea_http_exchange *connection);
/* Cut it off, telling the owner of a running exchange. */
void alea__http_close(alea_http_exchange *connection);
/* After a change of phase or of what is unsent: the timer follows. */
void alea__http_rearm(alea_http_exchange *connection);
void alea__http_enter(alea_http_exchange *connection, alea_http_phase phase);
/* The owner has had it, or nobody will. */
void alea__http_drop_body(alea_http_exchange *connection);
size_t alea__http_unsent(const alea_http_exchange *connection);
/* After a change of its buffers. */
void alea__http_count_answer(alea_http_exchange *connection);

/* ---- http_answer.c ---- */

/* Answer with a status of this layer's own; the connection ends after it. */
void alea__http_refuse(alea_http_exchange *connection, int status, const char *message);
/* A comment on a silent stream. */
void alea__http_ping(alea_http_exchange *connection);
void alea__http_preflight(alea_http_exchange *connection);
/* The exchange is over: tell `ended`, forget the owner. */
void alea__http_conclude(alea_http_exchange *connection);

/* ---- http_server.c ---- */

const char *alea__http_date(alea_http_server *server);
/* Try again to accept, soon. */
void alea__http_accept_later(alea_http_server *server);
void alea__http_left(alea_http_server *server); /* a connection is gone for good */

#endif
