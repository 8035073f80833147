/* Prototypes of the ARM leaves, made from the list. */
#ifndef ALEA_KERNEL_ARM_LEAVES_ARM_H
#define ALEA_KERNEL_ARM_LEAVES_ARM_H

#include "kernel/kernel_table.h"

#define K(name, type, args) type alea__##name##_neon args;
ALEA_KERNEL_LIST(K)
#undef K

#endif
