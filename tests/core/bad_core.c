/*
 * Shared objects that are no proper cores, one for each value of BAD. Whatever must not be called
 * before a table has been accepted ends the process.
 */
#include <stdlib.h>

#include "alea/core.h"

/* Macros, for BAD is one of them and #if compares it. */
#define WRONG_ABI 1
#define NO_ENTRY 2
#define NO_TABLE 3
#define SHORT_TABLE 4
#define NO_ROW 5
#define OLD_TABLE 6
#define UNRESOLVED 7

#if BAD != NO_ENTRY
ALEA_API const alea_core_api *alea_core_entry(void);

#if BAD == UNRESOLVED
extern const alea_core_api *bad_core_defined_nowhere(void);

const alea_core_api *alea_core_entry(void) {
    return bad_core_defined_nowhere();
}
#else
static alea_status bad_open(const alea_core_options *options, alea_core **core, alea_error *error) {
    (void)options, (void)core, (void)error;
    abort();
}

static void bad_close(alea_core *core) {
    (void)core;
    abort();
}

static void bad_describe(const alea_core *core, alea_core_info *info) {
    (void)core, (void)info;
    abort();
}

static void bad_token_info(const alea_core *core, int32_t token, alea_token_info *info) {
    (void)core, (void)token, (void)info;
    abort();
}

static alea_status bad_tokenize(const alea_core *core, alea_bytes text, uint32_t flags,
                                int32_t *tokens, size_t capacity, size_t *count) {
    (void)core, (void)text, (void)flags, (void)tokens, (void)capacity, (void)count;
    abort();
}

static alea_status bad_submit(alea_core *core, const alea_round *round, alea_error *error) {
    (void)core, (void)round, (void)error;
    abort();
}

static alea_status bad_wait(alea_core *core, alea_error *error) {
    (void)core, (void)error;
    abort();
}

static const float *bad_row(alea_core *core, int32_t index) {
    (void)core, (void)index;
    abort();
}

static int32_t bad_length(const alea_core *core, int32_t sequence) {
    (void)core, (void)sequence;
    abort();
}

static alea_status bad_two(alea_core *core, int32_t a, int32_t b) {
    (void)core, (void)a, (void)b;
    abort();
}

const alea_core_api *alea_core_entry(void) {
    static alea_core_api api = {
        .abi = BAD == WRONG_ABI ? ALEA_CORE_ABI + 1 : ALEA_CORE_ABI,
        .struct_bytes = sizeof api,
        .name = "bad",
        .open = bad_open,
        .close = bad_close,
        .describe = bad_describe,
        .token_info = bad_token_info,
        .tokenize = bad_tokenize,
        .submit = bad_submit,
        .wait = bad_wait,
        .row = bad_row,
        .sequence_length = bad_length,
        .sequence_copy = bad_two,
        .sequence_trim = bad_two,
    };
    if (BAD == NO_TABLE) return NULL;
    if (BAD == NO_ROW) api.row = NULL;
    if (BAD == SHORT_TABLE) api.struct_bytes = ALEA_CORE_API_BYTES_MIN - 1;
    if (BAD == OLD_TABLE) api.struct_bytes = ALEA_CORE_API_BYTES_MIN;
    return &api;
}
#endif
#else
ALEA_API int bad_core_is_a_library_of_another_kind;
int bad_core_is_a_library_of_another_kind = 1;
#endif
