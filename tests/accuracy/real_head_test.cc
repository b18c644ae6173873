// The two-stage output head on real hidden states: the best logits are those of the full head, bit for bit.
// ISTHMUS_TEST_MODELS names the folder of the models. ISTHMUS_HEAD_STATES = how many states of each model
// (default: some dozens), ISTHMUS_HEAD_TEXT = the file that they come from.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>
#include <sstream>

#include "engine/language_model.h"
#include "ops/aligned_bytes.h"
#include "ops/sampling_math.h"

namespace isthmus {
namespace {

constexpr size_t kPiece = 256;

size_t wanted_states() {
  const char* text = std::getenv("ISTHMUS_HEAD_STATES");
  return text == nullptr ? 64 : std::strtoul(text, nullptr, 10);
}

std::string text() {
  const char* path = std::getenv("ISTHMUS_HEAD_TEXT");
  std::ifstream file(path != nullptr ? path : ISTHMUS_SOURCE_DIR "/bench/lookup/texts/fresh.txt");
  EXPECT_TRUE(file.good());
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

std::shared_ptr<LanguageModel> load(const std::string& name) {
  const char* folder = std::getenv("ISTHMUS_TEST_MODELS");
  EXPECT_NE(folder, nullptr) << "ISTHMUS_TEST_MODELS must name the folder of the test models";
  ModelOptions options;
  options.context = kPiece;
  options.step_tokens = kPiece;
  options.step_outputs = kPiece;
  options.head = HeadMode::kTwoStage;
  if (const char* cache = std::getenv("ISTHMUS_HEAD_CACHE")) options.packed_cache.folder = cache;
  auto model =
      LanguageModel::load(std::string(folder == nullptr ? "." : folder) + "/" + name + ".gguf", options);
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return model.ok() ? *model : nullptr;
}

/// Counts of one k.
struct Tally {
  size_t k;
  size_t states = 0;
  size_t fell_back = 0;
  double touched = 0;
};

/// Compares both ways on hidden[n][d_model], eight states at a time.
class Comparison {
 public:
  explicit Comparison(LanguageModel& model) : model_(model), screen_(*model.transformer().screen()) {
    const size_t d = screen_.matrix().cols;
    records_ = aligned_bytes(Activations::bytes(kMaxTokens, d, Compute::kInt16), kVectorBytes);
    scratch_ = std::move(*ScreenScratch::create(screen_.matrix().rows, d, model.pool().size()));
    full_.resize(kMaxTokens * screen_.matrix().rows);
    best_.resize(screen_.matrix().rows);
  }

  void run(const float* hidden, size_t n, std::span<Tally> tallies) {
    const PackedMatrix& w = screen_.matrix();
    for (size_t at = 0; at < n; at += kMaxTokens) {
      const size_t count = std::min(kMaxTokens, n - at);
      const Activations all(hidden + at * w.cols, w.cols, count, w.cols, Compute::kInt16, records_.get());
      quantize_activations(all, 0, count);
      const LinearTask task{&w, full_.data(), w.rows};
      model_.pool().run([&](Worker& worker) { linear({&task, 1}, all, worker); });
      for (size_t i = 0; i < count; ++i) {
        for (Tally& tally : tallies) one(hidden + (at + i) * w.cols, full_.data() + i * w.rows, tally);
      }
    }
  }

 private:
  void one(const float* x, const float* full, Tally& tally) {
    const PackedMatrix& w = screen_.matrix();
    const Activations acts(x, w.cols, 1, w.cols, Compute::kInt16, records_.get());
    quantize_activations(acts, 0, 1);
    model_.pool().run(
        [&](Worker& worker) { screen_best(screen_, acts, tally.k, best_.data(), *scratch_, worker); });
    top_k_logits({full, w.rows}, tally.k, &expected_);
    top_k_logits(best_, tally.k, &found_);
    ASSERT_EQ(found_.size(), expected_.size());
    for (size_t i = 0; i < found_.size(); ++i) {
      ASSERT_EQ(found_[i].id, expected_[i].id) << "state " << tally.states << ", place " << i;
      ASSERT_EQ(std::memcmp(&found_[i].logit, &expected_[i].logit, sizeof(float)), 0);
    }
    ++tally.states;
    tally.fell_back += scratch_->outcome() == ScreenOutcome::kFull ? 1 : 0;
    tally.touched +=
        static_cast<double>(scratch_->touched_panels()) / static_cast<double>(panel_count(w.rows));
  }

  LanguageModel& model_;
  const Screen& screen_;
  AlignedBytes records_;
  std::unique_ptr<ScreenScratch> scratch_;
  std::vector<float> full_, best_;
  std::vector<TokenLogit> expected_, found_;
};

class RealHead : public testing::TestWithParam<const char*> {};

TEST_P(RealHead, BestLogitsAreThoseOfTheFullHead) {
  const auto model = load(GetParam());
  ASSERT_NE(model, nullptr);
  model->start_head();
  model->wait_for_head();
  ASSERT_EQ(model->head_report().state, HeadState::kReady) << model->head_report().reason;
  const auto tokens = model->tokenizer().encode(text(), Specials::kAsText, true);
  auto workspace = model->make_workspace();
  ASSERT_TRUE(workspace.ok());
  const size_t d = model->config().d_model;
  std::vector<float> hidden(kPiece * d);
  Tally tallies[] = {{1}, {40}};
  Comparison comparison(*model);
  const size_t states = std::min(wanted_states(), tokens.size());
  for (size_t at = 0; at < states && !HasFatalFailure(); at += kPiece) {
    const auto piece = std::span(tokens).subspan(at, std::min(kPiece, states - at));
    std::vector<uint32_t> outputs(piece.size());
    std::iota(outputs.begin(), outputs.end(), 0U);
    KvSequence kv = model->make_sequence();
    ASSERT_TRUE(kv.grow(piece.size()).ok());
    const ForwardSequence sequence{&kv, piece, {}};
    ForwardStep step;
    step.sequences = {&sequence, 1};
    step.compute = Compute::kInt16;
    step.outputs = outputs;
    step.hidden = hidden.data();
    ASSERT_TRUE(model->transformer().forward(step, **workspace, model->pool()).ok());
    comparison.run(hidden.data(), piece.size(), tallies);
  }
  for (const Tally& tally : tallies) {
    EXPECT_EQ(tally.states, states);
    const auto n = static_cast<double>(states);
    RecordProperty("states", static_cast<int>(states));
    std::printf("%s, %zu best: %zu states equal, panels in play %.2f %%, full %.2f %%\n", GetParam(), tally.k,
                tally.states, tally.touched / n * 100, static_cast<double>(tally.fell_back) / n * 100);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RealHead,
                         testing::ValuesIn(std::getenv("ISTHMUS_SANITIZED") != nullptr
                                               ? std::vector<const char*>{"smollm2"}
                                               : std::vector<const char*>{"smollm2", "gemma3", "qwen05"}));

}  // namespace
}  // namespace isthmus
