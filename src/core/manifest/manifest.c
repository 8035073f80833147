/* Reading and checking manifests. Checks run from the whole to the part: buffers, then graphs. */
#include "core/manifest/manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "alea/core.pb-c.h"

#define PARTS_MAX 1024 /* buffers, graphs, bindings: the checks compare each with each */

typedef Alea__Core__Manifest manifest_message;
typedef Alea__Core__Graph graph_message;
typedef Alea__Core__Buffer buffer_message;

/*
 * A byte of a hostile manifest can ask for dozens of bytes of structs, so parsing has a budget of
 * its own. protobuf-c reports a refused allocation as a malformed message; `refused` tells them
 * apart.
 */
typedef struct budget {
    size_t left_bytes;
    bool refused;
} budget;

static void *budget_alloc(void *user, size_t bytes) {
    budget *b = user;
    void *memory = bytes <= b->left_bytes ? malloc(bytes) : NULL;
    if (memory)
        b->left_bytes -= bytes;
    else
        b->refused = true;
    return memory;
}

static void budget_free(void *user, void *memory) {
    (void)user;
    free(memory);
}

/* What the checks share. */
typedef struct checking {
    const manifest_message *m;
    const buffer_message *contract[ALEA_BUFFERS]; /* the declared contract buffers; NULL: absent */
    alea_completion_layout layout;
    alea_error *error;
} checking;

static const char *buffer_name(alea_buffer which) {
    const alea_completion_layout any = {.capacity = 1, .tokens = 1};
    alea_buffer_shape shape;
    alea__layout_buffer(&any, which, &shape);
    return shape.name;
}

static const buffer_message *find_buffer(const manifest_message *m, const char *name) {
    for (size_t i = 0; i < m->n_buffers; i++)
        if (strcmp(m->buffers[i]->name, name) == 0) return m->buffers[i];
    return NULL;
}

static alea_status refuse_buffer(const checking *c, const char *name, const char *what) {
    return alea_error_set(c->error, ALEA_EFORMAT, "manifest: buffer %.64s %s", name, what);
}

static const char *operation_name(Alea__Core__Operation operation) {
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value(&alea__core__operation__descriptor, (int)operation);
    return value ? value->name : "unknown";
}

static alea_status refuse_graph(const checking *c, const graph_message *g, const char *name,
                                const char *what) {
    return alea_error_set(c->error, ALEA_EFORMAT, "manifest: %s graph of %" PRId64 ": %.64s %s",
                          operation_name(g->operation), g->capacity_tokens, name, what);
}

/* --- buffers --- */

static alea_status check_any_buffer(const checking *c, const buffer_message *b) {
    if (!b->name[0]) return refuse_buffer(c, "''", "has no name");
    if (find_buffer(c->m, b->name) != b) return refuse_buffer(c, b->name, "is declared twice");
    if (b->data_type == ALEA__CORE__DATA_TYPE__DATA_TYPE_UNSPECIFIED ||
        !protobuf_c_enum_descriptor_get_value(&alea__core__data_type__descriptor,
                                              (int)b->data_type))
        return refuse_buffer(c, b->name, "has no known data type");
    if (b->n_shape == 0 || b->n_shape > 8)
        return refuse_buffer(c, b->name, "has a rank outside 1..8");
    for (size_t i = 0; i < b->n_shape; i++)
        if (b->shape[i] < 1) return refuse_buffer(c, b->name, "has an extent below 1");
    return ALEA_OK;
}

