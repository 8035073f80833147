/*
 * alea-tiny-gguf: writes a seeded synthetic model as GGUF version 3, for tests that must run
 * without any download. Two layers of the llama architecture (or of bert, which has no output
 * layer), a small BPE or SPM vocabulary, random weights in any of eight weight types.
 *
 * The bytes are a function of the options alone: integers and exact float arithmetic, no libm.
 * Each tensor draws from a stream named after it, so adding one leaves the others as they were.
 * Scales are chosen so that activations stay near 1 and logits spread over about -10..10.
 */
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EMBD = 256, HEADS = 4, HEADS_KV = 2, HEAD = EMBD / HEADS, FF = 512 };
enum { ALIGNMENT = 32, BLOCK = 32, SUPER_BLOCK = 256 };

/* GGUF's own numbers for value types, token types and weight types. */
enum { GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7, GGUF_STRING = 8, GGUF_ARRAY = 9 };
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER = 4, UNUSED = 5, BYTE = 6 };
enum { F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q8_0 = 8, Q4_K = 12, Q6_K = 14, BF16 = 30 };

static const struct {
    const char *name;
    uint32_t type;
    uint32_t block; /* weights */
    uint32_t block_bytes;
} weight_types[] = {
    {"f32", F32, 1, 4},       {"f16", F16, 1, 2},       {"bf16", BF16, 1, 2},
    {"q4_0", Q4_0, 32, 18},   {"q4_1", Q4_1, 32, 20},   {"q8_0", Q8_0, 32, 34},
    {"q4_k", Q4_K, 256, 144}, {"q6_k", Q6_K, 256, 210},
};

typedef struct options {
    const char *out;
    const char *architecture; /* NULL: llama, or bert with embedding_only */
    const char *chat_template;
    const char *pre;
    uint64_t seed;
    size_t weight_type; /* index into weight_types */
    int layers;
    int context; /* tokens */
    int unused;  /* padding tokens at the end of the vocabulary */
    bool spm;
    bool embedding_only;
} options;

static void die(const char *what, const char *thing) {
    fprintf(stderr, "alea-tiny-gguf: %s: %s\n", what, thing);
    exit(2);
}

/* ---- a growing buffer of little-endian values ---- */

typedef struct buffer {
    uint8_t *data;
    size_t length, capacity;
} buffer;

static void put(buffer *b, const void *data, size_t n) {
    if (b->capacity - b->length < n) {
        b->capacity = 2 * b->capacity + n + 4096;
        b->data = realloc(b->data, b->capacity);
        if (!b->data) die("cannot go on", "out of memory");
    }
    if (n) memcpy(b->data + b->length, data, n);
    b->length += n;
}

