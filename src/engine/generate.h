// Continuing a session: sampling, stops, streaming text, and the figures of the run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "engine/session.h"
#include "engine/speculation.h"

namespace isthmus {

class PrefixStore;

enum class FinishReason {
  kStopToken,   // a token that ends a turn
  kStopString,  // one of the caller's strings
  kLength,      // max_tokens
  kContext,     // the context is full
  kCancelled,
  kDeadline,
};

/// "stop_token", "stop_string", "length", "context", "cancelled", "deadline".
std::string_view finish_reason_name(FinishReason reason);

/// What to do when the context is full.
enum class ContextPolicy {
  kStop,  // end with FinishReason::kContext
  /// Drop the older half of the tokens after the first `keep_tokens`, read the rest again as a fresh prompt,
  /// go on. The text after a shift is what the model would say to that shorter prompt; each shift is counted
  /// in the result.
  kShift,
};

struct GenerateRequest {
  std::vector<TokenId> prompt;  // all tokens before the answer; a common prefix with the session's is reused
  SamplerParams sampler;
  std::vector<std::string> stops;   // stop strings
  bool ignore_stop_tokens = false;  // go on past EOS (benchmarks)
  size_t max_tokens = SIZE_MAX;
  ContextPolicy on_full = ContextPolicy::kStop;
  size_t keep_tokens = 0;  // for kShift: how many of the first tokens stay
  /// Off unless max_draft is set. The result is the same, token for token, and comes sooner where the text
  /// repeats itself. While it is on, callbacks find the session some tokens behind, without logits.
  SpeculateOptions speculate;
  /// Called with text as it becomes final; return false to cancel.
  std::function<bool(std::string_view)> on_text;
  /// Called once per generated token, before its text.
  std::function<void(const Sampled&)> on_token;
  StopPolicy stop;
  /// Where beginnings of prompts may be found that were read before; null: in the session alone. A Batcher
  /// does not look there.
  PrefixStore* prefixes = nullptr;
  /// The parts that the prompt is put together of (Session::compose), their tokens being `prompt`; empty: it
  /// is read. A Batcher reads it.
  std::span<const TextPart> parts = {};
  RepairOptions repair = {};
};

/// Times in seconds on the monotonic clock.
struct RunFigures {
  size_t prompt_tokens = 0;
  size_t reused_tokens = 0;    // of the prompt, found in the session's KV, the batch's prefix tree or a tier
  size_t stored_tokens = 0;    // of those, from the tier below memory
  double restore_seconds = 0;  // that this took, part of prefill_seconds
  size_t generated_tokens = 0;
  double prefill_seconds = 0;
  double ttft_seconds = 0;          // request accepted to first token sampled
  double decode_seconds = 0;        // first token to last token
  std::vector<double> gap_seconds;  // between consecutive tokens (TBT)
  size_t context_shifts = 0;
  SpeculationFigures speculation;  // zeros when it was off
  KvFigures kv;                    // at the end of a session's run
  ComposeFigures compose;          // of a prompt with parts
};

struct GenerateResult {
  std::string text;
  std::vector<TokenId> tokens;   // generated, a stop token included
  std::vector<Sampled> details;  // per token, when logprobs were asked for
  FinishReason reason = FinishReason::kLength;
  std::string stop_string;
  RunFigures figures;
};

/// Reads the prompt and generates. Errors (bad parameters, prompt too long) leave the session usable;
/// cancellation and deadlines are results, not errors, once generation has begun.
Result<GenerateResult> generate(Session& session, const GenerateRequest& request);

}  // namespace isthmus
