/* What is sent: heads, whole answers, event streams, and the answers that this layer gives itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/http_parts.h"

#define REFUSAL_BYTES_MAX 1024

const char *alea__http_phrase(int status) {
    switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Unknown";
    }
}

/* ---- pieces: the first that fails breaks the connection ---- */

static void lose(alea_http_exchange *exchange) {
    exchange->broken = exchange->lost_bytes = true;
}

/* Behind what is to be sent already. */
static void put_bytes(alea_http_exchange *exchange, const void *data, size_t length) {
    alea_http_buffer *last = exchange->body.length > 0 ? &exchange->body : &exchange->out;
    if (alea__http_buffer_add(last, data, length) < 0) lose(exchange);
}

static void put(alea_http_exchange *exchange, const char *text) {
    put_bytes(exchange, text, strlen(text));
}

static void put_number(alea_http_exchange *exchange, const char *format, size_t number) {
    char text[64];
    snprintf(text, sizeof text, format, number);
    put(exchange, text);
}

static void put_header(alea_http_exchange *exchange, const char *name, const char *value) {
    put(exchange, name);
    put(exchange, ": ");
    put(exchange, value);
    put(exchange, "\r\n");
}

static const char *asked(const alea_http_exchange *exchange, const char *name) {
    return exchange->parser.head_complete ? alea__http_parser_header(&exchange->parser, name)
                                          : NULL;
}

static void put_cors(alea_http_exchange *exchange) {
    const char *origin = exchange->server->options.cors_origin;
    if (!origin || !asked(exchange, "origin")) return;
    put_header(exchange, "Access-Control-Allow-Origin", origin);
    put_header(exchange, "Access-Control-Expose-Headers", "x-request-id, retry-after");
    if (strcmp(origin, "*") != 0) put_header(exchange, "Vary", "Origin");
}

static void put_head(alea_http_exchange *exchange, int status, const char *content_type,
                     const alea_http_header *headers, size_t n_headers) {
    exchange->status = status;
    if (exchange->server->draining) exchange->close_after = true;
    put_number(exchange, "HTTP/1.1 %zu ", (size_t)status);
    put(exchange, alea__http_phrase(status));
    put(exchange, "\r\n");
    put_header(exchange, "Date", alea__http_date(exchange->server));
    if (content_type) put_header(exchange, "Content-Type", content_type);
    if (exchange->close_after)
        put_header(exchange, "Connection", "close");
    else if (exchange->parser.llhttp.http_minor == 0)
        put_header(exchange, "Connection", "keep-alive");
    put_cors(exchange);
    for (size_t i = 0; i < n_headers; i++)
        put_header(exchange, headers[i].name, headers[i].value);
}

static void end_answer(alea_http_exchange *exchange) {
    exchange->complete = !exchange->lost_bytes;
    alea__http_count_answer(exchange);
    alea__http_enter(exchange, ALEA_HTTP_ANSWERED);
    alea__http_mark(exchange);
}

/* ---- whole answers ---- */

/* Whether a body follows the header. */
static bool begin_whole(alea_http_exchange *exchange, int status, const char *content_type,
                        const alea_http_header *headers, size_t n_headers, size_t length) {
    put_head(exchange, status, content_type, headers, n_headers);
    if (status != 204) put_number(exchange, "Content-Length: %zu\r\n", length);
    put(exchange, "\r\n");
    if (exchange->parser.llhttp.method == HTTP_HEAD && exchange->parser.head_complete) return false;
    exchange->answer_bytes = length;
    return true;
}

void alea__http_answer(alea_http_exchange *exchange, int status, const char *content_type,
                       const alea_http_header *headers, size_t n_headers, alea_bytes body) {
    if (begin_whole(exchange, status, content_type, headers, n_headers, body.length))
        put_bytes(exchange, body.data, body.length);
    end_answer(exchange);
}

void alea__http_answer_text(alea_http_exchange *exchange, int status, const char *content_type,
                            const alea_http_header *headers, size_t n_headers, char *body,
                            size_t length) {
    const bool sends = begin_whole(exchange, status, content_type, headers, n_headers, length);
    if (sends && length > ALEA_HTTP_COPIED_BYTES && exchange->body.length == 0) {
        exchange->body = (alea_http_buffer){body, length, length};
    } else {
        if (sends) put_bytes(exchange, body, length);
        free(body);
    }
    end_answer(exchange);
}

void alea__http_refuse(alea_http_exchange *exchange, int status, const char *message) {
    const alea_http_handlers *handlers = &exchange->server->handlers;
    static const alea_http_header retry = {"Retry-After", "1"};
    char body[REFUSAL_BYTES_MAX];
    const char *type = "text/plain; charset=utf-8";
    size_t length = 0;
    if (handlers->refusal) {
        type = "application/json";
        length = handlers->refusal(handlers->user, status, message, body, sizeof body);
    } else {
        length = (size_t)snprintf(body, sizeof body, "%s\n", message);
    }
    exchange->close_after = true;
    alea__http_answer(exchange, status, type, &retry, status == 503,
                      (alea_bytes){(const uint8_t *)body, length});
}

/* A page of another origin asks what it may send. It is told, key or no key. */
void alea__http_preflight(alea_http_exchange *exchange) {
    const char *wanted = asked(exchange, "access-control-request-headers");
    const alea_http_header headers[] = {
        {"Allow", "GET, HEAD, POST, OPTIONS"},
        {"Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS"},
        {"Access-Control-Allow-Headers", wanted ? wanted : "authorization, content-type"},
        {"Access-Control-Max-Age", "86400"},
    };
    const bool across = exchange->server->options.cors_origin && asked(exchange, "origin");
    alea__http_answer(exchange, 204, NULL, headers, across ? sizeof headers / sizeof *headers : 1,
                      (alea_bytes){NULL, 0});
}

