// The real models against float32 distributions made by llama.cpp: tokens, prompt kernels, generation
// kernels, and our own float32 path. Two texts: a short mixed one (tests/golden/mixed), and two windows of
// the text that docs/accuracy.md measures (tests/golden/truth), where the bounds stand near the published
// figures. The distance is the lower bound of the KL that 64 ids and the rest's mass allow.
#include <fmt/format.h>
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
  std::vector<int32_t> ids;  // most likely first
  std::vector<double> logp;
  double rest = 0;  // mass of all other ids
};

/// One window: row i follows token first + i.
struct Truth {
  std::vector<TokenId> tokens;
  size_t first = 0;
  std::vector<Row> rows;
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
  static const std::string kFolder = ISTHMUS_SOURCE_DIR "/tests/golden/";
  return kFolder;
}

Row read_row(const nlohmann::json& item) {
  Row row{item.at("ids").get<std::vector<int32_t>>(), item.at("logp").get<std::vector<double>>(), 0};
  double sum = 0;
  for (const double logp : row.logp) sum += std::exp(logp);
  row.rest = item.value("rest", std::max(0.0, 1 - sum));
  // The file rounds to five digits: made to sum to one again, that costs some 1e-11 of KL, not 1e-6.
  sum += row.rest;
  for (double& logp : row.logp) logp -= std::log(sum);
  row.rest /= sum;
  return row;
}

Truth read_mixed(const std::string& name) {
  const auto json = nlohmann::json::parse(read_gzip(golden_folder() + "mixed/" + name + ".json.gz"));
  Truth out;
  out.tokens = json.at("tokens").get<std::vector<TokenId>>();
  for (const auto& item : json.at("positions")) out.rows.push_back(read_row(item));
  return out;
}

std::vector<Truth> read_windows(const std::string& name) {
  const auto json = nlohmann::json::parse(read_gzip(golden_folder() + "truth/" + name + ".json.gz"));
  std::vector<Truth> out;
  for (const auto& window : json.at("windows")) {
    Truth truth;
    truth.tokens = window.at("tokens").get<std::vector<TokenId>>();
    truth.first = window.at("rows").at(0).at("position").get<size_t>();
    for (const auto& item : window.at("rows")) {
      EXPECT_EQ(item.at("position").get<size_t>(), truth.first + truth.rows.size());
      truth.rows.push_back(read_row(item));
    }
    out.push_back(std::move(truth));
  }
  return out;
}

