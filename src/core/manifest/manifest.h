/*
 * A core's manifest: read, checked as a whole, and reduced to what the rest of the program asks:
 * which logprobs this core can serve. Only the program has this (protobuf-c); libalea does not.
 *
 * The one thing to know: absent buffers are a smaller offer, malformed ones are an error that
 * names the buffer. Nothing in between is repaired.
 */
#ifndef ALEA_CORE_MANIFEST_MANIFEST_H
#define ALEA_CORE_MANIFEST_MANIFEST_H

#include "alea/core.h"
#include "contract/completion.h"

#define ALEA_MANIFEST_BYTES_MAX (1 << 20)
#define ALEA_SCORED_CAPACITIES_MAX 16

/* What a core offers. */
typedef struct alea_capability {
    alea_completion_layout layout; /* alternatives 0: no logprobs; scored_rows 0: no scoring */
    bool allow_logprobs;
    bool allow_token_ids;
    bool allow_prompt_logprobs;
    int32_t n_scored_capacities;
    int32_t scored_capacities[ALEA_SCORED_CAPACITIES_MAX]; /* rising; the last is layout's C */
} alea_capability;

/*
 * Parse and check a serialized manifest.
 *
 * Domain    any bytes up to ALEA_MANIFEST_BYTES_MAX; vocab: what the core describes itself to
 *           have, 0 where that is not known
 * Result    *capability
 * Errors    ALEA_EFORMAT (malformed bytes or declaration: the buffer or operation is named, with
 *           what is wrong), ALEA_EUNSUPPORTED (a core ABI), ALEA_ELIMIT, ALEA_ENOMEM: untouched
 * Memory    what is allocated is freed before the return
 * Threads   reentrant
 */
alea_status alea__manifest_check(alea_bytes manifest, int32_t vocab, alea_capability *capability,
                                 alea_error *error) ALEA_MUST_USE;

/*
 * The manifest of a core that hands over raw rows and leaves the reduction to Alea: the complete
 * bundle under `layout`, and the operations that such a core has.
 *
 * Domain    layout passed alea__layout_check; info as described by the core
 * Result    *manifest, to be freed by free(manifest->data)
 * Errors    ALEA_EINVAL, ALEA_ENOMEM: untouched
 */
alea_status alea__manifest_build(const alea_core_info *info, const alea_completion_layout *layout,
                                 alea_bytes *manifest, alea_error *error) ALEA_MUST_USE;

/*
 * What an open core offers: its own manifest where it has one, else the complete offer that its
 * description implies. `capacity` and `scored_rows` are what the runtime wants for a core without
 * a manifest; scored_rows 0 turns prompt scoring off for any core.
 */
alea_status alea__core_capability(const alea_core *core, int32_t capacity, int32_t scored_rows,
                                  alea_capability *capability, alea_error *error) ALEA_MUST_USE;

#endif
