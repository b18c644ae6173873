#include "apps/isthmus/cli.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>

#include "apps/isthmus/command.h"
#include "apps/isthmus/describe.h"
#include "apps/isthmus/exit_code.h"
#include "apps/isthmus/interrupt.h"
#include "apps/isthmus/output.h"
#include "apps/isthmus/version.h"
#include "base/suggest.h"

namespace isthmus::cli {
namespace {

std::string_view heading(Group group) {
  constexpr std::array<std::string_view, 5> kHeadings = {"Run a model", "Models on this machine",
                                                         "Measure and convert", "This program", ""};
  return kHeadings[static_cast<size_t>(group)];
}

/// The parser's own conversion would wrap "-1" around, take "0x10", and let "nan" through.
std::string number_problem(const std::string& text, bool whole) {
  if (whole) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::result_out_of_range) return fmt::format("'{}' is too large", text);
    if (error == std::errc() && end == text.data() + text.size()) return "";
    return fmt::format("'{}' is not a whole number of 0 or more", text);
  }
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool good = end != text.c_str() && *end == '\0' && std::isfinite(value);
  return good ? "" : fmt::format("'{}' is not a number", text);
}

/// Numbers that are none are refused, and so are switches with a value ("--greedy=5").
void be_strict(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 0) option->disable_flag_override();
    const std::string type = option->get_type_name();
    const bool whole = type.starts_with("UINT");
    if (!whole && !type.starts_with("FLOAT")) continue;
    option->check([whole](const std::string& text) { return number_problem(text, whole); });
  }
}

/// The tree of commands and what each leaf does.
class CommandLine {
 public:
  CommandLine() : root_("Runs language models on this device", "isthmus") {
    root_.option_defaults()->always_capture_default();
    root_.set_help_flag("-h,--help", "Print this help");
    root_.set_version_flag("--version", "isthmus " ISTHMUS_VERSION, "Print the version");
    root_.require_subcommand(0, 1);
    std::vector<Command> commands = all_commands();
    std::stable_sort(commands.begin(), commands.end(),
                     [](const Command& a, const Command& b) { return a.group < b.group; });
    for (const Command& command : commands) add(command);
  }

  CLI::App& root() { return root_; }

  /// The command that was parsed last and deepest; the root when there is none.
  CLI::App& chosen() {
    CLI::App* app = &root_;
    while (!app->get_subcommands().empty()) app = app->get_subcommands().back();
    return *app;
  }

  bool json() const { return json_; }

  Status run_chosen() {
    const auto verbs = root_.get_subcommands();
    if (verbs.empty()) {
      fmt::print("{}", help_text(describe(root_)));
      return ok_status();
    }
    return actions_.at(verbs.front())(Context{json_, interrupt().token(), root_});
  }

 private:
  void add(const Command& command) {
    CLI::App* app = root_.add_subcommand(command.name, command.summary);
    app->group(std::string(heading(command.group)));
    for (const std::string& alias : command.aliases) app->alias(alias);
    app->footer(command.description);
    actions_[app] = command.setup(*app);
    const auto nested = app->get_subcommands(nullptr);
    if (!nested.empty()) app->require_subcommand(1);
    for (CLI::App* child : nested) child->fallthrough();
    if (command.json) app->add_flag("--json", json_, "Print one JSON document instead of text");
    be_strict(*app);
  }

  CLI::App root_;
  std::map<const CLI::App*, Action> actions_;
  bool json_ = false;
};

std::vector<std::string> verb_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_group().empty()) continue;
    names.push_back(command->get_name());
  }
  return names;
}

/// Long and short flags of a command and of those that contain it.
std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* at = &app; at != nullptr; at = at->get_parent()) {
    const CommandDoc doc = describe(*at);
    for (const OptionDoc& option : doc.options) {
      names.insert(names.end(), option.flags.begin(), option.flags.end());
    }
  }
  return names;
}

