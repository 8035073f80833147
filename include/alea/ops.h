/*
 * The operators: choose, mask, draw and score rows of logits or probabilities.
 *
 * Each is made once from a config, which sizes everything it will need, then run on tensors as
 * often as wanted. Tensors are DLPack's, so those of any framework can be passed as they are.
 * Results are exact: docs/numerics.md says what each bit is, and it is the same on every target,
 * with any number of threads, wherever in a batch a row stands and whatever stands beside it.
 *
 * Words used below. rows x vocab: the two dimensions of a batch of logits. A row: the values of
 * one batch entry, contiguous. NaN, infinities and both zeros are values like others, and each
 * operator says what becomes of them. Only vocab <= 2^22 (ALEA_OP_VOCAB_MAX) limits a size: the
 * product rows * vocab may exceed 2^31.
 *
 * Example: examples/topk_mask.c, and one file for every other operator beside it.
 */
#ifndef ALEA_OPS_H
#define ALEA_OPS_H

#include <dlpack/dlpack.h>

#include "alea/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ALEA_OP_VOCAB_MAX (1 << 22) /**< longest row whose masses fit 64 bits */
#define ALEA_OP_ALTERNATIVES_MAX 20 /**< alternatives of a report */
#define ALEA_OP_GIVEN_MAX 128       /**< caller's ids per row of alea_logprobs */

typedef enum alea_op_kind {
    ALEA_OP_TOPK_SELECT,
    ALEA_OP_TOPK_MASK,
    ALEA_OP_MINP_MASK,
    ALEA_OP_TOPP_MASK,
    ALEA_OP_TOPK_TOPP_MASK,
    ALEA_OP_SAMPLE_PROBS,
    ALEA_OP_CHAIN_SAMPLE,
    ALEA_OP_LOGPROBS,
    ALEA_OP_SAMPLE_LOGITS,
    ALEA_OP_CHAIN_LOGITS,
    ALEA_OP_KINDS
} alea_op_kind;

/** "topk_select", "topk_mask", …; "unknown" for a value that is none. Static, reentrant. */
ALEA_API const char *alea_op_name(alea_op_kind kind);

typedef enum alea_dtype {
    ALEA_DTYPE_ANY = 0, /**< whatever a call brings, of those that the operator takes */
    ALEA_FLOAT16,
    ALEA_BFLOAT16,
    ALEA_FLOAT32
} alea_dtype;

enum alea_op_flag {
    /** Look at the values of parameters, windows and probabilities too, and refuse bad ones.
     *  Without it a bad value gives an unspecified result of its own row and nothing worse. */
    ALEA_OP_CHECK_VALUES = 1u << 0,
    /** A mask's output may be its input itself: same address, same strides. */
    ALEA_OP_IN_PLACE = 1u << 1
};

/** In alea_op_config.target: the library's own targets, whatever a program registered. */
#define ALEA_TARGET_BUILTIN "builtin"

/**
 * What an operator is made for. Zero everything, set struct_bytes and max_vocab, then what else
 * matters; strings need not outlive the call.
 */
typedef struct alea_op_config {
    uint32_t struct_bytes; /**< sizeof(alea_op_config) */
    uint32_t flags;        /**< alea_op_flag bits */
    /** "cpu" (vector code of this machine), "cpu-ref" (plain C, the specification), "cuda" (the
     *  device that is current when the operator is made), the name of a registered one,
     *  ALEA_TARGET_BUILTIN, or NULL: by the device of each call's tensors. By NULL the GPU is
     *  served only where the process uses CUDA already when the operator is made. */
    const char *target;
    int32_t threads;   /**< the caller among them; 0: as many as the affinity mask allows */
    int32_t max_vocab; /**< longest row: vocab, or S_kv of alea_topk_select; at least 1 */
    int64_t max_rows;  /**< most rows of a call; 0: no limit */
    int32_t topk;      /**< alea_topk_select: slots, at least 1; alternatives of alea_logprobs and
                        *   alea_sample_logits: 0..20 */
    alea_dtype dtype;  /**< of the logits; other dtypes are then refused */
} alea_op_config;

