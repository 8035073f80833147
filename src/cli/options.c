/*
 * The two tables, and what reads them: the parser over getopt_long and --help. Nothing about an
 * option is said anywhere else.
 */
#include "cli/options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench_engine.h"
#include "cli/config.h"

#define OPTIONS_MAX 64

const alea_command alea__commands[] = {
    {"score", ALEA_COMMAND_SCORE, "[FILE|-]…", INT32_MAX,
     "log-probability of every token of given texts",
     "Scores each FILE (- is standard input) as plain UTF-8 text: for every token but the first\n"
     "its log-probability, its rank and the best alternatives; then sums, perplexity and bits\n"
     "per byte. Texts longer than the window go through windows that overlap: each token is\n"
     "scored once, by the window that gives it most context.\n"
     "\n"
     "A line of --jsonl is one of\n"
     "  {\"id\":…,\"text\":\"…\"}\n"
     "  {\"id\":…,\"prompt\":\"…\",\"continuation\":\"…\"}\n"
     "  {\"id\":…,\"token_ids\":[…]}\n"
     "Without an id, the number of the line stands for it.",
     alea__cmd_score},
    {"generate", ALEA_COMMAND_GENERATE, "[FILE|-]", 1, "text from prompts",
     "Continues --prompt (or the text of FILE; - is standard input). Text is shown as it is\n"
     "made, coloured on a terminal by how probable each token was. The same model, prompt,\n"
     "options and seed give the same text, whatever is computed beside it.\n"
     "\n"
     "A line of --jsonl is {\"id\":…,\"prompt\":\"…\"}; results come in the order of the lines.",
     alea__cmd_generate},
    {"inspect", ALEA_COMMAND_INSPECT, "[MODEL]", 1, "what a model is, or this machine",
     "With MODEL (a GGUF file, or toy:…): the model, its tokenizer, its context and the memory\n"
     "it takes. Without: what this processor offers, which kernel serves each operation, and\n"
     "the versions that were built in.",
     alea__cmd_inspect},
    {"serve", ALEA_COMMAND_SERVE, "", 0, "an OpenAI- and vLLM-compatible HTTP server",
     "Answers POST /v1/completions, /v1/chat/completions, /v1/score, /tokenize, /detokenize,\n"
     "GET /v1/models, /health, /metrics and others; /openapi.json lists them with their fields.\n"
     "SIGTERM lets running answers finish; a second one ends at once. There is no TLS: put a\n"
     "proxy in front. Log lines (JSON, never a prompt) go to standard error.\n"
     "\n"
     "A line of --config is NAME = VALUE, a long option without its dashes; # begins a comment.\n"
     "The command line wins.",
     alea__cmd_serve},
    {"bench", ALEA_COMMAND_BENCH, "core|engine|ops", 1, "measure, beside peers and floors",
     "core: tokens per second of scoring and of decoding, beside the engine's own.\n"
     "engine: tokens per second of 1, 4 and 16 requests, beside a bare loop over the same core.\n"
     "ops: time of each operator, beside the time that reading its input takes.\n"
     "core and engine take some minutes, without a word until they have results.",
     alea__cmd_bench},
};
const size_t alea__n_commands = sizeof alea__commands / sizeof *alea__commands;

#define SCORE ALEA_COMMAND_SCORE
#define GENERATE ALEA_COMMAND_GENERATE
#define INSPECT ALEA_COMMAND_INSPECT
#define BENCH ALEA_COMMAND_BENCH
#define SERVE ALEA_COMMAND_SERVE
#define AT(field) offsetof(alea_settings, field)
#define FLAG(name, letter, commands, field, help)                                                  \
    { name, letter, ALEA_OPTION_FLAG, commands, AT(field), NULL, NULL, 0, 0, help }
#define TEXT(name, letter, commands, field, value, help)                                           \
    { name, letter, ALEA_OPTION_TEXT, commands, AT(field), value, NULL, 0, 0, help }
#define WORD(name, letter, commands, field, value, words, help)                                    \
    { name, letter, ALEA_OPTION_WORD, commands, AT(field), value, words, 0, 0, help }
#define INT(name, letter, commands, field, value, least, most, help)                               \
    { name, letter, ALEA_OPTION_INT, commands, AT(field), value, NULL, least, most, help }
