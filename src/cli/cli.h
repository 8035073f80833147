/*
 * What the commands share: settings as the option table fills them, exit codes, the one-line
 * complaint. src/cli is the only layer that prints and exits.
 */
#ifndef ALEA_CLI_CLI_H
#define ALEA_CLI_CLI_H

#include <signal.h>
#include <stdbool.h>

#include "alea/base.h"

/* Documented in `alea help` and docs/cli.md; scripts depend on them. */
typedef enum alea_exit {
    ALEA_EXIT_OK = 0,
    ALEA_EXIT_FAILURE = 1,      /* the machine: memory, a core that fails while it runs */
    ALEA_EXIT_USAGE = 2,        /* the command line */
    ALEA_EXIT_INPUT = 3,        /* a text, a JSON line, ids */
    ALEA_EXIT_MODEL = 4,        /* the model: missing, malformed, unsupported, bad rows */
    ALEA_EXIT_OUTPUT = 5,       /* nothing more can be written */
    ALEA_EXIT_INTERRUPTED = 130 /* SIGINT or SIGTERM */
} alea_exit;

#define ALEA_LIST_MAX 64

/* What an option was given, each time. */
typedef struct alea_word_list {
    const char *words[ALEA_LIST_MAX];
    int n;
} alea_word_list;

/* Every option of every command; options.c says which command takes which. */
typedef struct alea_settings {
    bool help;
    bool version;

    const char *model;
    const char *core;
    const char *caps;
    bool fast;
    int64_t context_tokens;
    int64_t threads;

    const char *device;   /* "cpu", "cuda" */
    int64_t rounds;       /* 0: the measurement's own number */
    const char *requests; /* "1", "4", "16"; NULL: all */
    bool json;
    const char *output;
    const char *color; /* "auto", "always", "never" */
    bool progress;
    bool quiet;

    const char *text;
    const char *jsonl;
    int64_t top;
    int64_t window_tokens;
    int64_t stride_tokens;

    const char *prompt;
    bool markup;
    int64_t n;
    int64_t max_tokens;
    bool ignore_end;
    alea_word_list stops;
    int64_t parallel;
    uint64_t seed;
    bool seeded;
    double temperature;
    int64_t top_k;
    double top_p;
    double min_p;
    int64_t logprobs;

    const char *host;
    int64_t port;
    const char *unix_path;
    alea_word_list served_names;
    int64_t slots;
    const char *api_key_file;
    int64_t max_queue;
    int64_t request_mib;
    int64_t max_connections;
    int64_t drain_seconds;
    const char *cors_origin;
    const char *chat_template;
    bool trust_request_chat_template;
    bool vllm_compat;
    bool tokens_as_token_ids;
    bool refuse_unknown_fields;
    bool prompt_tokens_details;
    const char *prompt_logprobs; /* "on", "off" */
    const char *scored_cache;    /* "on", "off", "auto" */
    const char *log_level;       /* "error", "warning", "info", "debug" */
    const char *config;

    const char *const *operands;
    int n_operands;
} alea_settings;

/* Set by SIGINT and SIGTERM. A second signal ends the process at once. */
extern volatile sig_atomic_t alea__interrupted;

/* One line on stderr: "alea: …". Control characters in it are made visible. */
void alea__complain(const char *format, ...) ALEA_PRINTF(1, 2);

/* The exit code for a failure of the runtime or the core, once its line has been printed. */
alea_exit alea__exit_of(alea_status status);

alea_exit alea__cmd_score(const alea_settings *settings);
alea_exit alea__cmd_generate(const alea_settings *settings);
alea_exit alea__cmd_inspect(const alea_settings *settings);
alea_exit alea__cmd_serve(const alea_settings *settings);
alea_exit alea__cmd_bench(const alea_settings *settings);

#endif
