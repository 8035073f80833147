/*
 * Control tokens are found here, in the template's own text alone, as a tokenizer finds them that
 * is given the whole: longest name first, leftmost first. The text between two of them goes to the
 * core in one piece and without markup.
 */
#include "text/chat_tokens.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

/* Whether a token swallows the white space beside it; known when first asked. */
enum side { SIDE_KNOWN = 1, SIDE_LEFT = 2, SIDE_RIGHT = 4 };

typedef struct special {
    alea_bytes name; /* the core's; never empty */
    int32_t token;
    bool is_text; /* the core finds it in any text, so there it has to be cut */
    _Atomic uint8_t sides;
} special;

struct alea_chat_tokenizer {
    const alea_core *core;
    special *specials; /* longest name first, then by id */
    int32_t *by_name;  /* [n] indices of specials, by the bytes of their names, shorter first */
    int32_t n;
    int32_t first[257]; /* in by_name: names that begin with byte b are [first[b], first[b + 1]) */
    int32_t bos;        /* -1: not put in front */
};

enum { TAKEN = 1, CUT = 2 };

typedef struct hit {
    size_t at;
    int32_t special;
} hit;

/* The joined text of a chat, the hits in it and the ids so far. */
typedef struct work {
    const alea_chat_tokenizer *own;
    uint8_t *text;
    uint8_t *taken; /* per byte: TAKEN, it belongs to a hit; CUT, text ends before it */
    size_t bytes;
    hit *hits;
    size_t n_hits, hits_capacity;
    int32_t *ids;
    size_t n_ids, ids_capacity;
} work;

static int by_length(const void *a, const void *b) {
    const special *left = a, *right = b;
    if (left->name.length != right->name.length)
        return left->name.length < right->name.length ? 1 : -1;
    return left->token < right->token ? -1 : left->token > right->token;
}

/* "<|start|>", "<|turn>": some vocabularies hold the marks of roles as text. */
static bool looks_like_control(alea_bytes name) {
    static const char *const starts[] = {"<|", "<\xEF\xBD\x9C"}; /* U+FF5C */
    static const char *const ends[] = {"|>", "\xEF\xBD\x9C>"};
    for (size_t i = 0; i < 2; i++) {
        const size_t start = strlen(starts[i]), end = strlen(ends[i]);
        if (name.length > start && memcmp(name.data, starts[i], start) == 0) return true;
        if (name.length > end && memcmp(name.data + name.length - end, ends[i], end) == 0)
            return true;
    }
    return false;
}

static bool is_text(const alea_token_info *info) {
    return (info->flags & (ALEA_TOKEN_CONTROL | ALEA_TOKEN_UNKNOWN)) == 0;
}

static bool is_special(const alea_core *core, int32_t token, alea_token_info *info) {
    if (alea_core_token(core, token, info) != ALEA_OK || info->name.length == 0) return false;
    if (!is_text(info)) return true;
    return (info->flags & ALEA_TOKEN_USER) != 0 && looks_like_control(info->name);
}

static int compare_names(const void *a, const void *b, void *specials) {
    const int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    const alea_bytes left = ((const special *)specials)[i].name;
    const alea_bytes right = ((const special *)specials)[j].name;
    const size_t shared = left.length < right.length ? left.length : right.length;
    const int order = memcmp(left.data, right.data, shared);
    if (order != 0) return order;
    if (left.length != right.length) return left.length < right.length ? -1 : 1;
    return i < j ? -1 : i > j;
}

static void sort_names(alea_chat_tokenizer *own) {
    for (int32_t i = 0; i < own->n; i++)
        own->by_name[i] = i;
    qsort_r(own->by_name, (size_t)own->n, sizeof(*own->by_name), compare_names, own->specials);
    for (int32_t i = 0, b = 0; b <= 256; b++) {
        while (i < own->n && own->specials[own->by_name[i]].name.data[0] < b)
            i++;
        own->first[b] = i;
    }
}

