/*
 * A model's own rows for `alea bench ops --device cuda`: MODEL FILE. The first line of standard
 * input is a list of token ids, of which the last ROWS positions are captured. The file has their
 * number and the vocabulary, int32, then the rows, float32.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "alea/core.h"
#include "core/llama/core_llama.h"

enum { ROWS = 8, TOKENS = 512 };

static void give_up(const char *what, const char *why) {
    fprintf(stderr, "capture_rows: %s: %s\n", what, why);
    exit(2);
}

int main(int argc, char **argv) {
    if (argc != 3) give_up("usage", "capture_rows MODEL FILE");
    int tokens[TOKENS], n = 0;
    while (n < TOKENS && scanf("%d", &tokens[n]) == 1)
        n++;
    if (n < ROWS) give_up("standard input", "fewer tokens than rows");
    const alea_core_options options = {
        .struct_bytes = sizeof options, .model = argv[1], .context_tokens = TOKENS, .sequences = 1};
    alea_core *core = NULL;
    alea_error error = {.status = ALEA_OK, .message = ""};
    if (alea_core_open(alea__core_llama(), &options, &core, &error) < 0)
        give_up(argv[1], error.message);
    alea_core_info info;
    alea_core_describe(core, &info);
    FILE *file = fopen(argv[2], "wb");
    const int32_t sizes[] = {ROWS, info.vocab};
    bool good = file && fwrite(sizes, sizeof sizes, 1, file) == 1;
    for (int at = 0; at < n && good; at++) {
        const int32_t token = tokens[at];
        const alea_round_item item = {
            .position = at, .span = {.kind = ALEA_SPAN_TOKENS, .length = 1, .tokens = &token}};
        const alea_round round = {.items = &item, .n_items = 1};
        int32_t n_rows = 0;
        if (alea_core_run(core, &round, &n_rows, &error) < 0) give_up("round", error.message);
        const float *row = alea_core_row(core, 0);
        if (at >= n - ROWS)
            good = row && fwrite(row, sizeof *row, (size_t)info.vocab, file) == (size_t)info.vocab;
    }
    if (!file || fclose(file) != 0 || !good) give_up(argv[2], "cannot be written");
    alea_core_close(core);
    return 0;
}
