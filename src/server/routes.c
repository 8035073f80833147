/*
 * From a path to what serves it, by the api layer's table. Who may ask and whether there is a model
 * yet is decided here, before a body is looked at.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "server/server_parts.h"

typedef void (*serve_fn)(alea_server *server, alea_http_exchange *exchange);

static alea_bytes bytes_of(const char *text) {
    return (alea_bytes){(const uint8_t *)text, strlen(text)};
}

/* ---- answers ---- */

/* What an answer has besides what HTTP itself puts there. */
typedef struct answer_headers {
    alea_http_header items[3];
    size_t n;
    char seconds[16];
} answer_headers;

static void fill_headers(answer_headers *out, const alea_server *server,
                         const alea_http_exchange *exchange, int status) {
    const alea_visit *visit = alea__http_tag_of(exchange);
    out->n = 0;
    if (visit) out->items[out->n++] = (alea_http_header){"x-request-id", visit->id};
    if (status == 401) out->items[out->n++] = (alea_http_header){"WWW-Authenticate", "Bearer"};
    if (status != 429 && status != 503) return;
    snprintf(out->seconds, sizeof out->seconds, "%d", status == 429 ? server->retry_after_s : 1);
    out->items[out->n++] = (alea_http_header){"Retry-After", out->seconds};
}

void alea__server_answer(alea_server *server, alea_http_exchange *exchange, int status,
                         const char *content_type, alea_bytes body) {
    answer_headers extra;
    fill_headers(&extra, server, exchange, status);
    alea__http_answer(exchange, status, content_type, extra.items, extra.n, body);
}

void alea__server_give(alea_server *server, alea_http_exchange *exchange, int status,
                       alea_api_text *text) {
    answer_headers extra;
    fill_headers(&extra, server, exchange, status);
    alea__http_answer_text(exchange, status, "application/json", extra.items, extra.n, text->data,
                           text->length);
    *text = (alea_api_text){NULL, 0};
}

void alea__server_fail(alea_server *server, alea_http_exchange *exchange,
                       const alea_api_error *error) {
    char body[ALEA_API_ERROR_BYTES];
    const size_t length = alea__api_error_body(error, body);
    alea__server_answer(server, exchange, error->status, "application/json",
                        (alea_bytes){(const uint8_t *)body, length});
}

static void fail(alea_server *server, alea_http_exchange *exchange, alea_api_fault fault,
                 const char *message) {
    alea_api_error error = {.int_code = server->options.api.vllm_compat};
    alea__api_error_set(&error, fault, NULL, "%s", message);
    alea__server_fail(server, exchange, &error);
}

size_t alea__server_refusal(void *user, int status, const char *message, char *body,
                            size_t capacity) {
    const alea_server *server = user;
    char text[ALEA_API_ERROR_BYTES];
    alea_api_error error = {.int_code = server->options.api.vllm_compat};
    alea__api_error_http(&error, status, message);
    const size_t length = alea__api_error_body(&error, text);
    if (length > capacity) return 0;
    memcpy(body, text, length);
    return length;
}

/* What the api layer wrote, or that it could not. */
static void give_text(alea_server *server, alea_http_exchange *exchange, alea_status status,
                      alea_api_text *text) {
    if (status >= 0) {
        alea__server_give(server, exchange, 200, text);
        return;
    }
    alea_api_error error = {.int_code = server->options.api.vllm_compat};
    alea__api_error_of(&error, status, NULL);
    alea__server_fail(server, exchange, &error);
}

/* ---- the small endpoints ---- */

static void serve_health(alea_server *server, alea_http_exchange *exchange) {
    if (server->draining)
        fail(server, exchange, ALEA_FAULT_UNAVAILABLE, "the server is shutting down");
    else if (!server->ready)
        fail(server, exchange, ALEA_FAULT_UNAVAILABLE, "the model is loading");
    else
        alea__server_answer(server, exchange, 200, NULL, bytes_of(""));
}

