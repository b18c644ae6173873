#include "store/session_files.h"

#include <algorithm>

#include "base/digest.h"
#include "os/paths.h"
#include "store/json_text.h"
#include "store/private_folder.h"

namespace isthmus {
namespace {

constexpr uint64_t kSessionVersion = 1;
constexpr std::string_view kSessionEnding = ".session";

Status session_problem(const std::string& what) { return corrupt("the session file " + what); }

Status no_session_name(const std::string& name) {
  return invalid_argument("'" + name + "' is no name of a session");
}

Result<const nlohmann::json*> session_list(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array())
    return session_problem("has no list '" + std::string(key) + "'");
  return &*found;
}

Result<int64_t> session_time_of(const nlohmann::json& json, const char* key) {
  ISTHMUS_ASSIGN_OR_RETURN(const uint64_t value, json_uint(json, key));
  if (value > INT64_MAX) return session_problem("has a time '" + std::string(key) + "' that is none");
  return static_cast<int64_t>(value);
}

Status read_session_tokens(const nlohmann::json& json, const char* key, std::vector<int32_t>& out) {
  ISTHMUS_ASSIGN_OR_RETURN(const nlohmann::json* list, session_list(json, key));
  if (list->size() > kMaxSessionTokens) return session_problem("has too many tokens");
  for (const auto& token : *list) {
    if (!token.is_number_unsigned() || token.get<uint64_t>() > INT32_MAX) {
      return session_problem("has a token that is none");
    }
    out.push_back(token.get<int32_t>());
  }
  return ok_status();
}

Status read_session_chunks(const nlohmann::json& json, SessionText& out) {
  ISTHMUS_ASSIGN_OR_RETURN(const nlohmann::json* list, session_list(json, "chunks"));
  constexpr size_t kTokens = 32;
  if (list->size() != (out.tokens.size() + kTokens - 1) / kTokens) {
    return session_problem("has " + std::to_string(list->size()) + " chunks for " +
                           std::to_string(out.tokens.size()) + " tokens");
  }
  for (const auto& chunk : *list) {
    const bool pair = chunk.is_array() && chunk.size() == 2 && chunk[0].is_number_unsigned() &&
                      chunk[1].is_number_unsigned();
    const uint64_t bits = pair ? chunk[0].get<uint64_t>() : 0;
    const bool known = bits == 16 || bits == 8 || bits == 4 || bits == 2;
    if (!known || chunk[1].get<uint64_t>() > UINT8_MAX) return session_problem("has a chunk that is none");
    out.chunks.push_back({static_cast<int>(bits), chunk[1].get<uint8_t>()});
  }
  return ok_status();
}

Status read_session_messages(const nlohmann::json& json, SessionText& out) {
  const auto found = json.find("messages");
  if (found == json.end()) return ok_status();
  const bool messages =
      found->is_array() && !found->empty() && std::all_of(found->begin(), found->end(), [](const auto& m) {
        return m.is_object() && m.contains("role") && m["role"].is_string() && m.contains("content") &&
               m["content"].is_string();
      });
  if (!messages) return session_problem("has messages that are none");
  out.messages = found->dump();
  return ok_status();
}

}  // namespace

