/*
 * Errors as clients read them. The shape is OpenAI's. `type` is vLLM's word and `code` is OpenAI's,
 * because clients branch on status, code and param: context_length_exceeded becomes a stop reason
 * in one of them, where vLLM's own number (the status again) would not. int_code gives that number.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/utf8.h"
#include "json/json_write.h"

static const struct {
    int status;
    const char *type;
    const char *code;
} faults[] = {
    [ALEA_FAULT_JSON] = {400, "BadRequestError", "invalid_json"},
    [ALEA_FAULT_MISSING] = {400, "BadRequestError", "missing_required_parameter"},
    [ALEA_FAULT_TYPE] = {400, "BadRequestError", "invalid_type"},
    [ALEA_FAULT_VALUE] = {400, "BadRequestError", "invalid_value"},
    [ALEA_FAULT_UNSUPPORTED] = {400, "BadRequestError", "unsupported_parameter"},
    [ALEA_FAULT_UNKNOWN_FIELD] = {400, "BadRequestError", "unknown_parameter"},
    [ALEA_FAULT_CONTEXT] = {400, "BadRequestError", "context_length_exceeded"},
    [ALEA_FAULT_KEY] = {401, "AuthenticationError", "invalid_api_key"},
    [ALEA_FAULT_MODEL] = {404, "NotFoundError", "model_not_found"},
    [ALEA_FAULT_ROUTE] = {404, "NotFoundError", "unknown_url"},
    [ALEA_FAULT_METHOD] = {405, "MethodNotAllowedError", "method_not_allowed"},
    [ALEA_FAULT_BUSY] = {429, "RateLimitError", "rate_limit_exceeded"},
    [ALEA_FAULT_INTERNAL] = {500, "InternalServerError", "internal_error"},
    [ALEA_FAULT_UNAVAILABLE] = {503, "ServiceUnavailableError", "service_unavailable"},
};

/* A message may quote a client's bytes and be cut anywhere; what is no text is cut off, and it
 * stays one line. */
static void keep_text(char *text) {
    const alea_bytes bytes = {(const uint8_t *)text, strlen(text)};
    text[alea__utf8_valid_length(bytes)] = 0;
    for (; *text; text++)
        if ((uint8_t)*text < ' ') *text = ' ';
}

alea_status alea__api_error_set(alea_api_error *error, alea_api_fault fault, const char *param,
                                const char *format, ...) {
    error->fault = fault;
    error->status = faults[fault].status;
    snprintf(error->param, sizeof error->param, "%s", param ? param : "");
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    keep_text(error->param);
    keep_text(error->message);
    return ALEA_EINVAL;
}

void alea__api_error_http(alea_api_error *error, int status, const char *message) {
    alea__api_error_set(error, ALEA_FAULT_INTERNAL, NULL, "%s", message);
    error->fault = ALEA_FAULT_HTTP;
    error->status = status;
}

static alea_api_fault fault_of(alea_status status) {
    switch (status) {
    case ALEA_EINVAL:
    case ALEA_EFORMAT:
    case ALEA_EEMPTY: return ALEA_FAULT_VALUE;
    case ALEA_EUNSUPPORTED: return ALEA_FAULT_UNSUPPORTED;
    case ALEA_ECONTEXT: return ALEA_FAULT_CONTEXT;
    case ALEA_ELIMIT: return ALEA_FAULT_BUSY;
    case ALEA_ECANCELLED:
    case ALEA_ENOMEM: return ALEA_FAULT_UNAVAILABLE;
    default: return ALEA_FAULT_INTERNAL;
    }
}

void alea__api_error_of(alea_api_error *error, alea_status status, const char *message) {
    alea__api_error_set(error, fault_of(status), NULL, "%s",
                        message && *message ? message : alea_status_text(status));
}

void alea__api_error_late(alea_api_error *error, alea_status status, const char *message) {
    alea__api_error_of(error, status, message);
    if (status != ALEA_ELIMIT) return;
    error->fault = ALEA_FAULT_INTERNAL;
    error->status = faults[ALEA_FAULT_INTERNAL].status;
}

static const char *type_of(const alea_api_error *error) {
    if (error->fault != ALEA_FAULT_HTTP) return faults[error->fault].type;
    if (error->status == 501) return "NotImplementedError";
    return error->status < 500 ? "BadRequestError" : "InternalServerError";
}

static const char *code_of(const alea_api_error *error) {
    if (error->fault != ALEA_FAULT_HTTP) return faults[error->fault].code;
    switch (error->status) {
    case 408: return "request_timeout";
    case 411: return "length_required";
    case 413: return "request_too_large";
    case 414: return "uri_too_long";
    case 415: return "unsupported_media_type";
    case 417: return "expectation_failed";
    case 431: return "headers_too_large";
    case 501: return "not_implemented";
    case 505: return "http_version_not_supported";
    default: return "http_error";
    }
}

/* The buffer holds the longest error there can be, all of it escaped. */
static alea_status refuse_flush(void *user, const char *data, size_t length) {
    (void)user;
    (void)data;
    (void)length;
    return ALEA_ELIMIT;
}

size_t alea__api_error_body(const alea_api_error *error, char *body) {
    alea_json_writer writer;
    alea__json_write_to_flush(&writer, body, ALEA_API_ERROR_BYTES, refuse_flush, NULL);
    alea__json_begin_object(&writer);
    alea__json_key(&writer, "error");
    alea__json_begin_object(&writer);
    alea__json_key(&writer, "message");
    alea__json_cstring(&writer, error->message);
    alea__json_key(&writer, "type");
    alea__json_cstring(&writer, type_of(error));
    alea__json_key(&writer, "param");
    if (error->param[0])
        alea__json_cstring(&writer, error->param);
    else
        alea__json_null(&writer);
    alea__json_key(&writer, "code");
    if (error->int_code)
        alea__json_int(&writer, error->status);
    else
        alea__json_cstring(&writer, code_of(error));
    alea__json_end_object(&writer);
    alea__json_end_object(&writer);
    return writer.length;
}
