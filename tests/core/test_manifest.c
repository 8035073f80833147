/*
 * Manifests: each offer of the capability table, and each way to contradict oneself. A case starts
 * from a sound manifest, makes a few edits, and says what must come out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "alea/core.pb-c.h"
#include "core/manifest/manifest.h"

#define RULE(id, test)                                                                             \
    { id " " #test, test, NULL, NULL, NULL }

static int fail_at;

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);

void *__wrap_malloc(size_t bytes) {
    if (fail_at > 0 && --fail_at == 0) return NULL;
    return __real_malloc(bytes);
}

static const alea_core_info info = {
    .core = "test", .vocab = 500, .round_tokens = 512, .round_rows = 64};

enum { PREFILL = 1, DECODE = 2, MIXED = 3, VERIFY = 4, SCORED = 12 };

/* Which graph an edit means: the first of that operation; 0: every graph. */
typedef enum edit_kind {
    NO_EDIT,
    DROP,        /* buffer */
    RENAME,      /* buffer to "other" */
    DUPLICATE,   /* buffer */
    DATA_TYPE,   /* buffer, value */
    RANK,        /* buffer, value: cut or padded with ones */
    EXTENT,      /* buffer, index, value; index -1: the last */
    UNBIND,      /* buffer, graph */
    BIND_AS,     /* buffer, graph, value: change the source of its binding */
    BIND,        /* buffer, graph, value: add a binding */
    UNWRITE,     /* buffer, graph */
    WRITE,       /* buffer, graph */
    DROP_GRAPH,  /* graph */
    GRAPH_TWICE, /* graph: the next one becomes its equal */
    OPERATION,   /* graph, value */
    CAPACITY,    /* graph, value */
    SAMPLES,     /* graph, value */
    ABI,
    VOCAB,
    SLOTS,
    TOKENS
} edit_kind;

typedef struct edit {
    edit_kind kind;
    const char *buffer;
    int graph;
    int index;
    int64_t value;
} edit;

typedef struct malformed {
    edit edits[4];
    alea_status status;
    const char *names[2];
} malformed;

static Alea__Core__Manifest *sound(int32_t alternatives, bool ids, int32_t scored) {
    const alea_completion_layout layout = {
        .capacity = 8,
        .tokens = 8,
        .alternatives = alternatives,
        .token_ids = ids,
        .scored_rows = scored,
    };
    alea_bytes bytes;
    assert_int_equal(alea__manifest_build(&info, &layout, &bytes, NULL), ALEA_OK);
    Alea__Core__Manifest *m = alea__core__manifest__unpack(NULL, bytes.length, bytes.data);
    free((void *)(uintptr_t)bytes.data);
    assert_non_null(m);
    return m;
}

static alea_status check(const Alea__Core__Manifest *m, alea_capability *capability,
                         alea_error *error) {
    uint8_t *bytes = malloc(alea__core__manifest__get_packed_size(m) + 1);
    const size_t length = alea__core__manifest__pack(m, bytes);
    const alea_status status =
        alea__manifest_check((alea_bytes){bytes, length}, info.vocab, capability, error);
    free(bytes);
    return status;
}

static Alea__Core__Buffer **find(Alea__Core__Manifest *m, const char *name) {
    for (size_t i = 0; i < m->n_buffers; i++)
        if (strcmp(m->buffers[i]->name, name) == 0) return &m->buffers[i];
    fail_msg("no buffer %s", name);
    return NULL;
}

static void edit_buffer(Alea__Core__Manifest *m, const edit *e) {
    Alea__Core__Buffer **at = find(m, e->buffer);
    Alea__Core__Buffer *b = *at;
    switch (e->kind) {
    case DROP:
        alea__core__buffer__free_unpacked(b, NULL);
        *at = m->buffers[--m->n_buffers];
        break;
    case RENAME:
        free(b->name);
        b->name = strdup("other");
        break;
    case DUPLICATE: {
        Alea__Core__Buffer *other = m->buffers[0] == b ? m->buffers[1] : m->buffers[0];
        free(other->name);
        other->name = strdup(e->buffer);
        break;
    }
    case DATA_TYPE: b->data_type = (Alea__Core__DataType)e->value; break;
    case RANK:
        b->shape = realloc(b->shape, (size_t)(e->value + 1) * sizeof *b->shape);
        for (; b->n_shape < (size_t)e->value; b->n_shape++)
            b->shape[b->n_shape] = 1;
        b->n_shape = (size_t)e->value;
        break;
    default: b->shape[e->index < 0 ? (int)b->n_shape - 1 : e->index] = e->value; break;
    }
}

