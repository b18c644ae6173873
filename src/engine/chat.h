// From a conversation to token ids: the model's chat template, with content that can never forge a turn.
//
// A rendered template is one text in which the template's own markers ("<|im_end|>") must become special
// tokens and the same spelling inside a message must not. Where a message contains the spelling of a control
// token, its place is remembered through the rendering, and the tokenizer reads it as ordinary text. Pure
// functions of their arguments; thread-safe.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/language_model.h"

namespace isthmus {

struct ChatRequest {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();  // {"role", "content", …} each
  nlohmann::ordered_json tools;                                       // array, or null
  nlohmann::ordered_json variables;  // more names for the template (object), or null
  bool add_generation_prompt = true;
  int64_t now = 0;  // what strftime_now sees, seconds since the epoch
};

struct RenderedChat {
  std::string text;
  /// Byte offsets inside message content at which no special token may be recognised, ascending.
  std::vector<size_t> guarded;
};

/// kInvalidArgument for messages of the wrong shape or refused by the template; kFailedPrecondition without a
/// template.
Result<RenderedChat> render_chat(const LanguageModel& model, const ChatRequest& request);
/// render_chat() and the ids, with BOS where the model wants one and the template did not write it.
Result<std::vector<TokenId>> encode_chat(const LanguageModel& model, const ChatRequest& request);

/// A conversation whose ids are append-only: what the model really said stays as it was decoded, so that the
/// next turn finds its whole prefix in the KV cache.
class Conversation {
 public:
  explicit Conversation(const LanguageModel& model) : model_(model) {}

  nlohmann::ordered_json& messages() { return request_.messages; }
  ChatRequest& request() { return request_; }
  /// The rendered text begins with `text`, whose ids are `ids` whatever its words: text put together of
  /// modules. Before the first prompt; clear() forgets it.
  void begin_with(std::string text, std::vector<TokenId> ids) {
    known_text_ = std::move(text);
    known_ids_ = std::move(ids);
  }
  /// Ids of everything up to the answer to come.
  Result<std::vector<TokenId>> prompt();
  /// Records the answer: its text as a message, its ids as they were decoded.
  void add_answer(const std::string& text, std::span<const TokenId> ids);
  void clear();
  /// The rendered text so far, and its ids, as they were decoded.
  const std::string& known_text() const { return known_text_; }
  const std::vector<TokenId>& known_ids() const { return known_ids_; }

 private:
  const LanguageModel& model_;
  ChatRequest request_;
  std::string known_text_;  // rendered text up to the newest answer, without what follows it in the template
  std::vector<TokenId> known_ids_;  // its ids
};

}  // namespace isthmus
