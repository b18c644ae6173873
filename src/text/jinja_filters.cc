// Filters on text and numbers, and the lookup of all filters.
#include "text/jinja_filters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/checked.h"
#include "text/jinja_strings.h"
#include "text/jinja_unicode.h"

namespace isthmus::jinja {
namespace {

/// The text of a value, charged for reading it.
std::string text_of(Interp& in, const Value& value) { return to_str(in.budget(), value); }

Value f_upper(Interp& in, const Value& input, const Args& args) {
  bind(args, "upper", {});
  return Value::string(upper(text_of(in, input)), input.is_markup());
}

Value f_lower(Interp& in, const Value& input, const Args& args) {
  bind(args, "lower", {});
  return Value::string(lower(text_of(in, input)), input.is_markup());
}

Value f_capitalize(Interp& in, const Value& input, const Args& args) {
  bind(args, "capitalize", {});
  return Value::string(capitalize(text_of(in, input)), input.is_markup());
}

// jinja2's own title case: words begin after spaces, dashes and opening brackets, not after apostrophes.
Value f_title(Interp& in, const Value& input, const Args& args) {
  bind(args, "title", {});
  const std::string text = text_of(in, input);
  std::string out;
  size_t begin = 0;
  const auto flush = [&](size_t end) {
    if (end == begin) return;
    const std::string_view word = std::string_view(text).substr(begin, end - begin);
    const size_t head = char_bytes(word, 0);
    out += upper(word.substr(0, head)) + lower(word.substr(head));
  };
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const char32_t c = next_char(text, i);
    const bool breaks = c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c);
    if (!breaks) continue;
    flush(start);
    out += text.substr(start, i - start);
    begin = i;
  }
  flush(text.size());
  return Value::string(std::move(out));
}

Value f_trim(Interp& in, const Value& input, const Args& args) {
  const auto bound = bind(args, "trim", {"chars"});
  std::optional<std::string_view> chars;
  if (given(bound[0])) {
    if (!bound[0]->is_string()) fail_value("strip arg must be None or str");
    chars = bound[0]->str();
    if (input.is_string()) in.budget().charge(chars->size() * input.str().size() / kBytesPerStep);
  }
  return Value::string(std::string(strip(text_of(in, input), chars, Side::kBoth)), input.is_markup());
}

Value f_replace(Interp& in, const Value& input, const Args& args) {
  const auto bound = bind(args, "replace", {"old", "new", "count"}, 2);
  const int64_t count = given(bound[2]) ? to_index(*bound[2], "count") : -1;
  return Value::string(
      replace(in.budget(), text_of(in, input), text_of(in, *bound[0]), text_of(in, *bound[1]), count));
}

Value f_string(Interp& in, const Value& input, const Args& args) {
  bind(args, "string", {});
  return soft_str(in, input);
}

Value f_escape(Interp& in, const Value& input, const Args& args) {
  bind(args, "escape", {});
  if (input.is_markup()) return input;
  return Value::string(escape_html(text_of(in, input)), true);
}

Value f_forceescape(Interp& in, const Value& input, const Args& args) {
  bind(args, "forceescape", {});
  return Value::string(escape_html(text_of(in, input)), true);
}

Value f_safe(Interp& in, const Value& input, const Args& args) {
  bind(args, "safe", {});
  return Value::string(text_of(in, input), true);
}

Value f_center(Interp& in, const Value& input, const Args& args) {
  const auto bound = bind(args, "center", {"width"});
  const int64_t width = bound[0] != nullptr ? to_index(*bound[0], "width") : 80;
  return Value::string(pad(in.budget(), text_of(in, input), width, " ", Side::kBoth), input.is_markup());
}

Value f_indent(Interp& in, const Value& input, const Args& args) {
  const auto bound = bind(args, "indent", {"width", "first", "blank"});
  if (!input.is_string()) {
    if (input.is_undefined()) fail_value(input.why());
    fail_value("indent needs a string, not " + std::string(type_name(input)));
  }
  std::string indent(4, ' ');
  if (bound[0] != nullptr && bound[0]->is_string()) {
    indent = bound[0]->str();
  } else if (bound[0] != nullptr) {
    const int64_t width = std::max<int64_t>(0, to_index(*bound[0], "width"));
    in.budget().charge_bytes(static_cast<uint64_t>(width));
    indent.assign(static_cast<size_t>(width), ' ');
  }
  const std::string text = input.str() + "\n";  // jinja2 adds it too: the last line counts even when empty
  const auto lines = split_lines(in.budget(), text, false);
  Sink sink(in.budget());
  if (flag(bound[1])) sink.put(indent);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      sink.put('\n');
      if (!lines[i].empty() || flag(bound[2])) sink.put(indent);
    }
    sink.put(lines[i]);
  }
  return Value::string(sink.take(), input.is_markup());
}

