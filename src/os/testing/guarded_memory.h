// Test memory whose neighbours may not be touched: a buffer that ends (or begins) at a page without any
// access, so that one byte read or written outside of it ends the process at that instruction.
//
// Owns its pages; movable, not copyable. For tests only: the process ends when the system refuses the memory.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

namespace isthmus::testing_memory {

/// Where the forbidden page lies that the buffer touches. The other end has one too, up to a page away.
enum class Guard { kBehind, kBefore };

class GuardedMemory {
 public:
  /// `bytes` bytes of 0xEE. With kBehind the start is aligned only as `bytes` is.
  GuardedMemory(size_t bytes, Guard guard) : bytes_(bytes) {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t inner = (bytes + page - 1) / page * page;
    mapped_ = inner + 2 * page;
    void* all = ::mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) std::abort();
    base_ = static_cast<std::byte*>(all);
    if (inner > 0 && ::mprotect(base_ + page, inner, PROT_READ | PROT_WRITE) != 0) std::abort();
    data_ = base_ + page + (guard == Guard::kBehind ? inner - bytes : 0);
    if (bytes > 0) std::memset(data_, 0xEE, bytes);
  }
  GuardedMemory(GuardedMemory&& other) noexcept
      : bytes_(other.bytes_),
        mapped_(other.mapped_),
        base_(std::exchange(other.base_, nullptr)),
        data_(other.data_) {}
  GuardedMemory& operator=(GuardedMemory&&) = delete;
  ~GuardedMemory() {
    if (base_ != nullptr) ::munmap(base_, mapped_);
  }

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  /// Makes the buffer read-only from here on, as far as whole pages allow: all of it.
  void protect() const {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    if (mapped_ > 2 * page && ::mprotect(base_ + page, mapped_ - 2 * page, PROT_READ) != 0) std::abort();
  }

 private:
  size_t bytes_;
  size_t mapped_;
  std::byte* base_;
  std::byte* data_;
};

/// `n` values of T between guards.
template <class T>
class GuardedArray {
 public:
  GuardedArray(size_t n, Guard guard) : memory_(n * sizeof(T), guard), n_(n) {}
  template <class Source>
  GuardedArray(const Source& values, Guard guard) requires requires {
    values.data();
  } : GuardedArray(values.size(), guard) {
    if (n_ > 0) std::memcpy(data(), values.data(), n_ * sizeof(T));
  }
  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  size_t size() const { return n_; }
  std::span<T> span() const { return {data(), n_}; }
  /// Read-only from here on.
  void protect() const { memory_.protect(); }

 private:
  GuardedMemory memory_;
  size_t n_;
};

}  // namespace isthmus::testing_memory
