/*
 * Chat templates behind a C interface. C++ because the engine is; nothing of it is visible outside
 * and no exception leaves. Parsing and rendering run on a large stack, a thread's of their own
 * where the caller's is small, under a guard (jinja_guard.h): both bound whatever a template does.
 */
#include "text/chat_template.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "jinja/lexer.h"
#include "jinja/parser.h"
#include "jinja/runtime.h"
#include "jinja/value.h"
#include "text/jinja_guard.h"

extern "C" {
#include "base/utf8.h"
#include "json/json_read.h"
}

struct alea_chat_template {
    std::string source, bos, eos;
    jinja::program program;
};

namespace {

constexpr size_t stack_bytes = ALEA_CHAT_STACK_BYTES;
constexpr size_t stack_reserve_bytes = size_t{8} << 20; // for what cannot throw: destructors
constexpr size_t json_bytes_max = size_t{1} << 30;

// Roles that a template may build control tokens of; a stranger chooses among them, no more.
const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};

// A failure that is the input's.
struct bad_input {
    alea_error error;
};

struct free_text {
    void operator()(alea_chat_text *text) const {
        std::free(text);
    }
};

struct task {
    virtual void run() = 0;
    virtual ~task() = default;
    alea_jinja::guard guard{};
    alea_error error{};
    alea_status status = ALEA_OK;
    const std::string *source = nullptr;
    alea_status refusal = ALEA_EINVAL; // what an exception of the engine means
};

std::string text_of(alea_bytes bytes) {
    return bytes.length ? std::string(reinterpret_cast<const char *>(bytes.data), bytes.length)
                        : std::string();
}

bool is_utf8(const std::string &text) {
    return alea__utf8_valid({reinterpret_cast<const uint8_t *>(text.data()), text.size()});
}

alea_status fail(task &work, alea_status status, const char *what) {
    const std::string &source = *work.source;
    const size_t at = std::min(work.guard.at, source.size());
    const auto begin = source.begin(), end = begin + static_cast<std::ptrdiff_t>(at);
    const size_t line = 1 + static_cast<size_t>(std::count(begin, end, '\n'));
    const size_t newline = at ? source.rfind('\n', at - 1) : std::string::npos;
    const size_t column = newline == std::string::npos ? at + 1 : at - newline;
    return alea_error_set(&work.error, status, "chat template, line %zu, column %zu%s%s: %s", line,
                          column, work.guard.construct ? ", in " : "",
                          work.guard.construct ? work.guard.construct : "", what);
}

const char *limit_text(alea_jinja::limit limit) {
    switch (limit) {
    case alea_jinja::limit::steps: return "it takes more steps than one rendering may";
    case alea_jinja::limit::memory: return "it takes more memory than one rendering may";
    case alea_jinja::limit::output: return "its text is longer than one rendering may be";
    case alea_jinja::limit::time: return "it takes more time than one rendering may";
    case alea_jinja::limit::depth: return "it is nested too deeply";
    case alea_jinja::limit::none: break;
    }
    return "a limit was exceeded";
}

alea_status attempt(task &work) {
    try {
        work.run();
        if (work.guard.passed == alea_jinja::limit::none) return ALEA_OK;
    } catch (const bad_input &bad) {
        work.error = bad.error;
        return bad.error.status;
    } catch (const alea_jinja::limit_passed &) {
    } catch (const std::bad_alloc &) {
        return alea_error_set(&work.error, ALEA_ENOMEM, "chat template: out of memory");
    } catch (const std::exception &problem) {
        work.guard.suspended = true;
        return work.guard.passed == alea_jinja::limit::none
                   ? fail(work, work.refusal, problem.what())
                   : fail(work, ALEA_ELIMIT, limit_text(work.guard.passed));
    }
    work.guard.suspended = true;
    return fail(work, ALEA_ELIMIT, limit_text(work.guard.passed));
}

