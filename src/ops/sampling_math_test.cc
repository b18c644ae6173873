#include "ops/sampling_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace isthmus {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<TokenLogit> sorted(const std::vector<float>& logits, size_t k) {
  std::vector<TokenLogit> all;
  for (size_t i = 0; i < logits.size(); ++i) {
    all.push_back({static_cast<uint32_t>(i), std::isnan(logits[i]) ? -kInf : logits[i]});
  }
  std::stable_sort(all.begin(), all.end(), [](auto a, auto b) { return a.logit > b.logit; });
  all.resize(std::min(k, all.size()));
  return all;
}

void expect_equal(const std::vector<float>& logits, size_t k) {
  std::vector<TokenLogit> got;
  top_k_logits(logits, k, &got);
  const auto expected = sorted(logits, k);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].id, expected[i].id) << "rank " << i << " of " << k;
    ASSERT_EQ(got[i].logit, expected[i].logit);
  }
}

TEST(SamplingMathTest, TopKEqualsAStableSort) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  for (const size_t n : {1u, 5u, 100u, 5000u, 70001u}) {
    std::vector<float> logits(n);
    for (float& v : logits) v = normal(rng);
    for (const size_t k : {0u, 1u, 2u, 40u, 1000u, 100000u}) expect_equal(logits, k);
    for (float& v : logits) v = std::round(v);  // many ties
    for (const size_t k : {1u, 40u, 1000u}) expect_equal(logits, k);
    std::sort(logits.begin(), logits.end());  // every later value passes the threshold
    for (const size_t k : {1u, 40u, 1000u}) expect_equal(logits, k);
  }
}

TEST(SamplingMathTest, TopKWithImpossibleTokens) {
  std::vector<float> logits(3000, -kInf);
  expect_equal(logits, 10);
  logits[7] = 1.0f;
  logits[2999] = 2.0f;
  logits[0] = std::nanf("");
  expect_equal(logits, 1);
  expect_equal(logits, 10);
  expect_equal(logits, 3000);
}

TEST(SamplingMathTest, LogSumExp) {
  std::mt19937 rng(2);
  std::normal_distribution<float> normal(50.0f, 10.0f);
  std::vector<float> logits(70001);
  for (float& v : logits) v = normal(rng);
  const double top = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float v : logits) sum += std::exp(static_cast<double>(v) - top);
  EXPECT_NEAR(log_sum_exp(logits), top + std::log(sum), 1e-7);
  const std::vector<float> none(5, -kInf);
  EXPECT_EQ(log_sum_exp(none), -static_cast<double>(kInf));
  const std::vector<float> one = {-3.5f};
  EXPECT_EQ(log_sum_exp(one), -3.5);
}

}  // namespace
}  // namespace isthmus
