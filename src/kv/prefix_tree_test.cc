// The prefix tree against a plain list of texts. The KV of a token is a hash of all the text up to it, so a
// block in a wrong place shows.
#include "kv/prefix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "base/rng.h"

namespace isthmus {
namespace {

constexpr size_t kTreeLayers = 2;
constexpr size_t kTreeHeads = 3;
constexpr size_t kTreeStreams = kTreeLayers * kTreeHeads;
constexpr size_t kTreeDim = 8;
using Text = std::vector<PrefixToken>;

std::shared_ptr<BlockPool> make_tree_pool(size_t blocks, Ledger& ledger) {
  BlockPoolConfig config;
  config.k_type = KvType::kF32;
  config.v_type = KvType::kF32;
  config.head_dim = kTreeDim;
  config.blocks = blocks;
  auto pool = BlockPool::create(config, ledger);
  EXPECT_TRUE(pool.ok()) << pool.status().to_string();
  return *pool;
}

/// What stands for token i of a text: a hash of the text up to it and of the stream.
float mark(const Text& text, size_t i, size_t stream) {
  uint64_t hash = 1469598103934665603U + stream;
  for (size_t j = 0; j <= i; ++j) hash = (hash ^ static_cast<uint64_t>(text[j])) * 1099511628211U;
  return static_cast<float>(hash >> 44);
}

/// Appends the tokens that `kv` lacks of `text`; false when the pool is full.
bool read_on(KvSequence& kv, const Text& text) {
  const size_t have = kv.length();
  if (!kv.grow(text.size() - have).ok()) return false;
  for (size_t i = have; i < text.size(); ++i) {
    for (size_t s = 0; s < kTreeStreams; ++s) {
      const std::vector<float> row(kTreeDim, mark(text, i, s));
      kv.write(s / kTreeHeads, s % kTreeHeads, i, row.data(), row.data());
    }
  }
  kv.commit(text.size() - have);
  return true;
}

void expect_marks(const KvSequence& kv, const Text& text) {
  ASSERT_LE(kv.length(), text.size());
  float row[kTreeDim];
  for (size_t s = 0; s < kTreeStreams; ++s) {
    const KvStreamRef stream = kv.stream(s / kTreeHeads, s % kTreeHeads);
    ASSERT_EQ(stream.keys, kv.length());
    for (size_t i = 0; i < kv.length(); ++i) {
      const KvBlockRef& block = stream.blocks[i / kBlockKeys];
      kv_read(KvType::kF32, KvPart::kKey, block.k, i % kBlockKeys, row, kTreeDim);
      ASSERT_EQ(row[1], mark(text, i, s)) << "token " << i << " of stream " << s;
      kv_read(KvType::kF32, KvPart::kValue, block.v, i % kBlockKeys, row, kTreeDim);
      ASSERT_EQ(row[7], mark(text, i, s));
    }
  }
}

size_t common(const Text& a, const Text& b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

/// Texts that begin alike in many ways: few different tokens, lengths around whole blocks.
Text random_text(Rng& rng) {
  static constexpr size_t kLengths[] = {1, 5, 31, 32, 33, 50, 63, 64, 65, 96, 100, 130};
  Text text(kLengths[rng.below(std::size(kLengths))]);
  const size_t plain = rng.below(text.size() + 1);  // a beginning that all have in common
  for (size_t i = 0; i < text.size(); ++i) {
    text[i] = i < plain ? static_cast<PrefixToken>(i / 16) : static_cast<PrefixToken>(rng.below(2));
  }
  return text;
}

struct TreeCache {
  explicit TreeCache(size_t blocks)
      : pool(make_tree_pool(blocks, ledger)), tree(pool, kTreeLayers, kTreeHeads) {}
  KvSequence sequence() const { return {pool, kTreeLayers, kTreeHeads}; }
  /// Reads a text as a cold run would, and keeps it.
  void keep(const Text& text, std::string_view salt = "") {
    KvSequence kv = sequence();
    ASSERT_TRUE(read_on(kv, text));
    ASSERT_TRUE(tree.insert(salt, text, kv).ok());
  }
  Ledger ledger{uint64_t{1} << 30};
  std::shared_ptr<BlockPool> pool;
  PrefixTree tree;
};

TEST(PrefixTreeTest, FindsTheLongestBeginningOfAllTextsThatItWasGiven) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    TreeCache cache(6'000);
    Rng rng(seed);
    std::vector<Text> known;
    for (int step = 0; step < 60; ++step) {
      const Text text = random_text(rng);
      size_t longest = 0;
      for (const Text& other : known) longest = std::max(longest, common(text, other));
      EXPECT_EQ(cache.tree.match("", text), longest);
      KvSequence kv = cache.tree.take("", text);
      ASSERT_EQ(kv.length(), longest);
      expect_marks(kv, text);
      ASSERT_TRUE(read_on(kv, text));
      expect_marks(kv, text);
      ASSERT_TRUE(cache.tree.insert("", text, kv).ok());
      known.push_back(text);
    }
    for (const Text& text : known) {  // nobody wrote into what others share
      const KvSequence kv = cache.tree.take("", text);
      ASSERT_EQ(kv.length(), text.size());
      expect_marks(kv, text);
    }
    cache.tree.clear();
    EXPECT_EQ(cache.pool->used_blocks(), 0U);
    EXPECT_EQ(cache.tree.figures().nodes, 0U);
    EXPECT_EQ(cache.tree.figures().tokens, 0U);
  }
}

/// Random work in a pool that is too small: sequences come, go on, leave their texts; what is found is right.
TEST(PrefixTreeTest, RandomWorkInASmallPool) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    TreeCache cache(90);
    Rng rng(seed + 100);
    struct Running {
      Text text;
      KvSequence kv;
    };
    std::vector<Running> running;
    for (int step = 0; step < 300; ++step) {
      if (rng.below(3) == 0 && !running.empty()) {
        const auto at = running.begin() + static_cast<ptrdiff_t>(rng.below(running.size()));
        expect_marks(at->kv, at->text);
        if (rng.below(4) != 0) {
          ASSERT_TRUE(cache.tree.insert("", at->text, at->kv).ok());
        }
        running.erase(at);
        continue;
      }
      Text text = random_text(rng);
      KvSequence kv = cache.tree.take("", text);
      expect_marks(kv, text);
      while (!read_on(kv, text) && !running.empty()) {  // the pool has taken all that nobody uses
        EXPECT_EQ(cache.tree.evictable(), 0U);
        running.erase(running.begin());
      }
      if (kv.length() == text.size()) running.push_back({std::move(text), std::move(kv)});
    }
    EXPECT_GT(cache.tree.figures().evicted_tokens, 0U);
    for (const Running& r : running) expect_marks(r.kv, r.text);
    running.clear();
    const size_t free = cache.pool->free_blocks();
    const size_t can = cache.tree.evictable();
    EXPECT_EQ(cache.tree.evict(SIZE_MAX), can);
    EXPECT_EQ(cache.pool->free_blocks(), free + can);
    EXPECT_EQ(cache.pool->used_blocks(), 0U);
    EXPECT_EQ(cache.tree.figures().nodes, 0U);
  }
}