alea_status alea__chat_tokenizer_create(const alea_core *core, alea_chat_tokenizer **tokenizer,
                                        alea_error *error) {
    alea_core_info about;
    alea_token_info info;
    alea_core_describe(core, &about);
    int32_t n = 0;
    for (int32_t token = 0; token < about.vocab; token++)
        n += is_special(core, token, &info);
    alea_chat_tokenizer *own = malloc(sizeof(*own));
    special *specials = calloc((size_t)n + 1, sizeof(*specials));
    int32_t *by_name = calloc((size_t)n + 1, sizeof(*by_name));
    if (own == NULL || specials == NULL || by_name == NULL) {
        free(own);
        free(specials);
        free(by_name);
        return alea_error_set(error, ALEA_ENOMEM, "out of memory for %d control tokens", n);
    }
    *own = (alea_chat_tokenizer){.core = core,
                                 .specials = specials,
                                 .by_name = by_name,
                                 .bos = about.adds_bos ? about.bos : -1};
    for (int32_t token = 0; token < about.vocab && own->n < n; token++) {
        if (!is_special(core, token, &info)) continue;
        specials[own->n].name = info.name;
        specials[own->n].is_text = is_text(&info);
        specials[own->n++].token = token;
    }
    qsort(specials, (size_t)own->n, sizeof(*specials), by_length);
    sort_names(own);
    *tokenizer = own;
    return ALEA_OK;
}

void alea__chat_tokenizer_destroy(alea_chat_tokenizer *tokenizer) {
    if (tokenizer == NULL) return;
    free(tokenizer->specials);
    free(tokenizer->by_name);
    free(tokenizer);
}

static bool add_hit(work *w, size_t at, int32_t index) {
    if (w->n_hits == w->hits_capacity) {
        const size_t capacity = w->hits_capacity * 2 + 64;
        hit *hits = realloc(w->hits, capacity * sizeof(*hits));
        if (hits == NULL) return false;
        w->hits = hits;
        w->hits_capacity = capacity;
    }
    w->hits[w->n_hits++] = (hit){.at = at, .special = index};
    return true;
}

/* The names that a text begins with, shorter ones first. `low` to `high` are those that agree with
 * it so far, in by_name; each byte narrows them, so thousands of names cost little more than one.
 */
typedef struct name_walk {
    const alea_chat_tokenizer *own;
    const uint8_t *text;
    size_t length, depth; /* bytes of the text; how many are known to agree */
    int32_t low, high;
} name_walk;

static name_walk walk_names(const alea_chat_tokenizer *own, const uint8_t *text, size_t length) {
    return (name_walk){.own = own,
                       .text = text,
                       .length = length,
                       .depth = 1,
                       .low = own->first[text[0]],
                       .high = own->first[text[0] + 1]};
}

