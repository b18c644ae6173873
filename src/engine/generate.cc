#include "engine/generate.h"

#include <algorithm>
#include <chrono>

#include "engine/stop_matcher.h"

namespace isthmus {
namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

/// One run of generate(): the loop and what it keeps.
class Run {
 public:
  Run(Session& session, const GenerateRequest& request)
      : session_(session),
        request_(request),
        sampler_(request.sampler),
        decoder_(session.model().tokenizer()),
        matcher_(request.stops) {}

  Result<GenerateResult> go() {
    start_ = SteadyClock::now();
    ISTHMUS_RETURN_IF_ERROR(check());
    ISTHMUS_RETURN_IF_ERROR(read_prompt());
    while (true) {
      ISTHMUS_ASSIGN_OR_RETURN(const bool more, next_token());
      if (!more) break;
    }
    finish_text();
    return std::move(result_);
  }

 private:
  Status check() const {
    ISTHMUS_RETURN_IF_ERROR(check_sampler_params(request_.sampler, session_.model().config().vocab));
    if (request_.prompt.empty()) return invalid_argument("the prompt is empty");
    if (request_.prompt.size() > session_.model().context()) {
      return resource_exhausted("the prompt has " + std::to_string(request_.prompt.size()) +
                                " tokens, the context holds " + std::to_string(session_.model().context()));
    }
    return ok_status();
  }

  Status read_prompt() {
    RunFigures& f = result_.figures;
    f.prompt_tokens = request_.prompt.size();
    f.reused_tokens = session_.keep_common_prefix(request_.prompt);
    history_ = request_.prompt;
    const std::span<const TokenId> rest(request_.prompt.data() + f.reused_tokens,
                                        request_.prompt.size() - f.reused_tokens);
    ISTHMUS_RETURN_IF_ERROR(session_.append(rest, Purpose::kPrompt, request_.stop));
    f.prefill_seconds = seconds_since(start_);
    return ok_status();
  }

  /// Samples a token and acts on it; false when the run is over.
  Result<bool> next_token() {
    if (result_.tokens.size() >= request_.max_tokens) return end(FinishReason::kLength);
    const Status stop = request_.stop.check();
    if (stop.code() == Code::kCancelled) return end(FinishReason::kCancelled);
    if (!stop.ok()) return end(FinishReason::kDeadline);
    ISTHMUS_ASSIGN_OR_RETURN(const Sampled sampled, sampler_.sample(session_.logits(), history_));
    note_time();
    result_.tokens.push_back(sampled.token);
    history_.push_back(sampled.token);
    if (request_.sampler.logprobs > 0) result_.details.push_back(sampled);
    if (request_.on_token) request_.on_token(sampled);
    const auto& stops = session_.model().tokenizer().stop_tokens();
    if (!request_.ignore_stop_tokens && std::find(stops.begin(), stops.end(), sampled.token) != stops.end()) {
      return end(FinishReason::kStopToken);
    }
    if (!show(matcher_.push(decoder_.push(sampled.token)))) return end(FinishReason::kCancelled);
    if (matcher_.matched()) return end(FinishReason::kStopString);
    if (result_.tokens.size() >= request_.max_tokens) return end(FinishReason::kLength);
    return read_token(sampled.token);
  }

  Result<bool> read_token(TokenId token) {
    if (session_.room() == 0) {
      if (request_.on_full == ContextPolicy::kStop) return end(FinishReason::kContext);
      ISTHMUS_RETURN_IF_ERROR(shift());
    }
    ISTHMUS_RETURN_IF_ERROR(session_.append({&token, 1}, Purpose::kGeneration, {}));
    return true;
  }

  Status shift() {
    const auto held = session_.tokens();
    const size_t keep = std::min(request_.keep_tokens, held.size() - 1);
    const size_t drop = (held.size() - keep + 1) / 2;
    std::vector<TokenId> rest(held.begin() + static_cast<ptrdiff_t>(keep + drop), held.end());
    ISTHMUS_RETURN_IF_ERROR(session_.truncate(keep));
    ++result_.figures.context_shifts;
    return rest.empty() ? ok_status() : session_.append(rest, Purpose::kPrompt, request_.stop);
  }

  void note_time() {
    RunFigures& f = result_.figures;
    const auto now = SteadyClock::now();
    if (result_.tokens.empty()) {
      f.ttft_seconds = seconds_since(start_);
      first_ = now;
    } else {
      f.gap_seconds.push_back(std::chrono::duration<double>(now - last_).count());
      f.decode_seconds = std::chrono::duration<double>(now - first_).count();
    }
    last_ = now;
    f.generated_tokens = result_.tokens.size() + 1;
  }

  bool show(const std::string& text) {
    result_.text += text;
    return text.empty() || !request_.on_text || request_.on_text(text);
  }

  bool end(FinishReason reason) {
    result_.reason = reason;
    return false;
  }

  void finish_text() {
    if (!matcher_.matched()) {
      (void)show(matcher_.push(decoder_.finish()));
      (void)show(matcher_.finish());
    }
    if (matcher_.matched()) {
      result_.reason = FinishReason::kStopString;
      result_.stop_string = matcher_.match();
    }
  }

  Session& session_;
  const GenerateRequest& request_;
  Sampler sampler_;
  StreamDecoder decoder_;
  StopMatcher matcher_;
  GenerateResult result_;
  std::vector<TokenId> history_;
  SteadyClock::time_point start_, first_, last_;
};

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStopToken:
      return "stop_token";
    case FinishReason::kStopString:
      return "stop_string";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContext:
      return "context";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kDeadline:
      return "deadline";
  }
  return "unknown";
}

Result<GenerateResult> generate(Session& session, const GenerateRequest& request) {
  return Run(session, request).go();
}

}  // namespace isthmus
