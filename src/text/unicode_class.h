// The class of a character as far as pre-tokenizers ask: letter, number, white space, punctuation, or other.
//
// Unicode 15.1 general categories L, N and P, and the property White_Space. The table is built from
// unicode_ranges.inc on first use and never changes; it may be read from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace isthmus::tok {

enum class CharClass : uint8_t { kOther = 0, kLetter = 1, kNumber = 2, kSpace = 3, kPunctuation = 4 };

class UnicodeTable {
 public:
  static const UnicodeTable& get();

  /// Any value is accepted; those above U+10FFFF are kOther.
  CharClass of(uint32_t code_point) const {
    if (code_point >= 0x110000) return CharClass::kOther;
    return pages_[static_cast<size_t>(page_of_[code_point >> 8]) << 8 | (code_point & 0xFF)];
  }

 private:
  UnicodeTable();
  std::array<uint16_t, 0x1100> page_of_{};
  std::vector<CharClass> pages_;  // pages of 256 characters; equal pages of one class are stored once
};

}  // namespace isthmus::tok
