/*
 * Chat templates: messages in, the text that the model was trained on out, with every byte marked
 * as the template's or as a stranger's. Real Jinja; the engine is C++ and stays behind this header.
 *
 * The one thing to know: only text that is not `from_input` may become control tokens
 * (text/chat_tokens.h does that), so nobody can forge a role or an end by writing its name.
 */
#ifndef ALEA_TEXT_CHAT_TEMPLATE_H
#define ALEA_TEXT_CHAT_TEMPLATE_H

#include <stdbool.h>

#include "alea/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ALEA_CHAT_SOURCE_BYTES_MAX (1u << 20)
#define ALEA_CHAT_STACK_BYTES ((size_t)32 << 20)

typedef struct alea_chat_template alea_chat_template;

/* What one rendering may use. Zero in a member means its default. */
typedef struct alea_chat_limits {
    uint64_t steps_max;        /* nodes executed and allocations made; 50,000,000 */
    uint64_t memory_bytes_max; /* live memory; 64 MiB + 32 x the input */
    uint64_t output_bytes_max; /* 16 MiB + 4 x the input */
    int32_t time_ms_max;       /* of the processor; 500, and 1 for each KiB of input up to 5,000 */
} alea_chat_limits;

/* JSON texts, valid and without duplicate keys; {NULL, 0} where not given. */
typedef struct alea_chat_input {
    alea_bytes messages;  /* array of objects; required */
    alea_bytes tools;     /* array */
    alea_bytes documents; /* array */
    alea_bytes variables; /* object (chat_template_kwargs); its names win over bos and eos alone */
    int64_t now_s;        /* for strftime_now: seconds since 1970; 0: the clock */
    bool add_generation_prompt;
} alea_chat_input;

typedef struct alea_chat_span {
    alea_bytes text; /* never empty */
    bool from_input; /* a message, a tool or a variable wrote some of it */
} alea_chat_span;

/* A rendering: neighbouring spans differ in from_input, and joined they are the text. */
typedef struct alea_chat_text {
    const alea_chat_span *spans;
    size_t n_spans;
    size_t bytes; /* of all spans */
} alea_chat_text;

/*
 * Parse a template.
 *
 * Shape     source of at most ALEA_CHAT_SOURCE_BYTES_MAX bytes, UTF-8
 * Domain    bos, eos: what bos_token and eos_token stand for; empty: none
 * Result    *chat, which borrows nothing
 * Exact     —
 * Errors    ALEA_EFORMAT: "chat template, line 3, column 7: …"; ALEA_ELIMIT (length, nesting),
 *           ALEA_ENOMEM: *chat untouched
 * Memory    the heap, about 50 times the source
 * Threads   reentrant
 */
alea_status alea__chat_template_create(alea_bytes source, alea_bytes bos, alea_bytes eos,
                                       alea_chat_template **chat, alea_error *error) ALEA_MUST_USE;

/* NULL is allowed. */
void alea__chat_template_destroy(alea_chat_template *chat);

/*
 * Render. Roles from the fixed set (system, developer, user, assistant, tool, function) are the
 * template's; every other string of the input, keys of objects too, is marked.
 *
 * Shape     —
 * Domain    limits NULL: the defaults
 * Result    *text, to be freed by alea__chat_text_free
 * Exact     a function of template and input, but for the clock and the limit on time
 * Errors    ALEA_EINVAL: the template refused the input (raise_exception) or cannot take it;
 *           ALEA_EFORMAT: an input is not the JSON that it must be; ALEA_ELIMIT: a limit, named
 *           with line and construct; ALEA_ENOMEM: *text untouched
 * Memory    the heap, within limits->memory_bytes_max
 * Threads   reentrant, also on one template; runs on a thread of its own, which it waits for,
 *           unless this one (not the first) has ALEA_CHAT_STACK_BYTES of its stack left
 */
alea_status alea__chat_template_render(const alea_chat_template *chat, const alea_chat_input *input,
                                       const alea_chat_limits *limits, alea_chat_text **text,
                                       alea_error *error) ALEA_MUST_USE;

/* NULL is allowed. */
void alea__chat_text_free(alea_chat_text *text);

#ifdef __cplusplus
}
#endif
#endif
