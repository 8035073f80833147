/*
 * What scoring cannot be faster than: libllama computing prompts in rounds like the server's, with
 * a row of logits for every position, or for the last one alone, and nobody reading them.
 *
 * MODEL PROMPTS LENGTH [THREADS]; each line of standard input is "all" or "last", each line of
 * output the wall seconds that it took.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alea/core.h"
#include "base/clock.h"
#include "core/llama/core_llama.h"

typedef struct bench {
    alea_core *core;
    alea_core_info info;
    int32_t *tokens; /* [length] */
    int32_t n_prompts, length;
} bench;

static void give_up(const char *what, const char *why) {
    fprintf(stderr, "core_rows: %s: %s\n", what, why);
    exit(2);
}

static int32_t number(const char *text) {
    const long value = strtol(text, NULL, 10);
    if (value < 0 || value > 1 << 20) give_up("not a number that makes sense", text);
    return (int32_t)value;
}

/* Ids spread over the vocabulary, others in each prompt: what they say does not change the cost. */
static void fill(bench *b, int32_t prompt) {
    for (int32_t i = 0; i < b->length; i++) {
        const uint64_t at = (uint64_t)(prompt * b->length + i);
        b->tokens[i] = (int32_t)(at * 2654435761u % (uint64_t)b->info.vocab);
    }
}

static void run_prompt(bench *b, bool all) {
    const int32_t most = all ? b->info.round_rows : b->info.round_tokens;
    alea_error error;
    if (alea_core_sequence_trim(b->core, 0, 0, &error) < 0) give_up("trim", error.message);
    for (int32_t at = 0; at < b->length;) {
        const int32_t left = b->length - at, n = left < most ? left : most;
        const alea_round_item item = {
            .position = at,
            .first_row = all         ? 0
                         : n == left ? n - 1
                                     : n,
            .span = {.kind = ALEA_SPAN_TOKENS, .length = n, .tokens = b->tokens + at}};
        int32_t n_rows = 0;
        if (alea_core_run(b->core, &(alea_round){.items = &item, .n_items = 1}, &n_rows, &error) <
            0)
            give_up("round", error.message);
        at += n;
    }
}

static double run(bench *b, bool all) {
    const uint64_t began = alea__clock_ns();
    for (int32_t i = 0; i < b->n_prompts; i++) {
        fill(b, i);
        run_prompt(b, all);
    }
    return (double)(alea__clock_ns() - began) / 1e9;
}

int main(int argc, char **argv) {
    if (argc < 4) give_up("usage", "core_rows MODEL PROMPTS LENGTH [THREADS]");
    bench b = {.n_prompts = number(argv[2]), .length = number(argv[3])};
    const alea_core_options options = {.struct_bytes = sizeof options,
                                       .model = argv[1],
                                       .context_tokens = b.length,
                                       .sequences = 4,
                                       .threads = argc > 4 ? number(argv[4]) : 0};
    alea_error error;
    if (alea_core_open(alea__core_llama(), &options, &b.core, &error) < 0)
        give_up(argv[1], error.message);
    alea_core_describe(b.core, &b.info);
    b.tokens = malloc((size_t)b.length * sizeof *b.tokens);
    if (!b.tokens) give_up("memory", "there is none left");
    char line[16];
    while (fgets(line, sizeof line, stdin)) {
        printf("%.6f\n", run(&b, strcmp(line, "all\n") == 0));
        fflush(stdout);
    }
    free(b.tokens);
    alea_core_close(b.core);
    return 0;
}
