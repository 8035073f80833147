/*
 * Reads forward through a GGUF header with one small buffer. Every claimed count costs bytes of
 * the file to satisfy, so work is bounded by the file's size, never by what it says.
 *
 * Layout (version 2 and 3, little-endian): magic, u32 version, u64 tensors, u64 keys; keys as
 * string, u32 type, value; tensors as string, u32 dimensions, u64 each, u32 type, u64 offset; then
 * the data, aligned.
 */
#include "core/llama/gguf_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "ggml.h"

enum { NAME_BYTES_MAX = 65535, PATH_SHOWN_BYTES = 100, ALIGNMENT_DEFAULT = 32 };

/* GGUF's value types. */
enum { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64, TYPES };
static const uint8_t value_bytes[TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

typedef struct reader {
    int file;
    const char *name;
    uint64_t size;
    uint64_t at;    /* position in the file of the next byte to hand out */
    uint64_t start; /* position of buffer[0] */
    size_t filled;
    alea_error *error;
    uint8_t buffer[16384];
} reader;

const char *alea__path_tail(const char *path) {
    const size_t length = strlen(path);
    return length <= PATH_SHOWN_BYTES ? path : path + length - PATH_SHOWN_BYTES;
}

static alea_status truncated(reader *r, const char *what) {
    return alea_error_set(r->error, ALEA_EFORMAT,
                          "model '%s': the file ends inside %s; it is truncated or damaged, fetch "
                          "it again",
                          r->name, what);
}

static alea_status malformed(reader *r, const char *what) {
    return alea_error_set(r->error, ALEA_EFORMAT, "model '%s': damaged GGUF header: %s", r->name,
                          what);
}

static alea_status fill(reader *r) {
    r->start = r->at;
    r->filled = 0;
    while (r->filled < sizeof(r->buffer)) {
        const ssize_t n = pread(r->file, r->buffer + r->filled, sizeof(r->buffer) - r->filled,
                                (off_t)(r->start + r->filled));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return alea_error_set(r->error, ALEA_EIO, "model '%s': %s", r->name, strerror(errno));
        if (n == 0) break;
        r->filled += (size_t)n;
    }
    return ALEA_OK;
}

/* Never beyond the size that was found at first, even where the file grows meanwhile. */
static alea_status take(reader *r, void *out, size_t bytes, const char *what) {
    uint8_t *to = out;
    if (bytes > r->size - r->at) return truncated(r, what);
    while (bytes > 0) {
        if (r->at - r->start >= r->filled) {
            const alea_status status = fill(r);
            if (status < 0) return status;
            if (r->filled == 0) return truncated(r, what);
        }
        const size_t from = (size_t)(r->at - r->start);
        const size_t n = bytes < r->filled - from ? bytes : r->filled - from;
        memcpy(to, r->buffer + from, n);
        to += n;
        r->at += n;
        bytes -= n;
    }
    return ALEA_OK;
}

static alea_status skip(reader *r, uint64_t bytes, const char *what) {
    if (bytes > r->size - r->at) return truncated(r, what);
    r->at += bytes;
    if (r->at - r->start > r->filled) { /* far ahead: the next take reads from there */
        r->start = r->at;
        r->filled = 0;
    }
    return ALEA_OK;
}

static alea_status take_u32(reader *r, uint32_t *out, const char *what) {
    uint8_t b[4];
    const alea_status status = take(r, b, sizeof(b), what);
    if (status < 0) return status;
    *out = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    return ALEA_OK;
}

static alea_status take_u64(reader *r, uint64_t *out, const char *what) {
    uint32_t low = 0;
    uint32_t high = 0;
    alea_status status = take_u32(r, &low, what);
    if (status == ALEA_OK) status = take_u32(r, &high, what);
    if (status == ALEA_OK) *out = (uint64_t)high << 32 | low;
    return status;
}

/* A string; its first capacity - 1 bytes are kept, the rest is passed over. */
static alea_status take_string(reader *r, char *out, size_t capacity, uint64_t *length,
                               const char *what) {
    alea_status status = take_u64(r, length, what);
    if (status < 0) return status;
    if (*length > r->size - r->at) return truncated(r, what);
    const size_t kept = *length < capacity ? (size_t)*length : capacity - 1;
    status = take(r, out, kept, what);
    if (status < 0) return status;
    out[kept] = '\0';
    return skip(r, *length - kept, what);
}

static alea_status skip_value(reader *r, uint32_t type, uint64_t count, const char *what) {
    if (type >= TYPES || type == ARRAY) return malformed(r, "a key has an unknown value type");
    if (type != STRING) {
        if (count > (r->size - r->at) / value_bytes[type]) return truncated(r, what);
        return skip(r, count * value_bytes[type], what);
    }
    if (count > (r->size - r->at) / 8) return truncated(r, what);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t length = 0;
        alea_status status = take_u64(r, &length, what);
        if (status == ALEA_OK) status = skip(r, length, what);
        if (status < 0) return status;
    }
    return ALEA_OK;
}

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text);
    const size_t m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static alea_status check_key(reader *r, alea_gguf_facts *facts, uint32_t *alignment) {
    char key[128];
    uint64_t length = 0;
    uint32_t type = 0;
    alea_status status = take_string(r, key, sizeof(key), &length, "a key");
    if (status < 0) return status;
    if (length == 0 || length > NAME_BYTES_MAX)
        return malformed(r, "a key has no name or too long a one");
    status = take_u32(r, &type, "a key");
    if (status < 0) return status;
    if (type == ARRAY) {
        uint64_t count = 0;
        status = take_u32(r, &type, "an array");
        if (status == ALEA_OK) status = take_u64(r, &count, "an array");
        return status < 0 ? status : skip_value(r, type, count, "an array");
    }
    if (strcmp(key, "general.alignment") == 0) {
        if (type != U32) return malformed(r, "general.alignment is no 32-bit number");
        status = take_u32(r, alignment, key);
        if (status < 0) return status;
        const bool power = *alignment != 0 && (*alignment & (*alignment - 1)) == 0;
        return power ? ALEA_OK : malformed(r, "general.alignment is no power of two");
    }
    if (strcmp(key, "general.architecture") == 0) {
        if (type != STRING) return malformed(r, "general.architecture is no string");
        return take_string(r, facts->architecture, sizeof(facts->architecture), &length, key);
    }
    if (strcmp(key, "split.count") == 0 && type == U16) {
        uint8_t b[2];
        status = take(r, b, sizeof(b), key);
        facts->split = (b[0] | b[1] << 8) > 1;
        return status;
    }
    if (type == U32 && ends_with(key, ".expert_count")) {
        uint32_t experts = 0;
        status = take_u32(r, &experts, key);
        facts->experts = experts > 0;
        return status;
    }
    return skip_value(r, type, 1, "a value");
}

