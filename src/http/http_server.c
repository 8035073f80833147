/* The loop, where it listens, and how it stops. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "http/http_parts.h"

#define BACKLOG 4096 /* the kernel cuts it to net.core.somaxconn */
#define RETRY_MS 100
#define DESCRIPTORS_SPARE 64 /* for the model, logs and listeners */

static void fill_int(int32_t *field, int32_t standard) {
    if (*field <= 0) *field = standard;
}

static void fill_size(size_t *field, size_t standard) {
    if (*field == 0) *field = standard;
}

/* As many descriptors as the hard limit gives; the connections fit into them. */
static int32_t descriptors_left(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return 1024 - DESCRIPTORS_SPARE;
    if (limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) < 0) getrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur > (rlim_t)INT32_MAX) return INT32_MAX;
    const int32_t most = (int32_t)limit.rlim_cur;
    return most > 2 * DESCRIPTORS_SPARE ? most - DESCRIPTORS_SPARE : most / 2 + 1;
}

static void fill_options(alea_http_options *options) {
    if (!options->host && !options->unix_path) options->host = "127.0.0.1";
    fill_size(&options->header_bytes, 16 << 10);
    fill_size(&options->body_bytes, 64 << 20);
    fill_size(&options->body_bytes_total, (size_t)512 << 20);
    fill_size(&options->queue_bytes, 32 << 10);
    fill_int(&options->connections, 16384);
    fill_int(&options->header_ms, 10000);
    fill_int(&options->body_ms, 30000);
    fill_int(&options->idle_ms, 75000);
    fill_int(&options->stall_ms, 30000);
    fill_int(&options->ping_ms, 15000);
    fill_int(&options->linger_ms, 2000);
    fill_int(&options->grace_ms, 300);
    const int32_t most = descriptors_left();
    if (options->connections > most) options->connections = most;
}

static alea_status copy_strings(alea_http_server *server) {
    const char **fields[] = {&server->options.host, &server->options.unix_path,
                             &server->options.cors_origin};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!*fields[i]) continue;
        server->strings[i] = strdup(*fields[i]);
        if (!server->strings[i]) return ALEA_ENOMEM;
        *fields[i] = server->strings[i];
    }
    return ALEA_OK;
}

/* ---- listening ---- */

static void on_connection(uv_stream_t *listener, int status) {
    alea_http_server *server = listener->data;
    if (status < 0)
        alea__log(ALEA_LOG_WARNING, "a connection was not taken: %s", uv_strerror(status));
    else
        alea__http_accept(server, listener);
}

static void on_retry(uv_timer_t *timer) {
    alea_http_server *server = timer->data;
    for (int i = 0; i < server->n_listeners; i++)
        if (!uv_is_closing(&server->listeners[i].handle))
            alea__http_accept(server, &server->listeners[i].stream);
}

void alea__http_accept_later(alea_http_server *server) {
    uv_timer_start(&server->retry, on_retry, RETRY_MS, 0);
}

