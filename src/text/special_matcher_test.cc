#include "text/special_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/rng.h"

namespace isthmus::tok {
namespace {

using Spelling = SpecialMatcher::Spelling;

std::string show(const std::vector<Fragment>& fragments, std::string_view text) {
  std::string out;
  for (const auto& f : fragments) {
    if (f.id >= 0) {
      out.append("<").append(std::to_string(f.id)).append(">");
    } else {
      out.append("[").append(text.substr(f.begin, f.end - f.begin)).append("]");
    }
  }
  return out;
}

std::string split(std::vector<Spelling> spellings, std::string_view text) {
  return show(SpecialMatcher(std::move(spellings)).split(text), text);
}

// What the class must give, in the plainest way: each spelling in turn cuts every stretch of text that is
// left.
std::vector<Fragment> split_plainly(std::vector<Spelling> spellings, std::string_view text) {
  std::stable_sort(spellings.begin(), spellings.end(), [](const Spelling& a, const Spelling& b) {
    return a.text.size() != b.text.size() ? a.text.size() > b.text.size() : a.id < b.id;
  });
  std::vector<Fragment> parts;
  if (!text.empty()) parts.push_back({0, text.size(), -1});
  for (const auto& spelling : spellings) {
    std::vector<Fragment> next;
    for (const auto& part : parts) {
      size_t from = part.begin;
      while (part.id < 0) {
        const size_t at = text.substr(0, part.end).find(spelling.text, from);
        if (at == std::string_view::npos) break;
        if (at > from) next.push_back({from, at, -1});
        from = at + spelling.text.size();
        while (spelling.strips_right && from < part.end && text[from] == ' ') ++from;
        next.push_back({at, from, spelling.id});
      }
      if (part.id >= 0) next.push_back(part);
      if (part.id < 0 && from < part.end) next.push_back({from, part.end, -1});
    }
    parts = std::move(next);
  }
  return parts;
}

TEST(SpecialMatcher, LongestSpellingWinsOverTheLeftmost) {
  EXPECT_EQ(split({{"abc", 1, false}, {"bcde", 2, false}}, "abcde"), "[a]<2>");
  EXPECT_EQ(split({{"abc", 1, false}, {"bcde", 2, false}}, "abcd"), "<1>[d]");
  EXPECT_EQ(split({{"ab", 1, false}, {"bc", 2, false}}, "abc"), "<1>[c]");
  EXPECT_EQ(split({{"ab", 2, false}, {"bc", 1, false}}, "abc"), "[a]<1>");
}

TEST(SpecialMatcher, ShorterSpellingsFillWhatIsLeft) {
  EXPECT_EQ(split({{"\n", 1, false}, {"\n\n", 2, false}, {"\n\n\n", 3, false}}, "\n\n\n\n\n x"),
            "<3><2>[ x]");
  EXPECT_EQ(split({{"xy", 1, false}, {"x", 2, false}, {"yzzz", 3, false}}, "xyzzz"), "<2><3>");
}

TEST(SpecialMatcher, StrippedSpaceIsInNoFragment) {
  EXPECT_EQ(split({{"<e>", 1, true}}, "a<e> \n\tb <e>"), "[a]<1>[b ]<1>");
  EXPECT_EQ(split({{"<e>", 1, true}, {" ", 2, false}}, "<e> x y"), "<1>[x]<2>[y]");
}

TEST(SpecialMatcher, NothingToFind) {
  EXPECT_EQ(split({}, "abc"), "[abc]");
  EXPECT_EQ(split({{"x", 1, false}}, "abc"), "[abc]");
  EXPECT_EQ(split({{"x", 1, false}}, ""), "");
}

TEST(SpecialMatcher, EqualsThePlainAlgorithm) {
  Rng rng(3);
  const auto random_text = [&](size_t most) {
    std::string out;
    for (size_t i = 1 + rng.below(most); i > 0; --i) out += "ab c"[rng.below(4)];
    return out;
  };
  for (int turn = 0; turn < 4000; ++turn) {
    std::vector<std::string> texts;
    for (size_t i = rng.below(7); i > 0; --i) texts.push_back(random_text(5));
    std::sort(texts.begin(), texts.end());
    texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
    std::vector<Spelling> spellings;
    for (const auto& text : texts) {
      spellings.push_back(
          {text, static_cast<TokenId>(rng.below(1000) * 8 + spellings.size()), rng.below(4) == 0});
    }
    const std::string text = random_text(40);
    ASSERT_EQ(split(spellings, text), show(split_plainly(spellings, text), text)) << text;
  }
}

}  // namespace
}  // namespace isthmus::tok
