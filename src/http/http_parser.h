/*
 * One request from bytes, however they are cut: llhttp, and the checks that it leaves to its user.
 * No sockets, no clock. A request that could be read in two ways is refused, because a proxy in
 * front may read it the other way.
 *
 * The one thing to know: the parser stops behind the request's last byte; what follows is the next
 * request's, and is handed to alea__http_parser_feed after alea__http_parser_reset.
 */
#ifndef ALEA_HTTP_HTTP_PARSER_H
#define ALEA_HTTP_HTTP_PARSER_H

#include <llhttp.h>
#include <stdbool.h>

#include "http/http_buffer.h"

#define ALEA_HTTP_HEADERS_MAX 100

typedef struct alea_http_limits {
    size_t header_bytes; /* as sent, the first line included */
    size_t body_bytes;
} alea_http_limits;

typedef struct alea_http_parser {
    llhttp_t llhttp;
    alea_http_limits limits;
    bool head_complete;
    bool complete;
    bool keep_alive;        /* set with complete */
    bool expects_continue;  /* the client waits for "100 Continue" before it sends a body */
    uint8_t protocol_bytes; /* of "HTTP" */
    uint8_t hosts, codings; /* headers of that name */
    int32_t n_headers;      /* and trailers */
    size_t fed_bytes;       /* before the head was complete */
    /* target NUL, then for each header: name in lower case NUL value NUL */
    alea_http_buffer head;
    size_t path_at;  /* the target's path and query begin there */
    size_t query_at; /* behind the '?', or at the target's NUL */
    size_t headers_at;
    size_t field_at; /* start of the name or value that is being read */
    bool has_target;
    alea_http_buffer body;
    int refusal; /* the status to answer with; 0: none */
    const char *reason;
} alea_http_parser;

void alea__http_parser_init(alea_http_parser *parser, const alea_http_limits *limits);

/* Ready for the next request. The body's memory goes, the head's may stay. */
void alea__http_parser_reset(alea_http_parser *parser);
void alea__http_parser_free(alea_http_parser *parser);

/*
 * Take bytes of one request.
 *
 * Result    *consumed bytes were taken. ALEA_MORE: all of them, the request goes on. ALEA_DONE: the
 *           request is whole
 * Errors    ALEA_EFORMAT: parser->refusal is the status to answer with, parser->reason one line
 * that repeats nothing of the request; the connection is of no further use
 */
alea_status alea__http_parser_feed(alea_http_parser *parser, const char *data, size_t length,
                                   size_t *consumed) ALEA_MUST_USE;

/* The first header of that name (in lower case), or NULL. Once the head is complete. */
const char *alea__http_parser_header(const alea_http_parser *parser, const char *name);

#endif
