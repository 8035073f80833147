/*
 * What the tests of the contract share: a bundle with two frames, rows of logits that punish being
 * read where they should not be, and an allocator that can be told to fail.
 */
#ifndef TESTS_CONTRACT_RIG_H
#define TESTS_CONTRACT_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "contract/commit.h"
#include "contract/decode.h"
#include "contract/merge.h"
#include "contract/reduce.h"
#include "contract/scoring.h"

/* A test that proves the rule `id` of docs/contract.md; check_rules.py reads these. */
#define RULE(id, test)                                                                             \
    { id " " #test, test, rig_setup, rig_teardown, NULL }

enum { RIG_CAPACITY = 6, RIG_TOKENS = 8, RIG_VOCAB = 1100, RIG_SCORED = 80, RIG_ROWS = 64 };

typedef struct rig {
    alea_completion out, prompt, decode;
    alea_frames frames;
    const float *rows[RIG_ROWS];
    alea_reduce_lane lanes[RIG_ROWS];
    alea_reduce_batch batch;
    alea_reduce_stats stats;
    alea_error error;
    void *allocated[4 * RIG_ROWS];
    int32_t n_allocated;
} rig;

int rig_setup(void **state);
int rig_teardown(void **state);

/* [vocab] of random logits in (-8, 8), followed by +inf that no reader may meet. */
float *rig_row(rig *r, uint64_t seed, int32_t vocab);

/* A row whose every element faults when it is read. */
const float *rig_unreadable(void);

/* One requesting lane. */
alea_lane rig_lane(int32_t slot, int64_t epoch);

/* Begin a frame for these lanes, which must work. */
int32_t rig_begin(rig *r, const alea_lane *lanes, int32_t n_lanes);

/* Commit `count` tokens of a slot, with budget and room to spare and no end tokens. */
void rig_emit(rig *r, alea_completion *bundle, int32_t frame, const alea_lane *lane, int32_t role,
              const int32_t *tokens, int32_t count);

/* Add a lane to the batch with its rows; the first free place of the batch is used. */
alea_reduce_lane *rig_offer(rig *r, const alea_lane *lane, const float *const *rows, int32_t n);

void rig_reduce(rig *r, alea_completion *bundle, int32_t frame);

/* log-probability by definition, in long double, over the first vocab elements. */
double rig_logprob(const float *row, int32_t vocab, int32_t token);

/* The reported value of every token, through the kernel, and the ids in the order of a report. */
void rig_order(const float *row, int32_t vocab, float *reported, int32_t *ids);

/* From now on the n-th allocation fails (1: the next); 0: none. Counts those that were made. */
extern int rig_fail_at;
extern int rig_allocations;
extern size_t rig_allocated_bytes;

#endif