static void serve_version(alea_server *server, alea_http_exchange *exchange) {
    alea_api_text text = {0};
    const alea_status status = alea__api_version(&text);
    give_text(server, exchange, status, &text);
}

static void serve_openapi(alea_server *server, alea_http_exchange *exchange) {
    alea_api_text text = {0};
    const alea_status status = alea__api_openapi(&text);
    give_text(server, exchange, status, &text);
}

static void serve_tokenizer_info(alea_server *server, alea_http_exchange *exchange) {
    alea_api_text text = {0};
    const alea_status status = alea__api_tokenizer_info(server->api, &text);
    give_text(server, exchange, status, &text);
}

static void serve_models(alea_server *server, alea_http_exchange *exchange) {
    alea_api_text text = {0};
    const alea_status status = alea__api_models(server->api, &text);
    give_text(server, exchange, status, &text);
}

static int hex_of(char letter) {
    if (letter >= '0' && letter <= '9') return letter - '0';
    letter = (char)(letter | 0x20);
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

/* "%2F" to '/'; what is no escape stays as it is. */
static size_t decode_percent(const char *text, char *out, size_t capacity) {
    size_t length = 0;
    for (; *text && length < capacity; text++) {
        const int high = text[0] == '%' ? hex_of(text[1]) : -1;
        const int low = high >= 0 ? hex_of(text[2]) : -1;
        out[length++] = low >= 0 ? (char)(high * 16 + low) : *text;
        if (low >= 0) text += 2;
    }
    return length;
}

static void serve_model(alea_server *server, alea_http_exchange *exchange) {
    char name[1024];
    const char *path = alea__http_path(exchange) + strlen("/v1/models/");
    const size_t length = decode_percent(path, name, sizeof name);
    alea_api_text text = {0};
    alea_api_error error = {.int_code = server->options.api.vllm_compat};
    const alea_status status =
        alea__api_model(server->api, (alea_bytes){(const uint8_t *)name, length}, &text, &error);
    if (status < 0)
        alea__server_fail(server, exchange, &error);
    else
        give_text(server, exchange, status, &text);
}

static void serve_load(alea_server *server, alea_http_exchange *exchange) {
    char text[48];
    snprintf(text, sizeof text, "{\"server_load\":%d}", server->n_jobs);
    alea__server_answer(server, exchange, 200, "application/json", bytes_of(text));
}

/* ?names=vllm for dashboards and autoscalers that were made for vLLM. */
static void serve_metrics(alea_server *server, alea_http_exchange *exchange) {
    alea_engine_stats engine;
    alea_http_stats http;
    alea__http_stats_read(server->http, &http);
    if (server->ready) alea__engine_stats_read(server->engine, &engine);
    const alea_metrics_sources sources = {
        .engine = server->ready ? &engine : NULL,
        .http = &http,
        .model = server->options.api.model_names[0],
        .jobs = server->n_jobs,
        .held_bytes = alea__jobs_bytes(server),
    };
    const bool vllm = strcmp(alea__http_query(exchange), "names=vllm") == 0;
    char *text = alea__metrics_text(&server->metrics, &sources, vllm);
    if (!text) {
        fail(server, exchange, ALEA_FAULT_UNAVAILABLE, "out of memory for this request");
        return;
    }
    alea__server_answer(server, exchange, 200, "text/plain; version=0.0.4; charset=utf-8",
                        bytes_of(text));
    free(text);
}

/* ---- the table ---- */

/* Those that no job serves. */
static const serve_fn serve[ALEA_ROUTES] = {
    [ALEA_ROUTE_MODELS] = serve_models,   [ALEA_ROUTE_MODEL] = serve_model,
    [ALEA_ROUTE_HEALTH] = serve_health,   [ALEA_ROUTE_PING] = serve_health,
    [ALEA_ROUTE_VERSION] = serve_version, [ALEA_ROUTE_TOKENIZER] = serve_tokenizer_info,
    [ALEA_ROUTE_METRICS] = serve_metrics, [ALEA_ROUTE_LOAD] = serve_load,
    [ALEA_ROUTE_OPENAPI] = serve_openapi,
};

static bool is_at(const char *route_path, const char *path) {
    const size_t fixed = strcspn(route_path, "{");
    if (!route_path[fixed]) return strcmp(path, route_path) == 0;
    return strncmp(path, route_path, fixed) == 0 && path[fixed];
}

/* ALEA_ROUTES: none. */
static size_t find_route(const char *path) {
    size_t i = 0;
    while (i < ALEA_ROUTES && !is_at(alea__api_routes[i].path, path))
        i++;
    return i;
}

static bool has_word(const char *list, const char *word) {
    const size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length)
        if (at[length] == ',' || at[length] == 0) return at == list || at[-1] == ' ';
    return false;
}

