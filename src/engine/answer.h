// What one request has said so far: the part of generation that needs no model. Samples, stops, streams text,
// keeps the figures; whoever runs the model (generate(), a Batcher) brings logits and the time.
//
// The order for each token is may_go_on(), sample(), take(); at the end finish(). Callbacks of the request
// run in take() and finish(). Not thread-safe, but different answers are independent of each other: their
// sample() may run on several threads at once.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "engine/generate.h"
#include "engine/stop_matcher.h"

namespace isthmus {

class Answer {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// kInvalidArgument for parameters out of range or an empty prompt, kResourceExhausted for a prompt of more
  /// than `room` tokens.
  static Status check(const GenerateRequest& request, size_t vocab, size_t room);

  /// `request` must have passed check(); it and the tokenizer outlive the answer.
  Answer(const GenerateRequest& request, const Tokenizer& tokenizer, Time accepted);

  /// The prompt was read: `reused` of its tokens were there before.
  void prompt_read(size_t reused, Time now);
  /// `tokens` of those came from the tier below memory, which took `seconds`.
  void from_tier(size_t tokens, double seconds);
  /// False when there is nothing more to sample: the length is reached, the request cancelled or overdue.
  bool may_go_on(Time now);
  /// The next token, from the logits [vocab] after the newest one; nothing but the draw's state changes.
  /// `complete` is false when they may be right for the best wanted_logits() only.
  Result<Sampled> sample(std::span<const float> logits, bool complete = true) {
    return sampler_.sample(logits, history_, complete);
  }
  size_t wanted_logits() const { return sampler_.wanted_logits(); }
  /// Adds a token to the answer; false when the answer ends with it, otherwise the model reads it next.
  bool take(const Sampled& sampled, Time now);
  /// Ends the answer: always false, for use as `return end(reason)`.
  bool end(FinishReason reason);
  /// Gives out what text was held back. Once.
  GenerateResult finish();

  void count_shift() { ++result_.figures.context_shifts; }
  size_t generated() const { return result_.tokens.size(); }
  const GenerateRequest& request() const { return request_; }

 private:
  void note_time(Time now);
  bool show(const std::string& text);

  const GenerateRequest& request_;
  const std::vector<int32_t>& stop_tokens_;
  Sampler sampler_;
  StreamDecoder decoder_;
  StopMatcher matcher_;
  GenerateResult result_;
  std::vector<TokenId> history_;  // prompt and answer
  Time accepted_, first_, last_;
};

/// What is left of a full context: its first `keep` tokens stay as they are, those from `resume` on are read
/// again behind them, as a prompt.
struct ContextShift {
  size_t keep;
  size_t resume;
};

/// How ContextPolicy::kShift cuts `held` > 0 tokens.
ContextShift context_shift(size_t held, size_t keep_tokens);

}  // namespace isthmus