TEST(PrefixTreeTest, WhatIsUsedStaysAndTheOldestUnusedGoesFirst) {
  TreeCache cache(600);
  const Text a(64, 1), b(64, 2), c(64, 3);
  for (const Text& text : {a, b, c}) cache.keep(text);
  KvSequence held = cache.tree.take("", a);
  (void)cache.tree.take("", b);  // c is the oldest now
  EXPECT_EQ(cache.tree.evictable(), 4 * kTreeStreams);
  EXPECT_EQ(cache.tree.evict(1), kTreeStreams);
  EXPECT_EQ(cache.tree.match("", c), 32U) << "the end of the oldest text";
  EXPECT_EQ(cache.tree.evict(2 * kTreeStreams), 2 * kTreeStreams);
  EXPECT_EQ(cache.tree.match("", c), 0U);
  EXPECT_EQ(cache.tree.match("", b), 32U);
  EXPECT_EQ(cache.tree.evict(SIZE_MAX), kTreeStreams);
  EXPECT_EQ(cache.tree.match("", a), 64U);
  expect_marks(held, a);
  held.clear();
  EXPECT_EQ(cache.tree.evict(SIZE_MAX), 2 * kTreeStreams);
  EXPECT_EQ(cache.tree.figures().evicted_tokens, 3 * 64U);
}

