// Memory from the system: read-only file mappings, and anonymous arenas on huge pages.
//
// Both own their pages and unmap them when destroyed; movable, not copyable. Reading is safe from any thread;
// advice may be given from any thread. A mapping shows the file as it is now. If somebody truncates the file
// later (or its disk fails), the lost pages read as zeros and the mapping is damaged (mapping_guard.h says
// how): who reads it asks intact() afterwards and throws away what was read when that is an error. Models are
// published by rename and never rewritten in place, so this happens to hand-made changes only. Errors:
// kNotFound, kResourceExhausted, kIo with the path; kInvalidArgument for what is not a regular file; kCorrupt
// for a file that was truncated while in use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "os/file_descriptor.h"
#include "os/mapping_guard.h"

namespace isthmus {

/// What tells one version of a file from another without reading it.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t modified_ns = 0;  // since the epoch
  int64_t changed_ns = 0;   // of the inode: unlike the one above, no program can set it back
  bool operator==(const FileIdentity&) const = default;
};

Result<FileIdentity> file_identity(const std::string& path);

class MappedFile {
 public:
  enum class Advice {
    kNormal,
    kSequential,  // read ahead a lot
    kRandom,      // read ahead nothing
    kWillNeed,    // start reading now
    kDrop,        // the pages leave this process's resident set; a later access reads them again
  };

  /// Maps the whole regular file; an empty file gives an empty span.
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const FileIdentity& identity() const { return identity_; }
  const std::string& path() const { return path_; }

  /// OK when every read through bytes() so far has seen the file; kCorrupt once one has met a lost page or
  /// the file is shorter than it was.
  Status intact() const;
  /// Reads [offset, offset + out.size()) with a system call instead of through the mapping: no page of it
  /// becomes resident. kInvalidArgument outside of the file as it was mapped; kCorrupt when it is shorter
  /// now.
  Status read_at(uint64_t offset, std::span<std::byte> out) const;

  /// Advice for [offset, offset + length), cut to the file and widened to whole pages. Wrong advice only
  /// costs time, so a refusal by the system is reported but may be ignored.
  Status advise(Advice advice, size_t offset, size_t length) const;

 private:
  MappedFile() = default;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  MappingGuard guard_;
  FileDescriptor fd_;
  FileIdentity identity_;
  std::string path_;
};

/// Zeroed memory for weights and caches, aligned to 2 MiB and marked for transparent huge pages (fewer TLB
/// misses when streaming weights). Pages are taken when first touched.
class HugeArena {
 public:
  static constexpr size_t kPageBytes = size_t{2} << 20;

  HugeArena() = default;  // empty
  static Result<HugeArena> allocate(size_t bytes);
  /// What an arena of `bytes` takes once all of it was touched: whole pages of the size that the system
  /// gives.
  static uint64_t resident_bytes(uint64_t bytes);
  HugeArena(HugeArena&& other) noexcept;
  HugeArena& operator=(HugeArena&& other) noexcept;
  ~HugeArena();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }  // as asked for, rounded up to whole huge pages
  /// Gives whole pages inside [offset, offset + length) back; they read as zero afterwards.
  Status release(size_t offset, size_t length);

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace isthmus
