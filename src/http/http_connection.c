/*
 * The life of a connection: what arrives, what is sent, how long either may take, and how it ends.
 * Phases change here and where an answer is given; everything else follows in alea__http_settle.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "http/http_parts.h"

#define BODY_BYTES_PER_SECOND 4096 /* slower than that runs into body_ms */
#define OVER_LIMIT_MAX 64          /* connections beyond the limit that are told so; more are cut */

static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";

void alea__http_mark(alea_http_exchange *connection) {
    if (connection->marked || connection->phase == ALEA_HTTP_CLOSING) return;
    connection->marked = true;
    connection->next_marked = connection->server->marked;
    connection->server->marked = connection;
}

static void unmark(alea_http_exchange *connection) {
    alea_http_exchange **at = &connection->server->marked;
    while (connection->marked && *at) {
        if (*at == connection) {
            *at = connection->next_marked;
            return;
        }
        at = &(*at)->next_marked;
    }
}

size_t alea__http_unsent(const alea_http_exchange *connection) {
    return connection->out.length + connection->body.length +
           uv_stream_get_write_queue_size(&connection->socket.stream);
}

static bool is_running(const alea_http_exchange *connection) {
    return connection->phase == ALEA_HTTP_OWNED || connection->phase == ALEA_HTTP_STREAMING;
}

/* ---- time ---- */

static uint64_t due_ms(const alea_http_exchange *connection) {
    const alea_http_options *options = &connection->server->options;
    uint64_t due = UINT64_MAX;
    switch (connection->phase) {
    case ALEA_HTTP_IDLE: due = connection->since_ms + (uint64_t)options->idle_ms; break;
    case ALEA_HTTP_HEAD: due = connection->since_ms + (uint64_t)options->header_ms; break;
    case ALEA_HTTP_BODY:
        due = connection->since_ms + (uint64_t)options->body_ms +
              1000 * (uint64_t)connection->parser.body.length / BODY_BYTES_PER_SECOND;
        break;
    case ALEA_HTTP_OWNED:
        if (connection->silent) due = connection->since_ms + (uint64_t)options->ping_ms;
        break;
    case ALEA_HTTP_STREAMING: due = connection->added_ms + (uint64_t)options->ping_ms; break;
    case ALEA_HTTP_LINGER: due = connection->since_ms + (uint64_t)options->linger_ms; break;
    default: break;
    }
    if (connection->writing && connection->stalled_ms + (uint64_t)options->stall_ms < due)
        due = connection->stalled_ms + (uint64_t)options->stall_ms;
    return due;
}

static void on_timer(uv_timer_t *timer);

/* An armed timer that is early enough stays: it looks again when it goes off. So a stream that
 * adds an event a millisecond does not move it. */
void alea__http_rearm(alea_http_exchange *connection) {
    if (connection->phase == ALEA_HTTP_CLOSING) return;
    const uint64_t due = due_ms(connection);
    if (due == UINT64_MAX || (connection->armed_ms && connection->armed_ms <= due)) return;
    const uint64_t now = uv_now(&connection->server->loop);
    connection->armed_ms = due > now ? due : now + 1;
    uv_timer_start(&connection->timer, on_timer, connection->armed_ms - now, 0);
}

void alea__http_enter(alea_http_exchange *connection, alea_http_phase phase) {
    connection->phase = phase;
    connection->since_ms = uv_now(&connection->server->loop);
    alea__http_rearm(connection);
}

static bool has_stalled(alea_http_exchange *connection, uint64_t now) {
    const uint64_t limit = (uint64_t)connection->server->options.stall_ms;
    if (!connection->writing || now < connection->stalled_ms + limit) return false;
    const size_t left = uv_stream_get_write_queue_size(&connection->socket.stream);
    if (left >= connection->stalled_bytes) return true;
    connection->stalled_bytes = left;
    connection->stalled_ms = now;
    return false;
}

static void tell_silent(alea_http_exchange *connection) {
    void (*silent)(void *user) = connection->silent;
    connection->silent = NULL;
    if (silent) silent(connection->user);
}

