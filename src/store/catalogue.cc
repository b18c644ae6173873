#include "store/catalogue.h"

#include <algorithm>
#include <set>

#include "store/json_text.h"
#include "store/licence.h"
#include "store/sha256.h"

namespace isthmus {

extern const std::string_view kCatalogueJson;  // catalogue_data.cc, made from catalogue.json

namespace {

using nlohmann::json;

constexpr uint64_t kCatalogueFormat = 1;
constexpr size_t kMaxModels = 10'000;
constexpr size_t kMaxAliases = 64;
constexpr size_t kMaxSources = 16;

Result<std::vector<std::string>> string_list(const json& object, const char* key, size_t limit) {
  std::vector<std::string> out;
  const auto it = object.find(key);
  if (it == object.end()) return out;
  if (!it->is_array()) return corrupt(std::string("'") + key + "' is not a list");
  if (it->size() > limit) return resource_exhausted(std::string("'") + key + "' is too long a list");
  for (const json& item : *it) {
    if (!item.is_string()) return corrupt(std::string("'") + key + "' holds something that is not a string");
    out.push_back(item.get<std::string>());
  }
  return out;
}

Result<CatalogueEntry> parse_entry(const json& model) {
  CatalogueEntry out;
  ISTHMUS_ASSIGN_OR_RETURN(out.name, json_string(model, "name"));
  if (!is_model_name(out.name)) return corrupt("'name' is not a model name");
  ISTHMUS_ASSIGN_OR_RETURN(out.aliases, string_list(model, "aliases", kMaxAliases));
  for (const std::string& alias : out.aliases) {
    if (!is_model_name(alias)) return corrupt("'aliases' holds something that is not a model name");
  }
  ISTHMUS_ASSIGN_OR_RETURN(out.title, json_string(model, "title"));
  ISTHMUS_ASSIGN_OR_RETURN(out.architecture, json_string(model, "architecture"));
  ISTHMUS_ASSIGN_OR_RETURN(out.size, json_uint(model, "size"));
  if (out.size == 0) return corrupt("'size' is 0");
  ISTHMUS_ASSIGN_OR_RETURN(out.sha256, json_string(model, "sha256"));
  if (!is_sha256(out.sha256)) return corrupt("'sha256' is not 64 lower-case hex digits");
  ISTHMUS_ASSIGN_OR_RETURN(out.licence, parse_licence(model));
  ISTHMUS_ASSIGN_OR_RETURN(const auto sources, string_list(model, "sources", kMaxSources));
  for (const std::string& text : sources) {
    if (!has_source_scheme(text)) return corrupt("'sources' holds '" + text + "', which has no scheme");
    Result<ModelSource> source = parse_source(text);
    if (!source.ok()) return corrupt("'sources': " + source.status().message());
    out.sources.push_back(std::move(source).value());
  }
  if (out.sources.empty()) return corrupt("'sources' is missing or empty");
  return out;
}

bool shares_a_name(const CatalogueEntry& a, const CatalogueEntry& b) {
  std::set<std::string> names(a.aliases.begin(), a.aliases.end());
  names.insert(a.name);
  return names.count(b.name) > 0 ||
         std::any_of(b.aliases.begin(), b.aliases.end(),
                     [&](const std::string& alias) { return names.count(alias) > 0; });
}

}  // namespace

Result<Catalogue> Catalogue::built_in() { return parse(kCatalogueJson); }

Result<Catalogue> Catalogue::parse(std::string_view text) {
  ISTHMUS_ASSIGN_OR_RETURN(const json root, parse_json_object(text, JsonLimits{size_t{16} << 20, 16}));
  ISTHMUS_ASSIGN_OR_RETURN(const uint64_t format, json_uint(root, "format"));
  if (format != kCatalogueFormat) {
    return unsupported("catalogue format " + std::to_string(format) + "; this program reads format 1");
  }
  const auto models = root.find("models");
  if (models == root.end() || !models->is_array()) return corrupt("'models' is missing or not a list");
  if (models->size() > kMaxModels) return resource_exhausted("a catalogue of over 10,000 models");
  Catalogue out;
  std::set<std::string> taken;
  for (size_t i = 0; i < models->size(); ++i) {
    const json& model = (*models)[i];
    Result<CatalogueEntry> entry = parse_entry(model);
    if (!entry.ok())
      return entry.status().with_context("model " + std::to_string(i + 1) + " of the catalogue");
    std::vector<std::string> names = entry->aliases;
    names.push_back(entry->name);
    for (const std::string& name : names) {
      if (!taken.insert(name).second) return corrupt("the catalogue has the name '" + name + "' twice");
    }
    out.entries_.push_back(std::move(entry).value());
  }
  return out;
}

const CatalogueEntry* Catalogue::find(std::string_view name) const {
  for (const CatalogueEntry& entry : entries_) {
    if (entry.name == name) return &entry;
    if (std::find(entry.aliases.begin(), entry.aliases.end(), name) != entry.aliases.end()) return &entry;
  }
  return nullptr;
}

std::vector<std::string> Catalogue::names() const {
  std::vector<std::string> out;
  for (const CatalogueEntry& entry : entries_) {
    out.push_back(entry.name);
    out.insert(out.end(), entry.aliases.begin(), entry.aliases.end());
  }
  return out;
}

Catalogue Catalogue::overlaid_by(const Catalogue& other) const {
  Catalogue out = other;
  for (const CatalogueEntry& entry : entries_) {
    const bool hidden = std::any_of(other.entries_.begin(), other.entries_.end(),
                                    [&](const CatalogueEntry& above) { return shares_a_name(above, entry); });
    if (!hidden) out.entries_.push_back(entry);
  }
  return out;
}

}  // namespace isthmus
