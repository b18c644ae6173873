#include "base/suggest.h"

#include <gtest/gtest.h>

namespace isthmus {
namespace {

const std::vector<std::string> kVerbs = {"bench",    "chat", "eval", "list",    "pull",
                                         "quantize", "run",  "show", "tokenize"};

TEST(EditDistance, CountsEachKindOfEditOnce) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("chat", "chat"), 0u);
  EXPECT_EQ(edit_distance("chat", "CHAT"), 0u);
  EXPECT_EQ(edit_distance("chat", "chart"), 1u);
  EXPECT_EQ(edit_distance("chat", "cat"), 1u);
  EXPECT_EQ(edit_distance("chat", "chut"), 1u);
  EXPECT_EQ(edit_distance("chat", "hcat"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(Suggest, FindsTheNearestFirst) {
  EXPECT_EQ(suggest("tokenise", kVerbs), std::vector<std::string>{"tokenize"});
  EXPECT_EQ(suggest("rnu", kVerbs), std::vector<std::string>{"run"});
  EXPECT_EQ(suggest("quant", kVerbs), std::vector<std::string>{"quantize"});
  EXPECT_EQ(suggest("lits", kVerbs), std::vector<std::string>{"list"});
}

TEST(Suggest, PunctuationIsAMatterOfTaste) {
  const std::vector<std::string> types = {"Q4_0", "Q4_K_M", "Q4_K_S"};
  EXPECT_EQ(suggest("q4km", types), std::vector<std::string>{"Q4_K_M"});
  EXPECT_TRUE(suggest("--", std::vector<std::string>{"_", ".:"}).empty());
}

TEST(Suggest, SaysNothingRatherThanNonsense) {
  EXPECT_TRUE(suggest("frobnicate", kVerbs).empty());
  EXPECT_TRUE(suggest("", kVerbs).empty());
  EXPECT_TRUE(suggest("x", std::vector<std::string>{"y"}).empty());
  EXPECT_TRUE(suggest(std::string(300, 'a'), kVerbs).empty());
}

TEST(Suggest, RespectsTheLimit) {
  const std::vector<std::string> alike = {"aaab", "aaac", "aaad", "aaae"};
  EXPECT_EQ(suggest("aaaa", alike, 2).size(), 2u);
}

TEST(DidYouMean, ReadsAsAClause) {
  EXPECT_EQ(did_you_mean("chta", kVerbs), "; did you mean 'chat'?");
  EXPECT_EQ(did_you_mean("zzz", kVerbs), "");
  const std::vector<std::string> alike = {"aaab", "aaac", "aaad"};
  EXPECT_EQ(did_you_mean("aaaa", alike), "; did you mean 'aaab', 'aaac' or 'aaad'?");
}

}  // namespace
}  // namespace isthmus
