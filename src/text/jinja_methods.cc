// Methods of strings, dicts, lists and tuples, loops and cyclers.
#include <algorithm>
#include <array>
#include <cmath>

#include "text/jinja_interp.h"
#include "text/jinja_strings.h"
#include "text/jinja_unicode.h"

namespace isthmus::jinja {
namespace {

struct Call {
  Interp& in;
  const Value& self;
  const std::string& name;
  const Args& args;

  const std::string& text() const { return self.str(); }
  Value give(std::string out) const { return Value::string(std::move(out), self.is_markup()); }
  Value give(std::string_view out) const { return give(std::string(out)); }

  /// Positional arguments only, between `least` and `most` of them.
  void need(size_t least, size_t most) const {
    if (!args.named.empty()) fail_value(name + "() takes no keyword arguments");
    const size_t n = args.positional.size();
    if (n < least || n > most) {
      fail_value(name + "() takes " + std::to_string(least) +
                 (least == most ? "" : " to " + std::to_string(most)) + " arguments, got " +
                 std::to_string(n));
    }
  }
  const std::string& string_arg(size_t i) const { return as_string(args.positional[i]); }
  const std::string& as_string(const Value& value) const {
    if (value.is_undefined()) fail_value(value.why());
    if (!value.is_string()) {
      fail_value(name + "() argument must be str, not " + std::string(type_name(value)));
    }
    return value.str();
  }
  std::optional<std::string_view> optional_text(const Value* value) const {
    if (value == nullptr || value->is(Kind::kNone)) return std::nullopt;
    return as_string(*value);
  }
};

Value list_of_views(const Call& c, const std::vector<std::string_view>& parts, Kind kind = Kind::kList) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (std::string_view part : parts) {
    c.in.budget().charge(1 + part.size() / kBytesPerStep);
    items.push_back(c.give(part));
  }
  return Value::list(std::move(items), kind);
}

Value m_strip(const Call& c) {
  c.need(0, 1);
  const Side side = c.name == "strip" ? Side::kBoth : c.name == "lstrip" ? Side::kLeft : Side::kRight;
  const auto chars = c.optional_text(c.args.positional.empty() ? nullptr : &c.args.positional[0]);
  if (chars) c.in.budget().charge(chars->size() * c.text().size() / kBytesPerStep);
  return c.give(strip(c.text(), chars, side));
}

Value m_split(const Call& c) {
  const auto bound = bind(c.args, c.name, {"sep", "maxsplit"});
  const int64_t limit = bound[1] != nullptr ? to_index(*bound[1], "maxsplit") : -1;
  const auto parts = split(c.in.budget(), c.text(), c.optional_text(bound[0]), limit, c.name == "rsplit");
  return list_of_views(c, parts);
}

Value m_splitlines(const Call& c) {
  const auto bound = bind(c.args, c.name, {"keepends"});
  return list_of_views(c, split_lines(c.in.budget(), c.text(), bound[0] != nullptr && truthy(*bound[0])));
}

Value m_partition(const Call& c) {
  c.need(1, 1);
  const std::string_view text = c.text();
  const std::string& separator = c.string_arg(0);
  if (separator.empty()) fail_value("empty separator");
  const bool right = c.name == "rpartition";
  const size_t at = right ? find_last_text(c.in.budget(), text, separator) : find_text(text, separator);
  if (at == std::string_view::npos) {
    return right ? list_of_views(c, {"", "", text}, Kind::kTuple)
                 : list_of_views(c, {text, "", ""}, Kind::kTuple);
  }
  return list_of_views(c, {text.substr(0, at), separator, text.substr(at + separator.size())}, Kind::kTuple);
}

Value m_replace(const Call& c) {
  c.need(2, 3);
  const int64_t limit = c.args.positional.size() > 2 ? to_index(c.args.positional[2], "count") : -1;
  return c.give(replace(c.in.budget(), c.text(), c.string_arg(0), c.string_arg(1), limit));
}

/// The part of the text that start and end arguments (from argument `first` on) leave, and where it starts.
struct Window {
  std::string_view text;
  int64_t start;
  bool empty_range;  // start lies beyond end or text: not even "" is found
};

Window window(const Call& c, size_t first) {
  const auto size = static_cast<int64_t>(c.self.string_data().chars);
  const auto bound = [&](size_t i, int64_t otherwise) {
    if (i >= c.args.positional.size() || c.args.positional[i].is(Kind::kNone)) return otherwise;
    const int64_t v = to_index(c.args.positional[i], "slice index");
    return v < 0 ? (v < -size ? 0 : v + size) : v;
  };
  const int64_t start = bound(first, 0);
  const int64_t end = std::min(bound(first + 1, size), size);
  if (start > end) return {{}, start, true};
  std::string_view text = c.text();
  if (start > 0) text.remove_prefix(byte_of_char(text, static_cast<size_t>(start)));
  if (end < size) text = text.substr(0, byte_of_char(text, static_cast<size_t>(end - start)));
  return {text, start, false};
}

Value m_find(const Call& c) {
  c.need(1, 3);
  const std::string& needle = c.string_arg(0);
  const Window w = window(c, 1);
  const bool right = c.name[0] == 'r';
  const size_t at = w.empty_range ? std::string_view::npos
                    : right       ? find_last_text(c.in.budget(), w.text, needle)
                                  : find_text(w.text, needle);
  if (at != std::string_view::npos) {
    return Value::integer(w.start + static_cast<int64_t>(count_chars(w.text.substr(0, at))));
  }
  if (c.name == "index" || c.name == "rindex") fail_value("substring not found");
  return Value::integer(-1);
}

Value m_count(const Call& c) {
  c.need(1, 3);
  const std::string& needle = c.string_arg(0);
  const Window w = window(c, 1);
  return Value::integer(w.empty_range ? 0 : count_of(w.text, needle));
}

Value m_affix(const Call& c) {
  c.need(1, 3);
  const Window w = window(c, 1);
  const auto matches = [&](const Value& affix) {
    const std::string& s = c.as_string(affix);
    if (w.empty_range) return false;
    return c.name == "startswith" ? w.text.starts_with(s) : w.text.ends_with(s);
  };
  const Value& arg = c.args.positional[0];
  if (!arg.is(Kind::kTuple)) return Value::boolean(matches(arg));
  for (const Value& affix : iterate(c.in.budget(), arg)) {
    if (matches(affix)) return Value::boolean(true);
  }
  return Value::boolean(false);
}

Value m_remove_affix(const Call& c) {
  c.need(1, 1);
  std::string_view text = c.text();
  const std::string& affix = c.string_arg(0);
  if (c.name == "removeprefix") {
    if (text.starts_with(affix)) text.remove_prefix(affix.size());
  } else if (text.ends_with(affix)) {
    text.remove_suffix(affix.size());
  }
  return c.give(text);
}

Value m_case(const Call& c) {
  c.need(0, 0);
  if (c.name == "upper") return c.give(upper(c.text()));
  if (c.name == "lower") return c.give(lower(c.text()));
  if (c.name == "title") return c.give(title(c.text()));
  if (c.name == "capitalize") return c.give(capitalize(c.text()));
  if (c.name == "swapcase") return c.give(swap_case(c.text()));
  // Case folding is lower case plus a few mappings; the common ones are the sharp s and the final sigma.
  const std::string folded = replace(c.in.budget(), lower(c.text()), "ß", "ss", -1);
  return c.give(replace(c.in.budget(), folded, "ς", "σ", -1));
}

Value m_join(const Call& c) {
  c.need(1, 1);
  Sink sink(c.in.budget());
  bool first = true;
  for (const Value& item : iterate(c.in.budget(), c.args.positional[0])) {
    if (!first) sink.put(c.text());
    first = false;
    if (!item.is_string()) {
      fail_value("join(): expected str instance, " + std::string(type_name(item)) + " found");
    }
    sink.put(item.str());
  }
  return c.give(sink.take());
}

Value m_pad(const Call& c) {
  c.need(1, 2);
  const int64_t width = to_index(c.args.positional[0], "width");
  const std::string fill = c.args.positional.size() > 1 ? c.string_arg(1) : " ";
  const Side side = c.name == "center" ? Side::kBoth : c.name == "ljust" ? Side::kRight : Side::kLeft;
  return c.give(pad(c.in.budget(), c.text(), width, fill, side));
}

Value m_zfill(const Call& c) {
  c.need(1, 1);
  return c.give(zero_fill(c.in.budget(), c.text(), to_index(c.args.positional[0], "width")));
}

Value m_expandtabs(const Call& c) {
  const auto bound = bind(c.args, c.name, {"tabsize"});
  const int64_t size = bound[0] != nullptr ? to_index(*bound[0], "tabsize") : 8;
  return c.give(expand_tabs(c.in.budget(), c.text(), size));
}

bool is_titled(std::string_view text) {
  bool found = false;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const char32_t ch = next_char(text, i);
    if (is_upper(ch)) {
      if (in_word) return false;
      in_word = found = true;
    } else if (is_lower(ch)) {
      if (!in_word) return false;
    } else {
      in_word = false;
    }
  }
  return found;
}