static void edit_graph(Alea__Core__Graph *g, const edit *e) {
    switch (e->kind) {
    case UNBIND:
        for (size_t i = 0; i < g->n_bindings; i++) {
            if (strcmp(g->bindings[i]->buffer, e->buffer) != 0) continue;
            alea__core__binding__free_unpacked(g->bindings[i], NULL);
            g->bindings[i] = g->bindings[--g->n_bindings];
        }
        break;
    case BIND_AS:
        for (size_t i = 0; i < g->n_bindings; i++)
            if (strcmp(g->bindings[i]->buffer, e->buffer) == 0)
                g->bindings[i]->source = (Alea__Core__ValueSource)e->value;
        break;
    case BIND: {
        Alea__Core__Binding *b = malloc(sizeof *b);
        alea__core__binding__init(b);
        b->source = (Alea__Core__ValueSource)e->value;
        b->buffer = strdup(e->buffer);
        g->bindings = realloc(g->bindings, (g->n_bindings + 1) * sizeof *g->bindings);
        g->bindings[g->n_bindings++] = b;
        break;
    }
    case UNWRITE:
        for (size_t i = 0; i < g->n_outputs; i++) {
            if (strcmp(g->outputs[i], e->buffer) != 0) continue;
            free(g->outputs[i]);
            g->outputs[i] = g->outputs[--g->n_outputs];
        }
        break;
    case WRITE:
        g->outputs = realloc(g->outputs, (g->n_outputs + 1) * sizeof *g->outputs);
        g->outputs[g->n_outputs++] = strdup(e->buffer);
        break;
    case OPERATION: g->operation = (Alea__Core__Operation)e->value; break;
    case CAPACITY: g->capacity_tokens = e->value; break;
    default: g->samples = e->value != 0; break;
    }
}

static void edit_graphs(Alea__Core__Manifest *m, const edit *e) {
    for (size_t i = 0; i < m->n_graphs; i++) {
        Alea__Core__Graph *g = m->graphs[i];
        if (e->graph != 0 && (int)g->operation != e->graph) continue;
        if (e->kind == DROP_GRAPH) {
            alea__core__graph__free_unpacked(g, NULL);
            m->graphs[i--] = m->graphs[--m->n_graphs];
        } else if (e->kind == GRAPH_TWICE) {
            m->graphs[i + 1]->operation = g->operation;
            m->graphs[i + 1]->capacity_tokens = g->capacity_tokens;
            return;
        } else {
            edit_graph(g, e);
        }
    }
}

static void apply(Alea__Core__Manifest *m, const edit *e) {
    switch (e->kind) {
    case NO_EDIT: break;
    case ABI: m->core_abi = (uint32_t)e->value; break;
    case VOCAB: m->vocab = e->value; break;
    case SLOTS: m->request_capacity = e->value; break;
    case TOKENS: m->completion_token_capacity = e->value; break;
    case DROP:
    case RENAME:
    case DUPLICATE:
    case DATA_TYPE:
    case RANK:
    case EXTENT: edit_buffer(m, e); break;
    default: edit_graphs(m, e); break;
    }
}

static void refuses(const malformed *cases, size_t n, int32_t alternatives, bool ids,
                    int32_t scored) {
    for (size_t i = 0; i < n; i++) {
        Alea__Core__Manifest *m = sound(alternatives, ids, scored);
        alea_capability capability = {.allow_logprobs = true};
        alea_error error = {0};
        assert_int_equal(check(m, &capability, &error), ALEA_OK);
        capability.n_scored_capacities = 99;
        for (size_t j = 0; j < 4; j++)
            apply(m, &cases[i].edits[j]);
        const alea_status status = check(m, &capability, &error);
        if (status != cases[i].status)
            fail_msg("case %zu: status %d, '%s'", i, status, error.message);
        assert_int_equal(capability.n_scored_capacities, 99);
        for (size_t j = 0; j < 2 && cases[i].names[j]; j++)
            if (!strstr(error.message, cases[i].names[j]))
                fail_msg("case %zu: '%s' lacks '%s'", i, error.message, cases[i].names[j]);
        alea__core__manifest__free_unpacked(m, NULL);
    }
}

