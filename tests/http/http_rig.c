#include "http_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_MS 10000

static alea_bytes bytes_of(const char *text) {
    return (alea_bytes){(const uint8_t *)text, strlen(text)};
}

static void answer(alea_http_exchange *exchange, const char *text) {
    static const alea_http_header header = {"x-extra", "1"};
    alea__http_answer(exchange, 200, "text/plain", &header, 1, bytes_of(text));
}

typedef struct holder {
    rig *owner;
    alea_http_exchange *exchange;
    bool flood;
} holder;

static void forget(rig *self, const alea_http_exchange *exchange) {
    for (int i = 0; i < self->n_held; i++)
        if (self->held[i] == exchange) self->held[i] = self->held[--self->n_held];
}

static void on_gone(void *user) {
    holder *self = user;
    forget(self->owner, self->exchange);
    atomic_fetch_add(&self->owner->gone, 1);
    free(self);
}

static void hold(rig *self, alea_http_exchange *exchange, bool floods) {
    holder *held = malloc(sizeof *held);
    *held = (holder){self, exchange, floods};
    alea__http_on_gone(exchange, on_gone, held);
    alea__http_tag(exchange, held);
    self->held[self->n_held++] = exchange;
}

static void flood(void *user) {
    holder *self = user;
    static char data[RIG_EVENT_BYTES];
    memset(data, 'x', sizeof data);
    while (alea__http_writable(self->exchange)) {
        alea__http_stream_event(self->exchange, (alea_bytes){(uint8_t *)data, sizeof data});
        atomic_fetch_add(&self->owner->flooded_bytes, sizeof data);
    }
}

/* Slower than its reader, so that the socket never fills: each event is more than is queued. */
static void toil(void *user) {
    static char data[256 << 10];
    const struct timespec work = {.tv_nsec = 1000000};
    nanosleep(&work, NULL);
    alea__http_stream_event(((holder *)user)->exchange, (alea_bytes){(uint8_t *)data, sizeof data});
    (void)alea__http_writable(((holder *)user)->exchange);
}

static void stream(alea_http_exchange *exchange, int n) {
    alea__http_stream_begin(exchange, NULL, 0);
    for (int i = 0; i < n; i++) {
        char text[32];
        snprintf(text, sizeof text, "{\"i\":%d}", i);
        alea__http_stream_event(exchange, bytes_of(text));
    }
    alea__http_stream_end(exchange);
}

static void begin_late(void *user) {
    alea__http_stream_begin(((holder *)user)->exchange, NULL, 0);
}

static void on_request(void *user, alea_http_exchange *exchange) {
    rig *self = user;
    atomic_fetch_add(&self->requests, 1);
    const char *path = alea__http_path(exchange);
    const int number = atoi(alea__http_query(exchange));
    if (strcmp(path, "/echo") == 0) {
        alea__http_answer(exchange, 200, "text/plain", NULL, 0, alea__http_body(exchange));
    } else if (strcmp(path, "/back") == 0) {
        size_t length;
        char *body = (char *)alea__http_take_body(exchange, &length);
        assert_int_equal(alea__http_body(exchange).length, 0);
        alea__http_answer_text(exchange, 200, "text/plain", NULL, 0, body, length);
    } else if (strcmp(path, "/where") == 0) {
        char text[300];
        const char *word = alea__http_header_of(exchange, "x-word");
        snprintf(text, sizeof text, "%s %s %s %s", alea__http_method(exchange), path,
                 alea__http_query(exchange), word ? word : "-");
        answer(exchange, text);
    } else if (strcmp(path, "/hold") == 0) {
        hold(self, exchange, false);
    } else if (strcmp(path, "/late") == 0) {
        hold(self, exchange, false);
        alea__http_on_silence(exchange, begin_late);
    } else if (strcmp(path, "/stream") == 0) {
        stream(exchange, number);
    } else if (strcmp(path, "/quiet") == 0 || strcmp(path, "/flood") == 0) {
        const bool floods = path[1] == 'f';
        alea__http_stream_begin(exchange, NULL, 0);
        hold(self, exchange, floods);
        atomic_store(&self->flooded_bytes, 0);
        if (floods) alea__http_on_writable(exchange, flood);
        if (floods) flood(alea__http_tag_of(exchange));
    } else if (strcmp(path, "/toil") == 0) {
        alea__http_stream_begin(exchange, NULL, 0);
        hold(self, exchange, false);
        alea__http_on_writable(exchange, toil);
        toil(alea__http_tag_of(exchange));
    } else if (strcmp(path, "/given") == 0) {
        char *text = malloc((size_t)number);
        memset(text, 'g', (size_t)number);
        alea__http_answer_text(exchange, 200, "text/plain", NULL, 0, text, (size_t)number);
    } else if (strcmp(path, "/huge") == 0) {
        char *text = malloc((size_t)number);
        memset(text, 'h', (size_t)number);
        alea__http_answer(exchange, 200, "text/plain", NULL, 0,
                          (alea_bytes){(uint8_t *)text, (size_t)number});
        free(text);
    } else {
        alea__http_answer(exchange, 404, "text/plain", NULL, 0, bytes_of("no such path"));
    }
}

static void on_ended(void *user, const alea_http_exchange *exchange) {
    rig *self = user;
    const alea_http_record record = alea__http_record_of(exchange);
    atomic_store(&self->last_status, record.status);
    atomic_store(&self->last_complete, record.complete);
    atomic_store(&self->last_lost, record.out_of_memory);
    alea_http_stats stats;
    alea__http_stats_read(self->server, &stats);
    atomic_store(&self->answer_bytes_held, stats.answer_bytes_held);
    assert_true(record.started_ns != 0 || record.status == 503);
    if (record.complete) atomic_fetch_add(&self->answered, 1);
    atomic_fetch_add(&self->ended, 1);
}

