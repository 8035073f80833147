/* Reading with a bound, and one line for whatever is wrong with what was read. */
#include "cli/input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/cli.h"

void alea__buffer_free(alea_input_buffer *buffer) {
    free(buffer->data);
    *buffer = (alea_input_buffer){0};
}

static const char *shown_name(const char *path) {
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

static alea_status grow(alea_input_buffer *buffer, const char *path) {
    if (buffer->capacity >= ALEA_INPUT_BYTES_MAX) {
        alea__complain("%s is larger than 1 GiB; cut it into several texts", shown_name(path));
        return ALEA_ELIMIT;
    }
    const size_t capacity = buffer->capacity ? buffer->capacity * 2 : (size_t)1 << 16;
    uint8_t *grown = realloc(buffer->data, capacity);
    if (!grown) {
        alea__complain("out of memory for %s", shown_name(path));
        return ALEA_ENOMEM;
    }
    buffer->data = grown;
    buffer->capacity = capacity;
    return ALEA_OK;
}

static alea_status interrupted(void) {
    alea__complain("interrupted");
    return ALEA_ECANCELLED;
}

static alea_status read_all(int fd, const char *path, alea_input_buffer *buffer) {
    for (;;) {
        if (alea__interrupted) return interrupted();
        /* A text that fills the last buffer is no longer than that if nothing follows. */
        const bool is_full = buffer->length == ALEA_INPUT_BYTES_MAX;
        if (buffer->length == buffer->capacity && !is_full) {
            alea_status status = grow(buffer, path);
            if (status < 0) return status;
        }
        uint8_t beyond;
        const ssize_t n =
            is_full ? read(fd, &beyond, 1)
                    : read(fd, buffer->data + buffer->length, buffer->capacity - buffer->length);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            alea__complain("cannot read %s: %s", shown_name(path), strerror(errno));
            return ALEA_EIO;
        }
        if (n == 0) return ALEA_OK;
        if (is_full) return grow(buffer, path);
        buffer->length += (size_t)n;
    }
}

alea_status alea__read_text(const char *path, alea_input_buffer *buffer) {
    *buffer = (alea_input_buffer){0};
    const bool standard = strcmp(path, "-") == 0;
    const int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        alea__complain("cannot open %s: %s", path, strerror(errno));
        return ALEA_EIO;
    }
    alea_status status = read_all(fd, path, buffer);
    if (!standard) close(fd);
    if (status >= 0) {
        const alea_bytes text = {buffer->data, buffer->length};
        const size_t valid = alea__utf8_valid_length(text);
        if (valid < text.length) {
            alea__complain("%s is not UTF-8 at byte %zu; convert it to UTF-8", shown_name(path),
                           valid);
            status = ALEA_EFORMAT;
        }
    }
    if (status < 0) alea__buffer_free(buffer);
    return status;
}

alea_status alea__read_string(const char *path, char **text) {
    alea_input_buffer buffer;
    const alea_status status = alea__read_text(path, &buffer);
    if (status < 0) return status;
    const uint8_t *nul = buffer.length > 0 ? memchr(buffer.data, 0, buffer.length) : NULL;
    char *copy = nul ? NULL : malloc(buffer.length + 1);
    if (nul)
        alea__complain("%s is no text: byte %zu is NUL", shown_name(path),
                       (size_t)(nul - buffer.data));
    else if (!copy)
        alea__complain("out of memory for %s", shown_name(path));
    if (copy) {
        if (buffer.length > 0) memcpy(copy, buffer.data, buffer.length);
        copy[buffer.length] = 0;
        *text = copy;
    }
    alea__buffer_free(&buffer);
    return copy ? ALEA_OK : nul ? ALEA_EFORMAT : ALEA_ENOMEM;
}

bool alea__lines_would_wait(const alea_lines *lines) {
    struct pollfd input = {.fd = lines->fd, .events = POLLIN};
    return lines->at == lines->end && poll(&input, 1, 0) == 0;
}

/* More bytes; none at the end. */
static alea_status fill(alea_lines *lines, const char *name) {
    for (;;) {
        if (alea__interrupted) return interrupted();
        const ssize_t n = read(lines->fd, lines->bytes, sizeof lines->bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            alea__complain("cannot read %s: %s", name, strerror(errno));
            return ALEA_EIO;
        }
        lines->at = 0;
        lines->end = (size_t)n;
        return ALEA_OK;
    }
}

static alea_status append(alea_input_buffer *line, const uint8_t *bytes, size_t n,
                          const char *name) {
    while (line->capacity - line->length < n) {
        const alea_status status = alea__interrupted ? interrupted() : grow(line, name);
        if (status < 0) return status;
    }
    memcpy(line->data + line->length, bytes, n);
    line->length += n;
    return ALEA_OK;
}

/* getline has no bound, and where memory ends it looks as if the file did. */
alea_status alea__read_line(alea_lines *lines, const char *name, alea_input_buffer *line) {
    line->length = 0;
    if (alea__interrupted) return interrupted();
    for (;;) {
        alea_status status = lines->at == lines->end ? fill(lines, name) : ALEA_OK;
        if (status < 0 || lines->at == lines->end) return status;
        const uint8_t *start = lines->bytes + lines->at;
        const uint8_t *newline = memchr(start, '\n', lines->end - lines->at);
        const size_t n = newline ? (size_t)(newline - start) + 1 : lines->end - lines->at;
        status = append(line, start, n, name);
        if (status < 0) return status;
        lines->at += n;
        if (newline) return ALEA_OK;
    }
}
