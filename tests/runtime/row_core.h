/*
 * A core whose rows a test writes down: what a sequence's row is, as a function of its first token
 * and of the position. It can also hang for a while or fail a round.
 */
#ifndef ALEA_TESTS_ROW_CORE_H
#define ALEA_TESTS_ROW_CORE_H

#include "runtime/engine_rig.h"

#define ROW_CORE_SEQUENCES 8
#define ROW_CORE_CONTEXT 256

typedef struct row_core_ways {
    int32_t vocab;
    int32_t end_token; /* -1: none */
    /* [vocab], alive until the next call for the same sequence; NULL: the core withholds it */
    const float *(*row)(int32_t first_token, int32_t position);
    int32_t hang_ms;    /* each round */
    int32_t fail_round; /* counted from 1; 0: none */
} row_core_ways;

/* An engine over such a core. `ways` is copied; one core at a time. */
rig row_core_open(const row_core_ways *ways, alea_engine_options options);

#endif
