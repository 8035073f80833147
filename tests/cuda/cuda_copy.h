/*
 * "cuda-copy": a target of host tensors that computes on a CUDA device. It copies the memory of a
 * call over, runs the operator there and copies it back, so that every test of the operators is a
 * test of the device too: ALEA_TEST_TARGET=cuda-copy in the environment makes rig.c ask for it.
 */
#ifndef ALEA_TESTS_CUDA_CUDA_COPY_H
#define ALEA_TESTS_CUDA_CUDA_COPY_H

#include "alea/ops.h"

#define CUDA_COPY "cuda-copy"

/* Make the target known, once. ALEA_EUNSUPPORTED: there is no device, and *error says why. */
alea_status cuda_copy_register(alea_error *error);

/* The target that the environment asks for, made known; NULL: none. Skips the test where it cannot
 * be had. */
const char *cuda_copy_wanted(void);

#endif
