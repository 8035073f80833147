/*
 * Functions of the template engine that lie over its own: they keep the marks of what a stranger
 * wrote, count characters instead of bytes, take linear time and print as Python does. C++ because
 * the engine's tables of functions are.
 */
#include <algorithm>
#include <cctype>
#include <stdexcept>

#include "jinja/runtime.h"
#include "jinja/value.h"

namespace jinja {

const func_builtins &stock_string_builtins();
const func_builtins &stock_array_builtins();

namespace {

using std::string_view;

/* A jinja::string as it grows: neighbours with the same mark are one part. */
class marked {
  public:
    void put(string_view bytes, bool is_input) {
        if (bytes.empty()) return;
        auto &parts = text.parts;
        if (parts.empty() || parts.back().is_input != is_input) parts.push_back({is_input, {}});
        parts.back().val.append(bytes);
    }
    void put(const string &other) {
        for (const auto &part : other.parts)
            put(part.val, part.is_input);
    }
    string take() {
        return std::move(text);
    }

  private:
    string text;
};

value make(const std::string &bytes, bool is_input) {
    auto result = mk_val<value_string>(bytes);
    if (is_input) result->mark_input();
    return result;
}

[[noreturn]] void refuse(const std::string &message) {
    throw raised_exception(message);
}

const string &text_of(const func_args &args, size_t index, const char *name) {
    const auto &all = args.get_args();
    if (index >= all.size() || !is_val<value_string>(all[index]))
        refuse(std::string(name) + "() needs a string");
    return all[index]->val_str;
}

bool is_continuation(char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

/* Where each character begins, and the end. */
std::vector<size_t> characters(const std::string &text) {
    std::vector<size_t> starts;
    for (size_t i = 0; i < text.size(); i++)
        if (i == 0 || !is_continuation(text[i])) starts.push_back(i);
    starts.push_back(text.size());
    return starts;
}

bool is_ascii(const std::string &text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return !(c & 0x80); });
}

bool is_space(char c) {
    return std::isspace(static_cast<unsigned char>(c)) != 0;
}

/* The pieces of str.split(separator, most): [begin, end) in the text. */
using pieces = std::vector<std::pair<size_t, size_t>>;

pieces split_at_spaces(const std::string &text, int64_t most) {
    pieces found;
    size_t at = 0;
    for (;;) {
        while (at < text.size() && is_space(text[at]))
            at++;
        if (at == text.size()) return found;
        size_t end = at;
        if (most >= 0 && static_cast<int64_t>(found.size()) == most) {
            found.push_back({at, text.size()});
            return found;
        }
        while (end < text.size() && !is_space(text[end]))
            end++;
        found.push_back({at, end});
        at = end;
    }
}

pieces split_at(const std::string &text, const std::string &separator, int64_t most) {
    if (separator.empty()) refuse("empty separator");
    pieces found;
    size_t at = 0;
    while (most < 0 || static_cast<int64_t>(found.size()) < most) {
        const size_t hit = alea_jinja::find(text, separator, at);
        if (hit == std::string::npos) break;
        found.push_back({at, hit});
        at = hit + separator.size();
    }
    found.push_back({at, text.size()});
    return found;
}

pieces split_back(const std::string &text, const std::string &separator, int64_t most) {
    if (separator.empty()) refuse("empty separator");
    pieces found;
    size_t end = text.size();
    while (most < 0 || static_cast<int64_t>(found.size()) < most) {
        alea_jinja::step();
        const size_t hit = end < separator.size() ? std::string::npos
                                                  : text.rfind(separator, end - separator.size());
        if (hit == std::string::npos) break;
        found.push_back({hit + separator.size(), end});
        end = hit;
    }
    found.push_back({0, end});
    std::reverse(found.begin(), found.end());
    return found;
}

value split(const func_args &args, bool from_back) {
    args.ensure_count(1, 3);
    const string &whole = text_of(args, 0, "split");
    const std::string text = whole.str();
    const value separator = args.get_kwarg_or_pos("sep", 1);
    const value limit = args.get_kwarg_or_pos("maxsplit", 2);
    const int64_t most = limit->is_undefined() ? -1 : limit->as_int();
    pieces found;
    if (separator->is_undefined() || separator->is_none()) {
        if (from_back && most >= 0)
            throw not_implemented_exception("rsplit at spaces with a count");
        found = split_at_spaces(text, most);
    } else if (from_back) {
        found = split_back(text, separator->as_string().str(), most);
    } else {
        found = split_at(text, separator->as_string().str(), most);
    }
    auto result = mk_val<value_array>();
    const bool is_input = whole.any_part_is_input();
    for (const auto &[begin, end] : found)
        result->push_back(make(text.substr(begin, end - begin), is_input));
    return result;
}

value split_lines(const func_args &args) {
    args.ensure_count(1, 1);
    const string &whole = text_of(args, 0, "splitlines");
    const std::string text = whole.str();
    auto result = mk_val<value_array>();
    size_t at = 0;
    while (at < text.size()) {
        const size_t end = std::min(text.find_first_of("\n\r", at), text.size());
        result->push_back(make(text.substr(at, end - at), whole.any_part_is_input()));
        at = end + 1 + (end + 1 < text.size() && text[end] == '\r' && text[end + 1] == '\n');
    }
    return result;
}

value replace(const func_args &args) {
    args.ensure_count(3, 4);
    const string &whole = text_of(args, 0, "replace");
    const std::string text = whole.str(), old = text_of(args, 1, "replace").str(),
                      fresh = text_of(args, 2, "replace").str();
    const value limit = args.get_kwarg_or_pos("count", 3);
    int64_t most = limit->is_undefined() || limit->is_none() ? -1 : limit->as_int();
    const bool is_input = whole.any_part_is_input() || args.get_pos(2)->val_str.any_part_is_input();
    std::string result;
    size_t at = 0;
    if (old.empty()) {
        for (const size_t start : characters(text)) {
            if (start > at) result.append(text, at, start - at);
            at = start;
            if (most-- == 0) break;
            result += fresh;
        }
    } else {
        while (most != 0) {
            const size_t hit = alea_jinja::find(text, old, at);
            if (hit == std::string::npos) break;
            result.append(text, at, hit - at).append(fresh);
            at = hit + old.size();
            most -= most > 0;
        }
    }
    result.append(text, at, std::string::npos);
    return make(result, is_input);
}

value slice_text(const func_args &args) {
    args.ensure_count(4, 4);
    const string &whole = text_of(args, 0, "slice");
    const std::string text = whole.str();
    const auto starts = characters(text);
    const int64_t length = static_cast<int64_t>(starts.size()) - 1;
    const int64_t step = args.get_pos(3)->as_int();
    if (step == 0) refuse("slice step cannot be zero");
    // The bounds as member_expression fills them in: -1 stands for "before the first" going back.
    const auto bound = [&](int64_t at, bool is_stop) {
        if (step < 0 && is_stop && at == -1) return at;
        if (at < 0) at += length;
        return std::clamp<int64_t>(at, step < 0 ? -1 : 0, step < 0 ? length - 1 : length);
    };
    const int64_t start = bound(args.get_pos(1)->as_int(), false);
    const int64_t stop = bound(args.get_pos(2)->as_int(), true);
    std::string result;
    for (int64_t i = start; step > 0 ? i < stop : i > stop;
         i = alea_jinja::add_saturating(i, step)) {
        const size_t at = static_cast<size_t>(i);
        result.append(text, starts[at], starts[at + 1] - starts[at]);
    }
    return make(result, whole.any_part_is_input());
}

value length_of_text(const func_args &args) {
    args.ensure_count(1, 1);
    return mk_val<value_int>(string_characters(text_of(args, 0, "length").str()));
}

value to_int(const func_args &args) {
    const string &whole = text_of(args, 0, "int");
    const value fallback = args.get_kwarg_or_pos("default", 1);
    const value base = args.get_kwarg_or_pos("base", 2);
    const int64_t radix = base->is_undefined() ? 10 : base->as_int();
    if (radix != 0 && (radix < 2 || radix > 36)) refuse("int() base must be 0 or in 2..36");
    try {
        return mk_val<value_int>(std::stoll(whole.str(), nullptr, static_cast<int>(radix)));
    } catch (const std::logic_error &) {
        return mk_val<value_int>(fallback->is_undefined() ? 0 : fallback->as_int());
    }
}

template <bool at_start> value strip_affix(const func_args &args) {
    args.ensure_count(2, 2);
    const string &whole = text_of(args, 0, at_start ? "removeprefix" : "removesuffix");
    const std::string text = whole.str(), affix = text_of(args, 1, "removeprefix").str();
    if (affix.size() > text.size()) return args.get_pos(0);
    const size_t rest = text.size() - affix.size();
    if (text.compare(at_start ? 0 : rest, affix.size(), affix) != 0) return args.get_pos(0);
    return make(text.substr(at_start ? affix.size() : 0, rest), whole.any_part_is_input());
}

/* The engine's own strips single bytes; right, and exact in its marks, where those are characters.
 */
template <bool left, bool right> value strip(const func_args &args) {
    const string &whole = text_of(args, 0, "strip");
    const value chars = args.get_kwarg_or_pos("chars", 1);
    const std::string set =
        chars->is_undefined() || chars->is_none() ? "" : chars->as_string().str();
    if (is_ascii(set)) {
        string result = whole;
        if (chars->is_undefined() || chars->is_none())
            result.strip(left, right);
        else
            result.strip(left, right, string_view(set));
        return mk_val<value_string>(result);
    }
    const std::string text = whole.str();
    const auto starts = characters(text);
    const auto is_in_set = [&](size_t i) {
        return set.find(text.substr(starts[i], starts[i + 1] - starts[i])) != std::string::npos;
    };
    size_t begin = 0, end = starts.size() - 1;
    while (left && begin < end && is_in_set(begin))
        begin++;
    while (right && end > begin && is_in_set(end - 1))
        end--;
    return make(text.substr(starts[begin], starts[end] - starts[begin]), whole.any_part_is_input());
}

value find_text(const func_args &args) {
    args.ensure_count(2, 2);
    const std::string text = text_of(args, 0, "find").str();
    const size_t hit = alea_jinja::find(text, text_of(args, 1, "find").str());
    if (hit == std::string::npos) return mk_val<value_int>(-1);
    return mk_val<value_int>(string_characters(text.substr(0, hit)));
}

value attribute_of(const value &item, const value &attribute) {
    value missing = mk_val<value_undefined>();
    if (is_val<value_object>(item)) return item->at(attribute, missing);
    if (is_val<value_array>(item) && is_val<value_int>(attribute))
        return item->at(attribute, missing);
    return missing;
}

value join_items(const value &items, const string &separator, const value &attribute) {
    marked result;
    bool first = true;
    for (const auto &item : items->as_array()) {
        if (!first) result.put(separator);
        first = false;
        const value shown = attribute->is_undefined() ? item : attribute_of(item, attribute);
        if (!shown->is_undefined()) result.put(shown->as_string());
    }
    return mk_val<value_string>(result.take());
}

value join_array(const func_args &args) {
    args.ensure_count(1, 3);
    const value separator = args.get_kwarg_or_pos("d", 1);
    return join_items(args.get_pos(0),
                      separator->is_undefined() ? string() : separator->as_string(),
                      args.get_kwarg_or_pos("attribute", 2));
}

/* "sep".join(array), and the filter text | join("sep") over characters. */
value join_text(const func_args &args) {
    args.ensure_count(1, 2);
    const string &own = text_of(args, 0, "join");
    const value other = args.get_pos(1, mk_val<value_string>());
    if (is_val<value_array>(other)) return join_items(other, own, mk_val<value_undefined>());
    const std::string text = own.str();
    const auto starts = characters(text);
    marked result;
    for (size_t i = 0; i + 1 < starts.size(); i++) {
        if (i > 0) result.put(other->as_string());
        result.put(string_view(text).substr(starts[i], starts[i + 1] - starts[i]),
                   own.any_part_is_input());
    }
    return mk_val<value_string>(result.take());
}

value list_of_text(const func_args &args) {
    args.ensure_count(1, 1);
    const string &own = text_of(args, 0, "list");
    const std::string text = own.str();
    const auto starts = characters(text);
    auto result = mk_val<value_array>();
    for (size_t i = 0; i + 1 < starts.size(); i++)
        result->push_back(
            make(text.substr(starts[i], starts[i + 1] - starts[i]), own.any_part_is_input()));
    return result;
}

func_builtins laid_over(const func_builtins &stock, const func_builtins &ours) {
    func_builtins all = ours;
    all.insert(stock.begin(), stock.end());
    return all;
}

void check_depth(unsigned depth) {
    if (depth > alea_jinja::data_depth_max) alea_jinja::pass(alea_jinja::limit::depth);
}

/* repr() of a string. */
void put_repr(marked &out, const string &text) {
    bool has_single = false, has_double = false;
    for (const auto &part : text.parts) {
        has_single |= part.val.find('\'') != std::string::npos;
        has_double |= part.val.find('"') != std::string::npos;
    }
    const char quote = has_single && !has_double ? '"' : '\'';
    out.put({&quote, 1}, false);
    for (const auto &part : text.parts) {
        std::string escaped;
        for (const char c : part.val) {
            const unsigned char byte = static_cast<unsigned char>(c);
            if (c == quote || c == '\\')
                (escaped += '\\') += c;
            else if (c == '\n')
                escaped += "\\n";
            else if (c == '\r')
                escaped += "\\r";
            else if (c == '\t')
                escaped += "\\t";
            else if (byte < 0x20 || byte == 0x7F) {
                const char hex[] = "0123456789abcdef";
                (((escaped += "\\x") += hex[byte >> 4]) += hex[byte & 15]);
            } else
                escaped += c;
        }
        out.put(escaped, part.is_input);
    }
    out.put({&quote, 1}, false);
}

void put_python(marked &out, const value_t &val, unsigned depth) {
    check_depth(depth);
    if (is_val<value_string>(&val)) {
        put_repr(out, val.val_str);
    } else if (is_val<value_array>(&val)) {
        const bool is_tuple = is_val<value_tuple>(&val);
        out.put(is_tuple ? "(" : "[", false);
        for (size_t i = 0; i < val.val_arr.size(); i++) {
            if (i > 0) out.put(", ", false);
            put_python(out, *val.val_arr[i], depth + 1);
        }
        if (is_tuple && val.val_arr.size() == 1) out.put(",", false);
        out.put(is_tuple ? ")" : "]", false);
    } else if (is_val<value_object>(&val)) {
        out.put("{", false);
        for (size_t i = 0; i < val.val_obj.size(); i++) {
            if (i > 0) out.put(", ", false);
            put_python(out, *val.val_obj[i].first, depth + 1);
            out.put(": ", false);
            put_python(out, *val.val_obj[i].second, depth + 1);
        }
        out.put("}", false);
    } else if (val.is_undefined()) {
        out.put("Undefined", false);
    } else {
        out.put(is_val<value_func>(&val) ? "<function>" : val.as_string().str(), false);
    }
}

struct json_format {
    int indent;
    std::string item_sep, key_sep;
    bool ensure_ascii, sort_keys;
};

void put_hex_escape(std::string &out, uint32_t unit) {
    static const char digits[] = "0123456789abcdef";
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4)
        out += digits[unit >> shift & 15];
}

