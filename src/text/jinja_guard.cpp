/* C++ because what it bounds is. Replaces the program's operator new; see jinja_guard.h. */
#include "text/jinja_guard.h"

#include <malloc.h>
#include <time.h>

#include <cfloat>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>

#include "jinja/value.h"

namespace alea_jinja {

thread_local guard *current = nullptr;

namespace {

constexpr uint64_t steps_per_look = 1024; // at the clock
constexpr unsigned burials_nested = 64;

struct graveyard {
    std::vector<value> dead;
    unsigned depth = 0;
};
thread_local graveyard graves;
thread_local tracked *newest = nullptr;

} // namespace

int64_t used_ns() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

void pass(limit which) {
    if (current && current->passed == limit::none) current->passed = which;
    throw limit_passed();
}

void step(size_t n) {
    guard *const own = current;
    if (!own || own->suspended) return;
    if (own->passed != limit::none) throw limit_passed();
    if (own->steps_left < n) pass(limit::steps);
    const uint64_t before = own->steps_left;
    own->steps_left -= n;
    if (before / steps_per_look != own->steps_left / steps_per_look && used_ns() > own->time_ns_end)
        pass(limit::time);
}

void check_stack() {
    const char here = 0;
    if (current && !current->suspended && reinterpret_cast<uintptr_t>(&here) < current->stack_low)
        pass(limit::depth);
}

frame::frame(size_t position) : outer(0), exceptions(std::uncaught_exceptions()) {
    guard *const own = current;
    if (!own) return;
    outer = own->at;
    own->at = position;
    step();
    check_stack();
    if (own->depth >= depth_max) pass(limit::depth);
    own->depth++;
}

frame::~frame() {
    if (!current) return;
    current->depth--;
    if (std::uncaught_exceptions() == exceptions) current->at = outer;
}

void failed(const std::string &construct) {
    static const char *const names[] = {
        "If",
        "For",
        "Set",
        "Macro",
        "FilterStatement",
        "CallStatement",
        "MemberExpression",
        "CallExpression",
        "BinaryExpression",
        "FilterExpression",
        "TestExpression",
        "UnaryExpression",
        "SelectExpression",
        "Ternary",
        "Identifier",
        "ObjectLiteral",
        "ArrayLiteral",
        "TupleLiteral",
        "KeywordArgumentExpression",
    };
    if (!current || current->construct) return;
    current->construct = "an expression";
    for (const char *name : names)
        if (construct == name) current->construct = name;
}

void bury(std::vector<value> &items, std::vector<std::pair<value, value>> &members) noexcept {
    if (items.empty() && members.empty()) return;
    if (graves.depth < burials_nested) {
        graves.depth++;
        items.clear();
        members.clear();
        graves.depth--;
        while (graves.depth == 0 && !graves.dead.empty()) {
            const value last = std::move(graves.dead.back());
            graves.dead.pop_back();
        }
        return;
    }
    guard *const own = current;
    const bool suspended = own && own->suspended;
    if (own) own->suspended = true;
    try {
        graves.dead.reserve(graves.dead.size() + items.size() + 2 * members.size());
        for (value &item : items)
            graves.dead.push_back(std::move(item));
        for (auto &member : members) {
            graves.dead.push_back(std::move(member.first));
            graves.dead.push_back(std::move(member.second));
        }
    } catch (const std::bad_alloc &) {
        // Out of memory: the stack has to do, as it would without this function.
    }
    if (own) own->suspended = suspended;
    items.clear();
    members.clear();
}

tracked::tracked() noexcept : before(nullptr), after(newest) {
    if (newest) newest->before = this;
    newest = this;
}

tracked::tracked(const tracked &) noexcept : tracked() {}

tracked::~tracked() {
    (before ? before->after : newest) = after;
    if (after) after->before = before;
}

void sweep() {
    std::vector<value> held;
    std::vector<jinja::func_handler> functions;
    // Nothing is freed while the list is walked; then no value holds another.
    for (tracked *one = newest; one; one = one->after) {
        auto &own = *static_cast<jinja::value_t *>(one);
        for (value &item : own.val_arr)
            held.push_back(std::move(item));
        own.val_arr.clear();
        for (auto &member : own.val_obj) {
            held.push_back(std::move(member.first));
            held.push_back(std::move(member.second));
        }
        own.val_obj.clear();
        functions.push_back(std::move(own.val_func));
        if (auto *object = dynamic_cast<jinja::value_object_t *>(&own)) {
            // Keys are const in the map and free nothing: val_obj held them too.
            for (auto &member : object->unordered)
                held.push_back(std::move(member.second));
            object->unordered.clear();
        }
        if (auto *function = dynamic_cast<jinja::value_func_t *>(&own))
            held.push_back(std::move(function->arg0));
    }
}

size_t find(const std::string &text, const std::string &what, size_t from) {
    if (from > text.size()) return std::string::npos;
    const char *const start = text.data() + from;
    const char *const end = text.data() + text.size();
    const auto found = static_cast<const char *>(
        memmem(start, static_cast<size_t>(end - start), what.data(), what.size()));
    step(1 + static_cast<size_t>((found ? found : end) - start) / 64);
    return found ? static_cast<size_t>(found - text.data()) : std::string::npos;
}

int64_t integer(char op, int64_t a, int64_t b) {
    int64_t result = 0;
    bool overflow = false;
    if (op == '+')
        overflow = __builtin_add_overflow(a, b, &result);
    else if (op == '-')
        overflow = __builtin_sub_overflow(a, b, &result);
    else if (op == '*')
        overflow = __builtin_mul_overflow(a, b, &result);
    else if (b == 0)
        throw std::runtime_error("modulo by zero");
    else if (b != -1) {
        result = a % b;
        if (result != 0 && (result < 0) != (b < 0)) result += b;
    }
    if (overflow) throw std::runtime_error("an integer does not fit into 64 bits");
    return result;
}

double modulo(double a, double b) {
    if (b == 0.0) throw std::runtime_error("modulo by zero");
    const double rest = std::fmod(a, b);
    return rest != 0.0 && (rest < 0.0) != (b < 0.0) ? rest + b : rest;
}

double quotient(double a, double b) {
    if (b == 0.0) throw std::runtime_error("division by zero");
    return a / b;
}

bool is_integer_range(double number) {
    return number >= -9223372036854775808.0 && number < 9223372036854775808.0;
}

int64_t truncated(double number) {
    if (!is_integer_range(number)) throw std::runtime_error("an integer does not fit into 64 bits");
    return static_cast<int64_t>(number);
}

int64_t add_saturating(int64_t a, int64_t b) {
    int64_t sum;
    if (!__builtin_add_overflow(a, b, &sum)) return sum;
    return b < 0 ? INT64_MIN : INT64_MAX;
}

std::string float_text(double number) {
    if (std::isnan(number)) return "nan";
    if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
    char digits[64];
    const auto end =
        std::to_chars(digits, digits + sizeof digits, number, std::chars_format::scientific);
    const std::string text(digits, end.ptr);
    const size_t e = text.find('e');
    const int exponent = std::atoi(text.c_str() + e + 1);
    if (exponent < -4 || exponent >= 16) return text;
    char fixed[64];
    const auto fixed_end =
        std::to_chars(fixed, fixed + sizeof fixed, number, std::chars_format::fixed);
    std::string result(fixed, fixed_end.ptr);
    if (result.find('.') == std::string::npos) result += ".0";
    return result;
}

namespace {

void *allocate(size_t bytes) {
    guard *const own = current;
    if (own && !own->suspended) {
        step();
        check_stack();
        if (bytes > PTRDIFF_MAX || own->bytes_left < static_cast<int64_t>(bytes))
            pass(limit::memory);
    }
    void *const memory = std::malloc(bytes ? bytes : 1);
    if (!memory) throw std::bad_alloc();
    if (own) own->bytes_left -= static_cast<int64_t>(malloc_usable_size(memory));
    return memory;
}

[[maybe_unused]] void *allocate_or_null(size_t bytes) noexcept {
    try {
        return allocate(bytes);
    } catch (const std::bad_alloc &) {
        return nullptr;
    } catch (const limit_passed &) {
        return nullptr;
    }
}

[[maybe_unused]] void release(void *memory) noexcept {
    if (memory && current) current->bytes_left += static_cast<int64_t>(malloc_usable_size(memory));
    std::free(memory);
}

} // namespace
} // namespace alea_jinja

