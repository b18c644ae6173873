// Text formatting: "…" % value and "…".format(…), with Python's format specifications.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja_interp.h"
#include "text/jinja_strings.h"
#include "text/jinja_unicode.h"

namespace isthmus::jinja {
namespace {

/// [[fill]align][sign][#][0][width][grouping][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = '\0';
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  int64_t width = 0;
  char grouping = '\0';
  int64_t precision = -1;
  char type = '\0';
};

bool is_one_of(char c, std::string_view set) { return c != '\0' && set.find(c) != std::string_view::npos; }

int64_t read_number(std::string_view text, size_t& i) {
  int64_t value = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    value = value * 10 + (text[i] - '0');
    if (value > 1'000'000'000) fail(Code::kResourceExhausted, "a width or precision is too large");
  }
  return value;
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  size_t i = 0;
  const auto peek = [&](size_t ahead = 0) { return i + ahead < text.size() ? text[i + ahead] : '\0'; };
  const size_t first = text.empty() ? 0 : char_bytes(text, 0);
  if (first > 0 && first < text.size() && is_one_of(text[first], "<>=^")) {
    spec.fill = std::string(text.substr(0, first));
    spec.align = text[first];
    i = first + 1;
  } else if (is_one_of(peek(), "<>=^")) {
    spec.align = text[i++];
  }
  if (is_one_of(peek(), "+- ")) spec.sign = text[i++];
  if (peek() == '#') {
    spec.alternate = true;
    ++i;
  }
  if (peek() == '0') {
    spec.zero = true;
    ++i;
  }
  spec.width = read_number(text, i);
  if (is_one_of(peek(), ",_")) spec.grouping = text[i++];
  if (peek() == '.') {
    ++i;
    if (peek() < '0' || peek() > '9') fail_value("format specifier missing precision");
    spec.precision = read_number(text, i);
  }
  if (i < text.size()) spec.type = text[i++];
  if (i < text.size()) fail_value("invalid format specifier");
  return spec;
}

std::string group_digits(const std::string& number, char separator, size_t every) {
  size_t end = 0;
  while (end < number.size() && std::isalnum(static_cast<unsigned char>(number[end])) != 0 &&
         number[end] != 'e') {
    ++end;
  }
  std::string out;
  for (size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % every == 0) out += separator;
    out += number[i];
  }
  return out + number.substr(end);
}

std::string digits_in_base(uint64_t value, unsigned base, bool upper_case) {
  std::string out;
  do {
    out += (upper_case ? "0123456789ABCDEF" : "0123456789abcdef")[value % base];
    value /= base;
  } while (value != 0);
  std::reverse(out.begin(), out.end());
  return out;
}

std::string print_double(Interp& in, double value, char type, int64_t precision, bool alternate) {
  in.budget().charge_bytes(static_cast<uint64_t>(precision) + 400);
  std::string out(static_cast<size_t>(precision) + 400, '\0');
  const std::string format = std::string("%") + (alternate ? "#" : "") + ".*" + type;
  const int size = std::snprintf(out.data(), out.size(), format.c_str(), static_cast<int>(precision), value);
  out.resize(static_cast<size_t>(std::max(size, 0)));
  return out;
}

/// A non-negative or NaN number, without its sign.
std::string float_digits(Interp& in, double value, const Spec& spec) {
  if (spec.type == '\0' && spec.precision < 0) return float_repr(value);
  const int64_t precision = spec.precision < 0 ? 6 : spec.precision;
  if (spec.type == '%') return print_double(in, value * 100.0, 'f', precision, spec.alternate) + "%";
  if (is_one_of(spec.type, "eEfF")) return print_double(in, value, spec.type, precision, spec.alternate);
  if (is_one_of(spec.type, "gGn")) {
    return print_double(in, value, spec.type == 'n' ? 'g' : spec.type, precision, spec.alternate);
  }
  if (spec.type != '\0') fail_value(std::string("unknown format code '") + spec.type + "' for a float");
  // No type but a precision: like "g", with at least one digit after the point.
  std::string out = print_double(in, value, 'g', precision, false);
  const int64_t whole_digits =
      static_cast<int64_t>(out.find_first_not_of("0123456789") == std::string::npos ? out.size() : 0);
  if (whole_digits > 0 && whole_digits < precision) out += ".0";
  if (whole_digits > 0 && whole_digits >= precision) out = print_double(in, value, 'e', precision - 1, false);
  return out;
}

std::string int_digits(uint64_t magnitude, const Spec& spec, std::string* prefix) {
  switch (spec.type) {
    case 'b':
    case 'o':
    case 'x':
    case 'X':
      if (spec.alternate) *prefix = std::string("0") + spec.type;
      return digits_in_base(magnitude, spec.type == 'b' ? 2 : spec.type == 'o' ? 8 : 16, spec.type == 'X');
    default:
      return std::to_string(magnitude);
  }
}

