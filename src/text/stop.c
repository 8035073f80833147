/* One Knuth-Morris-Pratt matcher a string: requests have a handful, so an automaton of all gains
 * nothing. Amortized cost is a few steps a byte and string. */
#include <string.h>

#include "text/stop.h"

size_t alea__stops_bytes(const alea_bytes *strings, int32_t n) {
    size_t bytes = (size_t)n * sizeof(int32_t *);
    for (int32_t i = 0; i < n; i++)
        bytes += strings[i].length * sizeof(int32_t);
    return bytes;
}

size_t alea__stop_match_bytes(int32_t n) {
    return (size_t)n * sizeof(int32_t);
}

/* links[i]: length of the longest proper border of the first i + 1 bytes. */
static void fill_links(alea_bytes string, int32_t *links) {
    int32_t border = 0;
    links[0] = 0;
    for (size_t i = 1; i < string.length; i++) {
        while (border > 0 && string.data[i] != string.data[border])
            border = links[border - 1];
        if (string.data[i] == string.data[border]) border++;
        links[i] = border;
    }
}

void alea__stops_init(alea_stops *stops, const alea_bytes *strings, int32_t n, void *memory) {
    int32_t **links = (int32_t **)memory;
    int32_t *next = (int32_t *)(links + n);
    for (int32_t i = 0; i < n; i++) {
        links[i] = next;
        fill_links(strings[i], next);
        next += strings[i].length;
    }
    *stops = (alea_stops){.strings = strings, .links = links, .n = n};
}

void alea__stop_match_init(alea_stop_match *match, int32_t n, void *memory) {
    match->matched = (int32_t *)memory;
    if (n > 0) memset(memory, 0, alea__stop_match_bytes(n));
}

static int32_t advance(alea_bytes string, const int32_t *links, int32_t matched, uint8_t byte) {
    while (matched > 0 && string.data[matched] != byte)
        matched = links[matched - 1];
    return string.data[matched] == byte ? matched + 1 : 0;
}

int32_t alea__stop_feed(const alea_stops *stops, alea_stop_match *match, uint8_t byte,
                        int32_t *held) {
    int32_t complete = -1;
    int32_t longest = 0;
    for (int32_t i = 0; i < stops->n; i++) {
        const alea_bytes string = stops->strings[i];
        int32_t matched = advance(string, stops->links[i], match->matched[i], byte);
        if ((size_t)matched == string.length) {
            if (complete < 0 || string.length > stops->strings[complete].length) complete = i;
            matched = stops->links[i][matched - 1];
        }
        match->matched[i] = matched;
        if (matched > longest) longest = matched;
    }
    *held = longest;
    return complete;
}
