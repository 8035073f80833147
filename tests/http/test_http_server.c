/* The server over real sockets: answers, order, limits of time and size, departures, draining. */
#include <netdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "http_rig.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"
#define GET_LAST(path) "GET " path " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

void *__real_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

/* Buffers grow by realloc alone: from this many bytes on, in vain. */
static atomic_size_t reallocs_fail_from = SIZE_MAX;

void *__wrap_realloc(void *memory, size_t bytes) {
    return bytes < atomic_load(&reallocs_fail_from) ? __real_realloc(memory, bytes) : NULL;
}

int __real_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **found);
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **found);

/* "several.test" is what a hosts file may make of a name, one address of it twice. */
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **found) {
    static const char *const hosts[] = {"127.0.0.1", "::1", "127.0.0.2", "127.0.0.1"};
    if (!node || strcmp(node, "several.test") != 0)
        return __real_getaddrinfo(node, service, hints, found);
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        assert_int_equal(__real_getaddrinfo(hosts[i], service, hints, found), 0);
        while (*found)
            found = &(*found)->ai_next;
    }
    return 0;
}

static rig server;

static int start(void **state) {
    (void)state;
    rig_start(&server, (alea_http_options){.cors_origin = "*"});
    return 0;
}

static int stop(void **state) {
    (void)state;
    rig_stop(&server);
    return 0;
}

