#include "text/utf8.h"

#include <gtest/gtest.h>

namespace isthmus::tok {
namespace {

using namespace std::string_literals;

TEST(Utf8, ReadsEveryCodePointThatItWrites) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    utf8_append(c, text);
    const Utf8Char got = utf8_at(text, 0);
    ASSERT_TRUE(got.valid);
    ASSERT_EQ(got.code_point, c);
    ASSERT_EQ(got.length, text.size());
  }
}

TEST(Utf8, WhatIsNotUtf8IsOneInvalidByte) {
  for (const auto& text :
       {"\x80"s, "\xBF"s, "\xC0\x80"s, "\xC1\xBF"s, "\xC2"s, "\xC2\x41"s, "\xE0\x80\x80"s, "\xE0\x9F\xBF"s,
        "\xED\xA0\x80"s, "\xED\xBF\xBF"s, "\xE2\x96"s, "\xE2\x96\x41"s, "\xF0\x80\x80\x80"s,
        "\xF0\x8F\xBF\xBF"s, "\xF4\x90\x80\x80"s, "\xF5\x80\x80\x80"s, "\xF0\x9F\x98"s, "\xFE"s, "\xFF"s}) {
    const Utf8Char got = utf8_at(text, 0);
    EXPECT_FALSE(got.valid);
    EXPECT_EQ(got.length, 1u);
    EXPECT_EQ(got.code_point, kReplacement);
  }
}

TEST(Utf8, MendReplacesMaximalSubparts) {
  // The example of Unicode 15.1, table 3-11.
  std::string out;
  const std::string text = "\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64";
  EXPECT_EQ(utf8_mend(text, true, out), text.size());
  EXPECT_EQ(out, "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
}

TEST(Utf8, MendKeepsBackWhatMayStillBecomeValid) {
  for (const auto& cut : {"\xC3"s, "\xE2"s, "\xE2\x96"s, "\xF0\x9F"s, "\xF0\x9F\x98"s}) {
    std::string out;
    EXPECT_EQ(utf8_mend("x" + cut, false, out), 1u);
    EXPECT_EQ(out, "x");
    EXPECT_EQ(utf8_mend(cut, true, out), cut.size());
    EXPECT_EQ(out, "x\uFFFD");
  }
  std::string out;  // an impossible second byte cannot be mended by waiting
  EXPECT_EQ(utf8_mend("\xE0\x80", false, out), 2u);
  EXPECT_EQ(out, "\uFFFD\uFFFD");
}

}  // namespace
}  // namespace isthmus::tok
