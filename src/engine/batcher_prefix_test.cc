// The prefix tree inside a Batcher: what is found again, and that a hit has the bits of a cold run.
#include <gtest/gtest.h>

#include "engine/batcher_test_util.h"

namespace isthmus {
namespace {

using batch_testing::batch_options;
using batch_testing::BatchDriver;
using batch_testing::expect_same_answer;
using batch_testing::load_for_batch;
using batch_testing::random_prompt;
using batch_testing::run_alone;
using batch_testing::sampled_request;

std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(BatcherPrefix, ASecondRequestReadsOnlyWhatIsNew) {
  const auto model = load_for_batch(batch_options());
  BatchDriver driver(model);
  Rng rng(1);
  const auto system = random_prompt(rng, 75);
  const auto first = sampled_request(joined(system, random_prompt(rng, 9)), 6);
  const auto second = sampled_request(joined(system, random_prompt(rng, 8)), 6);
  const auto a = driver.submit(first);
  driver.run();
  const auto b = driver.submit(second);
  driver.run();
  expect_same_answer(driver.result(a), run_alone(model, first), "cold");
  expect_same_answer(driver.result(b), run_alone(model, second), "hit");
  EXPECT_EQ(driver.result(a).figures.reused_tokens, 0U);
  EXPECT_EQ(driver.result(b).figures.reused_tokens, 75U);
  EXPECT_EQ(driver.sum.prompt_tokens, 84U + 8U);
}

/// A chat of as many turns as `reused` has figures: the tokens that each finds again.
void expect_chat(ModelOptions options, size_t prompt, size_t answer, const std::vector<size_t>& reused) {
  const auto model = load_for_batch(std::move(options));
  BatchDriver driver(model);
  Rng rng(2);
  std::vector<TokenId> text = random_prompt(rng, prompt);
  for (size_t turn = 0; turn < reused.size(); ++turn) {
    const auto request = sampled_request(text, answer, turn);
    const auto id = driver.submit(request);
    driver.run();
    expect_same_answer(driver.result(id), run_alone(model, request), "turn " + std::to_string(turn));
    EXPECT_EQ(driver.result(id).figures.reused_tokens, reused[turn]) << "turn " << turn;
    text = joined(joined(text, driver.result(id).tokens), random_prompt(rng, 5));
  }
}

/// The newest token of an answer was not read yet.
TEST(BatcherPrefix, AChatGoesOnBehindItsAnswers) { expect_chat(batch_options(), 20, 7, {0, 26, 38, 50}); }

TEST(BatcherPrefix, RequestsThatBeginAlikeReadTheBeginningOnce) {
  const auto model = load_for_batch(batch_options());
  BatchDriver driver(model);
  Rng rng(3);
  const auto system = random_prompt(rng, 70);
  std::vector<GenerateRequest> requests;
  std::vector<RequestId> ids;
  for (size_t i = 0; i < 6; ++i) {
    requests.push_back(sampled_request(joined(system, random_prompt(rng, 5 + i)), 5, i));
    ids.push_back(driver.submit(requests.back()));
  }
  driver.run();
  for (size_t i = 0; i < ids.size(); ++i) {
    expect_same_answer(driver.result(ids[i]), run_alone(model, requests[i]), "request " + std::to_string(i));
    EXPECT_EQ(driver.result(ids[i]).figures.reused_tokens, i == 0 ? 0U : 64U);
  }
  EXPECT_EQ(driver.batcher->prefix_figures().hits, 5U);
}

/// Who shares a beginning with a long prompt goes on once that beginning is read.
TEST(BatcherPrefix, AShortRequestWaitsForTheSharedPartAlone) {
  const auto model = load_for_batch(batch_options());
  BatchDriver driver(model, {.step_tokens = 16});
  Rng rng(6);
  const auto system = random_prompt(rng, 32);
  const auto long_one = driver.submit(sampled_request(joined(system, random_prompt(rng, 80)), 2));
  const auto short_one = driver.submit(sampled_request(joined(system, random_prompt(rng, 3)), 1));
  size_t steps = 0;
  for (; driver.results.count(short_one) == 0 && steps < 50; ++steps) driver.step();
  EXPECT_LE(steps, 5U);
  EXPECT_EQ(driver.results.count(long_one), 0U);
  driver.run();
  EXPECT_EQ(driver.result(short_one).figures.reused_tokens, 32U);
}

/// Both read it: the better one did not wait for the worse. Neither is in the other's way afterwards.
TEST(BatcherPrefix, TheSameTextReadTwiceLeavesNoBlockBehind) {
  const auto model = load_for_batch(batch_options(1));
  BatchDriver driver(model, {.step_tokens = 16});
  Rng rng(7);
  const auto system = random_prompt(rng, 40);
  const auto slow = sampled_request(joined(system, random_prompt(rng, 8)), 60, 1);
  const auto urgent = sampled_request(joined(system, random_prompt(rng, 5)), 20, 2);
  const auto a = driver.submit(slow, Priority::kBatch);
  driver.step();
  const auto b = driver.submit(urgent, Priority::kInteractive);
  driver.run();
  expect_same_answer(driver.result(a), run_alone(model, slow), "slow");
  expect_same_answer(driver.result(b), run_alone(model, urgent), "urgent");
  driver.batcher->forget_prefixes();
  EXPECT_EQ(model->make_sequence().pool()->used_blocks(), 0U);
}

TEST(BatcherPrefix, SaltsAndTheSwitchKeepRequestsApart) {
  const auto model = load_for_batch(batch_options());
  const auto request = sampled_request(std::vector<TokenId>(60, 50), 5);
  const auto run_twice = [&](BatchDriver& driver, const std::string& salt) {
    for (const std::string& name : {std::string("first"), salt}) {
      std::optional<GenerateResult> got;
      BatchRequest batch;
      batch.generate = request;
      batch.cache_salt = name;
      batch.on_done = [&](RequestId, Result<GenerateResult> result) { got = std::move(*result); };
      ASSERT_TRUE(driver.batcher->submit(std::move(batch)).ok());
      driver.run();
      expect_same_answer(*got, run_alone(model, request), name);
      EXPECT_EQ(got->figures.reused_tokens, 0U);
    }
  };
  BatchDriver salted(model);
  run_twice(salted, "second");
  EXPECT_GT(salted.batcher->prefix_figures().tokens, 100U);
  BatchDriver off(model, {.prefix_cache = false});
  run_twice(off, "first");
  EXPECT_EQ(off.batcher->prefix_figures().lookups, 0U);
}

/// Prompts of 8-bit, answers of 16-bit activations: neither stands for the other.
TEST(BatcherPrefix, ArithmeticClassesDoNotMix) {
  ModelOptions options = batch_options();
  options.precision = Precision::kFast;
  expect_chat(std::move(options), 40, 10, {0, 40, 55});
}

TEST(BatcherPrefix, RandomRequestsInASmallPoolEqualThemselvesAlone) {
  for (const char* name : {"llama.gguf", "gemma3.gguf"}) {
    const auto model = load_for_batch(batch_options(2), name);
    size_t reused = 0;
    size_t evicted = 0;
    for (uint64_t seed = 0; seed < 6; ++seed) {
      BatchDriver driver(model, {.chunk_tokens = 1 + seed * 9});
      Rng rng(seed);
      const std::vector<TokenId> heads[] = {random_prompt(rng, 33), random_prompt(rng, 64),
                                            random_prompt(rng, 50)};
      std::map<RequestId, GenerateRequest> requests;
      for (size_t i = 0; i < 24; ++i) {
        auto prompt = joined(heads[rng.below(3)], random_prompt(rng, 1 + rng.below(20)));
        auto request = sampled_request(std::move(prompt), 1 + rng.below(30), i);
        request.on_full = rng.below(3) == 0 ? ContextPolicy::kShift : ContextPolicy::kStop;
        const auto priority = static_cast<Priority>(rng.below(3));
        requests.emplace(driver.submit(request, priority), request);
        for (size_t steps = rng.below(6); steps > 0; --steps) reused += driver.step().reused_tokens;
        if (rng.below(8) == 0) driver.batcher->forget_prefixes();
      }
      driver.run();
      evicted += driver.batcher->prefix_figures().evicted_tokens;
      for (const auto& [id, request] : requests) {
        expect_same_answer(driver.result(id), run_alone(model, request), name);
      }
      driver.batcher->forget_prefixes();
      EXPECT_EQ(model->make_sequence().pool()->used_blocks(), 0U);
    }
    EXPECT_GT(reused, 100U);
    EXPECT_GT(evicted, 500U);
  }
}

}  // namespace
}  // namespace isthmus
