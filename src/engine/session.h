// One sequence being read and continued: its tokens, their KV, and the logits after the newest one.
//
// The token stream is append-only as seen by the KV: append() adds tokens, truncate() goes back, fork()
// starts a second session from the same point without copying, a token tree can be tried and one of its paths
// accepted. Cancel and deadline are checked before each step; a step that fails leaves the session as it was
// before that step. Not thread-safe; different sessions of one model may be used from different threads.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"
#include "engine/language_model.h"

namespace isthmus {

/// What a token is for; decides the arithmetic class (design: never the batch it rides in).
enum class Purpose : uint8_t { kPrompt, kGeneration };

class Session {
 public:
  static Result<std::unique_ptr<Session>> create(std::shared_ptr<LanguageModel> model);

  const LanguageModel& model() const { return *model_; }
  /// Tokens whose KV is held.
  std::span<const TokenId> tokens() const { return tokens_; }
  size_t room() const { return model_->context() - tokens_.size(); }

  /// Reads `tokens` in steps. kResourceExhausted when they do not fit the context: nothing is read then.
  Status append(std::span<const TokenId> tokens, Purpose purpose, const StopPolicy& stop = {});
  /// Logits [vocab] after the newest token; empty when the newest step did not end at it: nothing read yet,
  /// truncated, or part of a tree accepted.
  std::span<const float> logits() const { return {logits_.data(), logits_valid_ ? logits_.size() : 0}; }

  /// Tries a token tree after the present text (parents as in ForwardSequence; empty: a chain): logits
  /// [tokens][vocab] go to `logits`. Nothing is kept until accept(); a tree that fails changes nothing.
  Status try_tree(std::span<const TokenId> tokens, std::span<const int32_t> parents,
                  std::vector<float>& logits);
  /// Keeps the path (ascending indices, root to leaf) of the tree tried last; an empty path keeps nothing,
  /// and logits() stay. kInvalidArgument when it is no path of that tree, which may then be tried with
  /// another path; kFailedPrecondition when no tree was tried since the text last changed.
  Status accept(std::span<const uint32_t> path);

  /// Forgets the tokens from `length` on.
  Status truncate(size_t length);
  /// Makes the held tokens the longest common prefix with `wanted`, short of its last token (whose logits
  /// will be needed); returns how many are kept. Which part was reused is thereby known to the caller.
  size_t keep_common_prefix(std::span<const TokenId> wanted);
  /// A second session at the same point. Needs KV blocks only as the two grow apart.
  Result<std::unique_ptr<Session>> fork() const;

 private:
  explicit Session(std::shared_ptr<LanguageModel> model) : model_(std::move(model)) {}
  Status step(std::span<const TokenId> tokens, Purpose purpose, bool last);

  std::shared_ptr<LanguageModel> model_;
  std::unique_ptr<Workspace> workspace_;
  KvSequence kv_;
  std::vector<TokenId> tokens_;
  std::vector<TokenId> tree_;
  std::vector<int32_t> tree_parents_;
  std::vector<float> logits_;
  bool logits_valid_ = false;
};

}  // namespace isthmus