/// One thread reads and keeps texts, others take blocks of the same pool: run under ThreadSanitizer.
TEST(PrefixTreeTest, GivesUpBlocksToOtherThreads) {
  TreeCache cache(120);
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) {
      std::vector<BlockId> blocks;
      if (!cache.pool->allocate(60, blocks).ok()) continue;
      for (const BlockId id : blocks) cache.pool->release(id);
    }
  });
  Rng rng(5);
  for (int step = 0; step < 200; ++step) {
    const Text text = random_text(rng);
    KvSequence kv = cache.tree.take("", text);
    expect_marks(kv, text);
    const bool whole = read_on(kv, text);
    EXPECT_TRUE(!whole || cache.tree.insert("", text, kv).ok());
  }
  done = true;
  other.join();
}

TEST(PrefixTreeTest, SaltsNeverMeet) {
  TreeCache cache(600);
  const Text text(70, 4);
  cache.keep(text, "one app");
  EXPECT_EQ(cache.tree.match("another", text), 0U);
  EXPECT_EQ(cache.tree.match("", text), 0U);
  EXPECT_EQ(cache.tree.take("another", text).length(), 0U);
  EXPECT_EQ(cache.tree.match("one app", text), 70U);
  EXPECT_EQ(cache.tree.figures().lookups, 1U);
  EXPECT_EQ(cache.tree.figures().hits, 0U);
}

/// Two sequences read the same text, since neither knew of the other.
TEST(PrefixTreeTest, WhoReadItTwiceTakesTheKnownBlocks) {
  TreeCache cache(600);
  const Text text(70, 4);
  Text longer = text;
  longer.resize(130, 5);
  KvSequence first = cache.sequence();
  KvSequence second = cache.sequence();
  ASSERT_TRUE(read_on(first, text));
  ASSERT_TRUE(read_on(second, longer));
  EXPECT_EQ(cache.pool->used_blocks(), (3 + 5) * kTreeStreams);
  ASSERT_TRUE(cache.tree.insert("", text, first).ok());
  ASSERT_TRUE(cache.tree.insert("", longer, second).ok());
  EXPECT_EQ(cache.pool->used_blocks(), (3 + 3) * kTreeStreams);
  expect_marks(second, longer);
  first.clear();
  EXPECT_EQ(cache.tree.evictable(), 0U) << "the short tail has given way; all else is the second one's";
  EXPECT_EQ(cache.pool->used_blocks(), 5 * kTreeStreams);
  second.clear();
  EXPECT_EQ(cache.tree.evictable(), 5 * kTreeStreams);
  EXPECT_EQ(cache.tree.evict(SIZE_MAX), 5 * kTreeStreams);
}

TEST(PrefixTreeTest, ALongerTailTakesThePlaceOfAShorterOne) {
  TreeCache cache(600);
  const Text text(60, 4);
  cache.keep(Text(text.begin(), text.begin() + 40));
  cache.keep(Text(text.begin(), text.begin() + 50));
  cache.keep(text);
  cache.keep(Text(text.begin(), text.begin() + 45));
  EXPECT_EQ(cache.tree.figures().nodes, 2U);
  EXPECT_EQ(cache.tree.match("", text), 60U);
}

TEST(PrefixTreeTest, RefusesKvThatIsNotTheTextsOrNotExact) {
  TreeCache cache(600);
  TreeCache other(600);
  KvSequence kv = cache.sequence();
  const Text text(40, 1);
  ASSERT_TRUE(read_on(kv, text));
  EXPECT_EQ(cache.tree.insert("", Text(41, 1), kv).code(), Code::kInvalidArgument);
  EXPECT_EQ(other.tree.insert("", text, kv).code(), Code::kInvalidArgument);
  std::vector<BlockId> blocks;
  kv.share_block(0, blocks);
  for (const BlockId id : blocks) cache.pool->release(id);
  cache.pool->header(blocks[2]).exactness = Exactness::kComposed;
  EXPECT_EQ(cache.tree.insert("", text, kv).code(), Code::kFailedPrecondition);
  EXPECT_EQ(cache.tree.figures().nodes, 0U);
}

}  // namespace
}  // namespace isthmus
