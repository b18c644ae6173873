// What a request gets from a Batcher is what it gets alone: bit by bit, in any company, out of any pool.
#include "engine/batcher.h"

#include <gtest/gtest.h>

#include <cmath>

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

/// Anything that a request may be, but short.
GenerateRequest random_request(Rng& rng, size_t context) {
  GenerateRequest r =
      sampled_request(random_prompt(rng, 1 + rng.below(context * 3 / 4)), rng.below(50), rng());
  r.sampler.temperature = rng.below(3) == 0 ? 0.0F : 0.5F + static_cast<float>(rng.uniform());
  if (rng.below(2) == 0) r.sampler.top_k = 0;
  if (rng.below(3) == 0) r.sampler.repetition_penalty = 1.2F;
  if (rng.below(3) == 0) r.sampler.logit_bias = {{static_cast<int32_t>(rng.below(200)), -1.5F}};
  if (rng.below(4) == 0) r.stops = {std::string(1, static_cast<char>('a' + rng.below(26)))};
  r.ignore_stop_tokens = rng.below(2) == 0;
  if (rng.below(4) == 0) {
    r.on_full = ContextPolicy::kShift;
    r.keep_tokens = rng.below(10);
    r.max_tokens += context;
  }
  return r;
}

BatcherOptions random_options(Rng& rng) {
  BatcherOptions options;
  options.max_running = 1 + rng.below(8);
  options.step_tokens = options.max_running + rng.below(100);
  options.chunk_tokens = 1 + rng.below(40);
  options.patience = std::chrono::microseconds(rng.below(2000));
  return options;
}

/// Requests that come at random steps, compared with each of them alone. Returns the sums of the batcher.
BatchStep random_trial(uint64_t seed, const std::string& name, Precision precision) {
  Rng rng(seed);
  ModelOptions options = batch_options();
  options.context = 96;
  options.precision = precision;
  options.kv_tokens = 96 + 32 * rng.below(8);  // from one sequence's worth on: blocks run out
  const auto model = load_for_batch(options, name);
  options.kv_tokens = 0;
  const auto reference = load_for_batch(options, name);
  std::vector<GenerateRequest> requests;
  std::vector<RequestId> ids;
  BatchDriver driver(model, random_options(rng));
  for (size_t i = 0; i < 10; ++i) {
    requests.push_back(random_request(rng, options.context));
    ids.push_back(driver.submit(requests.back(), static_cast<Priority>(rng.below(3))));
    for (size_t wait = rng.below(12); wait > 0; --wait) driver.step();
  }
  driver.run();
  for (size_t i = 0; i < ids.size(); ++i) {
    expect_same_answer(driver.result(ids[i]), run_alone(reference, requests[i]),
                       name + ", seed " + std::to_string(seed) + ", request " + std::to_string(i));
  }
  driver.batcher->forget_prefixes();
  EXPECT_EQ(model->make_sequence().pool()->used_blocks(), 0U);
  return driver.sum;
}

TEST(Batcher, EveryRequestGetsTheBitsOfARunAlone) {
  size_t preempted = 0;
  size_t recomputed = 0;
  for (const char* name : {"llama.gguf", "gemma3.gguf", "qwen2.gguf", "qwen3.gguf", "phi3.gguf"}) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      const BatchStep sum = random_trial(seed, name, Precision::kDefault);
      preempted += sum.preempted;
      recomputed += sum.recomputed_tokens;
    }
  }
  EXPECT_GT(preempted, 20U);  // or the trials did not reach what they are for
  EXPECT_GT(recomputed, 200U);
}

TEST(Batcher, PromptAndGenerationOfDifferentClassesKeepTheirBits) {
  for (uint64_t seed = 11; seed <= 16; ++seed) random_trial(seed, "llama.gguf", Precision::kFast);
}

TEST(Batcher, TheFloatClassDoesNotDependOnCompanyEither) {
  for (uint64_t seed = 21; seed <= 23; ++seed) random_trial(seed, "llama.gguf", Precision::kReference);
}

TEST(Batcher, WhenBlocksRunOutTheNewestReadsItsTextAgain) {
  ModelOptions options = batch_options();
  options.kv_tokens = 256;  // two of four contexts
  const auto model = load_for_batch(options);
  const auto reference = load_for_batch(batch_options());
  BatchDriver driver(model);
  Rng rng(3);
  std::vector<GenerateRequest> requests;
  std::vector<RequestId> ids;
  for (size_t i = 0; i < 4; ++i) {
    requests.push_back(sampled_request(random_prompt(rng, 20), 100, i));
    ids.push_back(driver.submit(requests.back()));
  }
  driver.run();
  for (size_t i = 0; i < 4; ++i)
    expect_same_answer(driver.result(ids[i]), run_alone(reference, requests[i]), "blocks");
  EXPECT_GE(driver.sum.preempted, 2U);
  EXPECT_GT(driver.sum.recomputed_tokens, 100U);
  EXPECT_EQ(driver.sum.generated_tokens, 400U);
  EXPECT_EQ(driver.sum.prompt_tokens, 80U);
}

