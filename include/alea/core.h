/*
 * The core ABI: what a program must offer so that Alea can read its rows of raw logits.
 *
 * A core advances sequences of tokens and hands out one row of float32 logits for each position
 * that a round asked for. It samples nothing and scores nothing: that is Alea's side. A core is
 * built in or is a shared object that exports ALEA_CORE_ENTRY.
 *
 * Callers use the alea_core_* functions at the bottom. They check every argument once, above the
 * core, so an implementation may take its input as valid; several engines below this interface
 * would otherwise end the process instead of returning an error.
 */
#ifndef ALEA_CORE_H
#define ALEA_CORE_H

#include <stdbool.h>

#include "alea/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ALEA_CORE_ABI 1u
#define ALEA_CORE_ENTRY "alea_core_entry"

/** Base of every core instance; an implementation puts it first in its own struct. */
typedef struct alea_core alea_core;

enum alea_core_flag {
    ALEA_CORE_VOCAB_ONLY = 1u << 0, /**< tokenizer and facts alone; no rounds */
    ALEA_CORE_FAST = 1u << 1        /**< the engine chooses kernels: rows may depend on the batch */
};

/** How to open a core. Zero in a number means "the core's choice". */
typedef struct alea_core_options {
    uint32_t struct_bytes;  /**< sizeof(alea_core_options) */
    uint32_t flags;         /**< alea_core_flag bits */
    const char *model;      /**< a path; a core without weights reads "key=value,…" */
    int32_t context_tokens; /**< positions that one sequence can hold; 0: the model's */
    int32_t sequences;      /**< sequences that exist at once; 0: 1 */
    int32_t round_tokens;   /**< most tokens in one round; 0: 512 */
    int32_t round_rows;     /**< most rows in one round; 0: the core's choice, 64 or more */
    int32_t threads;        /**< 0: as many as the affinity mask allows */
    bool (*progress)(float done, void *user); /**< loading, 0..1; false cancels; may be NULL */
    void *progress_user;
} alea_core_options;

/** What a core is. Strings live until the core is closed. Sizes are 0 where unknown. */
typedef struct alea_core_info {
    uint32_t struct_bytes;
    const char *core;  /**< "llama", "toy", … */
    const char *build; /**< version and kernels of the engine, for reports */
    const char *model; /**< one line: name, size, weight type */
    const char *architecture;
    const char *tokenizer;     /**< "BPE", "SPM", … */
    const char *chat_template; /**< NULL: none */
    int32_t vocab;
    int32_t trained_context_tokens;
    int32_t context_tokens;
    int32_t sequences;
    int32_t round_tokens;
    int32_t round_rows;
    int32_t threads;
    int32_t layers;
    int32_t embedding;
    uint64_t parameters;
    uint64_t weight_bytes;
    uint64_t cache_bytes;       /**< sequence memory of all sequences */
    uint64_t row_bytes;         /**< host memory for one round's rows */
    int32_t bos, eos, eot, pad; /**< token ids; -1: none */
    bool adds_bos;              /**< tokenizing with ALEA_TOKENIZE_SPECIAL puts bos in front */
    bool batch_invariant;       /**< a row's bits do not depend on chunking or neighbours */
} alea_core_info;

enum alea_token_flag {
    ALEA_TOKEN_CONTROL = 1u << 0, /**< structure, not text: its bytes are empty */
    ALEA_TOKEN_END = 1u << 1,     /**< ends generation */
    ALEA_TOKEN_BYTE = 1u << 2,    /**< one raw byte of a byte-fallback vocabulary */
    ALEA_TOKEN_UNKNOWN = 1u << 3,
    ALEA_TOKEN_UNUSED = 1u << 4,
    ALEA_TOKEN_USER = 1u << 5 /**< added by the model's author: text, matched whole */
};

typedef struct alea_token_info {
    alea_bytes bytes; /**< what the token adds to a text; empty for control tokens */
    alea_bytes name;  /**< how to show it: a control token's name, else the same bytes */
    uint32_t flags;   /**< alea_token_flag bits */
} alea_token_info;

enum alea_tokenize_flag {
    ALEA_TOKENIZE_SPECIAL = 1u << 0, /**< add bos and eos where the model says so */
    ALEA_TOKENIZE_MARKUP = 1u << 1   /**< names of control tokens in the text become those tokens:
                                          never for text that a stranger wrote */
};

enum alea_span_kind {
    ALEA_SPAN_TOKENS = 0,
    ALEA_SPAN_OPAQUE = 1 /**< an image or the like: positions without token ids */
};

