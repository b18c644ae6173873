// A conversation with a model: turns that are asked, taken back and fitted into the context.
//
// Answers stream to standard output, remarks go to standard error. A turn that cannot be answered (the
// template refuses it, the context is full, it was stopped before the first word) is taken back and reported,
// and the conversation goes on. Not thread-safe; the session outlives it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "apps/isthmus/prefix_args.h"
#include "engine/chat.h"
#include "engine/generate.h"

namespace isthmus::cli {

struct TurnOptions {
  size_t max_tokens = SIZE_MAX;  // per answer
  /// When the context is full, leave out the oldest turns; else the answer ends and says so.
  bool shift = false;
  bool show_figures = false;
  size_t draft_tokens = 0;          // of speculation; 0: off
  PrefixCache* prefixes = nullptr;  // null: prompts are not kept
  /// After each turn that was answered; empty: nothing. Its errors end the chat.
  std::function<Status(Conversation&)> after_turn = {};
};

class ChatTurns {
 public:
  ChatTurns(Session& session, SamplerParams sampler, const TurnOptions& options);

  TurnOptions& options() { return options_; }
  /// Forgets everything; `system` is the system message from now on.
  void restart(const std::string& system);
  void restart() { restart(std::string(system_)); }
  /// One turn. Fails only when standard output can no longer be written.
  Status ask(const std::string& text);
  /// Drops the last question and its answer; returns the question, empty when there is none.
  std::string undo();
  /// To be gone on with, from a session that was kept.
  Conversation& conversation() { return conversation_; }
  const nlohmann::ordered_json& messages() { return conversation_.messages(); }

 private:
  Result<std::vector<TokenId>> fitting_prompt();
  bool drop_oldest_turn();
  Status too_long(size_t tokens);
  size_t system_tokens(const std::vector<TokenId>& prompt) const;
  Status take_back(const Status& why);
  Status finish(const GenerateResult& result);
  void keep(const std::vector<TokenId>& prompt);

  Session& session_;
  Conversation conversation_;
  SamplerParams sampler_;
  TurnOptions options_;
  std::string system_;
};

}  // namespace isthmus::cli
