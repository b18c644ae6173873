#include "tensor/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tensor/half.h"
#include "tensor/quant.h"
#include "tensor/quantize_fit.h"
#include "tensor/testing/sample_weights.h"

namespace isthmus {
namespace {

using testing::bell_weights;
using ::testing::HasSubstr;
using testing::heavy_weights;
using testing::relative_rms;
using testing::sample_importance;

constexpr size_t kRows = 32;
constexpr size_t kCols = 512;

/// Relative rms errors of llama.cpp's quantisers (llama-cpp-python 0.3.36) on the same data:
/// bell_weights(seed 1) plain and with sample_importance(seed 3), measured with the same weights; then the
/// same two for heavy_weights(seed 2).
struct Peer {
  DType type;
  double error[4];
};
constexpr Peer kPeers[] = {
    {DType::kQ4_0, {0.08441, 0.07507, 0.11515, 0.10510}},
    {DType::kQ4_1, {0.07709, 0.06098, 0.09831, 0.07821}},
    {DType::kQ5_0, {0.04163, 0.03700, 0.05873, 0.05413}},
    {DType::kQ5_1, {0.03748, 0.02952, 0.04725, 0.03792}},
    {DType::kQ8_0, {0.00526, 0.00534, 0.00745, 0.00748}},
    {DType::kQ2_K, {0.29505, 0.22040, 0.36175, 0.25840}},
    {DType::kQ3_K, {0.14906, 0.12877, 0.17983, 0.15750}},
    {DType::kQ4_K, {0.07005, 0.06198, 0.09081, 0.08027}},
    {DType::kQ5_K, {0.03553, 0.03166, 0.04625, 0.04203}},
    {DType::kQ6_K, {0.01760, 0.01563, 0.02362, 0.02150}},
    {DType::kIQ4_NL, {0.07463, 0.06885, 0.09340, 0.08460}},
    {DType::kIQ4_XS, {0.07515, 0.06968, 0.09425, 0.08578}},
    {DType::kMXFP4, {0.11386, 0.11437, 0.13230, 0.12862}},
};

std::vector<float> there_and_back(DType type, const std::vector<float>& values, size_t cols,
                                  const float* importance) {
  const size_t bytes = row_bytes(type, cols).value();
  std::vector<std::byte> row(bytes);
  std::vector<float> out(values.size());
  for (size_t i = 0; i < values.size(); i += cols) {
    EXPECT_TRUE(quantize_row(type, values.data() + i, cols, importance, row.data()).ok());
    EXPECT_TRUE(dequantize_row(type, row.data(), cols, out.data() + i).ok());
  }
  return out;
}

TEST(Quantize, LosesNoMoreThanLlamaCpp) {
  const auto importance = sample_importance(kCols, 3);
  const std::vector<float> sets[] = {bell_weights(kRows * kCols, 1), heavy_weights(kRows * kCols, 2)};
  for (const auto& peer : kPeers) {
    for (size_t i = 0; i < 4; ++i) {
      const auto& values = sets[i / 2];
      const bool weighted = i % 2 == 1;
      const auto back = there_and_back(peer.type, values, kCols, weighted ? importance.data() : nullptr);
      const double error = relative_rms(back, values, weighted ? importance : std::vector<float>());
      EXPECT_LE(error, peer.error[i] * 1.001) << dtype_info(peer.type).name << " " << i;
      EXPECT_GE(error, peer.error[i] * 0.7)
          << "too good to be true: " << dtype_info(peer.type).name << " " << i;
    }
  }
}

TEST(Quantize, WhatABlockOfThirtyTwoCanHoldComesBackExactly) {
  for (const DType type : {DType::kQ4_0, DType::kQ5_0, DType::kQ8_0, DType::kIQ4_NL, DType::kMXFP4}) {
    const auto once = there_and_back(type, bell_weights(kRows * kCols, 8), kCols, nullptr);
    EXPECT_EQ(there_and_back(type, once, kCols, nullptr), once) << dtype_info(type).name;
  }
}

TEST(Quantize, HalfTypesRoundToNearest) {
  const auto values = bell_weights(kCols, 4);
  const auto f16 = there_and_back(DType::kF16, values, kCols, nullptr);
  const auto bf16 = there_and_back(DType::kBF16, values, kCols, nullptr);
  EXPECT_EQ(there_and_back(DType::kF32, values, kCols, nullptr), values);
  for (size_t i = 0; i < kCols; ++i) {
    EXPECT_EQ(f16[i], f16_to_f32(f32_to_f16(values[i])));
    EXPECT_EQ(bf16[i], bf16_to_f32(f32_to_bf16(values[i])));
  }
}

TEST(Quantize, ImportantColumnsLoseLess) {
  const auto values = bell_weights(kRows * 256, 5);
  std::vector<float> importance(256, 0.01f);
  for (size_t i = 0; i < 256; i += 8) importance[i] = 10.0f;
  for (const auto& peer : kPeers) {
    if (peer.type == DType::kQ8_0) continue;  // its scale is the largest value's, whatever the importance
    const auto plain = there_and_back(peer.type, values, 256, nullptr);
    const auto weighted = there_and_back(peer.type, values, 256, importance.data());
    EXPECT_LT(relative_rms(weighted, values, importance), relative_rms(plain, values, importance))
        << dtype_info(peer.type).name;
  }
}

TEST(Quantize, ZerosConstantsAndExtremesComeBackClose) {
  for (const auto& peer : kPeers) {
    const auto name = dtype_info(peer.type).name;
    const std::vector<float> zeros(256, 0.0f);
    EXPECT_EQ(there_and_back(peer.type, zeros, 256, nullptr), zeros) << name;
    for (const float value : {1.0f, -0.37f, 1000.0f, 6e-5f, -3e-6f}) {
      const auto back = there_and_back(peer.type, std::vector<float>(256, value), 256, nullptr);
      for (const float b : back) ASSERT_NEAR(b, value, std::fabs(value) * 0.13f) << name;
    }
    std::vector<float> spike(256, 0.0f);
    spike[77] = -3.0f;
    EXPECT_NEAR(there_and_back(peer.type, spike, 256, nullptr)[77], -3.0f, 0.3f) << name;
  }
}

TEST(Quantize, NumbersTooSmallForTheScaleAreStillDefined) {
  for (const auto& peer : kPeers) {
    for (const float tiny : {1e-44f, 1e-38f, 1e-10f, 1e-7f}) {
      auto values = bell_weights(256, 6);
      for (float& v : values) v *= tiny;
      const auto back = there_and_back(peer.type, values, 256, nullptr);
      for (const float b : back) ASSERT_LE(std::fabs(b), 1e-6f);
    }
  }
}

TEST(Quantize, RefusesWhatCannotBeStored) {
  std::vector<std::byte> row(4096);
  for (const DType type : {DType::kQ4_0, DType::kQ4_K, DType::kQ6_K, DType::kF16, DType::kF32}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> values(256, 0.5f);
      values[200] = bad;
      const auto status = quantize_row(type, values.data(), 256, nullptr, row.data());
      EXPECT_EQ(status.code(), Code::kInvalidArgument);
      EXPECT_THAT(status.message(), HasSubstr("column 200"));
    }
  }
  for (const auto& peer : kPeers) {
    for (const float sign : {1.0f, -1.0f}) {
      std::vector<float> huge(256, 1.0f);
      huge[0] = sign * 3e38f;
      const auto status = quantize_row(peer.type, huge.data(), 256, nullptr, row.data());
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << dtype_info(peer.type).name;
      EXPECT_THAT(status.message(), HasSubstr("too large"));
    }
  }
  std::vector<float> values(256, 65'520.0f);
  EXPECT_EQ(quantize_row(DType::kF16, values.data(), 256, nullptr, row.data()).code(),
            Code::kInvalidArgument);
  EXPECT_TRUE(quantize_row(DType::kBF16, values.data(), 256, nullptr, row.data()).ok());
}

TEST(Quantize, RefusesBadArguments) {
  std::vector<std::byte> row(4096);
  const std::vector<float> values(256, 0.5f);
  EXPECT_EQ(quantize_row(DType::kQ4_K, values.data(), 128, nullptr, row.data()).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(quantize_row(DType::kIQ2_S, values.data(), 256, nullptr, row.data()).code(), Code::kUnsupported);
  EXPECT_FALSE(can_quantize(DType::kIQ2_S));
  EXPECT_TRUE(can_quantize(DType::kMXFP4));
  for (const float bad : {-1.0f, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> importance(256, 1.0f);
    importance[9] = bad;
    const auto status = quantize_row(DType::kQ4_K, values.data(), 256, importance.data(), row.data());
    EXPECT_THAT(status.message(), HasSubstr("importance of column 9"));
  }
  const std::vector<float> nothing(256, 0.0f);  // no column matters: still a valid row
  EXPECT_TRUE(quantize_row(DType::kQ4_K, values.data(), 256, nothing.data(), row.data()).ok());
}

// ---- the fits by themselves ----

TEST(QuantizeFit, Iq4CodesAreTheNearestLevels) {
  constexpr quant::Iq4Levels levels;
  for (int i = -1400; i <= 1400; ++i) {
    const float v = static_cast<float>(i) * 0.1f;
    float best = kIq4Values[0];
    for (const int8_t level : kIq4Values) {
      if (std::fabs(v - level) < std::fabs(v - best)) best = level;
    }
    EXPECT_EQ(std::fabs(v - levels.nearest(v)), std::fabs(v - best)) << v;
    EXPECT_EQ(static_cast<float>(kIq4Values[levels.code(v)]), levels.nearest(v)) << v;
  }
  EXPECT_EQ(levels.nearest(std::numeric_limits<float>::quiet_NaN()), -127.0f);
}

TEST(QuantizeFit, FindsScalesThatAreExact) {
  constexpr quant::UniformLevels levels = {-8.0f, 7.0f};
  float x[32];
  float w[32];
  for (size_t i = 0; i < 32; ++i) {
    x[i] = 0.125f * static_cast<float>(static_cast<int>(i % 16) - 8);
    w[i] = 1.0f;
  }
  EXPECT_FLOAT_EQ(quant::fit_scale(levels, x, w, 32, {-1.0f, 0.25f, 9}), 0.125f);
  for (float& v : x) v = v * 2.0f + 0.75f;  // 0.25 q - 1.25
  const auto fit = quant::fit_affine(x, w, 32, 15.0f, true, {-1.0f, 0.25f, 9});
  EXPECT_FLOAT_EQ(fit.d, 0.25f);
  EXPECT_FLOAT_EQ(fit.m, 1.25f);
}

TEST(QuantizeFit, KeepsTheSignOfTheMinimum) {
  float x[16];
  float w[16];
  for (size_t i = 0; i < 16; ++i) {
    x[i] = 5.0f + static_cast<float>(i);
    w[i] = 1.0f;
  }
  EXPECT_GE(quant::fit_affine(x, w, 16, 3.0f, true, {-0.9f, 0.1f, 19}).m, 0.0f);
  EXPECT_LT(quant::fit_affine(x, w, 16, 3.0f, false, {-0.9f, 0.1f, 19}).m, -4.0f);
}

}  // namespace
}  // namespace isthmus
