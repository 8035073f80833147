/* `alea bench`: which measurement, and how its lines are shown. The measuring is bench_*.c's. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench_core.h"
#include "cli/bench_cuda.h"
#include "cli/bench_engine.h"
#include "cli/bench_ops.h"
#include "cli/session.h"

static alea_exit bench_core(const alea_settings *settings) {
    const alea_bench_core_options options = {
        .model = alea__model_name(settings->model),
        .threads = (int32_t)settings->threads,
        .json = settings->json,
        .out = stdout,
    };
    return alea__bench_core(&options);
}

alea_exit alea__cmd_bench(const alea_settings *settings) {
    const char *what = settings->n_operands ? settings->operands[0] : "";
    signal(SIGINT, SIG_DFL); /* a measurement holds nothing that must be finished */
    signal(SIGTERM, SIG_DFL);
    alea_exit code;
    if (strcmp(what, "core") == 0) {
        code = bench_core(settings);
    } else if (strcmp(what, "engine") == 0) {
        code = alea__bench_engine(settings, stdout);
    } else if (strcmp(what, "ops") == 0) {
        code = strcmp(settings->device, "cuda") == 0 ? alea__bench_cuda(settings, stdout)
                                                     : alea__bench_ops(settings, stdout);
    } else {
        alea__complain("bench needs to know what: core, engine or ops");
        return ALEA_EXIT_USAGE;
    }
    if (fflush(stdout) || ferror(stdout)) {
        alea__complain("cannot write to standard output: %s", strerror(errno));
        return ALEA_EXIT_OUTPUT;
    }
    return code;
}