/* Of the first listener, which has the port that the others take too. */
static int name_address(alea_http_server *server, const uv_tcp_t *tcp, char *port, size_t bytes) {
    struct sockaddr_storage address = {0};
    int length = sizeof address;
    const int status = uv_tcp_getsockname(tcp, (struct sockaddr *)&address, &length);
    if (status < 0) return status;
    char host[80];
    getnameinfo((struct sockaddr *)&address, (socklen_t)length, host, sizeof host, port,
                (socklen_t)bytes, NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(server->address, sizeof server->address,
             address.ss_family == AF_INET6 ? "http://[%s]:%s" : "http://%s:%s", host, port);
    return 0;
}

/* `among`: other addresses are listened on too, so an IPv6 one must leave them IPv4's. */
static int listen_address(alea_http_server *server, const struct addrinfo *at, bool among) {
    uv_tcp_t *tcp = &server->listeners[server->n_listeners].tcp;
    uv_tcp_init(&server->loop, tcp);
    tcp->data = server;
    const bool v6_alone = among && at->ai_family == AF_INET6;
    int bound = uv_tcp_bind(tcp, at->ai_addr, v6_alone ? UV_TCP_IPV6ONLY : 0);
    if (bound == 0) bound = uv_listen((uv_stream_t *)tcp, BACKLOG, on_connection);
    server->n_listeners++;
    return bound;
}

static bool is_repeated(const struct addrinfo *first, const struct addrinfo *at) {
    for (; first != at; first = first->ai_next)
        if (first->ai_addrlen == at->ai_addrlen &&
            memcmp(first->ai_addr, at->ai_addr, at->ai_addrlen) == 0)
            return true;
    return false;
}

/* A family that this machine has not is none of the host's. */
static bool is_absent(int bound) {
    return bound == UV_EAFNOSUPPORT || bound == UV_EADDRNOTAVAIL;
}

/* "localhost" has two addresses, and clients try either first. */
static int listen_all(alea_http_server *server, const struct addrinfo *found, char *port,
                      size_t bytes) {
    int failure = UV_EADDRNOTAVAIL;
    for (const struct addrinfo *at = found; at; at = at->ai_next) {
        if (is_repeated(found, at) || server->n_listeners == ALEA_HTTP_LISTENERS_MAX - 1) continue;
        /* Both families have the port in the same place. */
        if (server->address[0])
            ((struct sockaddr_in *)at->ai_addr)->sin_port = htons((uint16_t)atoi(port));
        int bound = listen_address(server, at, found->ai_next != NULL);
        if (bound == 0 && !server->address[0])
            bound =
                name_address(server, &server->listeners[server->n_listeners - 1].tcp, port, bytes);
        if (bound == 0) continue;
        uv_close(&server->listeners[server->n_listeners - 1].handle, NULL);
        if (!is_absent(bound)) return bound;
        failure = bound;
    }
    return server->address[0] ? 0 : failure;
}

static alea_status listen_tcp(alea_http_server *server, alea_error *error) {
    const alea_http_options *options = &server->options;
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
                                   .ai_socktype = SOCK_STREAM};
    char port[16];
    snprintf(port, sizeof port, "%d", options->port);
    struct addrinfo *found = NULL;
    const int looked_up = getaddrinfo(options->host, port, &hints, &found);
    if (looked_up != 0)
        return alea_error_set(error, ALEA_EINVAL, "the host '%.100s' is no address: %s",
                              options->host, gai_strerror(looked_up));
    const int bound = listen_all(server, found, port, sizeof port);
    freeaddrinfo(found);
    if (bound == 0) return ALEA_OK;
    return alea_error_set(error, ALEA_EIO, "cannot listen on %.100s port %d: %s%s", options->host,
                          options->port, uv_strerror(bound),
                          bound == UV_EADDRINUSE ? "; choose another port" : "");
}

/* A socket that nobody listens on is what a killed server left behind. */
static void remove_dead_socket(const char *path) {
    struct stat file;
    if (stat(path, &file) < 0 || !S_ISSOCK(file.st_mode)) return;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) return;
    memcpy(address.sun_path, path, strlen(path));
    const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe < 0) return;
    if (connect(probe, (const struct sockaddr *)&address, sizeof address) < 0 &&
        errno == ECONNREFUSED)
        unlink(path);
    close(probe);
}

static bool has_folder(const char *path) {
    char folder[sizeof(struct sockaddr_un){0}.sun_path];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash || slash == folder) return true;
    *slash = '\0';
    return access(folder, F_OK) == 0 || errno != ENOENT;
}

