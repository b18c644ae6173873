#include "base/status.h"

#include <gtest/gtest.h>

#include "base/byte_reader.h"
#include "base/checked.h"

namespace isthmus {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) return invalid_argument("odd: " + std::to_string(x));
  return x / 2;
}

Result<int> quarter(int x) {
  ISTHMUS_ASSIGN_OR_RETURN(const int h, half(x));
  return half(h);
}

TEST(Status, OkIsEmptyAndErrorsCarryTheirText) {
  EXPECT_TRUE(ok_status().ok());
  EXPECT_EQ(ok_status().to_string(), "ok");
  const Status s = not_found("no key 'a'").with_context("file x");
  EXPECT_EQ(s.code(), Code::kNotFound);
  EXPECT_EQ(s.to_string(), "not_found: file x: no key 'a'");
  EXPECT_EQ(s.with_context("file x").message(), s.message());  // named once, however many layers know it
}

TEST(Result, MacrosPassErrorsUp) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).status().message(), "odd: 3");
}

TEST(Checked, WrapsAreSeen) {
  EXPECT_FALSE(checked_add<uint64_t>(UINT64_MAX, 1));
  EXPECT_FALSE(checked_mul<uint64_t>(1ULL << 33, 1ULL << 33));
  EXPECT_FALSE((checked_cast<uint32_t, uint64_t>(1ULL << 32)));
  EXPECT_FALSE((checked_cast<uint32_t, int64_t>(-1)));
  EXPECT_EQ(checked_round_up<uint64_t>(33, 32), 64U);
  EXPECT_FALSE(checked_round_up<uint64_t>(UINT64_MAX, 32));
}

TEST(ByteReader, NeverPassesTheEnd) {
  const std::byte raw[5] = {std::byte{1}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{7}};
  ByteReader reader(raw);
  EXPECT_EQ(reader.read<uint32_t>(), 1U);
  EXPECT_FALSE(reader.read<uint16_t>());
  EXPECT_EQ(reader.offset(), 4U);
  EXPECT_FALSE(reader.take(UINT64_MAX));
  EXPECT_EQ(reader.read<uint8_t>(), 7);
  EXPECT_TRUE(reader.at_end());
  EXPECT_FALSE(reader.seek(6));
}

}  // namespace
}  // namespace isthmus
