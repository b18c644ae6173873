#include "engine/restore_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace isthmus {
namespace {

TEST(RestorePlanTest, IsTheBestSplit) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<MissingPart> missing(random() % 20);
    for (MissingPart& part : missing) part = {32, random() % 5 == 0 ? 0U : 1U, 1000 * (random() % 300)};
    RestoreSpeeds speeds;
    speeds.compute_per_token = 1e-5 * static_cast<double>(random() % 300);
    speeds.read_per_byte = 1e-9 * static_cast<double>(random() % 100);
    const size_t planned = plan_restore(missing, speeds);
    for (size_t other = 0; other <= missing.size(); ++other) {
      EXPECT_LE(restore_seconds(missing, planned, speeds), restore_seconds(missing, other, speeds));
    }
  }
}

TEST(RestorePlanTest, FastDisksReadAndFastProcessorsCompute) {
  const std::vector<MissingPart> missing(10, {32, 1, 100'000});
  RestoreSpeeds speeds;
  speeds.compute_per_token = 1;
  EXPECT_EQ(plan_restore(missing, speeds), 0U);
  speeds.compute_per_token = 1e-9;
  EXPECT_EQ(plan_restore(missing, speeds), 10U);
  // As fast as each other: half and half.
  speeds.compute_per_token = (speeds.read_per_record + speeds.read_per_byte * 100'000) / 32;
  EXPECT_EQ(plan_restore(missing, speeds), 5U);
}

TEST(RestorePlanTest, SpeedsFollowWhatIsMeasured) {
  RestoreSpeeds speeds;
  for (int i = 0; i < 50; ++i) {
    speeds.computed(100, 0.5);
    speeds.read(10, 1'000'000, 0.1);
  }
  EXPECT_NEAR(speeds.compute_per_token, 5e-3, 1e-5);
  EXPECT_NEAR(10 * speeds.read_per_record + 1e6 * speeds.read_per_byte, 0.1, 1e-4);
  speeds.computed(0, 1);
  speeds.read(0, 0, 1);
  EXPECT_NEAR(speeds.compute_per_token, 5e-3, 1e-5);
}

double loss(const std::vector<double>& density, const std::vector<int>& bits) {
  double sum = 0;
  for (size_t i = 0; i < bits.size(); ++i) sum += density[i] * std::pow(4.0, -bits[i]);
  return sum;
}

TEST(RestorePlanTest, BitsByDensityLoseLeast) {
  std::mt19937 random(2);
  for (int round = 0; round < 100; ++round) {
    std::vector<double> density(random() % 9);
    for (double& d : density) d = std::pow(static_cast<double>(random() % 1000 + 1) / 1000, 6);
    const std::vector<int> got = bits_by_density(density);
    EXPECT_LE(std::accumulate(got.begin(), got.end(), 0), static_cast<int>(4 * got.size()));
    // Every assignment of 8, 4 and 2 bits with 4 in the mean.
    double least = loss(density, std::vector<int>(density.size(), 4));
    const auto all = static_cast<size_t>(std::pow(3, density.size()));
    for (size_t code = 0; code < all; ++code) {
      std::vector<int> bits;
      size_t rest = code;
      for (size_t i = 0; i < density.size(); ++i, rest /= 3)
        bits.push_back(rest % 3 == 0 ? 8 : rest % 3 == 1 ? 4 : 2);
      const int sum = std::accumulate(bits.begin(), bits.end(), 0);
      if (sum == static_cast<int>(4 * bits.size())) least = std::min(least, loss(density, bits));
    }
    EXPECT_NEAR(loss(density, got), least, 1e-12);
  }
}

}  // namespace
}  // namespace isthmus
