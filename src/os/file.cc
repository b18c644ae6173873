#include "os/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "os/file_descriptor.h"

namespace isthmus {
namespace {

constexpr size_t kMaxWrite = size_t{1} << 30;  // write() takes at most 2 GiB at once
constexpr size_t kReadStep = size_t{64} << 10;
constexpr std::string_view kTemporaryMark = ".part-";

class RealFile final : public WritableFile {
 public:
  RealFile(FileDescriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Status append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_.get(), bytes.data(), std::min(bytes.size(), kMaxWrite));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return file_error(errno, "write", path_);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return ok_status();
  }

  Status sync() override {
    if (::fsync(fd_.get()) != 0) return file_error(errno, "sync", path_);
    return ok_status();
  }

  Status close() override {
    // On Linux the descriptor is gone whatever close() returns, so it is never closed twice.
    if (::close(fd_.release()) != 0 && errno != EINTR) return file_error(errno, "close", path_);
    return ok_status();
  }

 private:
  FileDescriptor fd_;
  std::string path_;
};

class RealFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override {
    FileDescriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!fd.valid()) return file_error(errno, "create", path);
    return std::unique_ptr<WritableFile>(std::make_unique<RealFile>(std::move(fd), path));
  }

  Status rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return file_error(errno, "rename to", to);
    return ok_status();
  }

  Status remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) return file_error(errno, "remove", path);
    return ok_status();
  }

  Status sync_directory(const std::string& path) override {
    const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid()) return file_error(errno, "open directory", path);
    if (::fsync(fd.get()) != 0) return file_error(errno, "sync directory", path);
    return ok_status();
  }

  Result<std::string> read(const std::string& path, size_t limit) override {
    const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return file_error(errno, "open", path);
    std::string text;
    // Grows with what really arrives: the size that a file states may be wrong (pipes, /proc).
    for (;;) {
      const size_t have = text.size();
      const size_t step = std::min(std::max(kReadStep, have), limit - have + 1);
      text.resize(have + step);
      const ssize_t n = ::read(fd.get(), text.data() + have, step);
      text.resize(have + static_cast<size_t>(std::max<ssize_t>(n, 0)));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return file_error(errno, "read", path);
      if (n == 0) return text;
      if (text.size() > limit) {
        return resource_exhausted(fmt::format("'{}' has more than the {} bytes allowed here", path, limit));
      }
    }
  }

  bool exists(const std::string& path) override {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0;
  }
};

/// Unique in this process; O_EXCL settles the rest.
std::string temporary_name(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  return fmt::format("{}{}{}{:06}", path, kTemporaryMark, ::getpid(), counter.fetch_add(1) % 1000000);
}

}  // namespace

FileSystem& real_file_system() {
  static RealFileSystem files;
  return files;
}

Status file_error(int err, std::string_view action, const std::string& path) {
  const auto reason = std::system_category().message(err);
  auto message = fmt::format("cannot {} '{}': {}", action, path, reason);
  switch (err) {
    case ENOENT:
    case ENOTDIR:
      return not_found(std::move(message));
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EFBIG:
      return resource_exhausted(std::move(message));
    default:
      return io_error(std::move(message));
  }
}

std::string directory_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

bool is_temporary_name(std::string_view path) {
  const size_t mark = path.rfind(kTemporaryMark);
  if (mark == std::string_view::npos || mark == 0) return false;
  const auto digits = path.substr(mark + kTemporaryMark.size());
  return !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
}

AtomicFile::AtomicFile(FileSystem& files, std::string path, std::string temporary,
                       std::unique_ptr<WritableFile> file)
    : files_(&files), path_(std::move(path)), temporary_(std::move(temporary)), file_(std::move(file)) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : files_(other.files_),
      path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      file_(std::move(other.file_)),
      bytes_(other.bytes_) {}

AtomicFile::~AtomicFile() { discard(); }

Result<AtomicFile> AtomicFile::create(FileSystem& files, const std::string& path) {
  if (path.empty() || path.back() == '/') {
    return invalid_argument(fmt::format("'{}' is not the name of a file", path));
  }
  auto temporary = temporary_name(path);
  ISTHMUS_ASSIGN_OR_RETURN(auto file, files.create(temporary));
  return AtomicFile(files, path, std::move(temporary), std::move(file));
}

Status AtomicFile::append(std::span<const std::byte> bytes) {
  if (file_ == nullptr)
    return failed_precondition(fmt::format("'{}' is not open for writing any more", path_));
  auto status = file_->append(bytes);
  if (!status.ok()) {
    discard();
    return status;
  }
  bytes_ += bytes.size();
  return status;
}

Status AtomicFile::publish() {
  if (file_ == nullptr)
    return failed_precondition(fmt::format("'{}' is not open for writing any more", path_));
  auto status = file_->sync();
  const auto file = std::exchange(file_, nullptr);
  const auto closed = file->close();
  if (status.ok()) status = closed;
  if (status.ok()) status = files_->rename(temporary_, path_);
  if (!status.ok()) {
    discard();
    return status;
  }
  temporary_.clear();
  return files_->sync_directory(directory_of(path_));
}

void AtomicFile::discard() {
  file_.reset();
  if (temporary_.empty()) return;
  // Nothing more can be done when this fails; is_temporary_name() lets a later sweep find it.
  static_cast<void>(files_->remove(temporary_));
  temporary_.clear();
}

Status publish_file(FileSystem& files, const std::string& path, std::span<const std::byte> bytes) {
  ISTHMUS_ASSIGN_OR_RETURN(auto file, AtomicFile::create(files, path));
  ISTHMUS_RETURN_IF_ERROR(file.append(bytes));
  return file.publish();
}

}  // namespace isthmus
