/*
 * What this processor can do, as far as the kernels ask: instruction sets that the operating
 * system has also enabled, less what a mask forbids. Masks exist so that every path can be run
 * and compared on one machine.
 */
#ifndef ALEA_BASE_CPU_H
#define ALEA_BASE_CPU_H

#include <stdbool.h>

#include "alea/base.h"

enum alea_cap {
    ALEA_CAP_AVX2 = 1u << 0,   /* with FMA and F16C */
    ALEA_CAP_AVX512 = 1u << 1, /* F, BW, DQ and VL; implies ALEA_CAP_AVX2 */
    ALEA_CAP_NEON = 1u << 2    /* AArch64 Advanced SIMD */
};
#define ALEA_CAP_ALL 0xffffffffu

/* Capabilities of the machine, found once. */
uint32_t alea__cpu_detected(void);

/* Those that may be used: detected, less what alea__cpu_mask or ALEA_CAPS took away. */
uint32_t alea__cpu_caps(void);

/*
 * Allow only the capabilities in `mask` from now on; ALEA_CAP_ALL lifts every limit, that of the
 * environment included. Has effect on tables selected after it: alea__kernels() keeps its choice.
 */
void alea__cpu_mask(uint32_t mask);

/*
 * "ref", "avx2", "avx512", "neon" or "all" to a mask; a name allows everything below it too.
 * ALEA_EINVAL names a bad word and the good ones. The environment variable ALEA_CAPS is read by
 * this rule, once; a bad value there is logged and ignored, so a program that wants to refuse it
 * calls this function itself.
 */
alea_status alea__caps_parse(const char *text, uint32_t *mask, alea_error *error) ALEA_MUST_USE;

/* "avx512", "avx2", "neon" or "ref": the highest step in `caps`. */
const char *alea__caps_name(uint32_t caps);

/*
 * Instruction sets of this machine that matter for inference, separated by spaces, for reports.
 * Writes at most `capacity` bytes with the NUL.
 */
void alea__cpu_features(char *text, size_t capacity);

/* The processor's own name, "AMD EPYC …"; empty where unknown. */
void alea__cpu_model(char *text, size_t capacity);

#endif