/* A contract buffer against the geometry that the layout gives it. */
static alea_status check_geometry(const checking *c, alea_buffer which) {
    const buffer_message *b = c->contract[which];
    alea_buffer_shape want;
    alea__layout_buffer(&c->layout, which, &want);
    const bool wide = want.word == ALEA_WORD_INT64;
    if (b->data_type != (wide ? ALEA__CORE__DATA_TYPE__INT64 : ALEA__CORE__DATA_TYPE__INT32))
        return alea_error_set(c->error, ALEA_EFORMAT,
                              "manifest: buffer %s has data type %s, not %s", want.name,
                              protobuf_c_enum_descriptor_get_value(
                                  &alea__core__data_type__descriptor, (int)b->data_type)
                                  ->name,
                              wide ? "INT64" : "INT32");
    if (b->n_shape != (size_t)want.rank)
        return alea_error_set(c->error, ALEA_EFORMAT, "manifest: buffer %s has rank %zu, not %d",
                              want.name, b->n_shape, want.rank);
    for (int32_t i = 0; i < want.rank; i++)
        if (b->shape[i] != want.extent[i])
            return alea_error_set(c->error, ALEA_EFORMAT,
                                  "manifest: buffer %s has extent %d = %" PRId64 ", not %" PRId64,
                                  want.name, i, b->shape[i], want.extent[i]);
    return ALEA_OK;
}

/* `needed` must be there because `because` is. */
static alea_status need(const checking *c, alea_buffer because, alea_buffer needed) {
    if (!c->contract[because] || c->contract[needed]) return ALEA_OK;
    return alea_error_set(c->error, ALEA_EFORMAT, "manifest: buffer %s is missing; %s needs it",
                          buffer_name(needed), buffer_name(because));
}

static alea_status check_presence(const checking *c) {
    static const alea_buffer needs[][2] = {
        {ALEA_BUFFER_LOGPROBS, ALEA_BUFFER_RECORDS},
        {ALEA_BUFFER_LOGPROBS, ALEA_BUFFER_REQUESTED},
        {ALEA_BUFFER_REQUESTED, ALEA_BUFFER_LOGPROBS},
        {ALEA_BUFFER_TOKEN_IDS, ALEA_BUFFER_TOKEN_ID_COUNTS},
        {ALEA_BUFFER_TOKEN_ID_COUNTS, ALEA_BUFFER_TOKEN_IDS},
        {ALEA_BUFFER_TOKEN_IDS, ALEA_BUFFER_LOGPROBS},
        {ALEA_BUFFER_PROMPT_TARGETS, ALEA_BUFFER_PROMPT_LOGPROBS},
        {ALEA_BUFFER_PROMPT_LOGPROBS, ALEA_BUFFER_PROMPT_TARGETS},
        {ALEA_BUFFER_PROMPT_LOGPROBS, ALEA_BUFFER_LOGPROBS},
    };
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        const alea_status status = need(c, needs[i][0], needs[i][1]);
        if (status < 0) return status;
    }
    return ALEA_OK;
}

/* K follows from the last extent of the payload. */
static alea_status infer_alternatives(checking *c) {
    const buffer_message *b = c->contract[ALEA_BUFFER_LOGPROBS];
    if (!b) return ALEA_OK;
    c->layout.token_ids = c->contract[ALEA_BUFFER_TOKEN_IDS] != NULL;
    if (c->layout.token_ids) {
        c->layout.alternatives = ALEA_ALTERNATIVES_MAX;
        return ALEA_OK;
    }
    const int64_t words = b->shape[b->n_shape - 1];
    if (words < 4 || words > 2 + 2 * ALEA_ALTERNATIVES_MAX || words % 2 != 0)
        return alea_error_set(c->error, ALEA_EFORMAT,
                              "manifest: buffer %s has last extent %" PRId64
                              "; without id inputs it is 2+2K, 1 <= K <= 20",
                              b->name, words);
    c->layout.alternatives = (int32_t)(words - 2) / 2;
    return ALEA_OK;
}

static alea_status infer_scoring(checking *c) {
    const buffer_message *b = c->contract[ALEA_BUFFER_PROMPT_TARGETS];
    if (!b) return ALEA_OK;
    if (c->layout.alternatives != ALEA_ALTERNATIVES_MAX)
        return alea_error_set(c->error, ALEA_EFORMAT,
                              "manifest: buffer prompt_logprobs needs completion_logprobs with "
                              "K = %d, not %d",
                              ALEA_ALTERNATIVES_MAX, c->layout.alternatives);
    if (b->shape[0] > ALEA_SCORED_ROWS_MAX)
        return refuse_buffer(c, b->name, "has more rows than can be scored");
    c->layout.scored_rows = (int32_t)b->shape[0];
    return ALEA_OK;
}

