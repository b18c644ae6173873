// Keeps the process alive when somebody truncates a file that is mapped: private to src/os, used by
// MappedFile.
//
// Touching a page that the file has lost raises SIGBUS. The first registration installs one handler for the
// process: an address inside a registered range gets pages of zeros from there to the end of the range and
// the range is marked as damaged; any other address goes to the handler that was there before, or to the
// default. Whoever reads a mapping asks damaged() afterwards and throws away what was read. A program that
// installs its own SIGBUS handler later, without passing on what it does not know, switches this off.
// Thread-safe; no errors.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace isthmus {

class MappingGuard {
 public:
  /// Guards nothing.
  MappingGuard() = default;
  /// Guards [data, data + bytes), whole pages of a mapping that outlives this object.
  MappingGuard(const void* data, size_t bytes);
  MappingGuard(MappingGuard&& other) noexcept;
  MappingGuard& operator=(MappingGuard&& other) noexcept;
  ~MappingGuard() { release(); }

  /// Stops guarding. Before the range is unmapped.
  void release();

  /// Whether a read has met a page that the file no longer had.
  bool damaged() const;

  /// One guarded range. The table of them only grows, so that the signal handler may walk it at any moment.
  struct Slot {
    std::atomic<uintptr_t> begin{0};  // 0: free
    std::atomic<uintptr_t> end{0};
    std::atomic<bool> damaged{false};
    Slot* next = nullptr;  // set before the slot is published
  };

 private:
  Slot* slot_ = nullptr;
};

}  // namespace isthmus