void put_unicode_escape(std::string &out, uint32_t code) {
    if (code > 0xFFFF) {
        put_hex_escape(out, 0xD800 + ((code - 0x10000) >> 10));
        code = 0xDC00 + ((code - 0x10000) & 0x3FF);
    }
    put_hex_escape(out, code);
}

/* The code point at `at`, of bytes that may be anything; moves behind it. */
uint32_t next_code(const std::string &text, size_t &at) {
    const unsigned char lead = static_cast<unsigned char>(text[at]);
    const size_t length = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (length == 1 || at + length > text.size()) {
        at++;
        return lead < 0x80 ? lead : 0xFFFD;
    }
    uint32_t code = lead & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; i++)
        code = code << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3F);
    at += length;
    return code;
}

std::string json_escaped(const std::string &text, bool ensure_ascii) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        const char c = text[at];
        const char *const named = c == '"'    ? "\\\""
                                  : c == '\\' ? "\\\\"
                                  : c == '\b' ? "\\b"
                                  : c == '\f' ? "\\f"
                                  : c == '\n' ? "\\n"
                                  : c == '\r' ? "\\r"
                                  : c == '\t' ? "\\t"
                                              : nullptr;
        if (named) {
            out += named;
            at++;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            put_unicode_escape(out, static_cast<unsigned char>(c));
            at++;
        } else if (ensure_ascii && (c & 0x80)) {
            put_unicode_escape(out, next_code(text, at));
        } else {
            out += c;
            at++;
        }
    }
    return out;
}

