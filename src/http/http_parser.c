/*
 * llhttp's callbacks collect the head and the body; what it lets through and a server must not is
 * refused where the head is complete. All of llhttp's lenient switches stay off.
 */
#include "http/http_parser.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HEAD_KEPT_BYTES 2048

static alea_http_parser *parser_of(llhttp_t *llhttp) {
    return llhttp->data;
}

/* The value that a callback returns to end the parse. */
static int refuse(alea_http_parser *parser, int status, const char *reason) {
    parser->refusal = status;
    parser->reason = reason;
    return -1;
}

static int keep(alea_http_parser *parser, const char *data, size_t length) {
    if (alea__http_buffer_add(&parser->head, data, length) == ALEA_OK) return 0;
    return refuse(parser, 503, "the server is out of memory");
}

static int on_url(llhttp_t *llhttp, const char *at, size_t length) {
    return keep(parser_of(llhttp), at, length);
}

static int on_url_complete(llhttp_t *llhttp) {
    alea_http_parser *parser = parser_of(llhttp);
    parser->has_target = true;
    if (keep(parser, "", 1) < 0) return -1;
    parser->field_at = parser->headers_at = parser->head.length;
    parser->query_at = parser->head.length - 1;
    return 0;
}

/* llhttp knows two more protocols that look like this one. */
static int on_protocol(llhttp_t *llhttp, const char *at, size_t length) {
    static const char http[] = "HTTP";
    alea_http_parser *parser = parser_of(llhttp);
    if (length > sizeof http - 1 - parser->protocol_bytes ||
        memcmp(at, http + parser->protocol_bytes, length) != 0)
        return refuse(parser, 400, "the request is no HTTP");
    parser->protocol_bytes = (uint8_t)(parser->protocol_bytes + length);
    return 0;
}

static int on_header_field(llhttp_t *llhttp, const char *at, size_t length) {
    alea_http_parser *parser = parser_of(llhttp);
    return parser->head_complete ? 0 : keep(parser, at, length); /* a trailer is dropped */
}

static int on_header_field_complete(llhttp_t *llhttp) {
    alea_http_parser *parser = parser_of(llhttp);
    if (++parser->n_headers > ALEA_HTTP_HEADERS_MAX)
        return refuse(parser, 431, "the request has too many headers");
    if (parser->head_complete) return 0;
    for (size_t i = parser->field_at; i < parser->head.length; i++) {
        char *letter = &parser->head.data[i];
        if (*letter >= 'A' && *letter <= 'Z') *letter = (char)(*letter | 0x20);
    }
    return keep(parser, "", 1);
}

static int on_header_value(llhttp_t *llhttp, const char *at, size_t length) {
    alea_http_parser *parser = parser_of(llhttp);
    return parser->head_complete ? 0 : keep(parser, at, length);
}

static int on_header_value_complete(llhttp_t *llhttp) {
    alea_http_parser *parser = parser_of(llhttp);
    if (parser->head_complete) return 0;
    alea_http_buffer *head = &parser->head;
    while (head->data[head->length - 1] == ' ' || head->data[head->length - 1] == '\t')
        head->length--;
    if (keep(parser, "", 1) < 0) return -1;
    const char *name = head->data + parser->field_at;
    if (strcmp(name, "host") == 0) parser->hosts++;
    if (strcmp(name, "transfer-encoding") == 0) parser->codings++;
    parser->field_at = head->length;
    return 0;
}

/* Printable ASCII alone, and nothing that belongs to another part of a URL. */
static bool is_host(const char *text) {
    for (; *text; text++)
        if (*text <= ' ' || *text > '~' || strchr(",/\\@?#\"<>", *text)) return false;
    return true;
}

/* Where the path begins in "/path", "*" or "http://host/path". */
static int check_target(alea_http_parser *parser) {
    const char *target = parser->head.data;
    for (const char *at = target; *at; at++)
        if (*at <= ' ' || *at > '~' || *at == '#')
            return refuse(parser, 400, "the target of the request is not a URL");
    size_t path_at = 0;
    if (strncasecmp(target, "http://", 7) == 0 || strncasecmp(target, "https://", 8) == 0) {
        const char *host = strstr(target, "://") + 3;
        path_at = (size_t)(host - target) + strcspn(host, "/?");
        if (target[path_at] != '/')
            return refuse(parser, 400, "the target of the request has no path");
    } else if (target[0] != '/' &&
               !(strcmp(target, "*") == 0 && parser->llhttp.method == HTTP_OPTIONS)) {
        return refuse(parser, 400, "the target of the request does not begin with '/'");
    }
    parser->path_at = path_at;
    char *query = strchr(parser->head.data + path_at, '?');
    if (!query) return 0;
    *query = 0;
    parser->query_at = (size_t)(query + 1 - parser->head.data);
    return 0;
}

static int check_head(alea_http_parser *parser) {
    const llhttp_t *llhttp = &parser->llhttp;
    if (llhttp->http_major != 1 || llhttp->http_minor > 1)
        return refuse(parser, 505, "this server speaks HTTP/1.1 and HTTP/1.0");
    if (llhttp->method == HTTP_CONNECT) return refuse(parser, 501, "this server is no proxy");
    if (check_target(parser) < 0) return -1;
    if (parser->hosts > 1 || (parser->hosts == 0 && llhttp->http_minor == 1))
        return refuse(parser, 400, "a request must have one Host header");
    const char *host = alea__http_parser_header(parser, "host");
    if (host && !is_host(host)) return refuse(parser, 400, "the Host header is malformed");
    if (parser->codings) {
        if (llhttp->http_minor == 0)
            return refuse(parser, 400, "HTTP/1.0 has no Transfer-Encoding");
        if (parser->codings > 1 ||
            strcasecmp(alea__http_parser_header(parser, "transfer-encoding"), "chunked") != 0)
            return refuse(parser, 501, "the only Transfer-Encoding understood is chunked");
    }
    if ((llhttp->flags & F_CONTENT_LENGTH) && llhttp->content_length > parser->limits.body_bytes)
        return refuse(parser, 413, "the body is too large");
    const char *expect = alea__http_parser_header(parser, "expect");
    if (!expect || llhttp->http_minor == 0) return 0;
    if (strcasecmp(expect, "100-continue") != 0)
        return refuse(parser, 417, "the only expectation understood is 100-continue");
    parser->expects_continue = true;
    return 0;
}

