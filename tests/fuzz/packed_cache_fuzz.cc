// Heads of packed-cache files: any bytes, as they are and under a checksum that fits. What is taken must give
// the same bytes again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "model/packed_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto raw = std::as_bytes(std::span(data, size));
  (void)isthmus::packed_head_bytes(raw).ok();
  (void)isthmus::parse_packed_head(raw).ok();
  if (size < isthmus::kPackedAlign) return 0;
  std::vector<std::byte> sealed(raw.begin(), raw.end());
  const uint64_t sum = isthmus::xxh3_64(std::span(sealed).subspan(16));
  std::memcpy(sealed.data() + 8, &sum, sizeof(sum));
  const auto head = isthmus::parse_packed_head(sealed);
  if (head.ok() && isthmus::encode_packed_head(*head) != sealed) std::abort();
  return 0;
}
