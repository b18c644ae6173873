// A folder that we own, reached through its open descriptor: every operation names one entry directly inside
// it, never a path, and never follows a symbolic link at that entry.
//
// So no name that comes from outside can reach another place, and a link planted in the folder is refused
// with kFailedPrecondition. The folder itself is opened by path (links there are the user's own choice).
// Folder and FolderFile are interfaces: posix_folder() is the real thing, paths_faulty_folder.h the twin that
// fails on demand. A Folder may be used from several threads; a FolderFile from one at a time. Errors:
// kNotFound, kIo, kResourceExhausted (disk or quota full), kFailedPrecondition (a link, not a regular file),
// kInvalidArgument (a bad entry name).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"

namespace isthmus {

/// One entry name: 1 to 255 bytes, not "." or "..", without '/' and NUL.
bool is_entry_name(std::string_view name);

/// What identifies the content of a file until somebody writes to it.
struct FileInfo {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t mtime_ns = 0;  // since the epoch
  bool is_regular = false;
  bool is_folder = false;
};

/// FileInfo of any path, links followed (a user's own model file).
Result<FileInfo> file_info(const std::string& path);

/// One open regular file. Closed by the destructor.
class FolderFile {
 public:
  virtual ~FolderFile() = default;
  /// Writes all of `bytes` at the current position.
  virtual Status write(std::span<const std::byte> bytes) = 0;
  /// Reads up to bytes.size() from the current position; 0 at the end of the file.
  virtual Result<size_t> read(std::span<std::byte> bytes) = 0;
  virtual Status seek(uint64_t offset) = 0;
  /// Cuts (never grows) the file to `size` and moves to its end.
  virtual Status truncate(uint64_t size) = 0;
  /// fsync. After a failure the content of the file is unknown: drop it, do not retry.
  virtual Status sync() = 0;
  virtual Result<FileInfo> info() const = 0;
};

/// An flock() on a lock file; released by the destructor, or by the system when the process dies.
class FolderLock {
 public:
  FolderLock() = default;
  explicit FolderLock(int descriptor) : descriptor_(descriptor) {}
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) noexcept;
  ~FolderLock();
  void release();

 private:
  int descriptor_ = -1;
};

enum class OpenMode {
  kRead,       // must exist
  kCreateNew,  // must not exist
  kUpdate,     // read and write, created when absent, position 0
};

class Folder {
 public:
  virtual ~Folder() = default;
  virtual const std::string& path() const = 0;

  virtual Result<std::unique_ptr<FolderFile>> open_file(const std::string& name, OpenMode mode) = 0;
  /// The folder `name` inside this one, created (0755) when absent.
  virtual Result<std::shared_ptr<Folder>> subfolder(const std::string& name) = 0;
  /// kNotFound when there is no such entry; a link is reported as neither regular nor folder.
  virtual Result<FileInfo> info(const std::string& name) = 0;
  /// Entry names, sorted, at most 1,000,000.
  virtual Result<std::vector<std::string>> list() = 0;
  /// Moves an entry into `target` (same file system), replacing what has that name there.
  virtual Status rename(const std::string& name, Folder& target, const std::string& new_name) = 0;
  /// Removes a file or link; OK when there is none.
  virtual Status remove(const std::string& name) = 0;
  /// Removes an entry and, if it is a folder, all inside it; links inside are removed, not followed.
  virtual Status remove_tree(const std::string& name) = 0;
  /// Takes away the write permission of a file.
  virtual Status make_read_only(const std::string& name) = 0;
  /// fsync of the folder: makes creations, renames and removals durable.
  virtual Status sync() = 0;
  /// Bytes that this user may still write on the file system.
  virtual Result<uint64_t> free_bytes() = 0;
  /// Takes the exclusive lock of the lock file `name` (made when absent), waiting as `stop` allows; `on_wait`
  /// is called once when somebody else holds it.
  virtual Result<FolderLock> lock(const std::string& name, const StopPolicy& stop,
                                  const std::function<void()>& on_wait) = 0;
  /// The same without waiting: kUnavailable when somebody else holds it.
  virtual Result<FolderLock> try_lock(const std::string& name) = 0;

  virtual int descriptor() const = 0;
};

/// Opens `path`, creating it and its parents (0755) when `create`.
Result<std::shared_ptr<Folder>> posix_folder(const std::string& path, bool create);

/// Reads a whole file of the folder; kResourceExhausted above `max_bytes`.
Result<std::string> read_text(Folder& folder, const std::string& name, size_t max_bytes);

/// Publishes a small file: a temporary beside it, write, fsync, rename, fsync of the folder. Readers see the
/// old content or the new one. Two writers of one name need a lock between them.
Status publish_text(Folder& folder, const std::string& name, std::string_view text);

}  // namespace isthmus
