// Any bytes as a wheel: the reader must end with a status, and never give out more than it was allowed to.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "store/wheel.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  isthmus::WheelLimits limits;
  limits.max_members = 1000;
  limits.max_bytes = 1 << 22;
  uint64_t total = 0;
  const auto status =
      isthmus::extract_from_wheel_bytes(std::as_bytes(std::span(data, size)), "*", limits,
                                        isthmus::StopPolicy{}, [&](std::span<const std::byte> piece) {
                                          total += piece.size();
                                          return isthmus::ok_status();
                                        });
  if (status.ok() && total > limits.max_bytes) std::abort();
  if (total > limits.max_bytes) std::abort();
  return 0;
}
