#include "os/paths_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

namespace isthmus {
namespace {

constexpr size_t kMaxEntries = 1'000'000;
constexpr size_t kMaxWrite = size_t{1} << 30;  // Linux writes at most 2 GiB at once
constexpr auto kLockPoll = std::chrono::milliseconds(50);

Status errno_status(int error, const std::string& what) {
  const std::string text = what + ": " + std::generic_category().message(error);
  switch (error) {
    case ENOENT:
      return not_found(text);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
      return resource_exhausted(text);
    case ELOOP:
      return failed_precondition(what + ": is a symbolic link, which is not followed here");
    default:
      return io_error(text);
  }
}

FileInfo info_of(const struct stat& st) {
  FileInfo out;
  out.device = static_cast<uint64_t>(st.st_dev);
  out.inode = static_cast<uint64_t>(st.st_ino);
  out.size = static_cast<uint64_t>(st.st_size);
  out.mtime_ns = static_cast<int64_t>(st.st_mtim.tv_sec) * 1'000'000'000 + st.st_mtim.tv_nsec;
  out.is_regular = S_ISREG(st.st_mode);
  out.is_folder = S_ISDIR(st.st_mode);
  return out;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

class PosixFile : public FolderFile {
 public:
  PosixFile(int fd, std::string label) : fd_(fd), label_(std::move(label)) {}

  Status write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_.get(), bytes.data(), std::min(bytes.size(), kMaxWrite));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno_status(errno, "writing " + label_);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return ok_status();
  }

  Result<size_t> read(std::span<std::byte> bytes) override {
    for (;;) {
      const ssize_t n = ::read(fd_.get(), bytes.data(), std::min(bytes.size(), kMaxWrite));
      if (n >= 0) return static_cast<size_t>(n);
      if (errno != EINTR) return errno_status(errno, "reading " + label_);
    }
  }

  Status seek(uint64_t offset) override {
    if (offset > INT64_MAX || ::lseek(fd_.get(), static_cast<off_t>(offset), SEEK_SET) < 0) {
      return errno_status(offset > INT64_MAX ? EINVAL : errno, "seeking in " + label_);
    }
    return ok_status();
  }

  Status truncate(uint64_t size) override {
    ISTHMUS_ASSIGN_OR_RETURN(const FileInfo now, info());
    if (size > now.size) return invalid_argument("growing " + label_ + " by truncate");
    if (::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0) {
      return errno_status(errno, "truncating " + label_);
    }
    return seek(size);
  }

  Status sync() override {
    if (::fsync(fd_.get()) != 0) return errno_status(errno, "syncing " + label_);
    return ok_status();
  }

  Result<FileInfo> info() const override {
    struct stat st {};
    if (::fstat(fd_.get(), &st) != 0) return errno_status(errno, "looking at " + label_);
    return info_of(st);
  }