/// What to say about a word that the parser had no use for.
std::string explain_unexpected(const CLI::App& command, const std::vector<std::string>& words) {
  const auto mark = std::find(words.begin(), words.end(), "--");  // behind it nothing is a flag
  const auto flag = std::find_if(words.begin(), mark,
                                 [](const std::string& word) { return word.size() > 1 && word[0] == '-'; });
  if (flag != mark) {
    const std::string name = flag->substr(0, flag->find('='));
    const std::vector<std::string> known = flag_names(command);
    if (std::find(known.begin(), known.end(), name) != known.end()) {
      return fmt::format("the option '{}' stands behind the command", name);
    }
    return fmt::format("unknown option '{}'{}", name, did_you_mean(name, known));
  }
  const std::vector<std::string> verbs = verb_names(command);
  if (!verbs.empty()) {
    return fmt::format("unknown command '{}'{}", words.front(), did_you_mean(words.front(), verbs));
  }
  const auto word = mark == words.begin() && words.size() > 1 ? mark + 1 : words.begin();
  return fmt::format("unexpected argument '{}'", *word);
}

/// The parser's sentences about options with a missing value, or given twice, in our words.
std::string explain_mismatch(const CLI::ParseError& error) {
  std::string text = error.what();
  if (const size_t end = text.find(" was given a disallowed flag override"); end != std::string::npos) {
    return fmt::format("--{} takes no value", text.substr(0, end));
  }
  const size_t colon = text.find(": ");
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) == nullptr || colon == std::string::npos)
    return text;
  const std::string name = text.substr(0, colon);
  if (text.find("At Most 1") != std::string::npos) return fmt::format("{} is given more than once", name);
  if (text.find("required") != std::string::npos) return fmt::format("{} needs a value", name);
  return text;
}

std::string full_name(const CLI::App& app) { return describe(app).name; }

int report(const Status& status, const std::string& command, bool json, std::string_view hint = "") {
  if (status.ok()) return static_cast<int>(ExitCode::kOk);
  if (json) print_json(error_json(status));
  const std::string text = status.code() == Code::kCancelled ? "interrupted" : printable(status.message());
  say("{}: {}\n", command, text);
  if (!hint.empty()) say("{}\n", hint);
  return static_cast<int>(exit_code(status.code()));
}

/// Turns what the parser threw into help, a version or a usage error.
int report_parse(CommandLine& line, const CLI::ParseError& error, bool json) {
  CLI::App& command = line.chosen();
  if (dynamic_cast<const CLI::CallForHelp*>(&error) != nullptr) {
    fmt::print("{}", help_text(describe(command)));
    return 0;
  }
  if (dynamic_cast<const CLI::CallForVersion*>(&error) != nullptr) {
    fmt::print("{}\n", error.what());
    return 0;
  }
  const std::vector<std::string> unexpected = line.root().remaining(true);
  const std::string what =
      unexpected.empty() ? explain_mismatch(error) : explain_unexpected(command, unexpected);
  const std::string name = full_name(command);
  return report(invalid_argument(what), name, json, fmt::format("See '{} --help'.", name));
}

/// Parses and runs; the caller has the last word on output that could not be written.
int parse_and_run(const std::vector<std::string>& arguments) {
  CommandLine line;
  try {
    // CLI11 takes its arguments last first.
    line.root().parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return report_parse(line, error,
                        std::find(arguments.begin(), arguments.end(), "--json") != arguments.end());
  }
  const std::string name = full_name(line.chosen());
  try {
    return report(line.run_chosen(), name, line.json());
  } catch (const std::bad_alloc&) {
    return report(resource_exhausted("out of memory"), name, line.json());
  } catch (const std::exception& error) {
    if (std::ferror(stdout) != 0) return static_cast<int>(ExitCode::kFailed);  // run() says why
    return report(internal_error(fmt::format("unexpected error: {}", error.what())), name, line.json());
  }
}

}  // namespace

int run(const std::vector<std::string>& arguments) {
  try {
    const int code = parse_and_run(arguments);
    const bool flushed = std::fflush(stdout) == 0;
    if (!flushed || std::ferror(stdout) != 0) {
      say("isthmus: cannot write to standard output: {}\n", std::strerror(errno));
      return code == 0 ? static_cast<int>(ExitCode::kFailed) : code;
    }
    return code;
  } catch (const std::exception& error) {
    std::fputs("isthmus: ", stderr);
    std::fputs(error.what(), stderr);
    std::fputs("\n", stderr);
    return static_cast<int>(ExitCode::kFailed);
  }
}

}  // namespace isthmus::cli
