/* Everything that libalea offers, in one include. */
#ifndef ALEA_ALEA_H
#define ALEA_ALEA_H

#include "alea/base.h"
#include "alea/core.h"
#include "alea/ops.h"

#endif
