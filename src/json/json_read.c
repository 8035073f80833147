/* yyjson behind our own limits. What it lets through and we do not is looked for after the parse;
 * nesting before it, since its own stack has no bound. */
#include "json/json_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yyjson.h>

#include "base/utf8.h"

/* alea_json_document is a yyjson_doc, alea_json_value a yyjson_val: no layer of memory between. */
static const yyjson_doc *doc_of(const alea_json_document *document) {
    return (const yyjson_doc *)(const void *)document;
}

/* yyjson's accessors take pointers to values that they do not change. */
static yyjson_val *val_of(const alea_json_value *value) {
    return (yyjson_val *)(uintptr_t)value;
}

static const alea_json_value *value_of(const yyjson_val *val) {
    return (const alea_json_value *)(const void *)val;
}

/* ---- errors with a place ---- */

static alea_status fail_at(alea_bytes text, size_t at, alea_status status, const char *what,
                           alea_error *error) {
    size_t line = 1, line_start = 0;
    if (at > text.length) at = text.length;
    for (size_t i = 0; i < at; i++)
        if (text.data[i] == '\n') {
            line++;
            line_start = i + 1;
        }
    const size_t column =
        1 + alea__utf8_count((alea_bytes){text.data + line_start, at - line_start});
    return alea_error_set(error, status, "line %zu, column %zu: %s", line, column, what);
}

/* ---- before the parse ---- */

/* Nesting by brackets outside strings. On what is not JSON it may be wrong; the parser then speaks
 * first or second, and either is an error. */
static bool too_deep(alea_bytes text, size_t *at) {
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.length; i++) {
        const uint8_t c = text.data[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > ALEA_JSON_READ_DEPTH_MAX) {
                *at = i;
                return true;
            }
        } else if ((c == ']' || c == '}') && depth) {
            depth--;
        }
    }
    return false;
}

/* ---- after the parse ---- */

/* Orders by length, bytes, and among equals by place. */
static int compare_keys(const void *a, const void *b) {
    yyjson_val *const x = *(yyjson_val *const *)a, *const y = *(yyjson_val *const *)b;
    const size_t n = yyjson_get_len(x), m = yyjson_get_len(y);
    if (n != m) return n < m ? -1 : 1;
    const int order = memcmp(yyjson_get_str(x), yyjson_get_str(y), n);
    return order ? order : (x > y) - (x < y);
}

static bool same_key(yyjson_val *x, yyjson_val *y) {
    const size_t n = yyjson_get_len(x);
    return n == yyjson_get_len(y) && !memcmp(yyjson_get_str(x), yyjson_get_str(y), n);
}

/* The first key of the object that was there before, or NULL. Sorted, not compared pair by pair: a
 * large object must not cost a square. keys: room for all of them. */
static yyjson_val *find_duplicate(yyjson_val *object, yyjson_val **keys) {
    size_t n = 0;
    yyjson_obj_iter iter = yyjson_obj_iter_with(object);
    for (yyjson_val *key; (key = yyjson_obj_iter_next(&iter));)
        keys[n++] = key;
    qsort(keys, n, sizeof *keys, compare_keys);
    yyjson_val *found = NULL;
    for (size_t i = 1; i < n; i++)
        if (same_key(keys[i - 1], keys[i]) && (!found || keys[i] < found)) found = keys[i];
    return found;
}

static alea_status fail_duplicate(alea_bytes text, size_t at, yyjson_val *key, alea_error *error) {
    char what[96];
    const size_t length = yyjson_get_len(key), shown = length < 48 ? length : 48;
    const alea_bytes name = {(const uint8_t *)yyjson_get_str(key), shown};
    snprintf(what, sizeof what, "key \"%.*s\" is there twice", (int)alea__utf8_safe_length(name),
             yyjson_get_str(key));
    return fail_at(text, at, ALEA_EFORMAT, what, error);
}

/* Keys and out-of-range numbers point into yyjson's copy of the text, at their own offsets. */
static size_t offset_of(const yyjson_doc *doc, yyjson_val *val) {
    return (size_t)(yyjson_is_raw(val) ? yyjson_get_raw(val) : yyjson_get_str(val)) -
           (size_t)doc->str_pool;
}

/* yyjson keeps all values of a document in one array, in the order of the text. */
static alea_status check_values(const yyjson_doc *doc, alea_bytes text, alea_error *error) {
    size_t largest = 0;
    for (size_t i = 0; i < doc->val_read; i++) {
        yyjson_val *val = doc->root + i;
        if (yyjson_is_raw(val))
            return fail_at(text, offset_of(doc, val), ALEA_EFORMAT, "number is out of range",
                           error);
        if (yyjson_is_obj(val) && yyjson_obj_size(val) > largest) largest = yyjson_obj_size(val);
    }
    if (largest < 2) return ALEA_OK;

    yyjson_val **keys = malloc(largest * sizeof *keys);
    if (!keys) return alea_error_set(error, ALEA_ENOMEM, "JSON: out of memory");
    yyjson_val *found = NULL;
    for (size_t i = 0; i < doc->val_read && !found; i++)
        if (yyjson_is_obj(doc->root + i)) found = find_duplicate(doc->root + i, keys);
    free(keys);
    if (!found) return ALEA_OK;
    return fail_duplicate(text, offset_of(doc, found) - 1, found, error); /* at its quote */
}