/* A page of another origin can send text/plain, or no type at all, without asking first; it cannot
 * send this. Browsers name the origin with every POST. */
static bool is_json(const alea_http_exchange *exchange) {
    const char *content_type = alea__http_header_of(exchange, "content-type");
    if (!content_type) return !alea__http_header_of(exchange, "origin");
    const size_t length = strcspn(content_type, "; \t");
    return (length == 16 && strncasecmp(content_type, "application/json", 16) == 0) ||
           (length > 5 && strncasecmp(content_type + length - 5, "+json", 5) == 0);
}

/* ---- a request ---- */

/* The client's own name for the request travels into logs, headers and bodies. */
static bool is_id(const char *id) {
    const size_t length = id ? strlen(id) : 0;
    if (length == 0 || length >= ALEA_VISIT_ID_BYTES) return false;
    for (const char *at = id; *at; at++)
        if (*at <= ' ' || *at > '~') return false;
    return true;
}

static alea_visit *begin_visit(alea_http_exchange *exchange) {
    alea_visit *visit = calloc(1, sizeof *visit);
    if (!visit) return NULL;
    const char *id = alea__http_header_of(exchange, "x-request-id");
    visit->id_is_theirs = is_id(id);
    if (getrandom(visit->random, sizeof visit->random, 0) != sizeof visit->random)
        visit->random[0] = alea__clock_ns();
    if (visit->id_is_theirs)
        snprintf(visit->id, sizeof visit->id, "%s", id);
    else
        snprintf(visit->id, sizeof visit->id, "%016llx%016llx",
                 (unsigned long long)visit->random[0], (unsigned long long)visit->random[1]);
    visit->route = find_route(alea__http_path(exchange));
    alea__http_tag(exchange, visit);
    return visit;
}

static void refuse_method(alea_server *server, alea_http_exchange *exchange,
                          const alea_api_route *at) {
    char body[ALEA_API_ERROR_BYTES];
    const alea_visit *visit = alea__http_tag_of(exchange);
    const alea_http_header headers[] = {{"x-request-id", visit->id}, {"Allow", at->methods}};
    alea_api_error error = {.int_code = server->options.api.vllm_compat};
    alea__api_error_set(&error, ALEA_FAULT_METHOD, NULL, "this path takes %s", at->methods);
    const size_t length = alea__api_error_body(&error, body);
    alea__http_answer(exchange, 405, "application/json", headers, 2,
                      (alea_bytes){(const uint8_t *)body, length});
}

