#include "format/gguf_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "format/gguf_limits.h"
#include "format/gguf_value.h"

namespace isthmus {
namespace {

constexpr size_t kDigits = 5;
constexpr std::string_view kSuffix = ".gguf";
constexpr std::string_view kOf = "-of-";

struct SplitName {
  std::string stem;
  uint64_t number = 0;  // from 1
  uint64_t count = 0;
};

std::optional<uint64_t> digits(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Takes "<stem>-00001-of-00003.gguf" apart.
std::optional<SplitName> parse_split_name(std::string_view path) {
  const size_t tail = 1 + kDigits + kOf.size() + kDigits + kSuffix.size();
  if (path.size() <= tail || !path.ends_with(kSuffix)) return std::nullopt;
  const auto end = path.substr(path.size() - tail);
  const auto number = digits(end.substr(1, kDigits));
  const auto count = digits(end.substr(1 + kDigits + kOf.size(), kDigits));
  if (end[0] != '-' || end.substr(1 + kDigits, kOf.size()) != kOf || !number || !count) return std::nullopt;
  return SplitName{std::string(path.substr(0, path.size() - tail)), *number, *count};
}

Status read_count(const GgufPart& part, std::string_view key, std::optional<uint64_t>& out) {
  const auto at = std::ranges::find(part.entries, key, &GgufEntry::key);
  if (at == part.entries.end()) return ok_status();
  out = gguf_integer<uint64_t>(at->type, at->payload);
  if (!out) return corrupt(fmt::format("{} is not a count", key));
  return ok_status();
}

}  // namespace

Result<SplitFacts> split_facts(const GgufPart& part) {
  std::optional<uint64_t> no;
  std::optional<uint64_t> count;
  SplitFacts facts;
  ISTHMUS_RETURN_IF_ERROR(read_count(part, "split.no", no));
  ISTHMUS_RETURN_IF_ERROR(read_count(part, "split.count", count));
  ISTHMUS_RETURN_IF_ERROR(read_count(part, "split.tensors.count", facts.tensors));
  facts.count = std::max<uint64_t>(count.value_or(1), 1);  // some writers say 0 for a whole model
  if (facts.count > 1 && !no)
    return corrupt(fmt::format("split.count is {} but split.no is missing", facts.count));
  facts.no = no.value_or(0);
  if (facts.no >= facts.count) return corrupt(fmt::format("split.no is {} of {}", facts.no, facts.count));
  return facts;
}

Result<std::vector<std::string>> split_paths(const std::string& path, uint64_t count) {
  const auto name = parse_split_name(path);
  const uint64_t named = name ? name->count : 1;
  if (count > kGgufMaxParts) {
    return resource_exhausted(fmt::format("the model has {} parts, the limit is {}", count, kGgufMaxParts));
  }
  if (named != count) {
    return corrupt(fmt::format("the file's name says {} part(s), its metadata says {}", named, count));
  }
  if (count == 1) return std::vector<std::string>{path};
  std::vector<std::string> paths;
  for (uint64_t i = 0; i < count; ++i) paths.push_back(split_path(name->stem, i, count));
  return paths;
}

std::string split_path(const std::string& stem, uint64_t index, uint64_t count) {
  return fmt::format("{}-{:05}{}{:05}{}", stem, index + 1, kOf, count, kSuffix);
}

}  // namespace isthmus
