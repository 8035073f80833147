/*
 * Damaged models through the whole way in: header check, trial in a child, load, one round. This
 * process must live, and each refusal must carry a line. Cases are a function of their number.
 *
 * ALEA_FUZZ_RUNS=n sets the number of damaged files; ALEA_FUZZ_FIRST=n starts at that case.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/llama/core_llama.h"
#include "core/models.h"

enum { RUNS = 300 };

typedef struct model_file {
    uint8_t *bytes;
    size_t length;
    size_t header; /* where keys and tensor infos end, about: flips before it matter most */
} model_file;

static long number_of(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : otherwise;
}

static uint64_t mix(uint64_t x) {
    x ^= x >> 33, x *= UINT64_C(0xff51afd7ed558ccd);
    x ^= x >> 33, x *= UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

static model_file read_model(const char *options) {
    char path[MODEL_PATH_BYTES];
    model_file model = {.length = 0};
    tiny_model(options, path);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    model.length = (size_t)ftell(file);
    rewind(file);
    model.bytes = malloc(model.length);
    assert_non_null(model.bytes);
    assert_int_equal(fread(model.bytes, 1, model.length, file), model.length);
    fclose(file);
    /* The last tensor info names output or a norm; data follows it within a few hundred bytes. */
    for (size_t i = 0; i + 7 < model.length && i < model.length; i++) {
        if (memcmp(model.bytes + i, ".weight", 7) == 0) model.header = i + 64;
    }
    if (model.header > model.length) model.header = model.length;
    return model;
}

/* ---- where the header keeps its numbers ---- */

enum { PLACES_MAX = 256 };

typedef struct places {
    size_t at[PLACES_MAX];
    int bytes[PLACES_MAX];
    int n;
} places;

static uint64_t number_at(const model_file *model, size_t at, int bytes) {
    uint64_t value = 0;
    assert_true(at + (size_t)bytes <= model->length);
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)model->bytes[at + (size_t)i] << (8 * i);
    return value;
}

static void note(places *p, size_t at, int bytes) {
    if (p->n == PLACES_MAX) return;
    p->at[p->n] = at;
    p->bytes[p->n++] = bytes;
}

static size_t skip_value(const model_file *model, places *p, uint32_t type, size_t at) {
    static const int bytes[13] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == 8) return at + 8 + (size_t)number_at(model, at, 8);
    note(p, at, bytes[type]);
    return at + (size_t)bytes[type];
}

/* Every scalar value, the first elements of every array, every number of every tensor. */
static places find_places(const model_file *model) {
    places p = {.n = 0};
    uint64_t tensors = number_at(model, 8, 8);
    uint64_t keys = number_at(model, 16, 8);
    size_t at = 24;
    for (; keys > 0; keys--) {
        at += 8 + (size_t)number_at(model, at, 8);
        uint32_t type = (uint32_t)number_at(model, at, 4);
        at += 4;
        if (type != 9) {
            at = skip_value(model, &p, type, at);
            continue;
        }
        type = (uint32_t)number_at(model, at, 4);
        const uint64_t count = number_at(model, at + 4, 8);
        at += 12;
        for (uint64_t i = 0; i < count; i++) {
            const int n = p.n;
            at = skip_value(model, &p, type, at);
            if (i >= 8) p.n = n; /* the first few stand for all */
        }
    }
    for (; tensors > 0; tensors--) {
        at += 8 + (size_t)number_at(model, at, 8);
        const int dimensions = (int)number_at(model, at, 4);
        note(&p, at, 4);
        at += 4;
        for (int i = 0; i < dimensions; i++, at += 8)
            note(&p, at, 8);
        note(&p, at, 4);
        note(&p, at + 4, 8);
        at += 12;
    }
    return p;
}

static const uint64_t absurd[] = {0,          1,          2,          3,
                                  7,          64,         255,        1000000,
                                  0x7fffffff, 0x80000000, 0xffffffff, 0x7f800000, /* +inf */
                                  0x7fc00000,                                     /* NaN */
                                  0xbf800000,                                     /* -1.0f */
                                  UINT64_MAX};

static void write_bytes(const char *path, const uint8_t *bytes, size_t length) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

/* Writes case number `n` and says in words what was done to the file. */
static void write_case(const model_file *model, long n, const char *path, char *words,
                       size_t capacity) {
    const uint64_t r = mix((uint64_t)n + 1);
    uint8_t *bytes = malloc(model->length);
    assert_non_null(bytes);
    memcpy(bytes, model->bytes, model->length);
    size_t length = model->length;
    if (n % 4 == 0) {
        const size_t range = n % 8 == 0 ? model->header : model->length;
        length = (size_t)(r % range);
        snprintf(words, capacity, "case %ld: cut to %zu bytes", n, length);
    } else {
        const int flips = 1 + (int)(r >> 60) % 4;
        for (int i = 0; i < flips; i++) {
            const uint64_t q = mix(r + (uint64_t)i);
            const size_t at = (size_t)(q % (n % 16 == 1 ? model->length : model->header));
            const uint8_t value = (uint8_t)(q >> 40);
            bytes[at] = n % 4 == 1   ? (uint8_t)(bytes[at] ^ (1u << (value % 8)))
                        : n % 4 == 2 ? value
                                     : (uint8_t)(value % 2 ? 0xff : 0);
        }
        snprintf(words, capacity, "case %ld: %d bytes changed", n, flips);
    }
    write_bytes(path, bytes, length);
    free(bytes);
}