/*
 * Making and ending, the same for every operator NAME below:
 *
 *     alea_status alea_NAME_create(const alea_op_config *config, alea_NAME **op,
 *                                  alea_error *error);
 *     void alea_NAME_destroy(alea_NAME *op);
 *
 * Shape     —
 * Domain    as alea_op_config says
 * Result    *op; destroy ends it and accepts NULL
 * Exact     —
 * Errors    ALEA_EINVAL (a field, named), ALEA_EUNSUPPORTED (the target is unknown or declines:
 *           the message lists targets and reasons), ALEA_ENOMEM: *op untouched
 * Memory    scratch for every thread, of about 17 bytes per entry of a row; a run allocates nothing
 * Threads   reentrant; one operator serves one run at a time, and different operators any number
 *
 * Running, in general: alea_NAME_run(op, outputs…, inputs…, stream, error).
 *
 * Shape     rows may lie any distance apart: strides are not negative, the last is 1, the others
 *           are free, and 0 makes one row of an input serve for all; an input [rows] may have any
 *           stride; byte_offset counts; an address need only suit its element. Inputs may overlap
 *           each other, an output overlaps nothing (but see ALEA_OP_IN_PLACE)
 * Errors    ALEA_EINVAL (dtype, rank, shape, stride, alignment, overlap or value of an argument,
 *           which is named), ALEA_ELIMIT (beyond what the config announced, or beyond 2^22),
 *           ALEA_EUNSUPPORTED (no target serves the call: each is listed with its reason; the CPU
 *           declines a thread that rounds otherwise than to nearest even or flushes denormals).
 *           After any of them no output has been written
 * Memory    allocates nothing
 * Stream    the target's own; NULL for the CPU, which returns when the result is there. For CUDA
 *           a cudaStream_t: the call enqueues, never waits, and may be captured in a graph
 *
 * On a CUDA device no value is read back, so none is refused: ALEA_OP_CHECK_VALUES is
 * unsupported; an id outside the vocabulary counts as none, and falls as a draft; a sampling
 * parameter outside its domain gives its row token -1 and the verdict ALEA_EINVAL.
 * alea_topk_select gives its set in no order that two runs share.
 */
#define ALEA_OP_DECLARE(type)                                                                      \
    typedef struct type type;                                                                      \
    ALEA_API ALEA_MUST_USE alea_status type##_create(const alea_op_config *config, type **op,      \
                                                     alea_error *error);                           \
    ALEA_API void type##_destroy(type *op)

/* ---- choosing positions ------------------------------------------------------------------ */

ALEA_OP_DECLARE(alea_topk_select);

/**
 * The config's `topk` best positions of each query row's own window.
 *
 * Shape     scores [batch, S, S_kv, groups] float32, any strides; starts, ends [batch, S] int32;
 *           out indices [batch, S, groups, topk] int32; topk <= S_kv <= max_vocab
 * Domain    0 <= starts, ends <= S_kv, where anything beyond is cut to that; ends <= starts is an
 *           empty window. NaN is above every number, -inf is a score like another, +0 equals -0
 * Result    positions in [start, end), none twice, in no promised order; a window of fewer than
 *           topk positions gives all of them, and S_kv fills the rest. Of equal scores at the cut
 *           the smaller positions are taken
 * Exact     one set of positions on every target
 * Errors    as for every run; with ALEA_OP_CHECK_VALUES also a window outside [0, S_kv]
 * Memory    allocates nothing
 * Threads   one run at a time per operator
 */
ALEA_API ALEA_MUST_USE alea_status alea_topk_select_run(alea_topk_select *op, DLTensor *indices,
                                                        const DLTensor *scores,
                                                        const DLTensor *starts,
                                                        const DLTensor *ends, void *stream,
                                                        alea_error *error);

/* ---- masks: what a filter drops becomes -inf, the rest keeps its bits -------------------- */

ALEA_OP_DECLARE(alea_topk_mask);

/**
 * Keep the k largest of each row, with everything equal to the k-th.
 *
 * Shape     logits [rows, vocab] float16, bfloat16 or float32; k [rows] int32; masked like logits;
 *           vocab 0 is allowed and gives nothing
 * Domain    k >= 1; an unchecked k < 1 counts as 1
 * Result    k >= vocab: the row as it is, NaNs and their payloads included. Else kept iff
 *           value >= the k-th largest, where NaN counts as largest and is itself masked; a row
 *           whose k-th is NaN is masked whole. +0 equals -0, each keeps its sign
 * Exact     bit for bit, no tolerance
 * Errors    as for every run; with ALEA_OP_CHECK_VALUES also k < 1
 * Memory    allocates nothing
 * Threads   one run at a time per operator
 */
