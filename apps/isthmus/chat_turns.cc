#include "apps/isthmus/chat_turns.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "apps/isthmus/figures.h"
#include "apps/isthmus/interrupt.h"
#include "apps/isthmus/output.h"

namespace isthmus::cli {
namespace {

/// Room that a shifted conversation leaves for the answer: a quarter of the context, at most this.
constexpr size_t kAnswerRoom = 512;

int64_t now_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

}  // namespace

ChatTurns::ChatTurns(Session& session, SamplerParams sampler, const TurnOptions& options)
    : session_(session), conversation_(session.model()), sampler_(std::move(sampler)), options_(options) {}

void ChatTurns::restart(const std::string& system) {
  conversation_.clear();
  system_ = system;
  if (!system.empty()) conversation_.messages().push_back({{"role", "system"}, {"content", system}});
}

Status ChatTurns::ask(const std::string& text) {
  conversation_.messages().push_back({{"role", "user"}, {"content", text}});
  conversation_.request().now = now_seconds();
  GenerateRequest request;
  auto prompt = fitting_prompt();
  if (!prompt.ok()) return take_back(prompt.status());
  request.prompt = std::move(*prompt);
  request.sampler = sampler_;
  ++sampler_.seed;  // the next answer draws anew, and the run stays repeatable
  request.max_tokens = options_.max_tokens;
  request.speculate.max_draft = options_.draft_tokens;
  request.on_full = options_.shift ? ContextPolicy::kShift : ContextPolicy::kStop;
  if (options_.shift) request.keep_tokens = system_tokens(request.prompt);
  request.stop.token = interrupt().token();
  if (options_.prefixes != nullptr) request.prefixes = options_.prefixes->store();
  bool writable = true;
  request.on_text = [&writable](std::string_view piece) { return writable = write_answer(piece); };
  auto result = generate(session_, request);
  if (result.status().code() == Code::kCancelled) return take_back(cancelled("[stopped]"));
  if (!result.ok()) return take_back(result.status());
  if (!writable) return io_error("the answer cannot be written");
  ISTHMUS_RETURN_IF_ERROR(finish(*result));
  keep(request.prompt);
  return options_.after_turn ? options_.after_turn(conversation_) : ok_status();
}

/// After the answer is out: the next question is still to be typed.
void ChatTurns::keep(const std::vector<TokenId>& prompt) {
  if (options_.prefixes != nullptr) options_.prefixes->save(session_, prompt);
}

Status ChatTurns::finish(const GenerateResult& result) {
  if (!write_answer("\n")) return io_error("the answer cannot be written");
  if (result.reason == FinishReason::kCancelled) say("[stopped]\n");
  if (result.reason == FinishReason::kLength) say("[cut: --max-tokens {}]\n", options_.max_tokens);
  if (result.reason == FinishReason::kContext) {
    say("[cut: the context of {} tokens is full. /undo or /clear makes room; --ctx N at the start gives more "
        "(this model: up to {}), --shift leaves out the oldest turns]\n",
        session_.model().context(), session_.model().config().context);
  }
  if (result.figures.context_shifts > 0) {
    say("[the context was full: the older half of it was dropped, {} times]\n",
        result.figures.context_shifts);
  }
  if (options_.show_figures) {
    say("[{}, context {} of {}]\n", figures_line(result.figures, std::nullopt), session_.tokens().size(),
        session_.model().context());
  }
  conversation_.add_answer(result.text, result.tokens);
  return ok_status();
}

/// The ids of the conversation, without its oldest turns where --shift allows that and they do not fit.
Result<std::vector<TokenId>> ChatTurns::fitting_prompt() {
  const size_t context = session_.capacity();
  const size_t room = options_.shift ? std::min(kAnswerRoom, context / 4) : 0;
  size_t dropped = 0;
  while (true) {
    ISTHMUS_ASSIGN_OR_RETURN(std::vector<TokenId> prompt, conversation_.prompt());
    const bool fits = prompt.size() + room <= context;
    if (!fits && options_.shift && drop_oldest_turn()) {
      ++dropped;
      continue;
    }
    if (prompt.size() > context) return too_long(prompt.size());
    if (dropped > 0) say("[the context is full: the {} oldest turns were left out]\n", dropped);
    return prompt;
  }
}

/// Removes the first question and its answer; false when only the newest question is there.
bool ChatTurns::drop_oldest_turn() {
  auto& messages = conversation_.messages();
  const auto is_user = [](const nlohmann::ordered_json& message) { return message["role"] == "user"; };
  const auto first = std::find_if(messages.begin(), messages.end(), is_user);
  if (first == messages.end()) return false;
  const auto next = std::find_if(first + 1, messages.end(), is_user);
  if (next == messages.end()) return false;
  messages.erase(first, next);
  return true;
}

Status ChatTurns::too_long(size_t tokens) {
  const size_t turns = conversation_.messages().size();
  const bool alone = turns <= (system_.empty() ? 1U : 2U);
  return resource_exhausted(fmt::format(
      "{} {} tokens, the context holds {}: {}; --ctx N at the start gives more (this model: up to {}){}",
      alone ? "this message comes to" : "the conversation has come to", tokens, session_.model().context(),
      alone ? "write a shorter one" : "/undo or /clear makes room", session_.model().config().context,
      alone || options_.shift ? "" : ", --shift leaves out the oldest turns"));
}

/// How many of the first tokens of `prompt` are the system message's.
size_t ChatTurns::system_tokens(const std::vector<TokenId>& prompt) const {
  if (system_.empty()) return 0;
  ChatRequest request;
  request.messages.push_back({{"role", "system"}, {"content", system_}});
  request.add_generation_prompt = false;
  const auto ids = encode_chat(session_.model(), request);
  if (!ids.ok()) return 0;  // a template that wants a user first
  const auto [end, unused] = std::mismatch(ids->begin(), ids->end(), prompt.begin(), prompt.end());
  return std::min(static_cast<size_t>(end - ids->begin()), session_.model().context() / 2);
}

Status ChatTurns::take_back(const Status& why) {
  conversation_.messages().erase(conversation_.messages().size() - 1);
  const bool stopped = why.code() == Code::kCancelled;
  say("{}{}\n", stopped ? "\n" : "isthmus: ", printable(why.message()));
  return ok_status();
}

std::string ChatTurns::undo() {
  auto& messages = conversation_.messages();
  std::string question;
  while (!messages.empty() && messages.back()["role"] != "system" && question.empty()) {
    if (messages.back()["role"] == "user") question = messages.back()["content"];
    messages.erase(messages.size() - 1);
  }
  return question;
}

}  // namespace isthmus::cli
