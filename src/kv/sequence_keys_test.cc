// KvSequence::keep_keys: streams that hold different keys, against a model that is a list of tokens per
// stream.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/rng.h"
#include "kv/prefix_tree.h"
#include "kv/sequence.h"

namespace isthmus {
namespace {

constexpr size_t kPruneLayers = 2;
constexpr size_t kPruneHeads = 2;
constexpr size_t kPruneDim = 8;

std::shared_ptr<BlockPool> prune_pool(size_t blocks, Ledger& ledger,
                                      KeyEncoding encoding = KeyEncoding::kAbsolute) {
  BlockPoolConfig config;
  config.key_encoding = encoding;
  config.k_type = KvType::kF32;
  config.v_type = KvType::kF32;
  config.head_dim = kPruneDim;
  config.blocks = blocks;
  return BlockPool::create(config, ledger).value();
}

float content_of(uint32_t token, size_t stream, bool key) {
  return static_cast<float>(token * 16 + stream * 2 + (key ? 1 : 0));
}

/// A sequence beside what each of its streams must hold.
struct Tracked {
  KvSequence kv;
  std::vector<uint32_t> text;
  std::vector<std::vector<uint32_t>> held = std::vector<std::vector<uint32_t>>(kPruneLayers * kPruneHeads);

  Status append(const std::vector<uint32_t>& tokens) {
    ISTHMUS_RETURN_IF_ERROR(kv.grow(tokens.size()));
    for (size_t s = 0; s < held.size(); ++s) {
      for (size_t i = 0; i < tokens.size(); ++i) {
        const std::vector<float> k(kPruneDim, content_of(tokens[i], s, true));
        const std::vector<float> v(kPruneDim, content_of(tokens[i], s, false));
        kv.write(s / kPruneHeads, s % kPruneHeads, kv.length() + i, k.data(), v.data());
      }
    }
    return ok_status();
  }
  void commit(const std::vector<uint32_t>& tokens) {
    kv.commit(tokens.size());
    add(tokens);
  }
  void add(const std::vector<uint32_t>& tokens) {
    text.insert(text.end(), tokens.begin(), tokens.end());
    for (auto& stream : held) stream.insert(stream.end(), tokens.begin(), tokens.end());
  }
  Status keep(size_t stream, const std::vector<uint32_t>& places) {
    ISTHMUS_RETURN_IF_ERROR(kv.keep_keys(stream / kPruneHeads, stream % kPruneHeads, places));
    std::vector<uint32_t> left;
    for (const uint32_t place : places) left.push_back(held[stream][place]);
    held[stream] = std::move(left);
    return ok_status();
  }
  Tracked fork() const { return {kv.fork(), text, held}; }

