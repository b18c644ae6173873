// The few HTTP header values that a download depends on, read strictly (RFC 9110). Pure functions over
// untrusted text; a value that breaks its grammar is nullopt, never a guess. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace isthmus {

/// Header fields of one response, names in lower case; of a repeated field the last value.
using HeaderMap = std::map<std::string, std::string>;

/// Adds a "Name: value" line (with or without its line end) to `headers`; other lines change nothing.
void add_header_line(std::string_view line, HeaderMap& headers);

/// "bytes 0-99/1000" or "bytes */1000".
struct ContentRange {
  std::optional<uint64_t> first;  // of the part sent; nullopt for "*"
  std::optional<uint64_t> last;   // inclusive
  std::optional<uint64_t> total;  // of the whole; nullopt for "*"
};
std::optional<ContentRange> parse_content_range(std::string_view value);

/// A decimal length; nullopt when anything but digits or above 2^63 - 1.
std::optional<uint64_t> parse_length(std::string_view value);

/// How long "Retry-After" asks to wait: seconds or a date, seen from `now`; a date in the past is 0.
std::optional<std::chrono::seconds> parse_retry_after(std::string_view value,
                                                      std::chrono::system_clock::time_point now);

/// What may be sent back in If-Range to get the same bytes: a strong entity tag, else a modification date,
/// else "".
std::string strong_validator(const HeaderMap& headers);

/// Printable ASCII only, at most `limit` bytes: for showing a server's words to a person.
std::string printable(std::string_view text, size_t limit);

}  // namespace isthmus
