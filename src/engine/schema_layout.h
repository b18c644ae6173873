// A prompt schema as tokens at fixed positions (Prompt Cache, Gim et al. 2024, arXiv 2311.04934): the runs of
// text whose KV can be computed ahead, the places kept free for parameters, and what a prompt takes of them.
//
// Positions go from left to right; the members of a union begin at the same one and take as many as the
// longest. A run is text without a gap inside one module. Immutable; thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/prompt_schema.h"
#include "text/tokenizer.h"

namespace isthmus {

/// What a run sees of the text before it while its KV is computed.
enum class ModuleView : uint8_t {
  kIsolated,  // its own module, the schema's own text being one
  kAnchored,  // the modules that it stands in, too, and the schema's own text: what is always there with it
  kWhole,     // all before it but other members of unions: right where a prompt takes all of that
};
/// "isolated", "anchored", "whole".
std::string_view module_view_name(ModuleView view);
/// kInvalidArgument lists the names.
Result<ModuleView> parse_module_view(std::string_view name);

/// Where a prompt's parts stand.
enum class ModulePlaces : uint8_t {
  kSchema,  // at the schema's positions (Prompt Cache): what a prompt does not take leaves a gap
  kPacked,  // one behind the other, as in an ordinary prompt: keys are turned to where they come to stand
            // (EPIC, Hu et al. 2024, arXiv 2410.15332)
};
/// "schema", "packed".
std::string_view module_places_name(ModulePlaces places);
/// kInvalidArgument lists the names.
Result<ModulePlaces> parse_module_places(std::string_view name);

class SchemaLayout {
 public:
  /// Ids of text inside the prompt, without BOS.
  using Encode = std::function<std::vector<TokenId>(std::string_view text)>;
  struct Run {
    std::vector<TokenId> tokens;
    size_t position = 0;
    size_t module = 0;
  };
  static constexpr size_t kNone = SIZE_MAX;
  /// A run, or the tokens of an argument, where it stands.
  struct Part {
    size_t run = kNone;
    std::vector<TokenId> argument;
    size_t position = 0;
  };

  /// `lead` comes before the schema's text. kResourceExhausted when a prompt could be longer than
  /// `most_positions`.
  static Result<SchemaLayout> create(const PromptSchema& schema, std::vector<TokenId> lead,
                                     const Encode& encode, size_t most_positions);

  const std::vector<Run>& runs() const { return runs_; }
  /// Positions that the schema takes: what follows it begins here.
  size_t length() const { return length_; }
  /// Tokens of all runs.
  size_t run_tokens() const;
  /// What `prompt` takes, by ascending positions. kInvalidArgument for another schema's prompt, unknown
  /// modules and parameters, two members of a union, a module taken twice; kResourceExhausted for arguments
  /// that are too long.
  Result<std::vector<Part>> choose(const SchemaPrompt& prompt, const Encode& encode) const;
  /// The runs that run `run` sees while it is computed, ascending.
  std::vector<size_t> seen(size_t run, ModuleView view) const;

 private:
  enum class ItemKind : uint8_t { kRun, kParameter, kModule, kUnion };
  struct Item {
    ItemKind kind;
    size_t index;
  };
  struct Parameter {
    std::string name;
    size_t position;
    size_t length;
  };
  struct Module {
    std::string name;
    size_t parent = kNone;
    bool in_union = false;
    std::vector<Item> items;
  };
  struct Choice;  // of one prompt
  class Builder;

  bool inside(size_t module, size_t outer) const;
  std::vector<size_t> inner_modules(size_t module) const;
  Status take_module(size_t module, const std::vector<ModuleUse>& uses,
                     const std::vector<std::pair<std::string, std::string>>& arguments, Choice& choice) const;
  Status take_inner(size_t module, const ModuleUse* use, Choice& choice) const;
  Status take_parameter(const Parameter& parameter,
                        const std::vector<std::pair<std::string, std::string>>& arguments,
                        Choice& choice) const;
  Status check_arguments(const Module& module,
                         const std::vector<std::pair<std::string, std::string>>& arguments) const;
  Status check_uses(size_t module, const std::vector<ModuleUse>& uses) const;

  std::string name_;
  std::vector<Run> runs_;
  std::vector<Parameter> parameters_;
  std::vector<Module> modules_;  // the schema itself first
  std::vector<std::vector<size_t>> unions_;
  size_t length_ = 0;
};

}  // namespace isthmus
