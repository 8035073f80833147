/* A line of JSONL to a question. Members besides the ones that are named here are ignored: data
 * sets carry their own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/question.h"
#include "json/json_read.h"

/* The parser counts lines too; a line of JSONL has but one. */
static const char *without_line(const char *message) {
    static const char prefix[] = "line 1, ";
    const size_t length = sizeof prefix - 1;
    return strncmp(message, prefix, length) == 0 ? message + length : message;
}

static alea_status read_id(const alea_json_value *value, uint64_t number, alea_text_id *id,
                           alea_error *error) {
    if (!value) {
        *id = (alea_text_id){.kind = ALEA_ID_UINT, .natural = number};
        return ALEA_OK;
    }
    *id = (alea_text_id){.kind = ALEA_ID_TEXT};
    switch (alea__json_kind(value)) {
    case ALEA_JSON_STRING: return alea__json_get_string(value, "id", &id->text, error);
    case ALEA_JSON_INTEGER:
        id->kind = ALEA_ID_INT;
        if (alea__json_get_int(value, "id", INT64_MIN, INT64_MAX, &id->integer, NULL) >= 0)
            return ALEA_OK;
        id->kind = ALEA_ID_UINT;
        return alea__json_get_uint(value, "id", 0, UINT64_MAX, &id->natural, error);
    case ALEA_JSON_REAL:
        id->kind = ALEA_ID_REAL;
        return alea__json_get_double(value, "id", -1.7976931348623157e308, 1.7976931348623157e308,
                                     &id->real, error);
    default: return alea_error_set(error, ALEA_EINVAL, "id must be a string or a number");
    }
}

static alea_status read_ids(const alea_json_value *value, int32_t **tokens, size_t *n_tokens,
                            alea_error *error) {
    const size_t size = alea__json_size(value);
    if (alea__json_kind(value) != ALEA_JSON_ARRAY || size == 0)
        return alea_error_set(error, ALEA_EINVAL,
                              "token_ids must be an array of at least one integer");
    int32_t *ids = calloc(size, sizeof *ids);
    if (!ids) return alea_error_set(error, ALEA_ENOMEM, "out of memory for %zu token ids", size);
    size_t n = 0;
    for (alea_json_walk walk = alea__json_walk(value); alea__json_next(&walk); n++) {
        char name[48];
        snprintf(name, sizeof name, "token_ids[%zu]", n);
        int64_t id;
        alea_status status = alea__json_get_int(walk.value, name, 0, INT32_MAX, &id, error);
        if (status < 0) {
            free(ids);
            return status;
        }
        ids[n] = (int32_t)id;
    }
    *tokens = ids;
    *n_tokens = n;
    return ALEA_OK;
}

static alea_status read_form(const alea_json_value *root, alea_question *question, int32_t **tokens,
                             alea_error *error) {
    const alea_json_value *text = alea__json_given(root, "text");
    const alea_json_value *prompt = alea__json_given(root, "prompt");
    const alea_json_value *continuation = alea__json_given(root, "continuation");
    const alea_json_value *ids = alea__json_given(root, "token_ids");
    const bool pair = prompt && continuation;
    if ((text != NULL) + pair + (ids != NULL) != 1 || (!pair && (prompt || continuation)))
        return alea_error_set(
            error, ALEA_EINVAL,
            "a line must have text, or prompt and continuation, or token_ids, and "
            "nothing of the others; this one has%s%s%s%s%s",
            text ? " text" : "", prompt ? " prompt" : "", continuation ? " continuation" : "",
            ids ? " token_ids" : "", text || prompt || continuation || ids ? "" : " none");
    if (ids) {
        question->kind = ALEA_QUESTION_IDS;
        alea_status status = read_ids(ids, tokens, &question->n_tokens, error);
        if (status >= 0) question->tokens = *tokens;
        return status;
    }
    if (text) {
        question->kind = ALEA_QUESTION_TEXT;
        return alea__json_get_string(text, "text", &question->text, error);
    }
    question->kind = ALEA_QUESTION_PAIR;
    alea_status status = alea__json_get_string(prompt, "prompt", &question->text, error);
    if (status < 0) return status;
    return alea__json_get_string(continuation, "continuation", &question->continuation, error);
}

static alea_status read_prompt(const alea_json_value *root, alea_question *question,
                               alea_error *error) {
    const alea_json_value *prompt = alea__json_given(root, "prompt");
    if (!prompt) return alea_error_set(error, ALEA_EINVAL, "a line must have a prompt");
    question->kind = ALEA_QUESTION_PROMPT;
    return alea__json_get_string(prompt, "prompt", &question->text, error);
}

static alea_status read_line(const alea_json_document *document, alea_question_forms forms,
                             uint64_t number, alea_question *question, int32_t **tokens,
                             alea_error *error) {
    const alea_json_value *root = alea__json_root(document);
    if (alea__json_kind(root) != ALEA_JSON_OBJECT)
        return alea_error_set(error, ALEA_EINVAL, "a line must be a JSON object");
    alea_status status = read_id(alea__json_given(root, "id"), number, &question->id, error);
    if (status < 0) return status;
    if (forms == ALEA_FORMS_PROMPT) return read_prompt(root, question, error);
    return read_form(root, question, tokens, error);
}

alea_exit alea__question_of_line(alea_bytes line, alea_question_forms forms, const char *where,
                                 uint64_t number, alea_question_fn visit, void *user) {
    alea_question question = {0};
    snprintf(question.where, sizeof question.where, "%s", where);
    alea_error error = {.status = ALEA_OK, .message = ""};
    alea_json_document *document = NULL;
    int32_t *tokens = NULL;
    alea_status status = alea__json_parse(line, ALEA_INPUT_BYTES_MAX, &document, &error);
    if (status >= 0) status = read_line(document, forms, number, &question, &tokens, &error);
    alea_exit code;
    if (status < 0) {
        alea__complain("%s: %s", where, without_line(error.message));
        code = alea__exit_of(status);
    } else {
        code = visit(user, &question);
    }
    free(tokens);
    alea__json_free(document);
    return code;
}
