// UTF-8 in small steps: reading one character from untrusted bytes, and mending text.
//
// No function reads outside the view it is given, allocates (except utf8_mend) or fails: bytes that are not
// UTF-8 (overlong forms, surrogates, code points above U+10FFFF, cut or stray bytes) are reported as such.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace isthmus::tok {

constexpr uint32_t kReplacement = 0xFFFD;

/// One character: its code point and length in bytes (1-4). An invalid byte is U+FFFD of length 1, and
/// `valid` is false.
struct Utf8Char {
  uint32_t code_point;
  uint32_t length;
  bool valid;
};

/// The character at `pos` (< text.size()).
Utf8Char utf8_at(std::string_view text, size_t pos);

/// Appends the UTF-8 form of a code point (<= U+10FFFF) to `out`.
void utf8_append(uint32_t code_point, std::string& out);

/// Appends `text` to `out`, each maximal ill-formed part replaced by one U+FFFD (Unicode 15.1, section 3.9,
/// "Substitution of Maximal Subparts"). Unless `last`, a character that may still become valid at the end of
/// `text` is left out. Returns how many bytes of `text` were used.
size_t utf8_mend(std::string_view text, bool last, std::string& out);

}  // namespace isthmus::tok
