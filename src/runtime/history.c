/* The table behind the penalties. Load stays at or below one half, so a probe always ends. */
#include "runtime/history.h"

#define HISTORY_PLACES_MAX (INT64_C(1) << 30)

static int64_t places_for(int64_t tokens) {
    int64_t places = 16;
    while (places < 2 * tokens && places < HISTORY_PLACES_MAX)
        places *= 2;
    return places;
}

size_t alea__history_bytes(int64_t tokens) {
    if (tokens < 0 || tokens > HISTORY_PLACES_MAX / 2) return SIZE_MAX;
    return (size_t)places_for(tokens) * sizeof(alea_seen);
}

void alea__history_init(alea_history *history, void *memory, int64_t tokens) {
    const int64_t places = places_for(tokens);
    history->places = (alea_seen *)memory;
    history->mask = (uint32_t)(places - 1);
    history->used = 0;
    for (int64_t i = 0; i < places; i++)
        history->places[i] = (alea_seen){.token = -1};
}

static alea_seen *find(alea_history *history, int32_t token) {
    /* Fibonacci hashing: neighbouring ids, which texts repeat, spread over the table. */
    uint32_t at = ((uint32_t)token * 2654435769u) >> 7 & history->mask;
    while (history->places[at].token != token && history->places[at].token != -1) {
        at = (at + 1) & history->mask;
    }
    alea_seen *seen = &history->places[at];
    if (seen->token == -1) {
        seen->token = token;
        history->used++;
    }
    return seen;
}

void alea__history_add_prompt(alea_history *history, int32_t token) {
    (void)find(history, token);
}

void alea__history_add_output(alea_history *history, int32_t token) {
    find(history, token)->output_count++;
}
