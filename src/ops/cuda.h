/* The CUDA module from libalea's side: opened once, when something first asks for a device. */
#ifndef ALEA_OPS_CUDA_H
#define ALEA_OPS_CUDA_H

#include <stdbool.h>

#include "alea/base.h"
#include "kernel/cuda/cuda_api.h"

/*
 * The module's table, for a device that this process can use.
 *
 * Result    NULL, and *error says in one line what is missing: the module, the driver, a device
 * Memory    the module stays open for the life of the process
 * Threads   reentrant
 */
const alea_cuda_api *alea__cuda_open(alea_error *error);

/* Whether the process has used CUDA already; costs nothing and starts nothing. */
bool alea__cuda_in_use(void);

/* For a failing CUDA call: ALEA_ENOMEM for want of memory, else ALEA_ECORE; the message begins
 * with `what`. */
alea_status alea__cuda_failed(const alea_cuda_api *api, int code, const char *what,
                              alea_error *error);

#endif
