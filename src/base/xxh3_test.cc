#include "base/xxh3.h"

#include <gtest/gtest.h>

#include <string_view>

namespace isthmus {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Xxh3, GivesThePublishedValues) {
  // The values of the specification for the empty input, seed 0.
  EXPECT_EQ(xxh3_64({}), 0x2D06800538D394C2U);
  EXPECT_EQ(xxh3_128({}), (Xxh3Digest{0x6001C324468D497FU, 0x99AA06D3014798D8U}));
}

TEST(Xxh3, NoticesEveryFlippedBit) {
  std::string text(300, 'x');
  const uint64_t whole = xxh3_64(bytes_of(text));
  for (size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      text[i] = static_cast<char>('x' ^ (1 << bit));
      EXPECT_NE(xxh3_64(bytes_of(text)), whole) << i << " " << bit;
    }
    text[i] = 'x';
  }
}

}  // namespace
}  // namespace isthmus
