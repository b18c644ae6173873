// Memory from the system: read-only file mappings, and anonymous arenas on huge pages.
//
// Both own their pages and unmap them when destroyed; movable, not copyable. Reading is safe from any thread;
// advice may be given from any thread. A mapping shows the file as it is now: if somebody truncates the file
// later, touching the lost pages raises SIGBUS, which is why model files are published by rename and never
// rewritten in place. Errors: kNotFound, kResourceExhausted, kIo with the path; kInvalidArgument for what is
// not a regular file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace isthmus {

/// What tells one version of a file from another without reading it.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t modified_ns = 0;  // since the epoch
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

  /// Advice for [offset, offset + length), cut to the file and widened to whole pages. Wrong advice only
  /// costs time, so a refusal by the system is reported but may be ignored.
  Status advise(Advice advice, size_t offset, size_t length) const;

 private:
  MappedFile() = default;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
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
  HugeArena(HugeArena&& other) noexcept;
  HugeArena& operator=(HugeArena&& other) noexcept;
  ~HugeArena();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }  // as asked for, rounded up to whole huge pages
  /// Whether the system took the request for huge pages; it may still use small ones for lack of free memory.
  bool huge_pages_advised() const { return advised_; }
  /// Gives whole pages inside [offset, offset + length) back; they read as zero afterwards.
  Status release(size_t offset, size_t length);

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  bool advised_ = false;
};

}  // namespace isthmus
