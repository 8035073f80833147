/* What reports and draws cost, beside the time that reading their rows takes. */
#ifndef ALEA_CLI_BENCH_OPS_H
#define ALEA_CLI_BENCH_OPS_H

#include <stdio.h>

#include "cli/cli.h"

/* Prints one line a case, JSON or a table; complains on failure. */
alea_exit alea__bench_ops(const alea_settings *settings, FILE *out);

#endif
