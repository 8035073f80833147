/*
 * Writing the manifest of a core that hands over raw rows. Everything sits on the stack until the
 * one buffer of the result; the messages only point at each other.
 */
#include <stdlib.h>
#include <string.h>

#include "alea/core.pb-c.h"
#include "contract/scoring.h"
#include "core/manifest/manifest.h"

enum {
    INPUTS = 3, /* tokens, positions, slots: what every round has */
    GRAPHS = 4, /* prefill, decode, mixed, verify */
    BINDINGS = INPUTS + 4,
    OUTPUTS = 3
};

typedef struct graph_storage {
    Alea__Core__Graph graph;
    Alea__Core__Binding bindings[BINDINGS];
    Alea__Core__Binding *binding_list[BINDINGS];
    char *outputs[OUTPUTS];
} graph_storage;

typedef struct manifest_storage {
    Alea__Core__Manifest manifest;
    Alea__Core__Buffer buffers[ALEA_BUFFERS + INPUTS];
    Alea__Core__Buffer *buffer_list[ALEA_BUFFERS + INPUTS];
    int64_t shapes[ALEA_BUFFERS + INPUTS][4];
    graph_storage graphs[GRAPHS + ALEA_SCORED_CAPACITIES_MAX];
    Alea__Core__Graph *graph_list[GRAPHS + ALEA_SCORED_CAPACITIES_MAX];
    char core[128];
} manifest_storage;

/* The generated structs hold char * although packing only reads; none is written through. */
static char tokens_name[] = "tokens";
static char positions_name[] = "positions";
static char slots_name[] = "slots";
static char *const input_names[INPUTS] = {tokens_name, positions_name, slots_name};
static const Alea__Core__ValueSource input_sources[INPUTS] = {
    ALEA__CORE__VALUE_SOURCE__TOKEN,
    ALEA__CORE__VALUE_SOURCE__POSITION,
    ALEA__CORE__VALUE_SOURCE__SLOT,
};

static char *contract_name(alea_buffer which) {
    const alea_completion_layout any = {.capacity = 1, .tokens = 1};
    alea_buffer_shape shape;
    alea__layout_buffer(&any, which, &shape);
    return (char *)(uintptr_t)shape.name;
}

static void add_buffer(manifest_storage *s, char *name, Alea__Core__DataType type, size_t rank,
                       const int64_t *extent) {
    const size_t i = s->manifest.n_buffers++;
    alea__core__buffer__init(&s->buffers[i]);
    memcpy(s->shapes[i], extent, rank * sizeof *extent);
    s->buffers[i].name = name;
    s->buffers[i].data_type = type;
    s->buffers[i].n_shape = rank;
    s->buffers[i].shape = s->shapes[i];
    s->buffer_list[i] = &s->buffers[i];
}

static void add_binding(graph_storage *g, Alea__Core__ValueSource source, char *buffer) {
    const size_t i = g->graph.n_bindings++;
    alea__core__binding__init(&g->bindings[i]);
    g->bindings[i].source = source;
    g->bindings[i].buffer = buffer;
    g->binding_list[i] = &g->bindings[i];
}

static void add_graph(manifest_storage *s, const alea_completion_layout *layout,
                      Alea__Core__Operation operation, int32_t capacity) {
    const size_t i = s->manifest.n_graphs++;
    graph_storage *g = &s->graphs[i];
    alea__core__graph__init(&g->graph);
    g->graph.operation = operation;
    g->graph.capacity_tokens = capacity;
    g->graph.samples = true;
    g->graph.bindings = g->binding_list;
    g->graph.outputs = g->outputs;
    for (int j = 0; j < INPUTS; j++)
        add_binding(g, input_sources[j], input_names[j]);
    g->outputs[g->graph.n_outputs++] = contract_name(ALEA_BUFFER_RECORDS);
    if (layout->alternatives > 0) {
        g->outputs[g->graph.n_outputs++] = contract_name(ALEA_BUFFER_LOGPROBS);
        add_binding(g, ALEA__CORE__VALUE_SOURCE__LOGPROB_REQUESTED,
                    contract_name(ALEA_BUFFER_REQUESTED));
    }
    if (layout->token_ids) {
        add_binding(g, ALEA__CORE__VALUE_SOURCE__LOGPROB_TOKEN_ID,
                    contract_name(ALEA_BUFFER_TOKEN_IDS));
        add_binding(g, ALEA__CORE__VALUE_SOURCE__LOGPROB_TOKEN_ID_COUNT,
                    contract_name(ALEA_BUFFER_TOKEN_ID_COUNTS));
    }
    if (operation == ALEA__CORE__OPERATION__SCORED_PREFILL) {
        add_binding(g, ALEA__CORE__VALUE_SOURCE__PROMPT_TARGET_TOKEN,
                    contract_name(ALEA_BUFFER_PROMPT_TARGETS));
        g->outputs[g->graph.n_outputs++] = contract_name(ALEA_BUFFER_PROMPT_LOGPROBS);
    }
    s->graph_list[i] = &g->graph;
}

