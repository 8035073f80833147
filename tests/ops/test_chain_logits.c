/*
 * Chains verified by raw logits: against alea_chain_sample on probabilities that are made here, one
 * by one, from the definition; against long double where nothing is near a boundary; and the rows
 * in which an answer is known without arithmetic.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/kernel_table.h"
#include "kernel/ln.h"
#include "ops/oracle.h"
#include "ops/rig.h"
#include "support/fill.h"

static const rig_how one_thread = {.threads = 1};
static const float temperatures[] = {1, 0.6f, 1.7f, 30, 0.01f, 1e-7f, 1e6f};
enum { SEGMENT = 1024, TEMPERATURES = sizeof temperatures / sizeof *temperatures };

/* The probabilities of a sound row, docs/numerics.md word for word. */
static void define_probs(float *probs, const float *x, int32_t n, float temperature) {
    const float scale = ALEA_LOG2E_F / temperature;
    float max = x[0];
    for (int32_t i = 1; i < n; i++)
        max = fmaxf(max, x[i]);
    const bool shifted = !(fabsf(max * scale) <= 0x1.8p20f);
    const int32_t exponent = shifted ? 0 : (int32_t)rintf(max * scale);
    uint64_t mass = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t first = 0; first < n; first += SEGMENT) {
            const int32_t length = n - first < SEGMENT ? n - first : SEGMENT;
            float d[SEGMENT], most = -INFINITY;
            uint32_t weights[SEGMENT];
            uint64_t sum = 0;
            for (int32_t i = 0; i < length; i++) {
                d[i] = shifted ? x[first + i] - max : x[first + i];
                most = fmaxf(most, d[i]);
            }
            const float top = rintf(most * scale);
            const bool deep = !(top >= (float)(exponent - 50));
            if (!deep)
                alea__kernels_ref()->segment_weights(d, length, scale, (int32_t)top, weights);
            for (int32_t i = 0; i < length; i++) {
                if (pass == 0 && !deep) sum += weights[i];
                if (pass == 1)
                    probs[first + i] =
                        deep ? 0
                             : (float)(ldexp((double)weights[i], 11 + (int32_t)top - exponent) /
                                       (double)mass);
            }
            if (pass == 0 && !deep) mass += (sum << 11) >> (exponent - (int32_t)top);
        }
    }
}

typedef struct chains {
    int64_t n;
    int32_t drafts, vocab;
    float *draft, *target; /* logits */
    int32_t *ids;
    float *temperature;
    int64_t *seed, *offset;
} chains;

/* Drafts like their targets, so that some stand; tokens mostly likely ones. */
static chains chains_make(int64_t n, int32_t drafts, int32_t vocab, uint64_t seed) {
    const size_t rows = (size_t)n * (size_t)(drafts + 1), row = (size_t)vocab;
    chains c = {n,
                drafts,
                vocab,
                rig_alloc(rows * row * 4),
                rig_alloc(rows * row * 4),
                rig_alloc(rows * 4),
                rig_alloc((size_t)n * 4),
                rig_alloc((size_t)n * 8),
                rig_alloc((size_t)n * 8)};
    for (int64_t i = 0; i < n; i++) {
        for (int32_t d = 0; d <= drafts; d++) {
            float *target = c.target + (i * (drafts + 1) + d) * vocab;
            test_fill_row(target, vocab, (test_fill)(test_random(&seed) % TEST_FILL_SOUND_COUNT),
                          seed);
            if (d == drafts) continue;
            float *draft = c.draft + (i * drafts + d) * vocab;
            int32_t id = (int32_t)(test_random(&seed) % (uint64_t)vocab);
            for (int32_t j = 0; j < vocab; j++) {
                draft[j] = target[j] + (test_random(&seed) % 4 ? 0 : (float)test_normal(&seed));
                if (test_random(&seed) % 3 == 0 && target[j] > target[id]) id = j;
            }
            c.ids[i * drafts + d] = id;
        }
        c.temperature[i] = temperatures[test_random(&seed) % TEMPERATURES];
        c.seed[i] = (int64_t)test_random(&seed);
        c.offset[i] = (int64_t)test_random(&seed);
    }
    return c;
}

static void chains_free(chains *c) {
    free(c->draft);
    free(c->target);
    free(c->ids);
    free(c->temperature);
    free(c->seed);
    free(c->offset);
}