#define REFUSES(cases, alternatives, ids, scored)                                                  \
    refuses(cases, sizeof(cases) / sizeof *(cases), alternatives, ids, scored)
#define RECORDS "completion_records"
#define LOGPROBS "completion_logprobs"
#define REQUESTED "logprob_requested"
#define IDS "logprob_token_ids"
#define COUNTS "logprob_token_id_counts"
#define TARGETS "prompt_target_tokens"
#define SCORES "prompt_logprobs"

/* --- what is offered --- */

static void test_a_core_without_buffers_serves_without_logprobs(void **state) {
    (void)state;
    Alea__Core__Manifest *m = sound(0, false, 0);
    apply(m, &(edit){UNWRITE, RECORDS, 0, 0, 0});
    apply(m, &(edit){DROP, RECORDS, 0, 0, 0});
    alea_capability c;
    alea_error error;
    assert_int_equal(check(m, &c, &error), ALEA_OK);
    assert_int_equal(c.layout.alternatives, 0);
    assert_false(c.allow_logprobs);
    assert_false(c.allow_token_ids);
    assert_false(c.allow_prompt_logprobs);
    alea__core__manifest__free_unpacked(m, NULL);
}

static void test_a_core_without_id_inputs_offers_natural_alternatives(void **state) {
    (void)state;
    for (int32_t k = 1; k <= 20; k++) {
        Alea__Core__Manifest *m = sound(k, false, 0);
        alea_capability c;
        alea_error error;
        assert_int_equal(check(m, &c, &error), ALEA_OK);
        assert_int_equal(c.layout.alternatives, k);
        assert_int_equal(alea__layout_words(&c.layout), 2 + 2 * k);
        assert_true(c.allow_logprobs);
        assert_false(c.allow_token_ids);
        alea__core__manifest__free_unpacked(m, NULL);
    }
}

static void test_a_core_with_all_five_offers_everything(void **state) {
    (void)state;
    Alea__Core__Manifest *m = sound(20, true, 0);
    alea_capability c;
    alea_error error;
    assert_int_equal(check(m, &c, &error), ALEA_OK);
    assert_true(c.allow_token_ids);
    assert_false(c.allow_prompt_logprobs);
    assert_int_equal(c.layout.capacity, 8);
    apply(m, &(edit){TOKENS, NULL, 0, 0, 0});
    assert_int_equal(check(m, &c, &error), ALEA_OK);
    assert_int_equal(c.layout.tokens, 8);
    alea__core__manifest__free_unpacked(m, NULL);
}

static void test_a_scoring_core_lists_its_capacities(void **state) {
    (void)state;
    for (int ids = 0; ids < 2; ids++) {
        Alea__Core__Manifest *m = sound(20, ids != 0, 3000);
        alea_capability c;
        alea_error error;
        assert_int_equal(check(m, &c, &error), ALEA_OK);
        assert_true(c.allow_prompt_logprobs);
        assert_int_equal(c.layout.scored_rows, 3000);
        static const int32_t want[] = {128, 512, 2048, 3000};
        assert_int_equal(c.n_scored_capacities, 4);
        assert_memory_equal(c.scored_capacities, want, sizeof want);
        for (size_t i = 0; i < m->n_graphs / 2; i++) { /* in whatever order they are listed */
            Alea__Core__Graph *last = m->graphs[m->n_graphs - 1 - i];
            m->graphs[m->n_graphs - 1 - i] = m->graphs[i];
            m->graphs[i] = last;
        }
        assert_int_equal(check(m, &c, &error), ALEA_OK);
        assert_memory_equal(c.scored_capacities, want, sizeof want);
        alea__core__manifest__free_unpacked(m, NULL);
    }
}