/* The thread sanitizer has operators of its own and bears none beside them: there alone memory is
 * not bounded. */
#if defined(__SANITIZE_THREAD__)
#define SANITIZER_HAS_OPERATORS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZER_HAS_OPERATORS 1
#endif
#endif

#ifndef SANITIZER_HAS_OPERATORS
void *operator new(size_t bytes) {
    return alea_jinja::allocate(bytes);
}

void *operator new[](size_t bytes) {
    return alea_jinja::allocate(bytes);
}

void *operator new(size_t bytes, const std::nothrow_t &) noexcept {
    return alea_jinja::allocate_or_null(bytes);
}

void *operator new[](size_t bytes, const std::nothrow_t &) noexcept {
    return alea_jinja::allocate_or_null(bytes);
}

void operator delete(void *memory) noexcept {
    alea_jinja::release(memory);
}

void operator delete[](void *memory) noexcept {
    alea_jinja::release(memory);
}

void operator delete(void *memory, size_t) noexcept {
    alea_jinja::release(memory);
}

void operator delete[](void *memory, size_t) noexcept {
    alea_jinja::release(memory);
}

void operator delete(void *memory, const std::nothrow_t &) noexcept {
    alea_jinja::release(memory);
}

void operator delete[](void *memory, const std::nothrow_t &) noexcept {
    alea_jinja::release(memory);
}
#endif
