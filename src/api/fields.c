/* The table of request fields. Its order is that of docs/api.md. */
#include "api/fields.h"

#include <string.h>

#include "kernel/row.h"

#define C ALEA_API_COMPLETIONS
#define H ALEA_API_CHAT
#define T ALEA_API_TOKENIZE
#define D ALEA_API_DETOKENIZE
#define S ALEA_API_SCORE

#define HONOURED .treatment = ALEA_FIELD_HONOURED
#define REFUSED .treatment = ALEA_FIELD_REFUSED
#define NO_EFFECT .treatment = ALEA_FIELD_NO_EFFECT

#define BOOL .type = ALEA_TYPE_BOOL
#define INT(low_, high_) .type = ALEA_TYPE_INT, .min = (low_), .max = (high_)
#define NUMBER(low_, high_) .type = ALEA_TYPE_NUMBER, .low = (low_), .high = (high_)
#define STRING .type = ALEA_TYPE_STRING
#define WORD(words_) .type = ALEA_TYPE_STRING, .words = (words_)
#define IN(member) .offset = offsetof(alea_api_values, member)
#define AT(endpoints) .at = (endpoints)
/* A row; a macro, so that it is laid out like a call. */
#define FIELD(name_, ...)                                                                          \
    { .name = (name_), __VA_ARGS__ }
#define NOWHERE .offset = SIZE_MAX

#define FLOAT_MAX 3.4028234663852886e38

static const char *const modes[] = {"raw", "processed", "all", NULL};
static const char *const sides[] = {"left", "right", NULL};
static const char *const efforts[] = {"none", "minimal", "low", "medium",
                                      "high", "xhigh",   "max", NULL};
static const char grammar_note[] = "constrained generation is not offered";
static const char deployment_note[] = "belongs to a deployment that Alea does not have";
static const char hosted_note[] = "a field of OpenAI's own service";

