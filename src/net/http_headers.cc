#include "net/http_headers.h"

#include <curl/curl.h>

#include <algorithm>

namespace isthmus {
namespace {

std::string_view trim(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

/// Splits at the first `mark`; both halves are empty views when there is none.
std::optional<std::pair<std::string_view, std::string_view>> split(std::string_view text, char mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

}  // namespace

void add_header_line(std::string_view line, HeaderMap& headers) {
  const auto halves = split(line, ':');
  if (!halves || halves->first.empty() || trim(halves->first) != halves->first) return;
  headers[lower(halves->first)] = std::string(trim(halves->second));
}

std::optional<uint64_t> parse_length(std::string_view value) {
  if (value.empty() || value.size() > 19) return std::nullopt;  // 2^63 - 1 has 19 digits
  uint64_t out = 0;
  for (const char c : value) {
    if (c < '0' || c > '9') return std::nullopt;
    out = out * 10 + static_cast<uint64_t>(c - '0');
  }
  if (out > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return out;
}

std::optional<ContentRange> parse_content_range(std::string_view value) {
  value = trim(value);
  const std::string unit = lower(value.substr(0, 6));
  if (unit != "bytes ") return std::nullopt;
  const auto halves = split(trim(value.substr(6)), '/');
  if (!halves) return std::nullopt;
  ContentRange out;
  if (halves->second != "*") {
    out.total = parse_length(halves->second);
    if (!out.total) return std::nullopt;
  }
  if (halves->first == "*") return out.total ? std::optional(out) : std::nullopt;
  const auto ends = split(halves->first, '-');
  if (!ends) return std::nullopt;
  out.first = parse_length(ends->first);
  out.last = parse_length(ends->second);
  if (!out.first || !out.last || *out.last < *out.first) return std::nullopt;
  if (out.total && *out.last >= *out.total) return std::nullopt;
  return out;
}

std::optional<std::chrono::seconds> parse_retry_after(std::string_view value,
                                                      std::chrono::system_clock::time_point now) {
  value = trim(value);
  constexpr int64_t kYear = 365LL * 86400;
  if (const auto seconds = parse_length(value)) {
    return std::chrono::seconds(static_cast<int64_t>(std::min<uint64_t>(*seconds, kYear)));
  }
  const std::string text(value);
  const time_t when = curl_getdate(text.c_str(), nullptr);
  if (when < 0) return std::nullopt;
  // In whole seconds: a far date in the clock's own unit would overflow.
  const int64_t wait = static_cast<int64_t>(when) - std::chrono::system_clock::to_time_t(now);
  return std::chrono::seconds(std::clamp<int64_t>(wait, 0, kYear));
}

std::string strong_validator(const HeaderMap& headers) {
  const auto tag = headers.find("etag");
  if (tag != headers.end()) {
    const std::string& value = tag->second;
    const bool quoted =
        value.size() >= 2 && value.size() <= 512 && value.front() == '"' && value.back() == '"';
    // A weak tag (W/"...") promises the same meaning, not the same bytes.
    return quoted ? value : "";
  }
  const auto date = headers.find("last-modified");
  if (date == headers.end() || date->second.size() > 64) return "";
  return curl_getdate(date->second.c_str(), nullptr) < 0 ? "" : date->second;
}

std::string printable(std::string_view text, size_t limit) {
  std::string out;
  for (const char c : text) {
    if (out.size() == limit) break;
    out += c >= 0x20 && c < 0x7f ? c : ' ';
  }
  return std::string(trim(out));
}

}  // namespace isthmus