#define REAL(name, letter, commands, field, value, least, most, help)                              \
    { name, letter, ALEA_OPTION_REAL, commands, AT(field), value, NULL, least, most, help }

const alea_option alea__options[] = {
    TEXT("model", 'm', SCORE | GENERATE | BENCH | SERVE, model, "FILE",
         "GGUF file, or toy:KEY=VALUE,… (default: ALEA_MODEL, else the build's own)"),
    TEXT("model", 'm', INSPECT, model, "FILE", "the same as MODEL"),
    TEXT("core", 0, SCORE | GENERATE | INSPECT | SERVE, core, "FILE",
         "shared object of a core that opens --model in its own way"),
    TEXT("text", 't', SCORE, text, "TEXT", "score TEXT"),
    TEXT("jsonl", 'l', SCORE | GENERATE, jsonl, "FILE",
         "one text or prompt for each line of FILE; - is standard input"),
    INT("top", 'k', SCORE, top, "K", 0, 20, "alternatives for each token (default 0)"),
    INT("window", 'w', SCORE, window_tokens, "N", 1, INT32_MAX,
        "tokens that one window holds (default: the context)"),
    INT("stride", 's', SCORE, stride_tokens, "N", 1, INT32_MAX,
        "tokens from one window to the next (default: half a window)"),
    TEXT("prompt", 'p', GENERATE, prompt, "TEXT", "the text to continue"),
    FLAG("markup", 0, GENERATE, markup,
         "control tokens that are written out in the prompt count as such"),
    INT("max-tokens", 'n', GENERATE, max_tokens, "N", 1, INT32_MAX / 2,
        "most tokens of a sample (default 256)"),
    INT("n", 0, GENERATE, n, "N", 1, 65536, "samples (default 1)"),
    {"seed", 's', ALEA_OPTION_SEED, GENERATE, AT(seed), "N", NULL, 0, 0,
     "0..2^64-1 (default: drawn at random and reported)"},
    REAL("temperature", 'T', GENERATE, temperature, "X", 0, (double)INFINITY,
         "0 takes the best token (default 1)"),
    INT("top-k", 0, GENERATE, top_k, "N", 0, INT32_MAX, "draw from the N best; 0: all (default 0)"),
    REAL("top-p", 0, GENERATE, top_p, "X", 0, 1,
         "draw from the best that hold this mass, more than 0 (default 1)"),
    REAL("min-p", 0, GENERATE, min_p, "X", 0, 1,
         "draw from tokens at least X times as probable as the best (default 0)"),
    INT("logprobs", 'k', GENERATE, logprobs, "K", 0, 20,
        "alternatives for each token; without --json, a table (default: none)"),
    {"stop", 0, ALEA_OPTION_LIST, GENERATE, AT(stops), "TEXT", NULL, 0, 0,
     "end before TEXT; may be given several times"},
    INT("parallel", 0, GENERATE, parallel, "N", 1, 64,
        "samples that are computed at once; changes none of them (default 4)"),
    FLAG("ignore-end", 0, GENERATE, ignore_end, "do not stop at the model's end tokens"),
    TEXT("host", 0, SERVE, host, "NAME", "address to listen on (default 127.0.0.1)"),
    INT("port", 'p', SERVE, port, "N", 0, 65535, "0: any free one (default 8000)"),
    TEXT("unix", 'u', SERVE, unix_path, "PATH",
         "listen on a unix socket; on TCP too if --host is given"),
    {"served-model-name", 0, ALEA_OPTION_LIST, SERVE, AT(served_names), "NAME", NULL, 0, 0,
     "what clients call the model; may be given several times (default: the file's name)"},
    INT("slots", 'n', SERVE, slots, "N", 1, 4096, "answers that are computed at once (default 4)"),
    INT("ctx", 0, SERVE, context_tokens, "N", 1, INT32_MAX, "the same as --context"),
    TEXT("api-key-file", 0, SERVE, api_key_file, "FILE",
         "a key a line; requests must carry one (default: none is needed)"),
    INT("max-queue", 0, SERVE, max_queue, "N", 0, 65536,
        "requests that may wait for a slot; beyond it 429 (default 256)"),
    INT("request-memory", 0, SERVE, request_mib, "MIB", 1, 1 << 20,
        "memory that requests may hold together; beyond it 503 (default 1024)"),
    INT("max-connections", 0, SERVE, max_connections, "N", 1, 1000000,
        "open at once (default 16384, less where descriptors are fewer)"),
    INT("drain", 0, SERVE, drain_seconds, "SECONDS", 0, 86400,
        "time for running answers after SIGTERM (default 30)"),
    TEXT("cors-origin", 0, SERVE, cors_origin, "ORIGIN",
         "pages that may ask: one origin, * or none (default *)"),
    TEXT("chat-template", 0, SERVE, chat_template, "FILE", "instead of the model's own"),
    FLAG("trust-request-chat-template", 0, SERVE, trust_request_chat_template,
         "let requests bring a chat_template"),
    FLAG("vllm-compat", 0, SERVE, vllm_compat,
         "vLLM's own ways wherever a request does not say; docs/api.md lists them"),
    FLAG("tokens-as-token-ids", 0, SERVE, tokens_as_token_ids,
         "return_tokens_as_token_ids wherever a request does not say"),
    FLAG("refuse-unknown-fields", 0, SERVE, refuse_unknown_fields,
         "400 for a field that nobody knows (default: it is ignored)"),
    FLAG("prompt-tokens-details", 0, SERVE, prompt_tokens_details,
         "say in usage how many prompt tokens were cached"),
    WORD("prompt-logprobs", 0, SERVE, prompt_logprobs, "on|off", "on off",
         "echo with logprobs, prompt_logprobs, /v1/score; off takes no memory (default on)"),
    WORD("scored-cache", 0, SERVE, scored_cache, "on|off|auto", "on off auto",
         "keep the scores of prompts for later ones (default auto: where that is exact)"),
    WORD("log-level", 0, SERVE, log_level, "LEVEL", "error warning info debug",
         "error, warning, info (default: a line for each request) or debug"),
    TEXT("config", 0, SERVE, config, "FILE", "read options from FILE"),
    FLAG("json", 'j', SCORE | GENERATE | INSPECT | BENCH, json, "one JSON object a line"),
    TEXT("output", 'o', SCORE | GENERATE | INSPECT, output, "FILE",
         "write to FILE, which appears when all is done"),
    INT("context", 'c', SCORE | GENERATE | INSPECT | BENCH | SERVE, context_tokens, "N", 1,
        INT32_MAX, "tokens that a sequence can hold (default: the model's, at most 4096)"),
    WORD("device", 0, BENCH, device, "NAME", "cpu cuda", "of ops: cpu (default) or cuda"),
    INT("rounds", 0, BENCH, rounds, "N", 1, ALEA_BENCH_ROUNDS_MAX, "of engine: rounds (default 9)"),
    WORD("requests", 0, BENCH, requests, "N", "1 4 16",
         "of engine: so many at once (default: each)"),
    INT("threads", 0, SCORE | GENERATE | BENCH | SERVE, threads, "N", 1, 1024,
        "threads (default: processors that may be used)"),
    FLAG("fast", 0, SCORE | GENERATE | INSPECT | SERVE, fast,
         "the engine's choice of kernels: results may depend on how a text was cut"),
    {"caps", 0, ALEA_OPTION_TEXT, ALEA_COMMAND_ALL, AT(caps), "NAME", "ref avx2 avx512 neon all", 0,
     0, "highest instruction set of Alea's kernels: ref, avx2, avx512, neon, all"},
    WORD("color", 0, SCORE | GENERATE, color, "WHEN", "auto always never",
         "auto (default), always or never"),
    FLAG("progress", 0, SCORE, progress, "a line a second on stderr when it is no terminal"),
    FLAG("quiet", 'q', SCORE | GENERATE | SERVE, quiet, "no progress bar, no notes"),
    FLAG("help", 'h', ALEA_COMMAND_ALL, help, "this text"),
};
const size_t alea__n_options = sizeof alea__options / sizeof *alea__options;