std::string write_session(const SessionText& text) {
  nlohmann::json out = {{"isthmus_session", kSessionVersion},
                        {"name", text.name},
                        {"model", text.model},
                        {"kv", text.kv},
                        {"label", text.label},
                        {"created_ns", text.created_ns},
                        {"used_ns", text.used_ns},
                        {"tokens", text.tokens},
                        {"rendered", text.rendered},
                        {"rest", text.rest}};
  auto chunks = nlohmann::json::array();
  for (const SessionChunk& chunk : text.chunks) chunks.push_back({chunk.bits, chunk.computed});
  out["chunks"] = std::move(chunks);
  if (!text.messages.empty()) out["messages"] = nlohmann::json::parse(text.messages, nullptr, false);
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<SessionText> parse_session(std::string_view json) {
  JsonLimits limits;
  limits.bytes = kMaxSessionBytes;
  ISTHMUS_ASSIGN_OR_RETURN(const nlohmann::json parsed, parse_json_object(json, limits));
  ISTHMUS_ASSIGN_OR_RETURN(const uint64_t version, json_uint(parsed, "isthmus_session"));
  if (version != kSessionVersion) return unsupported("a session file of version " + std::to_string(version));
  SessionText out;
  ISTHMUS_ASSIGN_OR_RETURN(out.name, json_string(parsed, "name"));
  if (!is_session_name(out.name)) return session_problem("has a bad name");
  ISTHMUS_ASSIGN_OR_RETURN(out.model, json_string(parsed, "model"));
  if (!digest_from_hex(out.model)) return session_problem("names no model");
  ISTHMUS_ASSIGN_OR_RETURN(out.kv, json_string(parsed, "kv"));
  if (!out.kv.empty() && !digest_from_hex(out.kv)) return session_problem("names no KV");
  ISTHMUS_ASSIGN_OR_RETURN(out.label, json_string(parsed, "label"));
  ISTHMUS_ASSIGN_OR_RETURN(out.created_ns, session_time_of(parsed, "created_ns"));
  ISTHMUS_ASSIGN_OR_RETURN(out.used_ns, session_time_of(parsed, "used_ns"));
  ISTHMUS_RETURN_IF_ERROR(read_session_tokens(parsed, "tokens", out.tokens));
  ISTHMUS_RETURN_IF_ERROR(read_session_tokens(parsed, "rest", out.rest));
  ISTHMUS_RETURN_IF_ERROR(read_session_chunks(parsed, out));
  ISTHMUS_RETURN_IF_ERROR(read_session_messages(parsed, out));
  ISTHMUS_ASSIGN_OR_RETURN(out.rendered, json_string(parsed, "rendered"));
  return out;
}

Result<std::unique_ptr<SessionFiles>> SessionFiles::open(const std::string& path) {
  ISTHMUS_ASSIGN_OR_RETURN(std::shared_ptr<Folder> folder, private_folder(path));
  return std::make_unique<SessionFiles>(std::move(folder));
}

Status SessionFiles::save(const SessionText& text) {
  if (!is_session_name(text.name)) return no_session_name(text.name);
  const std::string json = write_session(text);
  if (json.size() > kMaxSessionBytes)
    return resource_exhausted("the session '" + text.name + "' is too large for a file");
  return publish_text(*folder_, text.name + std::string(kSessionEnding), json);
}

Result<SessionText> SessionFiles::load(const std::string& name) {
  if (!is_session_name(name)) return no_session_name(name);
  const auto json = read_text(*folder_, name + std::string(kSessionEnding), kMaxSessionBytes);
  if (json.status().code() == Code::kNotFound) return not_found("there is no session '" + name + "'");
  if (!json.ok()) return json.status().with_context("session '" + name + "'");
  auto out = parse_session(*json);
  if (!out.ok()) return out.status().with_context("session '" + name + "'");
  if (out->name != name) return corrupt("session '" + name + "': the file is that of '" + out->name + "'");
  return out;
}

Status SessionFiles::remove(const std::string& name) {
  if (!is_session_name(name)) return no_session_name(name);
  ISTHMUS_RETURN_IF_ERROR(folder_->remove(name + std::string(kSessionEnding)));
  return folder_->sync();
}

Result<std::vector<std::string>> SessionFiles::names() {
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<std::string> files, folder_->list());
  std::vector<std::string> out;
  for (const std::string& file : files) {
    if (!file.ends_with(kSessionEnding)) continue;
    std::string name = file.substr(0, file.size() - kSessionEnding.size());
    if (is_session_name(name)) out.push_back(std::move(name));
  }
  return out;
}

Result<std::string> standard_session_folder() {
  ISTHMUS_ASSIGN_OR_RETURN(const std::string state, standard_path(Place::kState));
  return state + "/sessions";
}

}  // namespace isthmus
