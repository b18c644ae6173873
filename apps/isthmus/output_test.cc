#include "apps/isthmus/output.h"

#include <gtest/gtest.h>

namespace isthmus::cli {
namespace {

TEST(HumanBytes, KeepsThreeDigits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1.00 kB");
  EXPECT_EQ(human_bytes(98'362'432), "98.4 MB");
  EXPECT_EQ(human_bytes(999'600), "1.00 MB");
  EXPECT_EQ(human_bytes(1'117'320'768), "1.12 GB");
  EXPECT_EQ(human_bytes(UINT64_MAX), "18447 PB");
}

TEST(HumanCount, HasNoUnitForSmallNumbers) {
  EXPECT_EQ(human_count(42), "42");
  EXPECT_EQ(human_count(134'515'008), "135 M");
}

TEST(Table, AlignsColumnsAndTrimsLines) {
  Table table({"name", "size"});
  table.add({"größe", "1"});
  table.add({"b", "1000"});
  table.align_right({1});
  EXPECT_EQ(table.str(), "name   size\ngröße     1\nb      1000\n");
}

TEST(Table, TakesRaggedRows) {
  Table table({"a", "b"});
  table.add({"only one"});
  EXPECT_EQ(table.str(), "a         b\nonly one\n");
}

TEST(Printable, DisarmsTerminalCommands) {
  EXPECT_EQ(printable("a\x1b[2Jb\r"), "a\\x1b[2Jb\\x0d");
  EXPECT_EQ(printable("line\n\ttab é"), "line\n\ttab é");
  EXPECT_EQ(printable("\xC2\x9B"
                      "2J\xC2\xA0\xC2"),
            "\\x9b2J\xC2\xA0\xC2");
}

TEST(ErrorJson, CarriesCodeAndMessage) {
  EXPECT_EQ(error_json(not_found("no model 'x'")).dump(),
            R"({"error":{"code":"not_found","message":"no model 'x'"}})");
}

}  // namespace
}  // namespace isthmus::cli