static alea_status check_buffers(checking *c) {
    alea_status status = ALEA_OK;
    for (size_t i = 0; i < c->m->n_buffers && status == ALEA_OK; i++)
        status = check_any_buffer(c, c->m->buffers[i]);
    if (status < 0) return status;
    for (int i = 0; i < ALEA_BUFFERS; i++)
        c->contract[i] = find_buffer(c->m, buffer_name((alea_buffer)i));
    status = check_presence(c);
    if (status == ALEA_OK) status = infer_alternatives(c);
    if (status == ALEA_OK) status = infer_scoring(c);
    if (status == ALEA_OK) status = alea__layout_check(&c->layout, c->error);
    for (int i = 0; i < ALEA_BUFFERS && status == ALEA_OK; i++)
        if (c->contract[i]) status = check_geometry(c, (alea_buffer)i);
    return status;
}

/* --- graphs --- */

/* The sources that have a buffer of the contract behind them. */
static const struct {
    Alea__Core__ValueSource source;
    alea_buffer buffer;
} contract_sources[] = {
    {ALEA__CORE__VALUE_SOURCE__LOGPROB_REQUESTED, ALEA_BUFFER_REQUESTED},
    {ALEA__CORE__VALUE_SOURCE__LOGPROB_TOKEN_ID, ALEA_BUFFER_TOKEN_IDS},
    {ALEA__CORE__VALUE_SOURCE__LOGPROB_TOKEN_ID_COUNT, ALEA_BUFFER_TOKEN_ID_COUNTS},
    {ALEA__CORE__VALUE_SOURCE__PROMPT_TARGET_TOKEN, ALEA_BUFFER_PROMPT_TARGETS},
};
#define CONTRACT_SOURCES (sizeof contract_sources / sizeof *contract_sources)

static bool is_output(alea_buffer which) {
    return which == ALEA_BUFFER_RECORDS || which == ALEA_BUFFER_LOGPROBS ||
           which == ALEA_BUFFER_PROMPT_LOGPROBS;
}

static alea_status check_binding(const checking *c, const graph_message *g, size_t index) {
    const Alea__Core__Binding *binding = g->bindings[index];
    if (binding->source == ALEA__CORE__VALUE_SOURCE__VALUE_SOURCE_UNSPECIFIED ||
        !protobuf_c_enum_descriptor_get_value(&alea__core__value_source__descriptor,
                                              (int)binding->source))
        return refuse_graph(c, g, binding->buffer, "is bound to an unknown value");
    if (!find_buffer(c->m, binding->buffer))
        return refuse_graph(c, g, binding->buffer, "is bound but not declared");
    for (size_t i = 0; i < index; i++)
        if (g->bindings[i]->source == binding->source ||
            strcmp(g->bindings[i]->buffer, binding->buffer) == 0)
            return refuse_graph(c, g, binding->buffer, "is bound twice");
    for (int i = 0; i < ALEA_BUFFERS; i++)
        if (is_output((alea_buffer)i) && strcmp(binding->buffer, buffer_name((alea_buffer)i)) == 0)
            return refuse_graph(c, g, binding->buffer, "is an output and cannot be uploaded");
    for (size_t i = 0; i < CONTRACT_SOURCES; i++) {
        const bool source = contract_sources[i].source == binding->source;
        const bool name = strcmp(binding->buffer, buffer_name(contract_sources[i].buffer)) == 0;
        if (source != name)
            return refuse_graph(c, g, binding->buffer, "is bound to the wrong value");
    }
    return ALEA_OK;
}

