/*
 * A bump arena: memory that lives as long as one request and is given back as a whole. Built with
 * AddressSanitizer it poisons what is not handed out, with a gap between neighbours.
 */
#ifndef ALEA_BASE_ARENA_H
#define ALEA_BASE_ARENA_H

#include "alea/base.h"

#define ALEA_ARENA_ALIGNMENT 64

typedef struct alea_arena_chunk alea_arena_chunk;

typedef struct alea_arena {
    alea_arena_chunk *first;   /* kept over a reset */
    alea_arena_chunk *current; /* the one that is being filled */
    size_t chunk_bytes;
} alea_arena;

/* Takes no memory yet. chunk_bytes: the usual need of one request; larger ones still work. */
void alea__arena_init(alea_arena *arena, size_t chunk_bytes);

/* Aligned to 64 bytes, not cleared; 0 bytes give a unique pointer. NULL: out of memory. */
void *alea__arena_alloc(alea_arena *arena, size_t bytes) ALEA_MUST_USE;

/* Room for `count` elements of `element_bytes`; NULL also when the product overflows. */
void *alea__arena_array(alea_arena *arena, size_t count, size_t element_bytes) ALEA_MUST_USE;

/* A copy of the bytes with a NUL behind them; NULL: out of memory. */
char *alea__arena_copy(alea_arena *arena, alea_bytes bytes) ALEA_MUST_USE;

/* Bytes that it has taken. */
size_t alea__arena_bytes(const alea_arena *arena);

/* Forget every allocation; the first chunk stays for the next request. */
void alea__arena_reset(alea_arena *arena);

/* Give everything back; the arena may be used again. */
void alea__arena_free(alea_arena *arena);

#endif
