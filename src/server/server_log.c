/* A line is built in memory and handed to the kernel in one write. */
#include "server/server_log.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"

#define LINE_BYTES_MAX 3072 /* below PIPE_BUF: a pipe that can be written takes it whole */

static _Atomic int most_level = ALEA_LOG_INFO;
static atomic_uint_fast64_t lost_lines;

typedef struct log_line {
    alea_json_writer writer;
    char bytes[LINE_BYTES_MAX];
} log_line;

static log_line loop_line; /* the loop's; alea__log brings its own */

static alea_status refuse_more(void *user, const char *data, size_t length) {
    (void)user;
    (void)data;
    (void)length;
    return ALEA_ELIMIT;
}

static const char *name_of(alea_log_level level) {
    switch (level) {
    case ALEA_LOG_ERROR: return "error";
    case ALEA_LOG_WARNING: return "warning";
    case ALEA_LOG_INFO: return "info";
    default: return "debug";
    }
}

static void begin_line(log_line *line, alea_log_level level, const char *event) {
    struct timespec now;
    struct tm tm;
    char text[80], stamp[96];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    text[strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm)] = 0;
    snprintf(stamp, sizeof stamp, "%s.%03ldZ", text, now.tv_nsec / 1000000);
    alea_json_writer *writer = &line->writer;
    alea__json_write_to_flush(writer, line->bytes, sizeof line->bytes - 1, refuse_more, NULL);
    alea__json_begin_object(writer);
    alea__json_key(writer, "time");
    alea__json_cstring(writer, stamp);
    alea__json_key(writer, "level");
    alea__json_cstring(writer, name_of(level));
    alea__json_key(writer, "event");
    alea__json_cstring(writer, event);
}

static void end_line(log_line *line) {
    struct pollfd watched = {.fd = STDERR_FILENO, .events = POLLOUT};
    alea_json_writer *writer = &line->writer;
    alea__json_end_object(writer);
    bool sent = writer->status >= 0 && writer->length < sizeof line->bytes;
    if (sent) {
        const size_t length = writer->length;
        line->bytes[length] = '\n';
        sent = poll(&watched, 1, 0) == 1 && (watched.revents & POLLOUT) &&
               write(STDERR_FILENO, line->bytes, length + 1) == (ssize_t)(length + 1);
    }
    if (!sent) atomic_fetch_add(&lost_lines, 1);
}

alea_json_writer *alea__server_log_begin(alea_log_level level, const char *event) {
    if ((int)level > atomic_load(&most_level)) return NULL;
    begin_line(&loop_line, level, event);
    return &loop_line.writer;
}

void alea__server_log_end(alea_json_writer *writer) {
    if (writer) end_line(&loop_line);
}

static void sink(void *user, alea_log_level level, const char *message) {
    (void)user;
    log_line line;
    const alea_bytes text = {(const uint8_t *)message, strlen(message)};
    begin_line(&line, level, "message");
    alea__json_key(&line.writer, "text");
    alea__json_string(&line.writer, (alea_bytes){text.data, alea__utf8_valid_length(text)});
    end_line(&line);
}

void alea__server_log_level(alea_log_level most) {
    atomic_store(&most_level, (int)most);
    alea__log_to(sink, NULL, most);
}

uint64_t alea__server_log_lost(void) {
    return atomic_load(&lost_lines);
}
