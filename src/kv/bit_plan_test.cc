#include "kv/bit_plan.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"

namespace isthmus {
namespace {

/// The least sum by trying everything.
double brute_force(const std::vector<BitLosses>& losses, size_t part, int left) {
  if (part == losses.size()) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < kPlanBits.size(); ++i) {
    const int bits = held_bits(kPlanBits[i]);
    if (bits <= left) least = std::min(least, losses[part][i] + brute_force(losses, part + 1, left - bits));
  }
  return least;
}

double loss_of(const std::vector<BitLosses>& losses, const std::vector<KvBits>& plan) {
  double sum = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    const int bits = i % 2 == 0 ? plan[i / 2].k : plan[i / 2].v;
    for (size_t c = 0; c < kPlanBits.size(); ++c) {
      if (kPlanBits[c] == bits) sum += losses[i][c];
    }
  }
  return sum;
}

TEST(BitPlan, HasTheLeastLossOfAllPlans) {
  Rng rng(2);
  for (int round = 0; round < 50; ++round) {
    std::vector<BitLosses> losses(6);
    for (BitLosses& part : losses) {
      double loss = 0;
      for (size_t i = kPlanBits.size(); i-- > 0;) {
        part[i] = loss;
        loss += static_cast<double>(rng.below(1000)) / 100;
      }
    }
    for (const double mean : {2.0, 2.5, 3.1, 5.0, 9.0, 16.0}) {
      const auto plan = plan_kv_bits(losses, mean);
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      EXPECT_NEAR(loss_of(losses, *plan), brute_force(losses, 0, static_cast<int>(6 * mean + 1e-9)), 1e-9);
      KvCodec codec;
      codec.layers = *plan;
      EXPECT_LE(mean_held_bits(codec, 3), mean + 1e-9);
    }
  }
}

TEST(BitPlan, EqualLossesTakeTheFewestBits) {
  const std::vector<BitLosses> losses(4, BitLosses{});
  EXPECT_EQ(*plan_kv_bits(losses, 16), std::vector<KvBits>(2, KvBits{1, 1}));
}

TEST(BitPlan, WhatCannotBeIsRefused) {
  const std::vector<BitLosses> losses(4, BitLosses{});
  EXPECT_EQ(plan_kv_bits(losses, 1.9).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(plan_kv_bits(losses, std::nan("")).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(plan_kv_bits({}, 4).status().code(), Code::kInvalidArgument);
  auto odd = losses;
  odd[1][2] = std::nan("");
  EXPECT_EQ(plan_kv_bits(odd, 4).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace isthmus
