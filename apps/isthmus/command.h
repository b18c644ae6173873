// What a command of the program is, and how one is added.
//
// A file cmd_VERB.cc defines `Command VERB_command()`; the build finds it by its name and puts it into the
// table that all_commands() returns. Its `setup` is called once with the command's own CLI::App: it adds
// flags and arguments, bound to an options object that it shares with the Action that it returns. The Action
// runs after a successful parse. An Action writes its result to stdout, all else to stderr, and reports
// failure as a Status, which the frame prints and turns into the exit code (exit_code.h). Everything here
// runs on the main thread.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"

namespace isthmus::cli {

/// What an Action may use besides its own options.
struct Context {
  bool json = false;     // --json was given: stdout carries one JSON document and nothing else
  CancelToken stop;      // set by the first Ctrl-C or SIGTERM (interrupt.h)
  const CLI::App& root;  // the whole tree of commands, for those that describe it
};

using Action = std::function<Status(const Context&)>;

/// Headings of `isthmus help`, in this order.
enum class Group { kRun, kModels, kMeasure, kProgram, kHidden };

struct Command {
  std::string name;
  Group group = Group::kRun;
  std::string summary;               // one line, no full stop, begins with a verb
  bool json = false;                 // the frame adds --json
  std::vector<std::string> aliases;  // other spellings
  std::string description;  // paragraphs for --help and the manual page, parted by empty lines; may be empty
  std::function<Action(CLI::App&)> setup;
};

/// The table, in order of name.
std::vector<Command> all_commands();

}  // namespace isthmus::cli