/** A stretch of a sequence. Positions inside an opaque span have no token and no target. */
typedef struct alea_span {
    uint32_t kind;         /**< alea_span_kind */
    int32_t length;        /**< positions, at least 1 */
    const int32_t *tokens; /**< [length] for ALEA_SPAN_TOKENS */
    alea_bytes opaque;     /**< the thing itself for ALEA_SPAN_OPAQUE; the core reads it */
} alea_span;

/**
 * One sequence's part of a round: append `span` at `position`, which must be the sequence's
 * present length, and produce rows for the positions from index `first_row` of the span on
 * (first_row == span.length: none).
 */
typedef struct alea_round_item {
    int32_t sequence;
    int32_t position;
    int32_t first_row;
    alea_span span;
} alea_round_item;

/** Prompt chunks and single steps mix freely; a sequence appears in one item at most. */
typedef struct alea_round {
    const alea_round_item *items;
    int32_t n_items;
} alea_round;

/**
 * The table that a core exports. Reading order: open, describe, token_info/tokenize, then
 * submit, wait, row in turn. One thread at a time per instance, but for describe, token_info and
 * tokenize: any thread calls those, also while another waits for a round. A failing call fills
 * `error` where it takes one and leaves sequences as they were, unless it says otherwise.
 */
typedef struct alea_core_api {
    uint32_t abi;          /**< ALEA_CORE_ABI */
    uint32_t struct_bytes; /**< sizeof(alea_core_api) */
    const char *name;

    alea_status (*open)(const alea_core_options *options, alea_core **core, alea_error *error);
    void (*close)(alea_core *core);
    void (*describe)(const alea_core *core, alea_core_info *info);

    void (*token_info)(const alea_core *core, int32_t token, alea_token_info *info);
    /** At most `capacity` ids are written; *count is the full number, so call again if larger. */
    alea_status (*tokenize)(const alea_core *core, alea_bytes text, uint32_t flags, int32_t *tokens,
                            size_t capacity, size_t *count);

    /** Start a round; the previous round's rows end here. */
    alea_status (*submit)(alea_core *core, const alea_round *round, alea_error *error);
    /** Finish it. After a failure the sequences of the round have an unspecified length. */
    alea_status (*wait)(alea_core *core, alea_error *error);
    /** Row `index`, counted over the round's rows in item order: [vocab], valid until submit. */
    const float *(*row)(alea_core *core, int32_t index);

    int32_t (*sequence_length)(const alea_core *core, int32_t sequence);
    /** `to` becomes a copy of the whole of `from`. */
    alea_status (*sequence_copy)(alea_core *core, int32_t from, int32_t to);
    /** Keep the first `length` positions. ALEA_EUNSUPPORTED: only 0 (drop the whole) works. */
    alea_status (*sequence_trim)(alea_core *core, int32_t sequence, int32_t length);

    /** Optional, NULL: the serialized alea.core.Manifest (proto/alea/core.proto), until close. */
    alea_bytes (*manifest)(const alea_core *core);
} alea_core_api;

/**
 * The table only grows, at its end and by optional members; anything else is a new ALEA_CORE_ABI.
 * So a table of the same ABI may be shorter than this header's, down to this many bytes, and a
 * member beyond its struct_bytes counts as NULL.
 */
#define ALEA_CORE_API_BYTES_MIN offsetof(alea_core_api, manifest)

struct alea_core {
    const alea_core_api *api;
    /* From here on kept by the alea_core_* functions; a core leaves it alone. */
    int32_t vocab;
    int32_t context_tokens;
    int32_t sequences;
    int32_t round_tokens; /**< 0: opened for its vocabulary only */
    int32_t round_rows;
    int32_t rows_ready;
    int32_t rows_in_flight; /**< rows of a submitted round */
    bool in_flight;
};

typedef const alea_core_api *(*alea_core_entry_fn)(void);

/**
 * Open a core behind its table.
 *
 * Shape     —
 * Domain    api with the ABI of this header; options->struct_bytes set, numbers not negative,
 *           model not NULL
 * Result    *core, to be closed by alea_core_close
 * Exact     —
 * Errors    ALEA_EINVAL (an option, named), ALEA_EUNSUPPORTED (ABI), else what the core reports;
 *           *core untouched
 * Memory    the core's
 * Threads   one open at a time
 */
ALEA_API ALEA_MUST_USE alea_status alea_core_open(const alea_core_api *api,
                                                  const alea_core_options *options,
                                                  alea_core **core, alea_error *error);

/** Close; NULL is allowed. Strings, token bytes and rows of the core end here. */
ALEA_API void alea_core_close(alea_core *core);

/** Fill `info`; info->struct_bytes is set by this call. */
ALEA_API void alea_core_describe(const alea_core *core, alea_core_info *info);

