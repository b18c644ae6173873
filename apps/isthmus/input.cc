#include "apps/isthmus/input.h"

#include <fmt/core.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "apps/isthmus/interrupt.h"
#include "apps/isthmus/output.h"
#include "os/console.h"
#include "os/terminal.h"

namespace isthmus::cli {
namespace {

/// A signal ends a wait at once; this bounds the rare one that comes just before the wait begins.
constexpr auto kWait = std::chrono::milliseconds(250);

Status too_long(const std::string& label) {
  return resource_exhausted(fmt::format("{} holds more than {} MiB", label, kMaxInputBytes >> 20));
}

Result<std::string> read_standard_input() {
  std::string text;
  std::array<char, 1 << 16> buffer{};
  while (true) {
    ISTHMUS_ASSIGN_OR_RETURN(const size_t n, read_some_input(buffer));
    if (n == 0) return text;
    text.append(buffer.data(), n);
    if (text.size() > kMaxInputBytes) return too_long("standard input");
  }
}

Result<std::string> read_stream(std::FILE* stream, const std::string& label) {
  std::string text;
  std::array<char, 1 << 16> buffer{};
  while (true) {
    const size_t n = std::fread(buffer.data(), 1, buffer.size(), stream);
    text.append(buffer.data(), n);
    if (text.size() > kMaxInputBytes) return too_long(label);
    if (n < buffer.size()) break;
  }
  if (std::ferror(stream) != 0) {
    return io_error(fmt::format("cannot read {}: {}", label, std::strerror(errno)));
  }
  return text;
}

}  // namespace

Result<size_t> read_some_input(std::span<char> buffer) {
  while (true) {
    if (wants_to_stop()) return cancelled("stopped by the user");
    ISTHMUS_ASSIGN_OR_RETURN(const os::InputRead got, os::read_input(buffer, kWait));
    if (got.state == os::InputState::kEnd) return 0;
    if (got.state == os::InputState::kBytes) return got.bytes;
  }
}

Result<std::optional<std::string>> LineReader::next() {
  std::array<char, 1 << 16> buffer{};
  size_t seen = 0;  // no line end in what comes before
  while (true) {
    const size_t end = pending_.find('\n', seen);
    if (end != std::string::npos) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return std::optional(std::move(line));
    }
    if (ended_) {
      if (pending_.empty()) return std::optional<std::string>();
      return std::optional(std::exchange(pending_, std::string()));
    }
    seen = pending_.size();
    if (seen > kMaxInputBytes) return too_long("a line of standard input");
    ISTHMUS_ASSIGN_OR_RETURN(const size_t n, read_some_input(buffer));
    ended_ = n == 0;
    pending_.append(buffer.data(), n);
  }
}

Result<std::string> read_input(const std::string& path) {
  if (path == "-") return read_standard_input();
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
  if (file == nullptr) {
    const std::string reason = fmt::format("cannot open '{}': {}", path, std::strerror(errno));
    return errno == ENOENT ? not_found(reason) : io_error(reason);
  }
  return read_stream(file.get(), "'" + path + "'");
}

Result<std::string> read_typed_input(const std::string& what) {
  if (os::is_terminal(os::Stream::kInput)) {
    say("Type the {}; Ctrl-D on a line of its own ends it.\n", what);
  }
  return read_input("-");
}

}  // namespace isthmus::cli
