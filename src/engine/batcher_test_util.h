// What the tests of the Batcher share: tiny models, requests, a driver that keeps every result, and the same
// requests run alone.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/batcher.h"

namespace isthmus::batch_testing {

inline std::shared_ptr<LanguageModel> load_for_batch(ModelOptions options,
                                                     const std::string& name = "llama.gguf") {
  if (options.context == 0) options.context = 128;
  if (options.threads == 0) options.threads = 2;
  auto model = LanguageModel::load(std::string(ISTHMUS_TINY_MODELS) + "/" + name, std::move(options));
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return *model;
}

/// Options for a pool of `sequences` full contexts and eight sequences in a step.
inline ModelOptions batch_options(size_t sequences = 8) {
  ModelOptions options;
  options.sequences = sequences;
  options.step_outputs = 8;
  options.step_tokens = 128;
  return options;
}

inline std::vector<TokenId> random_prompt(Rng& rng, size_t n) {
  std::vector<TokenId> out(n);
  for (auto& token : out) token = static_cast<TokenId>(30 + rng.below(250));
  return out;
}

inline GenerateRequest sampled_request(std::vector<TokenId> prompt, size_t max_tokens, uint64_t seed = 7) {
  GenerateRequest r;
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  r.ignore_stop_tokens = true;
  r.sampler.seed = seed;
  r.sampler.temperature = 1;
  r.sampler.logprobs = 20;
  return r;
}

/// A batcher and what became of its requests.
struct BatchDriver {
  std::map<RequestId, Result<GenerateResult>> results;
  BatchStep sum;
  std::unique_ptr<Batcher> batcher;  // goes first: its end calls back

  explicit BatchDriver(std::shared_ptr<LanguageModel> model, BatcherOptions options = {}) {
    auto made = Batcher::create(std::move(model), std::move(options));
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    batcher = std::move(*made);
  }

  RequestId submit(GenerateRequest request, Priority priority = Priority::kInteractive) {
    const auto id = batcher->submit({std::move(request), priority, [this](RequestId done, auto result) {
                                       EXPECT_TRUE(results.emplace(done, std::move(result)).second);
                                     }});
    EXPECT_TRUE(id.ok()) << id.status().to_string();
    return id.ok() ? *id : 0;
  }

  BatchStep step() {
    const BatchStep report = batcher->step();
    sum.prompt_tokens += report.prompt_tokens;
    sum.recomputed_tokens += report.recomputed_tokens;
    sum.generated_tokens += report.generated_tokens;
    sum.preempted += report.preempted;
    sum.finished += report.finished;
    return report;
  }

  void run() {
    for (size_t i = 0; i < 20'000 && !batcher->idle(); ++i) step();
    EXPECT_TRUE(batcher->idle()) << "the batcher does not get on";
  }

  const GenerateResult& result(RequestId id) const {
    const auto& result = results.at(id);
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return *result;
  }
};

/// The request by generate(), on a session of its own.
inline GenerateResult run_alone(const std::shared_ptr<LanguageModel>& model, const GenerateRequest& request) {
  auto session = Session::create(model);
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  auto result = generate(**session, request);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return std::move(*result);
}

inline bool same_bits(const std::vector<TokenLogprob>& a, const std::vector<TokenLogprob>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].token != b[i].token || a[i].logprob != b[i].logprob) return false;
  }
  return true;
}

/// The same text, tokens, ending and, bit by bit, log-probabilities.
inline void expect_same_answer(const GenerateResult& got, const GenerateResult& want,
                               const std::string& what) {
  EXPECT_EQ(got.tokens, want.tokens) << what;
  EXPECT_EQ(got.text, want.text) << what;
  EXPECT_EQ(got.reason, want.reason) << what;
  EXPECT_EQ(got.stop_string, want.stop_string) << what;
  EXPECT_EQ(got.figures.context_shifts, want.figures.context_shifts) << what;
  EXPECT_EQ(got.figures.gap_seconds.size(), want.figures.gap_seconds.size()) << what;
  ASSERT_EQ(got.details.size(), want.details.size()) << what;
  for (size_t i = 0; i < got.details.size(); ++i) {
    EXPECT_EQ(got.details[i].logprob, want.details[i].logprob) << what << ", token " << i;
    EXPECT_TRUE(same_bits(got.details[i].top, want.details[i].top)) << what << ", token " << i;
    EXPECT_TRUE(same_bits(got.details[i].top_final, want.details[i].top_final)) << what << ", token " << i;
  }
}

}  // namespace isthmus::batch_testing