static size_t on_refusal(void *user, int status, const char *message, char *body, size_t capacity) {
    (void)user;
    return (size_t)snprintf(body, capacity, "{\"status\":%d,\"message\":\"%s\"}", status, message);
}

/* Orders of the test arrive here, on the loop's thread. */
static void on_wake(void *user) {
    rig *self = user;
    atomic_fetch_add(&self->wakes, 1);
    const int order = atomic_exchange(&self->released, 0);
    if (order == 1) {
        while (self->n_held > 0) {
            alea_http_exchange *exchange = self->held[--self->n_held];
            holder *held = alea__http_tag_of(exchange);
            alea__http_on_gone(exchange, NULL, NULL);
            if (held->flood)
                alea__http_stream_end(exchange);
            else
                answer(exchange, "released");
            free(held);
        }
    }
    if (order == 2) alea__http_drain(self->server);
    if (order == 3) alea__http_stop(self->server);
}

static void *run(void *user) {
    rig *self = user;
    alea__http_run(self->server);
    atomic_store(&self->running, 0);
    return NULL;
}

void rig_start(rig *self, alea_http_options options) {
    memset(self, 0, sizeof *self);
    const alea_http_handlers handlers = {.request = on_request,
                                         .ended = on_ended,
                                         .refusal = on_refusal,
                                         .wake = on_wake,
                                         .user = self};
    alea_error error = {0};
    if (alea__http_create(&options, &handlers, &self->server, &error) < 0)
        fail_msg("%s", error.message);
    snprintf(self->address, sizeof self->address, "%s", alea__http_address(self->server));
    const char *colon = strrchr(self->address, ':');
    self->port = colon ? atoi(colon + 1) : 0;
    atomic_store(&self->running, 1);
    assert_int_equal(pthread_create(&self->thread, NULL, run, self), 0);
}

static void order(rig *self, int number) {
    atomic_store(&self->released, number);
    alea__http_wake(self->server);
}

void rig_release(rig *self) {
    order(self, 1);
}

void rig_drain(rig *self) {
    order(self, 2);
}

void rig_join(rig *self) {
    rig_wait(&self->running, 0);
    pthread_join(self->thread, NULL);
    alea__http_destroy(self->server);
}

void rig_stop(rig *self) {
    order(self, 3);
    rig_join(self);
}

/* ---- the client ---- */

int rig_connect(const rig *self) {
    const bool local = strncmp(self->address, "unix:", 5) == 0;
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)self->port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (local) {
        snprintf(path.sun_path, sizeof path.sun_path, "%s", self->address + 5);
        assert_int_equal(connect(fd, (struct sockaddr *)&path, sizeof path), 0);
    } else {
        assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    }
    return fd;
}

int rig_connect_to(const rig *self, const char *host) {
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char port[16];
    snprintf(port, sizeof port, "%d", self->port);
    assert_int_equal(getaddrinfo(host, port, &hints, &found), 0);
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) < 0) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

void rig_send(int fd, const char *text) {
    for (size_t left = strlen(text); left > 0;) {
        const ssize_t sent = send(fd, text, left, MSG_NOSIGNAL);
        if (sent < 0) return; /* the server may have said enough already */
        text += sent;
        left -= (size_t)sent;
    }
}

static bool readable(int fd) {
    struct pollfd watched = {.fd = fd, .events = POLLIN};
    return poll(&watched, 1, WAIT_MS) > 0;
}

static bool ends_in(const char *text, size_t length, const char *end) {
    const size_t n = strlen(end);
    return length >= n && memcmp(text + length - n, end, n) == 0;
}

char *rig_read(int fd, const char *end) {
    size_t length = 0, capacity = 4096;
    char *text = malloc(capacity + 1);
    for (;;) {
        if (length == capacity) text = realloc(text, (capacity *= 2) + 1);
        if (!readable(fd)) fail_msg("nothing more came after: %.*s", (int)length, text);
        /* With an end to look for, byte by byte: what follows it is the next answer's. */
        const ssize_t n = recv(fd, text + length, end ? 1 : capacity - length, 0);
        if (n <= 0) break;
        length += (size_t)n;
        if (end && ends_in(text, length, end)) break;
    }
    text[length] = 0;
    return text;
}

char *rig_answer(int fd) {
    char *head = rig_read(fd, "\r\n\r\n");
    const char *at = strstr(head, "Content-Length: ");
    const size_t start = strlen(head), length = at ? (size_t)atol(at + 16) : 0;
    head = realloc(head, start + length + 1);
    for (size_t done = 0; done < length;) {
        if (!readable(fd)) fail_msg("the body stops after %zu bytes", done);
        const ssize_t n = recv(fd, head + start + done, length - done, 0);
        if (n <= 0) fail_msg("the body ends after %zu of %zu bytes", done, length);
        done += (size_t)n;
    }
    head[start + length] = 0;
    return head;
}

char *rig_ask(const rig *self, const char *text) {
    const int fd = rig_connect(self);
    rig_send(fd, text);
    char *answer_text = rig_read(fd, NULL);
    close(fd);
    return answer_text;
}

bool rig_is_closed(int fd) {
    char byte;
    return readable(fd) && recv(fd, &byte, 1, 0) <= 0;
}

void rig_wait(atomic_int *counter, int value) {
    for (int waited = 0; atomic_load(counter) != value; waited++) {
        if (waited >= WAIT_MS) fail_msg("waited for %d, still %d", value, atomic_load(counter));
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}
