/* The table as others read it: Markdown for people, JSON Schema for programs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/api_parts.h"

/* ---- Markdown ---- */

static void describe_int(const alea_api_field *field, char *text, size_t capacity) {
    if (field->min == INT64_MIN && field->max == INT64_MAX)
        snprintf(text, capacity, "integer of 64 bits");
    else if (field->min == INT32_MIN && field->max == INT32_MAX)
        snprintf(text, capacity, "integer of 32 bits");
    else if (field->max == INT64_MAX || field->max >= INT32_MAX / 2)
        snprintf(text, capacity, "integer, at least %" PRId64, field->min);
    else
        snprintf(text, capacity, "integer, %" PRId64 "..%" PRId64, field->min, field->max);
}

static void describe_number(const alea_api_field *field, char *text, size_t capacity) {
    if (field->high < 1e30)
        snprintf(text, capacity, "number, %s%g..%g", field->above ? "above " : "", field->low,
                 field->high);
    else
        snprintf(text, capacity, field->above ? "number above %g" : "number", field->low);
}

static void describe_words(const alea_api_field *field, char *text, size_t capacity) {
    size_t length = 0;
    for (const char *const *word = field->words; *word && length < capacity; word++) {
        const int n = snprintf(text + length, capacity - length, "%s`%s`",
                               word == field->words ? "" : ", ", *word);
        length += n > 0 ? (size_t)n : 0;
    }
}

static void describe_value(const alea_api_field *field, char *text, size_t capacity) {
    const char *word = "any";
    switch (field->type) {
    case ALEA_TYPE_BOOL: word = "boolean"; break;
    case ALEA_TYPE_INT: describe_int(field, text, capacity); return;
    case ALEA_TYPE_NUMBER: describe_number(field, text, capacity); return;
    case ALEA_TYPE_STRING:
        if (field->words) {
            describe_words(field, text, capacity);
            return;
        }
        word = "string";
        break;
    case ALEA_TYPE_STRINGS: word = "string or strings"; break;
    case ALEA_TYPE_WORDS: word = "strings"; break;
    case ALEA_TYPE_IDS: word = "token ids"; break;
    case ALEA_TYPE_BIAS: word = "object of numbers"; break;
    case ALEA_TYPE_PROMPT: word = "string, strings, ids, lists of ids"; break;
    case ALEA_TYPE_OBJECTS: word = "objects"; break;
    case ALEA_TYPE_OBJECT: word = "object"; break;
    case ALEA_TYPE_TEXT: word = "string or token ids"; break;
    case ALEA_TYPE_ANY: break;
    }
    snprintf(text, capacity, "%s", word);
}

static void describe_places(const alea_api_field *field, char *text, size_t capacity) {
    static const struct {
        alea_api_endpoint at;
        const char *word;
    } places[] = {{ALEA_API_COMPLETIONS, "completions"},
                  {ALEA_API_CHAT, "chat"},
                  {ALEA_API_TOKENIZE, "tokenize"},
                  {ALEA_API_DETOKENIZE, "detokenize"},
                  {ALEA_API_SCORE, "score"}};
    text[0] = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (!(field->at & (unsigned)places[i].at)) continue;
        if (text[0]) strncat(text, ", ", capacity - strlen(text) - 1);
        strncat(text, places[i].word, capacity - strlen(text) - 1);
    }
}

static const char *null_word(const alea_api_field *field) {
    if (field->required) return "required";
    return field->no_null ? ", null refused" : "";
}

void alea__api_fields_markdown(alea_api_treatment treatment,
                               void (*put)(void *user, const char *text), void *user) {
    put(user, "| field | of | value | default | notes |\n| --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < alea__api_n_fields; i++) {
        const alea_api_field *field = &alea__api_fields[i];
        char value[160], places[64], row[1024];
        if (field->treatment != treatment) continue;
        describe_value(field, value, sizeof value);
        describe_places(field, places, sizeof places);
        snprintf(row, sizeof row, "| `%s` | %s | %s | %s%s | %s |\n", field->name, places, value,
                 field->fallback ? field->fallback : "", null_word(field), field->note);
        put(user, row);
    }
}

/* ---- JSON Schema ---- */

static void write_type(alea_json_writer *writer, const char *type, bool nullable) {
    alea__json_key(writer, "type");
    if (!nullable) {
        alea__json_cstring(writer, type);
        return;
    }
    alea__json_begin_array(writer);
    alea__json_cstring(writer, type);
    alea__json_cstring(writer, "null");
    alea__json_end_array(writer);
}

static void write_fallback(const alea_api_field *field, alea_json_writer *writer) {
    alea_json_document *document = NULL;
    if (alea__json_parse(alea__api_bytes(field->fallback), 64, &document, NULL) < 0) return;
    alea__api_copy_value(writer, alea__json_root(document));
    alea__json_free(document);
}

static void write_items(alea_json_writer *writer, const char *type, int64_t least, int64_t min,
                        int64_t max) {
    alea__json_key(writer, "items");
    alea__json_begin_object(writer);
    write_type(writer, type, false);
    if (least > 0) {
        alea__json_key(writer, "minLength");
        alea__json_int(writer, least);
    }
    if (!strcmp(type, "integer")) {
        alea__json_key(writer, "minimum");
        alea__json_int(writer, 0);
    }
    alea__json_end_object(writer);
    if (min > 0) {
        alea__json_key(writer, "minItems");
        alea__json_int(writer, min);
    }
    if (max > 0 && max < INT32_MAX) {
        alea__json_key(writer, "maxItems");
        alea__json_int(writer, max);
    }
}

