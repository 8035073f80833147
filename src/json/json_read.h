/*
 * Reading JSON that a stranger wrote. RFC 8259 to the letter, and stricter where its freedom hurts:
 * no duplicate keys, no integer beyond 64 bits, no number beyond double, no nesting beyond 64.
 * Every error says where: "line 3, column 7: …".
 *
 * The parser is yyjson; this is the one folder that knows it.
 */
#ifndef ALEA_JSON_JSON_READ_H
#define ALEA_JSON_JSON_READ_H

#include <stdbool.h>

#include "alea/base.h"

#define ALEA_JSON_READ_DEPTH_MAX 64

typedef struct alea_json_document alea_json_document;
typedef struct alea_json_value alea_json_value; /* lives as long as its document */

typedef enum alea_json_kind {
    ALEA_JSON_NULL,
    ALEA_JSON_BOOL,
    ALEA_JSON_INTEGER, /* written without point and exponent, within 64 bits */
    ALEA_JSON_REAL,
    ALEA_JSON_STRING,
    ALEA_JSON_ARRAY,
    ALEA_JSON_OBJECT
} alea_json_kind;

/*
 * Parse one whole document.
 *
 * Shape     —
 * Domain    any bytes; no more than bytes_max of them
 * Result    *document, to be freed by alea__json_free; the text is not needed any more
 * Exact     —
 * Errors    ALEA_ELIMIT (bytes, depth), ALEA_EFORMAT, ALEA_ENOMEM: *document untouched
 * Memory    about 14 times the text at most
 * Threads   reentrant
 */
alea_status alea__json_parse(alea_bytes text, size_t bytes_max, alea_json_document **document,
                             alea_error *error) ALEA_MUST_USE;

/* NULL is allowed. */
void alea__json_free(alea_json_document *document);

const alea_json_value *alea__json_root(const alea_json_document *document);
alea_json_kind alea__json_kind(const alea_json_value *value);

/* Items of an array or members of an object; 0 for anything else. */
size_t alea__json_size(const alea_json_value *value);

/* A member of an object; NULL: not there, or not an object. Looks at every member. */
const alea_json_value *alea__json_member(const alea_json_value *object, const char *name);

/* The same, with NULL for a member that is null as well: how optional fields are written. */
const alea_json_value *alea__json_given(const alea_json_value *object, const char *name);

/* Walks an array or an object: `for (alea_json_walk w = alea__json_walk(v); alea__json_next(&w);)`
 * then w.value, and in an object w.key. */
typedef struct alea_json_walk {
    const alea_json_value *value;
    alea_bytes key;
    const void *next; /* private */
    size_t left;      /* items not yet visited */
    bool is_object;
} alea_json_walk;

alea_json_walk alea__json_walk(const alea_json_value *container);
bool alea__json_next(alea_json_walk *walk);

/*
 * A value as what it must be. `name` is how the error calls it: "max_tokens must be an integer in
 * 1..4096". Numbers are never rounded, cut or clamped: 1.0 is no integer.
 *
 * Shape     —
 * Domain    value not NULL; low <= high
 * Result    *out; a string's bytes live as long as the document and may hold NUL
 * Exact     —
 * Errors    ALEA_EINVAL: another kind, or out of range; *out untouched
 * Memory    none
 * Threads   reentrant
 */
alea_status alea__json_get_bool(const alea_json_value *value, const char *name, bool *out,
                                alea_error *error) ALEA_MUST_USE;
alea_status alea__json_get_int(const alea_json_value *value, const char *name, int64_t low,
                               int64_t high, int64_t *out, alea_error *error) ALEA_MUST_USE;
alea_status alea__json_get_uint(const alea_json_value *value, const char *name, uint64_t low,
                                uint64_t high, uint64_t *out, alea_error *error) ALEA_MUST_USE;
/* Integers are numbers too; beyond 2^53 they become the nearest double. */
alea_status alea__json_get_double(const alea_json_value *value, const char *name, double low,
                                  double high, double *out, alea_error *error) ALEA_MUST_USE;
alea_status alea__json_get_string(const alea_json_value *value, const char *name, alea_bytes *out,
                                  alea_error *error) ALEA_MUST_USE;

#endif
