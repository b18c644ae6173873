// Prompt schemas (Prompt Cache, Gim et al. 2024, arXiv 2311.04934): a prompt's reusable text in modules,
// unions and parameters, and the prompts that are made of them. Two small XML languages;
// docs/formats/prompt-schema.md is their page.
//
// Both are untrusted: parsed by pugixml without DTD, external entities or network, within the limits below.
// Pure functions; thread-safe. Errors: kCorrupt (no XML, with its line), kInvalidArgument (XML that is no
// schema or prompt, with its line), kResourceExhausted (a limit), and what the reader of `src` files returns.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace isthmus {

inline constexpr size_t kMaxSchemaBytes = size_t{16} << 20;  // of the file, and of all text together
inline constexpr size_t kMaxSchemaNodes = 10'000;
inline constexpr size_t kMaxSchemaDepth = 16;
inline constexpr size_t kMaxSchemaName = 128;
inline constexpr size_t kMaxParameterTokens = 65'536;

/// What a schema's text is to the model.
enum class SchemaRole : uint8_t {
  kRaw,     // the text itself, without a chat template
  kSystem,  // the system message
  kUser,    // the beginning of the first user message
};

/// Text, a parameter, a module, or a union of modules of which a prompt takes at most one.
struct SchemaNode {
  enum class Kind : uint8_t { kText, kParameter, kModule, kUnion };
  Kind kind = Kind::kText;
  std::string name;                  // of parameters and modules
  std::string text;                  // kText
  size_t length = 0;                 // kParameter: tokens kept free
  std::vector<SchemaNode> children;  // of modules, in order; of unions: their members
};

/// The text of a file that a module names by src="…": a relative path without "..".
using ReadSchemaFile = std::function<Result<std::string>(const std::string& path)>;

struct PromptSchema {
  std::string name;
  SchemaRole role = SchemaRole::kRaw;
  SchemaNode root;  // a module

  static Result<PromptSchema> parse(std::string_view xml, const ReadSchemaFile& read);
};

/// One module of a prompt, with what its parameters are to be and the modules inside it that are taken.
struct ModuleUse {
  std::string name;
  std::vector<std::pair<std::string, std::string>> arguments;
  std::vector<ModuleUse> inner;
};

struct SchemaPrompt {
  std::string schema;  // empty: not said
  std::vector<ModuleUse> uses;
  std::string text;  // what follows, without white space at its ends

  /// A <prompt> element; any other text is a prompt without modules.
  static Result<SchemaPrompt> parse(std::string_view xml);
};

}  // namespace isthmus
