/* C++ because what it measures is: std::partial_sort over libllama's candidates. */
#include "core/llama/peers.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <vector>

#include "llama.h"

struct alea_peers {
    std::vector<llama_token_data> candidates;
};

namespace {

struct sampler_free {
    void operator()(llama_sampler *sampler) const { llama_sampler_free(sampler); }
};
using sampler_ptr = std::unique_ptr<llama_sampler, sampler_free>;

llama_token_data_array fill(alea_peers *peers, const float *logits, int32_t vocab) {
    llama_token_data *data = peers->candidates.data();
    for (llama_token id = 0; id < vocab; id++)
        data[id] = {id, logits[id], 0.0f};
    return {data, static_cast<size_t>(vocab), -1, false};
}

void add(const sampler_ptr &chain, llama_sampler *sampler) {
    llama_sampler_chain_add(chain.get(), sampler);
}

sampler_ptr filters(int32_t top_k, float top_p, float min_p) {
    sampler_ptr chain(llama_sampler_chain_init(llama_sampler_chain_default_params()));
    add(chain, llama_sampler_init_top_k(top_k));
    if (top_p < 1.0f) add(chain, llama_sampler_init_top_p(top_p, 1));
    if (min_p > 0.0f) add(chain, llama_sampler_init_min_p(min_p, 1));
    return chain;
}

} // namespace

alea_peers *alea__peers_create(int32_t vocab) {
    try {
        auto peers = std::make_unique<alea_peers>();
        peers->candidates.resize(static_cast<size_t>(vocab));
        return peers.release();
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

void alea__peers_destroy(alea_peers *peers) {
    delete peers;
}

float alea__peer_server_logprobs(alea_peers *peers, const float *logits, int32_t vocab,
                                 int32_t n_top) {
    (void)fill(peers, logits, vocab);
    auto &row = peers->candidates;
    std::partial_sort(row.begin(), row.begin() + n_top, row.begin() + vocab,
                      [](const auto &a, const auto &b) { return a.logit > b.logit; });
    float sum = 0.0f;
    for (auto entry = row.begin(); entry != row.begin() + vocab; ++entry) {
        entry->p = expf(entry->logit - row[0].logit);
        sum += entry->p;
    }
    for (auto entry = row.begin(); entry != row.begin() + vocab; ++entry)
        entry->p /= sum;
    return logf(row[static_cast<size_t>(n_top) - 1].p);
}

float alea__peer_filter(alea_peers *peers, const float *logits, int32_t vocab, int32_t top_k,
                        float top_p, float min_p) {
    auto row = fill(peers, logits, vocab);
    const auto chain = filters(top_k, top_p, min_p);
    llama_sampler_apply(chain.get(), &row);
    return static_cast<float>(row.size);
}

float alea__peer_sample(alea_peers *peers, const float *logits, int32_t vocab, int32_t top_k,
                        float top_p, float temperature) {
    auto row = fill(peers, logits, vocab);
    const auto chain = filters(top_k, top_p, 0.0f);
    add(chain, llama_sampler_init_temp(temperature));
    add(chain, llama_sampler_init_dist(1));
    llama_sampler_apply(chain.get(), &row);
    return static_cast<float>(row.data[row.selected].id);
}
