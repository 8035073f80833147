/*
 * Capabilities to a table: the reference first, then one overlay per processor family, each
 * climbing from a step to the next and leaving where the machine ends.
 */
#include <pthread.h>

#include "base/cpu.h"
#include "kernel/kernel_table.h"
#if defined(__x86_64__)
#include "kernel/x86/select_x86.h"
#elif defined(__aarch64__)
#include "kernel/arm/select_arm.h"
#endif

void alea__kernel_select(alea_kernel_table *table, uint32_t caps) {
    *table = *alea__kernels_ref();
#if defined(__x86_64__)
    alea__overlay_x86(table, caps);
#elif defined(__aarch64__)
    alea__overlay_arm(table, caps);
#else
    (void)caps;
#endif
}

const alea_kernel_table *alea__kernels_ref(void) {
    static const alea_kernel_table table = {
#define K(name, type, args) .name = alea__##name##_ref,
        ALEA_KERNEL_LIST(K)
#undef K
    };
    return &table;
}

static pthread_once_t table_once = PTHREAD_ONCE_INIT;
static alea_kernel_table table_chosen;

static void table_choose(void) {
    alea__kernel_select(&table_chosen, alea__cpu_caps());
}

const alea_kernel_table *alea__kernels(void) {
    pthread_once(&table_once, table_choose);
    return &table_chosen;
}

static const char *const kernel_names[] = {
#define K(name, type, args) #name,
    ALEA_KERNEL_LIST(K)
#undef K
};

int32_t alea__kernel_count(void) {
    return (int32_t)(sizeof kernel_names / sizeof *kernel_names);
}

const char *alea__kernel_name(int32_t leaf) {
    return kernel_names[leaf];
}

static bool same_leaf(const alea_kernel_table *a, const alea_kernel_table *b, int32_t leaf) {
    int32_t i = 0;
#define K(name, type, args)                                                                        \
    if (i++ == leaf) return a->name == b->name;
    ALEA_KERNEL_LIST(K)
#undef K
    return false;
}

const char *alea__kernel_step(const alea_kernel_table *table, int32_t leaf) {
    static const uint32_t steps[] = {0, ALEA_CAP_AVX2, ALEA_CAP_AVX2 | ALEA_CAP_AVX512,
                                     ALEA_CAP_NEON};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        alea_kernel_table candidate;
        alea__kernel_select(&candidate, steps[i]);
        if (same_leaf(table, &candidate, leaf)) return alea__caps_name(steps[i]);
    }
    return "unknown";
}
