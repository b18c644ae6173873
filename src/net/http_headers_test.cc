#include "net/http_headers.h"

#include <gtest/gtest.h>

namespace isthmus {
namespace {

using std::chrono::seconds;

TEST(Headers, LinesAreReadStrictly) {
  HeaderMap map;
  add_header_line("ETag:  \"a\" \r\n", map);
  add_header_line("X-Empty:\r\n", map);
  add_header_line("no colon here", map);
  add_header_line(" folded: x", map);
  add_header_line("bad name : x", map);
  EXPECT_EQ(map.at("etag"), "\"a\"");
  EXPECT_EQ(map.at("x-empty"), "");
  EXPECT_EQ(map.size(), 2U);
}

TEST(Headers, Lengths) {
  EXPECT_EQ(parse_length("0"), 0U);
  EXPECT_EQ(parse_length("9223372036854775807"), static_cast<uint64_t>(INT64_MAX));
  for (const char* bad :
       {"", "-1", "+1", " 1", "1 ", "0x10", "9223372036854775808", "99999999999999999999"}) {
    EXPECT_FALSE(parse_length(bad)) << bad;
  }
}

TEST(Headers, ContentRanges) {
  const auto range = parse_content_range("bytes 5-99/100");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->first, 5U);
  EXPECT_EQ(range->last, 99U);
  EXPECT_EQ(range->total, 100U);
  EXPECT_EQ(parse_content_range("BYTES */100")->total, 100U);
  EXPECT_FALSE(parse_content_range("BYTES */100")->first);
  EXPECT_FALSE(parse_content_range("bytes 0-9/*")->total);
  for (const char* bad : {"", "bytes", "bytes 5-4/100", "bytes 5-100/100", "bytes -5/100", "bytes 5-/100",
                          "items 0-1/2", "bytes 0-1", "bytes */*", "bytes 0-1/-2"}) {
    EXPECT_FALSE(parse_content_range(bad)) << bad;
  }
}

TEST(Headers, RetryAfter) {
  const auto now = std::chrono::system_clock::from_time_t(784111777);  // Sun, 06 Nov 1994 08:49:37 GMT
  EXPECT_EQ(parse_retry_after("120", now), seconds(120));
  EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:50:37 GMT", now), seconds(60));
  EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:00:00 GMT", now), seconds(0));
  EXPECT_EQ(parse_retry_after("9000000000000000000", now), seconds(365 * 86400));
  EXPECT_EQ(parse_retry_after("Sun, 06 Nov 19947 GMT", now), seconds(365 * 86400));
  EXPECT_FALSE(parse_retry_after("soon", now));
  EXPECT_FALSE(parse_retry_after("", now));
}

TEST(Headers, OnlyStrongValidatorsAreKept) {
  EXPECT_EQ(strong_validator({{"etag", "\"abc\""}}), "\"abc\"");
  EXPECT_EQ(strong_validator({{"etag", "W/\"abc\""}, {"last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"}}),
            "");
  EXPECT_EQ(strong_validator({{"etag", "abc"}}), "");
  EXPECT_EQ(strong_validator({{"last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"}}),
            "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(strong_validator({{"last-modified", "yesterday-ish"}}), "");
  EXPECT_EQ(strong_validator({}), "");
}

TEST(Headers, PrintableCutsAndCleans) {
  EXPECT_EQ(printable("a\x1b[31mb\n", 100), "a [31mb");
  EXPECT_EQ(printable("abcdef", 3), "abc");
}

}  // namespace
}  // namespace isthmus