/// Sum over the listed ids of p (log p - log q), plus the same for the mass of all others.
double kl_lower_bound(const Row& row, std::span<const float> log_q) {
  double q_rest = 1;
  double kl = 0;
  for (size_t i = 0; i < row.ids.size(); ++i) {
    const auto q = static_cast<double>(log_q[static_cast<size_t>(row.ids[i])]);
    kl += std::exp(row.logp[i]) * (row.logp[i] - q);
    q_rest -= std::exp(q);
  }
  if (row.rest > 1e-9 && q_rest > 1e-12) kl += row.rest * std::log(row.rest / q_rest);
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

struct Distance {
  size_t rows = 0;
  double kl_sum = 0;
  size_t same_top = 0;

  double mean_kl() const { return kl_sum / static_cast<double>(rows); }
};

/// Adds the first `most_rows` rows of `truth` to `distance`.
void measure(Scorer& scorer, const Truth& truth, ScoreMode mode, size_t most_rows, Distance& distance) {
  const size_t rows = std::min(most_rows, truth.rows.size());
  const auto add = [&](size_t position, std::span<float> logits) {
    const Row& row = truth.rows[position - truth.first];
    log_softmax(logits, logits);
    const auto top = std::max_element(logits.begin(), logits.end()) - logits.begin();
    distance.kl_sum += kl_lower_bound(row, logits);
    distance.same_top += top == row.ids.front() ? 1 : 0;
    ++distance.rows;
    return ok_status();
  };
  const Status status = scorer.score(truth.tokens, truth.first, truth.first + rows, mode, {}, add);
  EXPECT_TRUE(status.ok()) << status.to_string();
}

Distance distance_to(const std::string& name, const std::vector<Truth>& windows, Precision precision,
                     KvType kv, ScoreMode mode, size_t most_rows = SIZE_MAX) {
  Distance out;
  const auto model = load(name, precision, kv);
  if (model == nullptr) return out;
  auto scorer = Scorer::create(model);
  EXPECT_TRUE(scorer.ok()) << scorer.status().to_string();
  for (const Truth& truth : windows) measure(**scorer, truth, mode, most_rows, out);
  ::testing::Test::RecordProperty("mean_kl", fmt::format("{:.3g}", out.mean_kl()));
  return out;
}

double mean_kl(const std::string& name, Precision precision, KvType kv, ScoreMode mode,
               size_t most_rows = SIZE_MAX) {
  return distance_to(name, {read_mixed(name)}, precision, kv, mode, most_rows).mean_kl();
}

class RealModel : public ::testing::TestWithParam<const char*> {};

TEST_P(RealModel, TokensAreTheReferences) {
  const auto model = load(GetParam(), Precision::kDefault, KvType::kF16);
  ASSERT_NE(model, nullptr);
  std::ifstream in(golden_folder() + "mixed/text.txt");
  std::stringstream text;
  text << in.rdbuf();
  auto ids = model->tokenizer().encode(text.str(), Specials::kAsText, true);
  const Truth truth = read_mixed(GetParam());
  ASSERT_GE(ids.size(), truth.tokens.size());
  ids.resize(truth.tokens.size());
  EXPECT_EQ(ids, truth.tokens);
}

TEST_P(RealModel, PromptKernelsAreWithin1e4OfFloat32) {
  EXPECT_LT(mean_kl(GetParam(), Precision::kDefault, KvType::kF16, ScoreMode::kWindow), 1e-4);
}

TEST_P(RealModel, GenerationKernelsAreWithin1e4OfFloat32) {
  EXPECT_LT(mean_kl(GetParam(), Precision::kDefault, KvType::kF16, ScoreMode::kTokenByToken, 64), 1e-4);
}

TEST_P(RealModel, FastPromptsAreAsNearAsThePeers) {
  // Mean KL of llama.cpp on its reference text (docs/accuracy.md), with room for another text.
  const std::map<std::string, double> peers = {{"smollm2", 0.0027}, {"gemma3", 0.0047}, {"qwen05", 0.00084}};
  EXPECT_LT(mean_kl(GetParam(), Precision::kFast, KvType::kF16, ScoreMode::kWindow),
            1.5 * peers.at(GetParam()));
}

TEST_P(RealModel, EightBitKvStaysAsNearAsMeasured) {
  // Some three times the figures of docs/accuracy.md.
  const std::map<std::string, double> bounds = {{"smollm2", 0.0012}, {"gemma3", 0.0012}, {"qwen05", 0.02}};
  const double kl = mean_kl(GetParam(), Precision::kDefault, KvType::kQ8, ScoreMode::kWindow);
  EXPECT_LT(kl, bounds.at(GetParam()));
  EXPECT_GT(kl, 1e-5);  // it is at work
}

TEST_P(RealModel, TheFloat32PathMatchesLlamaCpp) {
  EXPECT_LT(mean_kl(GetParam(), Precision::kReference, KvType::kF32, ScoreMode::kWindow, 96), 1e-4);
}

/// Three times what these very rows measure (docs/accuracy.md): the integer kernels give the same bits on
/// every machine, so a change for the worse passes these long before it comes near the peer (llama.cpp on the
/// same text: 2.7e-3, 4.7e-3 and 8.4e-4). Every row has the truth's most likely token.
struct Bounds {
  double prompts;     // mean KL, windows
  double generation;  // mean KL, token by token
};
const std::map<std::string, Bounds> kBounds = {
    {"smollm2", {8e-7, 7e-7}}, {"gemma3", {1.7e-6, 1.4e-6}}, {"qwen05", {2.4e-6, 2.1e-6}}};

bool sanitized() { return std::getenv("ISTHMUS_SANITIZED") != nullptr; }

TEST_P(RealModel, PromptsKeepTheMeasuredDistance) {
  auto windows = read_windows(GetParam());
  ASSERT_EQ(windows.size(), 2U);
  if (sanitized()) windows.resize(1);
  const size_t rows = sanitized() ? 32 : 128;
  const Distance d =
      distance_to(GetParam(), windows, Precision::kDefault, KvType::kF16, ScoreMode::kWindow, rows);
  EXPECT_EQ(d.rows, rows * windows.size());
  EXPECT_LT(d.mean_kl(), kBounds.at(GetParam()).prompts);
  EXPECT_EQ(d.same_top, d.rows);
}

TEST_P(RealModel, GenerationKeepsTheMeasuredDistance) {
  auto windows = read_windows(GetParam());
  windows.resize(1);
  const size_t rows = sanitized() ? 1 : 64;  // each costs a step, and so do the 383 tokens before the first
  const Distance d =
      distance_to(GetParam(), windows, Precision::kDefault, KvType::kF16, ScoreMode::kTokenByToken, rows);
  EXPECT_EQ(d.rows, rows);
  EXPECT_LT(d.mean_kl(), kBounds.at(GetParam()).generation);
  EXPECT_EQ(d.same_top, d.rows);
}

/// A sanitizer multiplies the minutes: one real model there, the other families as tiny ones (model_test).
std::vector<const char*> models() {
  if (sanitized()) return {"smollm2"};
  return {"smollm2", "gemma3", "qwen05"};
}

INSTANTIATE_TEST_SUITE_P(Models, RealModel, ::testing::ValuesIn(models()));

}  // namespace
}  // namespace isthmus
