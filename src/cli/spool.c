/* Memory first, then an unlinked temporary file: nothing is left behind however the run ends. */
#include "cli/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

#define SPOOL_FIRST_BYTES ((size_t)1 << 16)

static const char *directory(void) {
    const char *named = getenv("TMPDIR");
    return named && *named ? named : "/tmp";
}

static alea_status fail(alea_spool *spool) {
    if (!spool->complained)
        alea__complain("cannot keep a long line in %s: %s; set TMPDIR to a directory with room",
                       directory(), strerror(errno));
    spool->complained = true;
    return ALEA_EIO;
}

void alea__spool_init(alea_spool *spool) {
    *spool = (alea_spool){.fd = -1};
}

static int open_nameless(void) {
    char path[4096];
    const int length = snprintf(path, sizeof path, "%s/alea-XXXXXX", directory());
    if (length < 0 || (size_t)length >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    const int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) unlink(path);
    return fd;
}

static alea_status move_to_file(alea_spool *spool) {
    if (spool->fd < 0) spool->fd = open_nameless();
    if (spool->fd < 0) return fail(spool);
    for (size_t at = 0; at < spool->used;) {
        const ssize_t n = write(spool->fd, spool->memory + at, spool->used - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(spool);
        at += (size_t)n;
    }
    spool->file_bytes += spool->used;
    spool->used = 0;
    return ALEA_OK;
}

static alea_status make_room(alea_spool *spool) {
    if (spool->capacity == ALEA_SPOOL_MEMORY_BYTES) return move_to_file(spool);
    const size_t capacity = spool->capacity ? spool->capacity * 2 : SPOOL_FIRST_BYTES;
    uint8_t *grown = realloc(spool->memory, capacity);
    if (!grown) {
        if (!spool->complained) alea__complain("out of memory");
        spool->complained = true;
        return ALEA_ENOMEM;
    }
    spool->memory = grown;
    spool->capacity = capacity;
    return ALEA_OK;
}

alea_status alea__spool_write(alea_spool *spool, const void *data, size_t bytes) {
    const uint8_t *from = data;
    while (bytes > 0) {
        if (spool->used == spool->capacity) {
            alea_status status = make_room(spool);
            if (status < 0) return status;
        }
        const size_t room = spool->capacity - spool->used;
        const size_t part = bytes < room ? bytes : room;
        memcpy(spool->memory + spool->used, from, part);
        spool->used += part;
        from += part;
        bytes -= part;
    }
    return ALEA_OK;
}

static alea_status copy_file(alea_spool *spool, alea_output *output) {
    if (lseek(spool->fd, 0, SEEK_SET) < 0) return fail(spool);
    uint8_t part[1 << 14];
    for (uint64_t left = spool->file_bytes; left > 0;) {
        const size_t want = left < sizeof part ? (size_t)left : sizeof part;
        const ssize_t n = read(spool->fd, part, want);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = EIO;
        if (n <= 0) return fail(spool);
        alea_status status = alea__output_write(output, part, (size_t)n);
        if (status < 0) return status;
        left -= (uint64_t)n;
    }
    return ALEA_OK;
}

alea_status alea__spool_drain(alea_spool *spool, alea_output *output) {
    alea_status status = ALEA_OK;
    if (spool->file_bytes) status = copy_file(spool, output);
    if (status >= 0) status = alea__output_write(output, spool->memory, spool->used);
    alea__spool_clear(spool);
    return status;
}

void alea__spool_clear(alea_spool *spool) {
    spool->used = 0;
    spool->file_bytes = 0;
    if (spool->fd >= 0) close(spool->fd);
    spool->fd = -1;
}

void alea__spool_free(alea_spool *spool) {
    alea__spool_clear(spool);
    free(spool->memory);
    alea__spool_init(spool);
}
