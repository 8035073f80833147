/*
 * The numeric contract (docs/numerics.md) holds for one floating-point environment: rounding to
 * nearest even, denormals kept. Something else in the process, a library built with fast-math for
 * instance, can have changed it; programs ask here at start, and CPU operators at every run.
 */
#ifndef ALEA_BASE_FENV_CHECK_H
#define ALEA_BASE_FENV_CHECK_H

#include <stdbool.h>

#include "alea/base.h"

/* ALEA_OK, or ALEA_EUNSUPPORTED with the reason. It looks at the calling thread. */
alea_status alea__fenv_check(alea_error *error) ALEA_MUST_USE;

#endif
