// Files as the rest of the code sees them: a small interface, the real one behind it, and atomic publication.
//
// Whoever writes durable files takes a FileSystem&, so that tests can pass SimFileSystem (file_sim.h), which
// loses unsynced bytes and fails on demand. Implementations are safe to use from any thread; a WritableFile
// and an AtomicFile belong to one thread at a time. Errors: kNotFound (no such path), kResourceExhausted
// (disk or descriptors or a limit), kIo (anything else the system says); each names the path. A failed sync
// is final: the kernel may have dropped the dirty pages, so the file must be discarded, never synced again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace isthmus {

/// A file being written from its start to its end.
class WritableFile {
 public:
  virtual ~WritableFile() = default;  // closes, without syncing
  /// Writes all bytes, or fails; after a failure the contents are undefined.
  virtual Status append(std::span<const std::byte> bytes) = 0;
  /// Returns when the bytes are on stable storage.
  virtual Status sync() = 0;
  virtual Status close() = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  /// A new file, readable by its owner and group as the umask allows; fails when the name exists (a link
  /// included).
  virtual Result<std::unique_ptr<WritableFile>> create(const std::string& path) = 0;
  /// Replaces `to` in one step. Durable after sync_directory().
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status remove(const std::string& path) = 0;
  virtual Status sync_directory(const std::string& path) = 0;
  /// The whole file; kResourceExhausted when it has more than `limit` bytes.
  virtual Result<std::string> read(const std::string& path, size_t limit) = 0;
  virtual bool exists(const std::string& path) = 0;
};

/// The operating system's files. One object for the process.
FileSystem& real_file_system();

/// A file that appears under its name complete or not at all: a temporary in the same directory, then sync,
/// rename, sync of the directory. Destroying an unpublished one removes the temporary. Not copyable; movable.
class AtomicFile {
 public:
  static Result<AtomicFile> create(FileSystem& files, const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Status append(std::span<const std::byte> bytes);
  /// Makes the file visible and durable. On failure nothing is left under either name, except that a failed
  /// sync of the directory leaves the new file in place, complete, with its survival of a power cut unknown.
  Status publish();
  const std::string& path() const { return path_; }
  uint64_t bytes_written() const { return bytes_; }

 private:
  AtomicFile(FileSystem& files, std::string path, std::string temporary, std::unique_ptr<WritableFile> file);
  void discard();

  FileSystem* files_;
  std::string path_;
  std::string temporary_;  // empty once published, discarded or moved from
  std::unique_ptr<WritableFile> file_;
  uint64_t bytes_ = 0;
};

/// AtomicFile over bytes that are at hand.
Status publish_file(FileSystem& files, const std::string& path, std::span<const std::byte> bytes);

/// Names that AtomicFile gives its temporaries: "<final>.part-<digits>". Whoever owns a directory removes
/// leftovers of a crash by this test.
bool is_temporary_name(std::string_view path);

/// "models/x.gguf" -> "models"; "x.gguf" -> ".".
std::string directory_of(const std::string& path);

/// `err` is an errno value; the message is "cannot <action> '<path>': <reason>".
Status file_error(int err, std::string_view action, const std::string& path);

}  // namespace isthmus
