/*
 * Many clients at once against one engine: random parameters, cancels, deadlines, stops, slow
 * readers. Every token that the engine counts as emitted must arrive once and in order, but for
 * those that a stop string, a cancel or a deadline took back; and what arrives must be what the
 * request gives alone, or the beginning of it.
 *
 * ALEA_STRESS_REQUESTS sets the number (1,000 here; `make stress` runs 10,000 under each
 * sanitizer), ALEA_SOAK_MINUTES how long the soak watches memory (three seconds here).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/engine_rig.h"

#define CLIENTS 6
#define TOY "vocab=300,text=1,context=256"

static uint32_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* A request as a function of its number, so that it can be run again alone. */
typedef struct plan {
    int32_t prompt[48];
    int32_t n_prompt;
    alea_request_params params;
    alea_bytes stops[2];
    int32_t cancel_after; /* events; -1: never */
    bool slow;
} plan;

static void make_plan(plan *p, uint64_t number) {
    uint64_t random = number * 2654435761u + 1;
    p->n_prompt = 1 + (int32_t)(next_random(&random) % 48);
    for (int32_t i = 0; i < p->n_prompt; i++) {
        /* A few shared beginnings, so that prefixes are reused and written over. */
        p->prompt[i] =
            i < 20 ? (int32_t)(number % 5) * 7 + i : (int32_t)(next_random(&random) % 256);
    }
    p->params = alea__params_default();
    p->params.seeded = true;
    p->params.seed = number;
    p->params.max_tokens = (int32_t)(next_random(&random) % 30);
    p->params.choices = next_random(&random) % 5 ? 1 : 3;
    p->params.sampling.temperature = (float)(next_random(&random) % 3) * 0.7f;
    p->params.sampling.top_k = (int32_t)(next_random(&random) % 3) * 20;
    p->params.repetition_penalty = next_random(&random) % 3 ? 1.0f : 1.2f;
    p->params.top = (int32_t)(next_random(&random) % 8) - 1;
    p->params.priority = (int32_t)(next_random(&random) % 3);
    p->params.want_sampled = next_random(&random) % 2;
    p->params.prompt_top = next_random(&random) % 3 ? -1 : (int32_t)(next_random(&random) % 21);
    p->params.no_scored_cache = next_random(&random) % 16 == 0;
    p->stops[0] = (alea_bytes){(const uint8_t *)"e", 1};
    p->stops[1] = (alea_bytes){(const uint8_t *)" th", 3};
    p->params.n_stops = (int32_t)(next_random(&random) % 4) == 0 ? 2 : 0;
    p->params.stops = p->stops;
    p->params.include_stop = next_random(&random) % 2;
    p->cancel_after = next_random(&random) % 8 ? -1 : (int32_t)(next_random(&random) % 10);
    p->slow = next_random(&random) % 32 == 0;
    if (next_random(&random) % 16 == 0) p->params.deadline_ns = 1; /* made absolute at submission */
}

typedef struct client {
    alea_engine *engine;
    uint64_t first, step, end;
    uint64_t finished;
    uint64_t choices, emitted, scores; /* of the requests that were read to the end */
    bool leaves; /* drops one request in three without reading it to the end */
    const char *failure;
} client;

static void count(client *c, const char *failure, bool holds) {
    if (!holds && !c->failure) c->failure = failure;
}

/* Reads to the end; cmocka may not be used outside the main thread, so failures are noted. */
static void read_all(client *c, plan *p, alea_request *request, rig_choice *choices) {
    alea_event event;
    int32_t events = 0;
    alea_status status;
    while ((status = alea__request_next(request, 20000, &event)) == ALEA_OK) {
        if (events++ == p->cancel_after) alea__request_cancel(request);
        if (p->slow && events % 4 == 0) usleep(200);
        rig_choice *choice = &choices[event.choice];
        if (event.kind == ALEA_EVENT_PROMPT) {
            const int32_t at = choice->n_scores++;
            count(c, "a score came out of order", event.index == at && choice->n == 0);
            count(c, "a score is of another token", event.token == p->prompt[at]);
            choice->scores[at].logprob = event.has_entry ? event.logprob : 0;
            choice->scores[at].rank = event.rank;
            choice->scores[at].is_greedy = event.is_greedy;
            continue;
        }
        if (event.kind == ALEA_EVENT_FINISH) {
            count(c, "a choice finished twice", choice->finish == ALEA_FINISH_NONE);
            choice->finish = event.finish;
            choice->stop = event.stop;
            choice->output_tokens = event.output_tokens;
            if (event.message) {
                snprintf(choice->message, sizeof choice->message, "%s", event.message);
            }
            continue;
        }
        const int32_t i = choice->n++;
        count(c, "a token came out of order", event.index == i);
        choice->tokens[i] = event.token;
        choice->visible[i] = event.visible_bytes;
        choice->logprobs[i] = event.logprob;
    }
    count(c, "a request did not finish", status == ALEA_DONE);
}