void *on_thread(void *argument) {
    task &work = *static_cast<task *>(argument);
    const char here = 0;
    work.guard.stack_low = reinterpret_cast<uintptr_t>(&here) - (stack_bytes - stack_reserve_bytes);
    work.guard.time_ns_end += alea_jinja::used_ns();
    alea_jinja::current = &work.guard;
    work.status = attempt(work);
    work.guard.suspended = true;
    alea_jinja::sweep();
    alea_jinja::current = nullptr;
    return nullptr;
}

// Whether this thread, not the process's first, has a stack that is as large as one of its own.
bool has_room() {
    const char here = 0;
    pthread_attr_t attributes;
    void *low = nullptr;
    size_t bytes = 0;
    if (gettid() == getpid() || pthread_getattr_np(pthread_self(), &attributes) != 0) return false;
    const bool is_known = pthread_attr_getstack(&attributes, &low, &bytes) == 0;
    pthread_attr_destroy(&attributes);
    return is_known &&
           reinterpret_cast<uintptr_t>(&here) - reinterpret_cast<uintptr_t>(low) >= stack_bytes;
}

alea_status perform(task &work, alea_error *error) {
    if (has_room()) {
        on_thread(&work);
        if (work.status < 0 && error) *error = work.error;
        return work.status;
    }
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0)
        return alea_error_set(error, ALEA_ENOMEM, "chat template: out of memory");
    const bool is_started = pthread_attr_setstacksize(&attributes, stack_bytes) == 0 &&
                            pthread_create(&thread, &attributes, on_thread, &work) == 0;
    pthread_attr_destroy(&attributes);
    if (!is_started)
        return alea_error_set(error, ALEA_ENOMEM, "chat template: no thread to render it on");
    pthread_join(thread, nullptr);
    if (work.status < 0 && error) *error = work.error;
    return work.status;
}

uint64_t or_default(uint64_t given, uint64_t fallback) {
    return given ? given : fallback;
}

void arm(alea_jinja::guard &guard, const alea_chat_limits &limits, size_t input_bytes) {
    const uint64_t bytes =
        or_default(limits.memory_bytes_max, (uint64_t{64} << 20) + 32 * uint64_t{input_bytes});
    const uint64_t usual_ms = std::min<uint64_t>(500 + uint64_t{input_bytes} / 1024, 5000);
    const int64_t ms =
        limits.time_ms_max > 0 ? limits.time_ms_max : static_cast<int64_t>(usual_ms);
    guard.steps_left = or_default(limits.steps_max, 50000000);
    guard.bytes_left = static_cast<int64_t>(std::min<uint64_t>(bytes, INT64_MAX));
    guard.time_ns_end = ms * 1000000; // from the start on, which is not yet
}

/* ---- input ---- */

jinja::value marked_string(alea_bytes bytes) {
    auto result = jinja::mk_val<jinja::value_string>(text_of(bytes));
    result->mark_input();
    return result;
}

void demand(alea_status status, const alea_error &error) {
    if (status < 0) throw bad_input{error};
}

jinja::value value_of(const alea_json_value *json, const char *name) {
    alea_error error{};
    switch (alea__json_kind(json)) {
    case ALEA_JSON_NULL: return jinja::mk_val<jinja::value_none>();
    case ALEA_JSON_BOOL: {
        bool truth = false;
        demand(alea__json_get_bool(json, name, &truth, &error), error);
        return jinja::mk_val<jinja::value_bool>(truth);
    }
    case ALEA_JSON_INTEGER: {
        int64_t number = 0;
        demand(alea__json_get_int(json, name, INT64_MIN, INT64_MAX, &number, &error), error);
        return jinja::mk_val<jinja::value_int>(number);
    }
    case ALEA_JSON_REAL: {
        double number = 0.0;
        demand(alea__json_get_double(json, name, -HUGE_VAL, HUGE_VAL, &number, &error), error);
        return jinja::mk_val<jinja::value_float>(number);
    }
    case ALEA_JSON_STRING: {
        alea_bytes text{};
        demand(alea__json_get_string(json, name, &text, &error), error);
        return marked_string(text);
    }
    case ALEA_JSON_ARRAY: {
        auto array = jinja::mk_val<jinja::value_array>();
        for (alea_json_walk walk = alea__json_walk(json); alea__json_next(&walk);)
            array->push_back(value_of(walk.value, name));
        return array;
    }
    case ALEA_JSON_OBJECT: break;
    }
    auto object = jinja::mk_val<jinja::value_object>();
    for (alea_json_walk walk = alea__json_walk(json); alea__json_next(&walk);)
        object->jinja::value_object_t::insert(marked_string(walk.key), value_of(walk.value, name));
    return object;
}

