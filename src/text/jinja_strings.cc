#include "text/jinja_strings.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "text/jinja_unicode.h"

namespace isthmus::jinja {
namespace {

/// Start of the character that ends at byte `end` (> 0).
size_t previous_char(std::string_view text, size_t end) {
  size_t start = end - 1;
  while (start > 0 && end - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0U) == 0x80U) --start;
  return start + char_bytes(text, start) == end ? start : end - 1;
}

bool has_char(std::string_view chars, std::string_view wanted) {
  for (size_t i = 0; i < chars.size();) {
    const size_t n = char_bytes(chars, i);
    if (chars.substr(i, n) == wanted) return true;
    i += n;
  }
  return false;
}

bool is_stripped(std::string_view one, const std::optional<std::string_view>& chars) {
  if (chars) return has_char(*chars, one);
  size_t pos = 0;
  return is_space(next_char(one, pos));
}

std::vector<std::string_view> split_space(Budget& budget, std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  std::string_view rest = strip_left(text);
  while (!rest.empty()) {
    budget.charge();
    if (limit >= 0 && static_cast<int64_t>(parts.size()) >= limit) {
      parts.push_back(rest);
      break;
    }
    size_t end = 0;
    while (end < rest.size()) {
      size_t next = end;
      if (is_space(next_char(rest, next))) break;
      end = next;
    }
    parts.push_back(rest.substr(0, end));
    rest = strip_left(rest.substr(end));
  }
  return parts;
}

std::vector<std::string_view> rsplit_space(Budget& budget, std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  std::string_view rest = strip_right(text);
  while (!rest.empty()) {
    budget.charge();
    if (limit >= 0 && static_cast<int64_t>(parts.size()) >= limit) {
      parts.push_back(rest);
      break;
    }
    size_t start = rest.size();
    while (start > 0) {
      const size_t before = previous_char(rest, start);
      size_t pos = before;
      if (is_space(next_char(rest, pos))) break;
      start = before;
    }
    parts.push_back(rest.substr(start));
    rest = strip_right(rest.substr(0, start));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (needle.empty()) return from <= text.size() ? from : std::string_view::npos;
  if (from >= text.size()) return std::string_view::npos;
  // memmem is the two-way algorithm: no quadratic case.
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t find_last_text(Budget& budget, std::string_view text, std::string_view needle) {
  budget.charge(needle.size() / kBytesPerStep * text.size() / kBytesPerStep);
  return text.rfind(needle);
}

std::string_view strip(std::string_view text, std::optional<std::string_view> chars, Side side) {
  if (side != Side::kRight) {
    size_t i = 0;
    while (i < text.size() && is_stripped(text.substr(i, char_bytes(text, i)), chars)) {
      i += char_bytes(text, i);
    }
    text.remove_prefix(i);
  }
  if (side != Side::kLeft) {
    size_t end = text.size();
    while (end > 0) {
      const size_t start = previous_char(text, end);
      if (!is_stripped(text.substr(start, end - start), chars)) break;
      end = start;
    }
    text = text.substr(0, end);
  }
  return text;
}

std::vector<std::string_view> split(Budget& budget, std::string_view text,
                                    std::optional<std::string_view> separator, int64_t limit,
                                    bool from_right) {
  if (!separator) return from_right ? rsplit_space(budget, text, limit) : split_space(budget, text, limit);
  if (separator->empty()) fail_value("empty separator");
  std::vector<std::string_view> parts;
  const auto full = [&] { return limit >= 0 && static_cast<int64_t>(parts.size()) >= limit; };
  if (!from_right) {
    size_t begin = 0;
    for (size_t at = find_text(text, *separator); at != std::string_view::npos && !full();
         at = find_text(text, *separator, begin)) {
      budget.charge();
      parts.push_back(text.substr(begin, at - begin));
      begin = at + separator->size();
    }
    parts.push_back(text.substr(begin));
    return parts;
  }
  for (size_t at = find_last_text(budget, text, *separator); at != std::string_view::npos && !full();
       at = find_last_text(budget, text, *separator)) {
    budget.charge();
    parts.push_back(text.substr(at + separator->size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(Budget& budget, std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t at = i;
    const char32_t c = next_char(text, i);
    if (!is_line_break(c)) continue;
    if (c == '\r' && i < text.size() && text[i] == '\n') ++i;
    budget.charge();
    lines.push_back(text.substr(begin, (keep_ends ? i : at) - begin));
    begin = i;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string replace(Budget& budget, std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit) {
  Sink sink(budget);
  int64_t done = 0;
  if (from.empty()) {  // fits before every character and at the end
    size_t i = 0;
    while (limit < 0 || done < limit) {
      sink.put(to);
      ++done;
      if (i >= text.size()) return sink.take();
      const size_t n = char_bytes(text, i);
      sink.put(text.substr(i, n));
      i += n;
    }
    sink.put(text.substr(i));
    return sink.take();
  }
  size_t begin = 0;
  while (limit < 0 || done < limit) {
    const size_t at = find_text(text, from, begin);
    if (at == std::string_view::npos) break;
    sink.put(text.substr(begin, at - begin));
    sink.put(to);
    begin = at + from.size();
    ++done;
  }
  sink.put(text.substr(begin));
  return sink.take();
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  const size_t n = char_bytes(text, 0);
  std::string first = upper(text.substr(0, n));
  if (count_chars(first) > 1) {  // "ß" gives "Ss"
    const size_t head = char_bytes(first, 0);
    first = first.substr(0, head) + lower(std::string_view(first).substr(head));
  }
  // Lowered with the text before it, which decides the form of a final sigma.
  return first + lower(text).substr(lower(text.substr(0, n)).size());
}

std::string title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const char32_t c = next_char(text, i);
    const std::string_view one = text.substr(start, i - start);
    if (in_word) {
      append_lower(out, text, start);
    } else {
      out += capitalize(one);
    }
    in_word = is_upper(c) || is_lower(c) || to_upper(c) != c || to_lower(c) != c;
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t start = i;
    const char32_t c = next_char(text, i);
    const std::string_view one = text.substr(start, i - start);
    if (is_upper(c)) {
      append_lower(out, text, start);
    } else {
      out += is_lower(c) ? upper(one) : std::string(one);
    }
  }
  return out;
}

std::string pad(Budget& budget, std::string_view text, int64_t width, std::string_view fill, Side side) {
  if (count_chars(fill) != 1) fail_value("the fill character must be exactly one character long");
  const auto size = static_cast<int64_t>(count_chars(text));
  if (width <= size) return std::string(text);
  const auto missing = static_cast<uint64_t>(width - size);
  budget.check_size(missing);
  budget.charge_bytes(text.size() + missing * fill.size());
  uint64_t left = 0;
  if (side == Side::kLeft) left = missing;
  // Python puts the odd one left when the width is odd.
  if (side == Side::kBoth) left = missing / 2 + (missing & static_cast<uint64_t>(width) & 1U);
  std::string out;
  for (uint64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (uint64_t i = left; i < missing; ++i) out += fill;
  return out;
}

std::string zero_fill(Budget& budget, std::string_view text, int64_t width) {
  std::string out = pad(budget, text, width, "0", Side::kLeft);
  const size_t zeros = out.size() - text.size();
  if (zeros > 0 && !text.empty() && (text[0] == '+' || text[0] == '-')) std::swap(out[0], out[zeros]);
  return out;
}

std::string expand_tabs(Budget& budget, std::string_view text, int64_t size) {
  Sink sink(budget);
  int64_t column = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t n = char_bytes(text, i);
    const char c = text[i];
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      budget.check_size(static_cast<uint64_t>(spaces));
      sink.put(std::string(static_cast<size_t>(spaces), ' '));
      column += spaces;
    } else {
      sink.put(text.substr(i, n));
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    i += n;
  }
  return sink.take();
}

int64_t count_of(std::string_view text, std::string_view needle) {
  if (needle.empty()) return static_cast<int64_t>(count_chars(text)) + 1;
  int64_t n = 0;
  for (size_t at = find_text(text, needle); at != std::string_view::npos;
       at = find_text(text, needle, at + needle.size())) {
    ++n;
  }
  return n;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::optional<int64_t> parse_int(std::string_view text, int64_t base) {
  text = strip(text, std::nullopt, Side::kBoth);
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  int64_t prefix_base = 0;
  if (text.size() > 1 && text[0] == '0') {
    const char c = static_cast<char>(text[1] | 0x20);
    prefix_base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
  }
  if (prefix_base != 0 && (base == prefix_base || base == 0)) {
    base = prefix_base;
    text.remove_prefix(2);
    if (!text.empty() && text[0] == '_') text.remove_prefix(1);
  } else if (base == 0) {
    base = 10;
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos)
      return {};
  }
  if (base < 2 || base > 36) fail_value("int() base must be >= 2 and <= 36, or 0");
  std::string digits = negative ? "-" : "";
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
    } else if (i == 0 || i + 1 == text.size() || text[i - 1] == '_') {
      return std::nullopt;
    }
  }
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, value, static_cast<int>(base));
  if (parsed.ec == std::errc::result_out_of_range && parsed.ptr == end) {
    fail(Code::kUnsupported, "integer beyond 64 bits");
  }
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

std::optional<double> parse_float(std::string_view text) {
  text = strip(text, std::nullopt, Side::kBoth);
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t k) { return k < text.size() && text[k] >= '0' && text[k] <= '9'; };
    if (text[i] == '_') {
      if (i == 0 || !digit(i - 1) || !digit(i + 1)) return std::nullopt;
      continue;
    }
    // strtod also reads hexadecimal floats and nan(…), which Python does not.
    if (text[i] == 'x' || text[i] == 'X' || text[i] == '(' || text[i] == '\0') return std::nullopt;
    digits += text[i];
  }
  if (digits.empty()) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  if (end != digits.c_str() + digits.size()) return std::nullopt;
  return value;
}

}  // namespace isthmus::jinja
