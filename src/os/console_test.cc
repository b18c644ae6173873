#include "os/console.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string_view>

namespace isthmus::os {
namespace {

/// Puts a pipe in the place of standard input for as long as it lives.
class PipedInput {
 public:
  PipedInput() : saved_(dup(STDIN_FILENO)) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    EXPECT_EQ(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    close(ends[0]);
    writer_ = ends[1];
  }
  ~PipedInput() {
    finish();
    dup2(saved_, STDIN_FILENO);
    close(saved_);
  }
  void write_text(std::string_view text) const {
    EXPECT_EQ(write(writer_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void finish() {
    if (writer_ >= 0) close(writer_);
    writer_ = -1;
  }

 private:
  int saved_;
  int writer_ = -1;
};

TEST(ReadInput, SaysWhetherThereAreBytesNothingOrTheEnd) {
  PipedInput input;
  std::array<char, 4> buffer{};
  auto got = read_input(buffer, std::chrono::milliseconds(1));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->state, InputState::kNothing);
  input.write_text("hello");
  got = read_input(buffer, std::chrono::milliseconds(1000));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->state, InputState::kBytes);
  EXPECT_EQ(std::string_view(buffer.data(), got->bytes), "hell");
  input.finish();
  got = read_input(buffer, std::chrono::milliseconds(1000));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(std::string_view(buffer.data(), got->bytes), "o");
  got = read_input(buffer, std::chrono::milliseconds(1000));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->state, InputState::kEnd);
}

// In a child: what happens to its standard streams must not happen to the test's.
TEST(OpenMissingStreams, TakesTheFreeNumbersAndLeavesFailingStreams) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    close(STDERR_FILENO);
    open_missing_streams();
    char c = 'x';
    const bool input_fails = read(STDIN_FILENO, &c, 1) == -1;
    const bool output_fails = write(STDOUT_FILENO, &c, 1) == -1;
    const bool error_works = write(STDERR_FILENO, &c, 1) == 1;
    const bool next_is_free = open("/dev/null", O_RDONLY) > STDERR_FILENO;
    _exit(input_fails && output_fails && error_works && next_is_free ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace isthmus::os