Value f_truncate(Interp& in, const Value& input, const Args& args) {
  const auto bound = bind(args, "truncate", {"length", "killwords", "end", "leeway"});
  const int64_t size = bound[0] != nullptr ? to_index(*bound[0], "length") : 255;
  const std::string end = bound[2] != nullptr ? text_of(in, *bound[2]) : "...";
  const int64_t leeway = given(bound[3]) ? to_index(*bound[3], "leeway") : 5;
  const auto end_size = static_cast<int64_t>(count_chars(end));
  if (size < end_size) fail_value("truncate needs a length of at least " + std::to_string(end_size));
  if (leeway < 0) fail_value("truncate needs a leeway of at least 0");
  if (!input.is_string()) fail_value("truncate needs a string");
  const StringData& data = input.string_data();
  if (static_cast<int64_t>(data.chars) - leeway <= size) return input;
  in.budget().charge_bytes(data.bytes.size());
  std::string_view head = data.bytes;
  head = head.substr(0, byte_of_char(head, static_cast<size_t>(size - end_size)));
  if (!flag(bound[1])) head = split(in.budget(), head, " ", 1, true)[0];
  return Value::string(std::string(head) + end);
}

Value f_wordcount(Interp& in, const Value& input, const Args& args) {
  bind(args, "wordcount", {});
  const std::string text = text_of(in, input);
  int64_t words = 0;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const bool word = is_word(next_char(text, i));
    words += word && !in_word ? 1 : 0;
    in_word = word;
  }
  return Value::integer(words);
}

Value f_striptags(Interp& in, const Value& input, const Args& args) {
  bind(args, "striptags", {});
  std::string text = text_of(in, input);
  // Comments first, then tags, then runs of whitespace become one space; entities are read back.
  const auto remove = [&text](std::string_view open, std::string_view close) {
    std::string out;
    size_t begin = 0;
    for (;;) {
      const size_t at = text.find(open, begin);
      const size_t end = at == std::string::npos ? at : text.find(close, at);
      if (end == std::string::npos) break;
      out += text.substr(begin, at - begin);
      begin = end + close.size();
    }
    text = out + text.substr(begin);
  };
  remove("<!--", "-->");
  remove("<", ">");
  std::string out;
  for (std::string_view word : split(in.budget(), text, std::nullopt, -1, false)) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kEntities = {
      {{"&lt;", "<"}, {"&gt;", ">"}, {"&#39;", "'"}, {"&#34;", "\""}, {"&quot;", "\""}, {"&amp;", "&"}}};
  for (const auto& [from, to] : kEntities) out = replace(in.budget(), out, from, to, -1);
  return Value::string(std::move(out));
}

std::string url_quote(std::string_view text, bool query) {
  std::string out;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = std::isalnum(byte) != 0 || c == '_' || c == '.' || c == '-' || c == '~';
    if (byte < 0x80 && (plain || (c == '/' && !query))) {
      out += c;
    } else if (c == ' ' && query) {
      out += '+';
    } else {
      char hex[4];
      std::snprintf(hex, sizeof hex, "%%%02X", byte);
      out += hex;
    }
  }
  return out;
}

Value f_urlencode(Interp& in, const Value& input, const Args& args) {
  bind(args, "urlencode", {});
  if (input.is_string() || !is_iterable(input)) return Value::string(url_quote(text_of(in, input), false));
  std::string out;
  const auto add = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += '&';
    out += url_quote(text_of(in, key), true) + "=" + url_quote(text_of(in, value), true);
    in.budget().check_size(out.size());
  };
  if (input.is(Kind::kDict)) {
    for (const auto& [key, value] : input.dict_data().entries) add(key, value);
  } else {
    for (const Value& item : iterate(in.budget(), input)) {
      const std::vector<Value> pair = iterate(in.budget(), item);
      if (pair.size() != 2) fail_value("urlencode needs pairs");
      add(pair[0], pair[1]);
    }
  }
  return Value::string(std::move(out));
}

Value f_format(Interp& in, const Value& input, const Args& args) {
  if (!args.positional.empty() && !args.named.empty()) {
    fail_value("can't handle positional and keyword arguments at the same time");
  }
  const std::string format = text_of(in, input);
  if (args.named.empty()) {
    return Value::string(format_percent(in, format, Value::list(args.positional, Kind::kTuple)));
  }
  auto dict = std::make_shared<DictData>();
  for (const auto& [name, value] : args.named) dict->set(in.budget(), Value::string(name), value);
  return Value::string(format_percent(in, format, Value::dict(std::move(dict))));
}

