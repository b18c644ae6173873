#include "ops/eigen.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace isthmus {
namespace {

std::vector<double> random_symmetric(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal;
  std::vector<double> a(n * n);
  for (size_t r = 0; r < n; ++r) {
    for (size_t c = 0; c <= r; ++c) a[r * n + c] = a[c * n + r] = normal(rng);
  }
  return a;
}

void expect_decomposes(const std::vector<double>& a, size_t n) {
  const auto eigen = symmetric_eigen(a, n);
  ASSERT_TRUE(eigen.ok()) << eigen.status().message();
  ASSERT_EQ(eigen->values.size(), n);
  for (size_t i = 0; i < n; ++i) {
    const double* v = eigen->vectors.data() + i * n;
    EXPECT_GE(eigen->values[i == 0 ? 0 : i - 1], eigen->values[i]);
    for (size_t r = 0; r < n; ++r) {
      double av = 0;
      for (size_t c = 0; c < n; ++c) av += a[r * n + c] * v[c];
      EXPECT_NEAR(av, eigen->values[i] * v[r], 1e-11 * static_cast<double>(n));
    }
    for (size_t j = 0; j <= i; ++j) {
      double dot = 0;
      for (size_t c = 0; c < n; ++c) dot += v[c] * eigen->vectors[j * n + c];
      EXPECT_NEAR(dot, i == j ? 1.0 : 0.0, 1e-12);
    }
  }
}

TEST(Eigen, DecomposesRandomMatrices) {
  for (const size_t n : {1U, 2U, 3U, 5U, 33U, 100U}) expect_decomposes(random_symmetric(n, 7), n);
}

TEST(Eigen, DiagonalAndRepeatedValues) {
  expect_decomposes(std::vector<double>(25, 0.0), 5);
  expect_decomposes({2, 0, 0, 0, 2, 0, 0, 0, 5}, 3);
  expect_decomposes(std::vector<double>(49, 1.0), 7);
}

TEST(Eigen, RefusesWhatIsNoMatrix) {
  EXPECT_EQ(symmetric_eigen({1, 2, 3}, 2).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(symmetric_eigen({std::numeric_limits<double>::quiet_NaN()}, 1).status().code(), Code::kCorrupt);
}

TEST(Eigen, Stops) {
  CancelSource source;
  source.cancel();
  StopPolicy stop;
  stop.token = source.token();
  EXPECT_EQ(symmetric_eigen(random_symmetric(8, 1), 8, stop).status().code(), Code::kCancelled);
}

}  // namespace
}  // namespace isthmus
