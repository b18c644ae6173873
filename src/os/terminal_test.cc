#include "os/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace isthmus::os {
namespace {

/// Puts a file descriptor in the place of standard input for the time of a test.
class InputReplaced {
 public:
  explicit InputReplaced(int fd) : saved_(dup(STDIN_FILENO)) { dup2(fd, STDIN_FILENO); }
  ~InputReplaced() {
    dup2(saved_, STDIN_FILENO);
    close(saved_);
  }

 private:
  int saved_;
};

TEST(Terminal, AFileIsNone) {
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(null, 0);
  const InputReplaced replaced(null);
  EXPECT_FALSE(is_terminal(Stream::kInput));
  EXPECT_EQ(terminal_columns(Stream::kInput, 77), 77u);
  close(null);
}

TEST(Terminal, APseudoTerminalIsOneAndTellsItsWidth) {
  int leader = -1;
  int follower = -1;
  winsize size{};
  size.ws_col = 123;
  size.ws_row = 40;
  ASSERT_EQ(openpty(&leader, &follower, nullptr, nullptr, &size), 0);
  {
    const InputReplaced replaced(follower);
    EXPECT_TRUE(is_terminal(Stream::kInput));
    EXPECT_EQ(terminal_columns(Stream::kInput), 123u);
  }
  close(follower);
  close(leader);
}

}  // namespace
}  // namespace isthmus::os