ALEA_API ALEA_MUST_USE alea_status alea_topk_mask_run(alea_topk_mask *op, DLTensor *masked,
                                                      const DLTensor *logits, const DLTensor *k,
                                                      void *stream, alea_error *error);

ALEA_OP_DECLARE(alea_minp_mask);

/**
 * Drop what is less probable than min_p times the row's best.
 *
 * Shape     logits [rows, vocab] float16, bfloat16 or float32, vocab >= 1; min_p [rows] float32;
 *           masked like logits
 * Domain    0 <= min_p <= 1
 * Result    masked iff value < fl32(max + fl32(ln min_p)). min_p 0 masks nothing, min_p 1 keeps
 *           what equals the maximum. A row with NaN, or whose maximum is -inf, passes whole; so
 *           does one with +inf under min_p 0, while under another only its +inf entries stay
 * Exact     bit for bit, ln by the library's own routine
 * Errors    as for every run; with ALEA_OP_CHECK_VALUES also min_p outside [0, 1]
 * Memory    allocates nothing
 * Threads   one run at a time per operator
 */
ALEA_API ALEA_MUST_USE alea_status alea_minp_mask_run(alea_minp_mask *op, DLTensor *masked,
                                                      const DLTensor *logits, const DLTensor *min_p,
                                                      void *stream, alea_error *error);

ALEA_OP_DECLARE(alea_topp_mask);

/**
 * Keep the most probable tokens of each row until they hold p.
 *
 * Shape     logits [rows, vocab] float16, bfloat16 or float32, vocab >= 1; p [rows] float32;
 *           masked like logits
 * Domain    0 <= p <= 1
 * Result    kept iff the mass of the strictly larger logits is below p of the row's, in integer
 *           masses: equal logits share a fate. p 0 masks the row whole; p 1 keeps a token iff it
 *           and what lies below it still carry mass. A row with NaN, with +inf or with nothing
 *           above -inf passes whole
 * Exact     bit for bit; no order of summation exists to differ about
 * Errors    as for every run; with ALEA_OP_CHECK_VALUES also p outside [0, 1]
 * Memory    allocates nothing
 * Threads   one run at a time per operator
 */
ALEA_API ALEA_MUST_USE alea_status alea_topp_mask_run(alea_topp_mask *op, DLTensor *masked,
                                                      const DLTensor *logits, const DLTensor *p,
                                                      void *stream, alea_error *error);

ALEA_OP_DECLARE(alea_topk_topp_mask);

/**
 * alea_topk_mask, then alea_topp_mask over what it kept.
 *
 * Shape     logits [rows, vocab] float16, bfloat16 or float32, vocab >= 1; k [rows] int32;
 *           p [rows] float32; masked like logits
 * Domain    k >= 1, 0 <= p <= 1
 * Result    the composition: probabilities are those over the top k and what ties with them. With
 *           k >= vocab NaNs are kept and the row passes whole; otherwise they are dropped first.
 *           Where the largest survivor is +inf the top-k mask stands as it is. p 0 masks the row
 *           whole. A kept NaN keeps its payload
 * Exact     bit for bit
 * Errors    as for every run; with ALEA_OP_CHECK_VALUES also k < 1 and p outside [0, 1]
 * Memory    allocates nothing
 * Threads   one run at a time per operator
 */
ALEA_API ALEA_MUST_USE alea_status alea_topk_topp_mask_run(alea_topk_topp_mask *op,
                                                           DLTensor *masked, const DLTensor *logits,
                                                           const DLTensor *k, const DLTensor *p,
                                                           void *stream, alea_error *error);

/* ---- draws ------------------------------------------------------------------------------- */

/*
 * The random stream of all draws: Philox4x32-10, key = seed, counter = (draw j, row word, low and
 * high half of offset), first word of the block, upper 24 bits. The row word is the row's number
 * in the batch where seed and offset are [1]. Where either is [rows] it is 0, so that a row's
 * draw does not depend on its place; a tensor row_words [rows] int32, where not NULL, replaces
 * both rules.
 */

ALEA_OP_DECLARE(alea_sample_probs);

