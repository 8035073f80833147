/* What rows cost: the llama core with its invariant kernels beside libllama's stock ones. */
#ifndef ALEA_CLI_BENCH_CORE_H
#define ALEA_CLI_BENCH_CORE_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/cli.h"

typedef struct alea_bench_core_options {
    const char *model;
    int32_t threads; /* 0: all */
    bool json;       /* one object a line instead of a table */
    FILE *out;
} alea_bench_core_options;

/* Measures and prints; complains on failure. */
alea_exit alea__bench_core(const alea_bench_core_options *options);

#endif
