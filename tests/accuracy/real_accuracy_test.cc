// The real models against float32 distributions made by llama.cpp (tests/golden/mixed): tokens, prompt
// kernels, generation kernels, and our own float32 path. The distance is the lower bound of the KL that 64
// ids and the rest's mass allow.
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/evaluate.h"
#include "format/logits_file.h"

namespace isthmus {
namespace {

struct Row {
  std::vector<int32_t> ids;
  std::vector<double> logp;
};

struct Truth {
  std::vector<TokenId> tokens;
  std::vector<Row> rows;  // row i follows token i
};

std::string read_gzip(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  EXPECT_NE(file, nullptr) << path;
  std::string out;
  char buffer[1 << 16];
  int n = 0;
  while (file != nullptr && (n = gzread(file, buffer, sizeof(buffer))) > 0)
    out.append(buffer, static_cast<size_t>(n));
  if (file != nullptr) gzclose(file);
  return out;
}

const std::string& golden_folder() {
  static const std::string kFolder = ISTHMUS_SOURCE_DIR "/tests/golden/mixed/";
  return kFolder;
}

Truth read_truth(const std::string& name) {
  const auto json = nlohmann::json::parse(read_gzip(golden_folder() + name + ".json.gz"));
  Truth out;
  out.tokens = json.at("tokens").get<std::vector<TokenId>>();
  for (const auto& item : json.at("positions")) {
    out.rows.push_back(
        {item.at("ids").get<std::vector<int32_t>>(), item.at("logp").get<std::vector<double>>()});
  }
  return out;
}

/// Sum over the listed ids of p (log p - log q), plus the same for the mass of all others.
double kl_lower_bound(const Row& row, std::span<const float> log_q) {
  double p_rest = 1;
  double q_rest = 1;
  double kl = 0;
  for (size_t i = 0; i < row.ids.size(); ++i) {
    const double p = std::exp(row.logp[i]);
    const auto q = static_cast<double>(log_q[static_cast<size_t>(row.ids[i])]);
    kl += p * (row.logp[i] - q);
    p_rest -= p;
    q_rest -= std::exp(q);
  }
  if (p_rest > 1e-9 && q_rest > 1e-12) kl += p_rest * std::log(p_rest / q_rest);
  return kl;
}

std::shared_ptr<LanguageModel> load(const std::string& name, Precision precision, KvType kv) {
  const char* folder = std::getenv("ISTHMUS_TEST_MODELS");
  EXPECT_NE(folder, nullptr) << "ISTHMUS_TEST_MODELS must name the folder of the test models";
  ModelOptions options;
  options.context = kScorerStep;
  options.step_tokens = kScorerStep;
  options.step_outputs = kScorerStep;
  options.precision = precision;
  options.kv_type = kv;
  auto model =
      LanguageModel::load(std::string(folder == nullptr ? "." : folder) + "/" + name + ".gguf", options);
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return model.ok() ? *model : nullptr;
}

double mean_kl(const std::string& name, Precision precision, KvType kv, ScoreMode mode, size_t most_rows) {
  const Truth truth = read_truth(name);
  const auto model = load(name, precision, kv);
  if (model == nullptr) return INFINITY;
  auto scorer = Scorer::create(model);
  EXPECT_TRUE(scorer.ok()) << scorer.status().to_string();
  double sum = 0;
  const size_t rows = std::min(most_rows, truth.rows.size());
  const Status status =
      (*scorer)->score(truth.tokens, 0, rows, mode, {}, [&](size_t position, std::span<float> logits) {
        log_softmax(logits, logits);
        sum += kl_lower_bound(truth.rows[position], logits);
        return ok_status();
      });
  EXPECT_TRUE(status.ok()) << status.to_string();
  return sum / static_cast<double>(rows);
}

class RealModel : public ::testing::TestWithParam<const char*> {};

TEST_P(RealModel, TokensAreTheReferences) {
  const auto model = load(GetParam(), Precision::kDefault, KvType::kF16);
  ASSERT_NE(model, nullptr);
  std::ifstream in(golden_folder() + "text.txt");
  std::stringstream text;
  text << in.rdbuf();
  auto ids = model->tokenizer().encode(text.str(), Specials::kAsText, true);
  const Truth truth = read_truth(GetParam());
  ASSERT_GE(ids.size(), truth.tokens.size());
  ids.resize(truth.tokens.size());
  EXPECT_EQ(ids, truth.tokens);
}

TEST_P(RealModel, PromptKernelsAreWithin1e4OfFloat32) {
  EXPECT_LT(mean_kl(GetParam(), Precision::kDefault, KvType::kF16, ScoreMode::kWindow, SIZE_MAX), 1e-4);
}

TEST_P(RealModel, GenerationKernelsAreWithin1e4OfFloat32) {
  EXPECT_LT(mean_kl(GetParam(), Precision::kDefault, KvType::kF16, ScoreMode::kTokenByToken, 64), 1e-4);
}

TEST_P(RealModel, FastPromptsAreAsNearAsThePeers) {
  // Mean KL of llama.cpp on its reference text (docs/accuracy.md), with room for another text.
  const std::map<std::string, double> peers = {{"smollm2", 0.0027}, {"gemma3", 0.0047}, {"qwen05", 0.00084}};
  EXPECT_LT(mean_kl(GetParam(), Precision::kFast, KvType::kF16, ScoreMode::kWindow, SIZE_MAX),
            1.5 * peers.at(GetParam()));
}

TEST_P(RealModel, TheFloat32PathMatchesLlamaCpp) {
  EXPECT_LT(mean_kl(GetParam(), Precision::kReference, KvType::kF32, ScoreMode::kWindow, 96), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, RealModel, ::testing::Values("smollm2", "gemma3", "qwen05"));

}  // namespace
}  // namespace isthmus
