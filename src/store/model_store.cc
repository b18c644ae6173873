#include "store/model_store.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "base/suggest.h"
#include "store/json_text.h"
#include "store/licence.h"
#include "store/sha256.h"

namespace isthmus {
namespace {

using nlohmann::json;

constexpr uint64_t kManifestFormat = 1;
constexpr size_t kMaxManifest = size_t{1} << 20;
constexpr auto kAbandoned = std::chrono::hours(14 * 24);
constexpr std::string_view kManifestSuffix = ".json";
constexpr std::string_view kBlobSuffix = ".gguf";

/// ':' has a meaning in paths of some systems; '+' is in no model name.
std::string file_of_name(const std::string& name) {
  std::string out = name;
  std::replace(out.begin(), out.end(), ':', '+');
  return out.append(kManifestSuffix);
}

/// "" when the file is no manifest of a model name.
std::string name_of_file(const std::string& file) {
  if (!file.ends_with(kManifestSuffix)) return std::string();
  std::string out = file.substr(0, file.size() - kManifestSuffix.size());
  if (out.find(':') != std::string::npos) return std::string();
  std::replace(out.begin(), out.end(), '+', ':');
  return is_model_name(out) ? out : std::string();
}

std::string blob_name(const std::string& sha256) { return sha256 + std::string(kBlobSuffix); }

bool is_old(const FileInfo& info) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto then = std::chrono::nanoseconds(info.mtime_ns);
  return now - then > kAbandoned;
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  const Licence& licence = manifest.licence;
  const json value = {{"format", kManifestFormat},
                      {"name", manifest.name},
                      {"sha256", manifest.sha256},
                      {"size", manifest.size},
                      {"source", manifest.source},
                      {"licence",
                       {{"id", licence.id},
                        {"name", licence.name},
                        {"url", licence.url},
                        {"terms", licence.terms},
                        {"must_accept", licence.must_accept}}},
                      {"licence_accepted", manifest.licence_accepted},
                      {"pulled_at", manifest.pulled_at}};
  return json_text(value);
}

Result<Manifest> parse_manifest(std::string_view text) {
  ISTHMUS_ASSIGN_OR_RETURN(const json value, parse_json_object(text, JsonLimits{kMaxManifest, 8}));
  ISTHMUS_ASSIGN_OR_RETURN(const uint64_t format, json_uint(value, "format"));
  if (format != kManifestFormat) return unsupported("manifest format " + std::to_string(format));
  Manifest out;
  ISTHMUS_ASSIGN_OR_RETURN(out.name, json_string(value, "name"));
  if (!is_model_name(out.name)) return corrupt("'name' is not a model name");
  ISTHMUS_ASSIGN_OR_RETURN(out.sha256, json_string(value, "sha256"));
  if (!is_sha256(out.sha256)) return corrupt("'sha256' is not 64 lower-case hex digits");
  ISTHMUS_ASSIGN_OR_RETURN(out.size, json_uint(value, "size"));
  ISTHMUS_ASSIGN_OR_RETURN(out.source, json_string(value, "source"));
  ISTHMUS_ASSIGN_OR_RETURN(out.licence, parse_licence(value));
  ISTHMUS_ASSIGN_OR_RETURN(out.licence_accepted, json_bool_or(value, "licence_accepted", false));
  ISTHMUS_ASSIGN_OR_RETURN(out.pulled_at, json_string(value, "pulled_at"));
  return out;
}

Result<ModelStore> ModelStore::open(std::shared_ptr<Folder> folder) {
  ModelStore out;
  out.root_ = std::move(folder);
  ISTHMUS_ASSIGN_OR_RETURN(out.blobs_, out.root_->subfolder("blobs"));
  ISTHMUS_ASSIGN_OR_RETURN(out.names_, out.root_->subfolder("names"));
  ISTHMUS_ASSIGN_OR_RETURN(out.partial_, out.root_->subfolder("partial"));
  return out;
}

Result<ModelStore> ModelStore::open(const std::string& path) {
  ISTHMUS_ASSIGN_OR_RETURN(std::shared_ptr<Folder> folder, posix_folder(path, true));
  return open(std::move(folder));
}

std::string ModelStore::blob_path(const std::string& sha256) const {
  return blobs_->path() + "/" + blob_name(sha256);
}

bool ModelStore::has_blob(const std::string& sha256, uint64_t size) const {
  if (!is_sha256(sha256)) return false;
  const Result<FileInfo> info = blobs_->info(blob_name(sha256));
  return info.ok() && info->is_regular && info->size == size;
}

StoredModel ModelStore::examine(const std::string& name) const {
  StoredModel out;
  out.manifest.name = name;
  const Result<std::string> text = read_text(*names_, file_of_name(name), kMaxManifest);
  if (!text.ok()) {
    out.state = text.status();
    return out;
  }
  Result<Manifest> manifest = parse_manifest(*text);
  if (!manifest.ok() || manifest->name != name) {
    out.state = manifest.ok() ? corrupt("it is of another name") : manifest.status();
    out.state = out.state.with_context("the manifest of '" + name + "'");
    return out;
  }
  out.manifest = std::move(manifest).value();
  out.path = blob_path(out.manifest.sha256);
  const Result<FileInfo> info = blobs_->info(blob_name(out.manifest.sha256));
  if (!info.ok()) {
    out.state = info.status();
  } else if (!info->is_regular || info->size != out.manifest.size) {
    out.state = corrupt("the file of '" + name + "' is not a file of " + std::to_string(out.manifest.size) +
                        " bytes");
  }
  return out;
}

Result<std::vector<StoredModel>> ModelStore::list() const {
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<std::string> files, names_->list());
  std::vector<StoredModel> out;
  for (const std::string& file : files) {
    const std::string name = name_of_file(file);
    if (!name.empty()) out.push_back(examine(name));
  }
  return out;
}

