/* /openapi.json, OpenAPI 3.1: the routes and the request fields, each from its table. */
#include <stdio.h>
#include <string.h>

#include "api/api_parts.h"

static void begin_member(alea_json_writer *writer, const char *name) {
    alea__json_key(writer, name);
    alea__json_begin_object(writer);
}

static const char *schema_name(alea_api_endpoint endpoint) {
    switch (endpoint) {
    case ALEA_API_COMPLETIONS: return "CompletionRequest";
    case ALEA_API_CHAT: return "ChatCompletionRequest";
    case ALEA_API_TOKENIZE: return "TokenizeRequest";
    case ALEA_API_DETOKENIZE: return "DetokenizeRequest";
    case ALEA_API_SCORE: return "ScoreRequest";
    }
    return "";
}

static void write_reference(alea_json_writer *writer, const char *schema) {
    alea__json_key(writer, "schema");
    alea__json_begin_object(writer);
    alea__json_key(writer, "$ref");
    char path[64] = "#/components/schemas/";
    strncat(path, schema, sizeof path - strlen(path) - 1);
    alea__json_cstring(writer, path);
    alea__json_end_object(writer);
}

/* A media type whose content is an object, or a text. */
static void write_media(alea_json_writer *writer, const char *type) {
    begin_member(writer, type);
    begin_member(writer, "schema");
    alea__json_put_cstring(writer, "type", strcmp(type, "application/json") ? "string" : "object");
    alea__json_end_object(writer);
    alea__json_end_object(writer);
}

static void write_responses(const alea_api_route *at, alea_json_writer *writer) {
    begin_member(writer, "responses");
    begin_member(writer, "200");
    alea__json_put_cstring(writer, "description", "done");
    if (at->answer) {
        begin_member(writer, "content");
        write_media(writer, at->answer);
        if (at->streams) write_media(writer, "text/event-stream");
        alea__json_end_object(writer);
    }
    alea__json_end_object(writer);
    begin_member(writer, "default");
    alea__json_put_cstring(writer, "description", "an error");
    begin_member(writer, "content");
    begin_member(writer, "application/json");
    write_reference(writer, "Error");
    alea__json_end_object(writer);
    alea__json_end_object(writer);
    alea__json_end_object(writer);
    alea__json_end_object(writer);
}

/* What stands for "{model}". */
static void write_parameter(const char *path, alea_json_writer *writer) {
    const char *open = strchr(path, '{');
    if (!open) return;
    alea__json_key(writer, "parameters");
    alea__json_begin_array(writer);
    alea__json_begin_object(writer);
    alea__json_key(writer, "name");
    alea__json_string(writer, (alea_bytes){(const uint8_t *)open + 1, strcspn(open + 1, "}")});
    alea__json_put_cstring(writer, "in", "path");
    alea__json_put_bool(writer, "required", true);
    begin_member(writer, "schema");
    alea__json_put_cstring(writer, "type", "string");
    alea__json_end_object(writer);
    alea__json_end_object(writer);
    alea__json_end_array(writer);
}

static void write_operation(const alea_api_route *at, const char *method, const char *operation,
                            alea_json_writer *writer) {
    begin_member(writer, method);
    alea__json_put_cstring(writer, "summary", at->summary);
    alea__json_put_cstring(writer, "operationId", operation);
    write_parameter(at->path, writer);
    if (at->body) {
        begin_member(writer, "requestBody");
        alea__json_put_bool(writer, "required", true);
        begin_member(writer, "content");
        begin_member(writer, "application/json");
        write_reference(writer, schema_name(at->body));
        alea__json_end_object(writer);
        alea__json_end_object(writer);
        alea__json_end_object(writer);
    }
    write_responses(at, writer);
    alea__json_end_object(writer);
}

static void write_route(const alea_api_route *at, alea_json_writer *writer) {
    const bool gets = strstr(at->methods, "GET") != NULL;
    char other[32];
    snprintf(other, sizeof other, "%s%s", gets ? "post_" : "", at->operation);
    begin_member(writer, at->path);
    if (gets) write_operation(at, "get", at->operation, writer);
    if (strstr(at->methods, "POST")) write_operation(at, "post", other, writer);
    alea__json_end_object(writer);
}

