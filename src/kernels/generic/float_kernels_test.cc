#include "kernels/float_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "kernels/isa.h"
#include "tensor/half.h"

namespace isthmus {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Every binade of both signs, `per_binade` mantissas each, subnormals, zeros and infinities.
std::vector<float> all_binades(size_t per_binade) {
  std::mt19937 rng(1);
  std::vector<float> x = {0.0f, -0.0f, kInf, -kInf};
  for (uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (size_t i = 0; i < per_binade; ++i) {
      uint32_t mantissa = static_cast<uint32_t>(rng()) & 0x7fffff;
      if (i == 0) mantissa = 0;
      if (i == 1) mantissa = 0x7fffff;
      const uint32_t bits = exponent << 23 | mantissa;
      x.push_back(std::bit_cast<float>(bits));
      x.push_back(std::bit_cast<float>(bits | 0x80000000u));
    }
  }
  return x;
}

/// |got - exact| in units of the last place of a float of the size of `exact`.
double ulp_error(float got, double exact) {
  const double largest = static_cast<double>(std::numeric_limits<float>::max());
  if (std::isnan(exact)) return std::isnan(got) ? 0.0 : 1e9;
  if (std::abs(exact) > largest) {
    return std::isinf(got) || static_cast<double>(std::abs(got)) == largest ? 0.0 : 1e9;
  }
  if (!std::isfinite(got)) return std::abs(exact) > largest * (1 - 1e-6) ? 0.0 : 1e9;
  const int exponent = std::max(-126, exact == 0.0 ? -126 : std::ilogb(exact));
  return std::abs(static_cast<double>(got) - exact) / std::ldexp(1.0, exponent - 23);
}

bool same_bits(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

class FloatKernelsTest : public testing::TestWithParam<Isa> {
 protected:
  const FloatKernels& kernels() const { return float_kernels_for(GetParam()); }
  const FloatKernels& scalar() const { return float_kernels_for(Isa::kScalar); }

  using Map = void (*)(const float*, size_t, float*);
  void check_ulp(Map FloatKernels::*member, double (*exact)(double), double limit, size_t per_binade) {
    const auto x = all_binades(per_binade);
    std::vector<float> got(x.size());
    (kernels().*member)(x.data(), x.size(), got.data());
    std::vector<float> reference(x.size());
    (scalar().*member)(x.data(), x.size(), reference.data());
    double worst = 0;
    float worst_x = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double error = ulp_error(got[i], exact(static_cast<double>(x[i])));
      if (error > worst) {
        worst = error;
        worst_x = x[i];
      }
      ASSERT_TRUE(same_bits(got[i], reference[i]))
          << "x = " << x[i] << ": " << got[i] << ", " << reference[i];
    }
    EXPECT_LE(worst, limit) << "at x = " << worst_x;
    RecordProperty("worst_ulp", std::to_string(worst));
    const float nan = kNan;
    float out = 0;
    (kernels().*member)(&nan, 1, &out);
    EXPECT_TRUE(std::isnan(out));
  }
};

constexpr size_t kPerBinade = 700;

TEST_P(FloatKernelsTest, ExpIsWithinOneUlpEverywhere) {
  check_ulp(
      &FloatKernels::exp, [](double x) { return std::exp(x); }, 1.0, kPerBinade);
}
TEST_P(FloatKernelsTest, SiluIsWithinThreeUlpEverywhere) {
  const auto exact = [](double x) { return std::isinf(x) && x < 0 ? -0.0 : x / (1.0 + std::exp(-x)); };
  check_ulp(&FloatKernels::silu, exact, 3.0, kPerBinade);
}
TEST_P(FloatKernelsTest, GeluIsWithinFourUlpEverywhere) {
  const auto exact = [](double x) {
    if (x < -50) return -0.0;
    if (x > 50) return x;
    const double u = std::sqrt(2.0 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
    return x / (1.0 + std::exp(-2.0 * u));
  };
  check_ulp(&FloatKernels::gelu_tanh, exact, 4.0, kPerBinade);
}
TEST_P(FloatKernelsTest, TanhIsWithinFourUlpEverywhere) {
  check_ulp(
      &FloatKernels::tanh, [](double x) { return std::tanh(x); }, 4.0, kPerBinade);
}
TEST_P(FloatKernelsTest, DenseSweepWhereTheFunctionsBend) {
  std::vector<float> x;
  for (float v = -110.0f; v <= 110.0f; v += 0.00137f) x.push_back(v);
  std::vector<float> y(x.size());
  kernels().exp(x.data(), x.size(), y.data());
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_LE(ulp_error(y[i], std::exp(static_cast<double>(x[i]))), 1.0) << x[i];
  kernels().silu(x.data(), x.size(), y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double v = static_cast<double>(x[i]);
    ASSERT_LE(ulp_error(y[i], v / (1.0 + std::exp(-v))), 3.0) << x[i];
  }
  kernels().tanh(x.data(), x.size(), y.data());
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_LE(ulp_error(y[i], std::tanh(static_cast<double>(x[i]))), 4.0) << x[i];
}

std::vector<float> random_vector(size_t n, uint32_t seed, float spread = 3.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

const size_t kSizes[] = {1, 2, 7, 15, 16, 17, 31, 33, 64, 72, 80, 576, 577, 896, 4099};

TEST_P(FloatKernelsTest, NormsMatchFloat64AndTheScalarBits) {
  for (const size_t n : kSizes) {
    const auto x = random_vector(n, 1);
    const auto w = random_vector(n, 2);
    double squares = 0;
    for (const float v : x) squares += static_cast<double>(v) * v;
    const double count = static_cast<double>(n);
    const double scale = 1.0 / std::sqrt(squares / count + 1e-6);
    std::vector<float> got(n), same(n), plain(n);
    kernels().rms_norm(x.data(), w.data(), n, 1e-6f, got.data());
    kernels().rms_norm(x.data(), nullptr, n, 1e-6f, plain.data());
    scalar().rms_norm(x.data(), w.data(), n, 1e-6f, same.data());
    for (size_t i = 0; i < n; ++i) {
      ASSERT_LE(ulp_error(plain[i], x[i] * scale), 1.5);
      ASSERT_LE(ulp_error(got[i], x[i] * scale * w[i]), 2.5);
      ASSERT_TRUE(same_bits(got[i], same[i]));
    }
    std::vector<float> in_place = x;
    kernels().rms_norm(in_place.data(), w.data(), n, 1e-6f, in_place.data());
    kernels().rms_norm(x.data(), w.data(), n, 1e-6f, got.data());
    ASSERT_EQ(in_place, got);
  }
}

TEST_P(FloatKernelsTest, ElementwiseAndGates) {
  for (const size_t n : kSizes) {
    const auto a = random_vector(n, 4);
    const auto b = random_vector(n, 5);
    std::vector<float> sum(n), product(n), scaled(n), act(n), gated(n);
    kernels().add(a.data(), b.data(), n, sum.data());
    kernels().mul(a.data(), b.data(), n, product.data());
    kernels().mul_scalar(a.data(), 0.3f, n, scaled.data());
    for (size_t i = 0; i < n; ++i) {
      ASSERT_EQ(sum[i], a[i] + b[i]);
      ASSERT_EQ(product[i], a[i] * b[i]);
      ASSERT_EQ(scaled[i], a[i] * 0.3f);
    }
    kernels().silu(a.data(), n, act.data());
    kernels().gate_mul(Gate::kSilu, a.data(), b.data(), gated.data(), n);
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(gated[i], act[i] * b[i]);
    kernels().gelu_tanh(a.data(), n, act.data());
    kernels().gate_mul(Gate::kGeluTanh, a.data(), b.data(), gated.data(), n);
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(gated[i], act[i] * b[i]);
    kernels().softcap(a.data(), 2.0f, n, act.data());
    for (size_t i = 0; i < n; ++i) ASSERT_NEAR(act[i], 2.0 * std::tanh(a[i] / 2.0), 1e-6);
  }
}

TEST_P(FloatKernelsTest, LargestAndItsFirstIndex) {
  for (const size_t n : kSizes) {
    auto x = random_vector(n, 6);
    size_t best = 0;
    for (size_t i = 1; i < n; ++i) {
      if (x[i] > x[best]) best = i;
    }
    EXPECT_EQ(kernels().max(x.data(), n), x[best]);
    EXPECT_EQ(kernels().argmax(x.data(), n), best);
    x[n - 1] = x[best];  // a tie: the lower index wins
    EXPECT_EQ(kernels().argmax(x.data(), n), best);
    EXPECT_EQ(kernels().find_greater(x.data(), 0, n, x[best]), n);
    if (best > 0) x[0] = kNan;
    EXPECT_EQ(kernels().argmax(x.data(), n), best);
    std::fill(x.begin(), x.end(), -kInf);
    EXPECT_EQ(kernels().argmax(x.data(), n), 0u);
    x[0] = kNan;
    EXPECT_EQ(kernels().argmax(x.data(), n), n > 1 ? 1u : 0u);
    std::fill(x.begin(), x.end(), -5.0f);  // a zero-filled tail must not win
    EXPECT_EQ(kernels().max(x.data(), n), -5.0f);
    std::fill(x.begin(), x.end(), kNan);
    EXPECT_EQ(kernels().max(x.data(), n), -kInf);
    EXPECT_EQ(kernels().argmax(x.data(), n), 0u);
  }
  EXPECT_EQ(kernels().max(nullptr, 0), -kInf);
  EXPECT_EQ(kernels().argmax(nullptr, 0), 0u);
}

TEST_P(FloatKernelsTest, FindGreaterWalksAllHits) {
  const auto x = random_vector(1003, 7);
  std::vector<size_t> expected, got;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] > 4.0f) expected.push_back(i);
  }
  for (size_t i = kernels().find_greater(x.data(), 0, x.size(), 4.0f); i < x.size();
       i = kernels().find_greater(x.data(), i + 1, x.size(), 4.0f)) {
    got.push_back(i);
  }
  EXPECT_EQ(got, expected);
}

