#include "base/stored_record.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/rng.h"
#include "base/xxh3.h"

namespace isthmus {
namespace {

Digest digest_of_byte(uint8_t value) {
  Digest out;
  out.fill(static_cast<std::byte>(value));
  return out;
}

RecordHead sample_head() {
  RecordHead head;
  head.label = "small";
  head.identity = digest_of_byte(1);
  head.parent = digest_of_byte(2);
  head.keys = {digest_of_byte(3), digest_of_byte(4)};
  head.first_token = 256;
  head.tokens = 64;
  head.description.assign(77, std::byte{9});
  return head;
}

std::vector<std::byte> sample_record(size_t data_bytes) {
  RecordWriter writer(sample_head(), data_bytes);
  Rng rng(7);
  for (std::byte& b : writer.data()) b = static_cast<std::byte>(rng.below(256));
  return writer.finish();
}

/// The record with other bytes at `at`, and a head whose checksum fits again.
std::vector<std::byte> with_u32(std::vector<std::byte> record, size_t at, uint32_t value) {
  const uint64_t head = record_size(record)->head;
  std::memcpy(record.data() + at, &value, sizeof(value));
  const uint64_t sum = xxh3_64(std::span(record).first(head).subspan(16));
  std::memcpy(record.data() + 8, &sum, sizeof(sum));
  return record;
}

TEST(StoredRecord, GivesBackWhatWasPutIn) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{65536}, size_t{200'001}}) {
    const auto record = sample_record(bytes);
    const auto parsed = parse_record(record);
    ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
    EXPECT_EQ(parsed->head, sample_head());
    EXPECT_EQ(parsed->data.size(), bytes);
    EXPECT_EQ(record_name(parsed->head), digest_of_byte(4));
    const auto size = record_size(std::span(record).first(kRecordStartBytes));
    ASSERT_TRUE(size.ok());
    EXPECT_EQ(size->total(), record.size());
    EXPECT_EQ(size->head % kRecordAlign, 0U);
    EXPECT_EQ(size->head, record_head_bytes(sample_head(), bytes));
    const auto head = parse_record_head(std::span(record).first(size->head));
    ASSERT_TRUE(head.ok());
    EXPECT_EQ(*head, sample_head());
  }
}

TEST(StoredRecord, EveryFlippedBitIsSeen) {
  const auto record = sample_record(300);
  for (size_t at = 0; at < record.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      auto damaged = record;
      damaged[at] ^= static_cast<std::byte>(1 << bit);
      ASSERT_FALSE(parse_record(damaged).ok()) << "byte " << at << ", bit " << bit;
    }
  }
}

TEST(StoredRecord, EveryCutIsSeen) {
  auto record = sample_record(70'000);
  for (size_t n = 0; n < record.size(); n += n < 1000 ? 1 : 997) {
    ASSERT_FALSE(parse_record(std::span(record).first(n)).ok()) << n;
  }
  record.push_back(std::byte{0});
  EXPECT_EQ(parse_record(record).status().code(), Code::kCorrupt);
}

TEST(StoredRecord, SizesThatDoNotFitAreRefusedUnderAGoodChecksum) {
  const auto record = sample_record(1000);
  EXPECT_EQ(parse_record(with_u32(record, 16, 2)).status().code(), Code::kUnsupported);
  struct Field {
    size_t at;
    uint32_t right;
  };
  // Keys, label, description, the reserved number.
  for (const Field field : {Field{32, 2}, Field{36, 5}, Field{40, 77}, Field{52, 0}}) {
    ASSERT_TRUE(parse_record(with_u32(record, field.at, field.right)).ok()) << field.at;
    for (const uint32_t value : {field.right + 1, 0xFFFFFFFFU, 0x80000000U, 1000U}) {
      EXPECT_EQ(parse_record(with_u32(record, field.at, value)).status().code(), Code::kCorrupt)
          << field.at << ": " << value;
    }
  }
  EXPECT_EQ(parse_record(with_u32(record, 32, 0)).status().code(), Code::kCorrupt);
  for (const uint32_t head : {0U, 63U, 64U, 0xFFFFFFFFU}) {
    auto other = record;
    std::memcpy(other.data() + 20, &head, sizeof(head));
    EXPECT_EQ(parse_record(other).status().code(), Code::kCorrupt) << head;
  }
  for (const uint64_t data : {uint64_t{999}, uint64_t{1001}, UINT64_MAX, uint64_t{1} << 40}) {
    auto other = record;
    std::memcpy(other.data() + 24, &data, sizeof(data));
    EXPECT_EQ(parse_record(other).status().code(), Code::kCorrupt) << data;
  }
}

TEST(Digest, HexAndBack) {
  Digest digest{};
  for (size_t i = 0; i < digest.size(); ++i) digest[i] = static_cast<std::byte>(i * 37);
  const std::string hex = hex_of(digest);
  EXPECT_EQ(hex.size(), 64U);
  EXPECT_EQ(hex.substr(0, 6), "00254a");
  EXPECT_EQ(digest_from_hex(hex), digest);
  EXPECT_FALSE(digest_from_hex(hex.substr(1)).has_value());
  EXPECT_FALSE(digest_from_hex(hex + "0").has_value());
  std::string upper = hex;
  upper[5] = 'A';
  EXPECT_FALSE(digest_from_hex(upper).has_value());
}

}  // namespace
}  // namespace isthmus
