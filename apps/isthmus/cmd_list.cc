// isthmus list: the models on this machine, or those of the catalogue.
#include <fmt/core.h>

#include <memory>

#include "apps/isthmus/command.h"
#include "apps/isthmus/models.h"
#include "apps/isthmus/output.h"

namespace isthmus::cli {
namespace {

struct ListFlags {
  StoreFlags store;
  bool catalogue = false;
  bool names = false;
};

/// A name per line, for scripts and shells.
template <typename Models, typename Name>
Status print_names(const Models& models, Name name) {
  for (const auto& model : models) fmt::print("{}\n", name(model));
  return ok_status();
}

Status list_catalogue(const ListFlags& options, const Context& context) {
  ISTHMUS_ASSIGN_OR_RETURN(const Catalogue catalogue, load_catalogue());
  if (options.names) {
    return print_names(catalogue.entries(), [](const CatalogueEntry& entry) { return entry.name; });
  }
  Table table({"NAME", "SIZE", "ARCHITECTURE", "LICENCE", "TITLE"});
  table.align_right({1});
  nlohmann::ordered_json models = nlohmann::ordered_json::array();
  for (const CatalogueEntry& entry : catalogue.entries()) {
    table.add({entry.name, human_bytes(entry.size), printable(entry.architecture),
               printable(entry.licence.id), printable(entry.title)});
    nlohmann::ordered_json sources = nlohmann::ordered_json::array();
    for (const ModelSource& source : entry.sources) sources.push_back(source.text);
    models.push_back({{"name", entry.name},
                      {"aliases", entry.aliases},
                      {"title", entry.title},
                      {"architecture", entry.architecture},
                      {"bytes", entry.size},
                      {"sha256", entry.sha256},
                      {"licence", {{"id", entry.licence.id}, {"url", entry.licence.url}}},
                      {"sources", sources}});
  }
  context.json ? print_json({{"models", models}}) : table.print();
  return ok_status();
}

Status list_store(const ListFlags& options, const Context& context) {
  ISTHMUS_ASSIGN_OR_RETURN(const ModelStore store, existing_store(options.store));
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<StoredModel> models, store.list());
  if (options.names) {
    return print_names(models, [](const StoredModel& model) { return model.manifest.name; });
  }
  Table table({"NAME", "SIZE", "LICENCE", "PULLED", "STATE"});
  table.align_right({1});
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const StoredModel& model : models) {
    const Manifest& manifest = model.manifest;
    const std::string state = model.state.ok() ? "ready" : printable(model.state.to_string());
    table.add({manifest.name, human_bytes(manifest.size), printable(manifest.licence.id),
               printable(manifest.pulled_at), state});
    out.push_back({{"name", manifest.name},
                   {"path", model.path},
                   {"bytes", manifest.size},
                   {"sha256", manifest.sha256},
                   {"source", manifest.source},
                   {"licence", {{"id", manifest.licence.id}, {"url", manifest.licence.url}}},
                   {"pulled_at", manifest.pulled_at},
                   {"state", std::string(code_name(model.state.code()))}});
  }
  if (context.json) {
    print_json({{"folder", store.path()}, {"models", out}});
  } else if (models.empty()) {
    say("No models in {}; `isthmus list --catalogue` shows what can be pulled.\n", store.path());
  } else {
    table.print();
  }
  return ok_status();
}

Action set_up_list(CLI::App& app) {
  auto options = std::make_shared<ListFlags>();
  app.add_flag("--catalogue,--catalog", options->catalogue, "List what can be pulled by name instead");
  app.add_flag("--names", options->names, "Print the names alone, one per line");
  add_store_flags(app, options->store);
  return [options](const Context& context) -> Status {
    if (options->names && context.json) return invalid_argument("give --names or --json, not both");
    return options->catalogue ? list_catalogue(*options, context) : list_store(*options, context);
  };
}

}  // namespace

Command list_command() {
  return {.name = "list",
          .group = Group::kModels,
          .summary = "List the models on this machine",
          .json = true,
          .aliases = {"ls"},
          .description = "",
          .setup = set_up_list};
}

}  // namespace isthmus::cli
