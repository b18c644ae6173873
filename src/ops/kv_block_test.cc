#include "ops/kv_block.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "tensor/half.h"

namespace isthmus {
namespace {

constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16};
constexpr KvPart kParts[] = {KvPart::kKey, KvPart::kValue};

float rounded(KvType type, float x) {
  if (type == KvType::kF16) return f16_to_f32(f32_to_f16(x));
  if (type == KvType::kBF16) return bf16_to_f32(f32_to_bf16(x));
  return x;
}

std::vector<float> normal_floats(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> rows(n);
  for (float& v : rows) v = normal(rng);
  return rows;
}

TEST(KvBlockTest, NamesAndSizes) {
  for (const KvType type : kTypes) {
    const KvTypeInfo& info = kv_type_info(type);
    EXPECT_EQ(info.type, type);
    EXPECT_EQ(kv_type_from_name(info.name), type);
    for (const KvPart part : kParts) {
      EXPECT_EQ(kv_part_bytes(type, part, 64), 32 * 64 * info.value_bytes);
      for (size_t dim = 8; dim <= 256; dim += 8) EXPECT_EQ(kv_part_bytes(type, part, dim) % 64, 0u);
    }
    EXPECT_EQ(kv_part_bytes(type, KvPart::kValue, 72), 32 * 80 * info.value_bytes);
  }
  EXPECT_EQ(kv_type_from_name("q4_0"), std::nullopt);
}

TEST(KvBlockTest, ReadsBackTheRoundedRowAndTouchesNothingElse) {
  for (const KvType type : kTypes) {
    for (const KvPart part : kParts) {
      for (const size_t dim : {8u, 64u, 72u, 80u, 96u, 128u, 256u, 264u, 512u}) {
        std::vector<std::byte> block(kv_part_bytes(type, part, dim), std::byte{0x5a});
        const auto rows = normal_floats(32 * dim, 1);
        for (const size_t slot : {31u, 0u, 7u}) {
          kv_write(type, part, block.data(), slot, rows.data() + slot * dim, dim);
        }
        const auto half_written = block;
        std::vector<float> row(dim);
        for (const size_t slot : {0u, 7u, 31u}) {
          kv_read(type, part, block.data(), slot, row.data(), dim);
          for (size_t d = 0; d < dim; ++d) ASSERT_EQ(row[d], rounded(type, rows[slot * dim + d]));
        }
        kv_write(type, part, block.data(), 8, rows.data(), dim);
        std::vector<float> before(dim);
        for (const size_t slot : {6u, 9u}) {  // never written: still the same bytes
          kv_read(type, part, half_written.data(), slot, before.data(), dim);
          kv_read(type, part, block.data(), slot, row.data(), dim);
          ASSERT_EQ(std::memcmp(before.data(), row.data(), dim * sizeof(float)), 0);
        }
      }
    }
  }
}

TEST(KvBlockTest, ManyRowsAreTheSameBytesAsOneByOne) {
  for (const KvType type : kTypes) {
    for (const KvPart part : kParts) {
      for (const size_t dim : {64u, 72u, 256u, 320u}) {
        const size_t ld = dim + 5;
        const auto rows = normal_floats(32 * ld, 2);
        std::vector<std::byte> one(kv_part_bytes(type, part, dim));
        std::vector<std::byte> many = one;
        for (size_t slot = 3; slot < 32; ++slot) {
          kv_write(type, part, one.data(), slot, rows.data() + (slot - 3) * ld, dim);
        }
        kv_write_rows(type, part, many.data(), 3, 29, rows.data(), ld, dim);
        EXPECT_EQ(one, many);
      }
    }
  }
}

}  // namespace
}  // namespace isthmus