static rig_chain_logits_args args_of(const chains *c, bool certain) {
    return (rig_chain_logits_args){
        certain ? NULL : c->draft, c->target, c->ids, c->temperature, c->seed, c->offset, c->n};
}

/* alea_chain_sample on the defined probabilities, a chain at a time for its own seed. */
static void by_definition(const chains *c, bool certain, int32_t *tokens, int32_t *accepted) {
    const size_t row = (size_t)c->vocab;
    float *q = rig_alloc((size_t)c->drafts * row * 4);
    float *p = rig_alloc((size_t)(c->drafts + 1) * row * 4);
    for (int64_t i = 0; i < c->n; i++) {
        for (int32_t d = 0; d <= c->drafts; d++) {
            define_probs(p + d * c->vocab, c->target + (i * (c->drafts + 1) + d) * c->vocab,
                         c->vocab, c->temperature[i]);
            if (d == c->drafts) continue;
            if (certain) {
                memset(q + d * c->vocab, 0, row * 4);
                q[d * c->vocab + c->ids[i * c->drafts + d]] = 1;
            } else {
                define_probs(q + d * c->vocab, c->draft + (i * c->drafts + d) * c->vocab, c->vocab,
                             c->temperature[i]);
            }
        }
        rig_tensor t[8];
        alea_chain_sample *op = NULL;
        alea_error error = {0};
        const alea_op_config config = rig_config(one_thread, c->vocab, 0);
        int32_t word = 0; /* a seed for each row, so the row word is 0 */
        assert_int_equal(alea_chain_sample_create(&config, &op, &error), ALEA_OK);
        const alea_status status = alea_chain_sample_run(
            op, rig_2d(&t[0], tokens + i * (c->drafts + 1), RIG_I32, 1, c->drafts + 1),
            rig_1d(&t[1], accepted + i, RIG_I32, 1),
            rig_3d(&t[2], q, RIG_F32, 1, c->drafts, c->vocab),
            rig_2d(&t[3], c->ids + i * c->drafts, RIG_I32, 1, c->drafts),
            rig_3d(&t[4], p, RIG_F32, 1, c->drafts + 1, c->vocab),
            rig_1d(&t[5], c->seed + i, RIG_I64, 1), rig_1d(&t[6], c->offset + i, RIG_I64, 1),
            rig_1d(&t[7], &word, RIG_I32, 1), NULL, &error);
        if (status < 0) fail_msg("%s", error.message);
        alea_chain_sample_destroy(op);
    }
    free(q);
    free(p);
}

static void test_chains_are_those_of_the_defined_probabilities(void **state) {
    (void)state;
    const int32_t vocabs[] = {1, 2, 33, 1000, 1024, 1025, 5000, 32003};
    int64_t stops[2] = {0, 0}, total = 0;
    for (size_t v = 0; v < sizeof vocabs / sizeof *vocabs; v++) {
        for (int32_t drafts = 1; drafts <= 7; drafts += 3) {
            chains c = chains_make(vocabs[v] > 10000 ? 10 : 40, drafts, vocabs[v], v * 10 + 1);
            const size_t bytes = (size_t)c.n * (size_t)(drafts + 2) * 4;
            int32_t *got = rig_alloc(bytes), *right = rig_alloc(bytes);
            int32_t *verdicts = rig_alloc((size_t)c.n * 4);
            for (int certain = 0; certain < 2; certain++) {
                by_definition(&c, certain, right, right + c.n * (drafts + 1));
                rig_chain_logits(one_thread, got, got + c.n * (drafts + 1), verdicts,
                                 args_of(&c, certain), RIG_F32, c.n, drafts, vocabs[v]);
                assert_memory_equal(got, right, bytes);
                for (int64_t i = 0; i < c.n; i++) {
                    assert_int_equal(verdicts[i], ALEA_OK);
                    stops[certain] += got[c.n * (drafts + 1) + i];
                    total += drafts;
                }
            }
            free(got);
            free(right);
            free(verdicts);
            chains_free(&c);
        }
    }
    for (int certain = 0; certain < 2; certain++) /* both outcomes were there, often */
        assert_true(stops[certain] > total / 20 && stops[certain] < total / 2);
}

