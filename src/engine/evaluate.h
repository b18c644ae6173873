// Measuring a model: log-probabilities over windows of text, perplexity, and the distance to reference
// distributions.
//
// Rows can be made in two ways: a window at a time, as a prompt is read, or token by token, as text is
// generated. The two use different kernels and arithmetic, so both are measured.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"
#include "engine/language_model.h"

namespace isthmus {

enum class ScoreMode { kWindow, kTokenByToken };

/// Makes logits for ranges of positions of windows of tokens. Not thread-safe.
class Scorer {
 public:
  /// The model must have been loaded with step_tokens and step_outputs of at least kScorerStep.
  static Result<std::unique_ptr<Scorer>> create(std::shared_ptr<LanguageModel> model);

  /// Calls `row(position, logits)` for positions [first, last) of `tokens`: logits[vocab] after that token;
  /// logits may be changed by the callback. With ModelOptions::eviction keys go when the first `first` tokens
  /// are read.
  Status score(std::span<const TokenId> tokens, size_t first, size_t last, ScoreMode mode,
               const StopPolicy& stop,
               const std::function<Status(size_t position, std::span<float> logits)>& row);

  /// Codes the KV of what is scored from now on as `codec` says instead of as the model's options do.
  Status set_codec(const KvCodec& codec);

  const LanguageModel& model() const { return *model_; }

 private:
  explicit Scorer(std::shared_ptr<LanguageModel> model) : model_(std::move(model)) {}
  Status run_step(KvSequence& kv, std::span<const TokenId> tokens, ScoreMode mode, size_t outputs_from,
                  QueryRecord* queries);

  std::shared_ptr<LanguageModel> model_;
  std::unique_ptr<Workspace> workspace_;
  std::shared_ptr<BlockPool> blocks_;  // null: the model's
  std::vector<float> hidden_;
  std::vector<float> logits_;
  std::vector<uint32_t> outputs_;
};

inline constexpr size_t kScorerStep = 512;

/// Windows of `length` tokens every `stride`, at most `most`; the first token of each becomes BOS where the
/// model adds one.
std::vector<std::vector<TokenId>> cut_windows(const Tokenizer& tokenizer, std::span<const TokenId> text,
                                              size_t length, size_t stride, size_t most);

}  // namespace isthmus
