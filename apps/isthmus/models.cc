#include "apps/isthmus/models.h"

#include <filesystem>

#include "os/paths.h"
#include "os/paths_folder.h"

namespace isthmus::cli {
namespace {

constexpr size_t kMaxCatalogue = size_t{16} << 20;
constexpr char kCatalogueFile[] = "catalogue.json";

}  // namespace

void add_store_flags(CLI::App& app, StoreFlags& flags) {
  app.add_option("--models-dir", flags.models_dir, "Folder of the models, instead of the standard one")
      ->type_name("DIR");
}

Result<ModelStore> open_store(const StoreFlags& flags) {
  if (!flags.models_dir.empty()) return ModelStore::open(flags.models_dir);
  ISTHMUS_ASSIGN_OR_RETURN(const std::string path, standard_path(Place::kModels));
  return ModelStore::open(path);
}

Result<ModelStore> existing_store(const StoreFlags& flags) {
  std::error_code error;
  if (!flags.models_dir.empty() && !std::filesystem::exists(flags.models_dir, error)) {
    return not_found("--models-dir: there is no folder '" + flags.models_dir + "'");
  }
  return open_store(flags);
}

Result<Catalogue> load_catalogue() {
  ISTHMUS_ASSIGN_OR_RETURN(Catalogue built_in, Catalogue::built_in());
  ISTHMUS_ASSIGN_OR_RETURN(const std::string path, standard_path(Place::kConfig));
  const auto folder = posix_folder(path, false);
  if (!folder.ok()) return built_in;
  const auto text = read_text(**folder, kCatalogueFile, kMaxCatalogue);
  if (!text.ok() && text.status().code() == Code::kNotFound) return built_in;
  ISTHMUS_RETURN_IF_ERROR(text.status());
  Result<Catalogue> own = Catalogue::parse(*text);
  if (!own.ok()) return own.status().with_context(path + "/" + kCatalogueFile);
  return built_in.overlaid_by(*own);
}

Result<ResolvedModel> find_model(const std::string& model, const StoreFlags& flags) {
  // A path needs no store: there may be no home to keep one in.
  if (auto file = resolve_file(model)) return *std::move(file);
  ISTHMUS_ASSIGN_OR_RETURN(const ModelStore store, existing_store(flags));
  ISTHMUS_ASSIGN_OR_RETURN(const Catalogue catalogue, load_catalogue());
  return resolve_model(store, catalogue, model);
}

}  // namespace isthmus::cli