const alea_command *alea__command_find(const char *name) {
    for (size_t i = 0; i < alea__n_commands; i++)
        if (strcmp(alea__commands[i].name, name) == 0) return &alea__commands[i];
    return NULL;
}

static alea_settings defaults(void) {
    return (alea_settings){.color = "auto",
                           .device = "cpu",
                           .n = 1,
                           .max_tokens = 256,
                           .temperature = 1,
                           .top_p = 1,
                           .logprobs = -1,
                           .parallel = 4,
                           .port = 8000,
                           .slots = 4,
                           .max_queue = 256,
                           .request_mib = 1024,
                           .drain_seconds = 30,
                           .cors_origin = "*",
                           .prompt_logprobs = "on",
                           .scored_cache = "auto",
                           .log_level = "info"};
}

static alea_exit refuse(const alea_option *option, const char *text) {
    switch (option->kind) {
    case ALEA_OPTION_INT:
        if (option->most >= (double)INT32_MAX)
            alea__complain("--%s is '%s', it must be an integer of at least %.0f", option->name,
                           text, option->least);
        else
            alea__complain("--%s is '%s', it must be an integer in %.0f..%.0f", option->name, text,
                           option->least, option->most);
        break;
    case ALEA_OPTION_REAL:
        if (isinf(option->most))
            alea__complain("--%s is '%s', it must be a finite number of at least %g", option->name,
                           text, option->least);
        else
            alea__complain("--%s is '%s', it must be a number in %g..%g", option->name, text,
                           option->least, option->most);
        break;
    case ALEA_OPTION_LIST:
        alea__complain(*text ? "--%s is given more than %d times"
                             : "--%s is empty, it must have at least one character",
                       option->name, ALEA_LIST_MAX);
        break;
    case ALEA_OPTION_TEXT:
        alea__complain("--%s is empty, it must name a file", option->name);
        break;
    case ALEA_OPTION_SEED:
        alea__complain("--%s is '%s', it must be an integer in 0..18446744073709551615",
                       option->name, text);
        break;
    default:
        alea__complain("--%s is '%s', it must be one of: %s", option->name, text, option->words);
    }
    return ALEA_EXIT_USAGE;
}