TEST_P(FloatKernelsTest, SumsAndSoftMaxParts) {
  for (const size_t n : kSizes) {
    const auto x = random_vector(n, 8);
    const auto y = random_vector(n, 9);
    double total = 0, exponentials = 0, product = 0, absolute = 0;
    for (size_t i = 0; i < n; ++i) {
      total += x[i];
      exponentials += std::exp(static_cast<double>(x[i]) - 2.0);
      product += static_cast<double>(x[i]) * y[i];
      absolute += std::abs(static_cast<double>(x[i]) * y[i]);
    }
    EXPECT_NEAR(kernels().sum(x.data(), n), total, 1e-9 * static_cast<double>(n));
    EXPECT_NEAR(kernels().sum_exp(x.data(), n, 2.0f) / exponentials, 1.0, 3e-7);
    EXPECT_NEAR(kernels().dot(x.data(), y.data(), n), product, 1e-6 * absolute);
    EXPECT_EQ(kernels().sum(x.data(), n), scalar().sum(x.data(), n));
    EXPECT_EQ(kernels().sum_exp(x.data(), n, 2.0f), scalar().sum_exp(x.data(), n, 2.0f));
    EXPECT_TRUE(same_bits(kernels().dot(x.data(), y.data(), n), scalar().dot(x.data(), y.data(), n)));
    std::vector<float> p(n), same(n);
    const double sum = kernels().exp_shifted(x.data(), n, 1.0f, 0.5f, p.data());
    EXPECT_EQ(sum, scalar().exp_shifted(x.data(), n, 1.0f, 0.5f, same.data()));
    EXPECT_EQ(p, same);
    for (size_t i = 0; i < n; ++i) ASSERT_NEAR(p[i], std::exp((x[i] - 1.0) * 0.5), 1e-6 * p[i]);
    kernels().subtract(x.data(), 0.25f, n, p.data());
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(p[i], x[i] - 0.25f);
  }
}

