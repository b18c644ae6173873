#include "os/console.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace isthmus::os {
namespace {

Status failed(int error) {
  return io_error("cannot read standard input: " + std::string(std::strerror(error)));
}

}  // namespace

Result<InputRead> read_input(std::span<char> buffer, std::chrono::milliseconds wait) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  const int ready = poll(&input, 1, static_cast<int>(wait.count()));
  if (ready < 0 && errno != EINTR) return failed(errno);
  if (ready <= 0) return InputRead{};
  const ssize_t n = read(STDIN_FILENO, buffer.data(), buffer.size());
  if (n > 0) return InputRead{InputState::kBytes, static_cast<size_t>(n)};
  if (n == 0) return InputRead{InputState::kEnd, 0};
  if (errno == EINTR || errno == EAGAIN) return InputRead{};
  // What a terminal says when the window behind it is gone.
  if (errno == EIO && isatty(STDIN_FILENO) == 1) return InputRead{InputState::kEnd, 0};
  return failed(errno);
}

void open_missing_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number is this one, since those below it are open.
    const int flags = stream == STDOUT_FILENO ? O_RDONLY : O_WRONLY;
    if (open("/dev/null", flags) < 0) return;  // NOLINT: stays open until the process ends
  }
}

}  // namespace isthmus::os
