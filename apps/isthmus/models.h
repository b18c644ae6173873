// What the commands that take a MODEL share: the store, the catalogue, and finding the file that is meant.
//
// The store is the folder of --models-dir, else ISTHMUS_MODELS, else the data folder (os/paths.h). The
// catalogue is the built-in one under the user's own: catalogue.json in the configuration folder, when there
// is one.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/status.h"
#include "store/catalogue.h"
#include "store/model_store.h"
#include "store/pull.h"

namespace isthmus::cli {

struct StoreFlags {
  std::string models_dir;  // empty: the standard place
};

/// Adds --models-dir.
void add_store_flags(CLI::App& app, StoreFlags& flags);

Result<ModelStore> open_store(const StoreFlags& flags);
/// The same for who only looks: a folder that was named must be there, or it is kNotFound.
Result<ModelStore> existing_store(const StoreFlags& flags);
Result<Catalogue> load_catalogue();

/// The file that MODEL means (store/pull.h, resolve_model).
Result<ResolvedModel> find_model(const std::string& model, const StoreFlags& flags);

}  // namespace isthmus::cli
