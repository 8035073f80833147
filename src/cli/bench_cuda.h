/* `alea bench ops --device cuda`: the operators on a CUDA device, beside the floors of their bytes.
 */
#ifndef ALEA_CLI_BENCH_CUDA_H
#define ALEA_CLI_BENCH_CUDA_H

#include <stdio.h>

#include "cli/cli.h"

/* Prints one line a case, JSON or a table; complains on failure. */
alea_exit alea__bench_cuda(const alea_settings *settings, FILE *out);

#endif