static void put_le(buffer *b, uint64_t value, size_t n_bytes) {
    uint8_t bytes[8];
    for (size_t i = 0; i < n_bytes; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    put(b, bytes, n_bytes);
}

static void put_u32(buffer *b, uint32_t value) {
    put_le(b, value, 4);
}

static void put_u64(buffer *b, uint64_t value) {
    put_le(b, value, 8);
}

static void put_f32(buffer *b, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_u32(b, bits);
}

static void put_string(buffer *b, const char *text) {
    const size_t n = strlen(text);
    put_u64(b, n);
    put(b, text, n);
}

static void put_zeros(buffer *b, size_t alignment) {
    while (b->length % alignment)
        put(b, "", 1);
}

/* ---- randomness ---- */

typedef struct stream {
    uint64_t state;
} stream;

static uint64_t next(stream *s) { /* splitmix64 */
    uint64_t z = s->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static stream stream_for(uint64_t seed, const char *name) {
    stream s = {UINT64_C(0xcbf29ce484222325) ^ seed};
    for (; *name; name++)
        s.state = (s.state ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
    next(&s);
    return s;
}

/* Close to a standard normal, within ±3.5: the sum of four uniforms. */
static float bell(stream *s) {
    const uint64_t r = next(s);
    const int32_t sum = (int32_t)(r & 0xffff) + (int32_t)(r >> 16 & 0xffff) +
                        (int32_t)(r >> 32 & 0xffff) + (int32_t)(r >> 48) - 2 * 65535;
    return (float)sum * (1.0f / 37837.0f); /* 65536 * sqrt(4 / 12) */
}

/* 0.5 to 1.5 in steps of 1/256. */
static float jitter(stream *s) {
    return 0.5f + (float)(next(s) >> 56) * (1.0f / 256.0f);
}

/* ---- weights ---- */

/* Normal halves and zero only; anything smaller than 2^-14 becomes zero. */
static uint16_t half_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const int32_t exponent = (int32_t)(bits >> 23 & 0xff) - 127;
    if (exponent < -14) return (uint16_t)sign;
    const uint32_t kept = (uint32_t)(exponent + 15) << 10 | (bits >> 13 & 0x3ffu);
    const uint32_t rest = bits & 0x1fffu;
    const uint32_t up = rest > 0x1000u || (rest == 0x1000u && (kept & 1u));
    return (uint16_t)(sign | (kept + up));
}

static uint16_t bfloat_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static void put_random(buffer *b, stream *s, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++)
        put_le(b, next(s) >> 56, 1);
}

/*
 * Blocks of 32. Codes are uniform: -8..7 has a standard deviation of 4.6 and -128..127 one of
 * 73.9, hence the scales.
 */
static void put_block(buffer *b, stream *s, uint32_t type, float sigma) {
    const float d = sigma * jitter(s) / (type == Q8_0 ? 73.9f : 4.6f);
    put_le(b, half_of(d), 2);
    if (type == Q4_1) put_le(b, half_of(-7.5f * d), 2);
    put_random(b, s, type == Q8_0 ? BLOCK : BLOCK / 2);
}

/*
 * 256 weights d*scale*q - dmin*min, q in 0..15, eight 6-bit pairs (scale, min). With dmin = 7.5 d
 * and min = scale the weights are centred.
 */
static void put_block_q4_k(buffer *b, stream *s, float sigma) {
    const float d = sigma / (4.6f * 40.0f);
    uint8_t scale[8], packed[12] = {0};
    for (int j = 0; j < 8; j++)
        scale[j] = (uint8_t)(17 + next(s) % 47);
    for (int j = 0; j < 4; j++) {
        const uint8_t high = scale[j + 4];
        packed[j] = packed[j + 4] = (uint8_t)(scale[j] | (high >> 4) << 6);
        packed[j + 8] = (uint8_t)((high & 15) | (high & 15) << 4);
    }
    put_le(b, half_of(d), 2);
    put_le(b, half_of(7.5f * d), 2);
    put(b, packed, sizeof packed);
    put_random(b, s, SUPER_BLOCK / 2);
}

/* 256 weights d*scale*(q - 32), q in 0..63, sixteen signed 8-bit scales. */
static void put_block_q6_k(buffer *b, stream *s, float sigma) {
    put_random(b, s, SUPER_BLOCK / 2 + SUPER_BLOCK / 4);
    for (int j = 0; j < SUPER_BLOCK / 16; j++) {
        const uint64_t r = next(s);
        const int scale = 20 + (int)(r % 81);
        put_le(b, (uint8_t)(r >> 63 ? -scale : scale), 1);
    }
    put_le(b, half_of(sigma / (18.5f * 60.0f)), 2);
}

static void put_weights(buffer *b, stream *s, uint32_t type, size_t n_weights, float mean,
                        float sigma) {
    const size_t per_call = type == Q4_K || type == Q6_K                   ? SUPER_BLOCK
                            : type == Q4_0 || type == Q4_1 || type == Q8_0 ? BLOCK
                                                                           : 1;
    for (size_t i = 0; i < n_weights; i += per_call) {
        switch (type) {
        case F32: put_f32(b, mean + sigma * bell(s)); break;
        case F16: put_le(b, half_of(mean + sigma * bell(s)), 2); break;
        case BF16: put_le(b, bfloat_of(mean + sigma * bell(s)), 2); break;
        case Q4_K: put_block_q4_k(b, s, sigma); break;
        case Q6_K: put_block_q6_k(b, s, sigma); break;
        default: put_block(b, s, type, sigma); break;
        }
    }
}

/* ---- vocabulary ---- */

typedef struct vocabulary {
    buffer tokens, scores, types, merges; /* array bodies */
    uint32_t n_tokens, n_merges;
    char **texts; /* [n_tokens], to find duplicates and ids */
} vocabulary;

/* What merges build up, one character (SPM) or byte (BPE) after the other: so every beginning of
 * an entry is a token too, and the BPE vocabulary has tokens that end inside a character. */
static const char *const words[] = {
    " the",
    " and",
    " of",
    " to",
    " in",
    " is",
    " that",
    " for",
    " it",
    " was",
    "ing",
    "tion",
    "The",
    "hello",
    "Hello",
    " world",
    " a",
    " probability",
    " token",
    "er",
    "re",
    "on",
    "st",
    "  ",
    "    ",
    "\n\n",
    "\r\n",
    "():",
    " ==",
    "é",
    "ß",
    " été",
    "привет",
    " мир",
    "中国",
    "的",
    "日本",
    "مرحبا",
    "नम",
    "🙂",
    "🚀",
    "👍🏽",
    "\n\xF0\x9F\x9A",
};

static void add_token(vocabulary *v, const char *text, int type, float score) {
    v->texts = realloc(v->texts, (v->n_tokens + 1) * sizeof *v->texts);
    char *copy = strdup(text);
    if (!v->texts || !copy) die("cannot go on", "out of memory");
    v->texts[v->n_tokens++] = copy;
    put_string(&v->tokens, text);
    put_f32(&v->scores, score);
    put_u32(&v->types, (uint32_t)type);
}

static bool has_token(const vocabulary *v, const char *text) {
    for (uint32_t i = 0; i < v->n_tokens; i++)
        if (!strcmp(v->texts[i], text)) return true;
    return false;
}

static size_t put_utf8(char *out, unsigned code) { /* up to U+07FF */
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 0x3f));
    return 2;
}

