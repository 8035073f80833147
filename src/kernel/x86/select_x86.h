/* x86 leaves over the reference: each step takes over every leaf. */
#ifndef ALEA_KERNEL_X86_SELECT_X86_H
#define ALEA_KERNEL_X86_SELECT_X86_H

#include "base/cpu.h"
#include "kernel/x86/leaves_x86.h"

static inline void alea__overlay_x86(alea_kernel_table *table, uint32_t caps) {
    if (!(caps & ALEA_CAP_AVX2)) return;
#define K(name, type, args) table->name = alea__##name##_avx2;
    ALEA_KERNEL_LIST(K)
#undef K
    if (!(caps & ALEA_CAP_AVX512)) return;
#define K(name, type, args) table->name = alea__##name##_avx512;
    ALEA_KERNEL_LIST(K)
#undef K
}

#endif
