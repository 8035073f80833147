/* Writes a value that was read: reading and writing judged together, in tests and fuzzing. */
#ifndef ALEA_TESTS_JSON_COPY_H
#define ALEA_TESTS_JSON_COPY_H

#include <float.h>
#include <stdlib.h>

#include "json/json_read.h"
#include "json/json_write.h"

static inline void json_copy_scalar(alea_json_writer *writer, const alea_json_value *value) {
    bool truth;
    int64_t small;
    uint64_t large;
    double real;
    alea_bytes text;
    if (alea__json_get_bool(value, "", &truth, NULL) == ALEA_OK)
        alea__json_bool(writer, truth);
    else if (alea__json_get_int(value, "", INT64_MIN, INT64_MAX, &small, NULL) == ALEA_OK)
        alea__json_int(writer, small);
    else if (alea__json_get_uint(value, "", 0, UINT64_MAX, &large, NULL) == ALEA_OK)
        alea__json_uint(writer, large);
    else if (alea__json_get_double(value, "", -DBL_MAX, DBL_MAX, &real, NULL) == ALEA_OK)
        alea__json_double(writer, real);
    else if (alea__json_get_string(value, "", &text, NULL) == ALEA_OK)
        alea__json_string(writer, text);
    else
        alea__json_null(writer);
}

/* Recursive, but no deeper than a document may be. */
static inline void json_copy(alea_json_writer *writer, const alea_json_value *value) {
    const alea_json_kind kind = alea__json_kind(value);
    if (kind != ALEA_JSON_ARRAY && kind != ALEA_JSON_OBJECT) {
        json_copy_scalar(writer, value);
        return;
    }
    if (kind == ALEA_JSON_ARRAY)
        alea__json_begin_array(writer);
    else
        alea__json_begin_object(writer);
    for (alea_json_walk walk = alea__json_walk(value); alea__json_next(&walk);) {
        if (kind == ALEA_JSON_OBJECT) alea__json_key_bytes(writer, walk.key);
        json_copy(writer, walk.value);
    }
    if (kind == ALEA_JSON_ARRAY)
        alea__json_end_array(writer);
    else
        alea__json_end_object(writer);
}

#endif
