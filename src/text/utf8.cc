#include "text/utf8.h"

#include <algorithm>

namespace isthmus::tok {
namespace {

// What a lead byte asks for: the length of the character and the range of the second byte, which is where
// overlong forms, surrogates and code points above U+10FFFF are told apart (Unicode 15.1, table 3-7).
struct Lead {
  uint32_t length;  // 0: no character starts with this byte
  uint8_t low;
  uint8_t high;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte < 0xF0) {
    return {3, static_cast<uint8_t>(byte == 0xE0 ? 0xA0 : 0x80),
            static_cast<uint8_t>(byte == 0xED ? 0x9F : 0xBF)};
  }
  if (byte < 0xF5) {
    return {4, static_cast<uint8_t>(byte == 0xF0 ? 0x90 : 0x80),
            static_cast<uint8_t>(byte == 0xF4 ? 0x8F : 0xBF)};
  }
  return {0, 0, 0};
}

// How many bytes from `pos` on fit the lead byte's demands: lead.length when the character is whole.
uint32_t fitting_bytes(std::string_view text, size_t pos, const Lead& lead) {
  const auto want = static_cast<uint32_t>(std::min<size_t>(lead.length, text.size() - pos));
  for (uint32_t i = 1; i < want; ++i) {
    const auto byte = static_cast<uint8_t>(text[pos + i]);
    if (byte < (i == 1 ? lead.low : 0x80) || byte > (i == 1 ? lead.high : 0xBF)) return i;
  }
  return want;
}

}  // namespace

Utf8Char utf8_at(std::string_view text, size_t pos) {
  const auto first = static_cast<uint8_t>(text[pos]);
  if (first < 0x80) return {first, 1, true};
  const Lead lead = lead_of(first);
  if (lead.length == 0 || fitting_bytes(text, pos, lead) != lead.length) return {kReplacement, 1, false};
  uint32_t code_point = first & (0x7Fu >> lead.length);
  for (uint32_t i = 1; i < lead.length; ++i) {
    code_point = code_point << 6 | (static_cast<uint8_t>(text[pos + i]) & 0x3Fu);
  }
  return {code_point, lead.length, true};
}

void utf8_append(uint32_t code_point, std::string& out) {
  const auto tail = [&](uint32_t shift) { out += static_cast<char>(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xC0 | code_point >> 6);
    tail(0);
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xE0 | code_point >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | code_point >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

size_t utf8_mend(std::string_view text, bool last, std::string& out) {
  size_t pos = 0;
  while (pos < text.size()) {
    const Lead lead = lead_of(static_cast<uint8_t>(text[pos]));
    if (lead.length == 0) {
      utf8_append(kReplacement, out);
      ++pos;
      continue;
    }
    const uint32_t fit = fitting_bytes(text, pos, lead);
    if (fit == lead.length) {
      out.append(text.substr(pos, fit));
    } else if (!last && pos + fit == text.size()) {
      break;
    } else {
      utf8_append(kReplacement, out);
    }
    pos += fit;
  }
  return pos;
}

}  // namespace isthmus::tok