static void test_numbers_of_the_wire_are_fixed(void **state) {
    (void)state;
    assert_int_equal(ALEA__CORE__OPERATION__SCORED_PREFILL, 12);
    assert_int_equal(ALEA__CORE__VALUE_SOURCE__PROMPT_TARGET_TOKEN, 39);
}

/* --- what is refused --- */

static void test_partial_bundles_name_the_missing_buffer(void **state) {
    (void)state;
    static const malformed cases[] = {
        {{{DROP, RECORDS, 0, 0, 0}}, ALEA_EFORMAT, {RECORDS " is missing", LOGPROBS}},
        {{{DROP, LOGPROBS, 0, 0, 0}}, ALEA_EFORMAT, {LOGPROBS " is missing", NULL}},
        {{{DROP, REQUESTED, 0, 0, 0}}, ALEA_EFORMAT, {REQUESTED " is missing", NULL}},
        {{{DROP, IDS, 0, 0, 0}}, ALEA_EFORMAT, {IDS " is missing", COUNTS}},
        {{{DROP, COUNTS, 0, 0, 0}}, ALEA_EFORMAT, {COUNTS " is missing", IDS}},
        {{{RENAME, COUNTS, 0, 0, 0}}, ALEA_EFORMAT, {COUNTS " is missing", NULL}},
        {{{DROP, LOGPROBS, 0, 0, 0}, {DROP, REQUESTED, 0, 0, 0}},
         ALEA_EFORMAT,
         {LOGPROBS " is missing", IDS}},
        {{{DUPLICATE, IDS, 0, 0, 0}}, ALEA_EFORMAT, {IDS " is declared twice", NULL}},
    };
    REFUSES(cases, 20, true, 0);
}

static void test_wrong_types_and_geometry_name_the_buffer(void **state) {
    (void)state;
    static const char *const names[] = {RECORDS, LOGPROBS, REQUESTED, IDS, COUNTS, TARGETS, SCORES};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const int wrong = i == 0 ? ALEA__CORE__DATA_TYPE__INT32 : ALEA__CORE__DATA_TYPE__INT64;
        const malformed cases[] = {
            {{{DATA_TYPE, names[i], 0, 0, wrong}}, ALEA_EFORMAT, {names[i], "data type"}},
            {{{DATA_TYPE, names[i], 0, 0, 3}}, ALEA_EFORMAT, {names[i], "FLOAT32"}},
            {{{DATA_TYPE, names[i], 0, 0, 0}}, ALEA_EFORMAT, {names[i], "no known data type"}},
            {{{DATA_TYPE, names[i], 0, 0, 77}}, ALEA_EFORMAT, {names[i], "no known data type"}},
            {{{RANK, names[i], 0, 0, 5}}, ALEA_EFORMAT, {names[i], NULL}},
            {{{RANK, names[i], 0, 0, 0}}, ALEA_EFORMAT, {names[i], "rank"}},
            {{{EXTENT, names[i], 0, 0, 0}}, ALEA_EFORMAT, {names[i], "extent below 1"}},
            {{{EXTENT, names[i], 0, 0, 9}}, ALEA_EFORMAT, {NULL, NULL}},
            {{{EXTENT, names[i], 0, -1, INT64_MAX}}, ALEA_EFORMAT, {names[i], NULL}},
        };
        REFUSES(cases, 20, true, 200);
    }
    static const malformed more[] = {
        {{{EXTENT, RECORDS, 0, 2, 23}}, ALEA_EFORMAT, {RECORDS, "extent 2 = 23, not 24"}},
        {{{EXTENT, LOGPROBS, 0, 3, 42}}, ALEA_EFORMAT, {LOGPROBS, "extent 3 = 42, not 258"}},
        {{{EXTENT, LOGPROBS, 0, 2, 7}}, ALEA_EFORMAT, {LOGPROBS, "extent 2 = 7, not 8"}},
        {{{EXTENT, IDS, 0, 1, 127}}, ALEA_EFORMAT, {IDS, "extent 1 = 127, not 128"}},
        {{{TOKENS, NULL, 0, 0, 9}}, ALEA_EFORMAT, {RECORDS, "24, not 25"}},
        {{{SLOTS, NULL, 0, 0, 9}}, ALEA_EFORMAT, {RECORDS, "8, not 9"}},
        {{{EXTENT, SCORES, 0, 2, 42}}, ALEA_EFORMAT, {SCORES, "extent 2 = 42, not 43"}},
        {{{EXTENT, SCORES, 0, 1, 199}}, ALEA_EFORMAT, {SCORES, "199, not 200"}},
    };
    REFUSES(more, 20, true, 200);
}