static void write_request(alea_api_endpoint endpoint, alea_json_writer *writer) {
    begin_member(writer, schema_name(endpoint));
    alea__json_put_cstring(writer, "type", "object");
    alea__json_key(writer, "required");
    alea__json_begin_array(writer);
    for (size_t i = 0; i < alea__api_n_fields; i++)
        if (alea__api_fields[i].required && (alea__api_fields[i].at & (unsigned)endpoint))
            alea__json_cstring(writer, alea__api_fields[i].name);
    alea__json_end_array(writer);
    begin_member(writer, "properties");
    for (size_t i = 0; i < alea__api_n_fields; i++) {
        const alea_api_field *field = &alea__api_fields[i];
        if (!(field->at & (unsigned)endpoint)) continue;
        alea__json_key(writer, field->name);
        alea__api_field_schema(field, writer);
    }
    alea__json_end_object(writer);
    alea__json_end_object(writer);
}

static void write_types(alea_json_writer *writer, const char *name, const char *first,
                        const char *second) {
    begin_member(writer, name);
    alea__json_key(writer, "type");
    alea__json_begin_array(writer);
    alea__json_cstring(writer, first);
    alea__json_cstring(writer, second);
    alea__json_end_array(writer);
    alea__json_end_object(writer);
}

static void write_error_schema(alea_json_writer *writer) {
    begin_member(writer, "Error");
    alea__json_put_cstring(writer, "type", "object");
    alea__json_key(writer, "required");
    alea__json_begin_array(writer);
    alea__json_cstring(writer, "error");
    alea__json_end_array(writer);
    begin_member(writer, "properties");
    begin_member(writer, "error");
    alea__json_put_cstring(writer, "type", "object");
    alea__json_key(writer, "required");
    alea__json_begin_array(writer);
    alea__json_cstring(writer, "message");
    alea__json_cstring(writer, "type");
    alea__json_cstring(writer, "param");
    alea__json_cstring(writer, "code");
    alea__json_end_array(writer);
    begin_member(writer, "properties");
    begin_member(writer, "message");
    alea__json_put_cstring(writer, "type", "string");
    alea__json_end_object(writer);
    begin_member(writer, "type");
    alea__json_put_cstring(writer, "type", "string");
    alea__json_end_object(writer);
    write_types(writer, "param", "string", "null");
    write_types(writer, "code", "string", "integer");
    alea__json_end_object(writer);
    alea__json_end_object(writer);
    alea__json_end_object(writer);
    alea__json_end_object(writer);
}

alea_status alea__api_openapi(alea_api_text *body) {
    alea_json_writer writer;
    alea__json_write_to_buffer(&writer, ALEA_API_BODY_BYTES_MAX);
    alea__json_begin_object(&writer);
    alea__json_put_cstring(&writer, "openapi", "3.1.0");
    begin_member(&writer, "info");
    alea__json_put_cstring(&writer, "title", "Alea");
    alea__json_put_cstring(&writer, "version", alea_version());
    alea__json_end_object(&writer);
    begin_member(&writer, "paths");
    for (size_t i = 0; i < ALEA_ROUTES; i++)
        if (!alea__api_routes[i].refused) write_route(&alea__api_routes[i], &writer);
    alea__json_end_object(&writer);
    begin_member(&writer, "components");
    begin_member(&writer, "schemas");
    write_request(ALEA_API_COMPLETIONS, &writer);
    write_request(ALEA_API_CHAT, &writer);
    write_request(ALEA_API_TOKENIZE, &writer);
    write_request(ALEA_API_DETOKENIZE, &writer);
    write_request(ALEA_API_SCORE, &writer);
    write_error_schema(&writer);
    alea__json_end_object(&writer);
    alea__json_end_object(&writer);
    alea__json_end_object(&writer);
    return alea__api_text_of(&writer, body);
}
