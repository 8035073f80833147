/*
 * What is known of ggml's CPU kernels. The lists here were measured: tests/core/test_invariance.c
 * compares bits for each of them, and hunts for schedules that break them.
 */
#include "core/llama/kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "ggml-cpu.h"
#include "ggml.h"

#ifndef GGML_CPU_ALEA
#error "this ggml lacks the invariance switch: build it with tools/build-llama"
#endif

#define BIT(type) (UINT64_C(1) << (type))

/* Layouts whose one-row and many-row sums agree. */
static const uint64_t rearrangeable =
    BIT(GGML_TYPE_F32) | BIT(GGML_TYPE_F16) | BIT(GGML_TYPE_BF16) | BIT(GGML_TYPE_Q4_0) |
    BIT(GGML_TYPE_Q4_1) | BIT(GGML_TYPE_Q5_0) | BIT(GGML_TYPE_Q5_1) | BIT(GGML_TYPE_Q8_0);

/* K-quants that the AMX kernels take, if the matrix has a multiple of 32 rows. */
static const uint64_t amx_quants =
    BIT(GGML_TYPE_Q4_K) | BIT(GGML_TYPE_Q5_K) | BIT(GGML_TYPE_Q6_K) | BIT(GGML_TYPE_IQ4_XS);

/* The flags of the first processor in /proc/cpuinfo, between spaces; false: unreadable. */
static bool read_flags(char *flags, size_t capacity) {
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (file == NULL) return false;
    bool found = false;
    while (!found && fgets(flags, (int)capacity - 1, file) != NULL)
        found = strncmp(flags, "flags", 5) == 0 || strncmp(flags, "Features", 8) == 0;
    fclose(file);
    if (!found) return false;
    for (char *c = flags; *c != '\0'; c++) {
        if (*c == '\n' || *c == '\t') *c = ' ';
    }
    strcat(flags, " "); /* one byte was left for it */
    return true;
}

alea_status alea__llama_kernels_check(alea_error *error) {
    char flags[8192];
    if (!read_flags(flags, sizeof(flags))) return ALEA_OK;
    char missing[128] = "";
    size_t used = 0;
    for (const char *word = ALEA_LLAMA_FEATURES; *word != '\0';) {
        const size_t length = strcspn(word, " ");
        char wanted[34];
        snprintf(wanted, sizeof(wanted), " %.*s ", (int)(length < 31 ? length : 31), word);
        if (strstr(flags, wanted) == NULL && used + length + 1 < sizeof(missing))
            used += (size_t)snprintf(missing + used, sizeof(missing) - used, " %.*s", (int)length,
                                     word);
        word += length;
        while (*word == ' ')
            word++;
    }
    if (used == 0) return ALEA_OK;
    return alea_error_set(error, ALEA_EUNSUPPORTED,
                          "this build of libllama needs processor features that are missing "
                          "here:%s; run tools/build-llama on this machine, or with 'portable'",
                          missing);
}

bool alea__llama_kernels_may_rearrange(const alea_gguf_facts *facts) {
    if (facts->split) return false;
    const uint64_t others = facts->matrix_types & ~rearrangeable;
    if (others == 0) return true;
    const bool amx = ggml_cpu_has_amx_int8() != 0;
    return amx && (others & ~amx_quants) == 0 && (others & facts->unaligned_types) == 0;
}

bool alea__llama_kernels_invariant(const alea_gguf_facts *facts) {
    /* Experts get as many rows as the router sends them: not shown to be safe, so not promised. */
    return !facts->split && !facts->experts;
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t idle;
    int computing;
    bool invariant;
} mode = {.lock = PTHREAD_MUTEX_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER, .invariant = true};

void alea__llama_kernels_enter(bool invariant) {
    pthread_mutex_lock(&mode.lock);
    while (mode.computing > 0 && mode.invariant != invariant)
        pthread_cond_wait(&mode.idle, &mode.lock);
    if (mode.invariant != invariant) {
        ggml_cpu_alea_set_invariant(invariant);
        mode.invariant = invariant;
    }
    mode.computing++;
    pthread_mutex_unlock(&mode.lock);
}

void alea__llama_kernels_leave(void) {
    pthread_mutex_lock(&mode.lock);
    if (--mode.computing == 0) pthread_cond_broadcast(&mode.idle);
    pthread_mutex_unlock(&mode.lock);
}
