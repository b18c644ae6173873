// Memory at a chosen alignment that frees itself, for packed matrices and kernel scratch. The holder owns it;
// null when there is none to be had, which the caller reports. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace isthmus {

struct FreeDeleter {
  void operator()(std::byte* p) const { std::free(p); }
};
using AlignedBytes = std::unique_ptr<std::byte, FreeDeleter>;

/// At least `bytes` bytes at a multiple of `alignment` (a power of two), not initialised.
inline AlignedBytes aligned_bytes(size_t bytes, size_t alignment) {
  const size_t whole = (bytes + alignment - 1) / alignment * alignment;
  return AlignedBytes(static_cast<std::byte*>(std::aligned_alloc(alignment, whole)));
}

}  // namespace isthmus
