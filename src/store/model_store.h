// The folder of models on this machine: files by digest, names that point at them.
//
//   blobs/<sha256>.gguf        a model file, read-only, shared by all names that mean these bytes
//   names/<name>[+<tag>].json  one manifest per name
//   partial/                   pulls under way (partial_file.h)
//   store.lock                 held for the short moments of publishing and removing
//
// Any number of processes may use one store. Reading needs no lock: manifests and blobs appear whole or not
// at all. No link inside the store is followed, and no name from outside becomes a path (Folder). The
// format's page is docs/formats/model-store.md. Errors: those of Folder, kInvalidArgument (not a model name),
// kNotFound (with suggestions), kCorrupt (a manifest that is not one).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"
#include "os/paths_folder.h"
#include "store/catalogue.h"

namespace isthmus {

/// What a name stands for.
struct Manifest {
  std::string name;
  std::string sha256;
  uint64_t size = 0;
  std::string source;  // as given to pull
  Licence licence;
  bool licence_accepted = false;
  std::string pulled_at;  // UTC, "2026-01-31T12:00:00Z"
};

std::string manifest_text(const Manifest& manifest);
/// kCorrupt or kUnsupported (a later format) unless `text` is a whole, valid manifest.
Result<Manifest> parse_manifest(std::string_view text);

/// One line of `list`.
struct StoredModel {
  Manifest manifest;  // of a bad entry only the name
  std::string path;   // of the model file
  Status state;       // OK, kCorrupt (bad manifest, wrong size), kNotFound (file missing)
};

struct RemoveResult {
  uint64_t freed_bytes = 0;  // 0 when another name still needs the file
  bool file_kept = false;    // because it is shared, or because a bad manifest hides who needs it
};

struct VerifyResult {
  Manifest manifest;
  std::string path;
  std::string actual_sha256;
  bool good = false;
};

class ModelStore {
 public:
  /// Opens, and makes when absent, the store in `folder`.
  static Result<ModelStore> open(std::shared_ptr<Folder> folder);
  static Result<ModelStore> open(const std::string& path);

  const std::string& path() const { return root_->path(); }
  std::string blob_path(const std::string& sha256) const;

  /// All names, sorted; bad entries are part of the answer.
  Result<std::vector<StoredModel>> list() const;
  /// The entry of exactly this name. kNotFound when there is none.
  Result<StoredModel> find(const std::string& name) const;
  /// Whether the file of this digest is there with this size.
  bool has_blob(const std::string& sha256, uint64_t size) const;

  /// Takes away the name, and the file when no other name needs it.
  Result<RemoveResult> remove(const std::string& name);
  /// Reads the whole file again and compares its digest with the manifest's.
  Result<VerifyResult> verify(const std::string& name, const StopPolicy& stop,
                              const std::function<void(uint64_t done, uint64_t total)>& progress) const;

  /// Writes a manifest, replacing one of the same name. Call under lock().
  Status put(const Manifest& manifest);
  /// The store's lock.
  Result<FolderLock> lock(const StopPolicy& stop) const;
  /// Removes files that no name needs and what crashed or abandoned pulls left (older than two weeks).
  /// Returns the number of bytes freed.
  Result<uint64_t> clean(const StopPolicy& stop);

  Folder& blobs() const { return *blobs_; }
  Folder& partial() const { return *partial_; }
  Folder& root() const { return *root_; }

 private:
  StoredModel examine(const std::string& name) const;
  Result<bool> blob_is_needed(const std::string& sha256) const;
  uint64_t clean_partial(const std::string& key);

  std::shared_ptr<Folder> root_;
  std::shared_ptr<Folder> blobs_;
  std::shared_ptr<Folder> names_;
  std::shared_ptr<Folder> partial_;
};

}  // namespace isthmus
