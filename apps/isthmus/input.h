// Text that a command reads: from its arguments, a file, or standard input.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace isthmus::cli {

inline constexpr uint64_t kMaxInputBytes = uint64_t{256} << 20;

/// The whole file, or standard input when `path` is "-". kNotFound, kIo; kResourceExhausted above
/// kMaxInputBytes.
Result<std::string> read_input(const std::string& path);

}  // namespace isthmus::cli