TEST_P(FloatKernelsTest, RotationsTurnTheRightPairs) {
  for (const size_t dims : {2u, 8u, 24u, 32u, 64u, 72u, 80u, 96u, 128u}) {
    const auto x = random_vector(dims, 10);
    std::vector<float> c(dims / 2), s(dims / 2);
    for (size_t i = 0; i < dims / 2; ++i) {
      c[i] = std::cos(0.1f * static_cast<float>(i + 1));
      s[i] = std::sin(0.1f * static_cast<float>(i + 1));
    }
    std::vector<float> half = x, pairs = x, half_same = x, pairs_same = x;
    kernels().rotate_half(half.data(), c.data(), s.data(), dims);
    kernels().rotate_interleaved(pairs.data(), c.data(), s.data(), dims);
    scalar().rotate_half(half_same.data(), c.data(), s.data(), dims);
    scalar().rotate_interleaved(pairs_same.data(), c.data(), s.data(), dims);
    EXPECT_EQ(half, half_same);
    EXPECT_EQ(pairs, pairs_same);
    for (size_t i = 0; i < dims / 2; ++i) {
      const size_t h = i + dims / 2;
      ASSERT_NEAR(half[i], x[i] * c[i] - x[h] * s[i], 2e-6);
      ASSERT_NEAR(half[h], x[h] * c[i] + x[i] * s[i], 2e-6);
      ASSERT_NEAR(pairs[2 * i], x[2 * i] * c[i] - x[2 * i + 1] * s[i], 2e-6);
      ASSERT_NEAR(pairs[2 * i + 1], x[2 * i + 1] * c[i] + x[2 * i] * s[i], 2e-6);
    }
  }
}

TEST_P(FloatKernelsTest, HalfConversionsAreThoseOfTheTensorLayer) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> wide(halves.size());
  kernels().f16_to_f32(halves.data(), halves.size(), wide.data());
  for (size_t i = 0; i < halves.size(); ++i) ASSERT_TRUE(same_bits(wide[i], f16_to_f32(halves[i]))) << i;
  kernels().bf16_to_f32(halves.data(), halves.size(), wide.data());
  for (size_t i = 0; i < halves.size(); ++i) ASSERT_TRUE(same_bits(wide[i], bf16_to_f32(halves[i]))) << i;

  auto x = all_binades(200);
  for (int i = 0; i < 2000; ++i)
    x.push_back(std::bit_cast<float>(0x38000000u + 0x1000u * static_cast<uint32_t>(i)));
  x.push_back(kNan);
  std::vector<uint16_t> narrow(x.size());
  kernels().f32_to_f16(x.data(), x.size(), narrow.data());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(narrow[i], f32_to_f16(x[i])) << x[i];
  kernels().f32_to_bf16(x.data(), x.size(), narrow.data());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(narrow[i], f32_to_bf16(x[i])) << x[i];
}

INSTANTIATE_TEST_SUITE_P(AllSets, FloatKernelsTest, testing::ValuesIn(available_isas()),
                         [](const auto& param_info) {
                           std::string name(isa_name(param_info.param));
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace isthmus
