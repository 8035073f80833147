/* The yardstick of `alea bench ops`: the largest of some floats, and nothing else. */
#ifndef ALEA_CLI_BENCH_FLOOR_H
#define ALEA_CLI_BENCH_FLOOR_H

#include <stdint.h>

/* By the widest vectors of this machine, whatever the kernels may use. For data without NaN. */
float alea__bench_scan(const float *x, int64_t n);

#endif
