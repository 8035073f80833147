/* Buffered writing with one report of the first failure, and the rename at the end. */
#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

static alea_status fail(alea_output *output, const char *doing) {
    const int reason = errno;
    if (!output->failed) {
        const char *path = output->path ? output->path : "standard output";
        if (reason == EPIPE)
            alea__complain("%s was closed by its reader", path);
        else
            alea__complain("cannot %s %s: %s", doing, path, strerror(reason));
    }
    output->failed = true;
    return ALEA_EIO;
}

/* Without the file, if there is one. */
static void drop_temporary(alea_output *output) {
    if (output->fd >= 0) {
        close(output->fd);
        unlink(output->temporary);
    }
    free(output->temporary);
    output->temporary = NULL;
    output->fd = -1;
}

static alea_status open_temporary(alea_output *output) {
    const size_t length = strlen(output->path) + sizeof ".XXXXXX";
    output->temporary = malloc(length);
    if (!output->temporary) return fail(output, "create");
    snprintf(output->temporary, length, "%s.XXXXXX", output->path);
    output->fd = mkostemp(output->temporary, O_CLOEXEC);
    const mode_t mask = umask(0); /* mkostemp makes it private; give it the usual rights */
    umask(mask);
    if (output->fd >= 0 && fchmod(output->fd, 0666 & ~mask) == 0) return ALEA_OK;
    const alea_status status = fail(output, "create");
    drop_temporary(output);
    return status;
}

alea_status alea__output_open(alea_output *output, const char *path) {
    *output = (alea_output){.fd = STDOUT_FILENO, .path = path};
    if (!path) return ALEA_OK;
    struct stat facts;
    const bool exists = stat(path, &facts) == 0;
    if (!exists || S_ISREG(facts.st_mode)) return open_temporary(output);
    output->fd = open(path, O_WRONLY | O_CLOEXEC); /* a directory is refused here */
    return output->fd < 0 ? fail(output, "open") : ALEA_OK;
}

alea_status alea__output_flush(alea_output *output) {
    if (output->failed) return ALEA_EIO;
    for (size_t at = 0; at < output->used;) {
        const ssize_t n = write(output->fd, output->buffer + at, output->used - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(output, "write to");
        at += (size_t)n;
    }
    output->used = 0;
    return ALEA_OK;
}

alea_status alea__output_write(alea_output *output, const void *data, size_t bytes) {
    if (output->failed) return ALEA_EIO;
    const char *from = data;
    while (bytes > 0) {
        if (output->used == sizeof output->buffer) {
            alea_status status = alea__output_flush(output);
            if (status < 0) return status;
        }
        const size_t room = sizeof output->buffer - output->used;
        const size_t part = bytes < room ? bytes : room;
        memcpy(output->buffer + output->used, from, part);
        output->used += part;
        from += part;
        bytes -= part;
    }
    return ALEA_OK;
}

alea_status alea__output_close(alea_output *output, bool keep) {
    alea_status status = output->path && !keep ? ALEA_OK : alea__output_flush(output);
    if (!output->path || output->fd < 0) return status;
    if (close(output->fd) < 0 && status >= 0) status = fail(output, "write to");
    if (!output->temporary) return status;
    if (keep && !output->failed) {
        if (rename(output->temporary, output->path) < 0) status = fail(output, "create");
    }
    if (!keep || output->failed) unlink(output->temporary);
    free(output->temporary);
    output->temporary = NULL;
    return output->failed ? ALEA_EIO : status;
}
