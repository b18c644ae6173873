#include "engine/suffix_automaton.h"

#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"
#include "engine/lookup_proposer.h"

namespace isthmus {
namespace {

using Text = std::vector<TokenId>;

/// The slow, clear version: every earlier place is compared.
SuffixAutomaton::Match longest_repeat(const Text& text, size_t n) {
  SuffixAutomaton::Match best;
  for (size_t end = 1; end < n; ++end) {
    size_t length = 0;
    while (length < end && text[end - 1 - length] == text[n - 1 - length]) ++length;
    if (length > 0 && length >= best.length) best = {length, end};
  }
  return best;
}

bool stands_at(const Text& text, size_t n, const SuffixAutomaton::Match& match) {
  if (match.end >= n || match.length > match.end) return false;
  return std::equal(text.begin() + static_cast<ptrdiff_t>(n - match.length),
                    text.begin() + static_cast<ptrdiff_t>(n),
                    text.begin() + static_cast<ptrdiff_t>(match.end - match.length));
}

Text random_text(Rng& rng, size_t n, size_t alphabet) {
  Text text(n);
  for (auto& token : text) token = static_cast<TokenId>(rng.below(alphabet));
  return text;
}

Text times(const Text& part, size_t n) {
  Text out;
  for (size_t i = 0; i < n; ++i) out.insert(out.end(), part.begin(), part.end());
  return out;
}

Text operator+(Text a, const Text& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Text fibonacci_word(size_t n) {
  Text a = {0};
  Text b = {0, 1};
  while (b.size() < n) {
    Text next = b + a;
    a = std::move(b);
    b = std::move(next);
  }
  b.resize(n);
  return b;
}

TEST(SuffixAutomaton, AgreesWithComparingEveryPlaceOfRandomTexts) {
  Rng rng(5);
  for (const size_t alphabet : {2, 3, 5, 20, 300}) {
    for (int round = 0; round < 12; ++round) {
      Text text = random_text(rng, 200, alphabet);
      // Copies of earlier parts, as in edited text.
      for (int copy = 0; copy < 3; ++copy) {
        const size_t from = rng.below(150);
        const Text part(text.begin() + static_cast<ptrdiff_t>(from),
                        text.begin() + static_cast<ptrdiff_t>(from + 40));
        text = text + part + random_text(rng, 3, alphabet);
      }
      SuffixAutomaton automaton(text.size());
      for (size_t n = 1; n <= text.size(); ++n) {
        automaton.push(text[n - 1]);
        const auto expected = longest_repeat(text, n);
        ASSERT_EQ(automaton.match().length, expected.length) << "alphabet " << alphabet << ", token " << n;
        if (expected.length == 0) continue;
        ASSERT_EQ(automaton.match().end, expected.end) << "alphabet " << alphabet << ", token " << n;
      }
    }
  }
}

TEST(SuffixAutomaton, FindsTheLongestRepetitionOfAdversarialTexts) {
  Rng rng(6);
  const Text many_a = times({7}, 200);
  const std::vector<Text> texts = {
      many_a,
      many_a + Text{8} + many_a,
      many_a + times({8}, 200) + many_a,
      times({1, 2}, 150),
      times({1, 2, 3, 4, 5, 6, 7}, 60),
      times(times({1}, 20) + Text{2}, 20),
      fibonacci_word(400),
      times(random_text(rng, 100, 50), 4),
      {-1, INT32_MAX, -1, INT32_MAX, INT32_MIN, -1, INT32_MAX},
  };
  for (size_t i = 0; i < texts.size(); ++i) {
    const Text& text = texts[i];
    SuffixAutomaton automaton(text.size());
    for (size_t n = 1; n <= text.size(); ++n) {
      automaton.push(text[n - 1]);
      ASSERT_EQ(automaton.match().length, longest_repeat(text, n).length) << "text " << i << ", token " << n;
      ASSERT_TRUE(stands_at(text, n, automaton.match())) << "text " << i << ", token " << n;
    }
  }
}

TEST(SuffixAutomaton, LongTextsStayWithinTheirBytes) {
  // No text has more edges than abb…bc, none more states than abb…b (Blumer et al. 1985). The vectors of the
  // automaton never grow: an address that changes would show it under the sanitizer, a wrong result here.
  constexpr size_t kTokens = 50'000;
  SuffixAutomaton automaton(kTokens);
  automaton.push(1);
  for (size_t i = 0; i + 2 < kTokens; ++i) automaton.push(2);
  EXPECT_EQ(automaton.match().length, kTokens - 3);
  automaton.push(3);
  EXPECT_EQ(automaton.match().length, 0U);
  EXPECT_EQ(automaton.length(), kTokens);
  EXPECT_LE(SuffixAutomaton::bytes(kTokens), kTokens * 130);
  automaton.clear();
  automaton.push(2);
  EXPECT_EQ(automaton.match().length, 0U);
  automaton.push(2);
  EXPECT_EQ(automaton.match().length, 1U);
}

Text propose(LookupProposer& proposer, size_t n) {
  Text out(n);
  const Draft draft = proposer.propose(out);
  out.resize(draft.tokens);
  return out;
}

TEST(LookupProposer, ContinuesTheMostRecentLongestMatch) {
  LookupProposer proposer(64, 2);
  // "5 6" stands twice before: followed by 1, and, more recently, by 2.
  for (const TokenId token : {5, 6, 1, 9, 5, 6, 2, 3, 8, 5, 6}) proposer.push(token);
  EXPECT_EQ(propose(proposer, 4), (Text{2, 3, 8, 5}));
  EXPECT_EQ(propose(proposer, 0), Text{});
  // A longer match beats a more recent one.
  for (const TokenId token : {0, 9, 5, 6}) proposer.push(token);
  EXPECT_EQ(propose(proposer, 2), (Text{2, 3}));
  proposer.push(77);
  EXPECT_EQ(propose(proposer, 4), Text{});
}

TEST(LookupProposer, ShortMatchesProposeNothing) {
  LookupProposer proposer(64, 3);
  for (const TokenId token : {1, 2, 3, 4, 9, 2, 3}) proposer.push(token);
  EXPECT_EQ(propose(proposer, 2), Text{});
  LookupProposer shorter(64, 2);
  for (const TokenId token : {1, 2, 3, 4, 9, 2, 3}) shorter.push(token);
  EXPECT_EQ(propose(shorter, 2), (Text{4, 9}));
}

TEST(LookupProposer, APeriodGoesOnBeyondTheEndOfTheText) {
  LookupProposer proposer(64, 2);
  for (const TokenId token : {1, 2, 3, 1, 2, 3, 1, 2}) proposer.push(token);
  EXPECT_EQ(propose(proposer, 8), (Text{3, 1, 2, 3, 1, 2, 3, 1}));
}

TEST(LookupProposer, AFullWindowForgetsItsOlderHalf) {
  Rng rng(9);
  constexpr size_t kWindow = 32;
  LookupProposer proposer(kWindow, 2);
  Text held;  // what the window holds, kept the clear way
  for (size_t i = 0; i < 500; ++i) {
    const auto token = static_cast<TokenId>(rng.below(4));
    if (held.size() == kWindow) held.erase(held.begin(), held.begin() + kWindow / 2);
    held.push_back(token);
    proposer.push(token);
    const auto match = longest_repeat(held, held.size());
    Text expected;
    for (size_t k = 0; match.length >= 2 && k < 6; ++k) {
      const size_t at = match.end + k;
      expected.push_back(at < held.size() ? held[at] : expected[at - held.size()]);
    }
    ASSERT_EQ(propose(proposer, 6), expected) << "token " << i;
  }
}

}  // namespace
}  // namespace isthmus
