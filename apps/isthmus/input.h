// Text that a command reads: from its arguments, a file, or standard input. Reading standard input ends at
// the first Ctrl-C or SIGTERM (interrupt.h), however long nothing comes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"

namespace isthmus::cli {

inline constexpr uint64_t kMaxInputBytes = uint64_t{256} << 20;

/// Some bytes of standard input, 0 at its end. kIo; kCancelled when the user wants to stop.
Result<size_t> read_some_input(std::span<char> buffer);

/// Standard input by lines. One per program, because it reads ahead.
class LineReader {
 public:
  /// The next line without its end; nullopt at the end of the input. Errors as read_some_input(), and
  /// kResourceExhausted above kMaxInputBytes.
  Result<std::optional<std::string>> next();

 private:
  std::string pending_;
  bool ended_ = false;
};

/// The whole file, or standard input when `path` is "-". kNotFound, kIo, kCancelled; kResourceExhausted above
/// kMaxInputBytes.
Result<std::string> read_input(const std::string& path);

/// read_input("-") of a prompt or a text that a person may type: on a terminal it says so first.
Result<std::string> read_typed_input(const std::string& what);

}  // namespace isthmus::cli