std::string place(Interp& in, const std::string& head, const std::string& body, const Spec& spec,
                  char default_align) {
  char align = spec.align;
  std::string fill = spec.fill;
  if (spec.zero && align == '\0') {
    align = default_align == '<' ? '<' : '=';
    fill.assign(1, '0');
  }
  if (align == '\0') align = default_align;
  const auto width = spec.width - static_cast<int64_t>(count_chars(head));
  if (align == '=') return head + pad(in.budget(), body, width, fill, Side::kLeft);
  const std::string text = head + body;
  if (align == '<') return pad(in.budget(), text, spec.width, fill, Side::kRight);
  if (align == '>') return pad(in.budget(), text, spec.width, fill, Side::kLeft);
  // format() centres with the odd space on the right, unlike str.center.
  const auto size = static_cast<int64_t>(count_chars(text));
  const int64_t left = spec.width > size ? (spec.width - size) / 2 : 0;
  return pad(in.budget(), pad(in.budget(), text, size + left, fill, Side::kLeft), spec.width, fill,
             Side::kRight);
}

std::string sign_text(bool negative, const Spec& spec) {
  if (negative) return "-";
  return spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
}

std::string format_number(Interp& in, const Value& value, const Spec& spec) {
  const bool as_float = value.is(Kind::kFloat) || is_one_of(spec.type, "eEfFgG%");
  if (spec.grouping != '\0' && (spec.zero || spec.align == '=')) {
    fail(Code::kUnsupported, "a format with both grouping and zero padding is not supported");
  }
  std::string prefix;
  std::string digits;
  bool negative = false;
  if (as_float) {
    const double d = value.as_double();
    negative = std::signbit(d) && !std::isnan(d);
    digits = float_digits(in, std::fabs(d), spec);
  } else {
    if (spec.precision >= 0) fail_value("precision not allowed in integer format specifier");
    if (spec.type == 'c') {
      if (value.as_int() < 0 || value.as_int() > 0x10FFFF) fail_value("%c arg not in range");
      append_char(digits, static_cast<char32_t>(value.as_int()));
      return place(in, "", digits, spec, '<');
    }
    if (!is_one_of(spec.type, "bdoxXn") && spec.type != '\0') {
      fail_value(std::string("unknown format code '") + spec.type + "' for an integer");
    }
    negative = value.as_int() < 0;
    const auto raw = static_cast<uint64_t>(value.as_int());
    digits = int_digits(negative ? ~raw + 1 : raw, spec, &prefix);
  }
  if (spec.grouping != '\0') {
    const bool by_four = is_one_of(spec.type, "boxX");
    digits = group_digits(digits, spec.grouping, by_four ? 4 : 3);
  }
  return place(in, sign_text(negative, spec) + prefix, digits, spec, '>');
}

std::string format_value(Interp& in, const Value& value, std::string_view spec_text) {
  if (value.is_undefined() && !spec_text.empty()) fail_value("unsupported format string for Undefined");
  if (spec_text.empty()) return to_str(in.budget(), value);
  const Spec spec = parse_spec(spec_text);
  if (value.is_number()) return format_number(in, value, spec);
  if (!value.is_string()) {
    fail_value("unsupported format string passed to " + std::string(type_name(value)));
  }
  if (spec.type != '\0' && spec.type != 's') {
    fail_value(std::string("unknown format code '") + spec.type + "' for a string");
  }
  if (spec.align == '=') fail_value("'=' alignment not allowed in string format specifier");
  if (spec.sign != '-') fail_value("sign not allowed in string format specifier");
  std::string_view text = value.str();
  if (spec.precision >= 0) text = text.substr(0, byte_of_char(text, static_cast<size_t>(spec.precision)));
  return place(in, "", std::string(text), spec, '<');
}

/// "…".format(…): replacement fields, to two levels of nesting as in Python.
class BraceFormatter {
 public:
  BraceFormatter(Interp& in, const Args& args) : in_(in), args_(args) {}

  std::string run(std::string_view format, int levels) {
    if (levels < 0) fail_value("max string recursion exceeded");
    Sink sink(in_.budget());
    for (size_t i = 0; i < format.size();) {
      const char c = format[i];
      const char after = i + 1 < format.size() ? format[i + 1] : '\0';
      if ((c == '{' || c == '}') && after == c) {
        sink.put(c);
        i += 2;
      } else if (c == '}') {
        fail_value("single '}' encountered in format string");
      } else if (c == '{') {
        const size_t end = field_end(format, i + 1);
        sink.put(field(format.substr(i + 1, end - i - 1), levels));
        i = end + 1;
      } else {
        const size_t next = std::min(format.find_first_of("{}", i), format.size());
        sink.put(format.substr(i, next - i));
        i = next;
      }
    }
    return sink.take();
  }

