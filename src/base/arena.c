/* Chunks of the arena form a list in order of age; only the last one is being filled. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/size.h"

#if defined(__SANITIZE_ADDRESS__)
#define ALEA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ALEA_ASAN 1
#endif
#endif

#ifdef ALEA_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(data, bytes) ASAN_POISON_MEMORY_REGION(data, bytes)
#define UNPOISON(data, bytes) ASAN_UNPOISON_MEMORY_REGION(data, bytes)
enum { GAP_BYTES = ALEA_ARENA_ALIGNMENT };
#else
#define POISON(data, bytes) ((void)(data), (void)(bytes))
#define UNPOISON(data, bytes) ((void)(data), (void)(bytes))
enum { GAP_BYTES = 0 };
#endif

struct alea_arena_chunk {
    alea_arena_chunk *next;
    size_t used_bytes;
    size_t capacity_bytes;
    _Alignas(ALEA_ARENA_ALIGNMENT) unsigned char data[];
};

void alea__arena_init(alea_arena *arena, size_t chunk_bytes) {
    *arena = (alea_arena){.chunk_bytes = chunk_bytes};
}

static alea_arena_chunk *chunk_create(size_t capacity_bytes) {
    size_t total;
    if (!alea__size_align(capacity_bytes, ALEA_ARENA_ALIGNMENT, &capacity_bytes) ||
        !alea__size_add(capacity_bytes, sizeof(alea_arena_chunk), &total)) {
        return NULL;
    }
    alea_arena_chunk *chunk = aligned_alloc(ALEA_ARENA_ALIGNMENT, total);
    if (!chunk) return NULL;
    *chunk = (alea_arena_chunk){.capacity_bytes = capacity_bytes};
    POISON(chunk->data, capacity_bytes);
    return chunk;
}

void *alea__arena_alloc(alea_arena *arena, size_t bytes) {
    size_t room;
    if (!alea__size_add(bytes ? bytes : 1, GAP_BYTES, &room) ||
        !alea__size_align(room, ALEA_ARENA_ALIGNMENT, &room)) {
        return NULL;
    }
    alea_arena_chunk *chunk = arena->current;
    if (!chunk || chunk->capacity_bytes - chunk->used_bytes < room) {
        alea_arena_chunk *fresh =
            chunk_create(room > arena->chunk_bytes ? room : arena->chunk_bytes);
        if (!fresh) return NULL;
        if (chunk) {
            chunk->next = fresh;
        } else {
            arena->first = fresh;
        }
        arena->current = chunk = fresh;
    }
    unsigned char *data = chunk->data + chunk->used_bytes;
    chunk->used_bytes += room;
    UNPOISON(data, bytes);
    return data;
}

void *alea__arena_array(alea_arena *arena, size_t count, size_t element_bytes) {
    size_t bytes;
    return alea__size_mul(count, element_bytes, &bytes) ? alea__arena_alloc(arena, bytes) : NULL;
}

char *alea__arena_copy(alea_arena *arena, alea_bytes bytes) {
    size_t room;
    if (!alea__size_add(bytes.length, 1, &room)) return NULL;
    char *copy = alea__arena_alloc(arena, room);
    if (!copy) return NULL;
    if (bytes.length) memcpy(copy, bytes.data, bytes.length);
    copy[bytes.length] = '\0';
    return copy;
}

size_t alea__arena_bytes(const alea_arena *arena) {
    size_t bytes = 0;
    for (const alea_arena_chunk *chunk = arena->first; chunk; chunk = chunk->next)
        bytes += sizeof *chunk + chunk->capacity_bytes;
    return bytes;
}

static void chunks_free(alea_arena_chunk *chunk) {
    while (chunk) {
        alea_arena_chunk *next = chunk->next;
        UNPOISON(chunk->data, chunk->capacity_bytes);
        free(chunk);
        chunk = next;
    }
}

void alea__arena_reset(alea_arena *arena) {
    alea_arena_chunk *first = arena->first;
    if (!first) return;
    chunks_free(first->next);
    first->next = NULL;
    first->used_bytes = 0;
    POISON(first->data, first->capacity_bytes);
    arena->current = first;
}

void alea__arena_free(alea_arena *arena) {
    chunks_free(arena->first);
    arena->first = arena->current = NULL;
}
