/* Cores from shared objects: the example works, and everything else is one clear line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alea/core.h"

static alea_status load(const char *path, const alea_core_api **api, alea_error *error) {
    *error = (alea_error){0};
    return alea_core_load(path, api, error);
}

static void refuses(const char *path, alea_status status, const char *names) {
    const alea_core_api *api = (const alea_core_api *)&api;
    const alea_core_api *const untouched = api;
    alea_error error;
    assert_int_equal(load(path, &api, &error), status);
    assert_ptr_equal(api, untouched);
    assert_int_equal(error.status, status);
    if (!strstr(error.message, names)) fail_msg("'%s' lacks '%s'", error.message, names);
    assert_null(strchr(error.message, '\n'));
}

static void test_each_kind_of_bad_core_is_refused_by_name(void **state) {
    (void)state;
    refuses(BAD_WRONG_ABI, ALEA_EUNSUPPORTED, "has core ABI 2, this program has 1; rebuild");
    refuses(BAD_NO_ENTRY, ALEA_EFORMAT, "is not a core: it does not export alea_core_entry");
    refuses(BAD_NO_TABLE, ALEA_EFORMAT, "returned no table");
    refuses(BAD_SHORT_TABLE, ALEA_EFORMAT, "bytes, at least");
    refuses(BAD_NO_ROW, ALEA_EFORMAT, "its table lacks row");
    refuses(BAD_UNRESOLVED, ALEA_EIO, "bad_core_defined_nowhere");
}

static void test_paths_that_hold_no_library_are_refused(void **state) {
    (void)state;
    char folder[] = "/tmp/alea-loader-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char path[64];
    snprintf(path, sizeof path, "%s/text.so", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("not a library", file);
    fclose(file);
    refuses(path, ALEA_EIO, "cannot be loaded");
    refuses(folder, ALEA_EIO, "cannot be loaded");
    unlink(path);
    refuses(path, ALEA_EIO, "No such file");
    rmdir(folder);
    /* A bare name is a file here, never a library of the system. */
    refuses("libm.so.6", ALEA_EIO, "No such file");
    refuses("", ALEA_EINVAL, "path of a file");
    refuses(NULL, ALEA_EINVAL, "path of a file");
    char longest[5000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    refuses(longest, ALEA_EIO, "xxx");
}

static void test_a_table_from_before_its_last_member_still_loads(void **state) {
    (void)state;
    const alea_core_api *api = NULL;
    alea_error error;
    assert_int_equal(load(BAD_OLD_TABLE, &api, &error), ALEA_OK);
    const alea_core core = {.api = api};
    assert_null(alea_core_manifest(&core).data);
}

static void test_loading_twice_gives_the_same_table(void **state) {
    (void)state;
    const alea_core_api *first = NULL, *second = NULL;
    alea_error error;
    assert_int_equal(load(EXAMPLE_CORE, &first, &error), ALEA_OK);
    assert_int_equal(load(EXAMPLE_CORE, &second, &error), ALEA_OK);
    assert_ptr_equal(first, second);
    assert_string_equal(first->name, "bigram");
}

static alea_core *open_example(const char *text, alea_error *error) {
    char path[] = "/tmp/alea-bigram-XXXXXX";
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, text, strlen(text)), (ssize_t)strlen(text));
    close(descriptor);
    const alea_core_api *api = NULL;
    assert_int_equal(load(EXAMPLE_CORE, &api, error), ALEA_OK);
    const alea_core_options options = {
        .struct_bytes = sizeof options,
        .model = path,
        .context_tokens = 32,
        .sequences = 2,
    };
    alea_core *core = NULL;
    const alea_status status = alea_core_open(api, &options, &core, error);
    unlink(path);
    assert_int_equal(status, ALEA_OK);
    return core;
}

static void test_the_example_core_counts_and_hands_out_rows(void **state) {
    (void)state;
    alea_error error;
    alea_core *core = open_example("abababac", &error);
    alea_core_info info;
    alea_core_describe(core, &info);
    assert_int_equal(info.vocab, 257);
    int32_t tokens[3];
    size_t count = 0;
    const alea_bytes text = {(const uint8_t *)"cba", 3};
    assert_int_equal(alea_core_tokenize(core, text, 0, tokens, 3, &count), ALEA_OK);
    assert_int_equal(count, 3);
    const alea_round_item item = {
        .first_row = 0,
        .span = {.kind = ALEA_SPAN_TOKENS, .length = 3, .tokens = tokens},
    };
    const alea_round round = {.items = &item, .n_items = 1};
    int32_t n_rows = 0;
    assert_int_equal(alea_core_run(core, &round, &n_rows, &error), ALEA_OK);
    assert_int_equal(n_rows, 3);
    /* After "c" the text ends; after "b" comes "a", three times; after "a" "b" (3) or "c" (1). */
    assert_true(fabsf(alea_core_row(core, 0)[256] - logf(1.01f)) < 1e-5f);
    assert_true(fabsf(alea_core_row(core, 1)['a'] - logf(3.01f)) < 1e-5f);
    assert_true(fabsf(alea_core_row(core, 2)['b'] - logf(3.01f)) < 1e-5f);
    assert_true(fabsf(alea_core_row(core, 2)['c'] - logf(1.01f)) < 1e-5f);
    assert_true(fabsf(alea_core_row(core, 2)['z'] - logf(0.01f)) < 1e-5f);
    assert_int_equal(alea_core_sequence_length(core, 0), 3);
    assert_int_equal(alea_core_sequence_copy(core, 0, 1, &error), ALEA_OK);
    assert_int_equal(alea_core_sequence_trim(core, 1, 2, &error), ALEA_OK);
    assert_int_equal(alea_core_sequence_length(core, 1), 2);
    assert_int_equal(alea_core_sequence_length(core, 0), 3);
    alea_core_close(core);
}

static void test_the_example_core_names_its_tokens(void **state) {
    (void)state;
    alea_error error;
    alea_core *core = open_example("ab", &error);
    alea_token_info token;
    for (int32_t i = 0; i < 256; i++) {
        assert_int_equal(alea_core_token(core, i, &token), ALEA_OK);
        assert_int_equal(token.bytes.length, 1);
        assert_int_equal(token.bytes.data[0], i);
    }
    assert_int_equal(alea_core_token(core, 256, &token), ALEA_OK);
    assert_int_equal(token.bytes.length, 0);
    assert_int_equal(token.flags & ALEA_TOKEN_END, ALEA_TOKEN_END);
    assert_int_equal(alea_core_token(core, 257, &token), ALEA_EINVAL);
    alea_core_close(core);
}

static void test_the_example_core_reports_a_missing_text(void **state) {
    (void)state;
    alea_error error;
    const alea_core_api *api = NULL;
    assert_int_equal(load(EXAMPLE_CORE, &api, &error), ALEA_OK);
    const alea_core_options options = {.struct_bytes = sizeof options, .model = "/nowhere.txt"};
    alea_core *core = NULL;
    assert_int_equal(alea_core_open(api, &options, &core, &error), ALEA_EIO);
    assert_non_null(strstr(error.message, "/nowhere.txt"));
    assert_null(core);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_kind_of_bad_core_is_refused_by_name),
        cmocka_unit_test(test_paths_that_hold_no_library_are_refused),
        cmocka_unit_test(test_a_table_from_before_its_last_member_still_loads),
        cmocka_unit_test(test_loading_twice_gives_the_same_table),
        cmocka_unit_test(test_the_example_core_counts_and_hands_out_rows),
        cmocka_unit_test(test_the_example_core_names_its_tokens),
        cmocka_unit_test(test_the_example_core_reports_a_missing_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