alea_status alea__json_parse(alea_bytes text, size_t bytes_max, alea_json_document **document,
                             alea_error *error) {
    if (text.length > bytes_max)
        return alea_error_set(error, ALEA_ELIMIT, "JSON of %zu bytes; the limit is %zu",
                              text.length, bytes_max);
    size_t at = 0;
    if (!text.length) return fail_at(text, 0, ALEA_EFORMAT, "there is nothing to read", error);
    if (too_deep(text, &at))
        return fail_at(text, at, ALEA_ELIMIT, "nested deeper than 64 levels", error);

    yyjson_read_err problem;
    /* Without YYJSON_READ_INSITU the text is copied, so it is not written to. */
    yyjson_doc *doc = yyjson_read_opts((char *)(uintptr_t)text.data, text.length,
                                       YYJSON_READ_BIGNUM_AS_RAW, NULL, &problem);
    if (!doc) {
        if (problem.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION)
            return alea_error_set(error, ALEA_ENOMEM, "JSON: out of memory");
        return fail_at(text, problem.pos, ALEA_EFORMAT, problem.msg, error);
    }
    const alea_status status = check_values(doc, text, error);
    if (status < 0) {
        yyjson_doc_free(doc);
        return status;
    }
    *document = (alea_json_document *)(void *)doc;
    return ALEA_OK;
}

void alea__json_free(alea_json_document *document) {
    yyjson_doc_free((yyjson_doc *)(void *)document);
}

/* ---- looking around ---- */

const alea_json_value *alea__json_root(const alea_json_document *document) {
    return value_of(doc_of(document)->root);
}

alea_json_kind alea__json_kind(const alea_json_value *value) {
    switch (yyjson_get_type(val_of(value))) {
    case YYJSON_TYPE_BOOL: return ALEA_JSON_BOOL;
    case YYJSON_TYPE_NUM: return yyjson_is_real(val_of(value)) ? ALEA_JSON_REAL : ALEA_JSON_INTEGER;
    case YYJSON_TYPE_STR: return ALEA_JSON_STRING;
    case YYJSON_TYPE_ARR: return ALEA_JSON_ARRAY;
    case YYJSON_TYPE_OBJ: return ALEA_JSON_OBJECT;
    default: return ALEA_JSON_NULL;
    }
}

size_t alea__json_size(const alea_json_value *value) {
    return yyjson_is_ctn(val_of(value)) ? yyjson_get_len(val_of(value)) : 0;
}

const alea_json_value *alea__json_member(const alea_json_value *object, const char *name) {
    return value_of(yyjson_obj_get(val_of(object), name));
}

const alea_json_value *alea__json_given(const alea_json_value *object, const char *name) {
    const alea_json_value *value = alea__json_member(object, name);
    return value && alea__json_kind(value) == ALEA_JSON_NULL ? NULL : value;
}

alea_json_walk alea__json_walk(const alea_json_value *container) {
    yyjson_val *val = val_of(container);
    return (alea_json_walk){.next = yyjson_is_ctn(val) ? unsafe_yyjson_get_first(val) : NULL,
                            .left = alea__json_size(container),
                            .is_object = yyjson_is_obj(val)};
}

bool alea__json_next(alea_json_walk *walk) {
    if (!walk->left) return false;
    walk->left--;
    yyjson_val *val = val_of(walk->next);
    if (walk->is_object) {
        walk->key = (alea_bytes){(const uint8_t *)yyjson_get_str(val), yyjson_get_len(val)};
        val++; /* a key's value stands behind it */
    }
    walk->value = value_of(val);
    walk->next = unsafe_yyjson_get_next(val);
    return true;
}

/* ---- values as what they must be ---- */

alea_status alea__json_get_bool(const alea_json_value *value, const char *name, bool *out,
                                alea_error *error) {
    if (!yyjson_is_bool(val_of(value)))
        return alea_error_set(error, ALEA_EINVAL, "%s must be true or false", name);
    *out = yyjson_get_bool(val_of(value));
    return ALEA_OK;
}

alea_status alea__json_get_int(const alea_json_value *value, const char *name, int64_t low,
                               int64_t high, int64_t *out, alea_error *error) {
    yyjson_val *val = val_of(value);
    /* yyjson: a value that is not negative is unsigned, and may be beyond int64. */
    const bool fits =
        yyjson_is_sint(val) || (yyjson_is_uint(val) && yyjson_get_uint(val) <= (uint64_t)INT64_MAX);
    const int64_t number = fits ? yyjson_get_sint(val) : 0;
    if (!fits || number < low || number > high)
        return alea_error_set(error, ALEA_EINVAL, "%s must be an integer in %lld..%lld", name,
                              (long long)low, (long long)high);
    *out = number;
    return ALEA_OK;
}

alea_status alea__json_get_uint(const alea_json_value *value, const char *name, uint64_t low,
                                uint64_t high, uint64_t *out, alea_error *error) {
    yyjson_val *val = val_of(value);
    const uint64_t number = yyjson_get_uint(val);
    if (!yyjson_is_uint(val) || number < low || number > high)
        return alea_error_set(error, ALEA_EINVAL, "%s must be an integer in %llu..%llu", name,
                              (unsigned long long)low, (unsigned long long)high);
    *out = number;
    return ALEA_OK;
}

alea_status alea__json_get_double(const alea_json_value *value, const char *name, double low,
                                  double high, double *out, alea_error *error) {
    yyjson_val *val = val_of(value);
    const double number = yyjson_get_num(val);
    if (!yyjson_is_num(val) || number < low || number > high)
        return alea_error_set(error, ALEA_EINVAL, "%s must be a number in %.9g..%.9g", name, low,
                              high);
    *out = number;
    return ALEA_OK;
}

alea_status alea__json_get_string(const alea_json_value *value, const char *name, alea_bytes *out,
                                  alea_error *error) {
    yyjson_val *val = val_of(value);
    if (!yyjson_is_str(val)) return alea_error_set(error, ALEA_EINVAL, "%s must be a string", name);
    *out = (alea_bytes){(const uint8_t *)yyjson_get_str(val), yyjson_get_len(val)};
    return ALEA_OK;
}
