#include "apps/isthmus/schema_args.h"

#include <fmt/core.h>

#include "apps/isthmus/input.h"
#include "apps/isthmus/output.h"
#include "os/paths_folder.h"

namespace isthmus::cli {
namespace {

/// Reads the files that a schema names, from its folder and those inside it; no link is followed.
class SchemaFolder {
 public:
  explicit SchemaFolder(const std::string& schema) {
    const size_t slash = schema.rfind('/');
    path_ = slash == std::string::npos ? "." : schema.substr(0, slash + 1);
  }

  Result<std::string> read(const std::string& file) {
    ISTHMUS_ASSIGN_OR_RETURN(std::shared_ptr<Folder> folder, posix_folder(path_, false));
    size_t at = 0;
    for (size_t slash = file.find('/'); slash != std::string::npos; slash = file.find('/', at)) {
      const std::string name = file.substr(at, slash - at);
      ISTHMUS_ASSIGN_OR_RETURN(const FileInfo info, folder->info(name));
      if (!info.is_folder) return not_found("'" + name + "' is no folder");
      ISTHMUS_ASSIGN_OR_RETURN(folder, folder->subfolder(name));
      at = slash + 1;
    }
    return read_text(*folder, file.substr(at), kMaxSchemaBytes);
  }

 private:
  std::string path_;
};

}  // namespace

void add_schema_args(CLI::App& app, SchemaArgs& args) {
  app.add_option("--schema", args.file,
                 "prompts take modules of this schema, whose KV is computed once (docs/prompt-modules.md)")
      ->type_name("FILE");
  app.add_option("--modules", args.view,
                 "with --schema: what a module sees of the text before it: isolated, anchored or whole")
      ->type_name("VIEW")
      ->capture_default_str();
  app.add_option(
         "--module-places", args.places,
         "with --schema: modules stand one behind the other (packed) or where the schema has them (schema)")
      ->type_name("PLACES")
      ->capture_default_str();
  app.add_option("--module-repair", args.repair,
                 "with --schema: tokens of modules computed anew where they stand: none, first:N, "
                 "deviating:SHARE or all")
      ->type_name("REPAIR")
      ->capture_default_str();
}

Result<PromptSchema> read_schema(const std::string& path) {
  ISTHMUS_ASSIGN_OR_RETURN(const std::string xml, read_input(path));
  SchemaFolder folder(path);
  auto out = PromptSchema::parse(xml, [&folder](const std::string& file) { return folder.read(file); });
  if (!out.ok()) return out.status().with_context(path);
  return out;
}

Result<SchemaUse> SchemaUse::open(const CLI::App& app, const SchemaArgs& args) {
  SchemaUse out;
  if (args.file.empty()) {
    for (const char* name : {"--modules", "--module-places", "--module-repair"}) {
      if (app.count(name) > 0) return invalid_argument(std::string(name) + " needs --schema");
    }
    return out;
  }
  const auto view = parse_module_view(args.view);
  if (!view.ok()) return view.status().with_context("--modules");
  out.options_.view = *view;
  const auto places = parse_module_places(args.places);
  if (!places.ok()) return places.status().with_context("--module-places");
  out.options_.places = *places;
  const auto repair = parse_repair(args.repair);
  if (!repair.ok()) return repair.status().with_context("--module-repair");
  out.options_.repair = *repair;
  ISTHMUS_ASSIGN_OR_RETURN(out.schema_, read_schema(args.file));
  out.file_ = args.file;
  return out;
}

Status SchemaUse::compile(std::shared_ptr<LanguageModel> model, PrefixCache& prefixes) {
  if (prefixes.store() != nullptr) {
    const PrefixStoreOptions& kept = prefixes.store()->options();
    options_.tier = kept.tier;
    options_.digest = kept.digest;
    options_.model = kept.model;
    options_.label = kept.label;
    options_.salt = kept.salt;
  }
  auto cache = ModuleCache::create(std::move(model), schema_, options_);
  if (!cache.ok()) return cache.status().with_context(file_);
  cache_ = std::move(*cache);
  return ok_status();
}

Status SchemaUse::ask(const std::string& prompt, int64_t now, Session& session, GenerateRequest& request) {
  ISTHMUS_ASSIGN_OR_RETURN(const SchemaPrompt asked, SchemaPrompt::parse(prompt));
  if (asked.text.empty()) return invalid_argument("the prompt has no text behind its modules");
  ISTHMUS_ASSIGN_OR_RETURN(composed_, cache_->choose(asked));
  ISTHMUS_RETURN_IF_ERROR(cache_->finish(asked.text, now, composed_));
  ISTHMUS_RETURN_IF_ERROR(cache_->prepare(composed_, session, request.stop));
  parts_ = cache_->parts(composed_);
  request.prompt = composed_.tokens;
  request.parts = parts_;
  request.repair = options_.repair;
  return ok_status();
}

std::string SchemaUse::line(const ComposeFigures& figures) const {
  const ModuleFigures& made = cache_->figures();
  std::string out =
      fmt::format("schema {}: {} of {} tokens from modules", schema_.name, figures.copied, figures.tokens);
  if (figures.repaired > 0) {
    out += fmt::format(", {} of them computed anew ({:.0f} % of the work)", figures.repaired,
                       100 * figures.recomputed);
  }
  out += fmt::format("; modules made ready in {:.0f} ms", made.seconds * 1e3);
  if (made.computed_tokens > 0) out += fmt::format(", {} tokens read", made.computed_tokens);
  if (made.stored_tokens > 0) out += fmt::format(", {} tokens from flash", made.stored_tokens);
  return out;
}

nlohmann::ordered_json SchemaUse::json(const ComposeFigures& figures) const {
  if (!on()) return nullptr;
  const ModuleFigures& made = cache_->figures();
  nlohmann::ordered_json out = {{"name", schema_.name},
                                {"modules", module_view_name(options_.view)},
                                {"places", module_places_name(options_.places)},
                                {"repair", repair_name(options_.repair)},
                                {"module_tokens", figures.copied},
                                {"repaired_tokens", figures.repaired},
                                {"recomputed", figures.recomputed},
                                {"compose_ms", figures.seconds * 1e3},
                                {"prepare_ms", made.seconds * 1e3},
                                {"read_tokens", made.computed_tokens},
                                {"stored_tokens", made.stored_tokens},
                                {"saved_tokens", made.saved_tokens},
                                {"kv_bytes", made.bytes}};
  if (!made.reason.empty()) out["reason"] = made.reason;
  return out;
}

}  // namespace isthmus::cli