TEST(Batcher, APoolBelowTheContextIsTheLimitOfASequence) {
  ModelOptions options = batch_options();
  options.kv_tokens = 64;
  BatchDriver driver(load_for_batch(options));
  EXPECT_EQ(driver.batcher->capacity(), 64U);
  Rng rng(1);
  const auto id = driver.submit(sampled_request(random_prompt(rng, 10), 100));
  driver.run();
  EXPECT_EQ(driver.result(id).reason, FinishReason::kContext);
  EXPECT_EQ(driver.result(id).tokens.size(), 64U - 10 + 1);
  const auto refused =
      driver.batcher->submit({sampled_request(random_prompt(rng, 65), 1), {}, [](auto, auto) {}});
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
}

TEST(Batcher, BlocksThatOthersHoldForEverEndTheRequestNotTheBatcher) {
  const auto model = load_for_batch(batch_options(1));
  auto session = Session::create(model);
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE((*session)->append(std::vector<TokenId>(90, 50), Purpose::kPrompt).ok());
  BatchDriver driver(model);
  Rng rng(1);
  const auto too_long = driver.submit(sampled_request(random_prompt(rng, 60), 10));
  const auto fits = driver.submit(sampled_request(random_prompt(rng, 10), 10));
  driver.run();
  EXPECT_EQ(driver.results.at(too_long).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(driver.result(fits).tokens.size(), 10U);
  EXPECT_EQ((*session)->tokens().size(), 90U);
}

TEST(Batcher, BadRequestsAreRefusedOrEndAlone) {
  const auto model = load_for_batch(batch_options());
  BatchDriver driver(model);
  Rng rng(5);
  const GenerateRequest good = sampled_request(random_prompt(rng, 30), 30);
  const auto refusal = [&](GenerateRequest request) {
    return driver.batcher->submit({std::move(request), Priority::kInteractive, [](auto, auto) {}})
        .status()
        .code();
  };
  EXPECT_EQ(refusal(sampled_request({}, 1)), Code::kInvalidArgument);
  EXPECT_EQ(refusal(sampled_request({40, -1}, 1)), Code::kInvalidArgument);
  EXPECT_EQ(refusal(sampled_request({40, 1 << 20}, 1)), Code::kInvalidArgument);
  EXPECT_EQ(refusal(sampled_request(std::vector<TokenId>(129, 40), 1)), Code::kResourceExhausted);
  GenerateRequest bad_sampler = good;
  bad_sampler.sampler.top_p = 0;
  EXPECT_EQ(refusal(bad_sampler), Code::kInvalidArgument);
  GenerateRequest drafting = sampled_request({40}, 1);
  drafting.speculate.max_draft = 1;
  EXPECT_EQ(refusal(drafting), Code::kUnsupported);
  EXPECT_EQ(driver.batcher->submit({good, {}, nullptr}).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(driver.batcher->idle());

  const auto before = driver.submit(good);
  GenerateRequest hopeless = good;  // no token is left to choose from
  for (size_t token = 0; token < model->config().vocab; ++token) {
    hopeless.sampler.logit_bias.push_back({static_cast<int32_t>(token), -INFINITY});
  }
  const auto failed = driver.submit(hopeless);
  const auto after = driver.submit(good);
  driver.run();
  EXPECT_EQ(driver.results.at(failed).status().code(), Code::kInvalidArgument);
  const GenerateResult want = run_alone(model, good);
  expect_same_answer(driver.result(before), want, "before the bad one");
  expect_same_answer(driver.result(after), want, "after the bad one");
}

TEST(Batcher, OptionsThatCannotWorkAreNamed) {
  const auto model = load_for_batch(batch_options());
  const auto code_of = [&](BatcherOptions options) {
    return Batcher::create(model, options).status().code();
  };
  EXPECT_EQ(code_of({.max_running = 9}), Code::kInvalidArgument);
  EXPECT_EQ(code_of({.max_running = 8, .step_tokens = 7}), Code::kInvalidArgument);
  EXPECT_EQ(code_of({.step_tokens = 129}), Code::kInvalidArgument);
  EXPECT_EQ(code_of({.chunk_tokens = 0}), Code::kInvalidArgument);
  EXPECT_EQ(code_of({}), Code::kOk);
}

TEST(Batcher, ItsMemoryIsInThePlan) {
  const std::string path = std::string(ISTHMUS_TINY_MODELS) + "/llama.gguf";
  ModelOptions options = batch_options();
  options.context = 128;
  const auto plan = LanguageModel::plan(path, options);
  ASSERT_TRUE(plan.ok());
  options.memory_limit = plan->total();
  const auto model = LanguageModel::load(path, options);
  ASSERT_TRUE(model.ok());
  BatchDriver driver(*model);
  EXPECT_LE((*model)->ledger().peak(), plan->total());
  options.step_outputs = 1;
  const auto one_row = LanguageModel::plan(path, options);
  ASSERT_TRUE(one_row.ok());
  EXPECT_GE(plan->total(), one_row->total() + 7 * (*model)->config().vocab * sizeof(float));
}

}  // namespace
}  // namespace isthmus