static void test_payload_widths_without_ids_are_two_plus_two_k(void **state) {
    (void)state;
    static const int64_t widths[] = {1, 2, 3, 5, 43, 44, 258};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        const malformed cases[] = {
            {{{EXTENT, LOGPROBS, 0, -1, widths[i]}}, ALEA_EFORMAT, {LOGPROBS, "2+2K"}},
        };
        REFUSES(cases, 20, false, 0);
    }
}

static void test_sampling_graphs_bind_every_input(void **state) {
    (void)state;
    static const int graphs[] = {PREFILL, DECODE, MIXED, VERIFY, SCORED};
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        const int g = graphs[i];
        const malformed cases[] = {
            {{{UNBIND, REQUESTED, g, 0, 0}}, ALEA_EFORMAT, {REQUESTED, "is not bound"}},
            {{{UNBIND, IDS, g, 0, 0}}, ALEA_EFORMAT, {IDS, "is not bound"}},
            {{{UNBIND, COUNTS, g, 0, 0}}, ALEA_EFORMAT, {COUNTS, "is not bound"}},
            {{{UNWRITE, LOGPROBS, g, 0, 0}}, ALEA_EFORMAT, {LOGPROBS, "is not written"}},
            {{{UNWRITE, RECORDS, g, 0, 0}}, ALEA_EFORMAT, {RECORDS, "is not written"}},
            {{{SAMPLES, NULL, g, 0, 0}}, ALEA_EFORMAT, {REQUESTED, "does not sample"}},
            {{{BIND_AS, REQUESTED, g, 0, 4}}, ALEA_EFORMAT, {REQUESTED, "wrong value"}},
            {{{BIND_AS, IDS, g, 0, 77}}, ALEA_EFORMAT, {IDS, "unknown value"}},
            {{{BIND, LOGPROBS, g, 0, 4}}, ALEA_EFORMAT, {LOGPROBS, "cannot be uploaded"}},
            {{{BIND, RECORDS, g, 0, 4}}, ALEA_EFORMAT, {RECORDS, "cannot be uploaded"}},
            {{{BIND, IDS, g, 0, 4}}, ALEA_EFORMAT, {IDS, "bound twice"}},
            {{{BIND, "nowhere", g, 0, 4}}, ALEA_EFORMAT, {"nowhere", "not declared"}},
            {{{WRITE, "nowhere", g, 0, 0}}, ALEA_EFORMAT, {"nowhere", "not declared"}},
            {{{WRITE, LOGPROBS, g, 0, 0}}, ALEA_EFORMAT, {LOGPROBS, "listed twice"}},
            {{{WRITE, IDS, g, 0, 0}}, ALEA_EFORMAT, {IDS, "cannot be written"}},
            {{{OPERATION, NULL, g, 0, 0}}, ALEA_EFORMAT, {"operation 0", NULL}},
            {{{OPERATION, NULL, g, 0, 99}}, ALEA_EFORMAT, {"operation 99", NULL}},
            {{{CAPACITY, NULL, g, 0, 0}}, ALEA_EFORMAT, {"capacity", "below 1"}},
        };
        REFUSES(cases, 20, true, 100);
    }
    static const malformed whole[] = {
        {{{DROP_GRAPH, NULL, 0, 0, 0}}, ALEA_EFORMAT, {LOGPROBS, "no graph"}},
        {{{GRAPH_TWICE, NULL, PREFILL, 0, 0}}, ALEA_EFORMAT, {"PREFILL", "twice"}},
    };
    REFUSES(whole, 20, true, 0);
}

