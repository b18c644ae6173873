#include "ops/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>
#include <vector>

namespace isthmus {
namespace {

/// Written from the papers alone, in float64: angle per position of pair i, and the magnitude.
struct Oracle {
  std::vector<double> frequency;
  double magnitude = 1.0;
};

RopeTable make(const RopeParams& params, size_t max_position = 4096) {
  auto table = RopeTable::create(params, max_position);
  EXPECT_TRUE(table.ok()) << table.status().to_string();
  return std::move(table).value();
}

void expect_rows(const RopeTable& table, const Oracle& oracle) {
  const size_t pairs = table.dims() / 2;
  ASSERT_EQ(oracle.frequency.size(), pairs);
  std::vector<float> row(table.row_floats());
  for (const int32_t position :
       {0, 1, 2, 31, 255, 256, 257, 1000, 4095, 4096, 5000, 131071, 2000000, -1, -300}) {
    table.row(position, row.data());
    for (size_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(position) * oracle.frequency[i];
      // Half an ULP of a value up to the magnitude, and what float64 itself loses on a large angle.
      const double limit = 6.1e-8 * oracle.magnitude + std::abs(angle) * 1e-15;
      ASSERT_NEAR(row[i], std::cos(angle) * oracle.magnitude, limit) << position << ' ' << i;
      ASSERT_NEAR(row[pairs + i], std::sin(angle) * oracle.magnitude, limit) << position << ' ' << i;
    }
  }
}

Oracle plain(size_t dims, double base) {
  Oracle oracle;
  for (size_t i = 0; i < dims / 2; ++i) {
    oracle.frequency.push_back(1.0 /
                               std::pow(base, 2.0 * static_cast<double>(i) / static_cast<double>(dims)));
  }
  return oracle;
}

TEST(RopeTest, Plain) {
  for (const size_t dims : {2u, 64u, 80u, 96u, 128u, 256u}) {
    RopeParams params;
    params.dims = dims;
    params.base = 1e6;
    expect_rows(make(params), plain(dims, 1e6));
  }
}

TEST(RopeTest, Linear) {
  RopeParams params;
  params.dims = 64;
  params.scaling = RopeScaling::kLinear;
  params.factor = 8.0;
  Oracle oracle = plain(64, 10000.0);
  for (double& f : oracle.frequency) f /= 8.0;
  expect_rows(make(params), oracle);
}

TEST(RopeTest, Yarn) {
  RopeParams params;
  params.dims = 128;
  params.base = 1e6;
  params.scaling = RopeScaling::kYarn;
  params.factor = 4.0;
  params.original_context = 32768;
  Oracle oracle = plain(128, 1e6);
  // "NTK by parts" in the reference implementation's terms (LlamaYaRNScaledRotaryEmbedding).
  const auto correction = [](double rotations) {
    return 128.0 * std::log(32768.0 / (rotations * 2.0 * std::numbers::pi)) / (2.0 * std::log(1e6));
  };
  const double low = std::floor(correction(32.0));
  const double high = std::ceil(correction(1.0));
  EXPECT_EQ(low, 23.0);
  EXPECT_EQ(high, 40.0);
  for (size_t i = 0; i < oracle.frequency.size(); ++i) {
    const double ramp = std::min(1.0, std::max(0.0, (static_cast<double>(i) - low) / (high - low)));
    oracle.frequency[i] = oracle.frequency[i] / 4.0 * ramp + oracle.frequency[i] * (1.0 - ramp);
  }
  oracle.magnitude = 0.1 * std::log(4.0) + 1.0;
  const RopeTable table = make(params);
  EXPECT_NEAR(table.magnitude(), 1.1386294361119891, 1e-12);
  expect_rows(table, oracle);

  params.yarn_ext_factor = 0.0;  // plain interpolation, no magnitude
  Oracle interpolated = plain(128, 1e6);
  for (double& f : interpolated.frequency) f /= 4.0;
  expect_rows(make(params), interpolated);
}

TEST(RopeTest, Llama3) {
  RopeParams params;
  params.dims = 128;
  params.base = 500000.0;
  params.scaling = RopeScaling::kLlama3;
  params.factor = 8.0;
  params.original_context = 8192;
  params.low_freq_factor = 1.0;
  params.high_freq_factor = 4.0;
  Oracle oracle = plain(128, 500000.0);
  for (double& f : oracle.frequency) {
    const double wavelength = 2.0 * std::numbers::pi / f;
    if (wavelength > 8192.0 / 1.0) {
      f /= 8.0;
    } else if (wavelength > 8192.0 / 4.0) {
      const double smooth = (8192.0 / wavelength - 1.0) / 3.0;
      f = (1.0 - smooth) * f / 8.0 + smooth * f;
    }
  }
  expect_rows(make(params), oracle);
}

TEST(RopeTest, FrequencyFactors) {
  std::vector<float> factors(48);
  for (size_t i = 0; i < factors.size(); ++i) factors[i] = 1.0f + 0.5f * static_cast<float>(i);
  RopeParams params;
  params.dims = 96;
  params.frequency_factors = factors;
  params.attention_factor = 1.19;
  Oracle oracle = plain(96, 10000.0);
  for (size_t i = 0; i < factors.size(); ++i) oracle.frequency[i] /= static_cast<double>(factors[i]);
  oracle.magnitude = 1.19;
  expect_rows(make(params), oracle);
}

TEST(RopeTest, RotatesEachStyleAndLeavesTheRestOfAHead) {
  for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalf}) {
    RopeParams params;
    params.dims = 48;
    params.style = style;
    const RopeTable table = make(params);
    std::vector<float> x(3 * 64);
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    std::vector<float> turned = x;
    table.rotate(77, turned.data(), 3, 64);
    for (size_t h = 0; h < 3; ++h) {
      for (size_t i = 0; i < 24; ++i) {
        const size_t a = h * 64 + (style == RopeStyle::kHalf ? i : 2 * i);
        const size_t b = h * 64 + (style == RopeStyle::kHalf ? i + 24 : 2 * i + 1);
        const double angle = 77.0 * std::pow(10000.0, -2.0 * static_cast<double>(i) / 48.0);
        ASSERT_NEAR(turned[a], x[a] * std::cos(angle) - x[b] * std::sin(angle), 3e-7);
        ASSERT_NEAR(turned[b], x[b] * std::cos(angle) + x[a] * std::sin(angle), 3e-7);
      }
      for (size_t i = 48; i < 64; ++i) ASSERT_EQ(turned[h * 64 + i], x[h * 64 + i]);
    }
    std::vector<float> still = x;
    table.rotate(0, still.data(), 3, 64);
    EXPECT_EQ(still, x);
    table.rotate(-77, turned.data(), 3, 64);  // and back
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(turned[i], x[i], 1e-6);
  }
}