class document {
  public:
    document(alea_bytes text, const char *name, alea_json_kind kind) {
        alea_error error{};
        const alea_status status = alea__json_parse(text, json_bytes_max, &parsed, &error);
        if (status < 0) {
            alea_error named{};
            alea_error_set(&named, status, "%s: %s", name, error.message);
            throw bad_input{named};
        }
        if (alea__json_kind(root()) == kind) return;
        alea_error wrong{};
        alea_error_set(&wrong, ALEA_EFORMAT, "%s must be %s", name,
                       kind == ALEA_JSON_ARRAY ? "an array" : "an object");
        alea__json_free(parsed);
        throw bad_input{wrong};
    }
    ~document() {
        alea__json_free(parsed);
    }
    document(const document &) = delete;
    document &operator=(const document &) = delete;

    const alea_json_value *root() const {
        return alea__json_root(parsed);
    }

  private:
    alea_json_document *parsed = nullptr;
};

jinja::value array_of(alea_bytes text, const char *name) {
    if (!text.data) return jinja::mk_val<jinja::value_none>();
    const document json(text, name, ALEA_JSON_ARRAY);
    return value_of(json.root(), name);
}

// The messages, with roles of the fixed set as the template's own words.
jinja::value messages_of(alea_bytes text) {
    const document json(text, "messages", ALEA_JSON_ARRAY);
    jinja::value messages = value_of(json.root(), "messages");
    for (const jinja::value &message : messages->as_array()) {
        if (!jinja::is_val<jinja::value_object>(message)) {
            alea_error wrong{};
            alea_error_set(&wrong, ALEA_EFORMAT, "messages must hold objects alone");
            throw bad_input{wrong};
        }
        jinja::value none = jinja::mk_val<jinja::value_none>();
        const std::string key = "role";
        const jinja::value role = message->at(key, none);
        if (!jinja::is_val<jinja::value_string>(role)) continue;
        const std::string word = role->as_string().str();
        for (const char *known : roles)
            if (word == known) role->val_str = jinja::string(word);
    }
    return messages;
}

void set_variables(jinja::context &context, alea_bytes text) {
    if (!text.data) return;
    const document json(text, "chat_template_kwargs", ALEA_JSON_OBJECT);
    for (alea_json_walk walk = alea__json_walk(json.root()); alea__json_next(&walk);)
        context.set_val(text_of(walk.key), value_of(walk.value, "chat_template_kwargs"));
}

/* ---- output ---- */

alea_chat_text *text_from(const std::vector<jinja::string_part> &parts) {
    size_t n = 0, bytes = 0;
    for (const auto &part : parts) {
        n += !part.val.empty();
        bytes += part.val.size();
    }
    const size_t head = sizeof(alea_chat_text) + n * sizeof(alea_chat_span);
    void *const block = std::malloc(head + bytes);
    if (!block) throw std::bad_alloc();
    auto *const text = static_cast<alea_chat_text *>(block);
    auto *const spans = reinterpret_cast<alea_chat_span *>(text + 1);
    uint8_t *to = static_cast<uint8_t *>(block) + head;
    *text = {spans, n, bytes};
    size_t i = 0;
    for (const auto &part : parts) {
        if (part.val.empty()) continue;
        std::memcpy(to, part.val.data(), part.val.size());
        spans[i++] = {{to, part.val.size()}, part.is_input};
        to += part.val.size();
    }
    return text;
}

/* ---- work ---- */

struct parsing final : task {
    alea_bytes bytes{}, bos{}, eos{};
    std::string normal; // line ends as "\n", so that places count lines as people do
    std::unique_ptr<alea_chat_template> result;

