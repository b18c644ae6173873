// One request inside a Batcher: its text, how much of it the KV holds, and the answer so far. Belongs to the
// thread that drives the batcher.
#pragma once

#include <utility>
#include <vector>

#include "engine/batcher.h"

namespace isthmus {

struct Batcher::Member {
  enum class State : uint8_t { kWaiting, kRunning, kDone };

  Member(BatchRequest batch_request, const LanguageModel& model, Answer::Time now)
      : request(std::move(batch_request)),
        accepted(now),
        rank{static_cast<unsigned>(request.priority), 0},
        answer(request.generate, model.tokenizer(), now),
        text(request.generate.prompt),
        purposes(text.size(), Purpose::kPrompt) {}

  /// Tokens that the KV does not hold yet.
  size_t unread() const { return text.size() - kv.length(); }
  /// The next token to read is the newest one sampled.
  bool generating() const { return unread() == 1 && purposes.back() == Purpose::kGeneration; }
  bool holds_blocks() const { return kv.blocks() > 0; }

  /// What is read next: the tokens of one arithmetic class.
  Compute next_compute(const LanguageModel& model) const { return compute_at(kv.length(), model); }
  size_t next_run(const LanguageModel& model) const {
    const Compute compute = next_compute(model);
    size_t end = kv.length() + 1;
    while (end < text.size() && compute_at(end, model) == compute) ++end;
    return end - kv.length();
  }

  RequestId id = 0;
  const BatchRequest request;
  const Answer::Time accepted;
  Rank rank;
  State state = State::kWaiting;
  bool stop_asked = false;  // by Batcher::cancel()
  bool prompt_known = false;
  Answer answer;
  KvSequence kv;
  std::vector<TokenId> text;      // prompt and answer, less what a context shift dropped
  std::vector<Purpose> purposes;  // of each token of the text
  size_t reused = 0;              // tokens of the prompt that the prefix tree had
  size_t seen = 0;                // tokens of the text that were read at least once
  size_t chunk = 0;               // tokens of this step

  Compute compute_at(size_t index, const LanguageModel& model) const {
    return purposes[index] == Purpose::kPrompt ? model.prompt_compute() : model.generation_compute();
  }
};

}  // namespace isthmus
