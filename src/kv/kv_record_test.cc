// KV records over sequences whose rows are marks of their text: what comes back is what went in, bit by bit,
// and nothing else comes back at all.
#include "kv/kv_record.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "base/rng.h"
#include "base/xxh3.h"

namespace isthmus {
namespace {

constexpr size_t kRecordLayers = 3;
constexpr size_t kRecordHeads = 2;
constexpr size_t kRecordDim = 24;  // V rows are padded
constexpr size_t kRecordStreams = kRecordLayers * kRecordHeads;

Result<Digest> test_digest(std::span<const std::byte> bytes) {
  Digest out{};
  const Xxh3Digest sum = xxh3_128(bytes);
  std::memcpy(out.data(), &sum, sizeof(sum));
  return out;
}

Digest some_digest(int value) {
  Digest out{};
  out[0] = static_cast<std::byte>(value);
  return out;
}

std::shared_ptr<BlockPool> record_pool(Ledger& ledger, KvType type = KvType::kF16, size_t blocks = 200) {
  BlockPoolConfig config;
  config.k_type = type;
  config.v_type = type;
  config.head_dim = kRecordDim;
  config.blocks = blocks;
  auto pool = BlockPool::create(config, ledger);
  EXPECT_TRUE(pool.ok()) << pool.status().to_string();
  return *pool;
}

std::vector<int32_t> record_text(size_t n, uint64_t seed = 1) {
  Rng rng(seed);
  std::vector<int32_t> out(n);
  for (int32_t& token : out) token = static_cast<int32_t>(rng.below(50'000));
  return out;
}

/// A sequence that read `n` tokens; the rows are random, and the same for the same seed.
KvSequence read_rows(const std::shared_ptr<BlockPool>& pool, size_t n, uint64_t seed = 5) {
  KvSequence kv(pool, kRecordLayers, kRecordHeads);
  EXPECT_TRUE(kv.grow(n).ok());
  kv.set_pending_compute(Compute::kInt16);
  Rng rng(seed);
  std::vector<float> k(kRecordDim), v(kRecordDim);
  for (size_t slot = 0; slot < n; ++slot) {
    for (size_t s = 0; s < kRecordStreams; ++s) {
      for (size_t d = 0; d < kRecordDim; ++d) {
        k[d] = static_cast<float>(rng.below(2000)) / 100 - 10;
        v[d] = static_cast<float>(rng.below(2000)) / 100 - 10;
      }
      kv.write(s / kRecordHeads, s % kRecordHeads, slot, k.data(), v.data());
    }
  }
  kv.commit(n);
  return kv;
}

/// The same of a pool that codes.
std::shared_ptr<BlockPool> coded_record_pool(Ledger& ledger) {
  BlockPoolConfig config;
  config.head_dim = kRecordDim;
  config.blocks = 320;
  config.coded = {
      {KvType::kKivi4, KvType::kKivi2}, {KvType::kF16, KvType::kF16}, {KvType::kKivi8, KvType::kF16}};
  config.residual = 64;
  auto pool = BlockPool::create(config, ledger);
  EXPECT_TRUE(pool.ok()) << pool.status().to_string();
  return *pool;
}

KvSpace space_of(const KvSequence& kv) {
  return kv_space(kv, Compute::kInt16, some_digest(1), some_digest(2));
}

void expect_same_blocks(const KvSequence& a, const KvSequence& b, size_t blocks) {
  const size_t bytes = a.pool()->block_bytes();
  for (size_t s = 0; s < kRecordStreams; ++s) {
    const auto x = a.stream(s / kRecordHeads, s % kRecordHeads);
    const auto y = b.stream(s / kRecordHeads, s % kRecordHeads);
    for (size_t i = 0; i < blocks; ++i) {
      EXPECT_EQ(std::memcmp(x.blocks[i].k, y.blocks[i].k, bytes), 0) << "stream " << s << ", block " << i;
      EXPECT_EQ(x.blocks[i].base_pos, y.blocks[i].base_pos);
    }
  }
}

struct Sample {
  Ledger ledger{UINT64_MAX};
  std::shared_ptr<BlockPool> pool;
  KvSequence kv;
  KvSpace space;
  std::vector<int32_t> text;
  KvKeys keys;
  explicit Sample(size_t tokens = 300, KvType type = KvType::kF16)
      : pool(record_pool(ledger, type)),
        kv(read_rows(pool, tokens)),
        space(space_of(kv)),
        text(record_text(tokens)) {
    keys = *kv_keys(space, text, test_digest);
  }
  std::vector<std::byte> record(size_t first, size_t count) const {
    auto out = encode_kv_record(kv, space, keys, text, first, count, "sample");
    EXPECT_TRUE(out.ok()) << out.status().to_string();
    return out.ok() ? std::move(*out) : std::vector<std::byte>();
  }
};

TEST(KvRecord, GivesBackTheSameBlocksInEveryType) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8}) {
    const Sample s(300, type);
    ASSERT_EQ(s.keys.blocks.size(), 9U);
    ASSERT_EQ(kv_blocks_as(s.kv, s.space, 99), 9U);
    const auto first = s.record(0, 8);
    const auto second = s.record(8, 1);
    EXPECT_EQ(first.size() - record_size(first)->head, 8 * kv_space_block_bytes(s.space));
    const auto a = KvRecord::parse(first);
    const auto b = KvRecord::parse(second);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_TRUE(a->check_space(s.space).ok());
    EXPECT_TRUE(a->check_keys(test_digest).ok());
    EXPECT_TRUE(b->check_keys(test_digest).ok());
    EXPECT_EQ(b->head().parent, a->head().keys.back());
    EXPECT_EQ(a->matching_blocks(s.text), 8U);
    KvSequence back(s.pool, kRecordLayers, kRecordHeads);
    ASSERT_TRUE(a->append_to(back, 0, 8).ok());
    ASSERT_TRUE(b->append_to(back, 0, 1).ok());
    EXPECT_EQ(back.length(), 288U);
    expect_same_blocks(s.kv, back, 9);
    EXPECT_EQ(back.exactness(), type == KvType::kQ8 ? Exactness::kQuantised : Exactness::kExact);
    EXPECT_EQ(back.computed_by(), compute_bit(Compute::kInt16));
    EXPECT_EQ(kv_blocks_as(back, s.space, 99), 9U);  // may be kept again
    ASSERT_TRUE(back.grow(3).ok());
    back.commit(3);
    EXPECT_EQ(back.length(), 291U);
  }
}

TEST(KvRecord, PartsOfARecordCanBeTaken) {
  const Sample s;
  const auto bytes = s.record(0, 8);
  const auto record = KvRecord::parse(bytes);
  ASSERT_TRUE(record.ok());
  KvSequence back(s.pool, kRecordLayers, kRecordHeads);
  ASSERT_TRUE(record->append_to(back, 0, 3).ok());
  EXPECT_EQ(record->append_to(back, 0, 3).code(), Code::kFailedPrecondition);
  EXPECT_EQ(record->append_to(back, 3, 6).code(), Code::kFailedPrecondition);
  ASSERT_TRUE(record->append_to(back, 3, 2).ok());
  EXPECT_EQ(back.length(), 160U);
  expect_same_blocks(s.kv, back, 5);
  auto other = s.text;
  other[100] ^= 1;
  EXPECT_EQ(record->matching_blocks(other), 3U);
  EXPECT_EQ(record->matching_blocks(std::span(s.text).first(95)), 2U);
  EXPECT_EQ(record->matching_blocks({}), 0U);
}

TEST(KvRecord, KeysDependOnEverything) {
  const Sample s;
  const auto differs_from_the_first = [&](const KvSpace& space, const std::vector<int32_t>& text) {
    const auto keys = kv_keys(space, text, test_digest);
    ASSERT_TRUE(keys.ok());
    for (const Digest& key : keys->blocks) {
      for (const Digest& known : s.keys.blocks) EXPECT_NE(key, known);
    }
  };
  std::vector<KvSpace> others(9, s.space);
  others[0].identity = some_digest(3);
  others[1].salt = some_digest(3);
  others[2].layers = 4;
  others[3].kv_heads = 3;
  others[4].head_dim = 32;
  others[5].k_type = KvType::kF32;
  others[6].key_encoding = KeyEncoding::kBlockRelative;
  others[7].computed_by = compute_bit(Compute::kInt8);
  others[8].exactness = Exactness::kComposed;
  const auto bytes = s.record(0, 2);
  const auto record = KvRecord::parse(bytes);
  ASSERT_TRUE(record.ok());
  std::set<std::string> reasons;
  for (const KvSpace& space : others) {
    differs_from_the_first(space, s.text);
    const Status status = record->check_space(space);
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    reasons.insert(status.message());
  }
  EXPECT_EQ(reasons.size(), others.size());
  auto text = s.text;
  text[0] += 1;
  differs_from_the_first(s.space, text);
}

TEST(KvRecord, KeysThatDoNotFollowFromTheTokensAreCorrupt) {
  const Sample s;
  auto head = parse_record_head(s.record(0, 2));
  ASSERT_TRUE(head.ok());
  const auto rewritten = [&](RecordHead other) {
    RecordWriter writer(std::move(other), 2 * kv_space_block_bytes(s.space));
    return writer.finish();
  };
  auto other_key = *head;
  other_key.keys[0][5] ^= std::byte{1};
  auto other_parent = *head;
  other_parent.parent[5] ^= std::byte{1};
  auto other_token = *head;
  other_token.description.back() ^= std::byte{1};
  for (const RecordHead& bad : {other_key, other_parent, other_token}) {
    const auto bytes = rewritten(bad);
    const auto record = KvRecord::parse(bytes);
    ASSERT_TRUE(record.ok()) << record.status().to_string();
    EXPECT_EQ(record->check_keys(test_digest).code(), Code::kCorrupt);
  }
}

TEST(KvRecord, ShapesThatDoNotMatchTheirDataAreRefused) {
  const Sample s;
  const auto head = parse_record_head(s.record(0, 2));
  ASSERT_TRUE(head.ok());
  const uint64_t data = 2 * kv_space_block_bytes(s.space);
  const auto code_with = [&](size_t at, uint8_t value, uint64_t bytes) {
    RecordHead other = *head;
    other.description[at] = static_cast<std::byte>(value);
    RecordWriter writer(std::move(other), bytes);
    const auto record = writer.finish();
    return KvRecord::parse(record).status().code();
  };
  ASSERT_EQ(code_with(0, kRecordLayers, data), Code::kOk);
  for (const size_t at : {0, 4, 8}) {  // layers, heads, head_dim: 0, more, far too many
    EXPECT_EQ(code_with(at, 0, data), Code::kCorrupt) << at;
    EXPECT_EQ(code_with(at, 200, data), Code::kCorrupt) << at;
    EXPECT_EQ(code_with(at + 3, 255, data), Code::kCorrupt) << at;
  }
  for (const size_t at : {12, 13, 14, 15}) EXPECT_EQ(code_with(at, 77, data), Code::kCorrupt) << at;
  EXPECT_EQ(code_with(17, 1, data), Code::kCorrupt);
  EXPECT_EQ(code_with(0, kRecordLayers, data - 1), Code::kCorrupt);
  RecordHead moved = *head;
  moved.first_token = 31;
  RecordWriter writer(std::move(moved), data);
  const auto record = writer.finish();
  EXPECT_EQ(KvRecord::parse(record).status().code(), Code::kCorrupt);
}

TEST(KvRecord, OnlyWholeBlocksOfOneKindAreKept) {
  Sample s(100);
  const auto code = [&](size_t first, size_t count) {
    return encode_kv_record(s.kv, s.space, s.keys, s.text, first, count, "").status().code();
  };
  EXPECT_EQ(code(0, 3), Code::kOk);
  EXPECT_EQ(code(0, 4), Code::kInvalidArgument);
  EXPECT_EQ(code(3, 1), Code::kInvalidArgument);
  EXPECT_EQ(code(0, 0), Code::kInvalidArgument);
  std::vector<BlockId> ids;
  s.kv.share_block(1, ids);
  BlockHeader& header = s.pool->header(ids[4]);
  const BlockHeader before = header;
  const auto expect_refused = [&] {
    EXPECT_EQ(code(0, 3), Code::kFailedPrecondition);
    EXPECT_EQ(code(0, 1), Code::kOk);
    EXPECT_EQ(kv_blocks_as(s.kv, s.space, 3), 1U);
    header = before;
  };
  header.exactness = Exactness::kComposed;
  expect_refused();
  header.computed_by |= compute_bit(Compute::kInt8);
  expect_refused();
  header.sealed = false;
  expect_refused();
  header.valid = 7;
  expect_refused();
  for (const BlockId id : ids) s.pool->release(id);
  EXPECT_EQ(code(0, 3), Code::kOk);
}

TEST(KvRecord, ASequenceThatGaveUpKeysIsLeftAlone) {
  Sample s(100);
  const auto bytes = s.record(0, 3);
  const auto record = KvRecord::parse(bytes);
  ASSERT_TRUE(record.ok());
  std::vector<uint32_t> kept(64);
  for (uint32_t i = 0; i < 64; ++i) kept[i] = i;
  ASSERT_TRUE(s.kv.keep_keys(1, 0, kept).ok());
  EXPECT_EQ(kv_blocks_as(s.kv, s.space, 3), 0U);
  EXPECT_EQ(encode_kv_record(s.kv, s.space, s.keys, s.text, 0, 2, "").status().code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(record->append_to(s.kv, 0, 3).code(), Code::kFailedPrecondition);
}

TEST(KvRecord, WhatDoesNotFitLeavesTheSequenceAlone) {
  const Sample s;
  const auto bytes = s.record(0, 8);
  const auto record = KvRecord::parse(bytes);
  ASSERT_TRUE(record.ok());
  Ledger ledger(UINT64_MAX);
  const auto small = record_pool(ledger, KvType::kF16, 47);  // one block short
  KvSequence kv(small, kRecordLayers, kRecordHeads);
  EXPECT_EQ(record->append_to(kv, 0, 8).code(), Code::kResourceExhausted);
  EXPECT_EQ(kv.length(), 0U);
  EXPECT_EQ(small->free_blocks(), 47U);
  const auto wide = record_pool(ledger, KvType::kF32);
  KvSequence other(wide, kRecordLayers, kRecordHeads);
  EXPECT_EQ(record->append_to(other, 0, 8).code(), Code::kFailedPrecondition);
  KvSequence narrow(s.pool, kRecordLayers, 1);
  EXPECT_EQ(record->append_to(narrow, 0, 8).code(), Code::kFailedPrecondition);
  EXPECT_EQ(wide->used_blocks(), 0U);
}

TEST(KvRecord, EndsWithEveryBlockFree) {
  Sample s;
  const size_t used = s.pool->used_blocks();
  {
    const auto bytes = s.record(0, 8);
    const auto record = KvRecord::parse(bytes);
    ASSERT_TRUE(record.ok());
    KvSequence back(s.pool, kRecordLayers, kRecordHeads);
    ASSERT_TRUE(record->append_to(back, 0, 8).ok());
    EXPECT_EQ(s.pool->used_blocks(), used + 8 * kRecordStreams);
  }
  EXPECT_EQ(s.pool->used_blocks(), used);
  s.kv.clear();
  EXPECT_EQ(s.pool->used_blocks(), 0U);
}

TEST(KvRecord, CodedBlocksComeBackInTheirUnits) {
  Ledger ledger(UINT64_MAX);
  const auto pool = coded_record_pool(ledger);
  const KvSequence source = read_rows(pool, 64);
  const auto text = record_text(64);
  const KvSpace space = space_of(source);
  EXPECT_EQ(space.exactness, Exactness::kQuantised);
  EXPECT_EQ(kv_blocks_as(source, space, 2), 2U);
  const auto keys = kv_keys(space, text, test_digest);
  ASSERT_TRUE(keys.ok());
  const auto bytes = encode_kv_record(source, space, *keys, text, 0, 2, "x");
  ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
  const auto record = KvRecord::parse(*bytes);
  ASSERT_TRUE(record.ok()) << record.status().to_string();
  EXPECT_EQ(record->space(), space);
  ASSERT_TRUE(record->check_keys(test_digest).ok());
  KvSequence back(pool, kRecordLayers, kRecordHeads);
  EXPECT_EQ(record->append_to(back, 0, 1).code(), Code::kFailedPrecondition) << "half of a unit";
  ASSERT_TRUE(record->append_to(back, 0, 2).ok());
  EXPECT_EQ(back.bytes(), source.bytes());
  for (size_t s = 0; s < kRecordStreams; ++s) {
    const auto x = source.stream(s / kRecordHeads, s % kRecordHeads);
    const auto y = back.stream(s / kRecordHeads, s % kRecordHeads);
    const KvFormat format = space.format(s / kRecordHeads);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(y.blocks[i].k_type, format.k_type);
      EXPECT_EQ(std::memcmp(x.blocks[i].k, y.blocks[i].k, pool->config().format_bytes(format)), 0);
    }
  }
  EXPECT_EQ(back.reachable(63), 0U);

  KvSpace other = space;
  other.coded[0].v_type = KvType::kKivi4;
  EXPECT_EQ(record->check_space(other).code(), Code::kFailedPrecondition);
  other = space;
  other.residual = 32;
  EXPECT_EQ(record->check_space(other).code(), Code::kFailedPrecondition);
  EXPECT_NE(kv_keys(other, text, test_digest)->root, keys->root);
}

TEST(KvRecord, WhatIsNotCodedYetIsNotTaken) {
  Ledger ledger(UINT64_MAX);
  const auto pool = coded_record_pool(ledger);
  const KvSequence source = read_rows(pool, 50);
  EXPECT_EQ(kv_blocks_as(source, space_of(source), 1), 0U);
}

TEST(KvRecord, ACutDescriptionOfCodesIsRefused) {
  Ledger ledger(UINT64_MAX);
  const auto pool = coded_record_pool(ledger);
  const KvSequence source = read_rows(pool, 64);
  const auto text = record_text(64);
  const KvSpace space = space_of(source);
  const auto keys = kv_keys(space, text, test_digest);
  ASSERT_TRUE(keys.ok());
  const auto bytes = encode_kv_record(source, space, *keys, text, 0, 2, "x");
  ASSERT_TRUE(bytes.ok());
  const auto whole = parse_record(*bytes);
  ASSERT_TRUE(whole.ok());
  // Residual and formats are the description's last 4 + 2 * layers bytes.
  for (size_t cut = 1; cut < 4 + 2 * kRecordLayers; ++cut) {
    RecordHead head = whole->head;
    head.description.resize(head.description.size() - cut);
    RecordWriter writer(std::move(head), whole->data.size());
    std::copy(whole->data.begin(), whole->data.end(), writer.data().begin());
    const auto shorter = writer.finish();
    EXPECT_EQ(KvRecord::parse(shorter).status().code(), Code::kCorrupt) << cut;
  }
}

}  // namespace
}  // namespace isthmus