/* One tensor's place. Shapes whose size overflows 64 bits are caught here, not by the engine. */
static alea_status check_tensor(reader *r, alea_gguf_facts *facts, uint64_t *data_bytes) {
    char name[128];
    uint64_t length = 0;
    uint32_t dimensions = 0;
    uint32_t type = 0;
    uint64_t offset = 0;
    size_t shape[4] = {1, 1, 1, 1};
    alea_status status = take_string(r, name, sizeof(name), &length, "a tensor's name");
    if (status < 0) return status;
    if (length == 0 || length >= GGML_MAX_NAME)
        return malformed(r, "a tensor has no name or too long a one");
    status = take_u32(r, &dimensions, "a tensor");
    if (status < 0) return status;
    if (dimensions < 1 || dimensions > 4) return malformed(r, "a tensor has not 1 to 4 dimensions");
    for (uint32_t i = 0; i < dimensions; i++) {
        uint64_t n = 0;
        status = take_u64(r, &n, "a tensor");
        if (status < 0) return status;
        if (n == 0 || n > INT64_MAX) return malformed(r, "a tensor has an impossible shape");
        shape[i] = (size_t)n;
    }
    status = take_u32(r, &type, "a tensor");
    if (status == ALEA_OK) status = take_u64(r, &offset, "a tensor");
    if (status < 0) return status;
    const size_t block = type < GGML_TYPE_COUNT ? (size_t)ggml_blck_size((enum ggml_type)type) : 0;
    const size_t block_bytes = block > 0 ? ggml_type_size((enum ggml_type)type) : 0;
    if (block_bytes == 0) return malformed(r, "a tensor has an unknown type");
    if (shape[0] % block != 0)
        return malformed(r, "a tensor's rows hold no whole number of blocks");
    size_t bytes = shape[0] / block;
    size_t end = 0;
    const bool fits =
        alea__size_mul(bytes, block_bytes, &bytes) && alea__size_mul(bytes, shape[1], &bytes) &&
        alea__size_mul(bytes, shape[2], &bytes) && alea__size_mul(bytes, shape[3], &bytes) &&
        alea__size_add(bytes, offset, &end);
    if (!fits) return malformed(r, "a tensor's size is out of range");
    if (end > *data_bytes) *data_bytes = end;
    if (dimensions >= 2 && type < 64) {
        facts->matrix_types |= UINT64_C(1) << type;
        if (shape[1] % 32 != 0) facts->unaligned_types |= UINT64_C(1) << type;
    }
    return ALEA_OK;
}

