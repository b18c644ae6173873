#include "kv/kv_file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/xxh3.h"

namespace isthmus {
namespace {

Result<Digest> file_test_digest(std::span<const std::byte> bytes) {
  Digest out{};
  const Xxh3Digest sum = xxh3_128(bytes);
  std::memcpy(out.data(), &sum, sizeof(sum));
  return out;
}

/// The records of a text of 20 blocks, KV all zero.
std::vector<std::vector<std::byte>> file_records() {
  Ledger ledger(UINT64_MAX);
  BlockPoolConfig config;
  config.head_dim = 8;
  config.blocks = 20;
  auto pool = BlockPool::create(config, ledger);
  EXPECT_TRUE(pool.ok());
  KvSequence kv(*pool, 1, 1);
  EXPECT_TRUE(kv.grow(640).ok());
  kv.set_pending_compute(Compute::kInt16);
  const std::vector<float> zeros(8);
  for (size_t i = 0; i < 640; ++i) kv.write(0, 0, i, zeros.data(), zeros.data());
  kv.commit(640);
  std::vector<int32_t> tokens(640);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7);
  const KvSpace space = kv_space(kv, Compute::kInt16, {}, {});
  const auto keys = kv_keys(space, tokens, file_test_digest);
  std::vector<std::vector<std::byte>> out;
  for (const size_t first : {0, 8, 16}) {
    out.push_back(*encode_kv_record(kv, space, *keys, tokens, first, first == 16 ? 4 : 8, "x"));
  }
  return out;
}

std::vector<std::byte> file_of(const std::vector<std::vector<std::byte>>& records) {
  uint64_t bytes = 0;
  for (const auto& record : records) bytes += record.size();
  std::vector<std::byte> out = encode_kv_file_head(records.size(), bytes);
  for (const auto& record : records) out.insert(out.end(), record.begin(), record.end());
  return out;
}

TEST(KvFile, GivesBackItsRecords) {
  const auto records = file_records();
  const auto file = file_of(records);
  const auto parsed = parse_kv_file(file, file_test_digest);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  ASSERT_EQ(parsed->size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    const auto bytes = (*parsed)[i].bytes;
    EXPECT_EQ(std::vector<std::byte>(bytes.begin(), bytes.end()), records[i]);
    EXPECT_EQ((*parsed)[i].record.first_block(), 8 * i);
  }
}

TEST(KvFile, EveryDamageIsSeen) {
  const auto file = file_of(file_records());
  for (size_t at = 0; at < file.size(); ++at) {
    auto bad = file;
    bad[at] ^= std::byte{16};
    ASSERT_FALSE(parse_kv_file(bad, file_test_digest).ok()) << at;
  }
  for (size_t n = 0; n < file.size(); n += n < 200 ? 1 : 61) {
    ASSERT_EQ(parse_kv_file(std::span(file).first(n), file_test_digest).status().code(), Code::kCorrupt) << n;
  }
}

TEST(KvFile, RecordsMustFollowEachOther) {
  const auto r = file_records();
  const auto code = [](const std::vector<std::vector<std::byte>>& records) {
    return parse_kv_file(file_of(records), file_test_digest).status().code();
  };
  EXPECT_EQ(code({r[0]}), Code::kOk);
  EXPECT_EQ(code({r[0], r[1]}), Code::kOk);
  EXPECT_EQ(code({r[1], r[2]}), Code::kCorrupt);
  EXPECT_EQ(code({r[0], r[2]}), Code::kCorrupt);
  EXPECT_EQ(code({r[1], r[0]}), Code::kCorrupt);
  EXPECT_EQ(code({r[0], r[0]}), Code::kCorrupt);
  EXPECT_EQ(code({}), Code::kCorrupt);
  auto more = file_of({r[0]});
  more.push_back(std::byte{0});
  EXPECT_EQ(parse_kv_file(more, file_test_digest).status().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace isthmus