static int on_headers_complete(llhttp_t *llhttp) {
    alea_http_parser *parser = parser_of(llhttp);
    parser->head_complete = true;
    llhttp->upgrade = 0; /* an offer to change the protocol may be ignored, and is */
    return check_head(parser);
}

static int on_body(llhttp_t *llhttp, const char *at, size_t length) {
    alea_http_parser *parser = parser_of(llhttp);
    if (length > parser->limits.body_bytes - parser->body.length)
        return refuse(parser, 413, "the body is too large");
    if (alea__http_buffer_add(&parser->body, at, length) < 0)
        return refuse(parser, 503, "the server is out of memory");
    return 0;
}

static int on_message_complete(llhttp_t *llhttp) {
    alea_http_parser *parser = parser_of(llhttp);
    parser->complete = true;
    parser->keep_alive = llhttp_should_keep_alive(llhttp) != 0;
    return HPE_PAUSED;
}

static const llhttp_settings_t callbacks = {
    .on_url = on_url,
    .on_url_complete = on_url_complete,
    .on_protocol = on_protocol,
    .on_header_field = on_header_field,
    .on_header_field_complete = on_header_field_complete,
    .on_header_value = on_header_value,
    .on_header_value_complete = on_header_value_complete,
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

void alea__http_parser_init(alea_http_parser *parser, const alea_http_limits *limits) {
    *parser = (alea_http_parser){.limits = *limits};
    llhttp_init(&parser->llhttp, HTTP_REQUEST, &callbacks);
    parser->llhttp.data = parser;
}

void alea__http_parser_reset(alea_http_parser *parser) {
    const alea_http_limits limits = parser->limits;
    alea_http_buffer head = parser->head;
    alea__http_buffer_clear(&head, HEAD_KEPT_BYTES);
    alea__http_buffer_clear(&parser->body, 0);
    alea__http_parser_init(parser, &limits);
    parser->head = head;
}

void alea__http_parser_free(alea_http_parser *parser) {
    alea__http_buffer_clear(&parser->head, 0);
    alea__http_buffer_clear(&parser->body, 0);
}

static alea_status explain(alea_http_parser *parser, llhttp_errno_t error) {
    if (parser->refusal) return ALEA_EFORMAT;
    switch (error) {
    case HPE_INVALID_VERSION: /* also what stands behind a good one */
        if (parser->llhttp.http_major == 1 && parser->llhttp.http_minor <= 1) {
            refuse(parser, 400, "a line does not end in CR LF");
            break;
        } /* fall through */
    case HPE_PAUSED_H2_UPGRADE:
        refuse(parser, 505, "this server speaks HTTP/1.1 and HTTP/1.0");
        break;
    case HPE_INVALID_METHOD: refuse(parser, 400, "the method is none of HTTP's"); break;
    case HPE_INVALID_URL: refuse(parser, 400, "the target of the request is not a URL"); break;
    case HPE_INVALID_HEADER_TOKEN: refuse(parser, 400, "a header is malformed"); break;
    case HPE_UNEXPECTED_CONTENT_LENGTH:
    case HPE_INVALID_CONTENT_LENGTH:
    case HPE_INVALID_TRANSFER_ENCODING:
        refuse(parser, 400, "Content-Length and Transfer-Encoding do not give the body's length");
        break;
    case HPE_INVALID_CHUNK_SIZE: refuse(parser, 400, "the size of a chunk is malformed"); break;
    case HPE_CR_EXPECTED:
    case HPE_LF_EXPECTED: refuse(parser, 400, "a line does not end in CR LF"); break;
    default: refuse(parser, 400, "the request is no HTTP"); break;
    }
    return ALEA_EFORMAT;
}

alea_status alea__http_parser_feed(alea_http_parser *parser, const char *data, size_t length,
                                   size_t *consumed) {
    size_t done = 0;
    while (done < length) {
        const bool in_head = !parser->head_complete;
        size_t part = length - done;
        if (in_head) {
            const size_t room = parser->limits.header_bytes - parser->fed_bytes;
            if (part > room) part = room;
            parser->fed_bytes += part;
        }
        if (part == 0) {
            refuse(parser, parser->has_target || parser->head.length == 0 ? 431 : 414,
                   "the header is too large");
            return ALEA_EFORMAT;
        }
        const llhttp_errno_t error = llhttp_execute(&parser->llhttp, data + done, part);
        if (error == HPE_PAUSED && parser->complete) {
            *consumed = (size_t)(llhttp_get_error_pos(&parser->llhttp) - data);
            return ALEA_DONE;
        }
        if (error != HPE_OK) return explain(parser, error);
        done += part;
    }
    *consumed = done;
    return ALEA_MORE;
}

const char *alea__http_parser_header(const alea_http_parser *parser, const char *name) {
    const char *at = parser->head.data + parser->headers_at;
    const char *end = parser->head.data + parser->head.length;
    while (at < end) {
        const char *value = at + strlen(at) + 1;
        if (strcmp(at, name) == 0) return value;
        at = value + strlen(value) + 1;
    }
    return NULL;
}