/**
 * Bytes, name and flags of a token.
 *
 * Shape     —
 * Domain    0 <= token < vocab
 * Result    *info; its bytes live until the core is closed
 * Exact     the concatenated bytes of a tokenized text are the text, for vocabularies that can
 *           represent it (BPE, SPM, byte fallback)
 * Errors    ALEA_EINVAL: *info untouched
 * Memory    allocates nothing
 * Threads   reentrant
 */
ALEA_API ALEA_MUST_USE alea_status alea_core_token(const alea_core *core, int32_t token,
                                                   alea_token_info *info);

/**
 * Text to token ids.
 *
 * Shape     tokens [capacity]; *count may exceed it: then the first `capacity` are undefined and
 *           the caller tries again with room for *count
 * Domain    text of at most 2^30 bytes; tokens may be NULL with capacity 0
 * Result    *count, and the ids where they fit
 * Exact     a function of the model alone
 * Errors    ALEA_EINVAL, ALEA_ELIMIT, ALEA_ENOMEM, ALEA_EFORMAT (the text is not UTF-8, for cores
 *           that need it), ALEA_ECORE: *count untouched
 * Memory    the core may allocate
 * Threads   reentrant
 */
ALEA_API ALEA_MUST_USE alea_status alea_core_tokenize(const alea_core *core, alea_bytes text,
                                                      uint32_t flags, int32_t *tokens,
                                                      size_t capacity, size_t *count);

/**
 * Run a round to its end: check it, submit, wait.
 *
 * Shape     round->items [n_items]
 * Domain    every rule of alea_round_item; at most round_tokens tokens and round_rows rows in all;
 *           token ids in [0, vocab); no sequence beyond context_tokens
 * Result    *n_rows rows are ready for alea_core_row, in item order
 * Exact     with info.batch_invariant a row's bits depend on its sequence's content alone
 * Errors    ALEA_EINVAL (a field, named), ALEA_ECONTEXT, ALEA_ELIMIT: nothing was run;
 *           ALEA_ECORE: trim or drop the round's sequences before using them again
 * Memory    none after the first rounds
 * Threads   one per core
 */
ALEA_API ALEA_MUST_USE alea_status alea_core_run(alea_core *core, const alea_round *round,
                                                 int32_t *n_rows, alea_error *error);

/** The two halves of alea_core_run, for callers that overlap work with a round. */
ALEA_API ALEA_MUST_USE alea_status alea_core_submit(alea_core *core, const alea_round *round,
                                                    int32_t *n_rows, alea_error *error);
ALEA_API ALEA_MUST_USE alea_status alea_core_wait(alea_core *core, alea_error *error);

/** Row `index` of the finished round, [vocab], until the next submit; NULL outside [0, n_rows). */
ALEA_API const float *alea_core_row(alea_core *core, int32_t index);

/** Positions that a sequence holds; -1 for a sequence that does not exist. */
ALEA_API int32_t alea_core_sequence_length(const alea_core *core, int32_t sequence);

/** `to` becomes a copy of the whole of `from`; ALEA_EINVAL names a bad id. */
ALEA_API ALEA_MUST_USE alea_status alea_core_sequence_copy(alea_core *core, int32_t from,
                                                           int32_t to, alea_error *error);

/** Keep the first `length` positions, 0..present length; a cut at the end only. */
ALEA_API ALEA_MUST_USE alea_status alea_core_sequence_trim(alea_core *core, int32_t sequence,
                                                           int32_t length, alea_error *error);

/** The manifest that a core hands over, valid until close; {NULL, 0}: it has none. */
ALEA_API alea_bytes alea_core_manifest(const alea_core *core);

/**
 * Load a core from a shared object that exports ALEA_CORE_ENTRY.
 *
 * Shape     —
 * Domain    path of a file; a name without a slash means the working directory, never the
 *           system's library folders
 * Result    *api, for alea_core_open
 * Exact     —
 * Errors    ALEA_EIO (no such file, not loadable), ALEA_EFORMAT (no entry, an incomplete table),
 *           ALEA_EUNSUPPORTED (another ABI: nothing of its table is called), ALEA_EINVAL,
 *           ALEA_ENOMEM: *api untouched, the object unloaded
 * Memory    a loaded object stays for the life of the process; loading it again gives the same
 *           table
 * Threads   reentrant
 */
ALEA_API ALEA_MUST_USE alea_status alea_core_load(const char *path, const alea_core_api **api,
                                                  alea_error *error);

/** The built-in core without weights: deterministic, made for tests. See src/core/toy. */
ALEA_API const alea_core_api *alea_core_toy(void);

#ifdef __cplusplus
}
#endif
#endif
