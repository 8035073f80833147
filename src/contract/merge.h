/*
 * The merge of a mixed round: prompt and decode write private bundles, and this copies the active
 * frame of both into the shared one, choosing each slot's role once for record and payload alike.
 * The other frame may be under decoding: it is neither read nor written.
 */
#ifndef ALEA_CONTRACT_MERGE_H
#define ALEA_CONTRACT_MERGE_H

#include "contract/record.h"

/*
 * Errors    ALEA_EFORMAT: both roles claim a slot, or a record is malformed (named); nothing
 *           written. ALEA_EINVAL: the bundles differ in layout.
 * Memory    allocates nothing
 */
alea_status alea__merge(const alea_completion *prompt, const alea_completion *decode, int32_t frame,
                        alea_completion *out, alea_error *error) ALEA_MUST_USE;

#endif
