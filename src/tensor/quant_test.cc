#include "tensor/quant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "base/byte_reader.h"
#include "tensor/half.h"
#include "tensor/quant_blocks.h"

namespace isthmus {
namespace {

struct Golden {
  DType type;
  std::vector<std::byte> row;
  std::vector<float> values;
};

std::vector<Golden> read_golden() {
  std::ifstream file(ISTHMUS_SOURCE_DIR "/src/tensor/testdata/dequant.golden", std::ios::binary);
  const std::vector<char> raw{std::istreambuf_iterator<char>(file), {}};
  ByteReader reader(std::as_bytes(std::span(raw)));
  std::vector<Golden> records;
  while (!reader.at_end()) {
    const auto id = reader.read<uint32_t>().value();
    const auto cols = reader.read<uint32_t>().value();
    const auto row = reader.take(reader.read<uint32_t>().value()).value();
    Golden golden{static_cast<DType>(id), {row.begin(), row.end()}, std::vector<float>(cols)};
    for (auto& value : golden.values) value = reader.read<float>().value();
    records.push_back(std::move(golden));
  }
  return records;
}

TEST(Dequantize, EqualsTheFormatAuthorsBitForBit) {
  const auto records = read_golden();
  ASSERT_EQ(records.size(), 13u);  // every quantised type that can be computed with
  for (const auto& golden : records) {
    const auto name = dtype_info(golden.type).name;
    ASSERT_EQ(golden.row.size(), row_bytes(golden.type, golden.values.size())) << name;
    std::vector<float> got(golden.values.size());
    ASSERT_TRUE(dequantize_row(golden.type, golden.row.data(), got.size(), got.data()).ok()) << name;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(golden.values[i]))
          << name << " " << i;
    }
  }
}

TEST(Dequantize, RowsMayLieAtAnyAddress) {
  for (const auto& golden : read_golden()) {
    std::vector<std::byte> shifted(golden.row.size() + 1);
    std::copy(golden.row.begin(), golden.row.end(), shifted.begin() + 1);
    std::vector<float> got(golden.values.size());
    ASSERT_TRUE(dequantize_row(golden.type, shifted.data() + 1, got.size(), got.data()).ok());
    EXPECT_EQ(got, golden.values) << dtype_info(golden.type).name;
  }
}

TEST(Dequantize, PlainTypes) {
  const std::vector<float> values = {0.0f, -1.5f, 3.25f, 65504.0f};
  std::vector<uint16_t> half(4);
  std::vector<float> got(4);
  ASSERT_TRUE(dequantize_row(DType::kF32, std::as_bytes(std::span(values)).data(), 4, got.data()).ok());
  EXPECT_EQ(got, values);
  std::ranges::transform(values, half.begin(), f32_to_f16);
  ASSERT_TRUE(dequantize_row(DType::kF16, std::as_bytes(std::span(half)).data(), 4, got.data()).ok());
  EXPECT_EQ(got, values);
  half = {0x0000, 0xbfc0, 0x4050, 0x4780};
  ASSERT_TRUE(dequantize_row(DType::kBF16, std::as_bytes(std::span(half)).data(), 4, got.data()).ok());
  EXPECT_EQ(got, (std::vector<float>{0.0f, -1.5f, 3.25f, 65536.0f}));
}

TEST(Dequantize, RefusesWhatItCannotRead) {
  std::byte row[64]{};
  float out[32];
  const auto unknown = dequantize_row(DType::kIQ2_XXS, row, 256, out);
  EXPECT_EQ(unknown.code(), Code::kUnsupported);
  EXPECT_NE(unknown.message().find("IQ2_XXS"), std::string::npos);
  EXPECT_EQ(dequantize_row(DType::kQ4_0, row, 33, out).code(), Code::kInvalidArgument);
  EXPECT_EQ(dequantize_row(DType::kQ4_K, row, 32, out).code(), Code::kInvalidArgument);
  EXPECT_TRUE(dequantize_row(DType::kQ4_K, row, 0, out).ok());
}

TEST(QuantBlocks, SizesAreThoseOfTheFormat) {
  const std::map<DType, size_t> sizes = {
      {DType::kQ4_0, sizeof(BlockQ4_0)},     {DType::kQ4_1, sizeof(BlockQ4_1)},
      {DType::kQ5_0, sizeof(BlockQ5_0)},     {DType::kQ5_1, sizeof(BlockQ5_1)},
      {DType::kQ8_0, sizeof(BlockQ8_0)},     {DType::kQ2_K, sizeof(BlockQ2_K)},
      {DType::kQ3_K, sizeof(BlockQ3_K)},     {DType::kQ4_K, sizeof(BlockQ4_K)},
      {DType::kQ5_K, sizeof(BlockQ5_K)},     {DType::kQ6_K, sizeof(BlockQ6_K)},
      {DType::kIQ4_NL, sizeof(BlockIQ4_NL)}, {DType::kIQ4_XS, sizeof(BlockIQ4_XS)},
      {DType::kMXFP4, sizeof(BlockMXFP4)}};
  for (const auto& [type, size] : sizes)
    EXPECT_EQ(dtype_info(type).block_bytes, size) << dtype_info(type).name;
}

TEST(QuantBlocks, PackedScalesComeBack) {
  for (uint32_t round = 0; round < 64; ++round) {
    ScalesK k{};
    std::array<uint8_t, 16> q3{};
    for (uint32_t g = 0; g < 16; ++g) {
      q3[g] = static_cast<uint8_t>((round * 7 + g * 13) % 64);
      (g < 8 ? k.scale[g] : k.min[g - 8]) = q3[g];
    }
    uint8_t packed[12];
    pack_scales_k(k, packed);
    EXPECT_EQ(unpack_scales_k(packed).scale, k.scale);
    EXPECT_EQ(unpack_scales_k(packed).min, k.min);
    pack_scales_q3(q3, packed);
    EXPECT_EQ(unpack_scales_q3(packed), q3);
  }
}

TEST(DType, FactsAndNames) {
  EXPECT_EQ(dtype_from_name("q4_k"), DType::kQ4_K);
  EXPECT_EQ(dtype_from_name("Q4_7"), std::nullopt);
  EXPECT_EQ(find_dtype(4), nullptr);  // a retired id
  EXPECT_EQ(row_bytes(DType::kQ6_K, 512), 420u);
  EXPECT_EQ(row_bytes(DType::kQ6_K, 300), std::nullopt);
  EXPECT_EQ(row_bytes(DType::kF32, UINT64_MAX), std::nullopt);
}

}  // namespace
}  // namespace isthmus