static bool binds(const graph_message *g, alea_buffer which) {
    for (size_t i = 0; i < g->n_bindings; i++)
        if (strcmp(g->bindings[i]->buffer, buffer_name(which)) == 0) return true;
    return false;
}

static bool writes(const graph_message *g, alea_buffer which) {
    for (size_t i = 0; i < g->n_outputs; i++)
        if (strcmp(g->outputs[i], buffer_name(which)) == 0) return true;
    return false;
}

static alea_status check_outputs(const checking *c, const graph_message *g) {
    for (size_t i = 0; i < g->n_outputs; i++) {
        if (!find_buffer(c->m, g->outputs[i]))
            return refuse_graph(c, g, g->outputs[i], "is written but not declared");
        for (size_t j = 0; j < i; j++)
            if (strcmp(g->outputs[i], g->outputs[j]) == 0)
                return refuse_graph(c, g, g->outputs[i], "is listed twice as an output");
        for (size_t j = 0; j < CONTRACT_SOURCES; j++)
            if (strcmp(g->outputs[i], buffer_name(contract_sources[j].buffer)) == 0)
                return refuse_graph(c, g, g->outputs[i], "is an input and cannot be written");
    }
    return ALEA_OK;
}

/* Whoever samples reports, and whoever does not sample gets neither flags nor transfers. */
static alea_status check_sampling(const checking *c, const graph_message *g) {
    static const alea_buffer inputs[] = {ALEA_BUFFER_REQUESTED, ALEA_BUFFER_TOKEN_IDS,
                                         ALEA_BUFFER_TOKEN_ID_COUNTS};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        const bool bound = binds(g, inputs[i]);
        if (g->samples && c->contract[inputs[i]] && !bound)
            return refuse_graph(c, g, buffer_name(inputs[i]), "is not bound, but it samples");
        if (!g->samples && bound)
            return refuse_graph(c, g, buffer_name(inputs[i]), "is bound, but it does not sample");
    }
    static const alea_buffer outputs[] = {ALEA_BUFFER_RECORDS, ALEA_BUFFER_LOGPROBS};
    if (g->samples)
        for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
            if (c->contract[outputs[i]] && !writes(g, outputs[i]))
                return refuse_graph(c, g, buffer_name(outputs[i]),
                                    "is not written, but it samples");
    if (!g->samples && writes(g, ALEA_BUFFER_LOGPROBS))
        return refuse_graph(c, g, buffer_name(ALEA_BUFFER_LOGPROBS),
                            "is written, but it does not sample");
    return ALEA_OK;
}

static alea_status check_scored(const checking *c, const graph_message *g) {
    const bool scores = g->operation == ALEA__CORE__OPERATION__SCORED_PREFILL;
    const char *targets = buffer_name(ALEA_BUFFER_PROMPT_TARGETS);
    const char *logprobs = buffer_name(ALEA_BUFFER_PROMPT_LOGPROBS);
    if (!scores) {
        if (binds(g, ALEA_BUFFER_PROMPT_TARGETS))
            return refuse_graph(c, g, targets, "is bound, but it does not score");
        if (writes(g, ALEA_BUFFER_PROMPT_LOGPROBS))
            return refuse_graph(c, g, logprobs, "is written, but it does not score");
        return ALEA_OK;
    }
    if (!c->contract[ALEA_BUFFER_PROMPT_TARGETS])
        return refuse_graph(c, g, targets, "is not declared, but it scores");
    if (!binds(g, ALEA_BUFFER_PROMPT_TARGETS)) return refuse_graph(c, g, targets, "is not bound");
    if (!writes(g, ALEA_BUFFER_PROMPT_LOGPROBS))
        return refuse_graph(c, g, logprobs, "is not written");
    if (g->capacity_tokens > c->layout.scored_rows)
        return refuse_graph(c, g, targets, "has fewer rows than that");
    return ALEA_OK;
}

