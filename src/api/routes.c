/* What there is at which path: the server serves by this table, and /openapi.json describes it. */
#include "api/api.h"

#define GET "GET, HEAD"
#define POST "POST"
#define JSON "application/json"
#define KEY ALEA_NEEDS_KEY
#define MODEL (ALEA_NEEDS_KEY | ALEA_NEEDS_MODEL)
#define BODY (ALEA_NEEDS_KEY | ALEA_NEEDS_MODEL | ALEA_NEEDS_JSON)

const alea_api_route alea__api_routes[ALEA_ROUTES] = {
    [ALEA_ROUTE_COMPLETIONS] = {"/v1/completions", POST, BODY | ALEA_NEEDS_ENGINE,
                                ALEA_API_COMPLETIONS, "Continue prompts", "completions", JSON, true,
                                NULL},
    [ALEA_ROUTE_CHAT] = {"/v1/chat/completions", POST, BODY | ALEA_NEEDS_ENGINE, ALEA_API_CHAT,
                         "Answer messages", "chat", JSON, true, NULL},
    [ALEA_ROUTE_SCORE] = {"/v1/score", POST, BODY | ALEA_NEEDS_ENGINE, ALEA_API_SCORE,
                          "Score continuations, or a document", "score", JSON, false, NULL},
    [ALEA_ROUTE_MODELS] = {"/v1/models", GET, MODEL, 0, "List the served models", "models", JSON,
                           false, NULL},
    [ALEA_ROUTE_MODEL] = {"/v1/models/{model}", GET, MODEL, 0, "One of the served models", "model",
                          JSON, false, NULL},
    [ALEA_ROUTE_RESPONSES] = {"/v1/responses", POST, KEY, 0, NULL, NULL, NULL, false,
                              "this server does not offer the Responses API: use "
                              "/v1/chat/completions"},
    [ALEA_ROUTE_EMBEDDINGS] = {"/v1/embeddings", POST, KEY, 0, NULL, NULL, NULL, false,
                               "this server does not offer embeddings"},
    [ALEA_ROUTE_TOKENIZE] = {"/tokenize", POST, BODY, ALEA_API_TOKENIZE,
                             "Text or messages to token ids", "tokenize", JSON, false, NULL},
    [ALEA_ROUTE_DETOKENIZE] = {"/detokenize", POST, BODY, ALEA_API_DETOKENIZE, "Token ids to text",
                               "detokenize", JSON, false, NULL},
    [ALEA_ROUTE_TOKENIZER] = {"/tokenizer_info", GET, MODEL, 0,
                              "The tokenizer's special tokens and chat template", "tokenizer", JSON,
                              false, NULL},
    [ALEA_ROUTE_HEALTH] = {"/health", GET, 0, 0, "200 while the server serves, else 503", "health",
                           NULL, false, NULL},
    [ALEA_ROUTE_PING] = {"/ping", "GET, HEAD, POST", 0, 0, "The same as /health", "ping", NULL,
                         false, NULL},
    [ALEA_ROUTE_VERSION] = {"/version", GET, 0, 0, "The server's version", "version", JSON, false,
                            NULL},
    [ALEA_ROUTE_METRICS] = {"/metrics", GET, 0, 0, "Metrics in Prometheus text", "metrics",
                            "text/plain", false, NULL},
    [ALEA_ROUTE_LOAD] = {"/load", GET, KEY, 0, "Requests that are being served", "load", JSON,
                         false, NULL},
    [ALEA_ROUTE_OPENAPI] = {"/openapi.json", GET, 0, 0, "This document", "openapi", JSON, false,
                            NULL},
};