    void run() override {
        auto made = std::make_unique<alea_chat_template>();
        normal.reserve(bytes.length);
        for (size_t i = 0; i < bytes.length; i++) {
            const char c = static_cast<char>(bytes.data[i]);
            if (c != '\r')
                normal += c;
            else if (i + 1 == bytes.length || bytes.data[i + 1] != '\n')
                normal += '\n';
        }
        if (!is_utf8(normal)) throw std::runtime_error("it is not UTF-8");
        made->source = normal;
        made->bos = text_of(bos);
        made->eos = text_of(eos);
        jinja::lexer lexer;
        made->program = jinja::parse_from_tokens(lexer.tokenize(normal));
        result = std::move(made);
    }
};

struct rendering final : task {
    const alea_chat_template *chat = nullptr;
    const alea_chat_input *input = nullptr;
    uint64_t output_bytes_max = 0;
    std::unique_ptr<alea_chat_text, free_text> result;

    void run() override {
        jinja::context context;
        context.current_time =
            input->now_s ? static_cast<std::time_t>(input->now_s) : std::time(nullptr);
        context.set_val("bos_token", jinja::mk_val<jinja::value_string>(chat->bos));
        context.set_val("eos_token", jinja::mk_val<jinja::value_string>(chat->eos));
        set_variables(context, input->variables);
        context.set_val("messages", messages_of(input->messages));
        context.set_val("tools", array_of(input->tools, "tools"));
        context.set_val("documents", array_of(input->documents, "documents"));
        context.set_val("add_generation_prompt",
                        jinja::mk_val<jinja::value_bool>(input->add_generation_prompt));
        jinja::runtime runtime(context);
        const jinja::value results = runtime.execute(chat->program);
        const auto parts = jinja::runtime::gather_string_parts(results);
        if (parts->val_str.length() > output_bytes_max) alea_jinja::pass(alea_jinja::limit::output);
        const std::string whole = parts->val_str.str();
        if (!is_utf8(whole))
            throw std::runtime_error("it cuts a character, so its text is not UTF-8");
        alea_jinja::step(0);
        result.reset(text_from(parts->val_str.parts));
    }
};

} // namespace

alea_status alea__chat_template_create(alea_bytes source, alea_bytes bos, alea_bytes eos,
                                       alea_chat_template **chat, alea_error *error) {
    if (source.length > ALEA_CHAT_SOURCE_BYTES_MAX)
        return alea_error_set(error, ALEA_ELIMIT, "chat template: %zu bytes, the limit is %u",
                              source.length, ALEA_CHAT_SOURCE_BYTES_MAX);
    parsing work;
    work.bytes = source;
    work.bos = bos;
    work.eos = eos;
    work.refusal = ALEA_EFORMAT;
    work.source = &work.normal;
    const alea_chat_limits limits{};
    arm(work.guard, limits, 8 * source.length);
    const alea_status status = perform(work, error);
    if (status == ALEA_OK) *chat = work.result.release();
    return status;
}

void alea__chat_template_destroy(alea_chat_template *chat) {
    delete chat;
}

alea_status alea__chat_template_render(const alea_chat_template *chat, const alea_chat_input *input,
                                       const alea_chat_limits *limits, alea_chat_text **text,
                                       alea_error *error) {
    const alea_chat_limits defaults{};
    const alea_chat_limits &bounds = limits ? *limits : defaults;
    const size_t bytes = input->messages.length + input->tools.length + input->documents.length +
                         input->variables.length;
    rendering work;
    work.chat = chat;
    work.input = input;
    work.source = &chat->source;
    work.output_bytes_max =
        or_default(bounds.output_bytes_max, (uint64_t{16} << 20) + 4 * uint64_t{bytes});
    arm(work.guard, bounds, bytes);
    const alea_status status = perform(work, error);
    if (status == ALEA_OK) *text = work.result.release();
    return status;
}

void alea__chat_text_free(alea_chat_text *text) {
    std::free(text);
}
