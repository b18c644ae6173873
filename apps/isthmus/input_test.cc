#include "apps/isthmus/input.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string_view>

#include "apps/isthmus/interrupt.h"

namespace isthmus::cli {
namespace {

/// Puts `text` in the place of standard input for as long as it lives.
class Typed : public testing::Test {
 protected:
  void SetUp() override {
    saved_ = dup(STDIN_FILENO);
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe(ends.data()), 0);
    ASSERT_EQ(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    close(ends[0]);
    writer_ = ends[1];
  }
  void TearDown() override {
    finish();
    dup2(saved_, STDIN_FILENO);
    close(saved_);
    interrupt().reset();
  }
  void type(std::string_view text) const {
    ASSERT_EQ(write(writer_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void finish() {
    if (writer_ >= 0) close(writer_);
    writer_ = -1;
  }

 private:
  int saved_ = -1;
  int writer_ = -1;
};

TEST_F(Typed, LinesComeOneByOneAndTheLastNeedsNoEnd) {
  type("one\n\nthree\nfour");
  finish();
  LineReader reader;
  for (const std::string_view expected : {"one", "", "three", "four"}) {
    const auto line = reader.next();
    ASSERT_TRUE(line.ok());
    ASSERT_TRUE(line->has_value());
    EXPECT_EQ(**line, expected);
  }
  const auto end = reader.next();
  ASSERT_TRUE(end.ok());
  EXPECT_FALSE(end->has_value());
}

TEST_F(Typed, AllOfItIsReadWithEveryByte) {
  const std::string text("a\0\xff\n", 4);
  type(text);
  finish();
  const auto read = read_input("-");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, text);
}

TEST_F(Typed, AnInterruptEndsTheWait) {
  interrupt().cancel();
  LineReader reader;
  EXPECT_EQ(reader.next().status().code(), Code::kCancelled);
  EXPECT_EQ(read_input("-").status().code(), Code::kCancelled);
}

TEST(ReadInput, NamesAFileThatIsNotThere) {
  const Status status = read_input("/no/such/file").status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_NE(status.message().find("'/no/such/file'"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace isthmus::cli
