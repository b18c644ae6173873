#include "engine/generate.h"

#include <chrono>

#include "engine/answer.h"
#include "engine/prefix_store.h"

namespace isthmus {
namespace {

using SteadyClock = std::chrono::steady_clock;

/// One run of generate(): the loop over the session.
class Run {
 public:
  Run(Session& session, const GenerateRequest& request)
      : session_(session),
        request_(request),
        answer_(request, session.model().tokenizer(), SteadyClock::now()) {}

  Result<GenerateResult> go() {
    ISTHMUS_RETURN_IF_ERROR(prepare_speculation());
    ISTHMUS_RETURN_IF_ERROR(read_prompt());
    const Status status = generate_tokens();
    if (reader_ != nullptr) reader_->settle();
    ISTHMUS_RETURN_IF_ERROR(status);
    GenerateResult result = answer_.finish();
    if (reader_ != nullptr) result.figures.speculation = reader_->figures();
    result.figures.kv = session_.kv_figures();
    result.figures.compose = composed_;
    return result;
  }

 private:
  Status prepare_speculation() {
    if (request_.speculate.max_draft == 0) return ok_status();
    ISTHMUS_ASSIGN_OR_RETURN(reader_, SpeculativeReader::create(session_, request_.speculate));
    reader_->begin(request_.prompt);
    return ok_status();
  }

  Status generate_tokens() {
    while (true) {
      ISTHMUS_ASSIGN_OR_RETURN(const bool more, next_token());
      if (!more) return ok_status();
    }
  }

  Status compose_prompt() {
    std::span<const TextPart> parts = request_.parts;
    TextPart place;  // where the tail goes, when it is read by itself
    std::vector<TextPart> before(parts.begin(), parts.end());
    const bool apart = session_.eviction() != nullptr && parts.back().kv == nullptr;
    if (apart) {  // a policy wants to see its queries
      place = parts.back();
      before.back().tokens = {};
    }
    ISTHMUS_ASSIGN_OR_RETURN(composed_, session_.compose(before, request_.repair, request_.stop));
    if (apart) ISTHMUS_RETURN_IF_ERROR(session_.append(place.tokens, Purpose::kPrompt, request_.stop));
    answer_.prompt_read(composed_.copied - composed_.repaired, SteadyClock::now());
    return session_.evict(request_.stop);
  }

  Status read_prompt() {
    if (!request_.parts.empty()) return compose_prompt();
    PrefixRestore found;
    if (request_.prefixes != nullptr) {
      found = request_.prefixes->restore(session_, request_.prompt);
    } else {
      found.memory_tokens = session_.keep_common_prefix(request_.prompt);
    }
    const size_t reused = found.memory_tokens + found.stored_tokens;
    const auto rest = std::span(request_.prompt).subspan(reused);
    ISTHMUS_RETURN_IF_ERROR(session_.append(rest, Purpose::kPrompt, request_.stop));
    answer_.prompt_read(reused, SteadyClock::now());
    answer_.from_tier(found.stored_tokens, found.seconds);
    return session_.evict(request_.stop);
  }

  /// Samples a token and acts on it; false when the run is over.
  Result<bool> next_token() {
    if (!answer_.may_go_on(SteadyClock::now())) return false;
    const auto logits = reader_ != nullptr ? reader_->logits() : session_.logits();
    ISTHMUS_ASSIGN_OR_RETURN(const Sampled sampled,
                             answer_.sample(logits, reader_ != nullptr || session_.logits_complete()));
    if (!answer_.take(sampled, SteadyClock::now())) return false;
    return read_token(sampled.token);
  }

  Result<bool> read_token(TokenId token) {
    if (reader_ != nullptr && reader_->take(token)) return true;
    if (session_.room() == 0) {
      if (request_.on_full == ContextPolicy::kStop) return answer_.end(FinishReason::kContext);
      ISTHMUS_RETURN_IF_ERROR(shift());
    }
    if (reader_ != nullptr) {
      // The last token that may be sampled needs logits before it and none after it.
      ISTHMUS_RETURN_IF_ERROR(reader_->read(token, request_.max_tokens - answer_.generated() - 1));
    } else {
      const size_t best = session_.model().two_stage_head() ? answer_.wanted_logits() : 0;
      if (best > 0) session_.start_head();  // once; not before the first token is out
      ISTHMUS_RETURN_IF_ERROR(session_.append({&token, 1}, Purpose::kGeneration, {}, best));
    }
    return true;
  }

  Status shift() {
    const auto held = session_.tokens();
    const ContextShift cut = context_shift(held.size(), request_.keep_tokens);
    std::vector<TokenId> rest(held.begin() + static_cast<ptrdiff_t>(cut.resume), held.end());
    // A session that gave up keys cannot go back to its first tokens and reads them again, too.
    if (session_.pruned())
      rest.insert(rest.begin(), held.begin(), held.begin() + static_cast<ptrdiff_t>(cut.keep));
    ISTHMUS_RETURN_IF_ERROR(session_.truncate(session_.pruned() ? 0 : cut.keep));
    answer_.count_shift();
    return rest.empty() ? ok_status() : session_.append(rest, Purpose::kPrompt, request_.stop);
  }

  Session& session_;
  const GenerateRequest& request_;
  Answer answer_;
  std::unique_ptr<SpeculativeReader> reader_;  // null: one token at a time
  ComposeFigures composed_;
};

/// Parts that make the prompt, the last of which is computed: its logits are wanted.
Status check_request_parts(const GenerateRequest& request) {
  size_t at = 0;
  for (const TextPart& part : request.parts) {
    const auto prompt = std::span(request.prompt).subspan(at);
    if (part.tokens.size() > prompt.size() ||
        !std::equal(part.tokens.begin(), part.tokens.end(), prompt.begin())) {
      return invalid_argument("the parts of a prompt are not its tokens");
    }
    at += part.tokens.size();
  }
  if (request.parts.empty()) return ok_status();
  const TextPart& last = request.parts.back();
  if (at != request.prompt.size()) return invalid_argument("the parts of a prompt are not all of its tokens");
  if (last.kv != nullptr || last.tokens.empty()) {
    return invalid_argument("a prompt ends with text of its own, behind all modules");
  }
  return ok_status();
}

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
  const LanguageModel& model = session.model();
  ISTHMUS_RETURN_IF_ERROR(Answer::check(request, model.config().vocab, session.capacity()));
  ISTHMUS_RETURN_IF_ERROR(check_request_parts(request));
  return Run(session, request).go();
}

}  // namespace isthmus
