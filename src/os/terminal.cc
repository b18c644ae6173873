#include "os/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace isthmus::os {
namespace {

int descriptor(Stream stream) {
  switch (stream) {
    case Stream::kInput:
      return STDIN_FILENO;
    case Stream::kOutput:
      return STDOUT_FILENO;
    case Stream::kError:
      return STDERR_FILENO;
  }
  return STDERR_FILENO;
}

}  // namespace

bool is_terminal(Stream stream) { return isatty(descriptor(stream)) == 1; }

size_t terminal_columns(Stream stream, size_t fallback) {
  winsize size{};
  if (ioctl(descriptor(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return fallback;
  return size.ws_col;
}

}  // namespace isthmus::os