/* Every emitted token is one that was read, or one that its end is known to have taken back. */
static void account(client *c, const plan *p, const rig_choice *choices) {
    for (int32_t i = 0; i < p->params.choices; i++) {
        const rig_choice *choice = &choices[i];
        const bool whole = choice->finish == ALEA_FINISH_END ||
                           choice->finish == ALEA_FINISH_STOP_TOKEN ||
                           choice->finish == ALEA_FINISH_LENGTH;
        count(c, "a choice failed", choice->finish != ALEA_FINISH_ERROR);
        count(c, "a choice did not finish", choice->finish != ALEA_FINISH_NONE);
        count(c, "a token was lost", !whole || choice->n == choice->output_tokens);
        const int32_t scores = i == 0 && p->params.prompt_top >= 0 ? p->n_prompt : 0;
        count(c, "a score was lost",
              choice->n_scores == scores || (!whole && choice->n_scores < scores));
        c->scores += (uint64_t)choice->n_scores;
        count(c, "a token came twice", choice->n <= choice->output_tokens);
        count(c, "the budget was exceeded", choice->output_tokens <= p->params.max_tokens);
        c->emitted += (uint64_t)choice->output_tokens;
        c->choices++;
    }
}

static bool was_interrupted(const rig_choice *choice) {
    return choice->finish == ALEA_FINISH_CANCELLED || choice->finish == ALEA_FINISH_DEADLINE;
}

static bool same(const rig_choice *a, const rig_choice *b) {
    const size_t n = (size_t)a->n;
    return a->n == b->n && a->n_scores == b->n_scores &&
           memcmp(a->scores, b->scores, (size_t)a->n_scores * sizeof a->scores[0]) == 0 &&
           a->finish == b->finish && a->output_tokens == b->output_tokens &&
           memcmp(a->tokens, b->tokens, n * sizeof a->tokens[0]) == 0 &&
           memcmp(a->visible, b->visible, n * sizeof a->visible[0]) == 0 &&
           memcmp(a->logprobs, b->logprobs, n * sizeof a->logprobs[0]) == 0;
}

/* What an interrupted request has given is the beginning of what it would have given. */
static bool begins_like(const rig_choice *a, const rig_choice *b) {
    const size_t n = (size_t)a->n;
    return a->n_scores <= b->n_scores &&
           memcmp(a->scores, b->scores, (size_t)a->n_scores * sizeof a->scores[0]) == 0 &&
           a->n <= b->n && memcmp(a->tokens, b->tokens, n * sizeof a->tokens[0]) == 0 &&
           memcmp(a->logprobs, b->logprobs, n * sizeof a->logprobs[0]) == 0;
}