bool is_cased_as(std::string_view text, bool upper_case) {
  bool found = false;
  for (size_t i = 0; i < text.size();) {
    const char32_t ch = next_char(text, i);
    if (upper_case ? is_lower(ch) : is_upper(ch)) return false;
    found |= upper_case ? is_upper(ch) : is_lower(ch);
  }
  return found;
}

bool is_alnum(char32_t ch) { return ch != '_' && is_word(ch); }

Value m_is(const Call& c) {
  c.need(0, 0);
  using Class = bool (*)(char32_t);
  constexpr std::array<std::pair<std::string_view, Class>, 7> kClasses = {{{"isalnum", is_alnum},
                                                                           {"isalpha", is_alpha},
                                                                           {"isdecimal", is_decimal},
                                                                           {"isdigit", is_digit},
                                                                           {"isnumeric", is_numeric},
                                                                           {"isprintable", is_printable},
                                                                           {"isspace", is_space}}};
  const std::string& text = c.text();
  if (c.name == "isupper") return Value::boolean(is_cased_as(text, true));
  if (c.name == "islower") return Value::boolean(is_cased_as(text, false));
  if (c.name == "istitle") return Value::boolean(is_titled(text));
  if (c.name == "isascii") {
    return Value::boolean(std::all_of(text.begin(), text.end(), [](char ch) { return (ch & 0x80) == 0; }));
  }
  if (text.empty()) return Value::boolean(c.name == "isprintable");
  for (const auto& [name, in_class] : kClasses) {
    if (name != c.name) continue;
    for (size_t i = 0; i < text.size();) {
      if (!in_class(next_char(text, i))) return Value::boolean(false);
    }
  }
  return Value::boolean(true);
}

