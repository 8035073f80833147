/*
 * The leaves as a table of pointers, made from kernel_list.h, and the choice of a table. Code
 * above takes a table as an argument, so that tests can run it on any of them.
 */
#ifndef ALEA_KERNEL_KERNEL_TABLE_H
#define ALEA_KERNEL_KERNEL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/kernel_list.h"

/* What segment_entropy adds up over a segment. */
typedef struct alea_entropy_sums {
    uint64_t mass;
    int64_t moment; /* weighted log2 of the weights, in units of 2^-24 */
} alea_entropy_sums;

typedef struct alea_kernel_table {
#define K(name, type, args) type(*name) args;
    ALEA_KERNEL_LIST(K)
#undef K
} alea_kernel_table;

#define K(name, type, args) type alea__##name##_ref args;
ALEA_KERNEL_LIST(K)
#undef K

/* The table of this machine, chosen once by alea__cpu_caps(). */
const alea_kernel_table *alea__kernels(void);

/* The plain C table: the specification, present everywhere. */
const alea_kernel_table *alea__kernels_ref(void);

/* The best table for `caps` (alea_cap bits, which the machine must have). */
void alea__kernel_select(alea_kernel_table *table, uint32_t caps);

/* Leaves in the list; the name of one; and which step of instruction sets serves it in `table`:
 * "ref", "avx2", "avx512" or "neon". For 0 <= leaf < alea__kernel_count(). */
int32_t alea__kernel_count(void);
const char *alea__kernel_name(int32_t leaf);
const char *alea__kernel_step(const alea_kernel_table *table, int32_t leaf);

#endif
