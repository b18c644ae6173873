// Requests that share steps on the real models: texts and log-probabilities are those of each alone, bit by
// bit, with prompts cut into chunks, sampling, and a pool that makes some read their text twice.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "engine/batcher.h"

namespace isthmus {
namespace {

constexpr size_t kRequests = 6;
constexpr size_t kContext = 256;

std::shared_ptr<LanguageModel> load(const std::string& name, size_t kv_tokens, Precision precision) {
  const char* folder = std::getenv("ISTHMUS_TEST_MODELS");
  EXPECT_NE(folder, nullptr) << "ISTHMUS_TEST_MODELS must name the folder of the test models";
  ModelOptions options;
  options.context = kContext;
  options.kv_tokens = kv_tokens;
  options.step_outputs = kRequests;
  options.precision = precision;
  auto model = LanguageModel::load(std::string(folder) + "/" + name + ".gguf", std::move(options));
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return *model;
}

/// Prompts of 10 to 180 tokens out of one text, every other one sampled.
std::vector<GenerateRequest> requests_of(const LanguageModel& model) {
  std::ifstream file(ISTHMUS_SOURCE_DIR "/tests/golden/mixed/text.txt");
  std::stringstream text;
  text << file.rdbuf();
  const auto ids = model.tokenizer().encode(text.str(), Specials::kAsText, false);
  EXPECT_GE(ids.size(), 200U);
  std::vector<GenerateRequest> out(kRequests);
  for (size_t i = 0; i < kRequests; ++i) {
    const auto first = ids.begin() + static_cast<ptrdiff_t>(2 * i);
    out[i].prompt.assign(first, first + static_cast<ptrdiff_t>(10 + 34 * i));
    out[i].max_tokens = 40 - 3 * i;
    out[i].ignore_stop_tokens = true;
    out[i].sampler.seed = i;
    out[i].sampler.logprobs = 8;
    if (i % 2 == 0) out[i].sampler.temperature = 0;
  }
  return out;
}

std::vector<float> numbers_of(const GenerateResult& result) {
  std::vector<float> out;
  for (const Sampled& s : result.details) {
    out.push_back(s.logprob);
    for (const TokenLogprob& t : s.top) out.push_back(t.logprob);
  }
  return out;
}

class RealBatch : public ::testing::TestWithParam<std::string> {};

void expect_batch_equals_alone(const std::string& name, Precision precision) {
  const auto model = load(name, 2 * kContext, precision);
  auto batcher = Batcher::create(model, {.chunk_tokens = 24});
  ASSERT_TRUE(batcher.ok()) << batcher.status().to_string();
  const auto requests = requests_of(*model);
  std::map<RequestId, GenerateResult> results;
  size_t preempted = 0;
  for (const auto& request : requests) {
    const auto id = (*batcher)->submit({request, Priority::kInteractive, [&](RequestId done, auto result) {
                                          ASSERT_TRUE(result.ok()) << result.status().to_string();
                                          results.emplace(done, std::move(*result));
                                        }});
    ASSERT_TRUE(id.ok());
    for (int i = 0; i < 3; ++i) preempted += (*batcher)->step().preempted;
  }
  while (!(*batcher)->idle()) preempted += (*batcher)->step().preempted;
  EXPECT_GT(preempted, 0U);
  auto session = Session::create(model);
  ASSERT_TRUE(session.ok());
  for (size_t i = 0; i < kRequests; ++i) {
    ASSERT_TRUE((*session)->truncate(0).ok());
    const auto alone = generate(**session, requests[i]);
    ASSERT_TRUE(alone.ok());
    const GenerateResult& got = results.at(i + 1);
    EXPECT_EQ(got.tokens, alone->tokens) << "request " << i;
    EXPECT_EQ(got.text, alone->text) << "request " << i;
    EXPECT_EQ(numbers_of(got), numbers_of(*alone)) << "request " << i;
  }
}

TEST_P(RealBatch, TextsAndProbabilitiesAreThoseOfEachAlone) {
  expect_batch_equals_alone(GetParam(), Precision::kDefault);
}

TEST(RealBatchFast, TheSameWithPromptsInTheFastClass) {
  expect_batch_equals_alone("smollm2", Precision::kFast);
}

/// A sanitizer multiplies the minutes; one model takes every path.
std::vector<std::string> models() {
  if (std::getenv("ISTHMUS_SANITIZED") != nullptr) return {"smollm2"};
  return {"smollm2", "gemma3", "qwen05"};
}

INSTANTIATE_TEST_SUITE_P(Models, RealBatch, ::testing::ValuesIn(models()),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace isthmus
