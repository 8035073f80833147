"""The edits that Alea makes to llama.cpp's template engine, common/jinja, before building it.

They bound it, close the ways in which text of a message lost its mark as input, and make numbers,
slices and sorting those of Python. The functions that they call are src/text/jinja_*.cpp.

The form is that of edit.py: text expected, how often, what replaces it.
"""

DIR = "common/jinja/"

FILES = ("lexer.cpp", "lexer.h", "parser.cpp", "parser.h", "runtime.cpp", "runtime.h",
         "string.cpp", "string.h", "utils.h", "value.cpp", "value.h")
EXTRA = ("common/unicode.cpp", "common/unicode.h", "LICENSE", "AUTHORS")
TEMPLATES = "models/templates/"  # which the tests render


EDITS = [
    # Where it is, and that it may go on.
    (DIR + "utils.h", "#include <cstring>\n", 1,
     "#include <cstring>\n\n#include \"text/jinja_guard.h\"\n"),
    (DIR + "utils.h",
     """    std::ostringstream oss;
    oss << tag << ": " << msg << "\\n";
    oss << peak_source(source, pos);
    return oss.str();
""", 1,
     """    (void) tag;
    (void) source;
    alea_jinja::at(pos);
    return msg;
"""),
    (DIR + "runtime.cpp",
     ("value statement::execute(context & ctx) const {\n",
             "value identifier::execute_impl(context & ctx) const {\n"), 1,
     """value statement::execute(context & ctx) const {
    alea_jinja::frame frame(pos);
    try {
        return execute_impl(ctx);
    } catch (const continue_statement::signal &) {
        throw;
    } catch (const break_statement::signal &) {
        throw;
    } catch (const rethrown_exception &) {
        throw;
    } catch (const alea_jinja::limit_passed &) {
        alea_jinja::failed(type());
        throw;
    } catch (const std::exception & e) {
        alea_jinja::failed(type());
        throw rethrown_exception(e.what());
    }
}

value identifier::execute_impl(context & ctx) const {
"""),
    (DIR + "parser.cpp",
     """        return tokens[current++];
""", 1,
     """        alea_jinja::check_stack();
        alea_jinja::at(tokens[current].pos);
        return tokens[current++];
"""),
    (DIR + "parser.cpp",
     """        const auto & t = peek();
        if (t.t != type) {
""", 1,
     """        const auto & t = peek();
        alea_jinja::check_stack();
        if (t.t != type) {
"""),
    (DIR + "parser.cpp",
     """            static const token end_token{token::eof, "", 0};
            return end_token;
""", 1,
     """            thread_local token end_token;
            end_token = {token::eof, "", source.size()};
            return end_token;
"""),
    (DIR + "runtime.h", "    size_t pos; // position in source, for debugging\n", 1,
     "    size_t pos = 0; // position in source, for debugging\n    size_t height = 1;\n"),
    (DIR + "parser.cpp",
     """        auto ptr = std::make_unique<T>(std::forward<Args>(args)...);
        assert(start_pos < tokens.size());
        ptr->pos = tokens[start_pos].pos;
""", 1,
     """        size_t height = 0;
        ((height = std::max(height, height_of(args))), ...);
        if (height >= alea_jinja::height_max) alea_jinja::pass(alea_jinja::limit::depth);
        auto ptr = std::make_unique<T>(std::forward<Args>(args)...);
        ptr->pos = start_pos < tokens.size() ? tokens[start_pos].pos : 0;
        ptr->height = height + 1;
"""),
    (DIR + "parser.cpp", "class parser {\n", 1,
     """template<typename T> static size_t height_of(const T &) { return 0; }
template<typename T> static size_t height_of(const std::unique_ptr<T> & ptr) {
    return ptr ? ptr->height : 0;
}
static size_t height_of(const statements & list) {
    size_t height = 0;
    for (const auto & item : list) height = std::max(height, height_of(item));
    return height;
}
static size_t height_of(const std::vector<std::pair<statement_ptr, statement_ptr>> & list) {
    size_t height = 0;
    for (const auto & item : list) {
        height = std::max({height, height_of(item.first), height_of(item.second)});
    }
    return height;
}

class parser {
"""),
    (DIR + "runtime.h", "    assert(dynamic_cast<T *>(ptr.get()) != nullptr);\n", 1,
     "    if (!dynamic_cast<T *>(ptr.get())) throw std::runtime_error(\"unexpected \" + ptr->type());\n"),
    (DIR + "runtime.h",
     "    assert(dynamic_cast<T *>(ptr.get()) != nullptr || dynamic_cast<U *>(ptr.get()) != nullptr);\n",
     1,
     """    if (!dynamic_cast<T *>(ptr.get()) && !dynamic_cast<U *>(ptr.get())) {
        throw std::runtime_error("unexpected " + ptr->type());
    }
"""),

    # Loops and recursions without an allocation.
    (DIR + "string.cpp", "            parts.erase(parts.begin() + i);\n", 2,
     "            alea_jinja::step(1 + parts.size());\n            parts.erase(parts.begin() + i);\n"),
    (DIR + "runtime.cpp",
     "            res->val_str.append(str);\n        }\n        return res;\n", 1,
     "            alea_jinja::step();\n            res->val_str.append(str);\n        }\n        return res;\n"),
    (DIR + "value.h", "struct value_t {\n", 1, "struct value_t : alea_jinja::tracked {\n"),
    (DIR + "value.h", "    virtual ~value_t() = default;\n", 1,
     "    virtual ~value_t() { alea_jinja::bury(val_arr, val_obj); }\n"),
    (DIR + "value.h",
     """    virtual bool is_hashable() const override {
        if (std::all_of(val_arr.begin()""", 1,
     """    virtual bool is_hashable() const override {
        alea_jinja::check_stack();
        if (std::all_of(val_arr.begin()"""),
    (DIR + "value.h", "                if (*(pair.first) == *key) {\n", 1,
     "                alea_jinja::step();\n                if (*(pair.first) == *key) {\n"),
    (DIR + "value.h",
     "        return typeid(*this) == typeid(other) && val_str.str() == other.val_str.str();\n", 1,
     """        if (typeid(*this) != typeid(other) || val_str.length() != other.val_str.length()) return false;
        alea_jinja::step(1 + val_str.length() / 64);
        return val_str.str() == other.val_str.str();
"""),
    (DIR + "runtime.h", "        auto items = cast_val<value_array>(val)->as_array();\n", 1,
     "        alea_jinja::check_stack();\n        const auto & items = cast_val<value_array>(val)->as_array();\n"),

    # Copies of whole tables of functions, and of scopes, for each name looked up.
    (DIR + "runtime.cpp", "    auto builtins = global_builtins();\n", 1,
     "    const auto & builtins = global_builtins();\n"),
    (DIR + "runtime.cpp", "    auto builtins = input->get_builtins();\n", 1,
     "    const auto & builtins = input->get_builtins();\n"),
    (DIR + "runtime.cpp", "        context loop_scope(scope);\n\n        value current = items[i];\n", 1,
     "        value current = items[i];\n"),
    (DIR + "runtime.cpp", "            scope_update_fn(loop_scope);\n", 1,
     "            context loop_scope(scope);\n            scope_update_fn(loop_scope);\n"),
    (DIR + "runtime.h",
     ("    context(const context & parent) : context() {\n",
             "    value get_val(const std::string & name) {\n"), 1,
     """    context(const context & parent) :
        src(parent.src), current_time(parent.current_time), is_get_stats(parent.is_get_stats),
        env(std::make_shared<value_object_t>(*parent.env)) {}

    value get_val(const std::string & name) {
"""),

    # What a stranger wrote stays marked: in doubt the whole of a result that holds some of it.
    (DIR + "string.h", "    bool all_parts_are_input() const;\n", 1,
     "    bool all_parts_are_input() const;\n    bool any_part_is_input() const;\n"),
    (DIR + "string.h",
     "    // mark this string as input if other has ALL parts as input\n", 1,
     "    // mark this string as input if other has ANY part as input\n"),
    (DIR + "string.cpp",
     """// mark this string as input if other has ALL parts as input
void string::mark_input_based_on(const string & other) {
    if (other.all_parts_are_input()) {
""", 1,
     """bool string::any_part_is_input() const {
    for (const auto & part : parts) {
        if (part.is_input) {
            return true;
        }
    }
    return false;
}

// mark this string as input if other has ANY part as input
void string::mark_input_based_on(const string & other) {
    if (other.any_part_is_input()) {
"""),
    (DIR + "value.cpp", "            const bool fmt_is_input = fmt.all_parts_are_input();\n", 1,
     "            const bool fmt_is_input = fmt.any_part_is_input();\n"),
    (DIR + "value.h", "struct context; // forward declaration\n", 1,
     """struct context; // forward declaration

string python_text(const value_t & val); // str(): marks kept
string python_json(const value & val, int indent, const std::string & item_sep,
                   const std::string & key_sep, bool ensure_ascii, bool sort_keys);
"""),
    (DIR + "value.h",
     ("    virtual const std::vector<value> & as_array() const override { return val_arr; }\n"
             "    virtual string as_string() const override {\n",
             "    virtual bool as_bool() const override {\n        return !val_arr.empty();\n"), 1,
     """    virtual const std::vector<value> & as_array() const override { return val_arr; }
    virtual string as_string() const override { return python_text(*this); }
    virtual bool as_bool() const override {
        return !val_arr.empty();
"""),
    (DIR + "value.h",
     ("    virtual const std::vector<std::pair<value, value>> & as_ordered_object() const override "
             "{ return val_obj; }\n    virtual string as_string() const override {\n",
             "    virtual bool as_bool() const override {\n        return !unordered.empty();\n"), 1,
     """    virtual const std::vector<std::pair<value, value>> & as_ordered_object() const override { return val_obj; }
    virtual string as_string() const override { return python_text(*this); }
    virtual bool as_bool() const override {
        return !unordered.empty();
"""),
    (DIR + "value.cpp",
     ("    if (val_sort->as_bool()) { // undefined == false\n",
             "static value & get_attribute("), 1,
     """    const bool ensure_ascii = val_ascii->as_bool(); // undefined == false
    auto separators = (is_val<value_array>(val_separators) ? val_separators : mk_val<value_array>())->as_array();
    std::string item_sep = separators.size() > 0 ? separators[0]->as_string().str() : (indent < 0 ? ", " : ",");
    std::string key_sep = separators.size() > 1 ? separators[1]->as_string().str() : ": ";
    return mk_val<value_string>(python_json(args.get_pos(0), indent, item_sep, key_sep, ensure_ascii,
                                            val_sort->as_bool()));
}

static value & get_attribute("""),

    # The tables of src/text/jinja_builtins.cpp lie over these.
    (DIR + "value.cpp", "const func_builtins & value_string_t::get_builtins() const {\n", 1,
     "const func_builtins & stock_string_builtins() {\n"),
    (DIR + "value.cpp", "const func_builtins & value_array_t::get_builtins() const {\n", 1,
     "const func_builtins & stock_array_builtins() {\n"),
    (DIR + "value.cpp",
     ("        {\"join\", [](const func_args & args) -> value {\n",
             "        {\"string\", [](const func_args & args) -> value {\n"
             "            args.ensure_vals<value_array>();\n"), 1,
     """        {"string", [](const func_args & args) -> value {
            args.ensure_vals<value_array>();
"""),
    (DIR + "value.cpp",
     ("        {\"split\", [](const func_args & args) -> value {\n",
             "        {\"format\", [](const func_args & args) -> value {\n"), 1,
     "        {\"format\", [](const func_args & args) -> value {\n"),
    (DIR + "value.cpp",
     ("        {\"slice\", [](const func_args & args) -> value {\n"
             "            args.ensure_count(1, 4);\n"
             "            args.ensure_vals<value_string, ",
             "        {\"safe\", [](const func_args & args) -> value {\n"), 1,
     "        {\"safe\", [](const func_args & args) -> value {\n"),
    (DIR + "value.cpp", "                    haystack->as_string().str().find(needle->as_string().str())"
     " != std::string::npos);\n", 1,
     "                    alea_jinja::find(haystack->as_string().str(), needle->as_string().str())"
     " != std::string::npos);\n"),
    (DIR + "runtime.cpp", "            arr_size = object->as_string().length();\n", 1,
     "            arr_size = string_characters(object->as_string().str());\n"),
    (DIR + "runtime.cpp",
     """                auto str = object->as_string().str();
                if (index >= 0 && index < static_cast<int64_t>(str.size())) {
                    val = mk_val<value_string>(std::string(1, str[index]));
                }
""", 1, "                val = string_character(object->as_string(), index);\n"),
    (DIR + "runtime.h", "struct if_statement : public statement {\n", 1,
     """int64_t string_characters(const std::string & text);
value string_character(const string & text, int64_t index);

struct if_statement : public statement {
"""),

    # Joining with ~ takes anything; a sorted dictionary is a list of pairs.
    (DIR + "runtime.cpp",
     "    auto workaround_concat_null_with_str = [&](value & res) -> bool {\n", 1,
     """    if (op.value == "~") {
        auto joined = mk_val<value_string>();
        for (const value & side : {left_val, right_val}) {
            if (!side->is_none() && !side->is_undefined()) joined->val_str.append(side->as_string());
        }
        return joined;
    }

    auto workaround_concat_null_with_str = [&](value & res) -> bool {
"""),
    (DIR + "value.cpp",
     "            auto result = mk_val<value_object>(val_input); // copy\n", 1,
     """            auto members = val_input->as_ordered_object(); // copy
            auto result = mk_val<value_array>();
"""),
    (DIR + "value.cpp",
     """            std::sort(result->val_obj.begin(), result->val_obj.end(), [&](const auto & a, const auto & b) {
""", 1,
     "            std::stable_sort(members.begin(), members.end(), [&](const auto & a, const auto & b) {\n"),
    (DIR + "value.cpp",
     """                    return value_compare(a.first, b.first, reverse ? value_compare_op::gt : value_compare_op::lt);
                }
            });
""", 1,
     """                    return value_compare(a.first, b.first, reverse ? value_compare_op::gt : value_compare_op::lt);
                }
            });
            for (const auto & member : members) result->push_back(mk_val<value_tuple>(member));
"""),

    (DIR + "runtime.cpp", "    // String concatenation with ~ and +\n", 1,
     """    if (is_val<value_string>(left_val) && is_val<value_string>(right_val)) {
        if (op.value == "<")  return mk_val<value_bool>(left_val->val_str.str() <  right_val->val_str.str());
        if (op.value == ">")  return mk_val<value_bool>(left_val->val_str.str() >  right_val->val_str.str());
        if (op.value == "<=") return mk_val<value_bool>(left_val->val_str.str() <= right_val->val_str.str());
        if (op.value == ">=") return mk_val<value_bool>(left_val->val_str.str() >= right_val->val_str.str());
    }

    // String concatenation with ~ and +
"""),

    # Numbers as Python's; nothing undefined.
    (DIR + "runtime.cpp",
     "        if (op.value == \"+\" || op.value == \"-\" || op.value == \"*\") {\n", 1,
     """        if (is_val<value_int>(left_val) && is_val<value_int>(right_val) && op.value != "/") {
            const int64_t x = left_val->as_int();
            const int64_t y = right_val->as_int();
            if (op.value == "<")  return mk_val<value_bool>(x < y);
            if (op.value == ">")  return mk_val<value_bool>(x > y);
            if (op.value == "<=") return mk_val<value_bool>(x <= y);
            if (op.value == ">=") return mk_val<value_bool>(x >= y);
            if (op.value == "+" || op.value == "-" || op.value == "*" || op.value == "%") {
                return mk_val<value_int>(alea_jinja::integer(op.value[0], x, y));
            }
        }
        if (op.value == "+" || op.value == "-" || op.value == "*") {
"""),
    (DIR + "runtime.cpp", "            return mk_val<value_float>(a / b);\n", 1,
     "            return mk_val<value_float>(alea_jinja::quotient(a, b));\n"),
    (DIR + "runtime.cpp", "            double rem = std::fmod(a, b);\n", 1,
     "            double rem = alea_jinja::modulo(a, b);\n"),
    (DIR + "runtime.cpp", "            return mk_val<value_int>(-operand_val->as_int());\n", 1,
     "            return mk_val<value_int>(alea_jinja::integer('-', 0, operand_val->as_int()));\n"),
    (DIR + "value.h",
     """        if (static_cast<int64_t>(val_flt) != v) {
            val_flt = v < 0 ? -INFINITY : INFINITY;
        }
""", 1, ""),
    (DIR + "value.h", "        val_int = std::isfinite(v) ? static_cast<int64_t>(v) : 0;\n", 1,
     "        val_int = alea_jinja::is_integer_range(v) ? static_cast<int64_t>(v) : 0;\n"),
    (DIR + "value.cpp",
     "            int64_t val = static_cast<int64_t>(args.get_pos(0)->as_float());\n", 1,
     "            int64_t val = alea_jinja::truncated(args.get_pos(0)->as_float());\n"),
    (DIR + "value.cpp", "            return mk_val<value_int>(val < 0 ? -val : val);\n", 1,
     "            return mk_val<value_int>(val < 0 ? alea_jinja::integer('-', 0, val) : val);\n"),
    (DIR + "value.cpp",
     "            bool res = args.get_pos(0)->val_int % args.get_pos(1)->val_int == 0;\n", 1,
     "            bool res = alea_jinja::integer('%', args.get_pos(0)->val_int, "
     "args.get_pos(1)->val_int) == 0;\n"),
    (DIR + "value.cpp", "i += step", 3, "i = alea_jinja::add_saturating(i, step)"),
    (DIR + "value.h",
     ("        std::string out = std::to_string(val_flt);\n", "        return out;\n"), 1,
     "        return alea_jinja::float_text(val_flt);\n"),
    # An order that is none (numbers among strings) may not leave the array.
    (DIR + "value.cpp", "            std::sort(", 1, "            std::stable_sort("),

    # Values come from src/json's reader.
    (DIR + "value.cpp",
     "// for converting from JSON to jinja values\n#include \"json.h\"\n", 1, ""),
    (DIR + "value.cpp",
     ("static value from_json(const common_json & j, bool mark_input) {\n",
             "// compare operator for value_t\n"), 1, "// compare operator for value_t\n"),
    (DIR + "value.cpp",
     ("template<>\nvoid global_from_json(", "// recursively convert value to JSON string\n"), 1,
     "// recursively convert value to JSON string\n"),
    (DIR + "value.cpp",
     "            throw raised_exception(\"Jinja Exception: \" + msg);\n", 1,
     "            throw raised_exception(msg);\n"),
    (DIR + "value.cpp",
     "            if (std::strftime(buf, sizeof(buf), format.c_str(), "
     "std::localtime(&args.ctx.current_time))) {\n", 1,
     """            struct tm local;
            if (localtime_r(&args.ctx.current_time, &local) &&
                std::strftime(buf, sizeof(buf), format.c_str(), &local)) {
"""),
]