TEST(RopeTest, ThePositionDecidesNotTheTable) {
  RopeParams params;
  params.dims = 64;
  const RopeTable small = make(params, 1);
  const RopeTable large = make(params, 100000);
  std::vector<float> a(64), b(64);
  for (const int32_t position : {0, 255, 256, 70000, 99999, 200000}) {
    small.row(position, a.data());
    large.row(position, b.data());
    EXPECT_EQ(a, b);
  }
}

TEST(RopeTest, BlockTableHoldsOffsets) {
  RopeParams params;
  params.dims = 64;
  const RopeTable table = make(params);
  std::vector<float> row(64);
  for (int32_t j = 0; j < 32; ++j) {
    table.row(j, row.data());
    for (size_t i = 0; i < 32; ++i) {
      ASSERT_EQ(table.block_cos()[i * 32 + static_cast<size_t>(j)], row[i]);
      ASSERT_EQ(table.block_sin()[i * 32 + static_cast<size_t>(j)], row[32 + i]);
    }
  }
}

TEST(RopeTest, RefusesWhatCannotBe) {
  RopeParams good;
  good.dims = 64;
  good.scaling = RopeScaling::kYarn;
  good.factor = 2.0;
  good.original_context = 2048;
  ASSERT_TRUE(RopeTable::create(good, 1).ok());
  const auto refused = [&](const std::function<void(RopeParams&)>& change) {
    RopeParams params = good;
    change(params);
    const auto table = RopeTable::create(params, 1);
    return !table.ok() && table.status().code() == Code::kInvalidArgument;
  };
  const std::vector<float> few(31, 1.0f);
  const std::vector<float> zero(32, 0.0f);
  EXPECT_TRUE(refused([](RopeParams& p) { p.dims = 0; }));
  EXPECT_TRUE(refused([](RopeParams& p) { p.dims = 63; }));
  EXPECT_TRUE(refused([](RopeParams& p) { p.dims = 1 << 20; }));
  EXPECT_TRUE(refused([](RopeParams& p) { p.base = 0.0; }));
  EXPECT_TRUE(refused([](RopeParams& p) { p.base = std::nan(""); }));
  EXPECT_TRUE(refused([](RopeParams& p) { p.base = 1.0; }));
  EXPECT_TRUE(refused([](RopeParams& p) { p.factor = 0.0; }));
  EXPECT_TRUE(refused([](RopeParams& p) { p.factor = HUGE_VAL; }));
  EXPECT_TRUE(refused([](RopeParams& p) { p.original_context = 0; }));
  EXPECT_TRUE(refused([](RopeParams& p) { p.attention_factor = -1.0; }));
  EXPECT_TRUE(refused([](RopeParams& p) { p.yarn_beta_fast = 0.0; }));
  EXPECT_TRUE(refused([&](RopeParams& p) { p.frequency_factors = few; }));
  EXPECT_TRUE(refused([&](RopeParams& p) { p.frequency_factors = zero; }));
  EXPECT_TRUE(refused([](RopeParams& p) {
    p.scaling = RopeScaling::kLlama3;
    p.high_freq_factor = p.low_freq_factor;
  }));
}

}  // namespace
}  // namespace isthmus
