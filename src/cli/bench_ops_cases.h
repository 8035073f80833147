/*
 * What `alea bench ops` measures: each operator through its public interface, on data that is made
 * once, and the peers beside it. The clock is bench_ops.c's.
 */
#ifndef ALEA_CLI_BENCH_OPS_CASES_H
#define ALEA_CLI_BENCH_OPS_CASES_H

#include <stdbool.h>

#include "alea/base.h"

enum { ALEA_BENCH_PEERS = 2 };

typedef struct alea_bench_data alea_bench_data;

/* Something to time; false: it failed. */
typedef bool (*alea_bench_fn)(alea_bench_data *data);

typedef struct alea_bench_peer {
    const char *name; /* NULL: none */
    alea_bench_fn run;
    /* Whether the case's operator and then the peer, just run, found the same; NULL: the peer goes
     * another way that gives something else. */
    alea_bench_fn agrees;
} alea_bench_peer;

typedef struct alea_bench_case {
    const char *name; /* operator, parameters, shape, dtype: bench/peers.py has the same names */
    alea_bench_fn run;
    alea_bench_fn floor; /* the bare maximum scan of the same data */
    int64_t bytes;       /* of its data, read once */
    bool wide;           /* on all threads; others on one */
    alea_bench_peer peers[ALEA_BENCH_PEERS];
} alea_bench_case;

extern const alea_bench_case alea__bench_cases[];
extern const int32_t alea__n_bench_cases;

/* Some 200 MB. NULL: out of memory, or an operator was refused; then *error says which. */
alea_bench_data *alea__bench_data_create(int32_t threads, alea_error *error);
void alea__bench_data_destroy(alea_bench_data *data);

#endif