Value m_format(const Call& c) {
  if (c.name == "format") return c.give(format_braces(c.in, c.text(), c.args));
  c.need(1, 1);
  Args named;
  if (!c.args.positional[0].is(Kind::kDict)) fail_value("format_map() argument must be a mapping");
  for (const auto& [key, value] : c.args.positional[0].dict_data().entries) {
    if (key.is_string()) named.named.emplace_back(key.str(), value);
  }
  return c.give(format_braces(c.in, c.text(), named));
}

struct Method {
  std::string_view name;
  Value (*run)(const Call& call);
};
constexpr std::array kStringMethods = {
    Method{"strip", m_strip},
    Method{"lstrip", m_strip},
    Method{"rstrip", m_strip},
    Method{"split", m_split},
    Method{"rsplit", m_split},
    Method{"splitlines", m_splitlines},
    Method{"partition", m_partition},
    Method{"rpartition", m_partition},
    Method{"replace", m_replace},
    Method{"find", m_find},
    Method{"rfind", m_find},
    Method{"index", m_find},
    Method{"rindex", m_find},
    Method{"count", m_count},
    Method{"startswith", m_affix},
    Method{"endswith", m_affix},
    Method{"removeprefix", m_remove_affix},
    Method{"removesuffix", m_remove_affix},
    Method{"upper", m_case},
    Method{"lower", m_case},
    Method{"title", m_case},
    Method{"capitalize", m_case},
    Method{"swapcase", m_case},
    Method{"casefold", m_case},
    Method{"join", m_join},
    Method{"ljust", m_pad},
    Method{"rjust", m_pad},
    Method{"center", m_pad},
    Method{"zfill", m_zfill},
    Method{"expandtabs", m_expandtabs},
    Method{"isalnum", m_is},
    Method{"isalpha", m_is},
    Method{"isascii", m_is},
    Method{"isdecimal", m_is},
    Method{"isdigit", m_is},
    Method{"islower", m_is},
    Method{"isnumeric", m_is},
    Method{"isprintable", m_is},
    Method{"isspace", m_is},
    Method{"istitle", m_is},
    Method{"isupper", m_is},
    Method{"format", m_format},
    Method{"format_map", m_format},
};