static void add_buffers(manifest_storage *s, const alea_core_info *info,
                        const alea_completion_layout *layout) {
    const int64_t round_tokens[1] = {info->round_tokens};
    for (int i = 0; i < INPUTS; i++)
        add_buffer(s, input_names[i], ALEA__CORE__DATA_TYPE__INT32, 1, round_tokens);
    for (int i = 0; i < ALEA_BUFFERS; i++) {
        alea_buffer_shape shape;
        alea__layout_buffer(layout, (alea_buffer)i, &shape);
        if (shape.rank == 0) continue;
        add_buffer(s, contract_name((alea_buffer)i),
                   shape.word == ALEA_WORD_INT64 ? ALEA__CORE__DATA_TYPE__INT64
                                                 : ALEA__CORE__DATA_TYPE__INT32,
                   (size_t)shape.rank, shape.extent);
    }
}

static void fill(manifest_storage *s, const alea_core_info *info,
                 const alea_completion_layout *layout) {
    alea__core__manifest__init(&s->manifest);
    const size_t length = strnlen(info->core ? info->core : "", sizeof s->core - 1);
    memcpy(s->core, info->core ? info->core : "", length);
    s->manifest.core_abi = ALEA_CORE_ABI;
    s->manifest.core = s->core;
    s->manifest.vocab = info->vocab;
    s->manifest.request_capacity = layout->capacity;
    s->manifest.completion_token_capacity = layout->tokens;
    s->manifest.buffers = s->buffer_list;
    s->manifest.graphs = s->graph_list;
    add_buffers(s, info, layout);
    add_graph(s, layout, ALEA__CORE__OPERATION__PREFILL, info->round_tokens);
    add_graph(s, layout, ALEA__CORE__OPERATION__DECODE, info->round_rows);
    add_graph(s, layout, ALEA__CORE__OPERATION__MIXED, info->round_tokens);
    add_graph(s, layout, ALEA__CORE__OPERATION__VERIFY, info->round_rows);
    int32_t scored[16];
    const int32_t n_scored = alea__scoring_capacities(layout->scored_rows, scored);
    for (int32_t i = 0; i < n_scored; i++)
        add_graph(s, layout, ALEA__CORE__OPERATION__SCORED_PREFILL, scored[i]);
}

alea_status alea__manifest_build(const alea_core_info *info, const alea_completion_layout *layout,
                                 alea_bytes *manifest, alea_error *error) {
    const alea_status status = alea__layout_check(layout, error);
    if (status < 0) return status;
    if (info->vocab < 1 || info->round_tokens < 1 || info->round_rows < 1)
        return alea_error_set(error, ALEA_EINVAL,
                              "core '%.64s' describes vocab %d, round_tokens %d, round_rows %d; "
                              "each is at least 1",
                              info->core ? info->core : "?", info->vocab, info->round_tokens,
                              info->round_rows);
    manifest_storage storage = {0};
    fill(&storage, info, layout);
    const size_t bytes = alea__core__manifest__get_packed_size(&storage.manifest);
    uint8_t *data = malloc(bytes);
    if (!data)
        return alea_error_set(error, ALEA_ENOMEM, "%zu bytes for a manifest were refused", bytes);
    alea__core__manifest__pack(&storage.manifest, data);
    *manifest = (alea_bytes){data, bytes};
    return ALEA_OK;
}