 private:
  static size_t field_end(std::string_view format, size_t i) {
    int open = 1;
    for (; i < format.size(); ++i) {
      if (format[i] == '{') ++open;
      if (format[i] == '}' && --open == 0) return i;
    }
    fail_value("expected '}' before end of string");
  }

  std::string field(std::string_view text, int levels) {
    size_t name_end = text.find_first_of("!:[");
    while (name_end != std::string_view::npos && text[name_end] == '[') {
      const size_t close = text.find(']', name_end);
      if (close == std::string_view::npos) fail_value("missing ']' in format string");
      name_end = text.find_first_of("!:[", close);
    }
    name_end = std::min(name_end, text.size());
    Value value = resolve(text.substr(0, name_end));
    std::string_view rest = text.substr(name_end);
    if (!rest.empty() && rest[0] == '!') {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':')) fail_value("expected ':' after conversion");
      value = convert(value, rest[1]);
      rest.remove_prefix(2);
    }
    if (!rest.empty()) rest.remove_prefix(1);
    return format_value(in_, value, run(rest, levels - 1));
  }

  Value convert(const Value& value, char how) {
    if (how == 's') return Value::string(to_str(in_.budget(), value));
    if (how == 'r') return Value::string(to_repr(in_.budget(), value));
    fail_value("unknown conversion specifier in format string");
  }

  static bool is_number(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  }

  Value first_part(std::string_view name) {
    if (name.empty() || is_number(name)) {
      const int mode = name.empty() ? 1 : 2;
      if (numbering_ != 0 && numbering_ != mode) {
        fail_value("cannot switch between manual and automatic field numbering");
      }
      numbering_ = mode;
      size_t i = 0;
      const auto index = name.empty() ? static_cast<int64_t>(next_++) : read_number(name, i);
      if (index >= static_cast<int64_t>(args_.positional.size())) {
        fail_value("replacement index out of range for positional args");
      }
      return args_.positional[static_cast<size_t>(index)];
    }
    for (const auto& [key, value] : args_.named) {
      if (key == name) return value;
    }
    fail_value("format(): no argument named '" + std::string(name) + "'");
  }

  Value resolve(std::string_view path) {
    size_t i = std::min(path.find_first_of(".["), path.size());
    Value value = first_part(path.substr(0, i));
    while (i < path.size()) {
      if (path[i] == '.') {
        const size_t end = std::min(path.find_first_of(".[", i + 1), path.size());
        value = get_attribute(in_.budget(), value, std::string(path.substr(i + 1, end - i - 1)));
        i = end;
        continue;
      }
      const size_t end = path.find(']', i);
      if (path[i] != '[' || end == std::string_view::npos) fail_value("malformed field in format string");
      const std::string_view key = path.substr(i + 1, end - i - 1);
      size_t at = 0;
      value =
          get_item(in_.budget(), value,
                   is_number(key) ? Value::integer(read_number(key, at)) : Value::string(std::string(key)));
      i = end + 1;
    }
    return value;
  }

  Interp& in_;
  const Args& args_;
  size_t next_ = 0;
  int numbering_ = 0;  // 1: automatic, 2: by number
};

/// "…" % value.
class PercentFormatter {
 public:
  PercentFormatter(Interp& in, const std::string& format, const Value& value)
      : in_(in), format_(format), value_(value) {}

  std::string run() {
    Sink sink(in_.budget());
    while (pos_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', pos_), format_.size());
      sink.put(std::string_view(format_).substr(pos_, percent - pos_));
      pos_ = percent;
      if (pos_ == format_.size()) break;
      ++pos_;
      sink.put(conversion());
    }
    const bool mapping = value_.is(Kind::kDict) || value_.is(Kind::kList) || value_.is(Kind::kRange);
    if (used_ < available() && !mapping) {
      fail_value("not all arguments converted during string formatting");
    }
    return sink.take();
  }

 private:
  size_t available() const { return value_.is(Kind::kTuple) ? value_.list_data().items.size() : 1; }

  Value next_arg() {
    if (used_ >= available()) fail_value("not enough arguments for format string");
    ++used_;
    return value_.is(Kind::kTuple) ? value_.list_data().items[used_ - 1] : value_;
  }

  char peek() const { return pos_ < format_.size() ? format_[pos_] : '\0'; }

  int64_t number_or_star() {
    if (peek() != '*') return read_number(format_, pos_);
    ++pos_;
    return to_index(next_arg(), "*");
  }