static bool read_int(const char *text, const alea_option *option, void *field) {
    char *end;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end) return false;
    if ((double)value < option->least || (double)value > option->most) return false;
    *(int64_t *)field = (int64_t)value;
    return true;
}

static bool read_seed(const char *text, uint64_t *seed) {
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (errno || end == text || *end || strchr(text, '-')) return false;
    *seed = (uint64_t)value;
    return true;
}

static bool read_real(const char *text, const alea_option *option, void *field) {
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value)) return false;
    if (value != 0 && (float)value == 0.0f) return false; /* used as float32: it would be 0 */
    if (value < option->least || value > option->most) return false;
    *(double *)field = value;
    return true;
}

static bool add_word(const char *text, alea_word_list *list) {
    if (!*text || list->n == ALEA_LIST_MAX) return false;
    list->words[list->n++] = text;
    return true;
}

static bool is_word(const char *words, const char *text) {
    const size_t length = strlen(text);
    for (const char *at = words; *at;) {
        const size_t word = strcspn(at, " ");
        if (word == length && memcmp(at, text, length) == 0) return true;
        at += word + (at[word] == ' ');
    }
    return false;
}

bool alea__option_names_file(const alea_option *option) {
    return option->value &&
           (strcmp(option->value, "FILE") == 0 || strcmp(option->value, "PATH") == 0);
}

alea_exit alea__option_store(const alea_option *option, const char *text, alea_settings *settings) {
    void *field = (char *)settings + option->offset;
    bool good = true;
    switch (option->kind) {
    case ALEA_OPTION_FLAG: *(bool *)field = true; break;
    case ALEA_OPTION_TEXT:
        good = *text || !alea__option_names_file(option); /* no file has no name */
        *(const char **)field = text;
        break;
    case ALEA_OPTION_LIST: good = add_word(text, field); break;
    case ALEA_OPTION_WORD:
        good = is_word(option->words, text);
        if (good) *(const char **)field = text;
        break;
    case ALEA_OPTION_INT: good = read_int(text, option, field); break;
    case ALEA_OPTION_SEED:
        good = read_seed(text, field);
        settings->seeded = true;
        break;
    case ALEA_OPTION_REAL: good = read_real(text, option, field); break;
    }
    return good ? ALEA_EXIT_OK : refuse(option, text);
}

