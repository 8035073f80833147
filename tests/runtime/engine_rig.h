/* An engine over the toy core, stepped by hand, and what its requests produced. */
#ifndef ALEA_TESTS_ENGINE_RIG_H
#define ALEA_TESTS_ENGINE_RIG_H

#include "runtime/engine.h"

#define RIG_TOKENS_MAX 512

/* One scored prompt position as its reader saw it. */
typedef struct rig_score {
    int32_t token;
    bool has_entry, is_greedy;
    float logprob;
    int32_t rank;
    int32_t n_alternatives;
    alea_alternative alternatives[20];
} rig_score;

/* Everything that a reader saw of one choice. */
typedef struct rig_choice {
    int32_t n;
    int32_t tokens[RIG_TOKENS_MAX];
    int32_t visible[RIG_TOKENS_MAX];
    bool entries[RIG_TOKENS_MAX];
    bool ends[RIG_TOKENS_MAX];
    float logprobs[RIG_TOKENS_MAX];
    float sampled[RIG_TOKENS_MAX];
    float masses[RIG_TOKENS_MAX];
    float entropies[RIG_TOKENS_MAX];
    int32_t ranks[RIG_TOKENS_MAX];
    bool greedy[RIG_TOKENS_MAX];
    int32_t n_alternatives[RIG_TOKENS_MAX];
    alea_alternative alternatives[RIG_TOKENS_MAX][20];
    int32_t n_scores;
    rig_score scores[RIG_TOKENS_MAX];
    alea_finish finish;
    int32_t stop;
    int32_t output_tokens;
    char message[256];
} rig_choice;

typedef struct rig {
    alea_core *core;
    alea_engine *engine;
} rig;

/* Opens a toy core and an engine; any failure is the test's. */
rig rig_open(const char *toy, int32_t slots, int32_t round_tokens, alea_engine_options options);
void rig_close(rig *r);

alea_request *rig_submit(rig *r, const int32_t *prompt, int32_t n_prompt,
                         const alea_request_params *params);

/* Read what is there into choices [n], which starts zeroed; true once all have finished. */
bool rig_read(alea_request *request, rig_choice *choices);

/* Step until the request has finished, then release it. */
void rig_finish(rig *r, alea_request *request, rig_choice *choices);

/* Take one event, in order, into what is kept of its choice. */
void rig_keep(rig_choice *choice, const alea_event *event);

/* Submit alone and finish. */
void rig_run(rig *r, const int32_t *prompt, int32_t n_prompt, const alea_request_params *params,
             rig_choice *choices);

/* Equal in everything that a client may see, bit for bit. */
void rig_assert_equal(const rig_choice *a, const rig_choice *b);

#endif