Value dict_view(const Call& c) {
  c.need(0, 0);
  std::vector<Value> items;
  const auto& entries = c.self.dict_data().entries;
  c.in.budget().charge(2 * entries.size());
  items.reserve(entries.size());
  for (const auto& [key, value] : entries) {
    items.push_back(c.name == "keys"     ? key
                    : c.name == "values" ? value
                                         : Value::list({key, value}, Kind::kTuple));
  }
  const Kind kind = c.name == "keys" ? Kind::kKeys : c.name == "values" ? Kind::kValues : Kind::kItems;
  return Value::list(std::move(items), kind);
}

std::optional<Value> dict_method(const Call& c) {
  if (c.name == "keys" || c.name == "values" || c.name == "items") return dict_view(c);
  if (c.name == "get") {
    c.need(1, 2);
    const Value* found = c.self.dict_data().find(c.in.budget(), c.args.positional[0]);
    if (found != nullptr) return *found;
    return c.args.positional.size() > 1 ? c.args.positional[1] : Value::none();
  }
  if (c.name == "copy") {
    c.need(0, 0);
    c.in.budget().charge(4 * c.self.dict_data().entries.size());
    return Value::dict(std::make_shared<DictData>(c.self.dict_data()));
  }
  return std::nullopt;
}

std::optional<Value> list_method(const Call& c) {
  if (c.name == "copy") {
    c.need(0, 0);
    return Value::list(iterate(c.in.budget(), c.self));
  }
  if (c.name != "count" && c.name != "index") return std::nullopt;
  c.need(1, c.name == "count" ? 1 : 3);
  const std::vector<Value> items = iterate(c.in.budget(), c.self);
  const auto size = static_cast<int64_t>(items.size());
  const auto bound = [&](size_t i, int64_t otherwise) {
    if (i >= c.args.positional.size()) return otherwise;
    const int64_t v = to_index(c.args.positional[i], "slice index");
    return std::clamp<int64_t>(v < 0 ? (v < -size ? 0 : v + size) : v, 0, size);
  };
  int64_t count = 0;
  for (int64_t i = bound(1, 0); i < bound(2, size); ++i) {
    const Value& item = items[static_cast<size_t>(i)];
    if (!same(item, c.args.positional[0]) && !equal(c.in.budget(), item, c.args.positional[0])) continue;
    if (c.name == "index") return Value::integer(i);
    ++count;
  }
  if (c.name == "index") fail_value("the value is not in the list");
  return Value::integer(count);
}

std::optional<Value> loop_method(const Call& c) {
  LoopState& loop = *c.self.loop();
  if (c.name == "cycle") {
    if (c.args.positional.empty()) fail_value("no items for cycling given");
    return c.args.positional[loop.index0 % c.args.positional.size()];
  }
  if (c.name != "changed") return std::nullopt;
  bool changed = !loop.changed_seen || loop.changed.size() != c.args.positional.size();
  for (size_t i = 0; !changed && i < loop.changed.size(); ++i) {
    changed = !equal(c.in.budget(), loop.changed[i], c.args.positional[i]);
  }
  loop.changed_seen = true;
  loop.changed = c.args.positional;
  return Value::boolean(changed);
}

std::optional<Value> cycler_method(const Call& c) {
  c.need(0, 0);
  Helper& cycler = c.self.helper();
  if (c.name == "reset") {
    cycler.next = 0;
    return Value::none();
  }
  if (c.name != "next") return std::nullopt;
  const Value value = cycler.items[cycler.next];
  cycler.next = (cycler.next + 1) % cycler.items.size();
  return value;
}

std::optional<Value> dispatch(const Call& c) {
  switch (c.self.kind()) {
    case Kind::kString:
      c.in.budget().charge(c.text().size() / kBytesPerStep);
      for (const Method& method : kStringMethods) {
        if (method.name == c.name) return method.run(c);
      }
      return std::nullopt;
    case Kind::kDict:
      return dict_method(c);
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return list_method(c);
    case Kind::kLoop:
      return loop_method(c);
    case Kind::kHelper:
      return cycler_method(c);
    case Kind::kFloat: {
      c.need(0, 0);
      const double d = c.self.as_double();
      return Value::boolean(std::isfinite(d) && d == std::floor(d));
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

Value call_method(Interp& in, const Value& self, const std::string& name, const Args& args) {
  in.budget().charge();
  std::optional<Value> result = dispatch(Call{in, self, name, args});
  if (result) return *result;
  fail(Code::kUnsupported, "the method '" + name + "' of " + std::string(type_name(self)) +
                               " is not available in chat templates");
}

}  // namespace isthmus::jinja