const alea_option *alea__option_find(const alea_command *command, const char *name, size_t length) {
    for (size_t i = 0; i < alea__n_options; i++) {
        const alea_option *option = &alea__options[i];
        if ((option->commands & command->bit) && strlen(option->name) == length &&
            memcmp(option->name, name, length) == 0)
            return option;
    }
    return NULL;
}

/* Letters to put in, leave out or change to make one of the other; beyond MOST, many. */
static size_t distance(const char *a, size_t n_a, const char *b) {
    enum { MOST = 40 };
    size_t row[MOST + 1];
    const size_t n_b = strlen(b);
    if (n_a > MOST || n_b > MOST) return MOST;
    for (size_t j = 0; j <= n_b; j++)
        row[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            const size_t changed = corner + (a[i - 1] != b[j - 1]);
            const size_t added = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            corner = row[j];
            row[j] = changed < added ? changed : added;
        }
    }
    return row[n_b];
}

/* What was meant by a name that the command does not have; NULL: who knows. */
static const alea_option *nearest(const alea_command *command, const char *name, size_t length) {
    /* The same thing under the name that it has in another command. */
    static const char *const pairs[][2] = {{"top", "logprobs"}, {"parallel", "slots"}};
    for (size_t i = 0; i < 2 * (sizeof pairs / sizeof *pairs); i++) {
        const char *const *pair = pairs[i / 2];
        const char *here = pair[i % 2], *there = pair[1 - i % 2];
        if (strlen(there) != length || memcmp(there, name, length) != 0) continue;
        const alea_option *option = alea__option_find(command, here, strlen(here));
        if (option) return option;
    }
    const alea_option *best = NULL;
    size_t least = length < 4 ? 2 : 3; /* fewer than this many slips of the hand */
    for (size_t i = 0; i < alea__n_options; i++) {
        if (!(alea__options[i].commands & command->bit)) continue;
        const size_t apart = distance(name, length, alea__options[i].name);
        if (apart >= least) continue;
        least = apart;
        best = &alea__options[i];
    }
    return best;
}

/* getopt's own messages do not name the command; these do. */
static alea_exit explain_unknown(const alea_command *command, char **argv, int code) {
    const char *word = argv[optind - 1];
    if (optopt && code == ':') {
        alea__complain("option '%s' needs a value; see alea help %s", word, command->name);
    } else if (strncmp(word, "--", 2) == 0) {
        const alea_option *meant = nearest(command, word + 2, strcspn(word + 2, "="));
        alea__complain("%s has no option '%s'%s%s; see alea help %s", command->name, word,
                       meant ? ", did you mean --" : "", meant ? meant->name : "", command->name);
    } else {
        alea__complain("%s has no option '-%c'; see alea help %s", command->name, optopt,
                       command->name);
    }
    return ALEA_EXIT_USAGE;
}

/* What getopt_long asks for, of one command's options. */
typedef struct option_table {
    struct option longs[OPTIONS_MAX + 1];
    char shorts[2 * OPTIONS_MAX + 2];
    const alea_option *chosen[OPTIONS_MAX];
    int n;
} option_table;

static void fill_table(const alea_command *command, option_table *table) {
    size_t n_short = 0;
    table->shorts[n_short++] = ':';
    for (size_t i = 0; i < alea__n_options && table->n < OPTIONS_MAX; i++) {
        const alea_option *option = &alea__options[i];
        if (!(option->commands & command->bit)) continue;
        const int takes = option->kind == ALEA_OPTION_FLAG ? no_argument : required_argument;
        table->longs[table->n] = (struct option){option->name, takes, NULL, 256 + table->n};
        if (option->letter) table->shorts[n_short++] = option->letter;
        if (option->letter && takes == required_argument) table->shorts[n_short++] = ':';
        table->chosen[table->n++] = option;
    }
}

static alea_exit read_words(const alea_command *command, const option_table *table, int argc,
                            char **argv, alea_settings *settings) {
    opterr = 0;
    optind = 0; /* glibc: begin anew, with the order of the words as it is now */
    for (int code; (code = getopt_long(argc, argv, table->shorts, table->longs, NULL)) != -1;) {
        const alea_option *option = code >= 256 ? table->chosen[code - 256] : NULL;
        for (int i = 0; !option && i < table->n; i++)
            if (table->chosen[i]->letter && table->chosen[i]->letter == code)
                option = table->chosen[i];
        if (!option) return explain_unknown(command, argv, code);
        const alea_exit exit_code = alea__option_store(option, optarg, settings);
        if (exit_code != ALEA_EXIT_OK) return exit_code;
    }
    return ALEA_EXIT_OK;
}

