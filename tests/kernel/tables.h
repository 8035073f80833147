/* The kernel tables that this machine can run, each once. */
#ifndef ALEA_TESTS_KERNEL_TABLES_H
#define ALEA_TESTS_KERNEL_TABLES_H

#include <string.h>

#include "base/cpu.h"
#include "kernel/kernel_table.h"
#ifdef ALEA_SIMDE
#include "kernel/x86/leaves_x86.h"
#endif

typedef struct test_tables {
    int n;
    const char *names[4];
    alea_kernel_table tables[4];
} test_tables;

#ifdef ALEA_SIMDE
/* The AVX-512 leaves, compiled through SIMDe for whatever this machine is. */
static inline test_tables test_tables_make(void) {
    test_tables all = {.n = 1, .names = {"avx512 by SIMDe"}};
#define K(name, type, args) all.tables[0].name = alea__##name##_avx512;
    ALEA_KERNEL_LIST(K)
#undef K
    return all;
}
#else
/* The reference first; a step that changes no leaf is left out. */
static inline test_tables test_tables_make(void) {
    static const uint32_t steps[] = {0, ALEA_CAP_AVX2, ALEA_CAP_AVX2 | ALEA_CAP_AVX512,
                                     ALEA_CAP_NEON};
    test_tables all = {.n = 0};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if ((steps[i] & ~alea__cpu_detected()) != 0) continue;
        alea_kernel_table *table = &all.tables[all.n];
        alea__kernel_select(table, steps[i]);
        if (all.n && memcmp(table, table - 1, sizeof *table) == 0) continue;
        all.names[all.n++] = alea__caps_name(steps[i]);
    }
    return all;
}
#endif

#endif