 private:
  Descriptor fd_;
  std::string label_;
};

class PosixFolder : public Folder {
 public:
  PosixFolder(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  const std::string& path() const override { return path_; }
  int descriptor() const override { return fd_.get(); }

  Result<std::unique_ptr<FolderFile>> open_file(const std::string& name, OpenMode mode) override {
    int flags = O_RDONLY;
    if (mode == OpenMode::kCreateNew) flags = O_RDWR | O_CREAT | O_EXCL;
    if (mode == OpenMode::kUpdate) flags = O_RDWR | O_CREAT;
    ISTHMUS_ASSIGN_OR_RETURN(const int fd, open_entry(name, flags));
    auto file = std::make_unique<PosixFile>(fd, label(name));
    ISTHMUS_ASSIGN_OR_RETURN(const FileInfo what, file->info());
    if (!what.is_regular) return failed_precondition(label(name) + " is not a regular file");
    return std::unique_ptr<FolderFile>(std::move(file));
  }

  Result<std::shared_ptr<Folder>> subfolder(const std::string& name) override {
    ISTHMUS_RETURN_IF_ERROR(check(name));
    if (::mkdirat(fd_.get(), name.c_str(), 0755) != 0 && errno != EEXIST) {
      return errno_status(errno, "making folder " + label(name));
    }
    const int fd = ::openat(fd_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    // A link gives ENOTDIR here, because O_DIRECTORY is looked at first.
    if (fd < 0) {
      if (errno == ENOTDIR) return failed_precondition(label(name) + " is a link or not a folder");
      return errno_status(errno, "opening folder " + label(name));
    }
    return std::shared_ptr<Folder>(std::make_shared<PosixFolder>(fd, label(name)));
  }

  Result<FileInfo> info(const std::string& name) override {
    ISTHMUS_RETURN_IF_ERROR(check(name));
    struct stat st {};
    if (::fstatat(fd_.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      return errno_status(errno, "looking at " + label(name));
    }
    return info_of(st);
  }

  Result<std::vector<std::string>> list() override {
    const int copy = ::openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* dir = copy < 0 ? nullptr : ::fdopendir(copy);
    if (dir == nullptr) {
      const int error = errno;
      if (copy >= 0) ::close(copy);
      return errno_status(error, "listing " + path_);
    }
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(dir)) {
      if (is_entry_name(entry->d_name)) names.emplace_back(entry->d_name);
      if (names.size() > kMaxEntries) break;
    }
    ::closedir(dir);
    if (names.size() > kMaxEntries) return resource_exhausted(path_ + " has over 1,000,000 entries");
    std::sort(names.begin(), names.end());
    return names;
  }

  Status rename(const std::string& name, Folder& target, const std::string& new_name) override {
    ISTHMUS_RETURN_IF_ERROR(check(name));
    ISTHMUS_RETURN_IF_ERROR(check(new_name));
    if (::renameat(fd_.get(), name.c_str(), target.descriptor(), new_name.c_str()) != 0) {
      return errno_status(errno, "renaming " + label(name) + " to " + target.path() + "/" + new_name);
    }
    return ok_status();
  }

  Status remove(const std::string& name) override {
    ISTHMUS_RETURN_IF_ERROR(check(name));
    if (::unlinkat(fd_.get(), name.c_str(), 0) != 0 && errno != ENOENT) {
      return errno_status(errno, "removing " + label(name));
    }
    return ok_status();
  }

  Status remove_tree(const std::string& name) override {
    ISTHMUS_RETURN_IF_ERROR(check(name));
    std::error_code error;
    std::filesystem::remove_all(std::filesystem::path(path_) / name, error);
    if (error) return errno_status(error.value(), "removing " + label(name));
    return ok_status();
  }

  Status make_read_only(const std::string& name) override {
    ISTHMUS_ASSIGN_OR_RETURN(const int raw, open_entry(name, O_RDONLY));
    const Descriptor fd(raw);
    if (::fchmod(fd.get(), 0444) != 0) return errno_status(errno, "setting the mode of " + label(name));
    return ok_status();
  }

  Status sync() override {
    if (::fsync(fd_.get()) != 0) return errno_status(errno, "syncing folder " + path_);
    return ok_status();
  }

  Result<uint64_t> free_bytes() override {
    struct statvfs fs {};
    if (::fstatvfs(fd_.get(), &fs) != 0) return errno_status(errno, "asking for the free space of " + path_);
    return static_cast<uint64_t>(fs.f_bavail) * static_cast<uint64_t>(fs.f_frsize);
  }

  Result<FolderLock> lock(const std::string& name, const StopPolicy& stop,
                          const std::function<void()>& on_wait) override {
    bool told = false;
    for (;;) {
      auto held = try_lock(name);
      if (held.ok() || held.status().code() != Code::kUnavailable) return held;
      if (!told && on_wait) on_wait();
      told = true;
      ISTHMUS_RETURN_IF_ERROR(stop.check());
      std::this_thread::sleep_for(kLockPoll);
    }
  }

  Result<FolderLock> try_lock(const std::string& name) override {
    for (;;) {
      ISTHMUS_ASSIGN_OR_RETURN(const int raw, open_entry(name, O_RDWR | O_CREAT));
      Descriptor fd(raw);
      if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR) continue;
        if (errno == EWOULDBLOCK) return unavailable(label(name) + " is held by another process");
        return errno_status(errno, "locking " + label(name));
      }
      // The holder before us may have removed the file after we opened it; then our lock guards nothing.
      struct stat ours {};
      struct stat named {};
      if (::fstat(fd.get(), &ours) != 0) return errno_status(errno, "looking at " + label(name));
      if (::fstatat(fd_.get(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0) continue;
      if (ours.st_ino == named.st_ino && ours.st_dev == named.st_dev) return FolderLock(fd.release());
    }
  }

 private:
  std::string label(const std::string& name) const { return path_ + "/" + name; }

  Status check(const std::string& name) const {
    if (is_entry_name(name)) return ok_status();
    return invalid_argument("not the name of an entry of " + path_);
  }

  Result<int> open_entry(const std::string& name, int flags) {
    ISTHMUS_RETURN_IF_ERROR(check(name));
    // O_NONBLOCK: a planted FIFO must not block the open; it has no effect on regular files.
    const int fd = ::openat(fd_.get(), name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0644);
    if (fd < 0) return errno_status(errno, "opening " + label(name));
    return fd;
  }

  Descriptor fd_;
  std::string path_;
};

}  // namespace

bool is_entry_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

FolderLock::FolderLock(FolderLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
  if (this != &other) {
    release();
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

FolderLock::~FolderLock() { release(); }

void FolderLock::release() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

Result<FileInfo> file_info(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return errno_status(errno, "looking at " + path);
  return info_of(st);
}

Result<std::shared_ptr<Folder>> posix_folder(const std::string& path, bool create) {
  if (create) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return errno_status(error.value(), "making folder " + path);
  }
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno_status(errno, "opening folder " + path);
  return std::shared_ptr<Folder>(std::make_shared<PosixFolder>(fd, path));
}

Result<std::string> read_text(Folder& folder, const std::string& name, size_t max_bytes) {
  ISTHMUS_ASSIGN_OR_RETURN(auto file, folder.open_file(name, OpenMode::kRead));
  std::string out;
  std::vector<std::byte> buffer(16384);
  for (;;) {
    ISTHMUS_ASSIGN_OR_RETURN(const size_t n, file->read(buffer));
    if (n == 0) return out;
    if (n > max_bytes - out.size()) {
      return resource_exhausted(folder.path() + "/" + name + " is over " + std::to_string(max_bytes) +
                                " bytes");
    }
    out.append(reinterpret_cast<const char*>(buffer.data()), n);
  }
}

Status publish_text(Folder& folder, const std::string& name, std::string_view text) {
  const std::string temporary = name + ".tmp";
  ISTHMUS_RETURN_IF_ERROR(folder.remove(temporary));
  Status done = [&]() -> Status {
    ISTHMUS_ASSIGN_OR_RETURN(auto file, folder.open_file(temporary, OpenMode::kCreateNew));
    ISTHMUS_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(text))));
    ISTHMUS_RETURN_IF_ERROR(file->sync());
    return folder.rename(temporary, folder, name);
  }();
  if (!done.ok()) {
    // The first error is the one to report; a leftover temporary is replaced by the next attempt.
    static_cast<void>(folder.remove(temporary));
    return done;
  }
  return folder.sync();
}

}  // namespace isthmus