/* The printable stand-in of a byte in byte-level BPE: itself, or the next free one from U+0100. */
static size_t put_byte_letter(char *out, unsigned byte) {
    unsigned moved = 0;
    for (unsigned i = 0; i <= byte; i++) {
        const bool printable = (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174;
        if (i == byte) return put_utf8(out, printable ? byte : 256 + moved);
        moved += !printable;
    }
    return 0;
}

static void add_bpe_word(vocabulary *v, const char *word) {
    char text[256] = "", merge[512];
    size_t n = 0;
    for (const char *c = word; *c; c++) {
        char letter[3] = "", before[256];
        memcpy(before, text, sizeof before);
        letter[put_byte_letter(letter, (uint8_t)*c)] = 0;
        n += put_byte_letter(text + n, (uint8_t)*c);
        text[n] = 0;
        if (c == word || has_token(v, text)) continue;
        snprintf(merge, sizeof merge, "%s %s", before, letter);
        put_string(&v->merges, merge);
        v->n_merges++;
        add_token(v, text, NORMAL, 0.0f);
    }
}

static size_t character_bytes(const char *c) {
    const uint8_t lead = (uint8_t)*c;
    return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

static void add_spm_word(vocabulary *v, const char *word) {
    char text[256];
    size_t n = 0;
    for (const char *c = word; *c; c += character_bytes(c)) {
        /* The last entry ends inside a character, which a piece of text cannot. */
        if (strlen(c) < character_bytes(c)) return;
        if (*c == ' ') {
            memcpy(text + n, "\xE2\x96\x81", 3);
            n += 3;
        } else {
            memcpy(text + n, c, character_bytes(c));
            n += character_bytes(c);
        }
        text[n] = 0;
        if (*c < ' ' && *c >= 0) return; /* line ends stay bytes */
        if (!has_token(v, text)) add_token(v, text, NORMAL, -(float)v->n_tokens);
    }
}

static void add_markup(vocabulary *v) {
    add_token(v, "<|im_start|>", CONTROL, 0.0f);
    add_token(v, "<|im_end|>", CONTROL, 0.0f);
    add_token(v, "<think>", USER, 0.0f);
    add_token(v, "</think>", USER, 0.0f);
}

static void build_vocabulary(vocabulary *v, const options *o) {
    char text[32];
    if (o->spm) {
        add_token(v, "<unk>", UNKNOWN, 0.0f);
        add_token(v, "<s>", CONTROL, 0.0f);
        add_token(v, "</s>", CONTROL, 0.0f);
        add_markup(v);
        for (unsigned i = 0; i < 256; i++) {
            snprintf(text, sizeof text, "<0x%02X>", i);
            add_token(v, text, BYTE, 0.0f);
        }
        for (unsigned c = '!'; c <= '~'; c++) {
            snprintf(text, sizeof text, "%c", (int)c);
            add_token(v, text, NORMAL, -1000.0f);
        }
    } else {
        add_token(v, "<|bos|>", CONTROL, 0.0f);
        add_token(v, "<|eos|>", CONTROL, 0.0f);
        add_markup(v);
        for (unsigned i = 0; i < 256; i++) {
            text[put_byte_letter(text, i)] = 0;
            add_token(v, text, NORMAL, 0.0f);
        }
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        (o->spm ? add_spm_word : add_bpe_word)(v, words[i]);
    for (int i = 0; i < o->unused; i++) {
        snprintf(text, sizeof text, "<unused_%d>", i);
        add_token(v, text, UNUSED, -10000.0f);
    }
}

/* ---- metadata ---- */

typedef struct metadata {
    buffer body;
    uint64_t n_pairs;
    const char *architecture;
} metadata;

/* Keys that start with '.' belong to the architecture. */
static void put_key(metadata *m, const char *key, uint32_t type) {
    char full[128];
    snprintf(full, sizeof full, "%s%s", key[0] == '.' ? m->architecture : "", key);
    put_string(&m->body, full);
    put_u32(&m->body, type);
    m->n_pairs++;
}

static void meta_u32(metadata *m, const char *key, uint32_t value) {
    put_key(m, key, GGUF_U32);
    put_u32(&m->body, value);
}

static void meta_f32(metadata *m, const char *key, float value) {
    put_key(m, key, GGUF_F32);
    put_f32(&m->body, value);
}

static void meta_bool(metadata *m, const char *key, bool value) {
    put_key(m, key, GGUF_BOOL);
    put_le(&m->body, value, 1);
}

static void meta_string(metadata *m, const char *key, const char *value) {
    put_key(m, key, GGUF_STRING);
    put_string(&m->body, value);
}

static void meta_array(metadata *m, const char *key, uint32_t type, uint64_t n,
                       const buffer *body) {
    put_key(m, key, GGUF_ARRAY);
    put_u32(&m->body, type);
    put_u64(&m->body, n);
    put(&m->body, body->data, body->length);
}

static void describe_model(metadata *m, const options *o, uint32_t n_tokens) {
    meta_string(m, "general.architecture", m->architecture);
    meta_string(m, "general.name", "Alea tiny test model");
    meta_u32(m, "general.quantization_version", 2);
    meta_u32(m, ".vocab_size", n_tokens);
    meta_u32(m, ".context_length", (uint32_t)o->context);
    meta_u32(m, ".embedding_length", EMBD);
    meta_u32(m, ".block_count", (uint32_t)o->layers);
    meta_u32(m, ".feed_forward_length", FF);
    meta_u32(m, ".attention.head_count", HEADS);
    if (o->embedding_only) {
        meta_f32(m, ".attention.layer_norm_epsilon", 1e-5f);
        meta_bool(m, ".attention.causal", false);
        meta_u32(m, ".pooling_type", 1); /* mean */
        meta_u32(m, "tokenizer.ggml.token_type_count", 2);
    } else {
        meta_u32(m, ".attention.head_count_kv", HEADS_KV);
        meta_f32(m, ".attention.layer_norm_rms_epsilon", 1e-5f);
        meta_u32(m, ".rope.dimension_count", HEAD);
    }
}

static void describe_vocabulary(metadata *m, const options *o, const vocabulary *v) {
    meta_string(m, "tokenizer.ggml.model", o->spm ? "llama" : "gpt2");
    if (!o->spm) meta_string(m, "tokenizer.ggml.pre", o->pre);
    meta_array(m, "tokenizer.ggml.tokens", GGUF_STRING, v->n_tokens, &v->tokens);
    meta_array(m, "tokenizer.ggml.token_type", GGUF_I32, v->n_tokens, &v->types);
    if (o->spm) meta_array(m, "tokenizer.ggml.scores", GGUF_F32, v->n_tokens, &v->scores);
    if (!o->spm) meta_array(m, "tokenizer.ggml.merges", GGUF_STRING, v->n_merges, &v->merges);
    meta_u32(m, "tokenizer.ggml.bos_token_id", o->spm ? 1 : 0);
    meta_u32(m, "tokenizer.ggml.eos_token_id", o->spm ? 2 : 1);
    if (o->spm) meta_u32(m, "tokenizer.ggml.unknown_token_id", 0);
    meta_bool(m, "tokenizer.ggml.add_bos_token", o->spm);
    meta_bool(m, "tokenizer.ggml.add_eos_token", false);
    if (o->chat_template) meta_string(m, "tokenizer.chat_template", o->chat_template);
}

/* ---- tensors ---- */

typedef struct tensors {
    buffer infos, data;
    uint64_t n_tensors;
    const options *options;
} tensors;

/* rows == 0: a vector, always float32. layer < 0: the name has no number. */
static void add_tensor(tensors *t, int layer, const char *name, uint32_t columns, uint32_t rows,
                       float mean, float sigma) {
    char full[64];
    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    const uint32_t type = rows ? weight_types[t->options->weight_type].type : F32;
    put_string(&t->infos, full);
    put_u32(&t->infos, rows ? 2 : 1);
    put_u64(&t->infos, columns);
    if (rows) put_u64(&t->infos, rows);
    put_u32(&t->infos, type);
    put_zeros(&t->data, ALIGNMENT);
    put_u64(&t->infos, t->data.length);
    t->n_tensors++;

    stream s = stream_for(t->options->seed, full);
    put_weights(&t->data, &s, type, (size_t)columns * (rows ? rows : 1), mean, sigma);
}

static void add_llama_tensors(tensors *t, uint32_t n_tokens) {
    add_tensor(t, -1, "token_embd.weight", EMBD, n_tokens, 0.0f, 1.0f);
    add_tensor(t, -1, "output_norm.weight", EMBD, 0, 1.0f, 0.05f);
    add_tensor(t, -1, "output.weight", EMBD, n_tokens, 0.0f, 0.2f);
    for (int i = 0; i < t->options->layers; i++) {
        add_tensor(t, i, "attn_norm.weight", EMBD, 0, 1.0f, 0.05f);
        add_tensor(t, i, "attn_q.weight", EMBD, EMBD, 0.0f, 0.09f);
        add_tensor(t, i, "attn_k.weight", EMBD, HEADS_KV * HEAD, 0.0f, 0.09f);
        add_tensor(t, i, "attn_v.weight", EMBD, HEADS_KV * HEAD, 0.0f, 0.09f);
        add_tensor(t, i, "attn_output.weight", EMBD, EMBD, 0.0f, 0.07f);
        add_tensor(t, i, "ffn_norm.weight", EMBD, 0, 1.0f, 0.05f);
        add_tensor(t, i, "ffn_gate.weight", EMBD, FF, 0.0f, 0.06f);
        add_tensor(t, i, "ffn_up.weight", EMBD, FF, 0.0f, 0.06f);
        add_tensor(t, i, "ffn_down.weight", FF, EMBD, 0.0f, 0.07f);
    }
}

static void add_bert_norm(tensors *t, int layer, const char *name) {
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    add_tensor(t, layer, full, EMBD, 0, 1.0f, 0.05f);
    snprintf(full, sizeof full, "%s.bias", name);
    add_tensor(t, layer, full, EMBD, 0, 0.0f, 0.05f);
}

static void add_bert_tensors(tensors *t, uint32_t n_tokens) {
    add_tensor(t, -1, "token_embd.weight", EMBD, n_tokens, 0.0f, 1.0f);
    add_tensor(t, -1, "token_types.weight", EMBD, 2, 0.0f, 0.1f);
    add_tensor(t, -1, "position_embd.weight", EMBD, (uint32_t)t->options->context, 0.0f, 0.3f);
    add_bert_norm(t, -1, "token_embd_norm");
    for (int i = 0; i < t->options->layers; i++) {
        add_tensor(t, i, "attn_q.weight", EMBD, EMBD, 0.0f, 0.09f);
        add_tensor(t, i, "attn_k.weight", EMBD, EMBD, 0.0f, 0.09f);
        add_tensor(t, i, "attn_v.weight", EMBD, EMBD, 0.0f, 0.09f);
        add_tensor(t, i, "attn_output.weight", EMBD, EMBD, 0.0f, 0.07f);
        add_bert_norm(t, i, "attn_output_norm");
        add_tensor(t, i, "ffn_up.weight", EMBD, FF, 0.0f, 0.06f);
        add_tensor(t, i, "ffn_down.weight", FF, EMBD, 0.0f, 0.07f);
        add_bert_norm(t, i, "layer_output_norm");
    }
}

/* ---- the program ---- */

static const char chatml[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content']"
    " + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}";

static const char usage[] =
    "usage: alea-tiny-gguf --out FILE [options]\n"
    "  --type T              f32 (default), f16, bf16, q4_0, q4_1, q8_0, q4_k, q6_k\n"
    "  --vocab V             bpe (default) or spm\n"
    "  --pre NAME            pre-tokenizer of a bpe vocabulary: gpt-2 (default), smollm, ...\n"
    "  --layers N            1..64, default 2\n"
    "  --context N           tokens that it claims to be trained on, default 512\n"
    "  --unused N            unused tokens at the end of the vocabulary, default 4\n"
    "  --chat-template[=T]   store a chat template; without T a plain ChatML one\n"
    "  --embedding-only      a bert model, which has no output layer\n"
    "  --architecture NAME   what the file claims to be; tensors stay as they are\n"
    "  --seed N              default 1\n";

static long parse_number(const char *name, const char *text, long low, long high) {
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high) {
        char what[96];
        snprintf(what, sizeof what, "%s must be a number in %ld..%ld", name, low, high);
        die(what, text);
    }
    return value;
}

static size_t parse_weight_type(const char *text) {
    for (size_t i = 0; i < sizeof weight_types / sizeof *weight_types; i++)
        if (!strcmp(text, weight_types[i].name)) return i;
    die("unknown weight type", text);
    return 0;
}

static options parse_options(int argc, char **argv) {
    static const struct option known[] = {
        {"type", required_argument, NULL, 't'},
        {"vocab", required_argument, NULL, 'v'},
        {"pre", required_argument, NULL, 'p'},
        {"layers", required_argument, NULL, 'l'},
        {"unused", required_argument, NULL, 'u'},
        {"chat-template", optional_argument, NULL, 'c'},
        {"embedding-only", no_argument, NULL, 'e'},
        {"architecture", required_argument, NULL, 'a'},
        {"seed", required_argument, NULL, 's'},
        {"out", required_argument, NULL, 'o'},
        {"help", no_argument, NULL, 'h'},
        {"context", required_argument, NULL, 'x'},
        {NULL, 0, NULL, 0},
    };
    options o = {.pre = "gpt-2", .seed = 1, .layers = 2, .context = 512, .unused = 4};
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (c) {
        case 't': o.weight_type = parse_weight_type(optarg); break;
        case 'v':
            o.spm = !strcmp(optarg, "spm");
            if (!o.spm && strcmp(optarg, "bpe")) die("unknown vocabulary", optarg);
            break;
        case 'p': o.pre = optarg; break;
        case 'l': o.layers = (int)parse_number("--layers", optarg, 1, 64); break;
        case 'x': o.context = (int)parse_number("--context", optarg, 1, 65536); break;
        case 'u': o.unused = (int)parse_number("--unused", optarg, 0, 300000); break;
        case 'c': o.chat_template = optarg ? optarg : chatml; break;
        case 'e': o.embedding_only = true; break;
        case 'a': o.architecture = optarg; break;
        case 's': o.seed = (uint64_t)parse_number("--seed", optarg, 0, INT32_MAX); break;
        case 'o': o.out = optarg; break;
        case 'h': fputs(usage, stdout); exit(0);
        default: fputs(usage, stderr); exit(2);
        }
    }
    if (optind < argc || !o.out) {
        fputs(usage, stderr);
        exit(2);
    }
    if (!o.architecture) o.architecture = o.embedding_only ? "bert" : "llama";
    if (strlen(o.architecture) > 40) die("architecture name is too long", o.architecture);
    return o;
}

int main(int argc, char **argv) {
    const options o = parse_options(argc, argv);
    vocabulary v = {.n_tokens = 0};
    build_vocabulary(&v, &o);
    metadata m = {.architecture = o.architecture};
    describe_model(&m, &o, v.n_tokens);
    describe_vocabulary(&m, &o, &v);
    tensors t = {.options = &o};
    (o.embedding_only ? add_bert_tensors : add_llama_tensors)(&t, v.n_tokens);
    put_zeros(&t.data, ALIGNMENT);

    buffer head = {.length = 0};
    put(&head, "GGUF", 4);
    put_u32(&head, 3);
    put_u64(&head, t.n_tensors);
    put_u64(&head, m.n_pairs);
    put(&head, m.body.data, m.body.length);
    put(&head, t.infos.data, t.infos.length);
    put_zeros(&head, ALIGNMENT);

    FILE *out = fopen(o.out, "wb");
    if (!out) die(o.out, strerror(errno));
    const bool written = fwrite(head.data, 1, head.length, out) == head.length &&
                         fwrite(t.data.data, 1, t.data.length, out) == t.data.length;
    if (fclose(out) || !written) die(o.out, strerror(errno));

    for (uint32_t i = 0; i < v.n_tokens; i++)
        free(v.texts[i]);
    free(v.texts);
    buffer *all[] = {&v.tokens, &v.scores, &v.types, &v.merges, &m.body, &t.infos, &t.data, &head};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]->data);
    return 0;
}
