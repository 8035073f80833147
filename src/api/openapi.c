/* /openapi.json, OpenAPI 3.1: the routes, and the request fields from the table. */
#include <string.h>

#include "api/api_parts.h"

typedef struct route {
    const char *path;
    const char *method;
    const char *summary;
    const char *operation;
    alea_api_endpoint body; /* 0: none */
    const char *answer;     /* media type */
    bool streams;
} route;

static const route routes[] = {
    {"/v1/completions", "post", "Continue prompts", "completions", ALEA_API_COMPLETIONS,
     "application/json", true},
    {"/v1/chat/completions", "post", "Answer messages", "chat", ALEA_API_CHAT, "application/json",
     true},
    {"/v1/score", "post", "Score continuations of one prompt", "score", ALEA_API_SCORE,
     "application/json", false},
    {"/v1/models", "get", "List the served models", "models", 0, "application/json", false},
    {"/tokenize", "post", "Text or messages to token ids", "tokenize", ALEA_API_TOKENIZE,
     "application/json", false},
    {"/detokenize", "post", "Token ids to text", "detokenize", ALEA_API_DETOKENIZE,
     "application/json", false},
    {"/tokenizer_info", "get", "The tokenizer's special tokens and chat template", "tokenizer", 0,
     "application/json", false},
    {"/version", "get", "The server's version", "version", 0, "application/json", false},
    {"/health", "get", "200 while the server serves, else 503", "health", 0, NULL, false},
    {"/ping", "get", "The same as /health", "ping", 0, NULL, false},
    {"/load", "get", "Requests that are being served", "load", 0, "application/json", false},
    {"/metrics", "get", "Metrics in Prometheus text", "metrics", 0, "text/plain", false},
    {"/openapi.json", "get", "This document", "openapi", 0, "application/json", false},
};

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

static void write_responses(const route *at, alea_json_writer *writer) {
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

static void write_route(const route *at, alea_json_writer *writer) {
    begin_member(writer, at->path);
    begin_member(writer, at->method);
    alea__json_put_cstring(writer, "summary", at->summary);
    alea__json_put_cstring(writer, "operationId", at->operation);
    if (at->body) {
        begin_member(writer, "requestBody");
        alea__json_key(writer, "required");
        alea__json_bool(writer, true);
        begin_member(writer, "content");
        begin_member(writer, "application/json");
        write_reference(writer, schema_name(at->body));
        alea__json_end_object(writer);
        alea__json_end_object(writer);
        alea__json_end_object(writer);
    }
    write_responses(at, writer);
    alea__json_end_object(writer);
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
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        write_route(&routes[i], &writer);
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