/**
 * Draw one token per row, with probability proportional to its weight.
 *
 * Shape     probs [rows, vocab] float32, vocab >= 1; seed, offset [1] or [rows] int64; row_words
 *           [rows] int32 or NULL; out tokens [rows] int32
 * Domain    weights finite, not negative, with a positive total; they need not sum to 1
 * Result    the token whose running integer mass first exceeds u of the total, in id order. A
 *           token of weight 0 is never drawn. A row outside the domain: some id in [0, vocab),
 *           the same on every target
 * Exact     the same token on every target; draw j = 0 of the stream above
 * Errors    as for every run; with ALEA_OP_CHECK_VALUES also a row outside the domain
 * Memory    allocates nothing
 * Threads   one run at a time per operator
 */
ALEA_API ALEA_MUST_USE alea_status alea_sample_probs_run(
    alea_sample_probs *op, DLTensor *tokens, const DLTensor *probs, const DLTensor *seed,
    const DLTensor *offset, const DLTensor *row_words, void *stream, alea_error *error);

ALEA_OP_DECLARE(alea_chain_sample);

/**
 * Verify each row's chain of draft tokens and draw the token that follows the accepted prefix.
 *
 * Shape     draft_probs [rows, N, vocab], target_probs [rows, N + 1, vocab] float32, N >= 1;
 *           draft_tokens [rows, N] int32; seed, offset [1] or [rows] int64; row_words [rows] int32
 *           or NULL; out tokens [rows, N + 1] int32, accepted [rows] int32
 * Domain    probability rows finite, not negative, normalized; draft tokens in [0, vocab), which
 *           is always checked
 * Result    draft i is accepted iff u_i * draft < target in float32, strictly, at its token, and
 *           only after all before it. tokens: the accepted prefix, the drawn token, then -1;
 *           accepted: the prefix length. The token follows max(0, target - draft) of the rejected
 *           position in float32, or target row N when all were accepted; where that residual has
 *           no mass it follows the target row
 * Exact     prefix and token the same on every target; draws j = 0..N-1 test, draw N places
 * Errors    as for every run; a draft token outside [0, vocab); with ALEA_OP_CHECK_VALUES also a
 *           row with a negative or infinite entry, with NaN or without a positive one
 * Memory    allocates nothing
 * Threads   one run at a time per operator
 */
ALEA_API ALEA_MUST_USE alea_status alea_chain_sample_run(
    alea_chain_sample *op, DLTensor *tokens, DLTensor *accepted, const DLTensor *draft_probs,
    const DLTensor *draft_tokens, const DLTensor *target_probs, const DLTensor *seed,
    const DLTensor *offset, const DLTensor *row_words, void *stream, alea_error *error);

/* ---- from raw logits --------------------------------------------------------------------- */

ALEA_OP_DECLARE(alea_logprobs);

/** Tensors of alea_logprobs_run; an output that is NULL is not computed. */
typedef struct alea_logprobs_tensors {
    uint32_t struct_bytes;  /**< sizeof(alea_logprobs_tensors) */
    DLTensor *lse;          /**< [rows] float64: ln of the sum of exp */
    DLTensor *logprobs;     /**< [rows] float32: of `tokens` */
    DLTensor *ranks;        /**< [rows] int32: of `tokens`, 1 is best, ties share */
    DLTensor *alternatives; /**< [rows, K] int32, K = config topk; or [rows, G] with `given` */
    DLTensor *alternative_logprobs; /**< float32, shaped like alternatives */
    DLTensor *entropy;              /**< [rows] float32, nats */
    DLTensor *verdicts;             /**< [rows] int32: ALEA_OK or ALEA_EROW */
    const DLTensor *logits;         /**< [rows, vocab] float16, bfloat16 or float32 */
    const DLTensor *tokens; /**< [rows] int32 in [0, vocab), -1: none; NULL: none anywhere */
    const DLTensor *given;  /**< [rows, G] int32, G <= 128, in [0, vocab), -1: an empty slot;
                                 NULL: the K best are the alternatives */
} alea_logprobs_tensors;

