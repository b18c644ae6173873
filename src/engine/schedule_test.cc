#include "engine/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/rng.h"

namespace isthmus {
namespace {

using std::chrono::seconds;

TEST(Schedule, WaitingRaisesALevelAtATime) {
  EXPECT_EQ(aged_level(Priority::kBatch, seconds(0), seconds(10)), 2U);
  EXPECT_EQ(aged_level(Priority::kBatch, seconds(9), seconds(10)), 2U);
  EXPECT_EQ(aged_level(Priority::kBatch, seconds(10), seconds(10)), 1U);
  EXPECT_EQ(aged_level(Priority::kBatch, seconds(20), seconds(10)), 0U);
  EXPECT_EQ(aged_level(Priority::kBatch, seconds(1000), seconds(10)), 0U);
  EXPECT_EQ(aged_level(Priority::kInteractive, seconds(1000), seconds(10)), 0U);
  EXPECT_EQ(aged_level(Priority::kBackground, seconds(-5), seconds(10)), 1U);
  EXPECT_EQ(aged_level(Priority::kBatch, seconds(1000), seconds(0)), 2U);
}

TEST(Schedule, ALevelComesBeforeArrival) {
  EXPECT_LT((Rank{0, 9}), (Rank{1, 2}));
  EXPECT_LT((Rank{1, 2}), (Rank{1, 3}));
}

std::vector<size_t> shares_of(const std::vector<size_t>& wanted, size_t budget) {
  std::vector<size_t> shares;
  share_budget(wanted, budget, shares);
  return shares;
}

TEST(Schedule, AQuarterIsSharedEvenlyTheRestByRank) {
  EXPECT_EQ(shares_of({500, 500}, 64), (std::vector<size_t>{56, 8}));
  EXPECT_EQ(shares_of({500, 4}, 64), (std::vector<size_t>{60, 4}));
  EXPECT_EQ(shares_of({10, 500, 500}, 64), (std::vector<size_t>{10, 48, 6}));
  EXPECT_EQ(shares_of({500, 500}, 1), (std::vector<size_t>{1, 0}));
  EXPECT_EQ(shares_of({500}, 0), (std::vector<size_t>{0}));
  EXPECT_EQ(shares_of({}, 64), (std::vector<size_t>{}));
}

TEST(Schedule, NothingOfTheBudgetIsLeftWhileSomebodyWantsIt) {
  Rng rng(4);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<size_t> wanted(1 + rng.below(10));
    for (auto& n : wanted) n = 1 + rng.below(100);
    const size_t budget = 1 + rng.below(300);
    const auto shares = shares_of(wanted, budget);
    const auto sum = std::accumulate(shares.begin(), shares.end(), size_t{0});
    EXPECT_EQ(sum, std::min(budget, std::accumulate(wanted.begin(), wanted.end(), size_t{0})));
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_LE(shares[i], wanted[i]);
    EXPECT_GT(shares[0], 0U);
  }
}

}  // namespace
}  // namespace isthmus