void put_json_string(marked &out, const string &text, const json_format &format) {
    out.put("\"", false);
    for (const auto &part : text.parts)
        out.put(json_escaped(part.val, format.ensure_ascii), part.is_input);
    out.put("\"", false);
}

void put_line(marked &out, const json_format &format, unsigned depth) {
    if (format.indent < 0) return;
    out.put("\n", false);
    out.put(std::string(static_cast<size_t>(format.indent) * depth, ' '), false);
}

void put_json(marked &out, const value_t &val, const json_format &format, unsigned depth);

void put_json_object(marked &out, const value_t &val, const json_format &format, unsigned depth) {
    auto members = val.val_obj;
    if (format.sort_keys)
        std::stable_sort(members.begin(), members.end(), [](const auto &a, const auto &b) {
            return a.first->as_string().str() < b.first->as_string().str();
        });
    out.put("{", false);
    for (size_t i = 0; i < members.size(); i++) {
        if (i > 0) out.put(format.item_sep, false);
        put_line(out, format, depth + 1);
        const value_t &key = *members[i].first;
        if (is_val<value_string>(&key)) {
            put_json_string(out, key.val_str, format);
        } else {
            out.put("\"", false);
            put_json(out, key, format, depth + 1);
            out.put("\"", false);
        }
        out.put(format.key_sep, false);
        put_json(out, *members[i].second, format, depth + 1);
    }
    if (!members.empty()) put_line(out, format, depth);
    out.put("}", false);
}

