#include "os/energy_sysfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

namespace isthmus::sysfs {
namespace {

Status errno_status(const std::string& path, int error) {
  const std::string what = path + ": " + std::strerror(error);
  if (error == ENOENT || error == ENOTDIR) return not_found(what);
  if (error == EACCES || error == EPERM) return io_error(what + " (the counters are for root only)");
  return unavailable(what);
}

double clock_seconds(clockid_t clock) {
  timespec ts{};
  clock_gettime(clock, &ts);
  return static_cast<double>(ts.tv_sec) + 1e-9 * static_cast<double>(ts.tv_nsec);
}

}  // namespace

Result<std::string> read_text(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno_status(path, errno);
  // A sysfs value is produced whole by the first read.
  std::array<char, 256> buffer;
  ssize_t got = 0;
  do {
    got = read(fd, buffer.data(), buffer.size());
  } while (got < 0 && errno == EINTR);
  const int error = errno;
  close(fd);
  if (got < 0) return errno_status(path, error);
  if (static_cast<size_t>(got) == buffer.size()) return unavailable(path + ": longer than a sysfs value");
  std::string text(buffer.data(), static_cast<size_t>(got));
  text.erase(std::find_if(text.rbegin(), text.rend(), [](char c) { return c != '\n' && c != ' '; }).base(),
             text.end());
  return text;
}

Result<uint64_t> read_uint(const std::string& path) {
  ISTHMUS_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return unavailable(path + ": not a number: '" + text + "'");
  }
  return value;
}

Result<std::vector<std::string>> list(const std::string& dir) {
  const std::unique_ptr<DIR, int (*)(DIR*)> handle(opendir(dir.c_str()), &closedir);
  if (!handle) return errno_status(dir, errno);
  std::vector<std::string> names;
  while (const dirent* entry = readdir(handle.get())) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string join(const std::string& dir, const std::string& name) {
  std::string out = dir;
  return out.append("/").append(name);
}

double wall_seconds(const EnergyEnv& env) {
  return env.wall_seconds ? env.wall_seconds() : clock_seconds(CLOCK_MONOTONIC);
}

double cpu_seconds(const EnergyEnv& env) {
  return env.cpu_seconds ? env.cpu_seconds() : clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
}

}  // namespace isthmus::sysfs