static void on_timer(uv_timer_t *timer) {
    alea_http_exchange *connection = timer->data;
    const uint64_t now = uv_now(&connection->server->loop);
    connection->armed_ms = 0;
    if (has_stalled(connection, now)) {
        alea__http_close(connection);
        return;
    }
    if (now >= due_ms(connection)) {
        switch (connection->phase) {
        case ALEA_HTTP_HEAD: alea__http_refuse(connection, 408, "the header took too long"); break;
        case ALEA_HTTP_BODY: alea__http_refuse(connection, 408, "the body took too long"); break;
        case ALEA_HTTP_OWNED: tell_silent(connection); break;
        case ALEA_HTTP_STREAMING: alea__http_ping(connection); break;
        default: alea__http_close(connection); return;
        }
    }
    alea__http_rearm(connection);
}

/* ---- what arrives ---- */

static void count_held(alea_http_exchange *connection) {
    const size_t bytes = connection->parser.body.length + connection->ahead.length;
    connection->server->stats.body_bytes_held += bytes - connection->held_bytes;
    connection->held_bytes = bytes;
}

void alea__http_drop_body(alea_http_exchange *connection) {
    alea__http_buffer_clear(&connection->parser.body, 0);
    count_held(connection);
}

static void drop_ahead(alea_http_exchange *connection) {
    alea__http_buffer_clear(&connection->ahead, 0);
    connection->ahead_at = 0;
    count_held(connection);
}

static void deliver(alea_http_exchange *connection) {
    alea_http_server *server = connection->server;
    connection->request_bytes = connection->parser.body.length;
    connection->close_after = !connection->parser.keep_alive;
    alea__http_enter(connection, ALEA_HTTP_OWNED);
    if (connection->parser.llhttp.method == HTTP_OPTIONS)
        alea__http_preflight(connection);
    else
        server->handlers.request(server->handlers.user, connection);
    alea__http_drop_body(connection);
}

static bool has_room_ahead(const alea_http_exchange *connection, size_t length) {
    const alea_http_server *server = connection->server;
    const size_t kept = connection->ahead.length - connection->ahead_at;
    return connection->dropped_bytes == 0 && length <= ALEA_HTTP_AHEAD_BYTES - kept &&
           length <= server->options.body_bytes_total &&
           server->stats.body_bytes_held <= server->options.body_bytes_total - length;
}

/* What finds no room is read and dropped: left unread it would hide that the client has gone. */
static void keep_ahead(alea_http_exchange *connection, const char *data, size_t length) {
    if (length == 0) return;
    alea_http_buffer *ahead = &connection->ahead;
    if (!has_room_ahead(connection, length)) {
        connection->dropped_bytes += length;
        if (connection->dropped_bytes <= ALEA_HTTP_DROPPED_BYTES) return;
        connection->broken = true;
        alea__http_mark(connection);
        return;
    }
    if (connection->ahead_at > ahead->length / 2) {
        alea__http_buffer_drop(ahead, connection->ahead_at);
        connection->ahead_at = 0;
    }
    if (alea__http_buffer_add(ahead, data, length) < 0) {
        connection->broken = true;
        alea__http_mark(connection);
    }
    count_held(connection);
}

/* Returns how many bytes belong to this request, or all of them where no other follows it. */
static size_t read_request(alea_http_exchange *connection, const char *data, size_t length) {
    alea_http_server *server = connection->server;
    alea_http_parser *parser = &connection->parser;
    if (connection->phase == ALEA_HTTP_IDLE) {
        connection->started_ns = alea__clock_ns();
        alea__http_enter(connection, ALEA_HTTP_HEAD);
    }
    size_t used = 0;
    const alea_status status = alea__http_parser_feed(parser, data, length, &used);
    count_held(connection);
    if (status < 0) {
        alea__http_refuse(connection, parser->refusal, parser->reason);
        return length;
    }
    if (server->stats.body_bytes_held > server->options.body_bytes_total) {
        alea__http_refuse(connection, 503, "too many large bodies are arriving at once");
        return length;
    }
    if (status == ALEA_DONE) {
        deliver(connection);
        return used;
    }
    if (!parser->head_complete || connection->phase == ALEA_HTTP_BODY) return length;
    alea__http_enter(connection, ALEA_HTTP_BODY);
    if (!parser->expects_continue || parser->body.length > 0) return length;
    if (alea__http_buffer_text(&connection->out, interim) < 0) connection->broken = true;
    alea__http_mark(connection);
    return length;
}

static void give_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer) {
    (void)suggested;
    alea_http_server *server = ((alea_http_exchange *)handle->data)->server;
    *buffer = uv_buf_init(server->read_buffer, sizeof server->read_buffer);
}

