/* From a body's members to alea_api_values, by the table alone. */
#include <stdio.h>
#include <string.h>

#include "api/api_parts.h"

enum { MEMBERS_MAX = 1024 }; /* a body has a few dozen; each is looked up among all rows */

static bool is_named(const alea_api_field *field, alea_bytes name) {
    return strlen(field->name) == name.length && !memcmp(field->name, name.data, name.length);
}

const alea_api_field *alea__api_field(alea_api_endpoint endpoint, alea_bytes name) {
    for (size_t i = 0; i < alea__api_n_fields; i++) {
        const alea_api_field *field = &alea__api_fields[i];
        if ((field->at & (unsigned)endpoint) && is_named(field, name)) return field;
    }
    return NULL;
}

/* ---- kinds ---- */

static const char *kind_word(const alea_api_field *field) {
    switch (field->type) {
    case ALEA_TYPE_BOOL: return "true or false";
    case ALEA_TYPE_INT: return "an integer";
    case ALEA_TYPE_NUMBER: return "a number";
    case ALEA_TYPE_STRING: return "a string";
    case ALEA_TYPE_STRINGS: return "a string or a list of strings";
    case ALEA_TYPE_WORDS: return "a list of strings";
    case ALEA_TYPE_IDS: return "a list of token ids";
    case ALEA_TYPE_BIAS:
    case ALEA_TYPE_OBJECT: return "an object";
    case ALEA_TYPE_PROMPT: return "a string, a list of strings, or one or more lists of token ids";
    case ALEA_TYPE_OBJECTS: return "a list of objects";
    case ALEA_TYPE_TEXT: return "a string or a list of token ids";
    case ALEA_TYPE_ANY: break;
    }
    return "a value";
}

static bool all_of(const alea_json_value *list, alea_json_kind kind) {
    for (alea_json_walk walk = alea__json_walk(list); alea__json_next(&walk);)
        if (alea__json_kind(walk.value) != kind) return false;
    return true;
}

static bool is_kind(const alea_api_field *field, const alea_json_value *value) {
    const alea_json_kind kind = alea__json_kind(value);
    const bool list = kind == ALEA_JSON_ARRAY;
    switch (field->type) {
    case ALEA_TYPE_BOOL: return kind == ALEA_JSON_BOOL;
    case ALEA_TYPE_INT: return kind == ALEA_JSON_INTEGER;
    case ALEA_TYPE_NUMBER: return kind == ALEA_JSON_INTEGER || kind == ALEA_JSON_REAL;
    case ALEA_TYPE_STRING: return kind == ALEA_JSON_STRING;
    case ALEA_TYPE_STRINGS:
        return kind == ALEA_JSON_STRING || (list && all_of(value, ALEA_JSON_STRING));
    case ALEA_TYPE_WORDS: return list && all_of(value, ALEA_JSON_STRING);
    case ALEA_TYPE_IDS: return list && all_of(value, ALEA_JSON_INTEGER);
    case ALEA_TYPE_BIAS:
    case ALEA_TYPE_OBJECT: return kind == ALEA_JSON_OBJECT;
    case ALEA_TYPE_PROMPT: return kind == ALEA_JSON_STRING || list;
    case ALEA_TYPE_OBJECTS: return list && all_of(value, ALEA_JSON_OBJECT);
    case ALEA_TYPE_TEXT:
        return kind == ALEA_JSON_STRING || (list && all_of(value, ALEA_JSON_INTEGER));
    case ALEA_TYPE_ANY: return true;
    }
    return false;
}

/* ---- ranges ---- */

static alea_status refuse(const alea_api_field *field, const alea_error *why,
                          alea_api_error *error) {
    return alea__api_error_set(error, ALEA_FAULT_VALUE, field->name, "%s", why->message);
}

static alea_status read_int(const alea_api_field *field, const alea_json_value *value, int64_t *out,
                            alea_api_error *error) {
    alea_error why;
    if (alea__json_get_int(value, field->name, field->min, field->max, out, &why) < 0)
        return refuse(field, &why, error);
    return ALEA_OK;
}

/* What the kernels get is a float, so that is what must be in range. */
static alea_status read_number(const alea_api_field *field, const alea_json_value *value,
                               double *out, alea_api_error *error) {
    alea_error why;
    double number;
    const bool is_within =
        alea__json_get_double(value, field->name, field->low, field->high, &number, &why) >= 0;
    if (!is_within && !field->above) return refuse(field, &why, error);
    if (!is_within || (field->above && (double)(float)number <= field->low))
        return alea__api_error_set(error, ALEA_FAULT_VALUE, field->name,
                                   "%s must be a number above %.9g and at most %.9g", field->name,
                                   field->low, field->high);
    *out = number;
    return ALEA_OK;
}

static alea_status read_string(const alea_api_field *field, const alea_json_value *value,
                               alea_bytes *out, alea_api_error *error) {
    alea_bytes text;
    if (alea__json_get_string(value, field->name, &text, NULL) < 0) return ALEA_EINVAL;
    *out = text;
    if (!field->words) return ALEA_OK;
    char offer[160] = "";
    for (const char *const *word = field->words; *word; word++) {
        if (strlen(*word) == text.length && !memcmp(*word, text.data, text.length)) return ALEA_OK;
        strncat(offer, word == field->words ? "" : ", ", sizeof offer - strlen(offer) - 1);
        strncat(offer, *word, sizeof offer - strlen(offer) - 1);
    }
    return alea__api_error_set(error, ALEA_FAULT_VALUE, field->name, "%s must be one of %s",
                               field->name, offer);
}