static void sleep_ms(int ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static void assert_has(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("no '%s' in: %s", part, text);
}

static void expect(const char *request, const char *first, const char *second) {
    char *text = rig_ask(&server, request);
    assert_has(text, first);
    assert_has(text, second);
    free(text);
}

/* ---- answers ---- */

static void test_a_connection_serves_many_requests(void **state) {
    (void)state;
    const int fd = rig_connect(&server);
    for (int i = 0; i < 3; i++) {
        rig_send(fd, "GET /where?a=1 HTTP/1.1\r\nHost: a\r\nX-Word: hm\r\n\r\n");
        char *text = rig_answer(fd);
        assert_has(text, "HTTP/1.1 200 OK\r\nDate: ");
        assert_has(text, "\r\nx-extra: 1\r\n");
        assert_has(text, "\r\n\r\nGET /where a=1 hm");
        free(text);
    }
    close(fd);
    rig_wait(&server.answered, 3);
}

static void test_bytes_may_come_one_at_a_time(void **state) {
    (void)state;
    static const char text[] = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    const int fd = rig_connect(&server);
    for (size_t i = 0; i < strlen(text); i++)
        assert_int_equal(send(fd, text + i, 1, MSG_NOSIGNAL), 1);
    char *answer = rig_answer(fd);
    assert_has(answer, "\r\n\r\nabc");
    free(answer);
    close(fd);
}

static void test_requests_sent_ahead_are_answered_in_order(void **state) {
    (void)state;
    enum { N = 500 };
    static char burst[N * 64];
    size_t length = 0;
    for (int i = 0; i < N; i++)
        length += (size_t)snprintf(burst + length, sizeof burst - length,
                                   "GET /where?%d HTTP/1.1\r\nHost: a\r\n\r\n", i);
    const int fd = rig_connect(&server);
    rig_send(fd, burst);
    for (int i = 0; i < N; i++) {
        char word[32];
        snprintf(word, sizeof word, "/where %d -", i);
        char *text = rig_answer(fd);
        assert_has(text, word);
        free(text);
    }
    close(fd);
}

static void test_a_head_request_gets_no_body(void **state) {
    (void)state;
    expect("HEAD /where HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "Content-Length: 14\r\n",
           "\r\n\r\n");
    char *text = rig_ask(&server, "HEAD /where HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_string_equal(strstr(text, "\r\n\r\n"), "\r\n\r\n");
    free(text);
}

static void test_version_1_0_closes_unless_asked(void **state) {
    (void)state;
    expect("GET /where HTTP/1.0\r\n\r\n", "Connection: close\r\n", "\r\n\r\nGET /where  -");
    const int fd = rig_connect(&server);
    for (int i = 0; i < 2; i++) {
        rig_send(fd, "GET /where HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        char *text = rig_answer(fd);
        assert_has(text, "Connection: keep-alive\r\n");
        free(text);
    }
    close(fd);
}

static void test_a_stream_is_framed_to_the_byte(void **state) {
    (void)state;
    char *text = rig_ask(&server, GET_LAST("/stream?2"));
    assert_has(text, "Content-Type: text/event-stream; charset=utf-8\r\n");
    assert_has(text, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
    assert_has(text, "Transfer-Encoding: chunked\r\n");
    assert_string_equal(strstr(text, "\r\n\r\n") + 4, "f\r\ndata: {\"i\":0}\n\n\r\n"
                                                      "f\r\ndata: {\"i\":1}\n\n\r\n0\r\n\r\n");
    free(text);
    text = rig_ask(&server, "GET /stream?2 HTTP/1.0\r\n\r\n");
    assert_null(strstr(text, "Transfer-Encoding"));
    assert_string_equal(strstr(text, "\r\n\r\n") + 4, "data: {\"i\":0}\n\ndata: {\"i\":1}\n\n");
    free(text);
}

static void test_a_connection_goes_on_after_a_stream(void **state) {
    (void)state;
    const int fd = rig_connect(&server);
    rig_send(fd, GET("/stream?3") GET("/where"));
    free(rig_read(fd, "\r\n0\r\n\r\n"));
    char *text = rig_answer(fd);
    assert_has(text, "GET /where");
    free(text);
    close(fd);
}

static void test_a_large_answer_reaches_a_slow_reader(void **state) {
    (void)state;
    const int fd = rig_connect(&server);
    rig_send(fd, GET_LAST("/huge?20000000"));
    sleep_ms(200);
    char *text = rig_read(fd, NULL);
    assert_int_equal(strlen(strstr(text, "\r\n\r\n") + 4), 20000000);
    free(text);
    close(fd);
}

/* It is moved, not copied, and what is pipelined behind it comes behind it. */
static void test_a_given_answer_goes_out_in_its_turn(void **state) {
    (void)state;
    static const int sizes[] = {0, 1, 16384, 16385, 100000, 20000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char request[256];
        snprintf(request, sizeof request, "GET /given?%d HTTP/1.1\r\nHost: a\r\n\r\n%s", sizes[i],
                 GET("/where") GET("/given?20000") GET("/where"));
        const int fd = rig_connect(&server);
        rig_send(fd, request);
        sleep_ms(sizes[i] > 1000000 ? 100 : 0);
        char *text = rig_answer(fd);
        const char *body = strstr(text, "\r\n\r\n") + 4;
        assert_int_equal(strspn(body, "g"), sizes[i]);
        free(text);
        for (int k = 0; k < 3; k++) {
            text = rig_answer(fd);
            assert_has(text, k == 1 ? "\r\n\r\nggg" : "\r\n\r\nGET /where");
            free(text);
        }
        close(fd);
    }
    /* The count comes back to nothing, also where the client left in the middle of it. */
    const int before = atomic_load(&server.ended);
    const int fd = rig_connect(&server);
    rig_send(fd, GET("/given?20000000"));
    rig_wait(&server.requests, 4 * (int)(sizeof sizes / sizeof *sizes) + 1);
    close(fd);
    rig_wait(&server.ended, before + 1);
    sleep_ms(50);
    expect(GET_LAST("/where"), "200 OK", "/where");
    assert_int_equal(atomic_load(&server.answer_bytes_held), 0);
}

static void test_a_body_may_be_taken_and_given_back(void **state) {
    (void)state;
    expect("POST /back HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
           "Content-Length: 5\r\n", "\r\n\r\nhello");
    expect("POST /back HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
           "Content-Length: 0\r\n", "\r\n\r\n");
    expect("HEAD /given?50000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
           "Content-Length: 50000\r\n", "\r\n\r\n");
}

static void test_an_answer_that_memory_lost_is_not_complete(void **state) {
    (void)state;
    atomic_store(&reallocs_fail_from, 100000);
    char *text = rig_ask(&server, GET_LAST("/huge?200000"));
    atomic_store(&reallocs_fail_from, SIZE_MAX);
    assert_string_equal(text, "");
    free(text);
    rig_wait(&server.ended, 1);
    assert_false(atomic_load(&server.last_complete));
    assert_true(atomic_load(&server.last_lost));
    expect(GET_LAST("/huge?200000"), "200 OK", "hhh");
    rig_wait(&server.ended, 2);
    assert_true(atomic_load(&server.last_complete));
    assert_false(atomic_load(&server.last_lost));
}

/* ---- refusals ---- */

static void test_a_refused_request_gets_its_answer_and_an_end(void **state) {
    (void)state;
    expect("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n", "{\"status\":400,");
    expect("GET / HTTP/2.0\r\nHost: a\r\n\r\n", "HTTP/1.1 505 ", "Connection: close\r\n");
    expect("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
           "HTTP/1.1 501 ", "application/json");
    assert_int_equal(atomic_load(&server.requests), 0);
}

/* The client is still sending: a reset would take the answer from it. */
static void test_a_body_over_the_limit_is_refused_and_the_answer_arrives(void **state) {
    (void)state;
    const int fd = rig_connect(&server);
    rig_send(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 200000000\r\n\r\n");
    static char part[1 << 20];
    memset(part, 'x', sizeof part - 1);
    for (int i = 0; i < 8; i++)
        rig_send(fd, part);
    char *text = rig_answer(fd);
    assert_has(text, "HTTP/1.1 413 Content Too Large\r\n");
    assert_true(rig_is_closed(fd));
    free(text);
    close(fd);
}

static void test_a_client_that_waits_for_100_gets_it_after_the_checks(void **state) {
    (void)state;
    const int fd = rig_connect(&server);
    rig_send(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                 "Content-Length: 2\r\n\r\n");
    char *text = rig_read(fd, "\r\n\r\n");
    assert_string_equal(text, "HTTP/1.1 100 Continue\r\n\r\n");
    free(text);
    rig_send(fd, "ok");
    text = rig_answer(fd);
    assert_has(text, "HTTP/1.1 200 OK\r\n");
    assert_has(text, "\r\n\r\nok");
    free(text);
    close(fd);
    char *refused = rig_ask(&server, "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                                     "Content-Length: 200000000\r\n\r\n");
    assert_has(refused, "HTTP/1.1 413 ");
    assert_null(strstr(refused, "100 Continue"));
    free(refused);
    /* Who sends the body at once needs no leave. */
    refused = rig_ask(&server, "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                               "Connection: close\r\nContent-Length: 2\r\n\r\nok");
    assert_null(strstr(refused, "100 Continue"));
    free(refused);
}

static void test_pages_of_other_origins_may_ask(void **state) {
    (void)state;
    expect("OPTIONS /echo HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\nConnection: close\r\n"
           "Access-Control-Request-Method: POST\r\n"
           "Access-Control-Request-Headers: x-stainless-os, authorization\r\n\r\n",
           "HTTP/1.1 204 No Content\r\n",
           "Access-Control-Allow-Headers: x-stainless-os, authorization\r\n");
    expect("GET /nowhere HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\nConnection: close\r\n\r\n",
           "HTTP/1.1 404 ", "Access-Control-Allow-Origin: *\r\n");
    char *text = rig_ask(&server, GET_LAST("/where"));
    assert_null(strstr(text, "Access-Control"));
    free(text);
}

/* ---- departures ---- */

static void leave(const char *request, bool reset, bool half) {
    const int before = atomic_load(&server.gone), requests = atomic_load(&server.requests);
    const int fd = rig_connect(&server);
    rig_send(fd, request);
    rig_wait(&server.requests, requests + 1);
    assert_int_equal(atomic_load(&server.gone), before);
    const struct linger linger = {.l_onoff = 1};
    if (reset) setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    if (half) shutdown(fd, SHUT_WR);
    if (!half) close(fd);
    rig_wait(&server.gone, before + 1);
    if (half) close(fd);
}

static void test_a_client_that_leaves_is_seen_in_every_phase(void **state) {
    (void)state;
    static const char *const requests[] = {GET("/hold"), GET("/quiet"), GET("/flood"),
                                           GET("/hold") GET("/where")};
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        for (int way = 0; way < 3; way++)
            leave(requests[i], way == 1, way == 2);
    assert_int_equal(atomic_load(&server.ended), atomic_load(&server.gone));
    assert_false(atomic_load(&server.last_complete));
}

/* What is sent ahead is read, needed or not: left in the kernel it would hide the end behind it,
 * and more than the kernel holds would keep the end from coming at all. */
static void test_a_client_that_sends_far_ahead_and_leaves_is_seen(void **state) {
    (void)state;
    static char ahead[1 << 20];
    memset(ahead, 'x', sizeof ahead - 1);
    for (int megabytes = 1; megabytes <= 12; megabytes += 11) {
        const int before = atomic_load(&server.gone), requests = atomic_load(&server.requests);
        const int fd = rig_connect(&server);
        rig_send(fd, GET("/hold"));
        rig_wait(&server.requests, requests + 1);
        for (int i = 0; i < megabytes; i++)
            rig_send(fd, ahead);
        assert_int_equal(atomic_load(&server.gone), before);
        close(fd);
        int waited_ms = 0;
        for (; waited_ms < 500 && atomic_load(&server.gone) == before; waited_ms += 5)
            sleep_ms(5);
        print_message("%d MB ahead: seen after %d ms\n", megabytes, waited_ms);
        assert_int_equal(atomic_load(&server.gone), before + 1);
    }
}

static void test_what_is_sent_too_far_ahead_is_refused(void **state) {
    (void)state;
    enum { N = 20000 }; /* two and a half times what is kept */
    const int fd = rig_connect(&server);
    rig_send(fd, GET("/hold"));
    rig_wait(&server.requests, 1);
    char *burst = malloc(N * sizeof GET("/where")), *end = burst;
    for (int i = 0; i < N; i++)
        end = stpcpy(end, GET("/where"));
    rig_send(fd, burst);
    free(burst);
    sleep_ms(100);
    rig_release(&server);
    char *text = rig_read(fd, NULL);
    close(fd);
    int answers = 0;
    for (const char *at = text; (at = strstr(at, "GET /where")); at++)
        answers++;
    print_message("%d of %d answered\n", answers, N);
    assert_in_range(answers, 4000, 256 * 1024 / (sizeof GET("/where") - 1));
    assert_has(text, "HTTP/1.1 503 Service Unavailable\r\n");
    assert_has(text, "too much was sent ahead");
    free(text);
    rig_wait(&server.answered, answers + 2);
}

static void test_who_sends_ahead_without_end_is_cut(void **state) {
    (void)state;
    const int fd = rig_connect(&server);
    rig_send(fd, GET("/hold"));
    rig_wait(&server.requests, 1);
    static char ahead[1 << 20];
    memset(ahead, 'x', sizeof ahead - 1);
    for (int i = 0; i < 20; i++)
        rig_send(fd, ahead);
    rig_wait(&server.gone, 1);
    close(fd);
}

static void test_what_was_sent_ahead_is_answered(void **state) {
    (void)state;
    enum { N = 4000 };
    const int fd = rig_connect(&server);
    rig_send(fd, GET("/hold"));
    rig_wait(&server.requests, 1);
    char *burst = malloc(N * sizeof GET("/where"));
    *burst = 0;
    char *end = burst;
    for (int i = 0; i < N; i++)
        end = stpcpy(end, GET("/where"));
    rig_send(fd, burst);
    free(burst);
    sleep_ms(50);
    rig_release(&server);
    free(rig_answer(fd));
    for (int i = 0; i < N; i++)
        free(rig_answer(fd));
    close(fd);
    rig_wait(&server.answered, N + 1);
}

/* ---- time ---- */

static int start_hasty(void **state) {
    (void)state;
    rig_start(&server, (alea_http_options){.header_ms = 150,
                                           .body_ms = 150,
                                           .idle_ms = 300,
                                           .stall_ms = 300,
                                           .ping_ms = 50,
                                           .linger_ms = 200});
    return 0;
}

static void test_slow_clients_are_told_and_idle_ones_are_not(void **state) {
    (void)state;
    expect("GET /where HTT", "HTTP/1.1 408 Request Timeout\r\n", "Connection: close\r\n");
    expect("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc", "HTTP/1.1 408 ",
           "body");
    char *text = rig_ask(&server, "");
    assert_string_equal(text, "");
    free(text);
    const int fd = rig_connect(&server);
    rig_send(fd, GET("/where"));
    free(rig_answer(fd));
    assert_true(rig_is_closed(fd));
    close(fd);
}

/* A byte now and then does not buy time. */
static void test_a_trickled_header_ends_at_its_deadline(void **state) {
    (void)state;
    const int fd = rig_connect(&server);
    rig_send(fd, "GET /where HTTP/1.1\r\nX: ");
    for (int i = 0; i < 20; i++) {
        sleep_ms(20);
        rig_send(fd, "y");
    }
    char *text = rig_answer(fd);
    assert_has(text, "HTTP/1.1 408 ");
    free(text);
    close(fd);
}

static void test_a_silent_stream_is_pinged(void **state) {
    (void)state;
    const int fd = rig_connect(&server);
    rig_send(fd, GET("/quiet"));
    free(rig_read(fd, "\r\n\r\n"));
    char *text = rig_read(fd, "8\r\n: ping\n\n\r\n8\r\n: ping\n\n\r\n");
    assert_int_equal(strlen(text), 2 * strlen("8\r\n: ping\n\n\r\n"));
    free(text);
    close(fd);
    rig_wait(&server.gone, 1);
}

static void test_a_stream_may_begin_when_waiting_gets_long(void **state) {
    (void)state;
    const int fd = rig_connect(&server);
    rig_send(fd, GET("/late"));
    char *text = rig_read(fd, ": ping\n\n");
    assert_has(text, "HTTP/1.1 200 OK\r\n");
    free(text);
    close(fd);
    rig_wait(&server.gone, 1);
}

/* It is paused where the socket is full, cut after a while, and nobody else notices. */
static void test_a_stream_that_is_not_read_is_paused_then_cut(void **state) {
    (void)state;
    const int fd = rig_connect(&server);
    rig_send(fd, GET("/flood"));
    rig_wait(&server.requests, 1);
    sleep_ms(100);
    const size_t added = atomic_load(&server.flooded_bytes);
    expect(GET_LAST("/where"), "200 OK", "/where");
    sleep_ms(50);
    assert_int_equal(atomic_load(&server.flooded_bytes), added);
    rig_wait(&server.gone, 1);
    close(fd);
}

static void test_a_paused_stream_goes_on_when_it_is_read(void **state) {
    (void)state;
    const int fd = rig_connect(&server);
    rig_send(fd, GET("/flood"));
    rig_wait(&server.requests, 1);
    sleep_ms(50);
    const size_t added = atomic_load(&server.flooded_bytes);
    static char sink[1 << 20];
    size_t taken = 0;
    while (taken < 4 * added + (64 << 20)) {
        const ssize_t n = recv(fd, sink, sizeof sink, 0);
        assert_true(n > 0);
        taken += (size_t)n;
    }
    assert_true(atomic_load(&server.flooded_bytes) > 4 * added);
    close(fd);
    rig_wait(&server.gone, 1);
}

static void *take_all(void *user) {
    static char sink[1 << 20];
    while (recv(*(int *)user, sink, sizeof sink, 0) > 0)
        continue;
    return NULL;
}

static void test_a_reader_that_takes_everything_does_not_keep_the_loop(void **state) {
    (void)state;
    int fd = rig_connect(&server);
    pthread_t reader;
    rig_send(fd, GET("/toil"));
    pthread_create(&reader, NULL, take_all, &fd);
    rig_wait(&server.requests, 1);
    for (int i = 0; i < 10; i++)
        expect(GET_LAST("/where"), "200 OK", "/where");
    shutdown(fd, SHUT_RDWR);
    pthread_join(reader, NULL);
    close(fd);
    rig_wait(&server.gone, 1);
}

/* ---- ends of the server ---- */

static void test_a_drain_lets_requests_finish(void **state) {
    (void)state;
    rig_start(&server, (alea_http_options){.grace_ms = 100});
    const int idle = rig_connect(&server), late = rig_connect(&server), held = rig_connect(&server);
    rig_send(idle, GET("/where"));
    free(rig_answer(idle));
    rig_send(held, GET("/hold"));
    rig_wait(&server.requests, 2);
    rig_drain(&server);
    rig_wait(&server.wakes, 1);
    /* Within the grace an open connection is still served, and a new one too. */
    rig_send(late, GET("/where"));
    char *text = rig_answer(late);
    assert_has(text, "200 OK");
    assert_has(text, "Connection: close\r\n");
    free(text);
    assert_true(rig_is_closed(late));
    assert_true(rig_is_closed(idle));
    assert_int_equal(atomic_load(&server.running), 1);
    close(late);
    close(idle);
    rig_release(&server);
    text = rig_answer(held);
    assert_has(text, "Connection: close\r\n");
    assert_has(text, "released");
    free(text);
    assert_true(rig_is_closed(held));
    close(held);
    rig_join(&server);
}

static void test_a_drain_without_connections_ends_at_once(void **state) {
    (void)state;
    rig_start(&server, (alea_http_options){.grace_ms = 60000});
    rig_drain(&server);
    rig_join(&server);
}

static void test_a_stop_tells_every_owner(void **state) {
    (void)state;
    rig_start(&server, (alea_http_options){0});
    int fds[20];
    for (int i = 0; i < 20; i++) {
        fds[i] = rig_connect(&server);
        rig_send(fds[i], i % 2 ? GET("/hold") : GET("/flood"));
    }
    rig_wait(&server.requests, 20);
    rig_stop(&server);
    assert_int_equal(atomic_load(&server.gone), 20);
    for (int i = 0; i < 20; i++)
        close(fds[i]);
}

static void test_connections_beyond_the_limit_are_told(void **state) {
    (void)state;
    rig_start(&server, (alea_http_options){.connections = 4, .linger_ms = 100});
    int fds[4];
    for (int i = 0; i < 4; i++) {
        fds[i] = rig_connect(&server);
        rig_send(fds[i], GET("/where"));
        free(rig_answer(fds[i]));
    }
    expect("", "HTTP/1.1 503 Service Unavailable\r\n", "Retry-After: 1\r\n");
    rig_send(fds[0], GET("/where"));
    free(rig_answer(fds[0]));
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    rig_stop(&server);
}

static void test_bodies_that_arrive_at_once_are_bounded_together(void **state) {
    (void)state;
    rig_start(&server, (alea_http_options){.body_bytes_total = 100000});
    static char part[60001];
    memset(part, 'x', sizeof part - 1);
    int fds[2];
    char *text = NULL;
    for (int i = 0; i < 2; i++) {
        fds[i] = rig_connect(&server);
        rig_send(fds[i], "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 70000\r\n\r\n");
        rig_send(fds[i], part);
        sleep_ms(50);
    }
    text = rig_answer(fds[1]);
    assert_has(text, "HTTP/1.1 503 ");
    free(text);
    part[10000] = 0;
    rig_send(fds[0], part);
    text = rig_answer(fds[0]);
    assert_has(text, "200 OK");
    free(text);
    close(fds[0]);
    close(fds[1]);
    rig_stop(&server);
}

/* ---- addresses ---- */

/* A name with several addresses is all of them. */
static void test_every_address_of_a_host_is_listened_on(void **state) {
    (void)state;
    static const char *const hosts[] = {"127.0.0.1", "127.0.0.2", "::1"};
    rig_start(&server, (alea_http_options){.host = "several.test"});
    for (size_t i = 0; i < 3; i++) {
        const int fd = rig_connect_to(&server, hosts[i]);
        if (fd < 0 && i == 2) {
            print_message("SKIP: this machine has no ::1\n");
            continue;
        }
        assert_true(fd >= 0);
        rig_send(fd, GET_LAST("/where"));
        char *text = rig_read(fd, NULL);
        assert_has(text, "200 OK");
        free(text);
        close(fd);
    }
    assert_int_equal(rig_connect_to(&server, "127.0.0.3"), -1);
    rig_stop(&server);
    rig_start(&server, (alea_http_options){.host = "127.0.0.1"});
    assert_int_equal(rig_connect_to(&server, "127.0.0.2"), -1);
    assert_int_equal(rig_connect_to(&server, "::1"), -1);
    rig_stop(&server);
}

static void test_a_unix_socket_replaces_a_dead_one_alone(void **state) {
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "/tmp/alea-http-%d.sock", (int)getpid());
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    const int dead = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(dead, (struct sockaddr *)&address, sizeof address), 0);
    close(dead);
    rig_start(&server, (alea_http_options){.unix_path = path});
    assert_string_equal(server.address + 5, path);
    expect(GET_LAST("/where"), "200 OK", "/where");
    leave(GET("/hold"), false, false);
    const alea_http_handlers handlers = {0};
    alea_http_server *other;
    alea_error error;
    assert_int_equal(
        alea__http_create(&(alea_http_options){.unix_path = path}, &handlers, &other, &error),
        ALEA_EIO);
    assert_has(error.message, path);
    rig_stop(&server);
    struct stat file;
    assert_int_equal(stat(path, &file), -1);
}

static void test_an_address_that_cannot_be_had_is_named(void **state) {
    (void)state;
    const alea_http_handlers handlers = {0};
    alea_http_server *other;
    alea_error error;
    alea_http_options options = {.port = server.port};
    assert_int_equal(alea__http_create(&options, &handlers, &other, &error), ALEA_EIO);
    assert_has(error.message, "127.0.0.1 port ");
    options.host = "no such host";
    assert_int_equal(alea__http_create(&options, &handlers, &other, &error), ALEA_EINVAL);
    char path[200];
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = 0;
    options = (alea_http_options){.unix_path = path};
    assert_int_equal(alea__http_create(&options, &handlers, &other, &error), ALEA_EINVAL);
    assert_has(error.message, "at most 107 fit");
}

static void *wake_often(void *user) {
    for (int i = 0; i < 10000; i++)
        alea__http_wake(user);
    return NULL;
}

static void test_any_thread_wakes_the_loop(void **state) {
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, wake_often, server.server);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 1000 && atomic_load(&server.wakes) == 0; i++)
        sleep_ms(1);
    assert_true(atomic_load(&server.wakes) > 0);
}

#define ON(test) cmocka_unit_test_setup_teardown(test, start, stop)
#define HASTY(test) cmocka_unit_test_setup_teardown(test, start_hasty, stop)

int main(void) {
    const struct CMUnitTest tests[] = {
        ON(test_a_connection_serves_many_requests),
        ON(test_bytes_may_come_one_at_a_time),
        ON(test_requests_sent_ahead_are_answered_in_order),
        ON(test_a_head_request_gets_no_body),
        ON(test_version_1_0_closes_unless_asked),
        ON(test_a_stream_is_framed_to_the_byte),
        ON(test_a_connection_goes_on_after_a_stream),
        ON(test_a_large_answer_reaches_a_slow_reader),
        ON(test_a_given_answer_goes_out_in_its_turn),
        ON(test_a_body_may_be_taken_and_given_back),
        ON(test_an_answer_that_memory_lost_is_not_complete),
        ON(test_a_refused_request_gets_its_answer_and_an_end),
        ON(test_a_body_over_the_limit_is_refused_and_the_answer_arrives),
        ON(test_a_client_that_waits_for_100_gets_it_after_the_checks),
        ON(test_pages_of_other_origins_may_ask),
        ON(test_a_client_that_leaves_is_seen_in_every_phase),
        ON(test_a_client_that_sends_far_ahead_and_leaves_is_seen),
        ON(test_what_is_sent_too_far_ahead_is_refused),
        ON(test_who_sends_ahead_without_end_is_cut),
        ON(test_what_was_sent_ahead_is_answered),
        HASTY(test_slow_clients_are_told_and_idle_ones_are_not),
        HASTY(test_a_trickled_header_ends_at_its_deadline),
        HASTY(test_a_silent_stream_is_pinged),
        HASTY(test_a_stream_may_begin_when_waiting_gets_long),
        HASTY(test_a_stream_that_is_not_read_is_paused_then_cut),
        HASTY(test_a_paused_stream_goes_on_when_it_is_read),
        ON(test_a_reader_that_takes_everything_does_not_keep_the_loop),
        cmocka_unit_test(test_a_drain_lets_requests_finish),
        cmocka_unit_test(test_a_drain_without_connections_ends_at_once),
        cmocka_unit_test(test_a_stop_tells_every_owner),
        cmocka_unit_test(test_connections_beyond_the_limit_are_told),
        cmocka_unit_test(test_bodies_that_arrive_at_once_are_bounded_together),
        cmocka_unit_test(test_every_address_of_a_host_is_listened_on),
        cmocka_unit_test(test_a_unix_socket_replaces_a_dead_one_alone),
        ON(test_an_address_that_cannot_be_had_is_named),
        ON(test_any_thread_wakes_the_loop),
    };
    return cmocka_run_group_tests_name("http_server", tests, NULL, NULL);
}
