#include "ops/kernel_check.h"

#include <gtest/gtest.h>

namespace isthmus {
namespace {

TEST(SelfTest, EveryInstructionSetPassesAndEveryTypeIsChecked) {
  const auto results = self_test_kernels();
  EXPECT_EQ(results.size(), available_isas().size() - 1);
  for (const auto& result : results) {
    EXPECT_GE(result.checks, 16U * 2 * 3 + 5);
    EXPECT_TRUE(result.failures.empty()) << isa_name(result.isa) << ": " << result.failures.front();
  }
}

}  // namespace
}  // namespace isthmus
