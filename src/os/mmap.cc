#include "os/mmap.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/checked.h"
#include "os/cpu.h"
#include "os/file.h"
#include "os/file_descriptor.h"

namespace isthmus {
namespace {

FileIdentity identity_of(const struct stat& info) {
  constexpr int64_t kNsPerSecond = 1'000'000'000;
  return {static_cast<uint64_t>(info.st_dev), static_cast<uint64_t>(info.st_ino),
          static_cast<uint64_t>(info.st_size), info.st_mtim.tv_sec * kNsPerSecond + info.st_mtim.tv_nsec,
          info.st_ctim.tv_sec * kNsPerSecond + info.st_ctim.tv_nsec};
}

int system_advice(MappedFile::Advice advice) {
  switch (advice) {
    case MappedFile::Advice::kSequential:
      return MADV_SEQUENTIAL;
    case MappedFile::Advice::kRandom:
      return MADV_RANDOM;
    case MappedFile::Advice::kWillNeed:
      return MADV_WILLNEED;
    case MappedFile::Advice::kDrop:
      return MADV_DONTNEED;
    case MappedFile::Advice::kNormal:
      break;
  }
  return MADV_NORMAL;
}

Status truncated(const std::string& path) {
  return corrupt(fmt::format("'{}' was truncated while in use", path));
}

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

Result<FileIdentity> file_identity(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return file_error(errno, "examine", path);
  return identity_of(info);
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO by mistake must not hang; it means nothing for a regular file.
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return file_error(errno, "open", path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return file_error(errno, "examine", path);
  if (!S_ISREG(info.st_mode)) return invalid_argument(fmt::format("'{}' is not a regular file", path));
  MappedFile file;
  file.path_ = path;
  file.identity_ = identity_of(info);
  const auto size = checked_cast<size_t>(info.st_size);
  if (!size) return resource_exhausted(fmt::format("'{}' is too large to map", path));
  if (*size == 0) return file;
  void* data = ::mmap(nullptr, *size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return file_error(errno, "map", path);
  file.data_ = static_cast<std::byte*>(data);
  file.size_ = *size;
  file.guard_ = MappingGuard(data, round_up(*size, page_bytes()));
  file.fd_ = std::move(fd);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      guard_(std::move(other.guard_)),
      fd_(std::move(other.fd_)),
      identity_(other.identity_),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(guard_, other.guard_);
  std::swap(fd_, other.fd_);
  std::swap(identity_, other.identity_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  guard_.release();  // before the addresses may belong to somebody else
  if (data_ != nullptr) ::munmap(data_, size_);
}

Status MappedFile::intact() const {
  if (data_ == nullptr) return ok_status();
  if (guard_.damaged()) return truncated(path_);
  // The rest of the page in which a file now ends reads as zeros without a signal.
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return file_error(errno, "examine", path_);
  return static_cast<uint64_t>(info.st_size) < size_ ? truncated(path_) : ok_status();
}

Status MappedFile::read_at(uint64_t offset, std::span<std::byte> out) const {
  if (offset > size_ || out.size() > size_ - offset) {
    return invalid_argument(
        fmt::format("'{}': {} bytes at {} lie outside of the file", path_, out.size(), offset));
  }
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_error(errno, "read", path_);
    if (got == 0) return truncated(path_);
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return ok_status();
}

Status MappedFile::advise(Advice advice, size_t offset, size_t length) const {
  if (offset >= size_ || length == 0) return ok_status();
  const size_t first = offset / page_bytes() * page_bytes();
  const size_t last = offset + std::min(length, size_ - offset);
  if (::madvise(data_ + first, last - first, system_advice(advice)) != 0) {
    return file_error(errno, "advise about", path_);
  }
  return ok_status();
}

Result<HugeArena> HugeArena::allocate(size_t bytes) {
  HugeArena arena;
  if (bytes == 0) return arena;
  const auto size = checked_round_up(bytes, kPageBytes);
  const auto reserve = size ? checked_add(*size, kPageBytes) : std::nullopt;
  if (!reserve) return resource_exhausted(fmt::format("an arena of {} bytes cannot exist", bytes));
  // One huge page more than needed, so that an aligned start lies inside; both ends are given back.
  void* raw = ::mmap(nullptr, *reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED)
    return resource_exhausted(fmt::format("the system refused {} bytes of memory", *size));
  const auto address = reinterpret_cast<uintptr_t>(raw);
  const size_t head = round_up(address, uintptr_t{kPageBytes}) - address;
  arena.data_ = static_cast<std::byte*>(raw) + head;
  arena.size_ = *size;
  if (head > 0) ::munmap(raw, head);
  if (kPageBytes - head > 0) ::munmap(arena.data_ + *size, kPageBytes - head);
  // A refusal only costs time: small pages serve as well.
  static_cast<void>(::madvise(arena.data_, arena.size_, MADV_HUGEPAGE));
  return arena;
}

uint64_t HugeArena::resident_bytes(uint64_t bytes) {
  const uint64_t page = os::huge_page_mode() == "never" ? page_bytes() : kPageBytes;
  return checked_round_up(bytes, page).value_or(UINT64_MAX);
}

HugeArena::HugeArena(HugeArena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

HugeArena& HugeArena::operator=(HugeArena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

HugeArena::~HugeArena() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Status HugeArena::release(size_t offset, size_t length) {
  if (offset > size_ || length > size_ - offset) return invalid_argument("release() outside of the arena");
  const size_t first = round_up(offset, page_bytes());
  const size_t last = (offset + length) / page_bytes() * page_bytes();
  if (first >= last) return ok_status();
  if (::madvise(data_ + first, last - first, MADV_DONTNEED) != 0) {
    return resource_exhausted("the system refused to take memory back");
  }
  return ok_status();
}

}  // namespace isthmus
