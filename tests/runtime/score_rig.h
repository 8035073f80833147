/* Scored prompts over the toy core: prompts, parameters, and what `alea score` says of them. */
#ifndef ALEA_TESTS_SCORE_RIG_H
#define ALEA_TESTS_SCORE_RIG_H

#include "runtime/engine_rig.h"

extern const char score_toy[]; /* the model */

/* A small generator, so that a schedule can be told by its seed; a number below n. */
uint32_t score_random(uint64_t *state);
int32_t score_draw(uint64_t *state, int32_t n);

void score_fill(int32_t *tokens, int32_t n, uint64_t seed);

/* A prompt to be scored with `top` alternatives (-1: not), and an answer that ends at its budget.
 */
alea_request_params score_params(int32_t top, int32_t max_tokens);

alea_engine_options score_options(int32_t queue_tokens, alea_scored_cache cache);

/* Fills the scores of `into` with what alea__score_tokens reports on a core of its own. */
void score_reference(const char *model, const int32_t *tokens, int32_t n, int32_t top,
                     rig_choice *into);

void score_assert_equal(const rig_choice *a, const rig_choice *b);

/* Submit alone and read to the end into choices, which is emptied first. */
alea_request_usage score_run(rig *r, rig_choice *choices, const int32_t *tokens, int32_t n,
                             const alea_request_params *params);

/* Prompt positions that the engine has scored from rows. */
uint64_t score_positions(const rig *r);

#endif
