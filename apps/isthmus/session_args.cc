#include "apps/isthmus/session_args.h"

#include <fmt/core.h>

#include <algorithm>

#include "apps/isthmus/output.h"
#include "store/sha256.h"

namespace isthmus::cli {

void add_session_args(CLI::App& app, SessionArgs& args) {
  app.add_option("--session", args.name,
                 "go on with the conversation of this name, and keep it (isthmus session)")
      ->type_name("NAME");
  app.add_option("--session-bits", args.bits,
                 "with --session: bits of its KV while it is kept: 16, 8, 4, 2, or mixed (8, 4 and 2 by what "
                 "is looked at)")
      ->type_name("BITS")
      ->capture_default_str();
}

Result<SessionUse> SessionUse::open(const CLI::App& app, const SessionArgs& args, const ModelArgs& model,
                                    const Context& context, ModelOptions& options) {
  SessionUse out;
  if (args.name.empty()) {
    if (app.count("--session") > 0) return invalid_argument("--session: a name is needed");
    if (app.count("--session-bits") > 0) return invalid_argument("--session-bits needs --session");
    return out;
  }
  if (!is_session_name(args.name)) {
    return invalid_argument("--session: '" + printable(args.name) +
                            "' is no name: letters, digits, '-', '_' and '.', at most " +
                            std::to_string(kMaxSessionName));
  }
  const auto bits = parse_session_bits(args.bits);
  if (!bits.ok()) return bits.status().with_context("--session-bits");
  out.options_.bits = *bits;
  options.kv_levels = session_levels(*bits);
  ISTHMUS_ASSIGN_OR_RETURN(const std::string folder, standard_session_folder());
  ISTHMUS_ASSIGN_OR_RETURN(out.files_, SessionFiles::open(folder));
  out.options_.archive = out.files_.get();
  ISTHMUS_ASSIGN_OR_RETURN(const std::string path, model_path(model.model, model.store, context));
  ISTHMUS_ASSIGN_OR_RETURN(out.options_.model, model_digest(path, context));
  out.options_.digest = sha256_digest;
  out.options_.label = model_label(model.model);
  ISTHMUS_ASSIGN_OR_RETURN(const std::string kv, standard_kv_folder());
  auto tier = KvTier::open(kv);
  if (tier.ok()) {
    out.tier_ = std::move(*tier);
    out.options_.tier = out.tier_.get();
  } else {
    say("[the session's KV is not kept: {}]\n", printable(tier.status().message()));
  }
  out.name_ = args.name;
  return out;
}

Status SessionUse::activate(std::shared_ptr<LanguageModel> model, const StopPolicy& stop) {
  ISTHMUS_ASSIGN_OR_RETURN(store_, SessionStore::create(std::move(model), options_));
  ISTHMUS_ASSIGN_OR_RETURN(switched_, store_->activate(name_, stop));
  return ok_status();
}

Status SessionUse::resume(const StopPolicy& stop) {
  ISTHMUS_ASSIGN_OR_RETURN(switched_, store_->activate(name_, stop));
  return ok_status();
}

size_t SessionUse::messages() const {
  const auto messages = nlohmann::ordered_json::parse(store_->text().messages, nullptr, false);
  return messages.is_array() ? messages.size() : 0;
}

Status SessionUse::restore(Conversation& conversation) const {
  const SessionText& text = store_->text();
  if (text.messages.empty()) return ok_status();
  auto messages = nlohmann::ordered_json::parse(text.messages, nullptr, false);
  if (!messages.is_array()) return corrupt("the messages of the session '" + name_ + "' are none");
  conversation.messages() = std::move(messages);
  std::vector<TokenId> ids(text.tokens.begin(), text.tokens.end());
  ids.insert(ids.end(), text.rest.begin(), text.rest.end());
  conversation.begin_with(text.rendered, std::move(ids));
  return ok_status();
}

Status SessionUse::park(Conversation& conversation) {
  SessionText& text = store_->text();
  const auto held = store_->session().tokens();
  const std::vector<TokenId>& ids = conversation.known_ids();
  const bool begins = held.size() <= ids.size() && std::equal(held.begin(), held.end(), ids.begin());
  text.messages =
      conversation.messages().empty()
          ? std::string()
          : conversation.messages().dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.rendered = begins ? conversation.known_text() : std::string();
  text.rest.clear();
  if (begins) text.rest.assign(ids.begin() + static_cast<ptrdiff_t>(held.size()), ids.end());
  ISTHMUS_ASSIGN_OR_RETURN(parked_, store_->park());
  return ok_status();
}

std::string SessionUse::line() const {
  std::string out = fmt::format("session {}: {} tokens back in {:.0f} ms", name_, switched_.tokens,
                                switched_.seconds * 1e3);
  if (switched_.tokens > 0) {
    out += fmt::format(" ({} from flash, {} computed)", switched_.stored_tokens, switched_.computed_tokens);
  }
  out += fmt::format("; kept in {:.0f} ms, {} written", parked_.seconds * 1e3,
                     human_bytes(parked_.written_bytes));
  if (!parked_.reason.empty()) out += fmt::format(" (not all: {})", printable(parked_.reason));
  return out;
}

nlohmann::ordered_json SessionUse::json() const {
  if (!on()) return nullptr;
  nlohmann::ordered_json out = {
      {"name", name_},
      {"bits", options_.bits == kMixedBits ? "mixed" : std::to_string(options_.bits)},
      {"tokens", switched_.tokens},
      {"memory_tokens", switched_.memory_tokens},
      {"stored_tokens", switched_.stored_tokens},
      {"computed_tokens", switched_.computed_tokens},
      {"read_bytes", switched_.read_bytes},
      {"switch_ms", switched_.seconds * 1e3},
      {"park_ms", parked_.seconds * 1e3},
      {"coded_blocks", parked_.coded_blocks},
      {"written_bytes", parked_.written_bytes}};
  const std::string& reason = parked_.reason.empty() ? switched_.reason : parked_.reason;
  if (!reason.empty()) out["reason"] = reason;
  return out;
}

}  // namespace isthmus::cli
