#include "engine/answer.h"

#include <algorithm>
#include <string>
#include <utility>

namespace isthmus {
namespace {

double seconds_between(Answer::Time from, Answer::Time to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Status Answer::check(const GenerateRequest& request, size_t vocab, size_t room) {
  ISTHMUS_RETURN_IF_ERROR(check_sampler_params(request.sampler, vocab));
  if (request.prompt.empty()) return invalid_argument("the prompt is empty");
  for (const std::string& stop : request.stops) {
    if (stop.empty()) return invalid_argument("a stop string is empty");
  }
  if (request.prompt.size() > room) {
    return resource_exhausted("the prompt has " + std::to_string(request.prompt.size()) +
                              " tokens, the context holds " + std::to_string(room));
  }
  return ok_status();
}

Answer::Answer(const GenerateRequest& request, const Tokenizer& tokenizer, Time accepted)
    : request_(request),
      stop_tokens_(tokenizer.stop_tokens()),
      sampler_(request.sampler),
      decoder_(tokenizer),
      matcher_(request.stops),
      history_(request.prompt),
      accepted_(accepted) {
  result_.figures.prompt_tokens = request.prompt.size();
}

void Answer::prompt_read(size_t reused, Time now) {
  result_.figures.reused_tokens = reused;
  result_.figures.prefill_seconds = seconds_between(accepted_, now);
}

void Answer::from_tier(size_t tokens, double seconds) {
  result_.figures.stored_tokens = tokens;
  result_.figures.restore_seconds = tokens > 0 ? seconds : 0;
}

bool Answer::may_go_on(Time now) {
  if (result_.tokens.size() >= request_.max_tokens) return end(FinishReason::kLength);
  if (request_.stop.token.cancelled()) return end(FinishReason::kCancelled);
  if (request_.stop.deadline != Time::max() && now >= request_.stop.deadline) {
    return end(FinishReason::kDeadline);
  }
  return true;
}

bool Answer::take(const Sampled& sampled, Time now) {
  note_time(now);
  result_.tokens.push_back(sampled.token);
  history_.push_back(sampled.token);
  if (request_.sampler.logprobs > 0) result_.details.push_back(sampled);
  if (request_.on_token) request_.on_token(sampled);
  const bool stops = std::find(stop_tokens_.begin(), stop_tokens_.end(), sampled.token) != stop_tokens_.end();
  if (stops && !request_.ignore_stop_tokens) return end(FinishReason::kStopToken);
  if (!show(matcher_.push(decoder_.push(sampled.token)))) return end(FinishReason::kCancelled);
  if (matcher_.matched()) return end(FinishReason::kStopString);
  if (result_.tokens.size() >= request_.max_tokens) return end(FinishReason::kLength);
  return true;
}

void Answer::note_time(Time now) {
  RunFigures& f = result_.figures;
  if (result_.tokens.empty()) {
    f.ttft_seconds = seconds_between(accepted_, now);
    first_ = now;
  } else {
    f.gap_seconds.push_back(seconds_between(last_, now));
    f.decode_seconds = seconds_between(first_, now);
  }
  last_ = now;
  f.generated_tokens = result_.tokens.size() + 1;
}

bool Answer::show(const std::string& text) {
  result_.text += text;
  return text.empty() || !request_.on_text || request_.on_text(text);
}

bool Answer::end(FinishReason reason) {
  result_.reason = reason;
  return false;
}

GenerateResult Answer::finish() {
  if (!matcher_.matched()) {
    (void)show(matcher_.push(decoder_.finish()));
    (void)show(matcher_.finish());
  }
  if (matcher_.matched()) {
    result_.reason = FinishReason::kStopString;
    result_.stop_string = matcher_.match();
  }
  return std::move(result_);
}

ContextShift context_shift(size_t held, size_t keep_tokens) {
  const size_t keep = std::min(keep_tokens, held - 1);
  return {keep, keep + (held - keep + 1) / 2};
}

}  // namespace isthmus