/* The first in [low, high) whose name has a byte of at least `least` at `depth`. */
static int32_t first_from(const name_walk *walk, unsigned least) {
    int32_t low = walk->low, high = walk->high;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (walk->own->specials[walk->own->by_name[middle]].name.data[walk->depth] < least)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The index of the next, or -1. */
static int32_t next_name(name_walk *walk) {
    while (walk->low < walk->high) {
        const int32_t index = walk->own->by_name[walk->low];
        if (walk->own->specials[index].name.length == walk->depth) {
            walk->low++;
            return index;
        }
        if (walk->depth == walk->length) break;
        const unsigned byte = walk->text[walk->depth];
        walk->low = first_from(walk, byte);
        walk->high = first_from(walk, byte + 1);
        walk->depth++;
    }
    return -1;
}

/* Every name in [begin, end), overlapping ones too. */
static bool find_names(work *w, size_t begin, size_t end) {
    for (size_t at = begin; at < end; at++) {
        name_walk walk = walk_names(w->own, w->text + at, end - at);
        for (int32_t i; (i = next_name(&walk)) >= 0;)
            if (!add_hit(w, at, i)) return false;
    }
    return true;
}

/* Specials are in order of length, so the index of one is its rank. */
static int by_rank(const void *a, const void *b) {
    const hit *left = a, *right = b;
    if (left->special != right->special) return left->special < right->special ? -1 : 1;
    return left->at < right->at ? -1 : left->at > right->at;
}

static int by_place(const void *a, const void *b) {
    const hit *left = a, *right = b;
    return left->at < right->at ? -1 : left->at > right->at;
}

static void drop_overlaps(work *w) {
    if (w->n_hits == 0) return;
    qsort(w->hits, w->n_hits, sizeof(*w->hits), by_rank);
    size_t kept = 0;
    for (size_t i = 0; i < w->n_hits; i++) {
        const hit found = w->hits[i];
        const size_t length = w->own->specials[found.special].name.length;
        /* What is taken already is longer, so it shows at an end. */
        if (w->taken[found.at] || w->taken[found.at + length - 1]) continue;
        memset(w->taken + found.at, TAKEN, length);
        w->hits[kept++] = found;
    }
    w->n_hits = kept;
    qsort(w->hits, w->n_hits, sizeof(*w->hits), by_place);
}

/* Where a stranger, or he and the template together, wrote a name that the core would find. The cut
 * is behind the first character, so no character is cut. */
static void cut_names(work *w) {
    for (size_t at = 0; at < w->bytes; at++) {
        if (w->taken[at] == TAKEN) continue;
        name_walk walk = walk_names(w->own, w->text + at, w->bytes - at);
        for (int32_t i; (i = next_name(&walk)) >= 0;) {
            const special *found = &w->own->specials[i];
            if (!found->is_text) continue;
            size_t cut = at + 1;
            while (cut < w->bytes && (w->text[cut] & 0xC0) == 0x80)
                cut++;
            if (cut < at + found->name.length && w->taken[cut] == 0) w->taken[cut] = CUT;
        }
    }
}

static bool make_room(work *w, size_t more) {
    size_t needed = 0, bytes = 0;
    if (!alea__size_add(w->n_ids, more, &needed)) return false;
    if (needed <= w->ids_capacity) return true;
    if (!alea__size_mul(needed, sizeof(*w->ids), &bytes)) return false;
    int32_t *ids = realloc(w->ids, bytes);
    if (ids == NULL) return false;
    w->ids = ids;
    w->ids_capacity = needed;
    return true;
}

static alea_status add_piece(work *w, size_t begin, size_t end) {
    if (begin >= end) return ALEA_OK;
    const alea_bytes text = {.data = w->text + begin, .length = end - begin};
    size_t room = text.length / 2 + 16, count = 0;
    for (;;) {
        if (!make_room(w, room)) return ALEA_ENOMEM;
        const alea_status status =
            alea_core_tokenize(w->own->core, text, 0, w->ids + w->n_ids, room, &count);
        if (status < 0) return status;
        if (count <= room) break;
        room = count;
    }
    w->n_ids += count;
    return ALEA_OK;
}

static alea_status add_text(work *w, size_t begin, size_t end) {
    for (size_t at = begin + 1; at < end; at++) {
        if (w->taken[at] != CUT) continue;
        const alea_status status = add_piece(w, begin, at);
        if (status < 0) return status;
        begin = at;
    }
    return add_piece(w, begin, end);
}

/* Whether the core makes of `text` this one token. */
static bool is_alone(const alea_core *core, alea_bytes text, int32_t token) {
    int32_t ids[4];
    size_t count = 0;
    return alea_core_tokenize(core, text, ALEA_TOKENIZE_MARKUP, ids, 4, &count) == ALEA_OK &&
           count == 1 && ids[0] == token;
}

static uint8_t sides_of(const work *w, special *of) {
    uint8_t sides = atomic_load_explicit(&of->sides, memory_order_relaxed);
    if (sides != 0) return sides;
    const size_t length = of->name.length;
    uint8_t *text = malloc(length + 2);
    if (text == NULL) return 0;
    text[0] = text[length + 1] = '\n';
    memcpy(text + 1, of->name.data, length);
    const alea_bytes left = {.data = text, .length = length + 1};
    const alea_bytes right = {.data = text + 1, .length = length + 1};
    sides = SIDE_KNOWN;
    if (is_alone(w->own->core, left, of->token)) sides |= SIDE_LEFT;
    if (is_alone(w->own->core, right, of->token)) sides |= SIDE_RIGHT;
    free(text);
    atomic_store_explicit(&of->sides, sides, memory_order_relaxed);
    return sides;
}

static alea_status add_all(work *w) {
    size_t begin = 0;
    for (size_t i = 0; i < w->n_hits; i++) {
        special *found = &w->own->specials[w->hits[i].special];
        const uint8_t sides = sides_of(w, found);
        size_t end = w->hits[i].at;
        if ((sides & SIDE_KNOWN) == 0) return ALEA_ENOMEM;
        while ((sides & SIDE_LEFT) != 0 && end > begin && isspace(w->text[end - 1]))
            end--;
        const alea_status status = add_text(w, begin, end);
        if (status < 0) return status;
        if (!make_room(w, 1)) return ALEA_ENOMEM;
        w->ids[w->n_ids++] = found->token;
        begin = w->hits[i].at + found->name.length;
        const size_t next = i + 1 < w->n_hits ? w->hits[i + 1].at : w->bytes;
        while ((sides & SIDE_RIGHT) != 0 && begin < next && isspace(w->text[begin]))
            begin++;
    }
    return add_text(w, begin, w->bytes);
}

static alea_status gather(work *w, const alea_chat_text *text, bool add_special) {
    w->bytes = text->bytes;
    w->text = malloc(text->bytes + 1);
    w->taken = calloc(text->bytes + 1, 1);
    if (w->text == NULL || w->taken == NULL) return ALEA_ENOMEM;
    size_t at = 0;
    for (size_t i = 0; i < text->n_spans; i++) {
        const alea_chat_span *span = &text->spans[i];
        memcpy(w->text + at, span->text.data, span->text.length);
        if (!span->from_input && !find_names(w, at, at + span->text.length)) return ALEA_ENOMEM;
        at += span->text.length;
    }
    drop_overlaps(w);
    cut_names(w);
    const int32_t bos = add_special ? w->own->bos : -1;
    if (bos >= 0) {
        if (!make_room(w, 1)) return ALEA_ENOMEM;
        w->ids[w->n_ids++] = bos;
    }
    const alea_status status = add_all(w);
    if (status < 0) return status;
    if (bos >= 0 && w->n_ids > 1 && w->ids[1] == bos)
        memmove(w->ids, w->ids + 1, --w->n_ids * sizeof(*w->ids));
    return ALEA_OK;
}

alea_status alea__chat_tokenize(const alea_chat_tokenizer *tokenizer, const alea_chat_text *text,
                                bool add_special, size_t tokens_max, int32_t **tokens,
                                size_t *count, alea_error *error) {
    work w = {.own = tokenizer};
    alea_status status = gather(&w, text, add_special);
    free(w.text);
    free(w.taken);
    free(w.hits);
    if (status == ALEA_OK && w.n_ids > tokens_max)
        status = alea_error_set(error, ALEA_ELIMIT, "the chat has %zu tokens, the limit is %zu",
                                w.n_ids, tokens_max);
    else if (status < 0)
        status = alea_error_set(error, status, "the chat cannot become tokens: %s",
                                alea_status_text(status));
    if (status < 0) {
        free(w.ids);
        return status;
    }
    if (w.n_ids == 0) {
        free(w.ids);
        w.ids = NULL;
    }
    *tokens = w.ids;
    *count = w.n_ids;
    return ALEA_OK;
}
