#include "model/packed_format.h"

#include <gtest/gtest.h>

#include <cstring>

namespace isthmus {
namespace {

PackedHead example() {
  PackedHead head;
  head.key.data_bytes = 3 * kPackedPieceBytes + 64;
  head.key.parts = {{{1, 2, 3, -4, 5}, {6, 7}}, {{8, 9, 10, 11, 12}, {13, 14}}};
  head.key.entries = {{"token_embd.weight", false, 2, 0, 100, 64, 0, 4096},
                      {"blk.0.qkv", false, 8, 64, 32, 64, 4096, kPackedPieceBytes},
                      {"norm", true, 0, 0, 1, 16, 3 * kPackedPieceBytes, 64}};
  head.model_path = "/models/a model.gguf";
  head.checksums = {1, 2, 3, UINT64_MAX};
  return head;
}

/// Makes the checksum fit again, as a hostile file would.
void seal(std::vector<std::byte>& bytes) {
  const uint64_t sum = xxh3_64(std::span(bytes).subspan(16));
  std::memcpy(bytes.data() + 8, &sum, sizeof(sum));
}

TEST(PackedFormat, ReadsWhatItWrote) {
  const PackedHead head = example();
  const auto bytes = encode_packed_head(head);
  EXPECT_EQ(bytes.size() % kPackedAlign, 0u);
  EXPECT_EQ(packed_head_bytes(bytes).value(), bytes.size());
  const auto read = parse_packed_head(bytes);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->key, head.key);
  EXPECT_EQ(read->model_path, head.model_path);
  EXPECT_EQ(read->checksums, head.checksums);
}

TEST(PackedFormat, EveryTruncationIsRefused) {
  const auto bytes = encode_packed_head(example());
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(parse_packed_head(std::span(bytes).first(n)).ok()) << n;
  }
}

TEST(PackedFormat, EveryFlippedBitIsNoticed) {
  auto bytes = encode_packed_head(example());
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      const std::byte before = bytes[i];
      bytes[i] ^= static_cast<std::byte>(1 << bit);
      EXPECT_FALSE(parse_packed_head(bytes).ok()) << i << " bit " << bit;
      bytes[i] = before;
    }
  }
}

TEST(PackedFormat, FieldsThatLieAreRefusedUnderARightChecksum) {
  const auto good = encode_packed_head(example());
  size_t refused = 0;
  // Each 32-bit word of the fields in turn, with values at the edges.
  for (size_t at = 16; at + 4 <= 400; at += 4) {
    for (const uint32_t value : {0U, 1U, 0x7FFFFFFFU, 0xFFFFFFFFU}) {
      auto bytes = good;
      std::memcpy(bytes.data() + at, &value, sizeof(value));
      seal(bytes);
      const auto read = parse_packed_head(bytes);
      if (!read.ok()) {
        ++refused;
        continue;
      }
      // What was taken must write the same bytes: no field was passed over.
      EXPECT_EQ(encode_packed_head(*read), bytes) << at << " = " << value;
    }
  }
  EXPECT_GT(refused, 50u);
}

TEST(PackedFormat, OtherVersionsAreUnsupported) {
  auto bytes = encode_packed_head(example());
  bytes[16] = std::byte{2};
  seal(bytes);
  EXPECT_EQ(parse_packed_head(bytes).status().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace isthmus