alea_exit alea__options_parse(const alea_command *command, int argc, char **argv,
                              alea_settings *settings) {
    option_table table = {.n = 0};
    fill_table(command, &table);
    *settings = defaults();
    alea_exit code = read_words(command, &table, argc, argv, settings);
    if (code == ALEA_EXIT_OK && settings->config && !settings->help) {
        const char *path = settings->config;
        *settings = defaults();
        code = alea__config_read(command, path, settings);
        if (code == ALEA_EXIT_OK) code = read_words(command, &table, argc, argv, settings);
    }
    if (code != ALEA_EXIT_OK) return code;
    settings->operands = (const char *const *)argv + optind;
    settings->n_operands = argc - optind;
    if (!settings->help && settings->n_operands > command->most_operands) {
        alea__complain("%s does not know what to do with '%s'; see alea help %s", command->name,
                       argv[optind + command->most_operands], command->name);
        return ALEA_EXIT_USAGE;
    }
    return ALEA_EXIT_OK;
}

const char alea__program_summary[] =
    "says how probable every token of a text was, and which comes next: exactly";

const alea_exit_code alea__exit_codes[] = {
    {ALEA_EXIT_OK, "done"},
    {ALEA_EXIT_FAILURE, "failure"},
    {ALEA_EXIT_USAGE, "command line"},
    {ALEA_EXIT_INPUT, "input data"},
    {ALEA_EXIT_MODEL, "model"},
    {ALEA_EXIT_OUTPUT, "output"},
    {ALEA_EXIT_INTERRUPTED, "interrupted"},
};
const size_t alea__n_exit_codes = sizeof alea__exit_codes / sizeof *alea__exit_codes;

const alea_variable alea__variables[] = {
    {"ALEA_MODEL", "the model"},
    {"ALEA_CAPS", "the highest instruction set"},
    {"NO_COLOR", "no colour"},
};
const size_t alea__n_variables = sizeof alea__variables / sizeof *alea__variables;

static void put_exit_codes(FILE *file) {
    fputs("exit codes:\n", file);
    for (size_t i = 0; i < alea__n_exit_codes; i++)
        fprintf(file, "  %3d  %s\n", (int)alea__exit_codes[i].code, alea__exit_codes[i].meaning);
}

void alea__options_help(FILE *file, const alea_command *command) {
    enum { LEFT_COLUMNS = 24 };
    fprintf(file, "usage: alea %s [OPTION]…%s%s\n\n%s\n\noptions:\n", command->name,
            *command->operands ? " " : "", command->operands, command->details);
    for (size_t i = 0; i < alea__n_options; i++) {
        const alea_option *option = &alea__options[i];
        if (!(option->commands & command->bit)) continue;
        char letter[8] = "    ";
        if (option->letter) snprintf(letter, sizeof letter, "-%c, ", option->letter);
        const int used = fprintf(file, "  %s--%s%s%s", letter, option->name,
                                 option->value ? " " : "", option->value ? option->value : "");
        if (used > LEFT_COLUMNS) fputc('\n', file);
        fprintf(file, "%*s  %s\n", used > LEFT_COLUMNS ? LEFT_COLUMNS : LEFT_COLUMNS - used, "",
                option->help);
    }
    fputc('\n', file);
    put_exit_codes(file);
}

void alea__commands_help(FILE *file) {
    fputs("usage: alea COMMAND [OPTION]…\n\n"
          "Says how probable every token of a text was, and which comes next: exactly.\n\n",
          file);
    for (size_t i = 0; i < alea__n_commands; i++)
        fprintf(file, "  alea %-10s %s\n", alea__commands[i].name, alea__commands[i].summary);
    fputs("  alea help COMMAND\n"
          "  alea help --man [COMMAND] | --completion bash|zsh|fish\n"
          "  alea --version\n\n",
          file);
    put_exit_codes(file);
    fputs("\nenvironment:\n", file);
    for (size_t i = 0; i < alea__n_variables; i++)
        fprintf(file, "  %-12s %s\n", alea__variables[i].name, alea__variables[i].meaning);
}