void put_json(marked &out, const value_t &val, const json_format &format, unsigned depth) {
    check_depth(depth);
    if (is_val<value_string>(&val)) {
        put_json_string(out, val.val_str, format);
    } else if (is_val<value_array>(&val)) {
        out.put("[", false);
        for (size_t i = 0; i < val.val_arr.size(); i++) {
            if (i > 0) out.put(format.item_sep, false);
            put_line(out, format, depth + 1);
            put_json(out, *val.val_arr[i], format, depth + 1);
        }
        if (!val.val_arr.empty()) put_line(out, format, depth);
        out.put("]", false);
    } else if (is_val<value_object>(&val)) {
        put_json_object(out, val, format, depth);
    } else if (is_val<value_bool>(&val)) {
        out.put(val.as_bool() ? "true" : "false", false);
    } else if (is_val<value_int>(&val) || is_val<value_float>(&val)) {
        const std::string number = val.as_string().str();
        out.put(number == "nan"    ? "NaN"
                : number == "inf"  ? "Infinity"
                : number == "-inf" ? "-Infinity"
                                   : number,
                false);
    } else {
        out.put("null", false);
    }
}

} // namespace

int64_t string_characters(const std::string &text) {
    return std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); });
}

value string_character(const string &text, int64_t index) {
    const std::string bytes = text.str();
    if (is_ascii(bytes)) {
        const int64_t length = static_cast<int64_t>(bytes.size());
        if (index < 0) index += length;
        if (index < 0 || index >= length) return mk_val<value_undefined>("a character");
        return make(std::string(1, bytes[static_cast<size_t>(index)]), text.any_part_is_input());
    }
    const auto starts = characters(bytes);
    const int64_t length = static_cast<int64_t>(starts.size()) - 1;
    if (index < 0) index += length;
    if (index < 0 || index >= length) return mk_val<value_undefined>("a character");
    const size_t at = static_cast<size_t>(index);
    return make(bytes.substr(starts[at], starts[at + 1] - starts[at]), text.any_part_is_input());
}

