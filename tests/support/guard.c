/* One mapping per buffer: unreadable page, room, unreadable page. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/guard.h"

enum { PATTERN = 0xA5 };

static void give_up(const char *what) {
    fprintf(stderr, "guarded buffer: %s\n", what);
    abort();
}

test_guard test_guard_make(size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t room = (bytes + page - 1) / page * page;
    test_guard guard = {.bytes = bytes, .map_bytes = room + 2 * page};
    guard.map =
        mmap(NULL, guard.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (guard.map == MAP_FAILED) give_up("out of memory");
    uint8_t *start = (uint8_t *)guard.map + page;
    if (room && mprotect(start, room, PROT_READ | PROT_WRITE) != 0) give_up("out of memory");
    for (size_t i = 0; i < room; i++)
        start[i] = PATTERN;
    guard.data = start + room - bytes;
    return guard;
}

void test_guard_free(test_guard *guard) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uint8_t *data = guard->data;
    for (const uint8_t *byte = (uint8_t *)guard->map + page; byte < data; byte++) {
        if (*byte != PATTERN) give_up("something wrote before its start");
    }
    munmap(guard->map, guard->map_bytes);
    *guard = (test_guard){0};
}