static alea_status listen_unix(alea_http_server *server, alea_error *error) {
    const char *path = server->options.unix_path;
    /* libuv would cut a longer one without a word. */
    if (strlen(path) >= sizeof(struct sockaddr_un){0}.sun_path)
        return alea_error_set(error, ALEA_EINVAL,
                              "the path of the unix socket is %zu bytes long, "
                              "at most %zu fit",
                              strlen(path), sizeof(struct sockaddr_un){0}.sun_path - 1);
    remove_dead_socket(path);
    uv_pipe_t *pipe = &server->listeners[server->n_listeners].pipe;
    uv_pipe_init(&server->loop, pipe, 0);
    pipe->data = server;
    server->n_listeners++;
    int bound = uv_pipe_bind(pipe, path);
    /* libuv says EACCES for a folder that is missing too. */
    if (bound == UV_EACCES && !has_folder(path)) bound = UV_ENOENT;
    if (bound == 0) bound = uv_listen((uv_stream_t *)pipe, BACKLOG, on_connection);
    if (bound < 0)
        return alea_error_set(error, ALEA_EIO, "cannot listen on %.108s: %s", path,
                              uv_strerror(bound));
    if (!server->address[0]) snprintf(server->address, sizeof server->address, "unix:%s", path);
    return ALEA_OK;
}

/* ---- the loop ---- */

static void close_listeners(alea_http_server *server) {
    for (int i = 0; i < server->n_listeners; i++)
        if (!uv_is_closing(&server->listeners[i].handle))
            uv_close(&server->listeners[i].handle, NULL);
}

static void close_if_open(uv_handle_t *handle, void *user) {
    (void)user;
    if (!uv_is_closing(handle)) uv_close(handle, NULL);
}

/* With the last handle the loop ends. */
void alea__http_left(alea_http_server *server) {
    server->stats.open--;
    if (server->grace_over && server->stats.open == 0) uv_walk(&server->loop, close_if_open, NULL);
}

static void end_grace(alea_http_server *server) {
    if (server->grace_over) return;
    server->grace_over = true;
    close_listeners(server);
    for (alea_http_exchange *at = server->all, *next; at; at = next) {
        next = at->next;
        if (at->phase == ALEA_HTTP_IDLE || server->stopping) alea__http_close(at);
    }
    if (server->stats.open == 0) uv_walk(&server->loop, close_if_open, NULL);
}

static void cut_all(alea_http_server *server) {
    for (alea_http_exchange *at = server->all, *next; at; at = next) {
        next = at->next;
        alea__http_close(at);
    }
}

/* Once each: what a connection has to do after that, more to send or its next request, waits until
 * the loop has looked at everybody. A client that takes all it gets would keep the loop for itself.
 */
static void settle_marked(alea_http_server *server) {
    if (server->stopping && !server->stopped) {
        server->stopped = true;
        end_grace(server);
        cut_all(server);
    }
    alea_http_exchange *connection = server->marked;
    server->marked = NULL;
    while (connection) {
        alea_http_exchange *next = connection->next_marked;
        connection->marked = false;
        alea__http_settle(connection);
        connection = next;
    }
    if (server->marked || (server->stopping && !server->stopped)) uv_async_send(&server->wake);
}

static void before_sleep(uv_prepare_t *prepare) {
    settle_marked(prepare->data);
}

static void after_sleep(uv_check_t *check) {
    settle_marked(check->data);
}

static void on_wake(uv_async_t *async) {
    alea_http_server *server = async->data;
    if (server->handlers.wake) server->handlers.wake(server->handlers.user);
}

static void on_alarm(uv_timer_t *timer) {
    alea_http_server *server = timer->data;
    if (server->handlers.alarm) server->handlers.alarm(server->handlers.user);
}

static void on_grace(uv_timer_t *timer) {
    end_grace(timer->data);
}

static void on_signal(uv_signal_t *signal, int number) {
    alea_http_server *server = signal->data;
    server->handlers.signal(server->handlers.user, number);
}