Result<StoredModel> ModelStore::find(const std::string& name) const {
  if (!is_model_name(name)) return invalid_argument("'" + name + "' is not a model name");
  const Result<FileInfo> info = names_->info(file_of_name(name));
  if (info.ok()) return examine(name);
  if (info.status().code() != Code::kNotFound) return info.status();
  std::vector<std::string> names;
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<StoredModel> models, list());
  names.reserve(models.size());
  for (const StoredModel& model : models) names.push_back(model.manifest.name);
  return not_found("no model '" + name + "' in " + path() + did_you_mean(name, names));
}

Result<bool> ModelStore::blob_is_needed(const std::string& sha256) const {
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<StoredModel> models, list());
  bool needed = false;
  for (const StoredModel& model : models) {
    if (model.manifest.sha256.empty()) return failed_precondition("a manifest cannot be read");
    needed |= model.manifest.sha256 == sha256;
  }
  return needed;
}

Result<RemoveResult> ModelStore::remove(const std::string& name) {
  ISTHMUS_ASSIGN_OR_RETURN(const FolderLock held, lock(StopPolicy{}));
  ISTHMUS_ASSIGN_OR_RETURN(const StoredModel model, find(name));
  ISTHMUS_RETURN_IF_ERROR(names_->remove(file_of_name(name)));
  ISTHMUS_RETURN_IF_ERROR(names_->sync());
  RemoveResult out;
  if (model.manifest.sha256.empty()) return out;
  const Result<bool> needed = blob_is_needed(model.manifest.sha256);
  out.file_kept = !needed.ok() || *needed;
  if (out.file_kept) return out;
  const Result<FileInfo> info = blobs_->info(blob_name(model.manifest.sha256));
  ISTHMUS_RETURN_IF_ERROR(blobs_->remove(blob_name(model.manifest.sha256)));
  ISTHMUS_RETURN_IF_ERROR(blobs_->sync());
  out.freed_bytes = info.ok() ? info->size : 0;
  return out;
}

Result<VerifyResult> ModelStore::verify(const std::string& name, const StopPolicy& stop,
                                        const std::function<void(uint64_t, uint64_t)>& progress) const {
  ISTHMUS_ASSIGN_OR_RETURN(const StoredModel model, find(name));
  if (model.manifest.sha256.empty()) return model.state;
  VerifyResult out;
  out.manifest = model.manifest;
  out.path = model.path;
  ISTHMUS_ASSIGN_OR_RETURN(auto file, blobs_->open_file(blob_name(model.manifest.sha256), OpenMode::kRead));
  ISTHMUS_ASSIGN_OR_RETURN(const FileInfo info, file->info());
  Sha256 hash;
  uint64_t done = 0;
  ISTHMUS_RETURN_IF_ERROR(hash_bytes(*file, info.size, hash, stop, [&](uint64_t step) {
    done += step;
    if (progress) progress(done, info.size);
  }));
  ISTHMUS_ASSIGN_OR_RETURN(out.actual_sha256, hash.finish());
  out.good = out.actual_sha256 == model.manifest.sha256 && info.size == model.manifest.size;
  return out;
}

Status ModelStore::put(const Manifest& manifest) {
  if (!is_model_name(manifest.name)) return invalid_argument("'" + manifest.name + "' is not a model name");
  return publish_text(*names_, file_of_name(manifest.name), manifest_text(manifest));
}

Result<FolderLock> ModelStore::lock(const StopPolicy& stop) const {
  return root_->lock("store.lock", stop, nullptr);
}

uint64_t ModelStore::clean_partial(const std::string& key) {
  // Whoever holds the lock of a key is at work on it.
  const Result<FolderLock> held = partial_->try_lock(key + ".lock");
  if (!held.ok()) return 0;
  const Result<FileInfo> data = partial_->info(key + ".data");
  bool removed = partial_->remove_tree(key + ".pip").ok();
  if (data.ok() && !is_old(*data)) return 0;
  for (const char* suffix : {".json", ".json.tmp", ".data", ".lock"})
    removed &= partial_->remove(key + suffix).ok();
  return removed && data.ok() ? data->size : 0;
}

Result<uint64_t> ModelStore::clean(const StopPolicy& stop) {
  uint64_t freed = 0;
  std::set<std::string> keys;
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<std::string> leftovers, partial_->list());
  for (const std::string& file : leftovers) {
    const std::string key = file.substr(0, file.find('.'));
    if (is_sha256(key)) keys.insert(key);
  }
  for (const std::string& key : keys) freed += clean_partial(key);

  ISTHMUS_ASSIGN_OR_RETURN(const FolderLock held, lock(stop));
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<std::string> files, blobs_->list());
  for (const std::string& file : files) {
    const std::string digest = file.substr(0, file.find('.'));
    if (!is_sha256(digest) || file != blob_name(digest)) continue;
    const Result<bool> needed = blob_is_needed(digest);
    if (!needed.ok() || *needed) continue;
    const Result<FileInfo> info = blobs_->info(file);
    ISTHMUS_RETURN_IF_ERROR(blobs_->remove(file));
    freed += info.ok() ? info->size : 0;
  }
  return freed;
}

}  // namespace isthmus