static void test_scoring_is_whole_or_absent(void **state) {
    (void)state;
    static const malformed cases[] = {
        {{{DROP, TARGETS, 0, 0, 0}}, ALEA_EFORMAT, {TARGETS " is missing", NULL}},
        {{{DROP, SCORES, 0, 0, 0}}, ALEA_EFORMAT, {SCORES " is missing", NULL}},
        {{{DROP_GRAPH, NULL, SCORED, 0, 0}}, ALEA_EFORMAT, {TARGETS, "no SCORED_PREFILL"}},
        {{{UNBIND, TARGETS, SCORED, 0, 0}}, ALEA_EFORMAT, {TARGETS, "is not bound"}},
        {{{UNWRITE, SCORES, SCORED, 0, 0}}, ALEA_EFORMAT, {SCORES, "is not written"}},
        {{{BIND_AS, TARGETS, SCORED, 0, 4}}, ALEA_EFORMAT, {TARGETS, "wrong value"}},
        {{{BIND, SCORES, SCORED, 0, 4}}, ALEA_EFORMAT, {SCORES, "cannot be uploaded"}},
        {{{BIND, TARGETS, MIXED, 0, 39}}, ALEA_EFORMAT, {TARGETS, "does not score"}},
        {{{WRITE, SCORES, MIXED, 0, 0}}, ALEA_EFORMAT, {SCORES, "does not score"}},
        {{{WRITE, SCORES, PREFILL, 0, 0}}, ALEA_EFORMAT, {SCORES, "does not score"}},
        {{{CAPACITY, NULL, SCORED, 0, 99}}, ALEA_EFORMAT, {TARGETS, "more rows"}},
        {{{CAPACITY, NULL, SCORED, 0, 101}}, ALEA_EFORMAT, {TARGETS, "fewer rows"}},
        {{{DROP, TARGETS, 0, 0, 0},
          {DROP, SCORES, 0, 0, 0},
          {UNBIND, TARGETS, 0, 0, 0},
          {UNWRITE, SCORES, 0, 0, 0}},
         ALEA_EFORMAT,
         {TARGETS, "not declared, but it scores"}},
    };
    REFUSES(cases, 20, true, 100);
    REFUSES(cases, 20, false, 100);
    for (int64_t k = 1; k < 20; k++) {
        const malformed narrow[] = {
            {{{EXTENT, LOGPROBS, 0, -1, 2 + 2 * k}}, ALEA_EFORMAT, {SCORES, "K = 20"}},
        };
        REFUSES(narrow, 20, false, 100);
    }
}

static void test_facts_about_the_core_are_checked(void **state) {
    (void)state;
    static const malformed cases[] = {
        {{{ABI, NULL, 0, 0, 2}}, ALEA_EUNSUPPORTED, {"core ABI 2", NULL}},
        {{{ABI, NULL, 0, 0, 0}}, ALEA_EUNSUPPORTED, {"core ABI 0", NULL}},
        {{{VOCAB, NULL, 0, 0, 499}}, ALEA_EFORMAT, {"vocab is 499", NULL}},
        {{{VOCAB, NULL, 0, 0, -1}}, ALEA_EFORMAT, {"vocab is -1", NULL}},
        {{{SLOTS, NULL, 0, 0, 0}}, ALEA_ELIMIT, {"request_capacity is 0", NULL}},
        {{{SLOTS, NULL, 0, 0, 4097}}, ALEA_ELIMIT, {"request_capacity", NULL}},
        {{{TOKENS, NULL, 0, 0, -1}}, ALEA_ELIMIT, {"completion_token_capacity", NULL}},
        {{{TOKENS, NULL, 0, 0, 65}}, ALEA_ELIMIT, {"completion_token_capacity", NULL}},
    };
    REFUSES(cases, 20, true, 0);
}

/* --- bytes --- */

static alea_bytes build(int32_t scored) {
    const alea_completion_layout layout = alea__layout_complete(8, 0, scored);
    alea_bytes bytes;
    assert_int_equal(alea__manifest_build(&info, &layout, &bytes, NULL), ALEA_OK);
    return bytes;
}

