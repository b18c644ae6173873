#include "kv/sequence.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace isthmus {
namespace {

constexpr size_t kLayers = 2;
constexpr size_t kHeads = 2;
constexpr size_t kDim = 16;

std::shared_ptr<BlockPool> make_pool(size_t blocks, Ledger& ledger,
                                     KeyEncoding encoding = KeyEncoding::kAbsolute) {
  BlockPoolConfig config;
  config.key_encoding = encoding;
  config.k_type = KvType::kF32;
  config.v_type = KvType::kF32;
  config.head_dim = kDim;
  config.blocks = blocks;
  auto pool = BlockPool::create(config, ledger);
  EXPECT_TRUE(pool.ok()) << pool.status().to_string();
  return *pool;
}

/// What a token's K or V is in these tests: a value of the token, the stream and the part.
float value_of(uint32_t token, size_t layer, size_t head, bool key) {
  return static_cast<float>(token * 8 + layer * 4 + head * 2 + (key ? 1 : 0));
}

void write_token(KvSequence& kv, size_t slot, uint32_t token) {
  for (size_t layer = 0; layer < kLayers; ++layer) {
    for (size_t head = 0; head < kHeads; ++head) {
      const std::vector<float> k(kDim, value_of(token, layer, head, true));
      const std::vector<float> v(kDim, value_of(token, layer, head, false));
      kv.write(layer, head, slot, k.data(), v.data());
    }
  }
}

Status append(KvSequence& kv, const std::vector<uint32_t>& tokens) {
  ISTHMUS_RETURN_IF_ERROR(kv.grow(tokens.size()));
  for (size_t i = 0; i < tokens.size(); ++i) write_token(kv, kv.length() + i, tokens[i]);
  kv.commit(tokens.size());
  return ok_status();
}

void expect_content(const KvSequence& kv, const std::vector<uint32_t>& tokens) {
  ASSERT_EQ(kv.length(), tokens.size());
  float row[kDim];
  for (size_t layer = 0; layer < kLayers; ++layer) {
    for (size_t head = 0; head < kHeads; ++head) {
      const KvStreamRef stream = kv.stream(layer, head);
      ASSERT_EQ(stream.keys, tokens.size());
      for (size_t i = 0; i < tokens.size(); ++i) {
        const KvBlockRef& block = stream.blocks[i / kBlockKeys];
        kv_read(KvType::kF32, KvPart::kKey, block.k, i % kBlockKeys, row, kDim);
        ASSERT_EQ(row[3], value_of(tokens[i], layer, head, true)) << "token " << i;
        kv_read(KvType::kF32, KvPart::kValue, block.v, i % kBlockKeys, row, kDim);
        ASSERT_EQ(row[7], value_of(tokens[i], layer, head, false)) << "token " << i;
      }
    }
  }
}

TEST(BlockPool, IsAllOrNothingAndCharged) {
  Ledger ledger(1 << 20);
  {
    const auto pool = make_pool(4, ledger);
    EXPECT_EQ(ledger.used(MemoryKind::kKv), 4 * pool->block_bytes());
    std::vector<BlockId> ids;
    ASSERT_TRUE(pool->allocate(3, ids).ok());
    EXPECT_EQ(pool->allocate(2, ids).code(), Code::kResourceExhausted);
    EXPECT_EQ(ids.size(), 3U);
    pool->retain(ids[0]);
    EXPECT_TRUE(pool->shared(ids[0]));
    pool->release(ids[0]);
    EXPECT_EQ(pool->free_blocks(), 1U);
    for (const BlockId id : ids) pool->release(id);
    EXPECT_EQ(pool->free_blocks(), 4U);
  }
  EXPECT_EQ(ledger.used(), 0U);
  BlockPoolConfig config;
  config.head_dim = kDim;
  config.blocks = 1 << 20;
  EXPECT_EQ(BlockPool::create(config, ledger).status().code(), Code::kResourceExhausted);
}

TEST(KvSequence, FailedGrowthChangesNothing) {
  Ledger ledger;
  const auto pool = make_pool(kLayers * kHeads * 2, ledger);
  KvSequence kv(pool, kLayers, kHeads);
  std::vector<uint32_t> tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(i);
  ASSERT_TRUE(append(kv, tokens).ok());
  EXPECT_EQ(kv.grow(40).code(), Code::kResourceExhausted);
  expect_content(kv, tokens);
  const KvSequence copy = kv.fork();
  EXPECT_EQ(kv.grow(1).code(), Code::kResourceExhausted) << "the shared tail needs copies that do not exist";
  expect_content(kv, tokens);
  expect_content(copy, tokens);
}

TEST(KvSequence, FullBlocksAreSealedAndWritingInASharedTailCopies) {
  Ledger ledger;
  const auto pool = make_pool(64, ledger);
  KvSequence kv(pool, kLayers, kHeads);
  ASSERT_TRUE(append(kv, std::vector<uint32_t>(40, 1)).ok());
  EXPECT_EQ(pool->used_blocks(), 2 * kLayers * kHeads);
  KvSequence other = kv.fork();
  EXPECT_EQ(pool->used_blocks(), 2 * kLayers * kHeads);
  ASSERT_TRUE(append(other, {2}).ok());
  EXPECT_EQ(pool->used_blocks(), 3 * kLayers * kHeads) << "only the tail is copied";
  ASSERT_TRUE(append(kv, {3}).ok());
  EXPECT_EQ(pool->used_blocks(), 3 * kLayers * kHeads) << "the last owner writes in place";
}

std::vector<uint32_t> count_up(size_t n) {
  std::vector<uint32_t> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<uint32_t>(i);
  return out;
}

TEST(KvSequence, DroppedBlocksMoveTheRestUp) {
  for (const KeyEncoding encoding : {KeyEncoding::kBlockRelative, KeyEncoding::kUnrotated}) {
    Ledger ledger;
    const auto pool = make_pool(64, ledger, encoding);
    KvSequence kv(pool, kLayers, kHeads);
    auto tokens = count_up(150);
    ASSERT_TRUE(append(kv, tokens).ok());
    const KvSequence before = kv.fork();
    ASSERT_TRUE(kv.drop_blocks(1, 2).ok());
    auto kept = tokens;
    kept.erase(kept.begin() + 32, kept.begin() + 96);
    expect_content(kv, kept);
    expect_content(before, tokens);
    const KvStreamRef stream = kv.stream(1, 1);
    for (size_t b = 0; b < 3; ++b) {
      EXPECT_EQ(stream.blocks[b].base_pos, static_cast<int32_t>(32 * b));
      EXPECT_EQ(stream.blocks[b].encoding, encoding);
    }
    ASSERT_TRUE(append(kv, {900, 901}).ok());
    kept.insert(kept.end(), {900, 901});
    expect_content(kv, kept);
    EXPECT_EQ(kv.drop_blocks(2, 1).code(), Code::kInvalidArgument) << "the last block is not full";
    EXPECT_EQ(kv.drop_blocks(0, SIZE_MAX).code(), Code::kInvalidArgument);
    ASSERT_TRUE(kv.drop_blocks(0, 0).ok());
    expect_content(kv, kept);
  }
  Ledger ledger;
  KvSequence fixed(make_pool(64, ledger), kLayers, kHeads);
  ASSERT_TRUE(append(fixed, count_up(70)).ok());
  EXPECT_EQ(fixed.drop_blocks(0, 1).code(), Code::kFailedPrecondition);
  expect_content(fixed, count_up(70));
}

TEST(KvSequence, BlocksRememberWhatComputedThem) {
  Ledger ledger;
  const auto pool = make_pool(64, ledger);
  KvSequence kv(pool, kLayers, kHeads);
  const auto append_by = [&](size_t n, Compute compute) {
    ASSERT_TRUE(kv.grow(n).ok());
    kv.set_pending_compute(compute);
    for (size_t i = 0; i < n; ++i) write_token(kv, kv.length() + i, 1);
    kv.commit(n);
  };
  EXPECT_EQ(kv.computed_by(), 0);
  append_by(40, Compute::kInt8);
  EXPECT_EQ(kv.computed_by(), compute_bit(Compute::kInt8));
  KvSequence other = kv.fork();
  append_by(1, Compute::kInt16);
  EXPECT_EQ(kv.computed_by(), compute_bit(Compute::kInt8) | compute_bit(Compute::kInt16));
  EXPECT_EQ(other.computed_by(), compute_bit(Compute::kInt8)) << "the shared tail was copied first";
  ASSERT_TRUE(kv.truncate(32).ok());
  EXPECT_EQ(kv.computed_by(), compute_bit(Compute::kInt8));
  EXPECT_EQ(kv.exactness(), Exactness::kExact);
}

TEST(KvSequence, AcceptRefusesWhatIsNoPath) {
  Ledger ledger;
  const auto pool = make_pool(64, ledger);
  KvSequence kv(pool, kLayers, kHeads);
  ASSERT_TRUE(kv.grow(3).ok());
  EXPECT_EQ(kv.accept(std::vector<uint32_t>{3}).code(), Code::kInvalidArgument);
  EXPECT_EQ(kv.accept(std::vector<uint32_t>{1, 1}).code(), Code::kInvalidArgument);
  EXPECT_EQ(kv.accept(std::vector<uint32_t>{2, 1}).code(), Code::kInvalidArgument);
  EXPECT_EQ(kv.truncate(1).code(), Code::kInvalidArgument);
}

/// A sequence beside what it should hold.
struct Pair {
  KvSequence kv;
  std::vector<uint32_t> tokens;
};

void random_step(std::vector<Pair>& pairs, Rng& rng, uint32_t& next) {
  Pair& p = pairs[rng.below(pairs.size())];
  switch (rng.below(5)) {
    case 0:
    case 1: {
      std::vector<uint32_t> more(1 + rng.below(50));
      for (auto& token : more) token = next++;
      if (append(p.kv, more).ok()) p.tokens.insert(p.tokens.end(), more.begin(), more.end());
      break;
    }
    case 2: {
      const size_t length = rng.below(p.tokens.size() + 1);
      ASSERT_TRUE(p.kv.truncate(length).ok());
      p.tokens.resize(length);
      break;
    }
    case 3: {
      Pair copy{p.kv.fork(), p.tokens};
      Pair& target = pairs[rng.below(pairs.size())];
      target = std::move(copy);
      break;
    }
    default: {
      const size_t n = 2 + rng.below(20);
      if (!p.kv.grow(n).ok()) break;
      std::vector<uint32_t> path;
      for (uint32_t i = 0; i < n; ++i) {
        write_token(p.kv, p.kv.length() + i, next + i);
        if (rng.below(2) == 0) path.push_back(i);
      }
      ASSERT_TRUE(p.kv.accept(path).ok());
      for (const uint32_t i : path) p.tokens.push_back(next + i);
      next += static_cast<uint32_t>(n);
    }
  }
}

TEST(KvSequence, RandomOperationsKeepContentAndLeakNothing) {
  Ledger ledger;
  const auto pool = make_pool(200, ledger);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    uint32_t next = 1;
    std::vector<Pair> pairs(4);
    for (auto& p : pairs) p.kv = KvSequence(pool, kLayers, kHeads);
    for (int step = 0; step < 150; ++step) {
      ASSERT_NO_FATAL_FAILURE(random_step(pairs, rng, next));
      const Pair& seen = pairs[rng.below(pairs.size())];
      ASSERT_NO_FATAL_FAILURE(expect_content(seen.kv, seen.tokens)) << "seed " << seed << " step " << step;
    }
    for (const auto& p : pairs) ASSERT_NO_FATAL_FAILURE(expect_content(p.kv, p.tokens));
    pairs.clear();
    ASSERT_EQ(pool->used_blocks(), 0U) << "seed " << seed;
  }
}

}  // namespace
}  // namespace isthmus
