#include "model/head_choice.h"

#include <gtest/gtest.h>

namespace isthmus {
namespace {

/// Runs steps that take `full` or `two` seconds; how many of them went in two stages.
size_t run(HeadPolicy& policy, size_t steps, double full, double two) {
  size_t count = 0;
  for (size_t i = 0; i < steps; ++i) {
    if (policy.two_stage()) {
      policy.note_two_stage(two, 0.05, false);
      ++count;
    } else {
      policy.note_full(full);
    }
  }
  return count;
}

TEST(HeadPolicy, BeginsWithFullStepsThenStaysWithWhatIsFaster) {
  HeadPolicy policy;
  EXPECT_EQ(run(policy, 2, 2.0, 1.0), 0U);
  EXPECT_EQ(run(policy, 1000, 2.0, 1.0), 993U);  // a full one behind every 128
  EXPECT_EQ(policy.figures().pauses, 0U);
  EXPECT_DOUBLE_EQ(policy.figures().full_seconds, 2.0);
  EXPECT_DOUBLE_EQ(policy.figures().two_stage_seconds, 1.0);
  EXPECT_NEAR(policy.figures().touched, 0.05 * 993, 1e-9);
}

TEST(HeadPolicy, GivesUpWhatIsSlowerAndTriesAgain) {
  HeadPolicy policy;
  EXPECT_EQ(run(policy, 2 + 1000, 1.0, 1.1), 8U * 8);  // 8 of each 136
  EXPECT_EQ(policy.figures().pauses, 8U);
  HeadPolicy later;
  run(later, 40, 1.0, 1.1);
  EXPECT_EQ(later.figures().pauses, 1U);
  EXPECT_GT(run(later, 1000, 1.0, 0.5), 850U);
}

}  // namespace
}  // namespace isthmus
