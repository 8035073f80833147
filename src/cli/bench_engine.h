/* What the engine costs: aggregate tokens a second beside a bare loop over the same core. */
#ifndef ALEA_CLI_BENCH_ENGINE_H
#define ALEA_CLI_BENCH_ENGINE_H

#include <stdio.h>

#include "cli/cli.h"

enum { ALEA_BENCH_ROUNDS_MAX = 99 };

/* Prints one line a case, JSON or a table; complains on failure. */
alea_exit alea__bench_engine(const alea_settings *settings, FILE *out);

#endif
