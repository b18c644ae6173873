#include "base/crc32.h"

#include <gtest/gtest.h>

#include <string_view>

namespace isthmus {
namespace {

uint32_t crc_of(std::string_view text, uint32_t before = 0) {
  return crc32(std::as_bytes(std::span(text.data(), text.size())), before);
}

TEST(Crc32, KnownValues) {
  EXPECT_EQ(crc_of(""), 0u);
  EXPECT_EQ(crc_of("a"), 0xE8B7BE43u);
  EXPECT_EQ(crc_of("123456789"), 0xCBF43926u);  // the check value of the CRC catalogue
  EXPECT_EQ(crc_of("The quick brown fox jumps over the lazy dog"), 0x414FA339u);
}

TEST(Crc32, GoesOnFromAnySplit) {
  const std::string_view text = "The quick brown fox jumps over the lazy dog";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(crc_of(text.substr(cut), crc_of(text.substr(0, cut))), 0x414FA339u) << cut;
  }
}

}  // namespace
}  // namespace isthmus
