// Measuring what a text's keys are worth: a context is read once, then forks of it lose keys under one policy
// after the other and are asked for what stood there.
//
// Not thread-safe. The model must have been loaded with step_outputs of at least kProbeOutputs, room for two
// sequences, and without a policy of its own.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/language_model.h"
#include "kv/eviction.h"

namespace isthmus {

inline constexpr size_t kProbeOutputs = 64;

class RetrievalProbe {
 public:
  struct Asked {
    bool right = false;  // each token of the answer is the likeliest one after those before it
    double logprob = 0;  // sum over the answer's tokens
    double kept = 1;     // share of the keys that may go which stayed
    uint64_t kv_bytes = 0;
  };

  static Result<std::unique_ptr<RetrievalProbe>> create(std::shared_ptr<LanguageModel> model);

  /// Forgets the last context and reads this one.
  Status read(std::span<const TokenId> context);
  /// Asks a fork of it. `known`: the question is read (but for its last token) before keys go, as in one
  /// prompt; otherwise keys go first, as when a text is kept for later questions. kInvalidArgument for a
  /// question or an answer that is empty or of more than kProbeOutputs - 1 tokens.
  Result<Asked> ask(const EvictionOptions& policy, std::span<const TokenId> question,
                    std::span<const TokenId> answer, bool known);

 private:
  explicit RetrievalProbe(std::shared_ptr<LanguageModel> model);
  Status run(KvSequence& kv, QueryRecord* record, std::span<const TokenId> tokens,
             std::span<const uint32_t> outputs);

  std::shared_ptr<LanguageModel> model_;
  AttentionGeometry geometry_;
  std::unique_ptr<Workspace> workspace_;
  std::vector<TokenId> context_;  // that kv_ holds
  KvSequence kv_;
  QueryRecord record_;
  std::vector<float> logits_;
};

}  // namespace isthmus