  std::string conversion() {
    std::optional<Value> keyed;
    if (peek() == '(') keyed = by_key();
    Spec spec;
    spec.align = '>';
    for (; is_one_of(peek(), "-+ #0"); ++pos_) {
      const char flag = peek();
      if (flag == '-') spec.align = '<';
      if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
      spec.alternate |= flag == '#';
      spec.zero |= flag == '0';
    }
    spec.width = number_or_star();
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = spec.width == INT64_MIN ? INT64_MAX : -spec.width;
    }
    if (peek() == '.') {
      ++pos_;
      spec.precision = std::max<int64_t>(0, number_or_star());
      in_.budget().check_size(static_cast<uint64_t>(spec.precision));
    }
    while (is_one_of(peek(), "hlL")) ++pos_;
    if (pos_ >= format_.size()) fail_value("incomplete format");
    const char type = format_[pos_++];
    if (type == '%') return "%";
    return convert(keyed ? *keyed : next_arg(), type, spec);
  }

  Value by_key() {
    if (!value_.is(Kind::kDict)) fail_value("format requires a mapping");
    int open = 0;
    const size_t begin = pos_ + 1;
    for (; pos_ < format_.size(); ++pos_) {
      if (format_[pos_] == '(') ++open;
      if (format_[pos_] == ')' && --open == 0) break;
    }
    if (pos_ >= format_.size()) fail_value("incomplete format key");
    const std::string key = format_.substr(begin, pos_++ - begin);
    used_ = 1;
    const Value* found = value_.dict_data().find(key);
    if (found == nullptr) fail_value("the format's mapping has no key '" + key + "'");
    return *found;
  }

  std::string convert(const Value& value, char type, Spec spec) {
    if (is_one_of(type, "sra")) {
      const std::string text = type == 's' ? to_str(in_.budget(), value) : to_repr(in_.budget(), value);
      std::string_view shown = text;
      if (spec.precision >= 0) {
        shown = shown.substr(0, byte_of_char(shown, static_cast<size_t>(spec.precision)));
      }
      spec.zero = false;
      return place(in_, "", std::string(shown), spec, '>');
    }
    if (type == 'c') return character(value, spec);
    if (value.is_undefined()) fail_value(value.why());
    if (!value.is_number()) {
      fail_value(std::string("%") + type + " format: a number is required, not " +
                 std::string(type_name(value)));
    }
    // Zero padding counts only for numbers that are not aligned to the left.
    if (spec.align == '>') spec.align = spec.zero ? '=' : '>';
    if (spec.align == '=') spec.fill.assign(1, '0');
    if (is_one_of(type, "eEfFgG")) {
      spec.type = type;
      return format_number(in_, value, spec);
    }
    if (!is_one_of(type, "diuoxX")) {
      fail_value(std::string("unsupported format character '") + type + "'");
    }
    return integer(value, type, spec);
  }

  std::string integer(const Value& value, char type, Spec spec) {
    const bool decimal = is_one_of(type, "diu");
    if (value.is(Kind::kFloat) && !decimal) {
      fail_value(std::string("%") + type + " format: an integer is required, not float");
    }
    int64_t number = value.as_int();
    if (value.is(Kind::kFloat)) {
      const double d = value.as_double();
      if (!std::isfinite(d)) fail_value("cannot convert float infinity or NaN to integer");
      if (std::fabs(d) >= 9.2e18) fail(Code::kUnsupported, "integer beyond 64 bits");
      number = static_cast<int64_t>(d);
    }
    spec.type = decimal ? 'd' : type;
    const auto raw = static_cast<uint64_t>(number);
    std::string prefix;
    std::string digits = int_digits(number < 0 ? ~raw + 1 : raw, spec, &prefix);
    digits = zero_fill(in_.budget(), digits, std::max<int64_t>(0, spec.precision));
    spec.zero = false;
    return place(in_, sign_text(number < 0, spec) + prefix, digits, spec, '>');
  }

  std::string character(const Value& value, Spec spec) {
    std::string text;
    if (value.is_string() && value.string_data().chars == 1) {
      text = value.str();
    } else if (value.is_integral() && value.as_int() >= 0 && value.as_int() <= 0x10FFFF) {
      append_char(text, static_cast<char32_t>(value.as_int()));
    } else {
      fail_value("%c requires int or char");
    }
    spec.zero = false;
    return place(in_, "", text, spec, '>');
  }

  Interp& in_;
  const std::string& format_;
  const Value& value_;
  size_t pos_ = 0;
  size_t used_ = 0;
};

}  // namespace

std::string format_percent(Interp& in, const std::string& format, const Value& value) {
  return PercentFormatter(in, format, value).run();
}

std::string format_braces(Interp& in, const std::string& format, const Args& args) {
  return BraceFormatter(in, args).run(format, 2);
}

}  // namespace isthmus::jinja
