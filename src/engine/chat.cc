#include "engine/chat.h"

#include <algorithm>

namespace isthmus {
namespace {

using Json = nlohmann::ordered_json;

/// Spellings of control tokens, the ones that make turns.
std::vector<std::string_view> control_spellings(const Tokenizer& tokenizer) {
  std::vector<std::string_view> out;
  for (size_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto token = static_cast<TokenId>(id);
    if (tokenizer.kind(token) != TokenKind::kControl) continue;
    const std::string_view raw = tokenizer.raw(token);
    if (raw.size() > 1) out.push_back(raw);
  }
  return out;
}

/// Puts `mark` behind the first byte of each control spelling in `text`.
std::string mark_spellings(const std::string& text, const std::vector<std::string_view>& spellings,
                           const std::string& mark) {
  std::vector<size_t> places;
  for (const std::string_view spelling : spellings) {
    for (size_t at = text.find(spelling); at != std::string::npos; at = text.find(spelling, at + 1))
      places.push_back(at + 1);
  }
  if (places.empty()) return text;
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  std::string out;
  size_t from = 0;
  for (const size_t place : places) {
    out.append(text, from, place - from);
    out += mark;
    from = place;
  }
  return out.append(text, from, std::string::npos);
}

/// Applies mark_spellings() to every string below `value` except roles, whose words the template compares.
void mark_content(Json& value, const std::vector<std::string_view>& spellings, const std::string& mark) {
  if (value.is_string()) {
    value = mark_spellings(value.get_ref<const std::string&>(), spellings, mark);
  } else if (value.is_array()) {
    for (auto& item : value) mark_content(item, spellings, mark);
  } else if (value.is_object()) {
    for (auto& item : value.items()) {
      if (item.key() != "role" && item.key() != "type") mark_content(item.value(), spellings, mark);
    }
  }
}

/// A noncharacter (U+FDD0 to U+FDEF) that occurs nowhere in `text`.
Result<std::string> unused_mark(const std::string& text) {
  for (int i = 0; i < 32; ++i) {
    const std::string mark = {'\xEF', '\xB7', static_cast<char>(0x90 + i)};
    if (text.find(mark) == std::string::npos) return mark;
  }
  return invalid_argument("the messages use every noncharacter from U+FDD0 to U+FDEF");
}

Status check_messages(const Json& messages) {
  if (!messages.is_array() || messages.empty())
    return invalid_argument("messages: a non-empty array is needed");
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object() || !messages[i].contains("role") || !messages[i]["role"].is_string()) {
      return invalid_argument("messages[" + std::to_string(i) +
                              "]: an object with a string 'role' is needed");
    }
  }
  return ok_status();
}

std::string spelling_of(const Tokenizer& tokenizer, std::optional<TokenId> id) {
  return id ? std::string(tokenizer.raw(*id)) : std::string();
}

/// Takes the marks out of `marked` and notes where they were.
RenderedChat remove_marks(const std::string& marked, const std::string& mark) {
  RenderedChat out;
  size_t from = 0;
  for (size_t at = marked.find(mark); at != std::string::npos; at = marked.find(mark, from)) {
    out.text.append(marked, from, at - from);
    out.guarded.push_back(out.text.size());
    from = at + mark.size();
  }
  out.text.append(marked, from, std::string::npos);
  return out;
}

}  // namespace

Result<RenderedChat> render_chat(const LanguageModel& model, const ChatRequest& request) {
  ISTHMUS_RETURN_IF_ERROR(check_messages(request.messages));
  ISTHMUS_ASSIGN_OR_RETURN(const ChatTemplate* chat_template, model.chat_template());
  const Tokenizer& tokenizer = model.tokenizer();
  Json context = request.variables.is_object() ? request.variables : Json::object();
  context["messages"] = request.messages;
  if (request.tools.is_array() && !request.tools.empty()) context["tools"] = request.tools;
  context["add_generation_prompt"] = request.add_generation_prompt;
  context["bos_token"] = spelling_of(tokenizer, tokenizer.bos());
  context["eos_token"] = spelling_of(tokenizer, tokenizer.eos());

  const std::string all = context.dump(-1, ' ', false, Json::error_handler_t::replace);
  ISTHMUS_ASSIGN_OR_RETURN(const std::string mark, unused_mark(all));
  const auto spellings = control_spellings(tokenizer);
  mark_content(context["messages"], spellings, mark);
  if (context.contains("tools")) mark_content(context["tools"], spellings, mark);
  ISTHMUS_ASSIGN_OR_RETURN(const std::string marked, chat_template->render(context, request.now));
  return remove_marks(marked, mark);
}

namespace {

std::vector<TokenId> encode_rendered(const Tokenizer& tokenizer, const RenderedChat& rendered,
                                     bool at_start) {
  std::vector<TokenId> ids = tokenizer.encode_guarded(rendered.text, rendered.guarded);
  if (at_start && tokenizer.adds_bos() && tokenizer.bos() &&
      (ids.empty() || ids.front() != *tokenizer.bos())) {
    ids.insert(ids.begin(), *tokenizer.bos());
  }
  return ids;
}

}  // namespace

Result<std::vector<TokenId>> encode_chat(const LanguageModel& model, const ChatRequest& request) {
  ISTHMUS_ASSIGN_OR_RETURN(const RenderedChat rendered, render_chat(model, request));
  return encode_rendered(model.tokenizer(), rendered, true);
}

Result<std::vector<TokenId>> Conversation::prompt() {
  ISTHMUS_ASSIGN_OR_RETURN(RenderedChat rendered, render_chat(model_, request_));
  std::vector<TokenId> ids;
  if (!known_text_.empty() && rendered.text.compare(0, known_text_.size(), known_text_) == 0) {
    RenderedChat rest;
    rest.text = rendered.text.substr(known_text_.size());
    for (const size_t place : rendered.guarded) {
      if (place >= known_text_.size()) rest.guarded.push_back(place - known_text_.size());
    }
    ids = known_ids_;
    const auto added = encode_rendered(model_.tokenizer(), rest, false);
    ids.insert(ids.end(), added.begin(), added.end());
  } else {
    // First turn, or a template that rewrites earlier turns (drops old thinking, trims): everything is
    // encoded anew.
    ids = encode_rendered(model_.tokenizer(), rendered, true);
  }
  known_text_ = std::move(rendered.text);
  known_ids_ = ids;
  return ids;
}

void Conversation::add_answer(const std::string& text, std::span<const TokenId> ids) {
  request_.messages.push_back({{"role", "assistant"}, {"content", text}});
  known_ids_.insert(known_ids_.end(), ids.begin(), ids.end());
  known_text_ += model_.tokenizer().decode(ids, true);
}

void Conversation::clear() {
  request_.messages = Json::array();
  known_text_.clear();
  known_ids_.clear();
}

}  // namespace isthmus