Value f_abs(Interp&, const Value& input, const Args& args) {
  bind(args, "abs", {});
  if (input.is_undefined()) fail_value(input.why());
  if (!input.is_number()) fail_value("bad operand type for abs(): '" + std::string(type_name(input)) + "'");
  if (input.is(Kind::kFloat)) return Value::real(std::fabs(input.as_double()));
  return input.as_int() < 0 ? negate(input) : Value::integer(input.as_int());
}

Value truncated(double d) {
  if (std::isinf(d)) fail_value("cannot convert float infinity to integer");
  if (std::fabs(d) >= 9.2e18) fail(Code::kUnsupported, "integer beyond 64 bits");
  return Value::integer(static_cast<int64_t>(d));
}

Value f_int(Interp&, const Value& input, const Args& args) {
  const auto bound = bind(args, "int", {"default", "base"});
  if (input.is_undefined()) fail_value(input.why());
  Value otherwise = bound[0] != nullptr ? *bound[0] : Value::integer(0);
  if (input.is_integral()) return Value::integer(input.as_int());
  if (input.is(Kind::kFloat)) return std::isnan(input.as_double()) ? otherwise : truncated(input.as_double());
  if (!input.is_string()) return otherwise;
  const int64_t base = bound[1] != nullptr ? to_index(*bound[1], "base") : 10;
  if (const auto value = parse_int(input.str(), base)) return Value::integer(*value);
  const auto real = parse_float(input.str());
  if (!real || !std::isfinite(*real)) return otherwise;
  return truncated(*real);
}

Value f_float(Interp&, const Value& input, const Args& args) {
  const auto bound = bind(args, "float", {"default"});
  if (input.is_undefined()) fail_value(input.why());
  if (input.is_number()) return Value::real(input.as_double());
  if (input.is_string()) {
    if (const auto value = parse_float(input.str())) return Value::real(*value);
  }
  return bound[0] != nullptr ? *bound[0] : Value::real(0.0);
}

double round_half_even(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 320) return value;
  if (precision < -320) return std::copysign(0.0, value);
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / unit) * unit;
  }
  // printf rounds the exact binary value, ties to even, which is what Python's round does.
  char buffer[700];
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision), value);
  return std::strtod(buffer, nullptr);
}

Value round_int(int64_t value, int64_t precision) {
  if (precision >= 0) return Value::integer(value);
  if (precision < -18) return Value::integer(0);
  int64_t unit = 1;
  for (int64_t i = precision; i < 0; ++i) unit *= 10;
  int64_t rest = value % unit;
  if (rest < 0) rest += unit;
  const auto low = checked_add(value, -rest);
  const bool up = rest * 2 > unit || (rest * 2 == unit && low && (*low / unit) % 2 != 0);
  const auto result = up ? checked_add(value, unit - rest) : low;
  if (!result) fail(Code::kUnsupported, "integer beyond 64 bits");
  return Value::integer(*result);
}

Value f_round(Interp& in, const Value& input, const Args& args) {
  const auto bound = bind(args, "round", {"precision", "method"});
  if (input.is_undefined()) fail_value(input.why());
  const int64_t precision = bound[0] != nullptr ? to_index(*bound[0], "precision") : 0;
  const std::string method = bound[1] != nullptr ? text_of(in, *bound[1]) : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    fail_value("method must be common, ceil or floor");
  }
  if (!input.is_number()) fail_value("round needs a number, not " + std::string(type_name(input)));
  if (method == "common") {
    if (input.is_integral()) return round_int(input.as_int(), precision);
    return Value::real(round_half_even(input.as_double(), precision));
  }
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.as_double() * unit;
  if (!std::isfinite(scaled)) fail_value("cannot convert float infinity or NaN to integer");
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Value f_filesizeformat(Interp&, const Value& input, const Args& args) {
  const auto bound = bind(args, "filesizeformat", {"binary"});
  if (input.is_undefined()) fail_value(input.why());
  std::optional<double> bytes;
  if (input.is_number()) bytes = input.as_double();
  if (input.is_string()) bytes = parse_float(input.str());
  if (!bytes) fail_value("filesizeformat needs a number");
  const bool binary_units = flag(bound[0]);
  const double base = binary_units ? 1024 : 1000;
  if (*bytes == 1) return Value::string("1 Byte");
  if (*bytes < base) return Value::string(std::to_string(static_cast<int64_t>(*bytes)) + " Bytes");
  constexpr std::string_view kUnits = "kMGTPEZY";
  double unit = base;
  size_t i = 0;
  while (i + 1 < kUnits.size() && *bytes >= unit * base) {
    unit *= base;
    ++i;
  }
  char buffer[400];
  std::snprintf(buffer, sizeof buffer, "%.1f ", *bytes / unit);
  std::string name(1, kUnits[i]);
  if (binary_units) name = (i == 0 ? "K" : name) + "i";
  return Value::string(buffer + name + "B");
}