static void on_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buffer) {
    alea_http_exchange *connection = stream->data;
    if (length == 0) return;
    if (length < 0) {
        connection->peer_ended = true;
        uv_read_stop(stream);
        const bool answer_is_left = length == UV_EOF && (connection->phase == ALEA_HTTP_ANSWERED ||
                                                         connection->phase == ALEA_HTTP_LAST);
        if (answer_is_left)
            alea__http_mark(connection);
        else
            alea__http_close(connection);
        return;
    }
    size_t used = 0;
    switch (connection->phase) {
    case ALEA_HTTP_IDLE:
    case ALEA_HTTP_HEAD:
    case ALEA_HTTP_BODY: used = read_request(connection, buffer->base, (size_t)length); break;
    case ALEA_HTTP_OWNED:
    case ALEA_HTTP_STREAMING:
    case ALEA_HTTP_ANSWERED: break;
    default: return; /* dropped */
    }
    keep_ahead(connection, buffer->base + used, (size_t)length - used);
}

/* ---- what is sent ---- */

void alea__http_count_answer(alea_http_exchange *connection) {
    const size_t bytes = connection->out.length + connection->body.length +
                         connection->sending[0].length + connection->sending[1].length;
    connection->server->stats.answer_bytes_held += bytes - connection->answer_held_bytes;
    connection->answer_held_bytes = bytes;
}

static void on_written(uv_write_t *write, int status) {
    alea_http_exchange *connection = write->data;
    connection->writing = false;
    alea__http_buffer_clear(&connection->sending[0], 0);
    alea__http_buffer_clear(&connection->sending[1], 0);
    alea__http_count_answer(connection);
    if (status < 0) connection->broken = true;
    alea__http_mark(connection);
}

static bool send_out(alea_http_exchange *connection) {
    alea_http_buffer *out = &connection->out, *body = &connection->body;
    if (connection->writing || out->length == 0) return true; /* no body without its header */
    uv_buf_t bytes[2] = {uv_buf_init(out->data, (unsigned)out->length),
                         uv_buf_init(body->data, (unsigned)body->length)};
    const unsigned n = body->length > 0 ? 2 : 1;
    int tried = uv_try_write(&connection->socket.stream, bytes, n);
    if (tried == UV_EAGAIN) tried = 0;
    if (tried < 0) return false;
    const size_t sent = (size_t)tried;
    if (sent == out->length + body->length) {
        alea__http_buffer_clear(out, ALEA_HTTP_KEPT_BYTES);
        alea__http_buffer_clear(body, 0);
        alea__http_count_answer(connection);
        return true;
    }
    const size_t of_out = sent < out->length ? sent : out->length;
    for (unsigned i = 0; i < n; i++) {
        const size_t done = i == 0 ? of_out : sent - of_out;
        bytes[i].base += done;
        bytes[i].len -= done;
    }
    connection->sending[0] = *out;
    connection->sending[1] = *body;
    *out = *body = (alea_http_buffer){0};
    if (uv_write(&connection->write, &connection->socket.stream, bytes, n, on_written) < 0)
        return false;
    connection->writing = true;
    connection->stalled_ms = uv_now(&connection->server->loop);
    connection->stalled_bytes = uv_stream_get_write_queue_size(&connection->socket.stream);
    return true;
}

static void on_shutdown(uv_shutdown_t *shutdown, int status) {
    alea_http_exchange *connection = shutdown->data;
    if (status < 0) alea__http_close(connection);
}

/* The answer was given: on to the next request, or to the end. */
static void go_on(alea_http_exchange *connection) {
    alea_http_server *server = connection->server;
    if (connection->close_after || connection->peer_ended || server->draining) {
        alea__http_conclude(connection);
        alea__http_enter(connection, ALEA_HTTP_LAST);
        drop_ahead(connection);
        return;
    }
    /* A client that sends ahead and does not read gets no further answers until it does. */
    if (alea__http_unsent(connection) > server->options.queue_bytes) return;
    alea__http_conclude(connection);
    alea__http_parser_reset(&connection->parser);
    alea__http_enter(connection, ALEA_HTTP_IDLE);
    const size_t left = connection->ahead.length - connection->ahead_at;
    if (left > 0)
        connection->ahead_at +=
            read_request(connection, connection->ahead.data + connection->ahead_at, left);
    if (connection->ahead_at == connection->ahead.length) drop_ahead(connection);
    if (connection->dropped_bytes == 0 || connection->phase > ALEA_HTTP_BODY) return;
    if (connection->phase == ALEA_HTTP_IDLE) connection->started_ns = alea__clock_ns();
    alea__http_refuse(connection, 503, "too much was sent ahead of the answers");
}