static alea_status check_graph(const checking *c, size_t index) {
    const graph_message *g = c->m->graphs[index];
    if (g->operation == ALEA__CORE__OPERATION__OPERATION_UNSPECIFIED ||
        !protobuf_c_enum_descriptor_get_value(&alea__core__operation__descriptor,
                                              (int)g->operation))
        return alea_error_set(c->error, ALEA_EFORMAT,
                              "manifest: graph %zu has operation %d, "
                              "which this program does not know",
                              index, (int)g->operation);
    if (g->capacity_tokens < 1) return refuse_graph(c, g, "its capacity", "is below 1");
    if (g->n_bindings > PARTS_MAX || g->n_outputs > PARTS_MAX)
        return refuse_graph(c, g, "the list of buffers", "is too long");
    for (size_t i = 0; i < index; i++)
        if (c->m->graphs[i]->operation == g->operation &&
            c->m->graphs[i]->capacity_tokens == g->capacity_tokens)
            return refuse_graph(c, g, "the operation", "is listed twice at this capacity");
    alea_status status = ALEA_OK;
    for (size_t i = 0; i < g->n_bindings && status == ALEA_OK; i++)
        status = check_binding(c, g, i);
    if (status == ALEA_OK) status = check_outputs(c, g);
    if (status == ALEA_OK) status = check_sampling(c, g);
    if (status == ALEA_OK) status = check_scored(c, g);
    return status;
}

static alea_status check_graphs(const checking *c) {
    bool samples = false;
    for (size_t i = 0; i < c->m->n_graphs; i++) {
        const alea_status status = check_graph(c, i);
        if (status < 0) return status;
        samples = samples || c->m->graphs[i]->samples;
    }
    if (c->contract[ALEA_BUFFER_LOGPROBS] && !samples)
        return refuse_buffer(c, buffer_name(ALEA_BUFFER_LOGPROBS), "is written by no graph");
    return ALEA_OK;
}

/* The scored capacities, rising; the largest must be the rows that the buffers have. */
static alea_status collect_scored(const checking *c, alea_capability *capability) {
    int32_t n = 0;
    for (size_t i = 0; i < c->m->n_graphs; i++) {
        const graph_message *g = c->m->graphs[i];
        if (g->operation != ALEA__CORE__OPERATION__SCORED_PREFILL) continue;
        if (n == ALEA_SCORED_CAPACITIES_MAX)
            return alea_error_set(c->error, ALEA_ELIMIT,
                                  "manifest: more than %d SCORED_PREFILL graphs",
                                  ALEA_SCORED_CAPACITIES_MAX);
        int32_t at = n++;
        for (; at > 0 && capability->scored_capacities[at - 1] > g->capacity_tokens; at--)
            capability->scored_capacities[at] = capability->scored_capacities[at - 1];
        capability->scored_capacities[at] = (int32_t)g->capacity_tokens;
    }
    if (c->contract[ALEA_BUFFER_PROMPT_TARGETS] &&
        (n == 0 || capability->scored_capacities[n - 1] != c->layout.scored_rows))
        return refuse_buffer(c, buffer_name(ALEA_BUFFER_PROMPT_TARGETS),
                             n == 0 ? "has no SCORED_PREFILL graph"
                                    : "has more rows than the largest SCORED_PREFILL graph");
    capability->n_scored_capacities = n;
    return ALEA_OK;
}

/* --- the whole --- */

