// isthmus verify: reads model files again and compares their digests.
#include <fmt/core.h>

#include <memory>

#include "apps/isthmus/command.h"
#include "apps/isthmus/models.h"
#include "apps/isthmus/output.h"
#include "apps/isthmus/progress.h"

namespace isthmus::cli {
namespace {

struct VerifyFlags {
  std::vector<std::string> names;
  StoreFlags store;
  bool quiet = false;
};

/// The names to look at: those given (aliases replaced), or all.
Result<std::vector<std::string>> names_to_verify(const VerifyFlags& options, const ModelStore& store) {
  std::vector<std::string> out;
  if (options.names.empty()) {
    ISTHMUS_ASSIGN_OR_RETURN(const std::vector<StoredModel> models, store.list());
    for (const StoredModel& model : models) out.push_back(model.manifest.name);
    return out;
  }
  ISTHMUS_ASSIGN_OR_RETURN(const Catalogue catalogue, load_catalogue());
  for (const std::string& name : options.names) {
    const CatalogueEntry* entry = catalogue.find(name);
    const bool alias = entry != nullptr && !store.find(name).ok();
    ISTHMUS_ASSIGN_OR_RETURN(const StoredModel model, store.find(alias ? entry->name : name));
    out.push_back(model.manifest.name);
  }
  return out;
}

Status verify(const VerifyFlags& options, const Context& context) {
  ISTHMUS_ASSIGN_OR_RETURN(const ModelStore store, existing_store(options.store));
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, names_to_verify(options, store));
  if (names.empty()) say("No models in {}.\n", printable(store.path()));
  StopPolicy stop;
  stop.token = context.stop;
  ProgressBar bar(options.quiet);
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  Status bad;  // the first code, and the sentences of all
  for (const std::string& name : names) {
    const Result<VerifyResult> result = store.verify(
        name, stop, [&](uint64_t done, uint64_t total) { bar.show("verifying " + name, done, total); });
    bar.finish();
    Status state = result.status();
    if (state.code() == Code::kCancelled) return state;
    if (result.ok() && !result->good) {
      state = corrupt("the SHA-256 of '" + name + "' is " + result->actual_sha256 + ", expected " +
                      result->manifest.sha256);
    }
    if (!state.ok()) bad = bad.ok() ? state : Status(bad.code(), bad.message() + "; " + state.message());
    out.push_back({{"name", name}, {"state", std::string(code_name(state.code()))}});
    if (!context.json) fmt::print("{}: {}\n", name, state.ok() ? "good" : printable(state.to_string()));
  }
  // A failure is one document as well, which the frame prints.
  if (context.json && bad.ok()) print_json({{"models", out}});
  return bad;
}

Action set_up_verify(CLI::App& app) {
  auto options = std::make_shared<VerifyFlags>();
  app.add_option("NAME", options->names, "Models to verify; none: all");
  app.add_flag("-q,--quiet", options->quiet, "Show no progress");
  add_store_flags(app, options->store);
  return [options](const Context& context) { return verify(*options, context); };
}

}  // namespace

Command verify_command() {
  return {.name = "verify",
          .group = Group::kModels,
          .summary = "Check the files of models against their digests",
          .json = true,
          .aliases = {},
          .description = "",
          .setup = set_up_verify};
}

}  // namespace isthmus::cli