  void check() const {
    ASSERT_EQ(kv.length(), text.size());
    float row[kPruneDim];
    for (size_t s = 0; s < held.size(); ++s) {
      const KvStreamRef stream = kv.stream(s / kPruneHeads, s % kPruneHeads);
      ASSERT_EQ(stream.keys, held[s].size());
      ASSERT_EQ(stream.removed, text.size() - held[s].size());
      ASSERT_EQ(stream.blocks.size(), (stream.keys + kBlockKeys - 1) / kBlockKeys);
      for (size_t i = 0; i < held[s].size(); ++i) {
        const KvBlockRef& block = stream.blocks[i / kBlockKeys];
        kv_read(KvType::kF32, KvPart::kKey, block.k, i % kBlockKeys, row, kPruneDim);
        ASSERT_EQ(row[3], content_of(held[s][i], s, true)) << "stream " << s << " place " << i;
        kv_read(KvType::kF32, KvPart::kValue, block.v, i % kBlockKeys, row, kPruneDim);
        ASSERT_EQ(row[5], content_of(held[s][i], s, false)) << "stream " << s << " place " << i;
      }
    }
  }
};

Tracked start(const std::shared_ptr<BlockPool>& pool) {
  Tracked out;
  out.kv = KvSequence(pool, kPruneLayers, kPruneHeads);
  return out;
}

std::vector<uint32_t> count_from(uint32_t first, size_t n) {
  std::vector<uint32_t> out(n);
  std::iota(out.begin(), out.end(), first);
  return out;
}

std::vector<uint32_t> random_places(Rng& rng, size_t held) {
  std::vector<uint32_t> out;
  const uint64_t kind = rng() % 4;
  const uint64_t from = rng() % (held + 1);
  const uint64_t until = from + rng() % (held + 1 - from);
  for (uint32_t i = 0; i < held; ++i) {
    const bool inside = i >= from && i < until;
    const bool keep = kind == 0   ? rng() % 2 == 0
                      : kind == 1 ? !inside
                      : kind == 2 ? inside
                                  : (i / kBlockKeys) % 2 == 0 || i % 7 == 0;
    if (keep) out.push_back(i);
  }
  return out;
}

TEST(KeepKeys, EveryStreamForItself) {
  Ledger ledger(1 << 26);
  const auto pool = prune_pool(100, ledger);
  Tracked a = start(pool);
  const auto text = count_from(0, 150);
  ASSERT_TRUE(a.append(text).ok());
  a.commit(text);
  EXPECT_FALSE(a.kv.pruned());
  ASSERT_TRUE(a.keep(0, count_from(0, 150)).ok());  // all: nothing changes
  EXPECT_FALSE(a.kv.pruned());
  ASSERT_TRUE(a.keep(1, {0, 5, 70, 149}).ok());
  ASSERT_TRUE(a.keep(2, {}).ok());
  a.check();
  EXPECT_TRUE(a.kv.pruned());
  EXPECT_EQ(a.kv.held_keys(0, 1), 4U);
  EXPECT_EQ(a.kv.blocks(), 5U + 1U + 0U + 5U);
  EXPECT_EQ(pool->used_blocks(), a.kv.blocks());

  ASSERT_TRUE(a.append({900, 901, 902}).ok());
  a.commit({900, 901, 902});
  a.check();
  ASSERT_TRUE(a.kv.truncate(151).ok());
  a.text.resize(151);
  for (auto& stream : a.held) stream.resize(stream.size() - 2);
  a.check();
  EXPECT_EQ(a.kv.truncate(149).code(), Code::kFailedPrecondition);
  a.check();
  ASSERT_TRUE(a.kv.truncate(0).ok());
  EXPECT_FALSE(a.kv.pruned());
  EXPECT_EQ(pool->used_blocks(), 0U);
}

TEST(KeepKeys, RefusesWhatIsNoSetOfKeys) {
  Ledger ledger(1 << 26);
  Tracked a = start(prune_pool(100, ledger));
  const auto text = count_from(0, 40);
  ASSERT_TRUE(a.append(text).ok());
  a.commit(text);
  EXPECT_EQ(a.kv.keep_keys(0, 0, std::vector<uint32_t>{3, 3}).code(), Code::kInvalidArgument);
  EXPECT_EQ(a.kv.keep_keys(0, 0, std::vector<uint32_t>{40}).code(), Code::kInvalidArgument);
  EXPECT_EQ(a.kv.keep_keys(0, 0, std::vector<uint32_t>{5, 4}).code(), Code::kInvalidArgument);
  a.check();
  KvSequence relative(prune_pool(10, ledger, KeyEncoding::kBlockRelative), 1, 1);
  ASSERT_TRUE(relative.grow(4).ok());
  relative.commit(4);
  EXPECT_EQ(relative.keep_keys(0, 0, std::vector<uint32_t>{0}).code(), Code::kFailedPrecondition);
}

TEST(KeepKeys, SharedBlocksStayAsTheyAre) {
  Ledger ledger(1 << 26);
  const auto pool = prune_pool(64, ledger);
  Tracked a = start(pool);
  const auto text = count_from(0, 100);
  ASSERT_TRUE(a.append(text).ok());
  a.commit(text);
  Tracked b = a.fork();
  ASSERT_TRUE(b.keep(0, {1, 40, 99}).ok());
  ASSERT_TRUE(b.keep(3, count_from(32, 68)).ok());  // whole blocks: shared on
  a.check();
  b.check();
  EXPECT_EQ(pool->used_blocks(), a.kv.blocks() + 1);
  a.kv.clear();
  b.check();
  b.kv.clear();
  EXPECT_EQ(pool->used_blocks(), 0U);
}

TEST(KeepKeys, WholeBlocksAreNotMoved) {
  Ledger ledger(1 << 26);
  Tracked a = start(prune_pool(100, ledger));
  const auto text = count_from(0, 200);
  ASSERT_TRUE(a.append(text).ok());
  a.commit(text);
  const KvBlockRef last = a.kv.stream(0, 0).blocks.back();
  auto places = count_from(0, 32);
  const auto rest = count_from(96, 104);
  places.insert(places.end(), rest.begin(), rest.end());
  ASSERT_TRUE(a.keep(0, places).ok());
  a.check();
  EXPECT_EQ(a.kv.stream(0, 0).blocks.back().k, last.k);
}

TEST(KeepKeys, NoRoomForACopyLeavesTheStream) {
  Ledger ledger(1 << 26);
  const auto pool = prune_pool(4 * kPruneLayers * kPruneHeads, ledger);
  Tracked a = start(pool);
  const auto text = count_from(0, 128);
  ASSERT_TRUE(a.append(text).ok());
  a.commit(text);
  Tracked b = a.fork();
  EXPECT_EQ(b.kv.keep_keys(0, 0, std::vector<uint32_t>{1, 2}).code(), Code::kResourceExhausted);
  b.check();
  a.check();
}

TEST(KeepKeys, PrunedKvEntersNoPrefixTree) {
  Ledger ledger(1 << 26);
  const auto pool = prune_pool(100, ledger);
  Tracked a = start(pool);
  const auto text = count_from(0, 64);
  ASSERT_TRUE(a.append(text).ok());
  a.commit(text);
  ASSERT_TRUE(a.keep(0, {0, 1}).ok());
  PrefixTree tree(pool, kPruneLayers, kPruneHeads);
  const std::vector<PrefixToken> ids(64, 7);
  EXPECT_EQ(tree.insert("", ids, a.kv).code(), Code::kFailedPrecondition);
  EXPECT_EQ(tree.figures().nodes, 0U);
}

TEST(KeepKeys, TreesOfTokensAfterwards) {
  Ledger ledger(1 << 26);
  Tracked a = start(prune_pool(100, ledger));
  const auto text = count_from(0, 70);
  ASSERT_TRUE(a.append(text).ok());
  a.commit(text);
  ASSERT_TRUE(a.keep(1, {3, 33, 69}).ok());
  ASSERT_TRUE(a.append({500, 501, 502, 503}).ok());
  ASSERT_TRUE(a.kv.accept(std::vector<uint32_t>{1, 3}).ok());
  a.add({501, 503});
  a.check();
}

TEST(KeepKeys, RandomLives) {
  Ledger ledger(1 << 28);
  const auto pool = prune_pool(900, ledger);
  Rng rng(7);
  for (int life = 0; life < 60; ++life) {
    std::vector<Tracked> all;
    all.push_back(start(pool));
    uint32_t next = 1;
    for (int step = 0; step < 25; ++step) {
      Tracked& one = all[rng() % all.size()];
      switch (rng() % 4) {
        case 0:
        case 1: {
          const auto tokens = count_from(next, 1 + rng() % 90);
          next += 100;
          ASSERT_TRUE(one.append(tokens).ok());
          one.commit(tokens);
          break;
        }
        case 2: {
          const size_t stream = rng() % one.held.size();
          ASSERT_TRUE(one.keep(stream, random_places(rng, one.held[stream].size())).ok());
          break;
        }
        default:
          if (all.size() < 3) all.push_back(one.fork());
      }
      for (const Tracked& each : all) each.check();
    }
  }
  EXPECT_EQ(pool->used_blocks(), 0U);
}

}  // namespace
}  // namespace isthmus