void alea__server_request(void *user, alea_http_exchange *exchange) {
    alea_server *server = user;
    alea_visit *visit = begin_visit(exchange);
    const alea_api_route *at =
        visit && visit->route < ALEA_ROUTES ? &alea__api_routes[visit->route] : NULL;
    alea_api_error error = {.int_code = server->options.api.vllm_compat};
    if (!visit)
        fail(server, exchange, ALEA_FAULT_UNAVAILABLE, "out of memory for this request");
    else if (!at)
        fail(server, exchange, ALEA_FAULT_ROUTE,
             "there is nothing at this path; /openapi.json lists what there is");
    else if (!has_word(at->methods, alea__http_method(exchange)))
        refuse_method(server, exchange, at);
    else if ((at->needs & ALEA_NEEDS_KEY) && server->has_keys &&
             !alea__keys_admit(&server->keys, alea__http_header_of(exchange, "authorization")))
        fail(server, exchange, ALEA_FAULT_KEY,
             "a valid API key is needed: send the header 'Authorization: Bearer KEY'");
    else if (at->refused)
        fail(server, exchange, ALEA_FAULT_UNSUPPORTED, at->refused);
    else if ((at->needs & ALEA_NEEDS_ENGINE) && server->draining)
        fail(server, exchange, ALEA_FAULT_UNAVAILABLE, "the server is shutting down");
    else if ((at->needs & ALEA_NEEDS_MODEL) && !server->ready)
        fail(server, exchange, ALEA_FAULT_UNAVAILABLE, "the model is loading");
    else if ((at->needs & ALEA_NEEDS_JSON) && !is_json(exchange)) {
        alea__api_error_http(&error, 415,
                             "the Content-Type must be application/json: send the header "
                             "'Content-Type: application/json'");
        alea__server_fail(server, exchange, &error);
    } else if (at->body)
        alea__job_begin(server, exchange, visit, at->body);
    else
        serve[visit->route](server, exchange);
}

/* ---- the log ---- */

static void log_text(alea_json_writer *line, const char *name, const char *text, size_t most) {
    alea_bytes bytes = {(const uint8_t *)text, strnlen(text, most)};
    bytes.length = alea__utf8_valid_length(bytes);
    alea__json_key(line, name);
    alea__json_string(line, bytes);
}

static void log_tokens(alea_json_writer *line, const alea_visit *visit, uint64_t started_ns) {
    alea__json_put_int(line, "prompts", visit->n_prompts);
    alea__json_put_int(line, "prompt_tokens", visit->prompt_tokens);
    alea__json_put_int(line, "cached_tokens", visit->cached_tokens);
    alea__json_put_int(line, "output_tokens", visit->output_tokens);
    if (visit->first_token_ns)
        alea__json_put_int(line, "first_token_ms",
                           (int64_t)(visit->first_token_ns - started_ns) / 1000000);
    if (visit->finish) log_text(line, "finish", visit->finish, 16);
}

void alea__server_ended(void *user, const alea_http_exchange *exchange) {
    alea_server *server = user;
    alea_visit *visit = alea__http_tag_of(exchange);
    const alea_http_record record = alea__http_record_of(exchange);
    /* 499, as others have it: the client left before there was an answer. */
    const int status = record.complete || record.status ? record.status : 499;
    alea__metrics_answered(&server->metrics, visit ? visit->route : ALEA_ROUTES, status);
    alea_json_writer *line =
        alea__server_log_begin(status >= 500 ? ALEA_LOG_WARNING : ALEA_LOG_INFO, "request");
    if (line) {
        if (visit) log_text(line, "id", visit->id, sizeof visit->id);
        log_text(line, "method", alea__http_method(exchange), 16);
        log_text(line, "path", alea__http_path(exchange), 200);
        alea__json_put_int(line, "status", status);
        if (record.out_of_memory)
            log_text(line, "answer", "lost: out of memory", 32);
        else if (!record.complete)
            log_text(line, "client", "gone", 16);
        alea__json_put_int(line, "request_bytes", (int64_t)record.request_bytes);
        alea__json_put_int(line, "answer_bytes", (int64_t)record.answer_bytes);
        if (record.started_ns)
            alea__json_put_int(line, "duration_ms",
                               (int64_t)(alea__clock_ns() - record.started_ns) / 1000000);
        if (visit && visit->n_prompts > 0) log_tokens(line, visit, record.started_ns);
        alea__server_log_end(line);
    }
    free(visit);
}