/* The same request alone, on a core and an engine of its own. */
static void compare_alone(client *c, uint64_t number, const rig_choice *choices) {
    plan p;
    make_plan(&p, number);
    p.params.deadline_ns = 0;
    rig_choice *alone = calloc(3, sizeof *alone);
    alea_core *core = NULL;
    alea_engine *engine = NULL;
    alea_request *request = NULL;
    const alea_core_options options = {.struct_bytes = sizeof options, .model = TOY};
    const alea_engine_options plain = {.threads = 1,
                                       .no_overlap = true,
                                       .no_prefix_cache = true,
                                       .prompt_logprobs = true,
                                       .scored_cache = ALEA_SCORED_CACHE_OFF};
    bool ready =
        alea_core_open(alea_core_toy(), &options, &core, NULL) == ALEA_OK &&
        alea__engine_create(core, &plain, &engine, NULL) == ALEA_OK &&
        alea__engine_submit(engine, p.prompt, p.n_prompt, &p.params, &request, NULL) == ALEA_OK;
    count(c, "the lone engine did not start", ready);
    if (ready) {
        while (alea__engine_step(engine, 1) == ALEA_OK) {
        }
        p.cancel_after = -1;
        p.slow = false;
        read_all(c, &p, request, alone);
        for (int32_t i = 0; i < p.params.choices; i++) {
            count(c, "company changed a request",
                  was_interrupted(&choices[i]) ? begins_like(&choices[i], &alone[i])
                                               : same(&choices[i], &alone[i]));
        }
        alea__request_release(request);
    }
    alea__engine_destroy(engine);
    alea_core_close(core);
    free(alone);
}

static void *run_client(void *user) {
    client *c = user;
    rig_choice *choices = calloc(3, sizeof *choices);
    for (uint64_t number = c->first; number < c->end; number += c->step) {
        plan p;
        make_plan(&p, number);
        if (p.params.deadline_ns) p.params.deadline_ns = alea__clock_ns() + number % 2000000;
        memset(choices, 0, 3 * sizeof *choices);
        alea_request *request = NULL;
        const alea_status status =
            alea__engine_submit(c->engine, p.prompt, p.n_prompt, &p.params, &request, NULL);
        count(c, "a submission was refused", status == ALEA_OK);
        if (status != ALEA_OK) continue;
        c->finished++;
        if (c->leaves && number % 3 == 0) {
            alea_event event;
            if (number % 2) (void)!alea__request_next(request, 2, &event);
            alea__request_release(request);
            continue;
        }
        read_all(c, &p, request, choices);
        alea__request_release(request);
        account(c, &p, choices);
        if (number % 11 == 0) compare_alone(c, number, choices);
    }
    free(choices);
    return NULL;
}

typedef struct total {
    uint64_t choices, emitted, scores;
} total;

/* All numbers in [first, end), spread over the clients; returns when the last has its answer. */
static total run_crowd(alea_engine *engine, uint64_t first, uint64_t end, bool leaves) {
    client clients[CLIENTS];
    pthread_t threads[CLIENTS];
    for (uint64_t i = 0; i < CLIENTS; i++) {
        clients[i] = (client){
            .engine = engine, .first = first + i, .step = CLIENTS, .end = end, .leaves = leaves};
        assert_int_equal(pthread_create(&threads[i], NULL, run_client, &clients[i]), 0);
    }
    uint64_t finished = 0;
    total sum = {0};
    for (size_t i = 0; i < CLIENTS; i++) {
        pthread_join(threads[i], NULL);
        if (clients[i].failure) fail_msg("client %zu: %s", i, clients[i].failure);
        finished += clients[i].finished;
        sum.choices += clients[i].choices;
        sum.emitted += clients[i].emitted;
        sum.scores += clients[i].scores;
    }
    assert_int_equal(finished, end - first);
    return sum;
}

static rig open_crowded(void) {
    const alea_engine_options options = {.threads = 2, .queue_tokens = 4, .prompt_logprobs = true};
    rig r = rig_open(TOY, 5, 40, options);
    alea_error error;
    assert_int_equal(alea__engine_start(r.engine, &error), ALEA_OK);
    return r;
}

static uint64_t requests(uint64_t otherwise) {
    const char *set = getenv("ALEA_STRESS_REQUESTS");
    return set ? strtoull(set, NULL, 10) : otherwise;
}

/* The reader learns of its end before the engine has let go of everything. */
static alea_engine_stats settled(alea_engine *engine) {
    alea_engine_stats stats;
    for (int32_t i = 0; i < 5000; i++) {
        alea__engine_stats_read(engine, &stats);
        if (stats.running == 0 && stats.waiting == 0) return stats;
        usleep(1000);
    }
    fail_msg("%d choices run and %d requests wait when all are over", stats.running, stats.waiting);
    return stats;
}

