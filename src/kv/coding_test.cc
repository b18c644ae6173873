// Full blocks that become coded ones: the pool's formats, the sequence that codes, and the settings.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "base/rng.h"
#include "kv/kv_codec.h"
#include "kv/sequence.h"

namespace isthmus {
namespace {

constexpr size_t kCodingLayers = 2;
constexpr size_t kCodingHeads = 2;
constexpr size_t kCodingDim = 64;
constexpr KvFormat kFour = {KvType::kKivi4, KvType::kKivi4};
constexpr KvFormat kMixed = {KvType::kKivi4, KvType::kKivi1};

std::shared_ptr<BlockPool> coding_pool(Ledger& ledger, size_t blocks, std::vector<KvFormat> coded,
                                       size_t residual = 64) {
  BlockPoolConfig config;
  config.k_type = config.v_type = KvType::kF16;
  config.head_dim = kCodingDim;
  config.blocks = blocks;
  config.coded = std::move(coded);
  config.residual = residual;
  auto pool = BlockPool::create(config, ledger);
  EXPECT_TRUE(pool.ok()) << pool.status().to_string();
  return *pool;
}

/// K and V of a token: normal numbers that depend on the token, the stream and the part.
std::vector<float> row_of(uint32_t token, size_t layer, size_t head, bool key) {
  std::mt19937 rng(token * 16 + static_cast<uint32_t>(layer * 4 + head * 2 + (key ? 1 : 0)));
  std::normal_distribution<float> normal;
  std::vector<float> row(kCodingDim);
  for (float& x : row) x = normal(rng);
  return row;
}

/// Appends tokens [from, to), stopping where blocks are coded.
Status append_until(KvSequence& kv, uint32_t to) {
  while (kv.length() < to) {
    const size_t n = std::min(to - kv.length(), kv.until_coding());
    ISTHMUS_RETURN_IF_ERROR(kv.grow(n));
    for (size_t i = 0; i < n; ++i) {
      for (size_t layer = 0; layer < kCodingLayers; ++layer) {
        for (size_t head = 0; head < kCodingHeads; ++head) {
          const auto token = static_cast<uint32_t>(kv.length() + i);
          kv.write(layer, head, kv.length() + i, row_of(token, layer, head, true).data(),
                   row_of(token, layer, head, false).data());
        }
      }
    }
    kv.commit(n);
  }
  return ok_status();
}

/// All that attention would read, as floats.
std::vector<float> contents(const KvSequence& kv) {
  std::vector<float> out;
  std::vector<float> row(kCodingDim);
  for (size_t layer = 0; layer < kCodingLayers; ++layer) {
    for (size_t head = 0; head < kCodingHeads; ++head) {
      const KvStreamRef stream = kv.stream(layer, head);
      for (size_t i = 0; i < stream.keys; ++i) {
        const KvBlockRef& block = stream.blocks[i / kBlockKeys];
        kv_read(block.k_type, KvPart::kKey, block.k, i % kBlockKeys, row.data(), kCodingDim);
        out.insert(out.end(), row.begin(), row.end());
        kv_read(block.v_type, KvPart::kValue, block.v, i % kBlockKeys, row.data(), kCodingDim);
        out.insert(out.end(), row.begin(), row.end());
      }
    }
  }
  return out;
}

TEST(KvBits, AreReadAndWrittenInOneNotation) {
  for (const char* text :
       {"16", "8", "4", "2", "1", "k4v2", "k16v4", "k8v4,4,k2v1", "asym:16/0:2/1", "asym:30/4:8/4"}) {
    const auto codec = parse_kv_bits(text);
    ASSERT_TRUE(codec.ok()) << text << ": " << codec.status().to_string();
    EXPECT_EQ(kv_bits_name(*codec), text);
  }
  EXPECT_EQ(kv_bits_name(*parse_kv_bits("asym:3/1")), "asym:3/1:2/1");
  EXPECT_FALSE(parse_kv_bits("16,k16v16")->on());
  for (const char* text : {"", "3", "k4", "v4", "k4v", "4,", "-1", "asym:", "asym:3", "asym:3/1:5/1",
                           "asym:3/1:1/2", "asym:x/1", "k4v2x", "99999999999999999999"}) {
    EXPECT_EQ(parse_kv_bits(text).status().code(), Code::kInvalidArgument) << text;
  }
}

TEST(KvBits, BecomeFormatsOfLayers) {
  const KvFormat open;
  const auto formats = [&](const char* text, size_t layers) {
    return coded_formats(*parse_kv_bits(text), open, layers);
  };
  EXPECT_TRUE(formats("16", 4)->empty());
  EXPECT_EQ(*formats("4", 3), std::vector<KvFormat>(3, kFour));
  const std::vector<KvFormat> by_layer = {{KvType::kKivi8, KvType::kKivi4}, open};
  EXPECT_EQ(*formats("k8v4,16", 2), by_layer);
  const std::vector<KvFormat> asymmetric = {
      {KvType::kKivi4, KvType::kKivi4}, {KvType::kKivi4, KvType::kKivi1}, {KvType::kKivi1, KvType::kKivi1}};
  EXPECT_EQ(*formats("asym:2/1:4/1", 3), asymmetric);
  EXPECT_EQ(formats("4,4", 3).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(formats("asym:4/0", 3).status().code(), Code::kInvalidArgument);
  auto codec = *parse_kv_bits("4");
  for (const size_t residual : {0, 16, 33, 8192}) {
    codec.residual = residual;
    EXPECT_EQ(coded_formats(codec, open, 3).status().code(), Code::kInvalidArgument) << residual;
  }
  // 4 bits and two float16 numbers for 32 values.
  EXPECT_DOUBLE_EQ(mean_bits(*formats("4", 3), kCodingDim), 5.0);
  EXPECT_DOUBLE_EQ(mean_bits(*formats("k2v1", 3), kCodingDim), 2.5);
}

TEST(BlockPoolFormats, RandomLifeKeepsEveryBlockApart) {
  Ledger ledger(64 << 20);
  const auto pool = coding_pool(ledger, 64, {kFour, kMixed});
  struct Held {
    BlockId id;
    std::byte mark;
  };
  std::vector<Held> held;
  Rng rng(5);
  size_t bytes = 0;
  const std::vector<KvFormat> formats = {pool->config().open(), kFour, kMixed};
  for (int i = 0; i < 20000; ++i) {
    if (held.empty() || rng.below(100) < 55) {
      const KvFormat format = formats[rng.below(formats.size())];
      std::vector<BlockId> ids;
      const auto coded = format == formats[0] ? Result<BlockId>(BlockId{0}) : pool->allocate_coded(format);
      const Status status = format == formats[0] ? pool->allocate(1, ids) : coded.status();
      if (!status.ok()) {
        ASSERT_EQ(status.code(), Code::kResourceExhausted);
        continue;
      }
      const BlockId id = format == formats[0] ? ids.front() : *coded;
      EXPECT_EQ(pool->block_bytes(id), pool->config().format_bytes(format));
      EXPECT_EQ(pool->header(id).k_type, format.k_type);
      EXPECT_EQ(pool->header(id).v_type, format.v_type);
      const auto mark = static_cast<std::byte>(rng.below(256));
      std::memset(pool->k(id), static_cast<int>(mark), pool->block_bytes(id));
      bytes += pool->block_bytes(id);
      held.push_back({id, mark});
    } else {
      std::swap(held[rng.below(held.size())], held.back());
      const Held gone = held.back();
      held.pop_back();
      for (size_t at = 0; at < pool->block_bytes(gone.id); at += 63) {
        ASSERT_EQ(pool->k(gone.id)[at], gone.mark) << "block " << gone.id;
      }
      bytes -= pool->block_bytes(gone.id);
      pool->release(gone.id);
    }
    ASSERT_LE(bytes, 64 * pool->block_bytes());
  }
  for (const Held& block : held) pool->release(block.id);
  EXPECT_EQ(pool->free_blocks(), 64U);
}

TEST(BlockPoolFormats, FormatsThatDoNotFitAreRefused) {
  Ledger ledger(64 << 20);
  EXPECT_EQ(coding_pool(ledger, 64, {kFour})->allocate_coded(kMixed).status().code(), Code::kInternal);
}

TEST(KvCoding, HoldsTheSameForAnySplitAndItsBytesAreTheFormula) {
  Ledger ledger(64 << 20);
  const auto pool = coding_pool(ledger, 512, {kFour, kMixed});
  KvSequence whole(pool, kCodingLayers, kCodingHeads);
  ASSERT_TRUE(append_until(whole, 300).ok());
  KvSequence parts(pool, kCodingLayers, kCodingHeads);
  for (uint32_t to = 1; to <= 300; ++to) ASSERT_TRUE(append_until(parts, to).ok());
  EXPECT_EQ(contents(whole), contents(parts));
  EXPECT_EQ(whole.exactness(), Exactness::kQuantised);
  // 256 of 300 tokens are coded: 8 blocks a stream; the other 2 blocks are open.
  const uint64_t open = pool->block_bytes();
  const auto& config = pool->config();
  const uint64_t coded = config.format_bytes(kFour) + config.format_bytes(kMixed);
  EXPECT_EQ(whole.bytes(), kCodingHeads * (8 * coded + kCodingLayers * 2 * open));
  EXPECT_EQ(whole.grow(65).code(), Code::kInternal) << "a step beyond the next coding";
}

TEST(KvCoding, GoesBackToMultiplesOfTheResidualAsIfReadAnew) {
  Ledger ledger(64 << 20);
  const auto pool = coding_pool(ledger, 512, {kFour, kFour});
  KvSequence kv(pool, kCodingLayers, kCodingHeads);
  ASSERT_TRUE(append_until(kv, 300).ok());
  EXPECT_EQ(kv.reachable(290), 290U);
  EXPECT_EQ(kv.reachable(256), 256U);
  EXPECT_EQ(kv.reachable(255), 192U);
  EXPECT_EQ(kv.reachable(63), 0U);
  const auto before = contents(kv);
  EXPECT_EQ(kv.truncate(255).code(), Code::kFailedPrecondition);
  EXPECT_EQ(contents(kv), before) << "a refused truncate() changes nothing";
  KvSequence fork = kv.fork();
  ASSERT_TRUE(kv.truncate(192).ok());
  ASSERT_TRUE(append_until(kv, 300).ok());
  EXPECT_EQ(contents(kv), before);
  EXPECT_EQ(contents(fork), before);
  ASSERT_TRUE(fork.truncate(0).ok());
  EXPECT_EQ(fork.blocks(), 0U);
}

TEST(KvCoding, PutOffItWaitsAndKeysMayGoBefore) {
  Ledger ledger(64 << 20);
  const auto pool = coding_pool(ledger, 512, {kFour, kFour});
  KvSequence kv(pool, kCodingLayers, kCodingHeads);
  kv.put_off_coding();
  ASSERT_TRUE(append_until(kv, 300).ok());
  EXPECT_EQ(kv.bytes(), kv.blocks() * pool->block_bytes());
  std::vector<uint32_t> kept;
  for (uint32_t i = 0; i < 300; i += 2) kept.push_back(i);
  ASSERT_TRUE(kv.keep_keys(0, 1, kept).ok());
  kv.code_now();
  EXPECT_LT(kv.bytes(), kv.blocks() * pool->block_bytes());
  EXPECT_EQ(kv.keep_keys(0, 1, std::vector<uint32_t>{1, 3}).code(), Code::kFailedPrecondition);
  ASSERT_TRUE(append_until(kv, 400).ok());
  EXPECT_EQ(kv.held_keys(0, 1), 250U);
  EXPECT_EQ(kv.held_keys(1, 0), 400U);
}

TEST(KvCoding, AFullPoolLeavesBlocksAsTheyAre) {
  Ledger ledger(64 << 20);
  const auto pool = coding_pool(ledger, 16, {kFour, kFour});  // one slab: all of it goes to open blocks
  KvSequence kv(pool, kCodingLayers, kCodingHeads);
  ASSERT_TRUE(append_until(kv, 64).ok());
  EXPECT_EQ(kv.bytes(), 8 * pool->block_bytes());
  EXPECT_EQ(kv.exactness(), Exactness::kExact);
}

TEST(KvCoding, ATextThatSlidesIsCodedForEver) {
  Ledger ledger(64 << 20);
  BlockPoolConfig config;
  config.key_encoding = KeyEncoding::kBlockRelative;
  config.head_dim = kCodingDim;
  config.blocks = 160;
  config.coded = {kFour, kFour};
  config.residual = 64;
  auto pool = BlockPool::create(config, ledger);
  ASSERT_TRUE(pool.ok());
  KvSequence kv(*pool, kCodingLayers, kCodingHeads);
  const auto row = row_of(1, 0, 0, true);
  for (int step = 0; step < 2000; ++step) {
    const size_t n = std::min<size_t>(7, kv.until_coding());
    ASSERT_TRUE(kv.grow(n).ok()) << step;
    for (size_t s = 0; s < n * kCodingLayers * kCodingHeads; ++s) {
      const size_t stream = s % (kCodingLayers * kCodingHeads);
      kv.write(stream / kCodingHeads, stream % kCodingHeads, kv.length() + s / (kCodingLayers * kCodingHeads),
               row.data(), row.data());
    }
    kv.commit(n);
    if (kv.length() >= 200 + kBlockKeys) {
      ASSERT_TRUE(kv.drop_blocks(1, (kv.length() - 200) / kBlockKeys).ok());
    }
    // The newest 63 tokens at most are as written, in three blocks of a stream at most.
    size_t open = 0;
    for (const KvBlockRef& ref : kv.stream(0, 0).blocks) open += ref.k_type == KvType::kF16 ? 1 : 0;
    ASSERT_LE(open, 3U) << step;
  }
  EXPECT_EQ(kv.fork().until_coding(), kv.until_coding());
  kv.clear();
  EXPECT_EQ(kv.until_coding(), 64U);
}

TEST(KvCoding, ASharedBlockIsCodedForItsOwnerOnly) {
  Ledger ledger(64 << 20);
  const auto pool = coding_pool(ledger, 512, {kFour, kFour}, 128);
  KvSequence kv(pool, kCodingLayers, kCodingHeads);
  ASSERT_TRUE(append_until(kv, 100).ok());
  const KvSequence fork = kv.fork();
  const auto before = contents(fork);
  ASSERT_TRUE(append_until(kv, 128).ok());
  EXPECT_EQ(kv.exactness(), Exactness::kQuantised);
  EXPECT_EQ(contents(fork), before);
  EXPECT_EQ(fork.exactness(), Exactness::kExact);
}

TEST(KvCoding, NothingLeaksThroughARandomLife) {
  Ledger ledger(64 << 20);
  const auto pool = coding_pool(ledger, 2048, {kFour, kMixed}, 32);
  {
    Rng rng(3);
    std::vector<KvSequence> all;
    for (int i = 0; i < 400; ++i) {
      if (all.size() < 4) all.emplace_back(pool, kCodingLayers, kCodingHeads);
      KvSequence& kv = all[rng.below(all.size())];
      switch (rng.below(4)) {
        case 0:
          if (all.size() < 8) all.push_back(kv.fork());
          break;
        case 1:
          ASSERT_TRUE(kv.truncate(kv.reachable(rng.below(kv.length() + 1))).ok());
          break;
        case 2:
          all.erase(all.begin() + static_cast<ptrdiff_t>(rng.below(all.size())));
          break;
        default:
          (void)append_until(kv, static_cast<uint32_t>(kv.length() + rng.below(80)));
      }
    }
  }
  EXPECT_EQ(pool->used_blocks(), 0U);
}

}  // namespace
}  // namespace isthmus