Value f_default(Interp&, const Value& input, const Args& args) {
  const auto bound = bind(args, "default", {"default_value", "boolean"});
  const bool replaced = input.is_undefined() || (flag(bound[1]) && !truthy(input));
  if (!replaced) return input;
  return bound[0] != nullptr ? *bound[0] : Value::string("");
}

Value f_attr(Interp& in, const Value& input, const Args& args) {
  const auto bound = bind(args, "attr", {"name"}, 1);
  const std::string name = text_of(in, *bound[0]);
  if (input.is_undefined() && name.starts_with("__")) return input;
  if (input.is_undefined()) fail_value(input.why());
  bool mutates = false;
  // Only attributes count here, never the keys of a dict.
  if (input.is(Kind::kDict) && !has_method(input, name, &mutates) && !name.starts_with("__")) {
    return Value::undefined("'dict object' has no attribute '" + name + "'");
  }
  return get_attribute(in.budget(), input, name);
}

Value f_tojson(Interp& in, const Value& input, const Args& args) {
  const auto bound = bind(args, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = flag(bound[0]);
  style.sort_keys = flag(bound[3]);
  if (given(bound[1])) {
    if (bound[1]->is_string()) {
      style.indent = bound[1]->str();
    } else {
      const int64_t width = std::max<int64_t>(0, to_index(*bound[1], "indent"));
      in.budget().charge_bytes(static_cast<uint64_t>(width));
      style.indent = std::string(static_cast<size_t>(width), ' ');
    }
  }
  style.item_separator = style.indent ? "," : ", ";
  style.key_separator = ": ";
  if (given(bound[2])) {
    const std::vector<Value> pair = iterate(in.budget(), *bound[2]);
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      fail_value("separators must be a pair of strings");
    }
    style.item_separator = pair[0].str();
    style.key_separator = pair[1].str();
  }
  Sink sink(in.budget());
  write_json(sink, input, style);
  return Value::string(sink.take());
}

[[noreturn]] Value f_unavailable(Interp&, const Value&, const Args&) {
  fail(Code::kUnsupported, "this filter is not available in chat templates");
}

constexpr std::array kFilters = {
    Filter{"abs", f_abs},
    Filter{"attr", f_attr},
    Filter{"capitalize", f_capitalize},
    Filter{"center", f_center},
    Filter{"d", f_default},
    Filter{"default", f_default},
    Filter{"e", f_escape},
    Filter{"escape", f_escape},
    Filter{"filesizeformat", f_filesizeformat},
    Filter{"float", f_float},
    Filter{"forceescape", f_forceescape},
    Filter{"format", f_format},
    Filter{"indent", f_indent},
    Filter{"int", f_int},
    Filter{"lower", f_lower},
    Filter{"pprint", f_unavailable},
    Filter{"random", f_unavailable},
    Filter{"replace", f_replace},
    Filter{"round", f_round},
    Filter{"safe", f_safe},
    Filter{"string", f_string},
    Filter{"striptags", f_striptags},
    Filter{"title", f_title},
    Filter{"tojson", f_tojson},
    Filter{"trim", f_trim},
    Filter{"truncate", f_truncate},
    Filter{"upper", f_upper},
    Filter{"urlencode", f_urlencode},
    Filter{"urlize", f_unavailable},
    Filter{"wordcount", f_wordcount},
    Filter{"wordwrap", f_unavailable},
    Filter{"xmlattr", f_unavailable},
};

const Filter* find_filter(std::string_view name) {
  for (const Filter& filter : kFilters) {
    if (filter.name == name) return &filter;
  }
  return find_list_filter(name);
}

}  // namespace

Value soft_str(Interp& in, const Value& value) {
  return value.is_string() ? value : Value::string(to_str(in.budget(), value));
}

bool is_known_filter(std::string_view name) { return find_filter(name) != nullptr; }

Value call_filter(Interp& in, const std::string& name, const Value& input, const Args& args) {
  in.budget().charge();
  const Filter* filter = find_filter(name);
  if (filter == nullptr) fail(Code::kUnsupported, "no filter named '" + name + "'");
  if (filter->run == f_unavailable) {
    fail(Code::kUnsupported, "the filter '" + name + "' is not available in chat templates");
  }
  return filter->run(in, input, args);
}

}  // namespace isthmus::jinja
