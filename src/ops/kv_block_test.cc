#include "ops/kv_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tensor/half.h"

namespace isthmus {
namespace {

constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8};
constexpr KvPart kParts[] = {KvPart::kKey, KvPart::kValue};

/// What is read back of row[dim], worked out the slow way.
std::vector<float> rounded(KvType type, const float* row, size_t dim) {
  std::vector<float> out(row, row + dim);
  if (type == KvType::kF16) {
    for (float& x : out) x = f16_to_f32(f32_to_f16(x));
  } else if (type == KvType::kBF16) {
    for (float& x : out) x = bf16_to_f32(f32_to_bf16(x));
  } else if (type == KvType::kQ8) {
    for (size_t first = 0; first < dim; first += kQ8Dims) {
      const size_t last = std::min(dim, first + kQ8Dims);
      float most = 0;
      for (size_t d = first; d < last; ++d) most = std::max(most, std::fabs(row[d]));
      const float scale = f16_to_f32(f32_to_f16(most / 127.0f));
      for (size_t d = first; d < last; ++d) {
        const float code = scale > 0 ? std::nearbyint(row[d] / scale) : 0.0f;
        out[d] = std::clamp(code, -127.0f, 127.0f) * scale;
      }
    }
  }
  return out;
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
      const size_t scales = type == KvType::kQ8 ? 32 * sizeof(uint16_t) : 0;  // of a group of 32 dimensions
      EXPECT_EQ(kv_part_bytes(type, part, 64), 4 * 64 * info.value_bits + 2 * scales);
      for (size_t dim = 8; dim <= 256; dim += 8) EXPECT_EQ(kv_part_bytes(type, part, dim) % 64, 0u);
    }
    const size_t scales = type == KvType::kQ8 ? 3 * 32 * sizeof(uint16_t) : 0;
    EXPECT_EQ(kv_part_bytes(type, KvPart::kValue, 72), 4 * 80 * info.value_bits + scales);
    EXPECT_EQ(info.exact, type != KvType::kQ8);
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
          ASSERT_EQ(row, rounded(type, rows.data() + slot * dim, dim))
              << kv_type_info(type).name << ' ' << dim;
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

TEST(KvBlockTest, CopiedSlotsReadTheSameAndNothingElseMoves) {
  for (const KvType type : kTypes) {
    for (const KvPart part : kParts) {
      for (const size_t dim : {8u, 64u, 72u, 320u}) {
        std::vector<std::byte> from(kv_part_bytes(type, part, dim), std::byte{0x5a});
        std::vector<std::byte> to(from.size(), std::byte{0x33});
        const auto rows = normal_floats(3 * dim, 3);
        for (size_t slot = 0; slot < 3; ++slot) {
          kv_write(type, part, from.data(), slot, rows.data() + slot * dim, dim);
          kv_write(type, part, to.data(), slot, rows.data() + (2 - slot) * dim, dim);
        }
        std::vector<float> want(dim), got(dim), left(dim), right(dim);
        kv_read(type, part, from.data(), 1, want.data(), dim);
        kv_read(type, part, to.data(), 1, left.data(), dim);
        kv_copy(type, part, from.data(), 1, to.data(), 2, 1, dim);
        kv_read(type, part, to.data(), 2, got.data(), dim);
        kv_read(type, part, to.data(), 1, right.data(), dim);
        EXPECT_EQ(got, want);
        EXPECT_EQ(left, right);
      }
    }
  }
}

TEST(KvBlockTest, CodesOfOddRowsNeverCrashAndNanStaysNan) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::byte> block(kv_part_bytes(KvType::kQ8, KvPart::kValue, 64));
  std::vector<float> back(64);
  for (const float odd : {kInf, -kInf, kNan, 1e30f}) {
    std::vector<float> row(64, 1.0f);
    row[40] = odd;
    kv_write(KvType::kQ8, KvPart::kValue, block.data(), 5, row.data(), 64);
    kv_read(KvType::kQ8, KvPart::kValue, block.data(), 5, back.data(), 64);
    EXPECT_NEAR(back[0], 1.0f, 1e-3f);  // the other group is untouched by it
    EXPECT_TRUE(std::isnan(back[40])) << odd;
  }
  std::vector<float> tiny(64, 1e-12f);
  kv_write(KvType::kQ8, KvPart::kValue, block.data(), 5, tiny.data(), 64);
  kv_read(KvType::kQ8, KvPart::kValue, block.data(), 5, back.data(), 64);
  EXPECT_EQ(back, std::vector<float>(64, 0.0f));
}