/**
 * Log-probabilities of raw rows, over the whole vocabulary at temperature 1.
 *
 * Shape     as alea_logprobs_tensors says; vocab >= 1
 * Domain    -inf is a logit like another; a row with NaN, with +inf or with nothing finite is a
 *           failure of the model, and gets its verdict
 * Result    alternatives by logprob downward, then id upward, missing ones -1 with NaN; given
 *           ids in the caller's order. A row without token: logprob NaN, rank 0. A failed row:
 *           lse, logprobs and entropy NaN, rank 0, ids -1, verdict ALEA_EROW; other rows are not
 *           touched by it
 * Exact     docs/numerics.md, to the bit
 * Errors    as for every run; an id outside [-1, vocab); `logprobs` or `ranks` without `tokens`
 * Memory    allocates nothing
 * Threads   one run at a time per operator
 */
ALEA_API ALEA_MUST_USE alea_status alea_logprobs_run(alea_logprobs *op,
                                                     const alea_logprobs_tensors *tensors,
                                                     void *stream, alea_error *error);

ALEA_OP_DECLARE(alea_sample_logits);

/** Tensors of alea_sample_logits_run. Outputs may be NULL, and parameters where it says so. */
typedef struct alea_sample_logits_tensors {
    uint32_t struct_bytes;          /**< sizeof(alea_sample_logits_tensors) */
    DLTensor *tokens;               /**< [rows] int32 */
    DLTensor *logprobs;             /**< [rows] float32: raw, over the whole row at temperature 1 */
    DLTensor *sampled_logprobs;     /**< [rows] float32: over what was kept, at the temperature */
    DLTensor *kept_mass;            /**< [rows] float32: share of the row that the filters kept */
    DLTensor *verdicts;             /**< [rows] int32: ALEA_OK or ALEA_EROW */
    DLTensor *lse;                  /**< [rows] float64: the raw row's, as alea_logprobs gives it */
    DLTensor *ranks;                /**< [rows] int32: the token's in the raw row */
    DLTensor *alternatives;         /**< [rows, K] int32, K = config topk: the raw row's best */
    DLTensor *alternative_logprobs; /**< [rows, K] float32 */
    const DLTensor *logits;         /**< [rows, vocab] float16, bfloat16 or float32 */
    const DLTensor *temperature;    /**< [rows] float32; 0: greedy; NULL: 1 */
    const DLTensor *top_k;          /**< [rows] int32; 0: all; NULL: all */
    const DLTensor *top_p;          /**< [rows] float32 in (0, 1]; NULL: 1 */
    const DLTensor *min_p;          /**< [rows] float32 in [0, 1]; NULL: 0 */
    const DLTensor *seed;           /**< [1] or [rows] int64 */
    const DLTensor *offset;         /**< [1] or [rows] int64 */
    const DLTensor *row_words;      /**< [rows] int32; NULL: the stream's own rule */
} alea_sample_logits_tensors;

/**
 * Choose one token per raw row, and report on it: temperature, top-k, top-p, min-p, draw, in that
 * order; then what alea_logprobs would say of the row and that token, in the same pass.
 *
 * Shape     as alea_sample_logits_tensors says; vocab >= 1
 * Domain    temperature 0, or one for which log2(e) / T is finite in float32 and not 0; other
 *           ranges as above. These are always checked: a bad value would draw from no distribution
 * Result    the token and what was reported of it. At temperature 0 the largest logit, the
 *           smaller id among equals, whatever the filters say. A failed row (NaN, +inf, nothing
 *           finite): token and alternatives -1, numbers NaN, rank 0, verdict ALEA_EROW
 * Exact     docs/numerics.md, to the bit: a function of the row, its parameters and its place in
 *           the random stream
 * Errors    as for every run; a parameter outside its domain, named with its row
 * Memory    allocates nothing
 * Threads   one run at a time per operator
 */
ALEA_API ALEA_MUST_USE alea_status alea_sample_logits_run(alea_sample_logits *op,
                                                          const alea_sample_logits_tensors *tensors,
                                                          void *stream, alea_error *error);

ALEA_OP_DECLARE(alea_chain_logits);

