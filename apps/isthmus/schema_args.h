// --schema: prompts made of modules whose KV is computed once.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/isthmus/command.h"
#include "apps/isthmus/prefix_args.h"
#include "engine/generate.h"
#include "engine/module_cache.h"

namespace isthmus::cli {

struct SchemaArgs {
  std::string file;
  std::string view = "anchored";
  std::string places = "packed";
  std::string repair = "first:8";
};

/// --schema, --modules, --module-places, --module-repair.
void add_schema_args(CLI::App& app, SchemaArgs& args);

/// The schema of a file; texts that it names are read from its folder. The errors of PromptSchema::parse()
/// and of reading files, with the file's name.
Result<PromptSchema> read_schema(const std::string& path);

/// A schema in use, or off.
class SchemaUse {
 public:
  /// kInvalidArgument for bad settings, or ones without --schema; the errors of read_schema(). Nothing of the
  /// model is needed yet.
  static Result<SchemaUse> open(const CLI::App& app, const SchemaArgs& args);

  bool on() const { return !file_.empty(); }
  /// Where modules are kept is `prefixes`' tier, if it has one. The errors of ModuleCache::create().
  Status compile(std::shared_ptr<LanguageModel> model, PrefixCache& prefixes);
  /// Makes `request` ask `prompt`: its tokens and parts. The errors of SchemaPrompt::parse(),
  /// ModuleCache::choose() and prepare(), for which `session` is used. `request` is valid as long as this.
  Status ask(const std::string& prompt, int64_t now, Session& session, GenerateRequest& request);

  ModuleCache& cache() { return *cache_; }
  /// What the modules of the prompt were.
  std::string line(const ComposeFigures& figures) const;
  /// null when off.
  nlohmann::ordered_json json(const ComposeFigures& figures) const;

 private:
  std::string file_;
  PromptSchema schema_;
  ModuleCacheOptions options_;
  std::unique_ptr<ModuleCache> cache_;
  ComposedPrompt composed_;
  std::vector<TextPart> parts_;
};

}  // namespace isthmus::cli