static alea_status check_version(reader *r) {
    uint8_t magic[4];
    uint32_t version = 0;
    alea_status status = take(r, magic, sizeof(magic), "its first four bytes");
    if (status < 0) return status;
    if (memcmp(magic, "GGUF", 4) != 0)
        return alea_error_set(r->error, ALEA_EFORMAT,
                              "model '%s' is not a GGUF file; convert it with llama.cpp's "
                              "convert_hf_to_gguf.py",
                              r->name);
    status = take_u32(r, &version, "the version");
    if (status < 0) return status;
    if (version == 2 || version == 3) return ALEA_OK;
    if ((version & 0xffff) == 0 && version != 0)
        return alea_error_set(r->error, ALEA_EUNSUPPORTED,
                              "model '%s' is a big-endian GGUF file; convert it for this machine",
                              r->name);
    return alea_error_set(r->error, ALEA_EUNSUPPORTED,
                          "model '%s' has GGUF version %u; versions 2 and 3 are read", r->name,
                          version);
}

static alea_status check_file(reader *r, alea_gguf_facts *facts) {
    uint64_t keys = 0;
    uint32_t alignment = ALIGNMENT_DEFAULT;
    alea_status status = check_version(r);
    if (status == ALEA_OK) status = take_u64(r, &facts->tensors, "the header");
    if (status == ALEA_OK) status = take_u64(r, &keys, "the header");
    if (status < 0) return status;
    /* The least that a key and a tensor take: what cannot fit is not worth reading. */
    if (keys > r->size / 13 || facts->tensors > r->size / 33) return truncated(r, "the header");
    for (uint64_t i = 0; i < keys; i++) {
        status = check_key(r, facts, &alignment);
        if (status < 0) return status;
    }
    uint64_t data_bytes = 0;
    for (uint64_t i = 0; i < facts->tensors; i++) {
        status = check_tensor(r, facts, &data_bytes);
        if (status < 0) return status;
    }
    size_t data_start = 0;
    if (!alea__size_align((size_t)r->at, alignment, &data_start))
        return malformed(r, "general.alignment is out of range");
    if (facts->tensors > 0 && (data_start > r->size || data_bytes > r->size - data_start))
        return alea_error_set(r->error, ALEA_EFORMAT,
                              "model '%s' is truncated: its tensors need %llu bytes, the file has "
                              "%llu; fetch it again",
                              r->name, (unsigned long long)data_bytes + data_start,
                              (unsigned long long)r->size);
    return ALEA_OK;
}

alea_status alea__gguf_check(const char *path, alea_gguf_facts *facts, alea_error *error) {
    reader r = {.name = alea__path_tail(path), .error = error};
    r.file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (r.file < 0)
        return alea_error_set(error, ALEA_EIO, "model '%s': %s", r.name, strerror(errno));
    struct stat about;
    alea_status status = ALEA_OK;
    alea_gguf_facts found = {.tensors = 0};
    if (fstat(r.file, &about) != 0)
        status = alea_error_set(error, ALEA_EIO, "model '%s': %s", r.name, strerror(errno));
    else if (S_ISDIR(about.st_mode))
        status = alea_error_set(error, ALEA_EIO,
                                "model '%s' is a directory; name the .gguf file inside it", r.name);
    else if (!S_ISREG(about.st_mode))
        status = alea_error_set(error, ALEA_EIO, "model '%s' is not a regular file", r.name);
    if (status == ALEA_OK) {
        r.size = (uint64_t)about.st_size;
        found.file_bytes = r.size;
        status = check_file(&r, &found);
    }
    close(r.file);
    if (status == ALEA_OK) *facts = found;
    return status;
}
