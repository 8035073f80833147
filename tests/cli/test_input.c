/* Reading at its bound, which is 128 KiB here instead of 1 GiB. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/input.h"

volatile sig_atomic_t alea__interrupted;
static char complaint[256];

void alea__complain(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(complaint, sizeof complaint, format, args);
    va_end(args);
}

static alea_status read_length(size_t length, size_t *got) {
    char path[] = "/tmp/alea-input-XXXXXX";
    const int fd = mkstemp(path);
    char *text = malloc(length + 1);
    assert_true(fd >= 0 && text != NULL);
    memset(text, 'a', length);
    assert_int_equal(write(fd, text, length), length);
    close(fd);
    free(text);
    alea_input_buffer buffer;
    complaint[0] = 0;
    const alea_status status = alea__read_text(path, &buffer);
    unlink(path);
    *got = status < 0 ? 0 : buffer.length;
    if (status >= 0) alea__buffer_free(&buffer);
    return status;
}

static void test_a_text_may_be_as_long_as_the_bound(void **state) {
    (void)state;
    const size_t most = ALEA_INPUT_BYTES_MAX;
    const size_t lengths[] = {0, 1, 65535, 65536, 65537, most - 1, most};
    size_t got;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        assert_int_equal(read_length(lengths[i], &got), ALEA_OK);
        assert_int_equal(got, lengths[i]);
    }
    assert_int_equal(read_length(most + 1, &got), ALEA_ELIMIT);
    assert_non_null(strstr(complaint, "larger than"));
    assert_int_equal(read_length(2 * most, &got), ALEA_ELIMIT);
}

static void test_lines_come_whole_whatever_the_reads(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    alea_lines *lines = calloc(1, sizeof *lines);
    assert_non_null(lines);
    lines->fd = ends[0];
    assert_true(alea__lines_would_wait(lines));
    assert_int_equal(write(ends[1], "one\n\ntwo", 8), 8);
    assert_false(alea__lines_would_wait(lines));
    alea_input_buffer line = {0};
    assert_int_equal(alea__read_line(lines, "x", &line), ALEA_OK);
    assert_int_equal(line.length, 4);
    assert_memory_equal(line.data, "one\n", 4);
    assert_false(alea__lines_would_wait(lines));
    assert_int_equal(alea__read_line(lines, "x", &line), ALEA_OK);
    assert_int_equal(line.length, 1);
    close(ends[1]);
    assert_false(alea__lines_would_wait(lines));
    assert_int_equal(alea__read_line(lines, "x", &line), ALEA_OK);
    assert_memory_equal(line.data, "two", 3);
    assert_int_equal(alea__read_line(lines, "x", &line), ALEA_OK);
    assert_int_equal(line.length, 0);
    alea__buffer_free(&line);
    close(ends[0]);
    free(lines);
}

static void test_a_line_is_bounded(void **state) {
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    for (size_t i = 0; i <= ALEA_INPUT_BYTES_MAX; i++)
        fputc('a', file);
    fflush(file);
    rewind(file);
    alea_lines *lines = calloc(1, sizeof *lines);
    assert_non_null(lines);
    lines->fd = fileno(file);
    alea_input_buffer line = {0};
    assert_int_equal(alea__read_line(lines, "big line 1", &line), ALEA_ELIMIT);
    assert_non_null(strstr(complaint, "big line 1"));
    alea__interrupted = 1;
    assert_int_equal(alea__read_line(lines, "x", &line), ALEA_ECANCELLED);
    alea__interrupted = 0;
    alea__buffer_free(&line);
    fclose(file);
    free(lines);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_text_may_be_as_long_as_the_bound),
        cmocka_unit_test(test_lines_come_whole_whatever_the_reads),
        cmocka_unit_test(test_a_line_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
