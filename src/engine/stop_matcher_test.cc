#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace isthmus {
namespace {

TEST(StopMatcher, FindsAStopAcrossPieces) {
  StopMatcher m({"</end>"});
  EXPECT_EQ(m.push("one <"), "one ");
  EXPECT_EQ(m.push("/e"), "");
  EXPECT_EQ(m.push("nd> two"), "");
  EXPECT_TRUE(m.matched());
  EXPECT_EQ(m.match(), "</end>");
  EXPECT_EQ(m.push("three"), "");
  EXPECT_EQ(m.finish(), "");
}

TEST(StopMatcher, ReleasesWhatCannotMatchAnyMore) {
  StopMatcher m({"abc"});
  EXPECT_EQ(m.push("xab"), "x");
  EXPECT_EQ(m.push("abd"), "ababd");
  EXPECT_EQ(m.push("ab"), "");
  EXPECT_EQ(m.finish(), "ab");
}

TEST(StopMatcher, TheEarliestThenLongestWins) {
  StopMatcher m({"b", "ab", "abc"});
  EXPECT_EQ(m.push("xabc"), "x");
  EXPECT_EQ(m.match(), "abc");
}

TEST(StopMatcher, NoStopsMeansNoDelay) {
  StopMatcher m({""});
  EXPECT_EQ(m.push("abc"), "abc");
}

TEST(StopMatcher, AnySplitGivesTheSameText) {
  Rng rng(7);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 30; ++i) text += static_cast<char>('a' + rng.below(3));
    const std::string stop = text.substr(rng.below(28), 1 + rng.below(3));
    const std::string expected = text.substr(0, text.find(stop));
    StopMatcher m({stop});
    std::string got;
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + rng.below(4);
      got += m.push(std::string_view(text).substr(at, n));
      at += n;
    }
    got += m.finish();
    ASSERT_EQ(got, expected);
  }
}

}  // namespace
}  // namespace isthmus