static void test_bytes_that_are_no_manifest_are_refused(void **state) {
    (void)state;
    alea_capability c;
    alea_error error;
    const alea_bytes text = {(const uint8_t *)"not a manifest at all", 21};
    assert_int_equal(alea__manifest_check(text, 0, &c, &error), ALEA_EFORMAT);
    const alea_bytes empty = {(const uint8_t *)"", 0};
    assert_int_equal(alea__manifest_check(empty, 0, &c, &error), ALEA_EUNSUPPORTED);
    uint8_t *large = calloc(1, ALEA_MANIFEST_BYTES_MAX + 1);
    const alea_bytes too_long = {large, ALEA_MANIFEST_BYTES_MAX + 1};
    assert_int_equal(alea__manifest_check(too_long, 0, &c, &error), ALEA_ELIMIT);
    free(large);
}

static void test_manifests_of_many_parts_stay_cheap(void **state) {
    (void)state;
    /* Empty buffers, two bytes each: half a million structs if nobody counted. */
    const size_t bytes = ALEA_MANIFEST_BYTES_MAX;
    uint8_t *data = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        data[i] = i % 2 ? 0 : (6 << 3 | 2);
    alea_capability c;
    alea_error error;
    assert_true(alea__manifest_check((alea_bytes){data, bytes}, 0, &c, &error) < 0);
    free(data);
}

static void test_damaged_bytes_never_crash_and_never_half_answer(void **state) {
    (void)state;
    const alea_bytes good = build(300);
    uint8_t *data = malloc(good.length);
    uint64_t x = 88172645463325252u;
    int accepted = 0;
    for (int i = 0; i < 20000; i++) {
        memcpy(data, good.data, good.length);
        size_t length = good.length;
        for (int flips = 1 + i % 4; flips > 0; flips--) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            data[x % length] ^= (uint8_t)(1u << (x >> 32 & 7));
        }
        if (i % 5 == 0) length = (x >> 20) % length;
        alea_capability c = {.n_scored_capacities = 77};
        alea_error error;
        const alea_status status =
            alea__manifest_check((alea_bytes){data, length}, 500, &c, &error);
        if (status == ALEA_OK)
            accepted++;
        else
            assert_int_equal(c.n_scored_capacities, 77);
    }
    assert_true(accepted < 20000 / 4); /* unread names and spare graphs may change unnoticed */
    free(data);
    free((void *)(uintptr_t)good.data);
}

static void test_nth_allocation_failing_is_an_error(void **state) {
    (void)state;
    const alea_bytes good = build(300);
    alea_error error;
    int failures = 0;
    for (;; failures++) {
        alea_capability c = {.n_scored_capacities = 77};
        fail_at = failures + 1;
        const alea_status status = alea__manifest_check(good, 500, &c, &error);
        if (status == ALEA_OK) break;
        assert_int_equal(status, ALEA_ENOMEM);
        assert_int_equal(c.n_scored_capacities, 77);
    }
    fail_at = 0;
    assert_true(failures > 50);
    fail_at = 1;
    alea_bytes none = {NULL, 0};
    const alea_completion_layout layout = alea__layout_complete(8, 0, 0);
    assert_int_equal(alea__manifest_build(&info, &layout, &none, &error), ALEA_ENOMEM);
    assert_null(none.data);
    free((void *)(uintptr_t)good.data);
}

/* --- cores --- */

static void test_a_core_of_raw_rows_offers_everything(void **state) {
    (void)state;
    const alea_core_options options = {.struct_bytes = sizeof options, .model = ""};
    alea_core *core = NULL;
    alea_error error;
    assert_int_equal(alea_core_open(alea_core_toy(), &options, &core, &error), ALEA_OK);
    assert_null(alea_core_manifest(core).data);
    alea_capability c;
    assert_int_equal(alea__core_capability(core, 16, 512, &c, &error), ALEA_OK);
    assert_true(c.allow_logprobs && c.allow_token_ids && c.allow_prompt_logprobs);
    assert_int_equal(c.layout.capacity, 16);
    assert_int_equal(c.layout.tokens, 8);
    assert_int_equal(c.n_scored_capacities, 2);
    assert_int_equal(alea__core_capability(core, 16, 0, &c, &error), ALEA_OK);
    assert_false(c.allow_prompt_logprobs);
    assert_int_equal(c.layout.scored_rows, 0);
    alea_core_close(core);
}