static int prepare_loop(alea_http_server *server) {
    uv_loop_t *loop = &server->loop;
    int status = uv_loop_init(loop);
    if (status < 0) return status;
    server->loop_ready = true;
    server->before_sleep.data = server->after_sleep.data = server;
    server->wake.data = server->alarm.data = server;
    server->grace.data = server->retry.data = server;
    uv_prepare_init(loop, &server->before_sleep);
    uv_check_init(loop, &server->after_sleep);
    uv_timer_init(loop, &server->alarm);
    uv_timer_init(loop, &server->grace);
    uv_timer_init(loop, &server->retry);
    status = uv_async_init(loop, &server->wake, on_wake);
    if (status < 0) return status;
    uv_prepare_start(&server->before_sleep, before_sleep);
    uv_check_start(&server->after_sleep, after_sleep);
    static const int numbers[] = {SIGTERM, SIGINT};
    for (int i = 0; server->handlers.signal && i < 2; i++) {
        status = uv_signal_init(loop, &server->signals[i]);
        server->signals[i].data = server;
        if (status == 0) status = uv_signal_start(&server->signals[i], on_signal, numbers[i]);
        if (status < 0) return status;
    }
    return 0;
}

static alea_status begin(alea_http_server *server, alea_error *error) {
    alea_status status = copy_strings(server);
    if (status < 0) return alea_error_set(error, status, "out of memory");
    const int prepared = prepare_loop(server);
    if (prepared < 0)
        return alea_error_set(error, prepared == UV_ENOMEM ? ALEA_ENOMEM : ALEA_EIO,
                              "cannot make an event loop: %s", uv_strerror(prepared));
    if (server->options.host) status = listen_tcp(server, error);
    if (status >= 0 && server->options.unix_path) status = listen_unix(server, error);
    return status;
}

alea_status alea__http_create(const alea_http_options *options, const alea_http_handlers *handlers,
                              alea_http_server **server, alea_error *error) {
    alea_http_server *made = calloc(1, sizeof *made);
    if (!made) return alea_error_set(error, ALEA_ENOMEM, "out of memory");
    signal(SIGPIPE, SIG_IGN); /* libuv writes as if it were */
    made->options = *options;
    made->handlers = *handlers;
    fill_options(&made->options);
    const alea_status status = begin(made, error);
    if (status < 0) {
        alea__http_destroy(made);
        return status;
    }
    *server = made;
    return ALEA_OK;
}

void alea__http_destroy(alea_http_server *server) {
    if (!server) return;
    if (server->loop_ready) {
        server->stopping = server->stopped = true;
        end_grace(server);
        cut_all(server);
        uv_walk(&server->loop, close_if_open, NULL);
        uv_run(&server->loop, UV_RUN_DEFAULT);
        uv_loop_close(&server->loop);
    }
    for (size_t i = 0; i < sizeof server->strings / sizeof *server->strings; i++)
        free(server->strings[i]);
    free(server);
}

void alea__http_run(alea_http_server *server) {
    uv_run(&server->loop, UV_RUN_DEFAULT);
}

void alea__http_drain(alea_http_server *server) {
    if (server->draining) return;
    server->draining = true;
    if (server->stats.open == 0)
        end_grace(server);
    else
        uv_timer_start(&server->grace, on_grace, (uint64_t)server->options.grace_ms, 0);
}

void alea__http_stop(alea_http_server *server) {
    server->draining = server->stopping = true;
}

void alea__http_wake(alea_http_server *server) {
    uv_async_send(&server->wake);
}

void alea__http_alarm(alea_http_server *server, int32_t ms) {
    uv_update_time(&server->loop);
    uv_timer_start(&server->alarm, on_alarm, ms > 0 ? (uint64_t)ms : 0, 0);
}

const char *alea__http_address(const alea_http_server *server) {
    return server->address;
}

void alea__http_stats_read(const alea_http_server *server, alea_http_stats *stats) {
    *stats = server->stats;
}

const char *alea__http_date(alea_http_server *server) {
    const time_t now = time(NULL);
    if (now == server->date_s && server->date[0]) return server->date;
    /* Not strftime: the names of days and months are English here in every locale. */
    static const char days[] = "SunMonTueWedThuFriSat";
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm tm;
    gmtime_r(&now, &tm);
    snprintf(server->date, sizeof server->date, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT",
             days + 3 * tm.tm_wday, tm.tm_mday % 100, months + 3 * tm.tm_mon,
             (tm.tm_year + 1900) % 10000, tm.tm_hour % 100, tm.tm_min % 100, tm.tm_sec % 100);
    server->date_s = now;
    return server->date;
}