/* True if the model still opened; then it must also compute, or fail with a line. */
static bool try_case(const char *path, const char *words) {
    const alea_core_options options = {.struct_bytes = sizeof options,
                                       .model = path,
                                       .context_tokens = 64,
                                       .round_rows = 4,
                                       .threads = 1};
    alea_core *core = NULL;
    alea_error error = {.status = ALEA_OK};
    if (alea_core_open(alea__core_llama(), &options, &core, &error) < 0) {
        if (strlen(error.message) < 10) fail_msg("%s: no message", words);
        if (strchr(error.message, '\n')) fail_msg("%s: two lines: %s", words, error.message);
        if (getenv("ALEA_FUZZ_VERBOSE")) print_message("%s: %s\n", words, error.message);
        return false;
    }
    int32_t tokens[16];
    size_t count = 0;
    alea_core_info info;
    alea_core_describe(core, &info);
    const alea_bytes text = {(const uint8_t *)"Hello", 5};
    if (alea_core_tokenize(core, text, ALEA_TOKENIZE_SPECIAL, tokens, 16, &count) < 0 ||
        count == 0 || count > 16)
        tokens[0] = 0, count = 1;
    const alea_round_item item = {
        0, 0, (int32_t)count - 1, {ALEA_SPAN_TOKENS, (int32_t)count, tokens, {NULL, 0}}};
    int32_t rows = 0;
    if (alea_core_run(core, &(alea_round){&item, 1}, &rows, &error) == ALEA_OK)
        assert_non_null(alea_core_row(core, 0));
    alea_core_close(core);
    return true;
}

static void damage(const char *options, long first, long runs) {
    char path[MODEL_PATH_BYTES];
    char words[96];
    const model_file model = read_model(options);
    long opened = 0;
    scratch_path("damaged.gguf", path);
    for (long n = first; n < first + runs; n++) {
        write_case(&model, n, path, words, sizeof words);
        if (getenv("ALEA_FUZZ_VERBOSE")) print_message("%s\n", words);
        opened += try_case(path, words);
    }
    print_message("%ld damaged files: %ld refused, %ld still usable\n", runs, runs - opened,
                  opened);
    assert_true(opened < runs);
    free(model.bytes);
}

static void test_damaged_bpe_models_never_end_the_process(void **state) {
    (void)state;
    damage("--vocab bpe --type q4_0", number_of("ALEA_FUZZ_FIRST", 0),
           number_of("ALEA_FUZZ_RUNS", RUNS));
}

static void test_damaged_spm_models_never_end_the_process(void **state) {
    (void)state;
    damage("--vocab spm --type q8_0 --chat-template", number_of("ALEA_FUZZ_FIRST", 0),
           number_of("ALEA_FUZZ_RUNS", RUNS));
}

static void test_absurd_numbers_never_end_the_process(void **state) {
    (void)state;
    enum { VALUES = sizeof absurd / sizeof absurd[0] };
    char path[MODEL_PATH_BYTES];
    char words[96];
    const model_file model = read_model("--vocab bpe --type q4_k --chat-template");
    const places p = find_places(&model);
    const long all = (long)p.n * VALUES;
    const long step = getenv("ALEA_FUZZ_RUNS") ? 1 : 5; /* prime to VALUES' multiples of 2 */
    assert_true(p.n > 60);
    scratch_path("absurd.gguf", path);
    for (long n = 0; n < all; n += step) {
        const size_t at = p.at[n / VALUES];
        const uint64_t value = absurd[(n + n / VALUES) % VALUES];
        uint8_t kept[8];
        memcpy(kept, model.bytes + at, sizeof kept);
        for (int i = 0; i < p.bytes[n / VALUES]; i++)
            model.bytes[at + (size_t)i] = (uint8_t)(value >> (8 * i));
        write_bytes(path, model.bytes, model.length);
        memcpy(model.bytes + at, kept, sizeof kept);
        snprintf(words, sizeof words, "%llu at byte %zu", (unsigned long long)value, at);
        if (getenv("ALEA_FUZZ_VERBOSE")) print_message("%s\n", words);
        (void)try_case(path, words);
    }
    free(model.bytes);
}

static int group_teardown(void **state) {
    (void)state;
    remove_models();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damaged_bpe_models_never_end_the_process),
        cmocka_unit_test(test_damaged_spm_models_never_end_the_process),
        cmocka_unit_test(test_absurd_numbers_never_end_the_process),
    };
    return cmocka_run_group_tests_name("gguf_fuzz", tests, NULL, group_teardown);
}
