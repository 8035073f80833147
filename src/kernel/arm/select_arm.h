/* ARM leaves over the reference: one step, which takes over every leaf. */
#ifndef ALEA_KERNEL_ARM_SELECT_ARM_H
#define ALEA_KERNEL_ARM_SELECT_ARM_H

#include "base/cpu.h"
#include "kernel/arm/leaves_arm.h"

static inline void alea__overlay_arm(alea_kernel_table *table, uint32_t caps) {
    if (!(caps & ALEA_CAP_NEON)) return;
#define K(name, type, args) table->name = alea__##name##_neon;
    ALEA_KERNEL_LIST(K)
#undef K
}

#endif