/// What a group of 32 becomes, from the formula of KvType.
std::vector<float> kivi_rounded(const std::vector<float>& group, int bits) {
  const auto [low, high] = std::minmax_element(group.begin(), group.end());
  const float most = static_cast<float>((1 << bits) - 1);
  const float scale = f16_to_f32(f32_to_f16((*high - *low) / most));
  const float zero = bits == 8 ? 128.0f : 0.0f;
  const float minimum = f16_to_f32(f32_to_f16(bits == 8 ? *low + scale * zero : *low));
  std::vector<float> out;
  for (const float x : group) {
    const float code = scale > 0 ? std::nearbyint((x - minimum) / scale + zero) : zero;
    out.push_back(std::fma(std::clamp(code, 0.0f, most) - zero, scale, minimum));
  }
  return out;
}

constexpr KvType kKiviTypes[] = {KvType::kKivi8, KvType::kKivi4, KvType::kKivi2, KvType::kKivi1};

TEST(KvBlockTest, KiviPartsReadBackTheirFormulaAndHaveItsSize) {
  for (const KvType type : kKiviTypes) {
    const int bits = kivi_bits(type);
    EXPECT_EQ(kv_type_from_name(kv_type_info(type).name), type);
    EXPECT_EQ(kv_type_info(type).value_bits, static_cast<size_t>(bits));
    for (const size_t dim : {8u, 64u, 72u, 80u, 128u, 256u}) {
      const auto rows = normal_floats(32 * dim, 7);
      for (const KvPart part : kParts) {
        // Codes and two float16 numbers a group.
        const size_t groups = part == KvPart::kKey ? (dim + 31) / 32 * 32 : (padded_dim(dim) + 31) / 32 * 32;
        ASSERT_EQ(kv_part_bytes(type, part, dim), groups * (32 * static_cast<size_t>(bits) / 8 + 4));
        std::vector<std::byte> open(kv_part_bytes(KvType::kF32, part, dim));
        kv_write_rows(KvType::kF32, part, open.data(), 0, 32, rows.data(), dim, dim);
        std::vector<std::byte> coded(kv_part_bytes(type, part, dim));
        kv_encode(KvType::kF32, part, open.data(), type, coded.data(), dim);
        std::vector<float> back(32 * dim);
        for (size_t slot = 0; slot < 32; ++slot) {
          kv_read(type, part, coded.data(), slot, back.data() + slot * dim, dim);
        }
        for (size_t i = 0; i < 32; ++i) {
          for (size_t first = 0; first < dim; first += 32) {
            std::vector<float> group(32), got(32);
            for (size_t j = 0; j < 32; ++j) {  // key: dimension first + i over slots; value: slot i
              if (part == KvPart::kKey && first + i >= dim) continue;
              const size_t at = part == KvPart::kKey ? j * dim + first + i : i * dim + first + j;
              const bool pad = part == KvPart::kValue && first + j >= dim;
              group[j] = pad ? 0.0f : rows[at];
              got[j] = pad ? 0.0f : back[at];
            }
            if (part == KvPart::kKey && first + i >= dim) continue;
            // A V part is padded to whole vectors of 16; what lies beyond those is in no group.
            if (part == KvPart::kValue) group.resize(std::min<size_t>(32, padded_dim(dim) - first));
            const auto want = kivi_rounded(group, bits);
            for (size_t j = 0; j < want.size(); ++j) {
              if (part == KvPart::kValue && first + j >= dim) continue;
              ASSERT_EQ(got[j], want[j]) << kv_type_info(type).name << ' ' << dim << ' ' << i << ' ' << j;
              const float step = (*std::max_element(group.begin(), group.end()) -
                                  *std::min_element(group.begin(), group.end())) /
                                 static_cast<float>((1 << bits) - 1);
              ASSERT_LE(std::fabs(got[j] - group[j]), 0.51f * step + 4e-3f);
            }
          }
        }
      }
    }
  }
}

TEST(KvBlockTest, OddGroupsOfKiviStayOdd) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const KvType type : kKiviTypes) {
    for (const float odd : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> rows(32 * 64, 1.5f);
      rows[3 * 64 + 40] = odd;
      for (const KvPart part : kParts) {
        std::vector<std::byte> open(kv_part_bytes(KvType::kF32, part, 64));
        kv_write_rows(KvType::kF32, part, open.data(), 0, 32, rows.data(), 64, 64);
        std::vector<std::byte> coded(kv_part_bytes(type, part, 64));
        kv_encode(KvType::kF32, part, open.data(), type, coded.data(), 64);
        std::vector<float> back(64);
        kv_read(type, part, coded.data(), 3, back.data(), 64);
        EXPECT_TRUE(std::isnan(back[40])) << odd;
        EXPECT_EQ(back[0], 1.5f);  // a group of equal values is exact
      }
    }
  }
}

}  // namespace
}  // namespace isthmus
