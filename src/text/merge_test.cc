#include "text/merge.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/rng.h"

namespace isthmus::tok {
namespace {

using Pairs = std::map<std::pair<TokenId, TokenId>, Joined>;

// Joins the best pair, leftmost of equals, until none is left.
std::vector<TokenId> merge_plainly(std::vector<TokenId> ids, const Pairs& pairs) {
  while (true) {
    size_t best = 0;
    Joined joined{kNoMerge, -1};
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = pairs.find({ids[i], ids[i + 1]});
      if (found != pairs.end() && found->second.rank < joined.rank) {
        best = i;
        joined = found->second;
      }
    }
    if (joined.rank == kNoMerge) return ids;
    ids[best] = joined.id;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(Merger, ShortAndLongWordsEqualThePlainLoop) {
  Rng rng(11);
  Merger merger;
  for (int turn = 0; turn < 600; ++turn) {
    Pairs pairs;  // ranks in no order that a trained vocabulary would have, some equal
    for (int i = 0; i < 25; ++i) {
      pairs[{static_cast<TokenId>(rng.below(8)), static_cast<TokenId>(rng.below(8))}] = {
          static_cast<uint32_t>(rng.below(12)), static_cast<TokenId>(rng.below(8))};
    }
    std::vector<TokenId> ids(rng.below(turn % 2 == 0 ? 40 : 300));
    for (auto& id : ids) id = static_cast<TokenId>(rng.below(8));
    auto& symbols = merger.symbols();
    symbols.clear();
    for (uint32_t i = 0; i < ids.size(); ++i) symbols.push_back({i, 1, ids[i]});
    merger.run([&](const Symbol& left, const Symbol& right) {
      const auto found = pairs.find({left.id, right.id});
      return found == pairs.end() ? Joined{kNoMerge, -1} : found->second;
    });
    std::vector<TokenId> got;
    uint32_t position = 0;
    for (const auto& symbol : symbols) {
      got.push_back(symbol.id);
      ASSERT_EQ(symbol.begin, position);
      position += symbol.length;
    }
    ASSERT_EQ(position, ids.size());
    ASSERT_EQ(got, merge_plainly(ids, pairs));
  }
}

}  // namespace
}  // namespace isthmus::tok
