// isthmus rm: takes models away.
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "apps/isthmus/command.h"
#include "apps/isthmus/models.h"
#include "apps/isthmus/output.h"
#include "model/packed_cache.h"

namespace isthmus::cli {
namespace {

struct RemoveFlags {
  std::vector<std::string> names;
  StoreFlags store;
  bool leftovers = false;
};

/// The name in the store that is meant: itself, or the one that an alias of the catalogue stands for.
Result<std::string> stored_name(const ModelStore& store, const Catalogue& catalogue,
                                const std::string& name) {
  const Result<StoredModel> exact = store.find(name);
  if (exact.ok()) return name;
  const CatalogueEntry* entry = catalogue.find(name);
  if (entry != nullptr && store.find(entry->name).ok()) return entry->name;
  return exact.status();
}

Status remove_models(const RemoveFlags& options, const Context& context) {
  if (options.names.empty() && !options.leftovers) {
    return invalid_argument("name the models to remove, or give --leftovers");
  }
  ISTHMUS_ASSIGN_OR_RETURN(ModelStore store, existing_store(options.store));
  ISTHMUS_ASSIGN_OR_RETURN(const Catalogue catalogue, load_catalogue());
  // All names are looked up before the first is removed: a typo in the third must not cost the first two.
  std::vector<std::string> names;
  for (const std::string& given : options.names) {
    ISTHMUS_ASSIGN_OR_RETURN(const std::string name, stored_name(store, catalogue, given));
    // An alias beside its name, or a name given twice, means one model.
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  nlohmann::ordered_json removed = nlohmann::ordered_json::array();
  for (const std::string& name : names) {
    ISTHMUS_ASSIGN_OR_RETURN(const StoredModel stored, store.find(name));
    ISTHMUS_ASSIGN_OR_RETURN(const RemoveResult result, store.remove(name));
    // The packed weights of a file that is gone are of no use to anybody.
    const uint64_t packed = result.file_kept ? 0 : remove_packed(standard_packed_cache().folder, stored.path);
    removed.push_back({{"name", name},
                       {"freed_bytes", result.freed_bytes},
                       {"packed_cache_bytes", packed},
                       {"file_kept", result.file_kept}});
    if (context.json) continue;
    const std::string what = result.file_kept ? "its file stays, because another name needs it"
                                              : human_bytes(result.freed_bytes + packed) + " freed";
    fmt::print("removed {} ({})\n", name, what);
  }
  uint64_t leftovers = 0;
  if (options.leftovers) {
    StopPolicy stop;
    stop.token = context.stop;
    ISTHMUS_ASSIGN_OR_RETURN(leftovers, store.clean(stop));
    if (!context.json) fmt::print("leftovers: {} freed\n", human_bytes(leftovers));
  }
  if (context.json) print_json({{"removed", removed}, {"leftover_bytes", leftovers}});
  return ok_status();
}

Action set_up_rm(CLI::App& app) {
  auto options = std::make_shared<RemoveFlags>();
  app.add_option("NAME", options->names, "Models to remove");
  app.add_flag("--leftovers", options->leftovers,
               "Remove files of no model and pulls abandoned two weeks ago");
  add_store_flags(app, options->store);
  return [options](const Context& context) { return remove_models(*options, context); };
}

}  // namespace

Command rm_command() {
  return {.name = "rm",
          .group = Group::kModels,
          .summary = "Remove models from this machine",
          .json = true,
          .aliases = {"remove"},
          .description = "A file that several names share goes with the last of them.",
          .setup = set_up_rm};
}

}  // namespace isthmus::cli
