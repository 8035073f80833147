/* Reading with a bound, and one line for whatever is wrong with what was read. */
#include "cli/input.h"

#include <errno.h>
#include <fcntl.h>
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
        if (buffer->length == buffer->capacity) {
            alea_status status = grow(buffer, path);
            if (status < 0) return status;
        }
        const ssize_t n =
            read(fd, buffer->data + buffer->length, buffer->capacity - buffer->length);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            alea__complain("cannot read %s: %s", shown_name(path), strerror(errno));
            return ALEA_EIO;
        }
        if (n == 0) return ALEA_OK;
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
            alea__complain("%s is not UTF-8 at byte %zu", shown_name(path), valid);
            status = ALEA_EFORMAT;
        }
    }
    if (status < 0) alea__buffer_free(buffer);
    return status;
}

/* getline has no bound, and where memory ends it looks as if the file did. */
alea_status alea__read_line(FILE *file, const char *name, alea_input_buffer *line) {
    line->length = 0;
    if (alea__interrupted) return interrupted();
    for (int byte; (byte = getc_unlocked(file)) != EOF;) {
        if (line->length == line->capacity) {
            const alea_status status = alea__interrupted ? interrupted() : grow(line, name);
            if (status < 0) return status;
        }
        line->data[line->length++] = (uint8_t)byte;
        if (byte == '\n') return ALEA_OK;
    }
    if (alea__interrupted) return interrupted();
    if (!ferror(file)) return ALEA_OK;
    alea__complain("cannot read %s: %s", name, strerror(errno));
    return ALEA_EIO;
}
