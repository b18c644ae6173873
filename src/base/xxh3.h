// XXH3 (Yann Collet, xxHash 0.8 specification), by Debian's header: checksums at the speed of memory (10 GB/s
// and more), against damage, not against attack. Pure, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace isthmus {

/// XXH3-128; `low` and `high` as in the specification's canonical numbers.
struct Xxh3Digest {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Xxh3Digest&) const = default;
};

uint64_t xxh3_64(std::span<const std::byte> bytes);
Xxh3Digest xxh3_128(std::span<const std::byte> bytes);

}  // namespace isthmus
