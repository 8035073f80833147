/* What rows cost: the llama core with its invariant kernels beside libllama's stock ones. */
#ifndef ALEA_CLI_BENCH_CORE_H
#define ALEA_CLI_BENCH_CORE_H

#include <stdbool.h>
#include <stdio.h>

#include "alea/base.h"

typedef struct alea_bench_core_options {
    const char *model;
    int32_t rounds;        /* runs of each case, interleaved; 0: 5 */
    int32_t prompt_tokens; /* 0: 512 */
    int32_t block_rows;    /* rows in a scoring round; 0: 64 */
    int32_t threads;       /* 0: all */
    bool json;             /* one object a line instead of a table */
    FILE *out;
} alea_bench_core_options;

/* Measures and prints; the exit status: 0, or 1 after one line on stderr. */
int alea__bench_core(const alea_bench_core_options *options);

#endif
