// The file of a pull that is still going on: data, its running SHA-256, and a record from which an
// interrupted pull goes on. Lives in the store's "partial" folder under the lock of its key, and is published
// or dropped at the end.
//
//   <key>.data   the bytes so far
//   <key>.json   {"format": 1, "source", "parts_done", "part_begin", "safe", "validator", "linked_sha256"}
//
// part_begin is where the part under way begins, safe how many bytes had reached the disk when the record was
// written. Not thread-safe: the holder of the lock is the only user. Errors: those of Folder, and kCorrupt
// never: a record that cannot be used means starting from nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/cancel.h"
#include "base/status.h"
#include "os/paths_folder.h"
#include "store/sha256.h"

namespace isthmus {

class PartialFile {
 public:
  /// Opens the partial file of `key` for `source`. What is there from another source is dropped. Of what is
  /// there from the same one, all is kept when `trust_unsynced` (a digest will tell), else only what had
  /// surely reached the disk. The kept bytes are hashed again; `progress` gets their number in steps.
  static Result<std::unique_ptr<PartialFile>> open(Folder& folder, const std::string& key,
                                                   const std::string& source, bool trust_unsynced,
                                                   const StopPolicy& stop,
                                                   const std::function<void(uint64_t)>& progress);

  uint64_t size() const { return size_; }
  size_t parts_done() const { return parts_done_; }
  uint64_t part_begin() const { return part_begin_; }
  const std::string& validator() const { return validator_; }
  const std::string& linked_sha256() const { return linked_sha256_; }

  /// Appends; syncs and writes the record every 64 MiB.
  Status append(std::span<const std::byte> bytes);
  /// Drops everything from `size` on (hashing the rest anew when that is not the end).
  Status cut(uint64_t size, const StopPolicy& stop);
  /// Remembers what a server said about the part under way.
  Status set_validator(const std::string& validator, const std::string& linked_sha256);
  /// The part under way is complete.
  Status finish_part();
  /// Makes everything so far durable and recorded.
  Status checkpoint();

  /// First `count` bytes of the file, or fewer when it is shorter.
  Result<std::string> head(size_t count);
  /// The digest of the whole; nothing can be appended after.
  Result<std::string> finish_digest();
  /// Moves the data, durable and read-only, to `target`/`name`, and drops the record. The object is then used
  /// up.
  Status publish(Folder& target, const std::string& name);
  /// Removes data and record.
  Status drop();

 private:
  PartialFile(Folder& folder, std::string key, std::string source)
      : folder_(folder), key_(std::move(key)), source_(std::move(source)) {}
  void load_record(bool trust_unsynced, uint64_t file_size);
  Status rehash(const StopPolicy& stop, const std::function<void(uint64_t)>& progress);
  Status write_record();
  std::string data_name() const { return key_ + ".data"; }
  std::string record_name() const { return key_ + ".json"; }

  Folder& folder_;
  const std::string key_;
  const std::string source_;
  std::unique_ptr<FolderFile> file_;
  Sha256 hash_;
  uint64_t size_ = 0;
  uint64_t safe_ = 0;
  size_t parts_done_ = 0;
  uint64_t part_begin_ = 0;
  std::string validator_;
  std::string linked_sha256_;
};

}  // namespace isthmus
