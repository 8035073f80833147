/*
 * A server on a thread of its own with a handler that does what the path says, and a blocking
 * client beside it. Every wait ends after ten seconds, as a failure.
 */
#ifndef ALEA_TESTS_HTTP_RIG_H
#define ALEA_TESTS_HTTP_RIG_H

#include <pthread.h>
#include <stdatomic.h>

#include "http/http_server.h"

#define RIG_HELD_MAX 64
#define RIG_EVENT_BYTES 1000

/*
 * Paths: /late a stream that begins when ping_ms have passed; /echo the body, /back the body
 * itself, moved; /where path, query
 * and x-word; /hold no answer until rig_release; /stream?N that many events, then the end; /quiet a
 * stream without events; /flood events as long as the stream is writable; /toil large events, each
 * once the last one has gone; /huge?N a body of N bytes, /given?N the same from the heap.
 */
typedef struct rig {
    alea_http_server *server;
    pthread_t thread;
    char address[160];
    int port;
    atomic_int requests, gone, ended, answered, wakes, released, running;
    atomic_size_t flooded_bytes; /* added by the last /flood */
    alea_http_exchange *held[RIG_HELD_MAX];
    int n_held;
    atomic_int last_status;
    atomic_bool last_complete, last_lost;
    atomic_size_t answer_bytes_held; /* when the last exchange ended */
} rig;

void rig_start(rig *self, alea_http_options options);
void rig_stop(rig *self); /* cut everything */
void rig_join(rig *self); /* after a drain: waits for the loop's end */
void rig_release(rig *self);
void rig_drain(rig *self);

/* A connected socket. */
int rig_connect(const rig *self);
int rig_connect_to(const rig *self, const char *host); /* by number; -1: nobody is there */
void rig_send(int fd, const char *text);
/* Until the bytes end in `end`, or to the end of the stream with NULL. Freed by the caller. */
char *rig_read(int fd, const char *end);
/* One whole answer with a Content-Length; the header and the body. */
char *rig_answer(int fd);
char *rig_ask(const rig *self,
              const char *text); /* one connection, one request, all until it closes */
bool rig_is_closed(int fd);      /* by the server, within ten seconds */
void rig_wait(atomic_int *counter, int value);

#endif
