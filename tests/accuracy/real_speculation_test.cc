// Speculation on real models: on equals off, token for token and bit for bit. ISTHMUS_TEST_MODELS names the
// folder.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "engine/chat.h"
#include "engine/generate.h"

namespace isthmus {
namespace {

constexpr size_t kDraft = 15;
constexpr size_t kTokens = 48;

bool sanitized() { return std::getenv("ISTHMUS_SANITIZED") != nullptr; }

std::shared_ptr<LanguageModel> load(const std::string& name) {
  const char* folder = std::getenv("ISTHMUS_TEST_MODELS");
  EXPECT_NE(folder, nullptr) << "ISTHMUS_TEST_MODELS must name the folder of the test models";
  ModelOptions options;
  options.context = 1024;
  options.sequences = 2;
  options.draft_tokens = kDraft;
  if (name == "gemma3") options.chat_template = "gemma";  // its file has none
  auto model =
      LanguageModel::load(std::string(folder == nullptr ? "." : folder) + "/" + name + ".gguf", options);
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return model.ok() ? *model : nullptr;
}

std::vector<TokenId> prompt_of(const LanguageModel& model, const std::string& text) {
  std::ifstream file(std::string(ISTHMUS_SOURCE_DIR) + "/bench/lookup/texts/" + text + ".txt");
  EXPECT_TRUE(file.good()) << text;
  std::ostringstream content;
  content << file.rdbuf();
  ChatRequest chat;
  chat.messages.push_back({{"role", "user"}, {"content", content.str()}});
  auto ids = encode_chat(model, chat);
  EXPECT_TRUE(ids.ok()) << ids.status().to_string();
  return ids.ok() ? *ids : std::vector<TokenId>();
}

GenerateResult run(const std::shared_ptr<LanguageModel>& model, GenerateRequest request, size_t draft) {
  auto session = Session::create(model);
  EXPECT_TRUE(session.ok());
  request.speculate.max_draft = draft;
  // Every step takes as long as any other: as many drafts as there are.
  request.speculate.clock = [now = 0.0]() mutable { return now += 1; };
  auto result = generate(**session, request);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return std::move(*result);
}

class RealSpeculation : public testing::TestWithParam<const char*> {};

TEST_P(RealSpeculation, GivesThePlainRun) {
  const auto model = load(GetParam());
  ASSERT_NE(model, nullptr);
  size_t accepted = 0;
  size_t rejected = 0;
  std::vector<std::pair<const char*, uint64_t>> cases = {
      {"quote", 0}, {"edit", 2}, {"edit", 0}, {"quote", 1}, {"fresh", 2}};
  if (sanitized()) cases.resize(2);
  for (const auto& [text, seed] : cases) {
    GenerateRequest request;
    request.prompt = prompt_of(*model, text);
    request.max_tokens = kTokens;
    request.sampler.seed = seed;
    request.sampler.temperature = seed == 0 ? 0.0F : 0.7F;
    request.sampler.repetition_penalty = seed == 2 ? 1.05F : 1.0F;
    request.sampler.logprobs = 2;
    const GenerateResult plain = run(model, request, 0);
    const GenerateResult fast = run(model, request, kDraft);
    ASSERT_EQ(fast.tokens, plain.tokens) << text << ", seed " << seed;
    EXPECT_EQ(fast.text, plain.text);
    EXPECT_EQ(fast.reason, plain.reason);
    ASSERT_EQ(fast.details.size(), plain.details.size());
    for (size_t i = 0; i < fast.details.size(); ++i) {
      EXPECT_EQ(fast.details[i].logprob, plain.details[i].logprob);
      EXPECT_EQ(fast.details[i].top[1].logprob, plain.details[i].top[1].logprob);
    }
    accepted += fast.figures.speculation.accepted;
    rejected += fast.figures.speculation.drafted - fast.figures.speculation.accepted;
  }
  EXPECT_GT(accepted, kTokens / 2);
  EXPECT_GT(rejected, 0U);
}

/// A sanitizer multiplies the minutes; one model takes every path.
std::vector<const char*> models() {
  if (sanitized()) return {"smollm2"};
  return {"smollm2", "gemma3", "qwen05"};
}

INSTANTIATE_TEST_SUITE_P(Models, RealSpeculation, testing::ValuesIn(models()),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace isthmus