static alea_status check_length(const alea_api_field *field, const alea_json_value *value,
                                alea_api_error *error) {
    const bool counted = field->type == ALEA_TYPE_WORDS || field->type == ALEA_TYPE_IDS ||
                         field->type == ALEA_TYPE_STRINGS;
    const int64_t size = (int64_t)alea__json_size(value);
    if (!counted || alea__json_kind(value) == ALEA_JSON_STRING) return ALEA_OK;
    if (size >= field->min && size <= field->max) return ALEA_OK;
    if (size < field->min)
        return alea__api_error_set(error, ALEA_FAULT_VALUE, field->name, "%s must not be empty",
                                   field->name);
    return alea__api_error_set(error, ALEA_FAULT_VALUE, field->name,
                               "%s has %lld items, at most %lld are allowed", field->name,
                               (long long)size, (long long)field->max);
}

/* ---- one member ---- */

/* A value of the right kind and in range goes to its place in `values`. */
static alea_status keep(const alea_api_field *field, const alea_json_value *value,
                        alea_api_values *values, alea_api_error *error) {
    union {
        alea_api_bool truth;
        alea_api_int integer;
        alea_api_number number;
        alea_api_string text;
        const alea_json_value *value;
    } nowhere; /* fields without a place are checked all the same */
    void *slot = field->offset == SIZE_MAX ? (void *)&nowhere : (char *)values + field->offset;
    switch (field->type) {
    case ALEA_TYPE_BOOL: {
        alea_api_bool *out = slot;
        out->given = true;
        return alea__json_get_bool(value, field->name, &out->value, NULL);
    }
    case ALEA_TYPE_INT: {
        alea_api_int *out = slot;
        out->given = true;
        return read_int(field, value, &out->value, error);
    }
    case ALEA_TYPE_NUMBER: {
        alea_api_number *out = slot;
        out->given = true;
        return read_number(field, value, &out->value, error);
    }
    case ALEA_TYPE_STRING: {
        alea_api_string *out = slot;
        out->given = true;
        return read_string(field, value, &out->value, error);
    }
    default: {
        const alea_json_value **out = slot;
        *out = value;
        return check_length(field, value, error);
    }
    }
}

/* Whether a value is the row's default: what a field that is not offered may be. */
static bool is_fallback(const alea_api_field *field, const alea_json_value *value) {
    bool truth;
    alea_bytes text;
    if (!field->fallback) return false;
    if (alea__json_get_bool(value, "", &truth, NULL) == ALEA_OK)
        return truth == !strcmp(field->fallback, "true");
    if (alea__json_get_string(value, "", &text, NULL) == ALEA_OK)
        return text.length == 0 && !strcmp(field->fallback, "\"\"");
    return false;
}

static alea_status read_member(const alea_api_field *field, const alea_json_value *value,
                               alea_api_values *values, alea_api_error *error) {
    if (alea__json_kind(value) == ALEA_JSON_NULL) {
        if (field->required)
            return alea__api_error_set(error, ALEA_FAULT_MISSING, field->name,
                                       "%s must not be null", field->name);
        if (field->no_null)
            return alea__api_error_set(error, ALEA_FAULT_TYPE, field->name,
                                       "%s must be %s, not null", field->name, kind_word(field));
        return ALEA_OK;
    }
    if (!is_kind(field, value))
        return alea__api_error_set(error, ALEA_FAULT_TYPE, field->name, "%s must be %s",
                                   field->name, kind_word(field));
    const alea_status status = keep(field, value, values, error);
    if (status < 0) return status;
    if (field->treatment != ALEA_FIELD_REFUSED || is_fallback(field, value)) return ALEA_OK;
    return alea__api_error_set(error, ALEA_FAULT_UNSUPPORTED, field->name,
                               "%s is not supported: %s", field->name, field->note);
}

/* ---- the body ---- */

static alea_status check_required(alea_api_endpoint endpoint, const alea_json_value *root,
                                  alea_api_error *error) {
    for (size_t i = 0; i < alea__api_n_fields; i++) {
        const alea_api_field *field = &alea__api_fields[i];
        if (!field->required || !(field->at & (unsigned)endpoint)) continue;
        if (alea__json_member(root, field->name)) continue;
        return alea__api_error_set(error, ALEA_FAULT_MISSING, field->name, "%s is missing",
                                   field->name);
    }
    return ALEA_OK;
}

alea_status alea__api_values_read(alea_api_endpoint endpoint, const alea_json_value *root,
                                  bool strict, alea_api_values *values, alea_api_error *error) {
    *values = (alea_api_values){.model = {.given = false}};
    if (alea__json_kind(root) != ALEA_JSON_OBJECT)
        return alea__api_error_set(error, ALEA_FAULT_JSON, NULL, "the body must be a JSON object");
    if (alea__json_size(root) > MEMBERS_MAX)
        return alea__api_error_set(error, ALEA_FAULT_JSON, NULL,
                                   "the body has %zu members, at most %d are allowed",
                                   alea__json_size(root), MEMBERS_MAX);
    for (alea_json_walk walk = alea__json_walk(root); alea__json_next(&walk);) {
        const alea_api_field *field = alea__api_field(endpoint, walk.key);
        if (field) {
            const alea_status status = read_member(field, walk.value, values, error);
            if (status < 0) return status;
        } else if (strict) {
            char name[48];
            snprintf(name, sizeof name, "%.*s", alea__api_quoted(walk.key, sizeof name - 1),
                     (const char *)walk.key.data);
            return alea__api_error_set(error, ALEA_FAULT_UNKNOWN_FIELD, name,
                                       "%s is no field of this endpoint", name);
        }
    }
    return check_required(endpoint, root, error);
}
