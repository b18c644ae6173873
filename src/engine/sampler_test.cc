#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace isthmus {
namespace {

SamplerParams plain() {
  SamplerParams p;
  p.temperature = 1;
  p.top_k = 0;
  p.top_p = 1;
  p.min_p = 0;
  p.seed = 1;
  return p;
}

Sampled one(const SamplerParams& params, const std::vector<float>& logits,
            const std::vector<int32_t>& history = {}) {
  Sampler sampler(params);
  auto out = sampler.sample(logits, history);
  EXPECT_TRUE(out.ok()) << out.status().to_string();
  return *out;
}

/// Share of each token over many draws.
std::map<int32_t, double> shares(const SamplerParams& params, const std::vector<float>& logits,
                                 int n = 20000) {
  Sampler sampler(params);
  std::map<int32_t, double> out;
  for (int i = 0; i < n; ++i) out[sampler.sample(logits, {})->token] += 1.0 / n;
  return out;
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdOnTies) {
  SamplerParams p = plain();
  p.temperature = 0;
  EXPECT_EQ(one(p, {1, 3, 3, 2}).token, 1);
}

TEST(Sampler, DrawsFollowTheSoftmax) {
  const std::vector<float> logits = {0, std::log(2.0F), std::log(5.0F)};
  const auto s = shares(plain(), logits);
  EXPECT_NEAR(s.at(0), 1.0 / 8, 0.01);
  EXPECT_NEAR(s.at(1), 2.0 / 8, 0.012);
  EXPECT_NEAR(s.at(2), 5.0 / 8, 0.012);
}

TEST(Sampler, TemperatureComesAfterTheFilters) {
  SamplerParams p = plain();
  p.top_p = 0.6F;
  p.temperature = 100;
  // 5/8 of the mass is the last token alone: a flat temperature must not let the others back in.
  const auto s = shares(p, {0, std::log(2.0F), std::log(5.0F)}, 1000);
  EXPECT_EQ(s.size(), 1U);
  EXPECT_EQ(s.begin()->first, 2);
}

TEST(Sampler, TopKZeroIsOffAndOneIsGreedy) {
  SamplerParams p = plain();
  EXPECT_EQ(shares(p, {0, 0, 0, 0}).size(), 4U);
  p.top_k = 1;
  EXPECT_EQ(shares(p, {0, 0.1F, 0, 0}, 100).size(), 1U);
}

TEST(Sampler, MinPDropsTokensFarBelowTheBest) {
  SamplerParams p = plain();
  p.min_p = 0.3F;
  const auto s = shares(p, {0, std::log(2.0F), std::log(5.0F)}, 2000);
  EXPECT_EQ(s.count(0), 0U);  // 1/5 of the best
  EXPECT_EQ(s.count(1), 1U);  // 2/5
}

TEST(Sampler, TypicalPrefersTokensOfAverageSurprise) {
  SamplerParams p = plain();
  p.typical = 0.5F;
  // One certain-looking token and many equal ones: the entropy is nearer to the surprise of the many.
  std::vector<float> logits(101, 0.0F);
  logits[0] = std::log(30.0F);
  const auto s = shares(p, logits, 2000);
  EXPECT_EQ(s.count(0), 0U);
}

TEST(Sampler, TopPOverAWholeVocabularyEqualsTheSortedDefinition) {
  Rng rng(5);
  std::vector<float> logits(5000);
  for (float& x : logits) x = static_cast<float>(rng.uniform() * 6);
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  double total = 0;
  for (const float x : logits) total += std::exp(static_cast<double>(x));
  double mass = 0;
  size_t keep = 0;
  while (mass < 0.4 * total) mass += std::exp(static_cast<double>(logits[order[keep++]]));
  SamplerParams p = plain();
  p.top_p = 0.4F;
  p.logprobs = 5000;
  EXPECT_EQ(one(p, logits).top_final.size(), keep);
}

TEST(Sampler, PenaltiesCountTheHistoryInTheWindow) {
  SamplerParams p = plain();
  p.temperature = 0;
  p.repetition_penalty = 2;
  EXPECT_EQ(one(p, {3, 2, -1}, {0}).token, 1);       // 3 / 2 < 2
  EXPECT_EQ(one(p, {-1, -1.5F, -9}, {0}).token, 1);  // -1 * 2 < -1.5
  p.penalty_window = 1;
  EXPECT_EQ(one(p, {3, 2, -1}, {0, 2}).token, 0);  // out of the window
  SamplerParams q = plain();
  q.temperature = 0;
  q.frequency_penalty = 1;
  EXPECT_EQ(one(q, {3, 2.5F}, {0}).token, 1);
  q.frequency_penalty = 0;
  q.presence_penalty = 0.4F;
  EXPECT_EQ(one(q, {3, 2.5F}, {0, 0, 0}).token, 0);  // presence counts once
}

TEST(Sampler, BiasCanBanAndForce) {
  SamplerParams p = plain();
  p.logit_bias = {{1, -std::numeric_limits<float>::infinity()}, {2, 50}};
  EXPECT_EQ(one(p, {1, 90, 1}).token, 2);
}

TEST(Sampler, SameSeedSameTextAndCopiesGoOnAlike) {
  const std::vector<float> logits(50, 0.0F);
  Sampler a(plain());
  Sampler b(plain());
  for (int i = 0; i < 20; ++i) ASSERT_EQ(a.sample(logits, {})->token, b.sample(logits, {})->token);
  Sampler c = a;
  for (int i = 0; i < 20; ++i) ASSERT_EQ(a.sample(logits, {})->token, c.sample(logits, {})->token);
}

TEST(Sampler, LogprobsBeforeAndAfterTheFilters) {
  SamplerParams p = plain();
  p.top_k = 2;
  p.logprobs = 3;
  const Sampled s = one(p, {0, std::log(2.0F), std::log(5.0F)});
  ASSERT_EQ(s.top.size(), 3U);
  EXPECT_EQ(s.top[0].token, 2);
  EXPECT_NEAR(s.top[0].logprob, std::log(5.0 / 8), 1e-6);
  ASSERT_EQ(s.top_final.size(), 2U);
  EXPECT_NEAR(s.top_final[0].logprob, std::log(5.0 / 7), 1e-6);
}

TEST(Sampler, TheModelsLogprobIsThereWhateverIsReportedAndFiltered) {
  const std::vector<float> logits = {0, std::log(2.0F), std::log(5.0F)};  // 1/8, 2/8, 5/8
  SamplerParams greedy = plain();
  greedy.temperature = 0;
  EXPECT_NEAR(one(greedy, logits).logprob, std::log(5.0 / 8), 1e-6);
  EXPECT_EQ(one(greedy, logits).final_logprob, 0.0F);
  SamplerParams forced = plain();  // the bias changes the draw, not what the model said
  forced.logit_bias = {{0, 100.0F}};
  forced.top_k = 1;
  const Sampled s = one(forced, logits);
  EXPECT_EQ(s.token, 0);
  EXPECT_NEAR(s.logprob, std::log(1.0 / 8), 1e-6);
  EXPECT_TRUE(s.top.empty());
  forced.logprobs = 2;
  EXPECT_EQ(one(forced, logits).logprob, s.logprob);
}

TEST(Sampler, NothingFiniteIsAnErrorAndNanIsPassedOver) {
  Sampler sampler(plain());
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(sampler.sample(std::vector<float>{-inf, -inf}, {}).status().code(), Code::kCorrupt);
  SamplerParams p = plain();
  p.temperature = 0;
  EXPECT_EQ(one(p, {std::nanf(""), 1}).token, 1);
}

TEST(SamplerParams, EachFieldIsCheckedByName) {
  const auto message = [](const auto& change) {
    SamplerParams p;
    change(p);
    return check_sampler_params(p, 10).message();
  };
  EXPECT_TRUE(check_sampler_params(SamplerParams(), 10).ok());
  EXPECT_NE(message([](auto& p) { p.temperature = -1; }).find("temperature"), std::string::npos);
  EXPECT_NE(message([](auto& p) { p.temperature = std::nanf(""); }).find("temperature"), std::string::npos);
  EXPECT_NE(message([](auto& p) { p.top_p = 0; }).find("top_p"), std::string::npos);
  EXPECT_NE(message([](auto& p) { p.min_p = 1.5F; }).find("min_p"), std::string::npos);
  EXPECT_NE(message([](auto& p) { p.typical = 0; }).find("typical"), std::string::npos);
  EXPECT_NE(message([](auto& p) { p.repetition_penalty = 0; }).find("repetition_penalty"), std::string::npos);
  EXPECT_NE(message([](auto& p) { p.presence_penalty = 3; }).find("presence_penalty"), std::string::npos);
  EXPECT_NE(message([](auto& p) { p.frequency_penalty = -3; }).find("frequency_penalty"), std::string::npos);
  EXPECT_NE(message([](auto& p) { p.logprobs = 11; }).find("logprobs"), std::string::npos);
  EXPECT_NE(message([](auto& p) { p.logit_bias = {{10, 1.0F}}; }).find("logit_bias"), std::string::npos);
  static constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_NE(message([](auto& p) { p.logit_bias = {{1, kInf}}; }).find("infinite"), std::string::npos);
  EXPECT_EQ(message([](auto& p) { p.logit_bias = {{1, -kInf}}; }), "");
}

TEST(Sampler, LogitsWithoutANumberAreTheModelsFaultOrTheBiass) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  SamplerParams p;
  p.temperature = 0;
  const std::vector<float> damaged(4, std::nanf(""));
  EXPECT_EQ(Sampler(p).sample(damaged, {}).status().code(), Code::kCorrupt);
  p.logit_bias = {{0, -kInf}, {1, -kInf}};
  const std::vector<float> sound(2, 1.0F);
  EXPECT_EQ(Sampler(p).sample(sound, {}).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace isthmus
