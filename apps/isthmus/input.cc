#include "apps/isthmus/input.h"

#include <fmt/core.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace isthmus::cli {
namespace {

Result<std::string> read_stream(std::FILE* stream, const std::string& label) {
  std::string text;
  std::array<char, 1 << 16> buffer{};
  while (true) {
    const size_t n = std::fread(buffer.data(), 1, buffer.size(), stream);
    text.append(buffer.data(), n);
    if (text.size() > kMaxInputBytes) {
      return resource_exhausted(fmt::format("{} holds more than {} MiB", label, kMaxInputBytes >> 20));
    }
    if (n < buffer.size()) break;
  }
  if (std::ferror(stream) != 0) {
    return io_error(fmt::format("cannot read {}: {}", label, std::strerror(errno)));
  }
  return text;
}

}  // namespace

Result<std::string> read_input(const std::string& path) {
  if (path == "-") return read_stream(stdin, "standard input");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
  if (file == nullptr) {
    const std::string reason = fmt::format("cannot open '{}': {}", path, std::strerror(errno));
    return errno == ENOENT ? not_found(reason) : io_error(reason);
  }
  return read_stream(file.get(), "'" + path + "'");
}

}  // namespace isthmus::cli