static alea_status check_facts(checking *c, int32_t vocab) {
    const manifest_message *m = c->m;
    if (m->core_abi != ALEA_CORE_ABI)
        return alea_error_set(c->error, ALEA_EUNSUPPORTED,
                              "manifest: core ABI %u, this program has %u", m->core_abi,
                              ALEA_CORE_ABI);
    if (m->vocab < 1 || (vocab > 0 && m->vocab != vocab))
        return alea_error_set(c->error, ALEA_EFORMAT,
                              "manifest: vocab is %" PRId64 ", the core describes %d", m->vocab,
                              vocab);
    if (m->request_capacity < 1 || m->request_capacity > ALEA_SLOTS_MAX)
        return alea_error_set(c->error, ALEA_ELIMIT,
                              "manifest: request_capacity is %" PRId64 ", the range is 1..%d",
                              m->request_capacity, ALEA_SLOTS_MAX);
    if (m->n_buffers > PARTS_MAX || m->n_graphs > PARTS_MAX)
        return alea_error_set(c->error, ALEA_ELIMIT,
                              "manifest: %zu buffers and %zu graphs, the limit is %d of each",
                              m->n_buffers, m->n_graphs, PARTS_MAX);
    const int64_t t = m->completion_token_capacity;
    if (t < 0 || t > ALEA_COMPLETION_TOKENS_MAX)
        return alea_error_set(c->error, ALEA_ELIMIT,
                              "manifest: completion_token_capacity is %" PRId64
                              ", the range is 1..%d, 0 means %d",
                              t, ALEA_COMPLETION_TOKENS_MAX, ALEA_COMPLETION_TOKENS);
    c->layout.capacity = (int32_t)m->request_capacity;
    c->layout.tokens = t == 0 ? ALEA_COMPLETION_TOKENS : (int32_t)t;
    return ALEA_OK;
}

static alea_status check_message(const manifest_message *m, int32_t vocab,
                                 alea_capability *capability, alea_error *error) {
    checking c = {.m = m, .error = error};
    alea_capability made = {0};
    alea_status status = check_facts(&c, vocab);
    if (status == ALEA_OK) status = check_buffers(&c);
    if (status == ALEA_OK) status = check_graphs(&c);
    if (status == ALEA_OK) status = collect_scored(&c, &made);
    if (status < 0) return status;
    made.layout = c.layout;
    made.allow_logprobs = c.layout.alternatives > 0;
    made.allow_token_ids = c.layout.token_ids;
    made.allow_prompt_logprobs = c.layout.scored_rows > 0;
    *capability = made;
    return ALEA_OK;
}

alea_status alea__manifest_check(alea_bytes manifest, int32_t vocab, alea_capability *capability,
                                 alea_error *error) {
    if (manifest.length > ALEA_MANIFEST_BYTES_MAX)
        return alea_error_set(error, ALEA_ELIMIT, "manifest: %zu bytes, the limit is %d",
                              manifest.length, ALEA_MANIFEST_BYTES_MAX);
    budget b = {.left_bytes = 16 * (size_t)ALEA_MANIFEST_BYTES_MAX};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &b};
    manifest_message *m = alea__core__manifest__unpack(&allocator, manifest.length, manifest.data);
    if (!m)
        return b.refused ? alea_error_set(error, ALEA_ENOMEM, "manifest: out of memory")
                         : alea_error_set(error, ALEA_EFORMAT,
                                          "manifest: not a serialized alea.core.Manifest");
    const alea_status status = check_message(m, vocab, capability, error);
    alea__core__manifest__free_unpacked(m, &allocator);
    return status;
}

alea_status alea__core_capability(const alea_core *core, int32_t capacity, int32_t scored_rows,
                                  alea_capability *capability, alea_error *error) {
    alea_core_info info;
    alea_core_describe(core, &info);
    alea_capability made = {0};
    alea_bytes bytes = alea_core_manifest(core);
    alea_bytes built = {NULL, 0};
    alea_status status = ALEA_OK;
    if (!bytes.data) {
        const alea_completion_layout layout = alea__layout_complete(capacity, 0, scored_rows);
        status = alea__manifest_build(&info, &layout, &built, error);
        if (status < 0) return status;
        bytes = built;
    }
    status = alea__manifest_check(bytes, info.vocab, &made, error);
    free((void *)(uintptr_t)built.data);
    if (status < 0) return status;
    if (scored_rows == 0) {
        made.layout.scored_rows = 0;
        made.allow_prompt_logprobs = false;
        made.n_scored_capacities = 0;
    }
    *capability = made;
    return ALEA_OK;
}
