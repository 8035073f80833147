/* What is a request and what is refused, whole, in single bytes and at every cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "http/http_parser.h"

#define HOST "Host: a\r\n"
#define CHUNKED "Transfer-Encoding: chunked\r\n"

static const alea_http_limits limits = {.header_bytes = 1024, .body_bytes = 64};

typedef struct request_case {
    const char *name;
    const char *text;
    size_t length; /* 0: strlen */
    int refusal;   /* 0: a whole request */
    size_t ahead;  /* bytes that belong to the next one */
} request_case;

static const request_case cases[] = {
    {"the least", "GET / HTTP/1.1\r\n" HOST "\r\n", 0, 0, 0},
    {"version 1.0 needs no host", "GET / HTTP/1.0\r\n\r\n", 0, 0, 0},
    {"empty lines before it", "\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n", 0, 0, 0},
    {"a body", "POST /a?b=c HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello", 0, 0, 0},
    {"an empty body", "POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", 0, 0, 0},
    {"a body with GET", "GET / HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nxy", 0, 0, 0},
    {"two at once", "GET / HTTP/1.1\r\n" HOST "\r\nGET / HTTP/1.1\r\n", 0, 0, 16},
    {"chunks", "POST / HTTP/1.1\r\n" HOST CHUNKED "\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", 0, 0, 0},
    {"chunk in capitals",
     "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n\r\n1\r\nh\r\n0\r\n\r\nGET", 0, 0,
     3},
    {"a chunk extension", "POST / HTTP/1.1\r\n" HOST CHUNKED "\r\n1;a=b\r\nh\r\n0\r\n\r\n", 0, 0,
     0},
    {"a trailer", "POST / HTTP/1.1\r\n" HOST CHUNKED "\r\n1\r\nh\r\n0\r\nHost: b\r\n\r\n", 0, 0, 0},
    {"absolute form", "GET http://a/b HTTP/1.1\r\n" HOST "\r\n", 0, 0, 0},
    {"options of all", "OPTIONS * HTTP/1.1\r\n" HOST "\r\n", 0, 0, 0},
    {"an offer of HTTP/2", "GET / HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
     0, 0, 0},
    {"an empty host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 0, 0, 0},
    {"a full body",
     "POST / HTTP/1.1\r\n" HOST "Content-Length: 64\r\n\r\n"
     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
     0, 0, 0},

    {"both lengths", "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n" CHUNKED "\r\n0\r\n\r\n", 0,
     400, 0},
    {"both lengths, the other way",
     "POST / HTTP/1.1\r\n" HOST CHUNKED "Content-Length: 5\r\n\r\n0\r\n\r\n", 0, 400, 0},
    {"two lengths",
     "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", 0, 400, 0},
    {"two equal lengths",
     "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 0, 400, 0},
    {"a list of lengths", "POST / HTTP/1.1\r\n" HOST "Content-Length: 5, 5\r\n\r\nhello", 0, 400,
     0},
    {"a signed length", "POST / HTTP/1.1\r\n" HOST "Content-Length: +5\r\n\r\nhello", 0, 400, 0},
    {"a negative length", "POST / HTTP/1.1\r\n" HOST "Content-Length: -1\r\n\r\n", 0, 400, 0},
    {"an empty length", "POST / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n", 0, 400, 0},
    {"a length over 64 bits",
     "POST / HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551621\r\n\r\nhello", 0, 400, 0},
    {"an unknown coding", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
     0, 501, 0},
    {"two codings", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
     0, 501, 0},
    {"two codings in two headers",
     "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip\r\n" CHUNKED "\r\n0\r\n\r\n", 0, 501, 0},
    {"chunked twice", "POST / HTTP/1.1\r\n" HOST CHUNKED CHUNKED "\r\n0\r\n\r\n", 0, 400, 0},
    {"chunked, then nothing",
     "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 0, 400, 0},
    {"chunks in 1.0", "POST / HTTP/1.0\r\n" CHUNKED "\r\n0\r\n\r\n", 0, 400, 0},
    {"a hexadecimal mark", "POST / HTTP/1.1\r\n" HOST CHUNKED "\r\n0x1\r\nh\r\n0\r\n\r\n", 0, 400,
     0},
    {"a space behind the size", "POST / HTTP/1.1\r\n" HOST CHUNKED "\r\n1 \r\nh\r\n0\r\n\r\n", 0,
     400, 0},
    {"a bare LF behind the size", "POST / HTTP/1.1\r\n" HOST CHUNKED "\r\n1\nh\r\n0\r\n\r\n", 0,
     400, 0},
    {"a chunk longer than it says", "POST / HTTP/1.1\r\n" HOST CHUNKED "\r\n1\r\nhh\r\n0\r\n\r\n",
     0, 400, 0},
    {"a chunk size over 64 bits",
     "POST / HTTP/1.1\r\n" HOST CHUNKED "\r\n10000000000000001\r\nh\r\n0\r\n\r\n", 0, 400, 0},
    {"bare LF", "GET / HTTP/1.1\nHost: a\n\n", 0, 400, 0},
    {"a bare LF in the header", "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 0, 400, 0},
    {"a bare CR in a value", "GET / HTTP/1.1\r\n" HOST "X: a\rTransfer-Encoding: chunked\r\n\r\n",
     0, 400, 0},
    {"NUL in a value", "GET / HTTP/1.1\r\n" HOST "X: a\0b\r\n\r\n", 35, 400, 0},
    {"NUL in a name", "GET / HTTP/1.1\r\n" HOST "X\0: ab\r\n\r\n", 35, 400, 0},
    {"a space before the colon", "POST / HTTP/1.1\r\n" HOST "Content-Length : 5\r\n\r\nhello", 0,
     400, 0},
    {"a header without a name", "GET / HTTP/1.1\r\n" HOST ": b\r\n\r\n", 0, 400, 0},
    {"a folded line", "GET / HTTP/1.1\r\n" HOST "X: a\r\n b\r\n\r\n", 0, 400, 0},
    {"no host", "GET / HTTP/1.1\r\n\r\n", 0, 400, 0},
    {"two hosts", "GET / HTTP/1.1\r\n" HOST HOST "\r\n", 0, 400, 0},
    {"two hosts in 1.0", "GET / HTTP/1.0\r\n" HOST HOST "\r\n", 0, 400, 0},
    {"a list of hosts", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 0, 400, 0},
    {"a host with a user", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 0, 400, 0},
    {"version 0.9", "GET / HTTP/0.9\r\n" HOST "\r\n", 0, 505, 0},
    {"no version", "GET /\r\n\r\n", 0, 505, 0},
    {"version 1.9", "GET / HTTP/1.9\r\n" HOST "\r\n", 0, 505, 0},
    {"version 2.0", "GET / HTTP/2.0\r\n" HOST "\r\n", 0, 505, 0},
    {"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, 505, 0},
    {"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 9, 400, 0},
    {"another method", "BREW / HTTP/1.1\r\n" HOST "\r\n", 0, 400, 0},
    {"a method in small letters", "get / HTTP/1.1\r\n" HOST "\r\n", 0, 400, 0},
    {"a tunnel", "CONNECT a:443 HTTP/1.1\r\n" HOST "\r\n", 0, 501, 0},
    {"another protocol", "GET / RTSP/1.0\r\n" HOST "\r\n", 0, 400, 0},
    {"a fragment", "GET /#a HTTP/1.1\r\n" HOST "\r\n", 0, 400, 0},
    {"no slash", "GET a HTTP/1.1\r\n" HOST "\r\n", 0, 400, 0},
    {"all, of another method", "GET * HTTP/1.1\r\n" HOST "\r\n", 0, 400, 0},
    {"absolute form without a path", "GET http://a HTTP/1.1\r\n" HOST "\r\n", 0, 400, 0},
    {"bytes beyond ASCII", "GET /\xc3\xa9 HTTP/1.1\r\n" HOST "\r\n", 0, 400, 0},
    {"another expectation",
     "POST / HTTP/1.1\r\n" HOST "Expect: money\r\nContent-Length: 1\r\n\r\nx", 0, 417, 0},
    {"a length over the limit", "POST / HTTP/1.1\r\n" HOST "Content-Length: 65\r\n\r\n", 0, 413, 0},
    {"chunks over the limit",
     "POST / HTTP/1.1\r\n" HOST CHUNKED
     "\r\n28\r\n0123456789012345678901234567890123456789\r\n28\r\n"
     "0123456789012345678901234567890123456789\r\n0\r\n\r\n",
     0, 413, 0},
};

typedef struct result {
    int refusal;
    size_t used;
    bool keep_alive;
    char body[128];
    char path[128];
} result;

/* Feed `text` in parts that end at the given cuts. */
static result parse(const char *text, size_t length, size_t first, size_t step) {
    alea_http_parser parser;
    alea__http_parser_init(&parser, &limits);
    result out = {0};
    size_t at = 0;
    alea_status status = ALEA_MORE;
    while (status == ALEA_MORE && at < length) {
        size_t part = at == 0 ? first : step;
        if (part > length - at) part = length - at;
        size_t used = 0;
        /* A copy of its own size, so that a read behind it is seen. */
        char *copy = malloc(part);
        memcpy(copy, text + at, part);
        status = alea__http_parser_feed(&parser, copy, part, &used);
        free(copy);
        at += used;
    }
    if (status < 0) {
        out.refusal = parser.refusal;
        assert_non_null(parser.reason);
    } else {
        assert_int_equal(status, ALEA_DONE);
        out.used = at;
        out.keep_alive = parser.keep_alive;
        memcpy(out.body, parser.body.data ? parser.body.data : "", parser.body.length);
        strcpy(out.path, parser.head.data + parser.path_at);
    }
    alea__http_parser_free(&parser);
    return out;
}

static void test_table_of_requests(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const request_case *c = &cases[i];
        const size_t length = c->length ? c->length : strlen(c->text);
        const result whole = parse(c->text, length, length, length);
        if (whole.refusal != c->refusal || (!c->refusal && whole.used != length - c->ahead))
            fail_msg("%s: status %d, used %zu of %zu", c->name, whole.refusal, whole.used, length);
        const result bytes = parse(c->text, length, 1, 1);
        assert_memory_equal(&bytes, &whole, sizeof whole);
        for (size_t cut = 1; cut < length; cut++) {
            const result cut_once = parse(c->text, length, cut, length);
            if (memcmp(&cut_once, &whole, sizeof whole) != 0)
                fail_msg("%s: another result when cut at %zu", c->name, cut);
        }
    }
}

static void test_the_parts_of_a_request(void **state) {
    (void)state;
    static const char text[] = "POST http://a:80/v1/x?y=z&q HTTP/1.1\r\nHOST: a:80\r\n"
                               "X-Two:  a b \t\r\nX-Two: second\r\nx-empty:\r\n"
                               "Content-Length: 3\r\nConnection: close\r\n\r\nabc";
    alea_http_parser parser;
    alea__http_parser_init(&parser, &limits);
    size_t used;
    assert_int_equal(alea__http_parser_feed(&parser, text, strlen(text), &used), ALEA_DONE);
    assert_string_equal(parser.head.data + parser.path_at, "/v1/x");
    assert_string_equal(parser.head.data + parser.query_at, "y=z&q");
    assert_string_equal(alea__http_parser_header(&parser, "host"), "a:80");
    assert_string_equal(alea__http_parser_header(&parser, "x-two"), "a b");
    assert_string_equal(alea__http_parser_header(&parser, "x-empty"), "");
    assert_null(alea__http_parser_header(&parser, "x"));
    assert_null(alea__http_parser_header(&parser, "y=z&q"));
    assert_int_equal(parser.body.length, 3);
    assert_false(parser.keep_alive);
    alea__http_parser_free(&parser);
}

static void test_one_parser_reads_many_requests(void **state) {
    (void)state;
    static const char text[] = "POST /1 HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\na"
                               "GET /2 HTTP/1.1\r\n" HOST "\r\n"
                               "POST /3 HTTP/1.1\r\n" HOST CHUNKED "\r\n1\r\nc\r\n0\r\n\r\n"
                               "GET /4 HTTP/1.0\r\n\r\n";
    static const char *const paths[] = {"/1", "/2", "/3", "/4"};
    static const char *const bodies[] = {"a", "", "c", ""};
    alea_http_parser parser;
    alea__http_parser_init(&parser, &limits);
    size_t at = 0;
    for (int i = 0; i < 4; i++) {
        size_t used;
        assert_int_equal(alea__http_parser_feed(&parser, text + at, strlen(text) - at, &used),
                         ALEA_DONE);
        at += used;
        assert_string_equal(parser.head.data + parser.path_at, paths[i]);
        assert_int_equal(parser.body.length, strlen(bodies[i]));
        assert_memory_equal(parser.body.data ? parser.body.data : "", bodies[i], strlen(bodies[i]));
        assert_int_equal(parser.keep_alive, i < 3);
        alea__http_parser_reset(&parser);
    }
    assert_int_equal(at, strlen(text));
    alea__http_parser_free(&parser);
}

/* A header of exactly the limit passes, one byte more does not, however it is padded. */
static void test_the_header_limit_is_exact(void **state) {
    (void)state;
    static const char *const paddings[] = {"GET / HTTP/1.1\r\n" HOST "X: %*s\r\n\r\n",
                                           "GET / HTTP/1.1\r\n" HOST "X: %*sb\r\n\r\n",
                                           "GET / HTTP/1.1\r\n" HOST "X: b%*s\r\n\r\n"};
    for (size_t i = 0; i < sizeof paddings / sizeof *paddings; i++) {
        char text[2048];
        const size_t bare = (size_t)snprintf(text, sizeof text, paddings[i], 0, "");
        const int room = (int)(limits.header_bytes - bare);
        snprintf(text, sizeof text, paddings[i], room, "");
        assert_int_equal(strlen(text), limits.header_bytes);
        assert_int_equal(parse(text, strlen(text), strlen(text), 1).refusal, 0);
        assert_int_equal(parse(text, strlen(text), 1, 1).refusal, 0);
        snprintf(text, sizeof text, paddings[i], room + 1, "");
        assert_int_equal(parse(text, strlen(text), strlen(text), 1).refusal, 431);
        assert_int_equal(parse(text, strlen(text), 1, 1).refusal, 431);
    }
    char target[2048] = "GET /";
    memset(target + 5, 'a', sizeof target - 6);
    assert_int_equal(parse(target, 2000, 2000, 1).refusal, 414);
    assert_int_equal(parse(target, 2000, 1, 1).refusal, 414);
}

static void test_the_number_of_headers_is_limited(void **state) {
    (void)state;
    alea_http_buffer text = {0};
    assert_int_equal(alea__http_buffer_text(&text, "GET / HTTP/1.1\r\n" HOST), ALEA_OK);
    for (int i = 1; i < ALEA_HTTP_HEADERS_MAX; i++)
        assert_int_equal(alea__http_buffer_text(&text, "a:b\r\n"), ALEA_OK);
    const size_t full = text.length;
    assert_int_equal(alea__http_buffer_text(&text, "\r\n"), ALEA_OK);
    assert_int_equal(parse(text.data, text.length, text.length, 1).refusal, 0);
    text.length = full;
    assert_int_equal(alea__http_buffer_text(&text, "a:b\r\n\r\n"), ALEA_OK);
    assert_int_equal(parse(text.data, text.length, text.length, 1).refusal, 431);
    /* Trailers count too. */
    text.length = 0;
    assert_int_equal(alea__http_buffer_text(&text, "POST / HTTP/1.1\r\n" HOST CHUNKED "\r\n0\r\n"),
                     ALEA_OK);
    for (int i = 1; i < ALEA_HTTP_HEADERS_MAX; i++)
        assert_int_equal(alea__http_buffer_text(&text, "a:b\r\n"), ALEA_OK);
    assert_int_equal(alea__http_buffer_text(&text, "\r\n"), ALEA_OK);
    assert_int_equal(parse(text.data, text.length, text.length, 1).refusal, 431);
    alea__http_buffer_clear(&text, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_of_requests),
        cmocka_unit_test(test_the_parts_of_a_request),
        cmocka_unit_test(test_one_parser_reads_many_requests),
        cmocka_unit_test(test_the_header_limit_is_exact),
        cmocka_unit_test(test_the_number_of_headers_is_limited),
    };
    return cmocka_run_group_tests_name("http_parser", tests, NULL, NULL);
}
