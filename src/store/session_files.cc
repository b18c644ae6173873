#include "store/session_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "os/paths.h"
#include "store/private_folder.h"

namespace isthmus {
namespace {

using SessionJson = nlohmann::ordered_json;

constexpr int kSessionVersion = 1;
constexpr std::string_view kSuffix = ".session";

Status bad(const std::string& what) { return corrupt("the session file " + what); }

Status name_error(const std::string& name) {
  return invalid_argument("'" + name + "' is no name of a session");
}

/// Null when the text is no JSON, or nested too deeply.
SessionJson parse_shallow(std::string_view text) {
  constexpr int kMostDepth = 16;
  bool too_deep = false;
  const SessionJson::parser_callback_t limit = [&](int depth, SessionJson::parse_event_t, SessionJson&) {
    too_deep = too_deep || depth > kMostDepth;
    return !too_deep;
  };
  SessionJson out = SessionJson::parse(text, limit, /*allow_exceptions=*/false);
  return too_deep || out.is_discarded() ? SessionJson(nullptr) : out;
}

/// A member that must be there, of the right kind.
template <class Check>
Result<const SessionJson*> member(const SessionJson& json, const char* name, Check is, const char* kind) {
  const auto found = json.find(name);
  if (found == json.end() || !is(*found)) return bad("has no '" + std::string(name) + "', " + kind);
  return &*found;
}

Result<std::string> text_of(const SessionJson& json, const char* name) {
  ISTHMUS_ASSIGN_OR_RETURN(const SessionJson* found,
                           member(
                               json, name, [](const auto& v) { return v.is_string(); }, "a string"));
  return found->get<std::string>();
}

Result<int64_t> number_of(const SessionJson& json, const char* name) {
  ISTHMUS_ASSIGN_OR_RETURN(const SessionJson* found,
                           member(
                               json, name,
                               [](const auto& v) {
                                 return v.is_number_integer() &&
                                        !(v.is_number_unsigned() && v.template get<uint64_t>() > INT64_MAX);
                               },
                               "a whole number"));
  return found->get<int64_t>();
}

Status read_tokens(const SessionJson& json, const char* name, std::vector<int32_t>& out) {
  ISTHMUS_ASSIGN_OR_RETURN(const SessionJson* list,
                           member(
                               json, name, [](const auto& v) { return v.is_array(); }, "a list"));
  if (list->size() > kMaxSessionTokens) return bad("has too many tokens");
  for (const SessionJson& token : *list) {
    if (!token.is_number_unsigned() || token.get<uint64_t>() > INT32_MAX)
      return bad("has a token that is none");
    out.push_back(token.get<int32_t>());
  }
  return ok_status();
}

Status read_chunks(const SessionJson& json, SessionText& out) {
  ISTHMUS_ASSIGN_OR_RETURN(const SessionJson* list,
                           member(
                               json, "chunks", [](const auto& v) { return v.is_array(); }, "a list"));
  constexpr size_t kChunkTokens = 32;
  if (list->size() != (out.tokens.size() + kChunkTokens - 1) / kChunkTokens) {
    return bad("has " + std::to_string(list->size()) + " chunks for " + std::to_string(out.tokens.size()) +
               " tokens");
  }
  for (const SessionJson& chunk : *list) {
    const bool pair = chunk.is_array() && chunk.size() == 2 && chunk[0].is_number_unsigned() &&
                      chunk[1].is_number_unsigned();
    const uint64_t bits = pair ? chunk[0].get<uint64_t>() : 0;
    const bool known = bits == 16 || bits == 8 || bits == 4 || bits == 2;
    if (!known || chunk[1].get<uint64_t>() > UINT8_MAX) return bad("has a chunk that is none");
    out.chunks.push_back({static_cast<int>(bits), chunk[1].get<uint8_t>()});
  }
  return ok_status();
}

Status read_messages(const SessionJson& json, SessionText& out) {
  const auto found = json.find("messages");
  if (found == json.end()) return ok_status();
  const bool messages =
      found->is_array() && !found->empty() && std::all_of(found->begin(), found->end(), [](const auto& m) {
        return m.is_object() && m.contains("role") && m["role"].is_string() && m.contains("content") &&
               m["content"].is_string();
      });
  if (!messages) return bad("has messages that are none");
  out.messages = found->dump();
  return ok_status();
}

}  // namespace

std::string write_session(const SessionText& text) {
  SessionJson out = {{"isthmus_session", kSessionVersion},
                     {"name", text.name},
                     {"model", text.model},
                     {"kv", text.kv},
                     {"label", text.label},
                     {"created_ns", text.created_ns},
                     {"used_ns", text.used_ns},
                     {"tokens", text.tokens}};
  auto chunks = SessionJson::array();
  for (const SessionChunk& chunk : text.chunks) chunks.push_back({chunk.bits, chunk.computed});
  out["chunks"] = std::move(chunks);
  if (!text.messages.empty()) out["messages"] = SessionJson::parse(text.messages, nullptr, false);
  out["rendered"] = text.rendered;
  out["rest"] = text.rest;
  return out.dump(-1, ' ', false, SessionJson::error_handler_t::replace) + "\n";
}

Result<SessionText> parse_session(std::string_view json) {
  if (json.size() > kMaxSessionBytes)
    return bad("is larger than " + std::to_string(kMaxSessionBytes) + " bytes");
  const SessionJson parsed = parse_shallow(json);
  if (!parsed.is_object()) return bad("is no JSON object");
  ISTHMUS_ASSIGN_OR_RETURN(const int64_t version, number_of(parsed, "isthmus_session"));
  if (version != kSessionVersion) return unsupported("a session file of version " + std::to_string(version));
  SessionText out;
  ISTHMUS_ASSIGN_OR_RETURN(out.name, text_of(parsed, "name"));
  if (!is_session_name(out.name)) return bad("has a bad name");
  ISTHMUS_ASSIGN_OR_RETURN(out.model, text_of(parsed, "model"));
  if (!digest_from_hex(out.model)) return bad("names no model");
  ISTHMUS_ASSIGN_OR_RETURN(out.kv, text_of(parsed, "kv"));
  if (!out.kv.empty() && !digest_from_hex(out.kv)) return bad("names no KV");
  ISTHMUS_ASSIGN_OR_RETURN(out.label, text_of(parsed, "label"));
  ISTHMUS_ASSIGN_OR_RETURN(out.created_ns, number_of(parsed, "created_ns"));
  ISTHMUS_ASSIGN_OR_RETURN(out.used_ns, number_of(parsed, "used_ns"));
  ISTHMUS_RETURN_IF_ERROR(read_tokens(parsed, "tokens", out.tokens));
  ISTHMUS_RETURN_IF_ERROR(read_tokens(parsed, "rest", out.rest));
  ISTHMUS_RETURN_IF_ERROR(read_chunks(parsed, out));
  ISTHMUS_RETURN_IF_ERROR(read_messages(parsed, out));
  ISTHMUS_ASSIGN_OR_RETURN(out.rendered, text_of(parsed, "rendered"));
  return out;
}

Result<std::unique_ptr<SessionFiles>> SessionFiles::open(const std::string& path) {
  ISTHMUS_ASSIGN_OR_RETURN(std::shared_ptr<Folder> folder, private_folder(path));
  return std::make_unique<SessionFiles>(std::move(folder));
}

Status SessionFiles::save(const SessionText& text) {
  if (!is_session_name(text.name)) return name_error(text.name);
  const std::string json = write_session(text);
  if (json.size() > kMaxSessionBytes)
    return resource_exhausted("the session '" + text.name + "' is too large for a file");
  return publish_text(*folder_, text.name + std::string(kSuffix), json);
}

Result<SessionText> SessionFiles::load(const std::string& name) {
  if (!is_session_name(name)) return name_error(name);
  const auto json = read_text(*folder_, name + std::string(kSuffix), kMaxSessionBytes);
  if (!json.ok()) return json.status().with_context("session '" + name + "'");
  auto out = parse_session(*json);
  if (!out.ok()) return out.status().with_context("session '" + name + "'");
  if (out->name != name) return corrupt("session '" + name + "': the file is that of '" + out->name + "'");
  return out;
}

Status SessionFiles::remove(const std::string& name) {
  if (!is_session_name(name)) return name_error(name);
  ISTHMUS_RETURN_IF_ERROR(folder_->remove(name + std::string(kSuffix)));
  return folder_->sync();
}

Result<std::vector<std::string>> SessionFiles::names() {
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<std::string> files, folder_->list());
  std::vector<std::string> out;
  for (const std::string& file : files) {
    if (!file.ends_with(kSuffix)) continue;
    std::string name = file.substr(0, file.size() - kSuffix.size());
    if (is_session_name(name)) out.push_back(std::move(name));
  }
  return out;
}

Result<std::string> standard_session_folder() {
  ISTHMUS_ASSIGN_OR_RETURN(const std::string state, standard_path(Place::kState));
  return state + "/sessions";
}

}  // namespace isthmus
