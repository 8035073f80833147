/* Buffered writing with one report of the first failure, and the rename at the end. */
#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINKS_MAX = 40 }; /* as the kernel counts */

/* For the signal handler; a program has one output. */
static _Atomic(const char *) unfinished;

void alea__output_abandon(void) {
    const char *path = atomic_load(&unfinished);
    if (path) unlink(path);
}

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

/* The file that `path` stands for, also where it is a link to a file that is not there yet. */
static char *follow(const char *path) {
    char *name = strdup(path);
    for (int i = 0; name && i < LINKS_MAX; i++) {
        char to[PATH_MAX], folder[PATH_MAX];
        const ssize_t n = readlink(name, to, sizeof to - 1);
        if (n < 0) return name; /* no link; what else is wrong shows when it is opened */
        to[n] = 0;
        snprintf(folder, sizeof folder, "%s", name);
        const bool relative = to[0] != '/';
        const size_t length = strlen(folder) + (size_t)n + 2;
        char *next = malloc(length);
        if (next)
            snprintf(next, length, "%s%s%s", relative ? dirname(folder) : "", relative ? "/" : "",
                     to);
        free(name);
        name = next;
    }
    if (name) errno = ELOOP;
    free(name);
    return NULL;
}

static void forget_temporary(alea_output *output) {
    atomic_store(&unfinished, NULL);
    free(output->temporary);
    free(output->target);
    output->temporary = output->target = NULL;
}

/* Without the file, if there is one. */
static void drop_temporary(alea_output *output) {
    if (output->fd >= 0) {
        close(output->fd);
        unlink(output->temporary);
    }
    forget_temporary(output);
    output->fd = -1;
}

/* The rights of the file that is replaced, or the usual ones: mkostemp made it private. */
static bool give_rights(int fd, const struct stat *older) {
    if (older) {
        (void)!fchown(fd, older->st_uid, older->st_gid); /* where that is ours to give */
        return fchmod(fd, older->st_mode & 0777) == 0;
    }
    const mode_t mask = umask(0);
    umask(mask);
    return fchmod(fd, 0666 & ~mask) == 0;
}

static alea_status open_temporary(alea_output *output, const struct stat *older) {
    output->target = follow(output->path);
    if (!output->target) return fail(output, "create");
    const size_t length = strlen(output->target) + sizeof ".XXXXXX";
    output->temporary = malloc(length);
    output->fd = -1;
    if (output->temporary) {
        snprintf(output->temporary, length, "%s.XXXXXX", output->target);
        output->fd = mkostemp(output->temporary, O_CLOEXEC);
    }
    if (output->fd >= 0) atomic_store(&unfinished, output->temporary);
    if (output->fd >= 0 && give_rights(output->fd, older)) return ALEA_OK;
    const alea_status status = fail(output, "create");
    drop_temporary(output);
    return status;
}

alea_status alea__output_open(alea_output *output, const char *path) {
    *output = (alea_output){.fd = STDOUT_FILENO, .path = path};
    if (!path) return ALEA_OK;
    struct stat facts;
    const bool exists = stat(path, &facts) == 0;
    if (!exists || S_ISREG(facts.st_mode)) return open_temporary(output, exists ? &facts : NULL);
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
        if (rename(output->temporary, output->target) < 0) status = fail(output, "create");
    }
    if (!keep || output->failed) unlink(output->temporary);
    forget_temporary(output);
    return output->failed ? ALEA_EIO : status;
}

alea_exit alea__output_finish(alea_output *output, alea_exit code) {
    const alea_status status = alea__output_close(output, code == ALEA_EXIT_OK);
    return code == ALEA_EXIT_OK && status < 0 ? ALEA_EXIT_OUTPUT : code;
}
