/* Prototypes of the x86 leaves, made from the list. */
#ifndef ALEA_KERNEL_X86_LEAVES_X86_H
#define ALEA_KERNEL_X86_LEAVES_X86_H

#include "kernel/kernel_table.h"

#define K(name, type, args)                                                                        \
    type alea__##name##_avx2 args;                                                                 \
    type alea__##name##_avx512 args;
ALEA_KERNEL_LIST(K)
#undef K

#endif
