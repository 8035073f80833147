/*
 * Detection. On x86 a CPUID bit alone is not believed: the system must save the wide registers
 * (XGETBV), or the first wide instruction ends the process.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/log.h"

enum { MAX_FEATURES = 24 };

/* What detection found: capability bits and the names for reports. */
typedef struct cpu_facts {
    uint32_t caps;
    int n_features;
    const char *features[MAX_FEATURES];
    char model[64];
} cpu_facts;

static void feature_add(cpu_facts *facts, const char *name, bool present) {
    if (present && facts->n_features < MAX_FEATURES) facts->features[facts->n_features++] = name;
}

#if defined(__x86_64__)
#include <cpuid.h>

typedef struct cpuid_regs {
    uint32_t eax, ebx, ecx, edx;
} cpuid_regs;

static cpuid_regs cpuid(uint32_t leaf, uint32_t subleaf) {
    cpuid_regs r = {0};
    if (!__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx)) r = (cpuid_regs){0};
    return r;
}

static bool bit(uint32_t word, int index) {
    return word >> index & 1;
}

/* XCR0: which register states the system saves. Only legal where CPUID shows OSXSAVE. */
static uint32_t xcr0(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static void cpu_detect(cpu_facts *facts) {
    const cpuid_regs l1 = cpuid(1, 0), l7 = cpuid(7, 0), l71 = cpuid(7, 1);
    const uint32_t saved = bit(l1.ecx, 27) ? xcr0() : 0;
    const bool ymm = (saved & 0x06) == 0x06;         /* XMM, YMM */
    const bool zmm = ymm && (saved & 0xe0) == 0xe0;  /* mask registers, both halves of ZMM */
    const bool tiles = (saved & 0x60000) == 0x60000; /* AMX configuration and data */

    const bool fma = ymm && bit(l1.ecx, 12), f16c = ymm && bit(l1.ecx, 29);
    const bool avx2 = ymm && bit(l7.ebx, 5);
    const bool avx512f = zmm && bit(l7.ebx, 16), avx512dq = zmm && bit(l7.ebx, 17);
    const bool avx512bw = zmm && bit(l7.ebx, 30), avx512vl = zmm && bit(l7.ebx, 31);

    if (avx2 && fma && f16c) facts->caps |= ALEA_CAP_AVX2;
    if ((facts->caps & ALEA_CAP_AVX2) && avx512f && avx512dq && avx512bw && avx512vl) {
        facts->caps |= ALEA_CAP_AVX512;
    }
    feature_add(facts, "sse4.2", bit(l1.ecx, 20));
    feature_add(facts, "avx", ymm && bit(l1.ecx, 28));
    feature_add(facts, "avx2", avx2);
    feature_add(facts, "fma", fma);
    feature_add(facts, "f16c", f16c);
    feature_add(facts, "bmi2", bit(l7.ebx, 8));
    feature_add(facts, "avx512f", avx512f);
    feature_add(facts, "avx512dq", avx512dq);
    feature_add(facts, "avx512bw", avx512bw);
    feature_add(facts, "avx512vl", avx512vl);
    feature_add(facts, "avx512vbmi", zmm && bit(l7.ecx, 1));
    feature_add(facts, "avx512vnni", zmm && bit(l7.ecx, 11));
    feature_add(facts, "avx512bf16", zmm && bit(l71.eax, 5));
    feature_add(facts, "avxvnni", ymm && bit(l71.eax, 4));
    feature_add(facts, "amx-tile", tiles && bit(l7.edx, 24));
    feature_add(facts, "amx-int8", tiles && bit(l7.edx, 25));
    feature_add(facts, "amx-bf16", tiles && bit(l7.edx, 22));

    if (cpuid(0x80000000u, 0).eax >= 0x80000004u) {
        for (uint32_t i = 0; i < 3; i++) {
            const cpuid_regs r = cpuid(0x80000002u + i, 0);
            memcpy(facts->model + 16 * i, &r, sizeof r);
        }
    }
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

/* Bits of AT_HWCAP; written out because older headers lack some of the names. */
static void cpu_detect(cpu_facts *facts) {
    const unsigned long hwcap = getauxval(AT_HWCAP);
    if (hwcap >> 1 & 1) facts->caps |= ALEA_CAP_NEON;
    feature_add(facts, "asimd", hwcap >> 1 & 1);
    feature_add(facts, "asimdhp", hwcap >> 10 & 1);
    feature_add(facts, "asimddp", hwcap >> 20 & 1);
    feature_add(facts, "sve", hwcap >> 22 & 1);
}

#else
static void cpu_detect(cpu_facts *facts) {
    (void)facts;
}
#endif

static pthread_once_t cpu_once = PTHREAD_ONCE_INIT;
static cpu_facts cpu_found;
static _Atomic uint32_t cpu_allowed = ALEA_CAP_ALL;

static void cpu_start(void) {
    cpu_detect(&cpu_found);
    const char *text = getenv("ALEA_CAPS");
    if (!text || !*text) return;
    uint32_t mask = ALEA_CAP_ALL;
    alea_error error;
    if (alea__caps_parse(text, &mask, &error) == ALEA_OK) {
        cpu_allowed = mask;
    } else {
        alea__log(ALEA_LOG_WARNING, "ALEA_CAPS is ignored: %s", error.message);
    }
}

uint32_t alea__cpu_detected(void) {
    pthread_once(&cpu_once, cpu_start);
    return cpu_found.caps;
}

uint32_t alea__cpu_caps(void) {
    const uint32_t detected = alea__cpu_detected();
    return detected & cpu_allowed;
}

void alea__cpu_mask(uint32_t mask) {
    pthread_once(&cpu_once, cpu_start); /* so that the environment cannot overrule it later */
    cpu_allowed = mask;
}

alea_status alea__caps_parse(const char *text, uint32_t *mask, alea_error *error) {
    static const struct {
        const char *name;
        uint32_t mask;
    } words[] = {
        {"ref", 0},
        {"avx2", ALEA_CAP_AVX2},
        {"avx512", ALEA_CAP_AVX2 | ALEA_CAP_AVX512},
        {"neon", ALEA_CAP_NEON},
        {"all", ALEA_CAP_ALL},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(text, words[i].name) == 0) {
            *mask = words[i].mask;
            return ALEA_OK;
        }
    }
    return alea_error_set(error, ALEA_EINVAL,
                          "\"%.32s\" is no capability; use ref, avx2, avx512, neon or all", text);
}

const char *alea__caps_name(uint32_t caps) {
    if (caps & ALEA_CAP_AVX512) return "avx512";
    if (caps & ALEA_CAP_AVX2) return "avx2";
    if (caps & ALEA_CAP_NEON) return "neon";
    return "ref";
}

void alea__cpu_features(char *text, size_t capacity) {
    pthread_once(&cpu_once, cpu_start);
    if (capacity == 0) return;
    text[0] = '\0';
    size_t used = 0;
    for (int i = 0; i < cpu_found.n_features; i++) {
        const char *gap = i ? " " : "";
        const int n = snprintf(text + used, capacity - used, "%s%s", gap, cpu_found.features[i]);
        if (n < 0 || (size_t)n >= capacity - used) return;
        used += (size_t)n;
    }
}

void alea__cpu_model(char *text, size_t capacity) {
    pthread_once(&cpu_once, cpu_start);
    const char *name = cpu_found.model;
    while (*name == ' ')
        name++; /* some vendors pad on the left, others on the right */
    size_t length = strlen(name);
    while (length && name[length - 1] == ' ')
        length--;
    if (capacity) snprintf(text, capacity, "%.*s", (int)length, name);
}
