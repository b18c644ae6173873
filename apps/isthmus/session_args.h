// --session: a conversation that is kept, and goes on with the next command.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/isthmus/command.h"
#include "apps/isthmus/model_args.h"
#include "apps/isthmus/prefix_args.h"
#include "engine/chat.h"
#include "engine/session_store.h"
#include "store/session_files.h"

namespace isthmus::cli {

struct SessionArgs {
  std::string name;
  std::string bits = "16";
};

/// --session, --session-bits.
void add_session_args(CLI::App& app, SessionArgs& args);

/// A kept session in use, or off.
class SessionUse {
 public:
  /// Opens the archive and, for the KV, the flash tier; adds the levels to `options`. kInvalidArgument for
  /// bad settings, or
  /// --session-bits without --session; the errors of model_path() and of the archive's folder. A tier that
  /// cannot be opened is said and done without: KV is computed from the text then.
  static Result<SessionUse> open(const CLI::App& app, const SessionArgs& args, const ModelArgs& model,
                                 const Context& context, ModelOptions& options);

  bool on() const { return !name_.empty(); }
  /// Brings the session back. The errors of SessionStore::create() and activate().
  Status activate(std::shared_ptr<LanguageModel> model, const StopPolicy& stop);
  /// Brings it back after park().
  Status resume(const StopPolicy& stop);
  Session& session() { return store_->session(); }
  /// Messages of the session as it was kept.
  size_t messages() const;
  /// The conversation so far, to be gone on with.
  Status restore(Conversation& conversation) const;
  /// Puts the session away with what the conversation has become. The errors of SessionStore::park().
  Status park(Conversation& conversation);

  std::string line() const;
  nlohmann::ordered_json json() const;

 private:
  std::string name_;
  std::unique_ptr<SessionFiles> files_;
  std::unique_ptr<KvTier> tier_;
  SessionStoreOptions options_;
  std::unique_ptr<SessionStore> store_;
  SwitchFigures switched_;
  ParkFigures parked_;
};

}  // namespace isthmus::cli
