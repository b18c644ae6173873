#include "base/xxh3.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace isthmus {

uint64_t xxh3_64(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Xxh3Digest xxh3_128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

}  // namespace isthmus
