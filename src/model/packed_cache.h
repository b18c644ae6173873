// Packed weights kept on disk, so that a second start reads them instead of packing again.
//
// One file per model and kind of packing, in one folder; docs/formats/packed-cache.md has its bytes, the rule
// for "valid" and the measurement behind reading it into huge pages instead of mapping it. A cache never
// turns a start that would work into one that does not: whatever is wrong with it (absent, another model,
// damaged, no space, no permission) is a miss with a reason, and the weights are packed from the model. Files
// appear whole or not at all; any number of processes may share the folder. A PackedCache belongs to one
// model and one thread; its writer is a thread of its own that runs where a CPU has nothing else to do.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/cancel.h"
#include "base/status.h"
#include "format/gguf.h"
#include "model/packed_format.h"
#include "os/file.h"
#include "os/paths.h"
#include "threads/pool.h"

namespace isthmus {

struct PackedCacheOptions {
  /// Where the files are; empty: no cache. The folder is made when the first file is written.
  std::string folder;
  /// Most bytes of all files together; the oldest go first.
  uint64_t limit = uint64_t{16} << 30;
  FileSystem* files = nullptr;  // for writing; null: the real one
  /// Why there is no folder, for the report; empty: nobody wanted one.
  std::string why_off;
};

/// The standard folder, <cache>/packed; options without a folder, and with the reason, where there is none or
/// where the variable ISTHMUS_PACKED_CACHE says "off" or what is not understood ("on" is the default).
PackedCacheOptions standard_packed_cache(const EnvLookup& env = process_env);

enum class PackedState {
  kOff,      // not asked for, or not for this kind of packing
  kHit,      // the weights came from the cache
  kWriting,  // they were packed; the file is being written
  kWritten,
  kFailed,  // it cannot be written: the reason is in the report
};

/// "off", "hit", "writing", "written", "failed".
std::string_view packed_state_name(PackedState state);

struct PackedReport {
  PackedState state = PackedState::kOff;
  std::string reason;  // off and failed: why; writing and written: why there was no hit
};

class PackedCache {
 public:
  PackedCache() = default;  // off
  /// `suffix` tells files of one model that hold different things.
  PackedCache(const GgufFile& file, bool float32, uint64_t data_bytes, std::vector<PackedEntry> entries,
              PackedCacheOptions options, StopPolicy stop, std::string_view suffix = "");
  PackedCache(const PackedCache&) = delete;
  PackedCache& operator=(const PackedCache&) = delete;
  /// Waits until the file is written, or until the stop policy ends that.
  ~PackedCache();

  /// The data, checked to the last byte; an error is a miss, kept as the reason.
  Result<HugeArena> read(ThreadPool& pool);
  /// Starts to write `data`, which must stay until this object is gone. Does nothing when off.
  void write(std::span<const std::byte> data);
  PackedReport report() const;

 private:
  Result<HugeArena> read_checked(ThreadPool& pool) const;
  Status write_file(std::span<const std::byte> data) const;
  Status check_model() const;
  void set(PackedState state, std::string reason);

  PackedKey key_;
  PackedCacheOptions options_;
  StopPolicy stop_;
  std::vector<std::string> model_paths_;
  std::string name_;  // in the folder
  std::string path_;
  mutable std::mutex mutex_;
  PackedReport report_;  // under mutex_
  std::thread writer_;
};

/// What lies in the folder.
struct PackedFolderFacts {
  size_t files = 0;
  uint64_t bytes = 0;
};
PackedFolderFacts packed_folder_facts(const std::string& folder);

/// Removes the files of the model at `model_path` (which may be gone already); the number of bytes freed.
uint64_t remove_packed(const std::string& folder, const std::string& model_path);

/// Removes what is of no use any more: files of models that are gone or have changed, of other versions,
/// damaged heads, leftovers of crashes; then the oldest until `needed` more bytes are within `limit`. `keep`
/// is a file name that is not judged. The number of bytes freed.
uint64_t clean_packed(const std::string& folder, const std::string& keep, uint64_t needed, uint64_t limit);

}  // namespace isthmus
