#include "ops/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/float_kernels.h"

namespace isthmus {
namespace {

std::vector<float> wave(size_t n, float step) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = std::sin(step * static_cast<float>(i)) * 3.0f + 0.1f;
  return x;
}

TEST(NormTest, RowsAreIndependentOfTheSplit) {
  constexpr size_t kRows = 7, kN = 72, kLd = 80;
  const auto x = wave(kRows * kLd, 0.37f);
  const auto w = wave(kN, 0.11f);
  std::vector<float> whole(kRows * kLd, -9.0f), parts = whole, expected = whole;
  rms_norm_rows({x.data(), kLd, whole.data(), kLd, kN}, 0, kRows, w.data(), 1e-5f);
  rms_norm_rows({x.data(), kLd, parts.data(), kLd, kN}, 3, kRows, w.data(), 1e-5f);
  rms_norm_rows({x.data(), kLd, parts.data(), kLd, kN}, 0, 3, w.data(), 1e-5f);
  for (size_t r = 0; r < kRows; ++r) {
    float_kernels().rms_norm(x.data() + r * kLd, w.data(), kN, 1e-5f, expected.data() + r * kLd);
  }
  EXPECT_EQ(whole, expected);  // the gaps between rows included
  EXPECT_EQ(parts, expected);
}

TEST(NormTest, HeadsAreNormalisedOneByOne) {
  constexpr size_t kHeads = 3, kDim = 24;
  const auto x = wave(2 * kHeads * kDim, 0.7f);
  const auto w = wave(kDim, 0.4f);
  std::vector<float> got = x, expected(x.size());
  rms_norm_heads({got.data(), kHeads * kDim, got.data(), kHeads * kDim, kHeads * kDim}, 0, 2, w.data(), 1e-6f,
                 kDim);
  for (size_t i = 0; i < x.size(); i += kDim) {
    float_kernels().rms_norm(x.data() + i, w.data(), kDim, 1e-6f, expected.data() + i);
  }
  EXPECT_EQ(got, expected);
}

}  // namespace
}  // namespace isthmus