static void test_a_crowd_of_clients_gets_every_token_once(void **state) {
    (void)state;
    const uint64_t n = requests(1000);
    rig r = open_crowded();
    const total sum = run_crowd(r.engine, 0, n, false);
    const alea_engine_stats stats = settled(r.engine);
    print_message("%llu requests, %llu choices, %llu tokens, %llu prompt scores; %llu choices "
                  "interrupted, %llu preempted\n",
                  (unsigned long long)n, (unsigned long long)sum.choices,
                  (unsigned long long)sum.emitted, (unsigned long long)sum.scores,
                  (unsigned long long)stats.cancelled, (unsigned long long)stats.preempted);
    assert_int_equal(stats.requests, n);
    assert_int_equal(stats.finished + stats.cancelled, sum.choices);
    assert_int_equal(stats.failed, 0);
    assert_int_equal(stats.output_tokens, sum.emitted);
    assert_true(stats.cancelled > n / 20);
    assert_true(stats.preempted > n / 20);
    assert_true(sum.scores > stats.scored_positions); /* some were cached */
    alea__engine_stop(r.engine);
    rig_close(&r);
}

static void test_clients_that_leave_cost_the_others_nothing(void **state) {
    (void)state;
    const uint64_t n = requests(1000) / 2;
    rig r = open_crowded();
    const total sum = run_crowd(r.engine, 0, n, true);
    const alea_engine_stats stats = settled(r.engine);
    assert_int_equal(stats.requests, n);
    assert_true(stats.finished + stats.cancelled > sum.choices);
    assert_int_equal(stats.failed, 0);
    alea__engine_stop(r.engine);
    rig_close(&r);
}

static long resident_kib(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*s %ld", &pages), 1);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Bytes of the heap in use; 0 where the allocator does not tell. */
static size_t heap_bytes(void) {
#ifdef __GLIBC__
    return mallinfo2().uordblks;
#else
    return 0;
#endif
}

/* The sanitizers keep freed memory for a while, so that it grows for reasons of theirs. */
static bool memory_tells(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return false;
#endif
#endif
    return true;
}

/*
 * One engine, waves of requests, minutes of them. Between waves nothing is in use but the engine,
 * so the heap must be what it was after the first; what the process holds may settle during the
 * first fifth of the time, in which the allocator finds its size, and not grow afterwards.
 */
static void test_a_soak_does_not_grow(void **state) {
    (void)state;
    const char *set = getenv("ALEA_SOAK_MINUTES");
    const double minutes = set ? strtod(set, NULL) : 0.05;
    if (!memory_tells()) {
        print_message("SKIP: under a sanitizer memory tells nothing; leaks are its own business\n");
        skip();
    }
    const uint64_t start = alea__clock_ns();
    const uint64_t length_ns = (uint64_t)(minutes * 60e9);
    rig r = open_crowded();
    uint64_t first = 0, ns = 0, emitted = 0;
    long warm = 0, now = 0;
    size_t heap = 0;
    while (ns < length_ns) {
        emitted += run_crowd(r.engine, first, first + 200, false).emitted;
        first += 200;
        assert_int_equal(settled(r.engine).output_tokens, emitted);
        for (int32_t i = 0; i < 1000 && heap > 0 && heap_bytes() > heap; i++)
            usleep(1000); /* the last request is let go of just after its reader's end */
        if (heap == 0) heap = heap_bytes() + 64 * 1024;
        if (heap_bytes() > heap)
            fail_msg("%zu bytes of the heap in use, %zu at first", heap_bytes(), heap);
        ns = alea__clock_ns() - start;
        now = resident_kib();
        if (ns < length_ns / 5 || warm == 0) warm = now > warm ? now : warm;
    }
    print_message("soak: %.2f minutes, %llu requests, %llu tokens; resident %ld KiB warm, %ld KiB "
                  "at the end\n",
                  minutes, (unsigned long long)first, (unsigned long long)emitted, warm, now);
    assert_true(now <= warm + 1024);
    assert_int_equal(settled(r.engine).requests, first);
    alea__engine_stop(r.engine);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_crowd_of_clients_gets_every_token_once),
        cmocka_unit_test(test_clients_that_leave_cost_the_others_nothing),
        cmocka_unit_test(test_a_soak_does_not_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
