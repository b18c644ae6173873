// A plain description of a command's arguments, taken from its CLI::App. Help texts, manual pages and shell
// completions are all written from it, so they cannot disagree with what the parser accepts.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace isthmus::cli {

struct OptionDoc {
  std::vector<std::string> flags;  // "-n", "--tokens"; empty for a positional argument
  std::string name;                // of a positional argument: "MODEL"
  std::string value;               // name of the value: "N"; empty for a switch
  std::string text;
  std::string default_value;  // empty: none worth showing
  bool required = false;
  bool repeated = false;
};

struct CommandDoc {
  std::string name;  // "run"; the program itself: "isthmus"
  std::string summary;
  std::string description;
  std::string group;
  std::vector<OptionDoc> positionals;
  std::vector<OptionDoc> options;
  std::vector<CommandDoc> commands;
};

CommandDoc describe(const CLI::App& app);

/// "isthmus run [options] MODEL [PROMPT…]".
std::string usage_line(const CommandDoc& doc);

/// The text of `--help`.
std::string help_text(const CommandDoc& doc);

}  // namespace isthmus::cli