/* Where neither a test nor a draw is near a boundary, exact arithmetic gives the same answer. */
static void test_chains_follow_exact_arithmetic(void **state) {
    (void)state;
    enum { DRAFTS = 3, ROWS = 60 };
    const int32_t vocabs[] = {5, 700, 3000};
    int32_t sure_tests = 0, sure_draws = 0;
    for (size_t v = 0; v < sizeof vocabs / sizeof *vocabs; v++) {
        const int32_t n = vocabs[v];
        chains c = chains_make(ROWS, DRAFTS, n, 77 + v);
        int32_t tokens[ROWS * (DRAFTS + 1)], accepted[ROWS];
        uint8_t *fate = rig_alloc((size_t)n);
        long double *p = rig_alloc((size_t)n * sizeof *p), *q = rig_alloc((size_t)n * sizeof *q);
        float *weights = rig_alloc((size_t)n * 4);
        memset(fate, KEPT, (size_t)n);
        for (int64_t i = 0; i < ROWS; i++)
            c.temperature[i] = 0.8f;
        rig_chain_logits(one_thread, tokens, accepted, NULL, args_of(&c, false), RIG_F32, ROWS,
                         DRAFTS, n);
        for (int64_t i = 0; i < ROWS; i++) {
            bool sure = true;
            int32_t stop = 0;
            for (; stop < DRAFTS && sure; stop++) {
                const int32_t id = c.ids[i * DRAFTS + stop];
                oracle_softmax(p, c.target + (i * (DRAFTS + 1) + stop) * n, fate, n, 0.8f);
                oracle_softmax(q, c.draft + (i * DRAFTS + stop) * n, fate, n, 0.8f);
                const long double left = q[id] * oracle_uniform((uint64_t)c.seed[i], (uint32_t)stop,
                                                                0, (uint64_t)c.offset[i]);
                sure = fabsl(left - p[id]) > 1e-5L * (left + p[id]) + 1e-8L; /* see W */
                if (!(left < p[id])) break;
            }
            if (!sure) continue;
            sure_tests++;
            assert_int_equal(accepted[i], stop);
            oracle_softmax(p, c.target + (i * (DRAFTS + 1) + stop) * n, fate, n, 0.8f);
            if (stop < DRAFTS) oracle_softmax(q, c.draft + (i * DRAFTS + stop) * n, fate, n, 0.8f);
            long double mass = 0;
            for (int32_t j = 0; j < n; j++) {
                const long double above = stop < DRAFTS ? p[j] - q[j] : p[j];
                weights[j] = above > 0 ? (float)above : 0;
                mass += weights[j];
            }
            if (mass < 0.02L) continue; /* the difference of near equals is rounding */
            const float u = oracle_uniform((uint64_t)c.seed[i], DRAFTS, 0, (uint64_t)c.offset[i]);
            long double running = 0, before = 0;
            int32_t right = 0;
            for (; right < n; right++) {
                before = running;
                running += weights[right];
                if (running > u * mass) break;
            }
            const long double near = fminl(running - u * mass, u * mass - before);
            if (near < 1e-4L * mass) continue;
            sure_draws++;
            assert_int_equal(tokens[i * (DRAFTS + 1) + stop], right);
        }
        free(fate);
        free(p);
        free(q);
        free(weights);
        chains_free(&c);
    }
    assert_true(sure_tests > ROWS && sure_draws > ROWS / 2);
}

static void test_greedy_chains_accept_what_the_target_prefers(void **state) {
    (void)state;
    float target[3][4] = {{0, 5, 5, 1}, {2, 1, 0, 9}, {7, 7, 7, 7}};
    float draft[2][4] = {{NAN, 0, 0, 0}, {0, 0, 0, 0}}; /* not read */
    float zero = 0;
    int64_t seed = 1, offset = 2;
    const struct {
        int32_t ids[2], tokens[3], accepted;
    } cases[] = {{{1, 3}, {1, 3, 0}, 2},
                 {{2, 3}, {1, -1, -1}, 0}, /* an equal with a larger id */
                 {{1, 0}, {1, 3, -1}, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int certain = 0; certain < 2; certain++) {
            int32_t tokens[3], accepted, verdict, ids[2] = {cases[i].ids[0], cases[i].ids[1]};
            rig_chain_logits(one_thread, tokens, &accepted, &verdict,
                             (rig_chain_logits_args){certain ? NULL : draft, target, ids, &zero,
                                                     &seed, &offset, 1},
                             RIG_F32, 1, 2, 4);
            assert_memory_equal(tokens, cases[i].tokens, sizeof tokens);
            assert_int_equal(accepted, cases[i].accepted);
            assert_int_equal(verdict, ALEA_OK);
        }
    }
}