/** Tensors of alea_chain_logits_run. */
typedef struct alea_chain_logits_tensors {
    uint32_t struct_bytes;         /**< sizeof(alea_chain_logits_tensors) */
    DLTensor *tokens;              /**< [rows, N + 1] int32 */
    DLTensor *accepted;            /**< [rows] int32 */
    DLTensor *verdicts;            /**< [rows] int32: ALEA_OK or ALEA_EROW; NULL: not wanted */
    const DLTensor *draft_logits;  /**< [rows, N, vocab], dtype of target_logits; NULL: each draft
                                        was certain of its token */
    const DLTensor *draft_tokens;  /**< [rows, N] int32 in [0, vocab) */
    const DLTensor *target_logits; /**< [rows, N + 1, vocab] float16, bfloat16 or float32 */
    const DLTensor *temperature;   /**< [rows] float32, of both; 0: greedy; NULL: 1 */
    const DLTensor *seed;          /**< [1] or [rows] int64 */
    const DLTensor *offset;        /**< [1] or [rows] int64 */
    const DLTensor *row_words;     /**< [rows] int32; NULL: the stream's own rule */
} alea_chain_logits_tensors;

/**
 * alea_chain_sample for raw logits: no row of probabilities exists before or after.
 *
 * Shape     as alea_chain_logits_tensors says; N >= 1, vocab >= 1
 * Domain    temperature 0, or one for which log2(e) / T is finite in float32 and not 0, and draft
 *           tokens in [0, vocab): both are always checked. A row that is read and holds NaN, +inf
 *           or nothing finite is a failure of its model
 * Result    what alea_chain_sample gives for the float32 probabilities of docs/numerics.md. At
 *           temperature 0 a draft stands iff it is the target's largest logit, the smaller id among
 *           equals, which is also the token that follows; draft logits are not read. Position i
 *           reads target row i and, where it tests, draft row i. The first failed row ends its
 *           chain: verdict ALEA_EROW, accepted what stood before it, tokens -1 from there on
 * Exact     prefix and token the same on every target; draws j = 0..N-1 test, draw N places
 * Errors    as for every run; a temperature or a draft token outside its domain, named with its row
 * Memory    allocates nothing; on a CUDA device one chain of up to 64 drafts has room in the
 *           workspace, or ALEA_ELIMIT
 * Threads   one run at a time per operator
 */
ALEA_API ALEA_MUST_USE alea_status alea_chain_logits_run(alea_chain_logits *op,
                                                         const alea_chain_logits_tensors *tensors,
                                                         void *stream, alea_error *error);

/* ---- targets: who computes --------------------------------------------------------------- */

enum alea_target_flag {
    ALEA_TARGET_BY_NAME = 1u << 0 /**< never chosen by NULL: only a config that names it gets it */
};

/**
 * A set of kernels that a program brings. Calls that reach it have passed every check of shape,
 * dtype, stride, alignment and overlap; values it checks itself where ALEA_OP_CHECK_VALUES is set.
 */
typedef struct alea_op_target {
    uint32_t struct_bytes; /**< sizeof(alea_op_target) */
    uint32_t flags;        /**< alea_target_flag bits */
    const char *name;      /**< 1..31 bytes of [a-z0-9_-], not "builtin" */
    int32_t device_type;   /**< DLDeviceType whose tensors it reads and writes */
    void *user;            /**< handed to create */

    /** Make what runs will need. ALEA_EUNSUPPORTED with a reason declines this kind or config. */
    alea_status (*create)(void *user, alea_op_kind kind, const alea_op_config *config, void **state,
                          alea_error *error);
    void (*destroy)(void *state);
    /** `tensors` stand in the order of the run function's arguments or the struct's members, NULL
     *  where none was given. ALEA_EUNSUPPORTED with a reason declines the call, unwritten: then
     *  the next target that serves the device is asked. */
    alea_status (*run)(void *state, const DLTensor *const *tensors, int32_t n_tensors, void *stream,
                       alea_error *error);
} alea_op_target;

/**
 * Make a target known by its name. Without a name in the config, registered targets come before
 * the library's own, the latest first.
 *
 * Shape     —
 * Domain    a name not yet taken; at most 8 targets in a process
 * Result    the target serves operators created from now on
 * Exact     what it computes is its own affair
 * Errors    ALEA_EINVAL (a member, named), ALEA_ELIMIT: nothing registered
 * Memory    the struct is copied; its name and user must live as long as the process
 * Threads   reentrant
 */
ALEA_API ALEA_MUST_USE alea_status alea_target_register(const alea_op_target *target,
                                                        alea_error *error);

/** Name of target `index`, in the order in which they are asked; NULL beyond the last. */
ALEA_API const char *alea_target_name(int32_t index);

#ifdef __cplusplus
}
#endif
#endif