void alea__http_settle(alea_http_exchange *connection) {
    if (connection->phase == ALEA_HTTP_CLOSING) return;
    if (connection->broken || !send_out(connection)) {
        alea__http_close(connection);
        return;
    }
    const size_t low_bytes = connection->server->options.queue_bytes / 2;
    if (connection->was_full && alea__http_unsent(connection) <= low_bytes) {
        connection->was_full = false;
        if (connection->writable && is_running(connection)) connection->writable(connection->user);
    }
    if (connection->phase == ALEA_HTTP_ANSWERED) go_on(connection);
    if (connection->phase == ALEA_HTTP_LAST && alea__http_unsent(connection) == 0) {
        if (connection->peer_ended ||
            uv_shutdown(&connection->shutdown, &connection->socket.stream, on_shutdown) < 0) {
            alea__http_close(connection);
            return;
        }
        alea__http_enter(connection, ALEA_HTTP_LINGER);
    }
    alea__http_rearm(connection);
}

/* ---- beginning and end ---- */

static void on_closed(uv_handle_t *handle) {
    alea_http_exchange *connection = handle->data;
    if (--connection->n_handles > 0) return;
    alea_http_server *server = connection->server;
    unmark(connection);
    if (connection->previous)
        connection->previous->next = connection->next;
    else
        server->all = connection->next;
    if (connection->next) connection->next->previous = connection->previous;
    alea__http_parser_free(&connection->parser);
    alea__http_buffer_clear(&connection->ahead, 0);
    alea__http_buffer_clear(&connection->out, 0);
    alea__http_buffer_clear(&connection->body, 0);
    alea__http_buffer_clear(&connection->sending[0], 0);
    alea__http_buffer_clear(&connection->sending[1], 0);
    alea__http_count_answer(connection);
    free(connection);
    alea__http_left(server);
}

void alea__http_close(alea_http_exchange *connection) {
    const alea_http_phase phase = connection->phase;
    if (phase == ALEA_HTTP_CLOSING) return;
    const bool running = is_running(connection);
    connection->phase = ALEA_HTTP_CLOSING;
    alea__http_drop_body(connection);
    if (running && connection->gone) connection->gone(connection->user);
    if (running || phase == ALEA_HTTP_ANSWERED) alea__http_conclude(connection);
    uv_close(&connection->socket.handle, on_closed);
    uv_close((uv_handle_t *)&connection->timer, on_closed);
}

static void begin(alea_http_exchange *connection) {
    alea_http_server *server = connection->server;
    const alea_http_limits limits = {.header_bytes = server->options.header_bytes,
                                     .body_bytes = server->options.body_bytes};
    alea__http_parser_init(&connection->parser, &limits);
    connection->next = server->all;
    if (server->all) server->all->previous = connection;
    server->all = connection;
    server->stats.open++;
    alea__http_enter(connection, ALEA_HTTP_IDLE);
}

void alea__http_accept(alea_http_server *server, uv_stream_t *listener) {
    alea_http_exchange *connection = calloc(1, sizeof *connection);
    if (!connection) {
        /* libuv holds the client and takes no other until this one is accepted. */
        alea__log(ALEA_LOG_WARNING, "no memory for another connection");
        alea__http_accept_later(server);
        return;
    }
    connection->server = server;
    connection->n_handles = 2;
    uv_timer_init(&server->loop, &connection->timer);
    if (listener->type == UV_TCP)
        uv_tcp_init(&server->loop, &connection->socket.tcp);
    else
        uv_pipe_init(&server->loop, &connection->socket.pipe, 0);
    connection->socket.handle.data = connection->timer.data = connection;
    connection->write.data = connection->shutdown.data = connection;
    begin(connection);
    server->stats.accepted++;
    if (uv_accept(listener, &connection->socket.stream) < 0 ||
        uv_read_start(&connection->socket.stream, give_buffer, on_read) < 0 ||
        server->stats.open > server->options.connections + OVER_LIMIT_MAX) {
        alea__http_close(connection);
        return;
    }
    if (listener->type == UV_TCP) {
        uv_tcp_nodelay(&connection->socket.tcp, 1);
        uv_tcp_keepalive(&connection->socket.tcp, 1, 60);
    }
    if (server->stats.open <= server->options.connections) return;
    server->stats.refused_connections++;
    alea__http_refuse(connection, 503, "the server has too many connections");
}
