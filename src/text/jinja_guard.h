/*
 * What bounds the template engine, called from within it (tools/llama/edit_jinja.py puts the calls
 * there): steps, memory, output, time, stack, and the place where it is. C++ and private.
 *
 * A guard belongs to one thread. Every operator new of a guarded thread counts as a step, is
 * charged to its memory and looks at its stack, so that no loop or recursion of the engine is
 * without a bound. A limit that was passed stays passed: code that swallows the exception meets it
 * again.
 */
#ifndef ALEA_TEXT_JINJA_GUARD_H
#define ALEA_TEXT_JINJA_GUARD_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace jinja {
struct value_t;
}

namespace alea_jinja {

constexpr size_t height_max = 400;       // of a parsed template's tree
constexpr unsigned depth_max = 1000;     // of nodes being executed
constexpr unsigned data_depth_max = 256; // of values turned into text

enum class limit { none, steps, memory, output, time, depth };

// Not a std::exception: the engine catches those to add a place to them.
struct limit_passed {};

struct guard {
    uint64_t steps_left;
    int64_t bytes_left;
    int64_t time_ns_end; // of used_ns: it never waits
    uintptr_t stack_low;
    limit passed = limit::none;
    size_t at = 0;                   // offset in the source of the node at work
    const char *construct = nullptr; // its kind, once it failed
    unsigned depth = 0;
    bool suspended = false;
};

int64_t used_ns(); // this thread's processor time

// The guard of this thread; nullptr: none.
extern thread_local guard *current;

[[noreturn]] void pass(limit which);
void step(size_t n = 1);
void check_stack();

inline void at(size_t position) {
    if (current) current->at = position;
}

// Around the execution of one node. On an exception `at` stays, so the innermost node is named.
class frame {
  public:
    explicit frame(size_t position);
    ~frame();

  private:
    size_t outer;
    int exceptions;
};

// Keeps the construct of the innermost failing node.
void failed(const std::string &construct);

using value = std::shared_ptr<jinja::value_t>;

// Every value of a thread is in one list, so that sweep finds those that hold each other.
struct tracked {
    tracked() noexcept;
    tracked(const tracked &) noexcept;
    tracked &operator=(const tracked &) = delete;
    ~tracked();

    tracked *before, *after;
};

// Frees every value of this thread that is left: references in circles. At the end of a rendering.
void sweep();

// Empties a dying value without recursing once per level of what it holds.
void bury(std::vector<value> &items, std::vector<std::pair<value, value>> &members) noexcept;

// As std::string::find, in time linear in both.
size_t find(const std::string &text, const std::string &what, size_t from = 0);

int64_t integer(char op, int64_t a, int64_t b); // + - * %, as Python; throws on overflow
double modulo(double a, double b);
double quotient(double a, double b);
bool is_integer_range(double number); // its whole part fits
int64_t truncated(double number);     // throws where it does not
int64_t add_saturating(int64_t a, int64_t b);
std::string float_text(double number); // as Python's repr

} // namespace alea_jinja

#endif