static void test_a_failed_row_ends_its_chain(void **state) {
    (void)state;
    enum { V = 3 };
    static const float bad[] = {NAN, INFINITY};
    for (int64_t seed = 0; seed < 40; seed++) {
        for (int b = 0; b < 2; b++) {
            /* The first draft is certain to stand, the second is its target's only token. */
            float target[3][V] = {{9, -INFINITY, -INFINITY}, {-INFINITY, 4, -INFINITY}, {1, 1, 1}};
            float draft[2][V] = {{1, 1, 1}, {0, 2, 0}};
            int32_t ids[2] = {0, 1}, tokens[3], accepted, verdict;
            int64_t offset = 5, own_seed = seed;
            target[1][2] = bad[b];
            const rig_chain_logits_args args = {draft, target, ids, NULL, &own_seed, &offset, 1};
            rig_chain_logits(one_thread, tokens, &accepted, &verdict, args, RIG_F32, 1, 2, V);
            const int32_t one[] = {0, -1, -1};
            assert_memory_equal(tokens, one, sizeof one);
            assert_int_equal(accepted, 1);
            assert_int_equal(verdict, ALEA_EROW);
            target[1][2] = -INFINITY;
            draft[1][0] = bad[b];
            rig_chain_logits(one_thread, tokens, &accepted, &verdict, args, RIG_F32, 1, 2, V);
            assert_memory_equal(tokens, one, sizeof one);
            assert_int_equal(verdict, ALEA_EROW);
            draft[1][0] = 0;
            ids[0] = 2; /* falls at once: what comes later is not read */
            target[1][0] = bad[b];
            rig_chain_logits(one_thread, tokens, &accepted, &verdict, args, RIG_F32, 1, 2, V);
            assert_true(tokens[0] == 0 && tokens[1] == -1 && accepted == 0);
            assert_int_equal(verdict, ALEA_OK);
        }
    }
}

static void test_sixteen_bit_rows_are_their_values(void **state) {
    (void)state;
    enum { ROWS = 12, DRAFTS = 2, V = 2100 };
    chains c = chains_make(ROWS, DRAFTS, V, 5);
    const int64_t n = ROWS * (DRAFTS + 1) * V;
    for (rig_dtype dtype = RIG_F16; dtype <= RIG_BF16; dtype++) {
        uint16_t *draft = rig_alloc((size_t)n * 2), *target = rig_alloc((size_t)n * 2);
        int32_t got[ROWS * (DRAFTS + 2)], right[ROWS * (DRAFTS + 2)], verdicts[2][ROWS];
        rig_narrow(draft, c.draft, ROWS * DRAFTS * V, dtype); /* which rounds c.draft too */
        rig_narrow(target, c.target, n, dtype);
        for (int certain = 0; certain < 2; certain++) {
            rig_chain_logits_args args = args_of(&c, certain);
            rig_chain_logits(one_thread, right, right + ROWS * (DRAFTS + 1), verdicts[0], args,
                             RIG_F32, ROWS, DRAFTS, V);
            args.draft = certain ? NULL : draft;
            args.target = target;
            rig_chain_logits(one_thread, got, got + ROWS * (DRAFTS + 1), verdicts[1], args, dtype,
                             ROWS, DRAFTS, V);
            assert_memory_equal(got, right, sizeof got);
            assert_memory_equal(verdicts[0], verdicts[1], sizeof verdicts[0]);
        }
        free(draft);
        free(target);
    }
    chains_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chains_are_those_of_the_defined_probabilities),
        cmocka_unit_test(test_chains_follow_exact_arithmetic),
        cmocka_unit_test(test_greedy_chains_accept_what_the_target_prefers),
        cmocka_unit_test(test_a_failed_row_ends_its_chain),
        cmocka_unit_test(test_sixteen_bit_rows_are_their_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