const alea_api_field alea__api_fields[] = {

    /* what to continue */
    FIELD("model", STRING, AT(C | H | T | D | S), HONOURED, IN(model),
          .note = "absent, null or empty: the served model; any other name: 404"),
    FIELD("prompt", .type = ALEA_TYPE_PROMPT, AT(C), HONOURED, .required = true, IN(prompt),
          .note =
              "a string, a list of strings, a list of token ids or a list of such lists; ids are "
              "taken as they stand; names of control tokens in a text become those tokens; nothing "
              "may be empty; at most 1024 prompts"),
    FIELD("messages", .type = ALEA_TYPE_OBJECTS, AT(H), HONOURED, .required = true, IN(messages),
          .note =
              "rendered by the model's chat template; what a message says never becomes a control "
              "token; content is a string, null, or a list of parts of type `text`"),
    FIELD("prompt", .type = ALEA_TYPE_TEXT, AT(S), HONOURED, .required = true, IN(prompt),
          .note = "what all continuations follow, or the document; ids are taken as they stand, a "
                  "text is plain text"),
    FIELD("continuations", .type = ALEA_TYPE_PROMPT, AT(S), HONOURED, IN(continuations),
          .note = "what is scored: texts behind a text, ids behind ids; none may be empty; at most "
                  "1024; without them the prompt is a document, all of which is scored"),
    FIELD("window", INT(1, INT32_MAX), AT(S), HONOURED, IN(window),
          .note = "of a document: tokens that are computed together, at most the context, which is "
                  "the default"),
    FIELD("stride", INT(1, INT32_MAX), AT(S), HONOURED, IN(stride),
          .note = "of a document: how far a window begins behind the one before it; at most the "
                  "window, default half of it; at most 1024 windows"),
    FIELD("add_special_tokens", BOOL, AT(C | S), HONOURED, .fallback = "true",
          IN(add_special_tokens),
          .note = "put the model's first token before a text; never before token ids"),
    FIELD("add_special_tokens", BOOL, AT(H), HONOURED, .fallback = "false", IN(add_special_tokens),
          .note =
              "put the model's first token before the rendered text, whose template mostly writes "
              "it itself"),
    FIELD("add_generation_prompt", BOOL, AT(H | T), HONOURED, .fallback = "true",
          IN(add_generation_prompt),
          .note = "end the prompt with the beginning of the assistant's turn"),
    FIELD("continue_final_message", BOOL, AT(H | T), HONOURED, .fallback = "false",
          IN(continue_final_message),
          .note = "end the prompt behind the last message's content; not together with "
                  "add_generation_prompt, which must then be sent as false"),
    FIELD("tools", .type = ALEA_TYPE_OBJECTS, AT(H | T), HONOURED, IN(tools),
          .note = "handed to the template; not empty; the answer is text, so tool_choice must be "
                  "`none`"),
    FIELD("tool_choice", .type = ALEA_TYPE_ANY, AT(H), HONOURED, .fallback = "\"none\"",
          IN(tool_choice),
          .note =
              "`none`; with tools the default is `auto`, which is refused like every other choice: "
              "no parser of tool calls is offered"),
    FIELD("documents", .type = ALEA_TYPE_OBJECTS, AT(H | T), HONOURED, IN(documents),
          .note = "handed to the template"),
    FIELD("chat_template", STRING, AT(H | T), HONOURED, IN(chat_template),
          .note = "only where the server was started with `--trust-request-chat-template`"),
    FIELD("chat_template_kwargs", .type = ALEA_TYPE_OBJECT, AT(H | T), HONOURED,
          IN(chat_template_kwargs), .note = "variables of the template"),
    FIELD("reasoning_effort", WORD(efforts), AT(H), HONOURED, IN(reasoning_effort),
          .note = "a variable of the template"),
    FIELD("truncate_prompt_tokens", INT(-1, INT64_MAX), AT(C | H), HONOURED,
          IN(truncate_prompt_tokens),
          .note =
              "keep so many tokens of a prompt, at most the context less max_tokens; -1: as many "
              "as that; 0: 400"),
    FIELD("truncation_side", WORD(sides), AT(C | H), HONOURED, .fallback = "\"left\"",
          IN(truncation_side), .note = "which side loses: `left` keeps the last tokens"),

    /* how long */
    FIELD("max_tokens", INT(0, INT64_MAX), AT(C), HONOURED, .fallback = "16", IN(max_tokens),
          .note = "cut to the room in the context; 0 only with echo"),
    FIELD("max_tokens", INT(1, INT64_MAX), AT(H), HONOURED, IN(max_tokens),
          .note = "null: the room in the context; older name of max_completion_tokens, which wins"),
    FIELD("max_completion_tokens", INT(1, INT64_MAX), AT(H), HONOURED, IN(max_completion_tokens),
          .note = "cut to the room in the context"),
    FIELD("min_tokens", INT(0, INT64_MAX), AT(C | H), HONOURED, .fallback = "0", IN(min_tokens),
          .note =
              "before that, end tokens and stop ids are not drawn and stop strings do not stop; at "
              "most max_tokens, after its cut"),
    FIELD("ignore_eos", BOOL, AT(C | H), HONOURED, .fallback = "false", IN(ignore_eos),
          .note = "end tokens are tokens like others"),
    FIELD("stop", .type = ALEA_TYPE_STRINGS, AT(C | H), .max = ALEA_STOPS_MAX, HONOURED, IN(stop),
          .note =
              "1 to 64 strings of 1 to 4096 bytes; null and [] are none; the first to be complete "
              "wins"),
    FIELD("stop_token_ids", .type = ALEA_TYPE_IDS, AT(C | H), .max = 1024, HONOURED,
          IN(stop_token_ids), .note = "at most 1024"),
    FIELD("include_stop_str_in_output", BOOL, AT(C | H), HONOURED, .fallback = "false",
          IN(include_stop_str_in_output), .note = "the text ends behind the stop, not before it"),
    FIELD(
        "thinking_token_budget", INT(-1, INT32_MAX / 2), AT(C | H), HONOURED, .fallback = "-1",
        IN(thinking_token_budget),
        .note =
            "tokens before the end of the thinking is forced; forced tokens have no logprob entry; "
            "400 unless the server knows the model's closing tokens"),

    /* how to draw */
    FIELD("n", INT(1, ALEA_CHOICES_MAX), AT(C), HONOURED, .no_null = true, .fallback = "1", IN(n),
          .note = "choices of each prompt; choices come prompt by prompt; 1 at temperature 0"),
    FIELD("n", INT(1, ALEA_CHOICES_MAX), AT(H), HONOURED, .fallback = "1", IN(n),
          .note = "choices; 1 at temperature 0"),
    FIELD("seed", INT(INT64_MIN, INT64_MAX), AT(C | H), HONOURED, IN(seed),
          .note =
              "one seed, one answer, whatever else is served meanwhile; null and -1: a fresh one"),
    FIELD("temperature", NUMBER(0, 2), AT(C | H), HONOURED, .fallback = "1.0", IN(temperature),
          .note = "0 takes the most probable token, and then top_k, top_p and min_p have no say"),
    FIELD("top_p", NUMBER(0, 1), .above = true, AT(C | H), HONOURED, .fallback = "1.0", IN(top_p),
          .note = "after top_k"),
    FIELD("top_k", INT(-1, INT64_MAX), AT(C | H), HONOURED, .fallback = "0", IN(top_k),
          .note = "0 and -1: all"),
    FIELD("min_p", NUMBER(0, 1), AT(C | H), HONOURED, .fallback = "0.0", IN(min_p),
          .note = "share of the most probable token's probability; after top_p"),
    FIELD("presence_penalty", NUMBER(-2, 2), AT(C | H), HONOURED, .fallback = "0.0",
          IN(presence_penalty), .note = "once for a token of the output"),
    FIELD("frequency_penalty", NUMBER(-2, 2), AT(C | H), HONOURED, .fallback = "0.0",
          IN(frequency_penalty), .note = "times its count in the output"),
    FIELD("repetition_penalty", NUMBER(0, FLOAT_MAX), .above = true, AT(C | H), HONOURED,
          .fallback = "1.0", IN(repetition_penalty), .note = "over prompt and output"),
    FIELD("logit_bias", .type = ALEA_TYPE_BIAS, AT(C | H), HONOURED, IN(logit_bias),
          .note = "token ids as strings to numbers, which are clamped to -100..100 and added"),
    FIELD("allowed_token_ids", .type = ALEA_TYPE_IDS, AT(C | H), .min = 1, .max = INT32_MAX,
          HONOURED, IN(allowed_token_ids), .note = "nothing else is drawn; not empty"),
    FIELD("bad_words", .type = ALEA_TYPE_WORDS, AT(C | H), .max = ALEA_BAD_WORDS_MAX, HONOURED,
          IN(bad_words),
          .note =
              "never written, neither with nor without a blank before; at most 128 token sequences "
              "and 1024 tokens in all; a word without tokens: 400"),

    /* what to report */
    FIELD("logprobs", INT(0, ALEA_TOP_MAX), AT(C), HONOURED, IN(logprobs),
          .note = "alternatives of each token; 0: the token's own alone; null: no logprobs"),
    FIELD("logprobs", BOOL, AT(H), HONOURED, .fallback = "false", IN(chat_logprobs),
          .note = "an entry for each token"),
    FIELD("top_logprobs", INT(0, ALEA_TOP_MAX), AT(H), HONOURED, .fallback = "0", IN(top_logprobs),
          .note = "alternatives of each entry; more than 0 needs logprobs"),
    FIELD("logprob_token_ids", .type = ALEA_TYPE_IDS, AT(C | H), .min = 1,
          .max = ALEA_TOKEN_IDS_MAX, HONOURED, IN(logprob_token_ids),
          .note =
              "1 to 128 distinct ids, whose logprobs stand in place of the alternatives, in this "
              "order; needs logprobs, whose number then has no say"),
    FIELD("logprobs_mode", WORD(modes), AT(C | H), HONOURED, .fallback = "\"raw\"",
          IN(logprobs_mode),
          .note =
              "`raw`: of the model's row, before anything is done to it; `processed`: of what was "
              "drawn from, of the chosen token alone, so without alternatives; `all`: raw, with "
              "processed_logprob, kept_mass and entropy beside it"),
    FIELD("echo", BOOL, AT(C), HONOURED, .fallback = "false", IN(echo),
          .note =
              "the prompt's text opens the answer, and with logprobs its tokens open the arrays; "
              "max_tokens may then be 0"),
    FIELD("prompt_logprobs", INT(0, ALEA_TOP_MAX), AT(C | H), HONOURED, IN(prompt_logprobs),
          .note = "score the prompt's tokens, with so many alternatives each; not with stream; "
                  "default: with echo the number of logprobs, else none"),
    FIELD("scored_cache", BOOL, AT(C | H | S), HONOURED, .fallback = "true", IN(scored_cache),
          .note =
              "false: compute every score of a prompt anew; the numbers are the same bit for bit"),
    FIELD("cache_salt", STRING, AT(C | H), HONOURED, IN(cache_salt),
          .note = "kept prefixes serve requests of the same salt alone, or of none; 1 to 128 "
                  "characters, none of `@ / \\` and NUL"),
    FIELD("return_tokens_as_token_ids", BOOL, AT(C | H), HONOURED, .fallback = "false",
          IN(return_tokens_as_token_ids), .note = "tokens are written `token_id:N`"),
    FIELD("return_token_ids", BOOL, AT(C | H), HONOURED, .fallback = "false", IN(return_token_ids),
          .note = "adds token_ids and prompt_token_ids"),
    FIELD("return_prompt_text", BOOL, AT(H), HONOURED, .fallback = "false", IN(return_prompt_text),
          .note = "adds prompt_text: the rendered messages"),
    FIELD("skip_special_tokens", BOOL, AT(C | H), HONOURED, .fallback = "true",
          IN(skip_special_tokens),
          .note = "false: control tokens stand in the text by their names"),
    FIELD("vllm_compat", BOOL, AT(C | H | S), HONOURED, IN(vllm_compat),
          .note = "vLLM's own habits where Alea differs on purpose; default: the server's"),

    /* how to deliver */
    FIELD("stream", BOOL, AT(C | H), HONOURED, .fallback = "false", IN(stream),
          .note = "server-sent events, `[DONE]` at the end"),
    FIELD("stream_options", .type = ALEA_TYPE_OBJECT, AT(C | H), HONOURED, IN(stream_options),
          .note = "include_usage: one more chunk with the usage; continuous_usage_stats: in every "
                  "chunk, with include_usage; not empty without stream: 400"),
    FIELD("stream_interval", INT(1, INT32_MAX), AT(C | H), HONOURED, .fallback = "1",
          IN(stream_interval), .note = "tokens of a chunk; the first and the last do not wait"),
    FIELD("priority", INT(INT32_MIN, INT32_MAX), AT(C | H | S), HONOURED, .fallback = "0",
          IN(priority), .note = "smaller first; the header X-Vllm-Priority wins"),
    FIELD("request_id", STRING, AT(C | H | S), HONOURED, IN(request_id),
          .note = "the answer's id is `cmpl-`, `chatcmpl-` or `score-` and this; at most 256 "
                  "bytes; the header "
                  "X-Request-Id wins"),
    FIELD("response_format", .type = ALEA_TYPE_OBJECT, AT(C | H), HONOURED, IN(response_format),
          .note = "type `text`; the others are refused: constrained generation is not offered"),
    FIELD("modalities", .type = ALEA_TYPE_WORDS, AT(H), .min = 1, .max = 8, HONOURED,
          IN(modalities), .note = "[\"text\"]"),

    /* the token endpoints */
    FIELD("prompt", STRING, AT(T), HONOURED, IN(prompt_text), .note = "or messages"),
    FIELD("messages", .type = ALEA_TYPE_OBJECTS, AT(T), HONOURED, IN(messages),
          .note = "or prompt"),
    FIELD("add_special_tokens", BOOL, AT(T), HONOURED, IN(add_special_tokens),
          .note = "default: true for a prompt, false for messages"),
    FIELD("return_token_strs", BOOL, AT(T), HONOURED, .fallback = "false", IN(return_token_strs),
          .note = "adds token_strs: how each token is shown by itself"),
    FIELD("tokens", .type = ALEA_TYPE_IDS, AT(D), .max = INT32_MAX, HONOURED, .required = true,
          IN(tokens), .note = "the ids to turn into text"),

    /* refused */
    FIELD("echo", BOOL, AT(H), REFUSED, .fallback = "false", NOWHERE,
          .note = "messages are no text to begin an answer with; prompt_logprobs scores them"),
    FIELD("suffix", STRING, AT(C), REFUSED, .fallback = "\"\"", NOWHERE,
          .note = "insertion needs a model made for it"),
    FIELD("prompt_embeds", .type = ALEA_TYPE_ANY, AT(C), REFUSED, NOWHERE,
          .note = "prompts are text or token ids"),
    FIELD("structured_outputs", .type = ALEA_TYPE_OBJECT, AT(C | H), REFUSED, NOWHERE,
          .note = grammar_note),
    FIELD("guided_json", .type = ALEA_TYPE_ANY, AT(C | H), REFUSED, NOWHERE, .note = grammar_note),
    FIELD("guided_regex", .type = ALEA_TYPE_ANY, AT(C | H), REFUSED, NOWHERE, .note = grammar_note),
    FIELD("guided_choice", .type = ALEA_TYPE_ANY, AT(C | H), REFUSED, NOWHERE,
          .note = grammar_note),
    FIELD("guided_grammar", .type = ALEA_TYPE_ANY, AT(C | H), REFUSED, NOWHERE,
          .note = grammar_note),
    FIELD("grammar", .type = ALEA_TYPE_ANY, AT(C | H), REFUSED, NOWHERE, .note = grammar_note),
    FIELD("json_schema", .type = ALEA_TYPE_ANY, AT(C | H), REFUSED, NOWHERE, .note = grammar_note),
    FIELD("use_beam_search", BOOL, AT(C | H), REFUSED, .fallback = "false", NOWHERE,
          .note = "there is no beam search"),
    FIELD("repetition_detection", .type = ALEA_TYPE_OBJECT, AT(C | H), REFUSED, NOWHERE,
          .note = "answers are not cut for repeating themselves"),
    FIELD("functions", .type = ALEA_TYPE_ANY, AT(H), REFUSED, NOWHERE,
          .note = "older name of tools"),
    FIELD("function_call", .type = ALEA_TYPE_ANY, AT(H), REFUSED, NOWHERE,
          .note = "older name of tool_choice"),
    FIELD("audio", .type = ALEA_TYPE_ANY, AT(H), REFUSED, NOWHERE, .note = "answers are text"),
    FIELD("web_search_options", .type = ALEA_TYPE_ANY, AT(H), REFUSED, NOWHERE,
          .note = hosted_note),
    FIELD("watermarking", .type = ALEA_TYPE_ANY, AT(C | H), REFUSED, NOWHERE,
          .note = deployment_note),
    FIELD("vllm_xargs", .type = ALEA_TYPE_ANY, AT(C | H), REFUSED, NOWHERE,
          .note = deployment_note),
    FIELD("kv_transfer_params", .type = ALEA_TYPE_ANY, AT(C | H), REFUSED, NOWHERE,
          .note = deployment_note),
    FIELD("ec_transfer_params", .type = ALEA_TYPE_ANY, AT(C | H), REFUSED, NOWHERE,
          .note = deployment_note),
    FIELD("routed_experts_prompt_start", .type = ALEA_TYPE_ANY, AT(C | H), REFUSED, NOWHERE,
          .note = deployment_note),

    /* accepted without effect */
    FIELD("user", STRING, AT(C | H | S), NO_EFFECT, NOWHERE, .note = "a label of the client's"),
    FIELD("session_id", STRING, AT(C | H), NO_EFFECT, NOWHERE,
          .note = "there is one place to go to"),
    FIELD("length_penalty", NUMBER(-FLOAT_MAX, FLOAT_MAX), AT(C | H), NO_EFFECT, .fallback = "1.0",
          NOWHERE, .note = "of beam search alone"),
    FIELD("spaces_between_special_tokens", BOOL, AT(C | H), NO_EFFECT, .fallback = "true", NOWHERE,
          .note = "no blanks are added between tokens"),
    FIELD("include_reasoning", BOOL, AT(H), NO_EFFECT, .fallback = "true", NOWHERE,
          .note = "no parser parts reasoning from the answer"),
    FIELD("parallel_tool_calls", BOOL, AT(H), NO_EFFECT, NOWHERE, .note = "no tools are called"),
    FIELD("media_io_kwargs", .type = ALEA_TYPE_OBJECT, AT(H), NO_EFFECT, NOWHERE,
          .note = "messages are text"),
    FIELD("mm_processor_kwargs", .type = ALEA_TYPE_OBJECT, AT(H), NO_EFFECT, NOWHERE,
          .note = "messages are text"),
    FIELD("return_token_offsets", BOOL, AT(C | H), NO_EFFECT, NOWHERE,
          .note = "of endpoints that only render"),
    FIELD("return_mm_kwargs", BOOL, AT(C | H), NO_EFFECT, NOWHERE,
          .note = "of endpoints that only render"),
    FIELD("store", BOOL, AT(H), NO_EFFECT, NOWHERE, .note = hosted_note),
    FIELD("metadata", .type = ALEA_TYPE_OBJECT, AT(H), NO_EFFECT, NOWHERE, .note = hosted_note),
    FIELD("service_tier", STRING, AT(H), NO_EFFECT, NOWHERE, .note = hosted_note),
    FIELD("safety_identifier", STRING, AT(H), NO_EFFECT, NOWHERE, .note = hosted_note),
    FIELD("prompt_cache_key", STRING, AT(H), NO_EFFECT, NOWHERE, .note = hosted_note),
    FIELD("verbosity", STRING, AT(H), NO_EFFECT, NOWHERE, .note = hosted_note),
    FIELD("prediction", .type = ALEA_TYPE_ANY, AT(H), NO_EFFECT, NOWHERE, .note = hosted_note),
};

const size_t alea__api_n_fields = sizeof alea__api_fields / sizeof *alea__api_fields;