string python_text(const value_t &val) {
    marked out;
    put_python(out, val, 0);
    return out.take();
}

string python_json(const value &val, int indent, const std::string &item_sep,
                   const std::string &key_sep, bool ensure_ascii, bool sort_keys) {
    marked out;
    put_json(out, *val, {indent, item_sep, key_sep, ensure_ascii, sort_keys}, 0);
    return out.take();
}

const func_builtins &value_string_t::get_builtins() const {
    static const func_builtins all =
        laid_over(stock_string_builtins(),
                  {{"split", [](const func_args &args) { return split(args, false); }},
                   {"rsplit", [](const func_args &args) { return split(args, true); }},
                   {"splitlines", split_lines},
                   {"replace", replace},
                   {"strip", strip<true, true>},
                   {"lstrip", strip<true, false>},
                   {"rstrip", strip<false, true>},
                   {"slice", slice_text},
                   {"length", length_of_text},
                   {"int", to_int},
                   {"find", find_text},
                   {"removeprefix", strip_affix<true>},
                   {"removesuffix", strip_affix<false>},
                   {"join", join_text},
                   {"list", list_of_text}});
    return all;
}

const func_builtins &value_array_t::get_builtins() const {
    static const func_builtins all = laid_over(stock_array_builtins(), {{"join", join_array}});
    return all;
}

} // namespace jinja
