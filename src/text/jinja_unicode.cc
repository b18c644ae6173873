#include "text/jinja_unicode.h"

#include <algorithm>
#include <iterator>

#include "text/jinja_unicode_tables.h"

namespace isthmus::jinja {
namespace {

constexpr char32_t kRawByte = 0xDC00;

unsigned byte_at(std::string_view text, size_t i) { return static_cast<unsigned char>(text[i]); }

bool is_continuation(std::string_view text, size_t i) {
  return i < text.size() && (byte_at(text, i) & 0xC0U) == 0x80U;
}

template <size_t N>
bool in_ranges(const CharRange (&ranges)[N], char32_t c) {
  const auto it = std::upper_bound(std::begin(ranges), std::end(ranges), c,
                                   [](char32_t value, const CharRange& r) { return value < r.first; });
  return it != std::begin(ranges) && c <= std::prev(it)->last;
}

template <size_t N>
char32_t map_case(const CaseRun (&runs)[N], char32_t c) {
  const auto it = std::upper_bound(std::begin(runs), std::end(runs), c,
                                   [](char32_t value, const CaseRun& r) { return value < r.first; });
  if (it == std::begin(runs)) return c;
  const CaseRun& run = *std::prev(it);
  if (c > run.last || (c - run.first) % run.step != 0) return c;
  return static_cast<char32_t>(static_cast<int32_t>(c) + run.delta);
}

template <size_t N>
const char* special_case(const CaseSpecial (&specials)[N], char32_t c) {
  const auto it = std::lower_bound(std::begin(specials), std::end(specials), c,
                                   [](const CaseSpecial& s, char32_t value) { return s.from < value; });
  return it != std::end(specials) && it->from == c ? it->to : nullptr;
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || to_upper(c) != c || to_lower(c) != c; }

/// "Σ" at the end of a word becomes "ς": a letter stands before it and none after.
bool ends_word(std::string_view text, size_t before, size_t after) {
  size_t i = before;
  while (i > 0) {
    --i;
    while (i > 0 && is_continuation(text, i)) --i;
    size_t pos = i;
    const char32_t c = next_char(text, pos);
    if (c == '\'' || c == 0xAD || c == 0x2019) continue;
    if (!is_cased(c)) return false;
    size_t next = after;
    return next >= text.size() || !is_cased(next_char(text, next));
  }
  return false;
}

}  // namespace

size_t char_bytes(std::string_view text, size_t pos) {
  const unsigned first = byte_at(text, pos);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 1;
  for (size_t i = 1; i < size; ++i) {
    if (!is_continuation(text, pos + i)) return 1;
  }
  const unsigned second = byte_at(text, pos + 1);
  const bool bad = (first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) ||
                   (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90);
  return bad ? 1 : size;
}

char32_t next_char(std::string_view text, size_t& pos) {
  const size_t size = char_bytes(text, pos);
  const unsigned first = byte_at(text, pos);
  char32_t c = first;
  if (size == 1) {
    if (first >= 0x80) c = kRawByte + first;
  } else {
    c = first & (0xFFU >> (size + 1));
    for (size_t i = 1; i < size; ++i) c = (c << 6U) | (byte_at(text, pos + i) & 0x3FU);
  }
  pos += size;
  return c;
}

void append_char(std::string& out, char32_t c) {
  const auto put = [&out](char32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0U | (c >> 6U));
    put(0x80U | (c & 0x3FU));
  } else if (c >= kRawByte + 0x80 && c <= kRawByte + 0xFF) {
    put(c - kRawByte);
  } else if (c < 0x10000) {
    put(0xE0U | (c >> 12U));
    put(0x80U | ((c >> 6U) & 0x3FU));
    put(0x80U | (c & 0x3FU));
  } else {
    put(0xF0U | (c >> 18U));
    put(0x80U | ((c >> 12U) & 0x3FU));
    put(0x80U | ((c >> 6U) & 0x3FU));
    put(0x80U | (c & 0x3FU));
  }
}

size_t count_chars(std::string_view text) {
  size_t n = 0;
  for (size_t i = 0; i < text.size(); ++n) i += char_bytes(text, i);
  return n;
}

size_t byte_of_char(std::string_view text, size_t index) {
  size_t i = 0;
  for (size_t n = 0; n < index && i < text.size(); ++n) i += char_bytes(text, i);
  return i;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_digit(char32_t c) { return in_ranges(kDigitRanges, c); }
bool is_decimal(char32_t c) { return in_ranges(kDecimalRanges, c); }
bool is_numeric(char32_t c) { return in_ranges(kNumericRanges, c); }
bool is_alpha(char32_t c) { return in_ranges(kAlphaRanges, c); }
bool is_upper(char32_t c) { return in_ranges(kUpperRanges, c); }
bool is_lower(char32_t c) { return in_ranges(kLowerRanges, c); }
bool is_printable(char32_t c) { return !(c >= 0xD800 && c < 0xE000) && !in_ranges(kUnprintableRanges, c); }
bool is_word(char32_t c) { return c == '_' || is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c); }

char32_t to_upper(char32_t c) { return map_case(kToUpper, c); }
char32_t to_lower(char32_t c) { return map_case(kToLower, c); }

std::string upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_char(text, i);
    if (const char* special = c < 0x80 ? nullptr : special_case(kUpperSpecial, c)) {
      out += special;
    } else {
      append_char(out, to_upper(c));
    }
  }
  return out;
}

void append_lower(std::string& out, std::string_view text, size_t pos) {
  const size_t start = pos;
  const char32_t c = next_char(text, pos);
  if (c == 0x3A3) {
    append_char(out, ends_word(text, start, pos) ? 0x3C2 : 0x3C3);
  } else if (const char* special = c < 0x80 ? nullptr : special_case(kLowerSpecial, c)) {
    out += special;
  } else {
    append_char(out, to_lower(c));
  }
}

std::string lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); i += char_bytes(text, i)) append_lower(out, text, i);
  return out;
}

std::string_view strip_left(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    size_t next = i;
    if (!is_space(next_char(text, next))) break;
    i = next;
  }
  return text.substr(i);
}

std::string_view strip_right(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t start = end - 1;
    while (start > 0 && end - start < 4 && is_continuation(text, start)) --start;
    if (start + char_bytes(text, start) != end) start = end - 1;
    size_t pos = start;
    if (!is_space(next_char(text, pos))) break;
    end = start;
  }
  return text.substr(0, end);
}

}  // namespace isthmus::jinja
