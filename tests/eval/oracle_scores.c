/*
 * What the scores of a text must be: the model's raw rows, and a log-softmax in long double by the
 * definition. It shares nothing with the code under test but the core that gives the rows.
 *
 * MODEL [THREADS]; each line of standard input is a list of token ids, each line of output has, for
 * every position from 1 on, LOGPROB:GREEDY, the logprob with 21 digits and the id of the largest
 * logit, of equal ones the smallest.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alea/core.h"
#include "core/llama/core_llama.h"

enum { CHUNK = 32, CONTEXT_STANDARD = 4096 };

static void give_up(const char *what, const char *why) {
    fprintf(stderr, "oracle_scores: %s: %s\n", what, why);
    exit(2);
}

static alea_core *open_model(const char *model, int32_t threads) {
    const bool toy = strncmp(model, "toy:", 4) == 0;
    const alea_core_api *api = toy ? alea_core_toy() : alea__core_llama();
    alea_core_options options = {.struct_bytes = sizeof options,
                                 .model = toy ? model + 4 : model,
                                 .context_tokens = toy ? 0 : CONTEXT_STANDARD,
                                 .sequences = 1,
                                 .threads = threads};
    alea_core *core = NULL;
    alea_error error = {.status = ALEA_OK, .message = ""};
    if (alea_core_open(api, &options, &core, &error) >= 0) return core;
    options.context_tokens = 0;
    if (alea_core_open(api, &options, &core, &error) < 0) give_up(model, error.message);
    return core;
}

static void tell(const float *row, int32_t vocab, int32_t token) {
    int32_t greedy = 0;
    for (int32_t i = 1; i < vocab; i++)
        if (row[i] > row[greedy]) greedy = i;
    const long double most = (long double)row[greedy];
    long double sum = 0;
    for (int32_t i = 0; i < vocab; i++)
        sum += expl((long double)row[i] - most);
    printf("%.21Lg:%d ", (long double)row[token] - most - logl(sum), greedy);
}

static void score(alea_core *core, int32_t vocab, const int32_t *tokens, int32_t n) {
    alea_error error;
    if (alea_core_sequence_trim(core, 0, 0, &error) < 0) give_up("trim", error.message);
    for (int32_t at = 0; at + 1 < n; at += CHUNK) {
        const int32_t left = n - 1 - at, length = left < CHUNK ? left : CHUNK;
        const alea_round_item item = {
            .position = at,
            .span = {.kind = ALEA_SPAN_TOKENS, .length = length, .tokens = tokens + at}};
        const alea_round round = {.items = &item, .n_items = 1};
        int32_t n_rows = 0;
        if (alea_core_run(core, &round, &n_rows, &error) < 0) give_up("round", error.message);
        for (int32_t i = 0; i < length; i++) {
            const float *row = alea_core_row(core, i);
            if (!row) give_up("round", "a row is missing");
            tell(row, vocab, tokens[at + i + 1]);
        }
    }
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc < 2) give_up("usage", "oracle_scores MODEL [THREADS]");
    alea_core *core = open_model(argv[1], argc > 2 ? atoi(argv[2]) : 0);
    alea_core_info info;
    alea_core_describe(core, &info);
    int32_t *tokens = malloc((size_t)info.context_tokens * sizeof *tokens);
    char *line = NULL;
    size_t capacity = 0;
    while (tokens && getline(&line, &capacity, stdin) > 0) {
        int32_t n = 0;
        char *at = line, *end;
        for (long id = strtol(at, &end, 10); end != at && n < info.context_tokens;
             id = strtol(at, &end, 10)) {
            if (id < 0 || id >= info.vocab) give_up("line", "an id outside the vocabulary");
            tokens[n++] = (int32_t)id;
            at = end;
        }
        score(core, info.vocab, tokens, n);
    }
    free(line);
    free(tokens);
    alea_core_close(core);
    return 0;
}
