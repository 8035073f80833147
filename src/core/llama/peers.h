/*
 * What llama.cpp does with a row, for comparison in `alea bench ops`: its samplers, and the way in
 * which its server finds log-probabilities. Nothing of Alea's own work goes through here.
 */
#ifndef ALEA_CORE_LLAMA_PEERS_H
#define ALEA_CORE_LLAMA_PEERS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct alea_peers alea_peers;

/* For rows of at most `vocab` logits; NULL: out of memory. */
alea_peers *alea__peers_create(int32_t vocab);
void alea__peers_destroy(alea_peers *peers);

/*
 * All below take one row [vocab] and give a number that depends on the work, so that none of it
 * can be left out. They copy the row into candidates first, as llama.cpp's callers must.
 */

/* llama-server: candidates, partial sort of n_top, softmax over all of them in float32. */
float alea__peer_server_logprobs(alea_peers *peers, const float *logits, int32_t vocab,
                                 int32_t n_top);

/* The samplers top_k (0: none), then top_p (1: none), then min_p (0: none). */
float alea__peer_filter(alea_peers *peers, const float *logits, int32_t vocab, int32_t top_k,
                        float top_p, float min_p);

/* top_k, top_p, temp, dist: a usual chain, with a token drawn. */
float alea__peer_sample(alea_peers *peers, const float *logits, int32_t vocab, int32_t top_k,
                        float top_p, float temperature);

#ifdef __cplusplus
}
#endif
#endif