static void write_one_array(alea_json_writer *writer, const char *type, int64_t max) {
    alea__json_begin_object(writer);
    write_type(writer, "array", false);
    write_items(writer, type, 1, !strcmp(type, "integer"), max);
    alea__json_end_object(writer);
}

static void write_one_string(alea_json_writer *writer) {
    alea__json_begin_object(writer);
    write_type(writer, "string", false);
    alea__json_key(writer, "minLength");
    alea__json_int(writer, 1);
    alea__json_end_object(writer);
}

static void write_any_of(const alea_api_field *field, alea_json_writer *writer) {
    alea__json_key(writer, "anyOf");
    alea__json_begin_array(writer);
    write_one_string(writer);
    if (field->type != ALEA_TYPE_TEXT) write_one_array(writer, "string", field->max);
    if (field->type != ALEA_TYPE_STRINGS) write_one_array(writer, "integer", 0);
    if (field->type == ALEA_TYPE_PROMPT) {
        alea__json_begin_object(writer);
        write_type(writer, "array", false);
        alea__json_key(writer, "minItems");
        alea__json_int(writer, 1);
        alea__json_key(writer, "items");
        write_one_array(writer, "integer", 0);
        alea__json_end_object(writer);
    }
    if (!field->required) {
        alea__json_begin_object(writer);
        write_type(writer, "null", false);
        alea__json_end_object(writer);
    }
    alea__json_end_array(writer);
}

static void write_range(const alea_api_field *field, alea_json_writer *writer) {
    if (field->type == ALEA_TYPE_INT) {
        if (field->min != INT64_MIN) {
            alea__json_key(writer, "minimum");
            alea__json_int(writer, field->min);
        }
        if (field->max != INT64_MAX) {
            alea__json_key(writer, "maximum");
            alea__json_int(writer, field->max);
        }
        return;
    }
    if (field->low > -1e30) {
        alea__json_key(writer, field->above ? "exclusiveMinimum" : "minimum");
        alea__json_double(writer, field->low);
    }
    if (field->high < 1e30) {
        alea__json_key(writer, "maximum");
        alea__json_double(writer, field->high);
    }
}

static void write_enum(const alea_api_field *field, alea_json_writer *writer) {
    alea__json_key(writer, "enum");
    alea__json_begin_array(writer);
    for (const char *const *word = field->words; *word; word++)
        alea__json_cstring(writer, *word);
    alea__json_null(writer);
    alea__json_end_array(writer);
}

static void write_message_items(alea_json_writer *writer) {
    alea__json_key(writer, "items");
    alea__json_begin_object(writer);
    write_type(writer, "object", false);
    alea__json_key(writer, "required");
    alea__json_begin_array(writer);
    alea__json_cstring(writer, "role");
    alea__json_end_array(writer);
    alea__json_key(writer, "properties");
    alea__json_begin_object(writer);
    alea__json_key(writer, "role");
    write_one_string(writer);
    alea__json_key(writer, "content");
    alea__json_begin_object(writer);
    alea__json_key(writer, "description");
    alea__json_cstring(writer, "a string, null, or a list of parts of type text");
    alea__json_end_object(writer);
    alea__json_end_object(writer);
    alea__json_end_object(writer);
    alea__json_key(writer, "minItems");
    alea__json_int(writer, 1);
}

/* What a field may be that is not offered: null, or its default. */
static void write_refused(const alea_api_field *field, alea_json_writer *writer) {
    alea__json_key(writer, "enum");
    alea__json_begin_array(writer);
    alea__json_null(writer);
    if (field->fallback) write_fallback(field, writer);
    alea__json_end_array(writer);
}

static void write_shape(const alea_api_field *field, alea_json_writer *writer) {
    const bool nullable = !field->required && !field->no_null;
    switch (field->type) {
    case ALEA_TYPE_BOOL: write_type(writer, "boolean", nullable); break;
    case ALEA_TYPE_INT:
        write_type(writer, "integer", nullable);
        write_range(field, writer);
        break;
    case ALEA_TYPE_NUMBER:
        write_type(writer, "number", nullable);
        write_range(field, writer);
        break;
    case ALEA_TYPE_STRING:
        write_type(writer, "string", nullable);
        if (field->words) write_enum(field, writer);
        break;
    case ALEA_TYPE_STRINGS:
    case ALEA_TYPE_TEXT:
    case ALEA_TYPE_PROMPT: write_any_of(field, writer); break;
    case ALEA_TYPE_WORDS:
        write_type(writer, "array", nullable);
        write_items(writer, "string", 1, field->min, field->max);
        break;
    case ALEA_TYPE_IDS:
        write_type(writer, "array", nullable);
        write_items(writer, "integer", 0, field->min, field->max);
        break;
    case ALEA_TYPE_BIAS:
        write_type(writer, "object", nullable);
        alea__json_key(writer, "additionalProperties");
        alea__json_begin_object(writer);
        write_type(writer, "number", false);
        alea__json_end_object(writer);
        break;
    case ALEA_TYPE_OBJECTS:
        write_type(writer, "array", nullable);
        if (!strcmp(field->name, "messages"))
            write_message_items(writer);
        else
            write_items(writer, "object", 0, 0, 0);
        break;
    case ALEA_TYPE_OBJECT: write_type(writer, "object", nullable); break;
    case ALEA_TYPE_ANY: break;
    }
    if (field->fallback) {
        alea__json_key(writer, "default");
        write_fallback(field, writer);
    }
}

void alea__api_field_schema(const alea_api_field *field, alea_json_writer *writer) {
    alea__json_begin_object(writer);
    alea__json_key(writer, "description");
    alea__json_cstring(writer, field->note);
    if (field->treatment == ALEA_FIELD_REFUSED)
        write_refused(field, writer);
    else
        write_shape(field, writer);
    alea__json_end_object(writer);
}
