// --prefix-cache: prompts that were read once, kept on disk for later starts.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/isthmus/command.h"
#include "apps/isthmus/model_args.h"
#include "engine/prefix_store.h"
#include "store/kv_tier.h"

namespace isthmus::cli {

struct PrefixArgs {
  bool on = false;
  std::string size = "4GB";
};

/// --prefix-cache, --prefix-cache-size.
void add_prefix_args(CLI::App& app, PrefixArgs& args);

/// The model's name in lists and files: without the folders of a path, which are nobody else's business.
std::string model_label(const std::string& model);

/// The digest of a model's files, by parts where it has several. Read once, then remembered (hash_memory.h).
Result<Digest> model_digest(const std::string& path, const Context& context);

/// The flash tier and what a model keeps in it. Off is a state, not an error: a tier that cannot be opened
/// never turns a run that would work into one that does not.
class PrefixCache {
 public:
  /// Opens what was asked for. kInvalidArgument for a bad size, or one without --prefix-cache; the errors of
  /// model_path().
  static Result<PrefixCache> open(const CLI::App& app, const PrefixArgs& args, const ModelArgs& model,
                                  const Context& context);

  /// Null when off.
  PrefixStore* store() { return store_.get(); }
  /// Keeps a prompt that the session has read; says on stderr why it cannot be kept, once.
  void save(const Session& session, std::span<const TokenId> prompt);
  /// {"state": "off|on|read_only|failed", …}.
  nlohmann::ordered_json json();

 private:
  Status open_tier(uint64_t quota, const ModelArgs& model, const std::string& path, const Context& context);

  bool wanted_ = false;
  bool told_ = false;
  std::string reason_;  // why it is off though it was asked for
  std::unique_ptr<KvTier> tier_;
  std::unique_ptr<PrefixStore> store_;
};

}  // namespace isthmus::cli
