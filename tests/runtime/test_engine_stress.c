/*
 * Many clients at once against one engine: random parameters, cancels, deadlines, stops, slow
 * readers. Every token must arrive once and in order, and what was neither cancelled nor overdue
 * must be what the request gives alone. ALEA_STRESS_REQUESTS sets the number (1,000 here; `make
 * stress` runs 10,000 under each sanitizer), ALEA_SOAK_MINUTES adds a soak that watches memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
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
    uint64_t finished, tokens;
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
        if (event.kind == ALEA_EVENT_FINISH) {
            count(c, "a choice finished twice", choice->finish == ALEA_FINISH_NONE);
            choice->finish = event.finish;
            choice->stop = event.stop;
            choice->output_tokens = event.output_tokens;
            continue;
        }
        const int32_t i = choice->n++;
        count(c, "a token came out of order", event.index == i);
        choice->tokens[i] = event.token;
        choice->visible[i] = event.visible_bytes;
        choice->logprobs[i] = event.logprob;
        c->tokens++;
    }
    count(c, "a request did not finish", status == ALEA_DONE);
}

static bool was_interrupted(const rig_choice *choice) {
    return choice->finish == ALEA_FINISH_CANCELLED || choice->finish == ALEA_FINISH_DEADLINE;
}

static bool same(const rig_choice *a, const rig_choice *b) {
    const size_t n = (size_t)a->n;
    return a->n == b->n && a->finish == b->finish && a->output_tokens == b->output_tokens &&
           memcmp(a->tokens, b->tokens, n * sizeof a->tokens[0]) == 0 &&
           memcmp(a->visible, b->visible, n * sizeof a->visible[0]) == 0 &&
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
    const alea_engine_options plain = {.threads = 1, .no_overlap = true, .no_prefix_cache = true};
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
        const uint64_t tokens = c->tokens;
        read_all(c, &p, request, alone);
        c->tokens = tokens;
        for (int32_t i = 0; i < p.params.choices; i++) {
            count(c, "company changed a request",
                  was_interrupted(&choices[i]) || same(&choices[i], &alone[i]));
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
        if (number % 97 == 0) { /* a client that leaves at once */
            alea__request_release(request);
            c->finished++;
            continue;
        }
        read_all(c, &p, request, choices);
        alea__request_release(request);
        c->finished++;
        if (number % 11 == 0) compare_alone(c, number, choices);
    }
    free(choices);
    return NULL;
}

/* All numbers in [first, end), spread over the clients; returns when the last has its answer. */
static void run_crowd(alea_engine *engine, uint64_t first, uint64_t end) {
    client clients[CLIENTS];
    pthread_t threads[CLIENTS];
    for (uint64_t i = 0; i < CLIENTS; i++) {
        clients[i] = (client){.engine = engine, .first = first + i, .step = CLIENTS, .end = end};
        assert_int_equal(pthread_create(&threads[i], NULL, run_client, &clients[i]), 0);
    }
    uint64_t finished = 0;
    for (size_t i = 0; i < CLIENTS; i++) {
        pthread_join(threads[i], NULL);
        if (clients[i].failure) fail_msg("client %zu: %s", i, clients[i].failure);
        finished += clients[i].finished;
    }
    assert_int_equal(finished, end - first);
}

static rig open_crowded(void) {
    const alea_engine_options options = {.threads = 2, .queue_tokens = 4};
    rig r = rig_open(TOY, 5, 40, options);
    alea_error error;
    assert_int_equal(alea__engine_start(r.engine, &error), ALEA_OK);
    return r;
}

static void test_a_crowd_of_clients_gets_every_token_once(void **state) {
    (void)state;
    const char *set = getenv("ALEA_STRESS_REQUESTS");
    rig r = open_crowded();
    run_crowd(r.engine, 0, set ? strtoull(set, NULL, 10) : 1000);
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

/* One engine, waves of requests, minutes of them: what the process holds must not grow. The first
 * fifth of the time is the warm-up, in which the allocator finds its size. */
static void test_a_soak_does_not_grow(void **state) {
    (void)state;
    const char *set = getenv("ALEA_SOAK_MINUTES");
    const double minutes = set ? strtod(set, NULL) : 0;
    if (minutes <= 0) {
        print_message("SKIP: takes minutes; set ALEA_SOAK_MINUTES or run `make stress`\n");
        skip();
    }
    const uint64_t start = alea__clock_ns();
    const uint64_t length_ns = (uint64_t)(minutes * 60e9);
    rig r = open_crowded();
    uint64_t first = 0, ns = 0;
    long warm = 0, now = 0;
    while (ns < length_ns) {
        run_crowd(r.engine, first, first + 500);
        first += 500;
        ns = alea__clock_ns() - start;
        now = resident_kib();
        if (ns < length_ns / 5 || warm == 0) warm = now > warm ? now : warm;
    }
    print_message("soak: %.1f minutes, %llu requests, resident %ld KiB warm, %ld KiB at the end\n",
                  minutes, (unsigned long long)first, warm, now);
    assert_true(now <= warm + 1024);
    alea_engine_stats stats;
    alea__engine_stats_read(r.engine, &stats);
    assert_int_equal(stats.requests, first);
    alea__engine_stop(r.engine);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_crowd_of_clients_gets_every_token_once),
        cmocka_unit_test(test_a_soak_does_not_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