static alea_bytes handed_over;

static alea_bytes hand_over(const alea_core *core) {
    (void)core;
    return handed_over;
}

static void test_a_cores_own_manifest_decides(void **state) {
    (void)state;
    alea_core_api api = *alea_core_toy();
    api.manifest = hand_over;
    const alea_core_options options = {.struct_bytes = sizeof options, .model = "vocab=500"};
    alea_core *core = NULL;
    alea_error error;
    assert_int_equal(alea_core_open(&api, &options, &core, &error), ALEA_OK);
    const alea_completion_layout layout = {.capacity = 4, .tokens = 2, .alternatives = 3};
    assert_int_equal(alea__manifest_build(&info, &layout, &handed_over, &error), ALEA_OK);
    alea_capability c;
    assert_int_equal(alea__core_capability(core, 16, 512, &c, &error), ALEA_OK);
    assert_int_equal(c.layout.capacity, 4);
    assert_int_equal(c.layout.alternatives, 3);
    assert_false(c.allow_token_ids);
    assert_false(c.allow_prompt_logprobs);
    free((void *)(uintptr_t)handed_over.data);
    /* One that describes another vocabulary is refused, and so is damage. */
    alea_core_info other = info;
    other.vocab = 400;
    assert_int_equal(alea__manifest_build(&other, &layout, &handed_over, &error), ALEA_OK);
    assert_int_equal(alea__core_capability(core, 16, 512, &c, &error), ALEA_EFORMAT);
    handed_over.length /= 2;
    assert_true(alea__core_capability(core, 16, 512, &c, &error) < 0);
    free((void *)(uintptr_t)handed_over.data);
    /* Scoring that a core offers can be turned off. */
    handed_over = build(300);
    assert_int_equal(alea__core_capability(core, 16, 0, &c, &error), ALEA_OK);
    assert_true(c.allow_logprobs);
    assert_false(c.allow_prompt_logprobs);
    free((void *)(uintptr_t)handed_over.data);
    alea_core_close(core);
}

static void test_builder_refuses_what_it_cannot_say(void **state) {
    (void)state;
    alea_bytes bytes = {NULL, 0};
    alea_error error;
    const alea_completion_layout layout = alea__layout_complete(0, 0, 0);
    assert_int_equal(alea__manifest_build(&info, &layout, &bytes, &error), ALEA_ELIMIT);
    alea_core_info nothing = info;
    nothing.round_tokens = 0;
    const alea_completion_layout good = alea__layout_complete(1, 0, 0);
    assert_int_equal(alea__manifest_build(&nothing, &good, &bytes, &error), ALEA_EINVAL);
    assert_null(bytes.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        RULE("K1", test_a_core_without_buffers_serves_without_logprobs),
        RULE("K2", test_a_core_without_id_inputs_offers_natural_alternatives),
        RULE("K3", test_a_core_with_all_five_offers_everything),
        RULE("K3", test_a_core_of_raw_rows_offers_everything),
        RULE("K4", test_partial_bundles_name_the_missing_buffer),
        RULE("K4", test_wrong_types_and_geometry_name_the_buffer),
        RULE("K4", test_payload_widths_without_ids_are_two_plus_two_k),
        RULE("K5", test_sampling_graphs_bind_every_input),
        RULE("K6", test_scoring_is_whole_or_absent),
        RULE("K6", test_a_scoring_core_lists_its_capacities),
        RULE("K7", test_numbers_of_the_wire_are_fixed),
        RULE("K8", test_facts_about_the_core_are_checked),
        RULE("K8", test_bytes_that_are_no_manifest_are_refused),
        RULE("K8", test_manifests_of_many_parts_stay_cheap),
        RULE("K8", test_damaged_bytes_never_crash_and_never_half_answer),
        RULE("B7", test_nth_allocation_failing_is_an_error),
        RULE("K9", test_a_cores_own_manifest_decides),
        RULE("K9", test_builder_refuses_what_it_cannot_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