/* ---- event streams ---- */

static void put_chunk(alea_http_exchange *exchange, const char *before, alea_bytes data,
                      const char *after) {
    const size_t length = strlen(before) + data.length + strlen(after);
    const size_t start = exchange->out.length + exchange->body.length;
    if (exchange->chunked) put_number(exchange, "%zx\r\n", length);
    put(exchange, before);
    put_bytes(exchange, data.data, data.length);
    put(exchange, after);
    if (exchange->chunked) put(exchange, "\r\n");
    exchange->answer_bytes += exchange->out.length + exchange->body.length - start;
    exchange->added_ms = uv_now(&exchange->server->loop);
    alea__http_count_answer(exchange);
    alea__http_mark(exchange);
}

void alea__http_stream_begin(alea_http_exchange *exchange, const alea_http_header *headers,
                             size_t n_headers) {
    exchange->chunked = exchange->parser.llhttp.http_minor == 1;
    if (!exchange->chunked) exchange->close_after = true;
    put_head(exchange, 200, "text/event-stream; charset=utf-8", headers, n_headers);
    put(exchange, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
    if (exchange->chunked) put(exchange, "Transfer-Encoding: chunked\r\n");
    put(exchange, "\r\n");
    exchange->added_ms = uv_now(&exchange->server->loop);
    alea__http_enter(exchange, ALEA_HTTP_STREAMING);
    alea__http_mark(exchange);
}

void alea__http_stream_event(alea_http_exchange *exchange, alea_bytes data) {
    put_chunk(exchange, "data: ", data, "\n\n");
}

/* For proxies and clients that give up on silence. Not where the client does not read anyway. */
void alea__http_ping(alea_http_exchange *exchange) {
    exchange->added_ms = uv_now(&exchange->server->loop);
    if (!exchange->writing) put_chunk(exchange, ": ping\n\n", (alea_bytes){NULL, 0}, "");
}

void alea__http_stream_end(alea_http_exchange *exchange) {
    if (exchange->chunked) put(exchange, "0\r\n\r\n");
    end_answer(exchange);
}

size_t alea__http_answer_held(const alea_http_exchange *exchange) {
    return exchange->answer_held_bytes;
}

bool alea__http_writable(alea_http_exchange *exchange) {
    if (alea__http_unsent(exchange) < exchange->server->options.queue_bytes) return true;
    exchange->was_full = true;
    return false;
}

/* ---- the exchange ---- */

void alea__http_conclude(alea_http_exchange *exchange) {
    const alea_http_handlers *handlers = &exchange->server->handlers;
    if (handlers->ended) handlers->ended(handlers->user, exchange);
    alea__http_drop_body(exchange);
    exchange->gone = exchange->writable = exchange->silent = NULL;
    exchange->user = exchange->tag = NULL;
    exchange->was_full = exchange->chunked = exchange->complete = exchange->lost_bytes = false;
    exchange->status = 0;
    exchange->request_bytes = exchange->answer_bytes = 0;
}

const char *alea__http_method(const alea_http_exchange *exchange) {
    if (!exchange->parser.has_target) return "";
    return llhttp_method_name((llhttp_method_t)exchange->parser.llhttp.method);
}

const char *alea__http_path(const alea_http_exchange *exchange) {
    const alea_http_parser *parser = &exchange->parser;
    return parser->has_target ? parser->head.data + parser->path_at : "";
}

const char *alea__http_query(const alea_http_exchange *exchange) {
    const alea_http_parser *parser = &exchange->parser;
    return parser->has_target ? parser->head.data + parser->query_at : "";
}

const char *alea__http_header_of(const alea_http_exchange *exchange, const char *name) {
    return asked(exchange, name);
}

alea_bytes alea__http_body(const alea_http_exchange *exchange) {
    const alea_http_buffer *body = &exchange->parser.body;
    return (alea_bytes){(const uint8_t *)body->data, body->length};
}

uint8_t *alea__http_take_body(alea_http_exchange *exchange, size_t *length) {
    alea_http_buffer *body = &exchange->parser.body;
    uint8_t *taken = (uint8_t *)body->data;
    *length = body->length;
    *body = (alea_http_buffer){0};
    return taken;
}

void alea__http_on_gone(alea_http_exchange *exchange, void (*gone)(void *user), void *user) {
    exchange->gone = gone;
    exchange->user = user;
}

void alea__http_on_writable(alea_http_exchange *exchange, void (*writable)(void *user)) {
    exchange->writable = writable;
}

void alea__http_on_silence(alea_http_exchange *exchange, void (*silent)(void *user)) {
    exchange->silent = silent;
    alea__http_rearm(exchange);
}

void alea__http_tag(alea_http_exchange *exchange, void *tag) {
    exchange->tag = tag;
}

void *alea__http_tag_of(const alea_http_exchange *exchange) {
    return exchange->tag;
}

alea_http_record alea__http_record_of(const alea_http_exchange *exchange) {
    return (alea_http_record){.status = exchange->status,
                              .complete = exchange->complete,
                              .out_of_memory = exchange->lost_bytes,
                              .request_bytes = exchange->request_bytes,
                              .answer_bytes = exchange->answer_bytes,
                              .started_ns = exchange->started_ns};
}
