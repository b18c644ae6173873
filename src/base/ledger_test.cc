#include "base/ledger.h"

#include <gtest/gtest.h>

namespace isthmus {
namespace {

TEST(Ledger, RefusesWhatDoesNotFitAndKeepsItsBooks) {
  Ledger ledger(100);
  auto a = ledger.charge(MemoryKind::kWeights, 60);
  ASSERT_TRUE(a.ok());
  const auto b = ledger.charge(MemoryKind::kKv, 41);
  ASSERT_FALSE(b.ok());
  EXPECT_EQ(b.status().code(), Code::kResourceExhausted);
  EXPECT_NE(b.status().message().find("KV cache need 41 B, but 40 B"), std::string::npos)
      << b.status().message();
  auto c = ledger.charge(MemoryKind::kKv, 40);
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(ledger.used(), 100U);
  EXPECT_EQ(ledger.used(MemoryKind::kKv), 40U);
  Charge moved = std::move(*a);
  moved.reset();
  EXPECT_EQ(ledger.used(), 40U);
  EXPECT_EQ(ledger.peak(), 100U);
}

TEST(Ledger, HugeRequestsDoNotWrap) {
  Ledger ledger(1000);
  EXPECT_FALSE(ledger.charge(MemoryKind::kWork, UINT64_MAX).ok());
  EXPECT_EQ(ledger.used(), 0U);
}

TEST(FormatBytes, UsesDecimalUnits) {
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(98'362'432), "98.4 MB");
  EXPECT_EQ(format_bytes(24'000'000'000), "24.0 GB");
}

}  // namespace
}  // namespace isthmus
