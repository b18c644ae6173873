// isthmus help: the help text of the program or of one command.
#include <fmt/core.h>

#include <memory>

#include "apps/isthmus/command.h"
#include "apps/isthmus/describe.h"
#include "base/suggest.h"

namespace isthmus::cli {
namespace {

Status print_help(const Context& context, const std::vector<std::string>& path) {
  const CLI::App* app = &context.root;
  for (const std::string& word : path) {
    const CLI::App* next = nullptr;
    std::vector<std::string> names;
    for (const CLI::App* command : app->get_subcommands(nullptr)) {
      if (command->check_name(word)) next = command;
      if (!command->get_group().empty()) names.push_back(command->get_name());
    }
    if (next == nullptr) {
      return invalid_argument(fmt::format("unknown command '{}'{}", word, did_you_mean(word, names)));
    }
    app = next;
  }
  fmt::print("{}", help_text(describe(*app)));
  return ok_status();
}

}  // namespace

Command help_command() {
  return {.name = "help",
          .group = Group::kProgram,
          .summary = "Print help about the program or a command",
          .json = false,
          .aliases = {},
          .description = "",
          .setup = [](CLI::App& app) {
            auto path = std::make_shared<std::vector<std::string>>();
            app.add_option("COMMAND", *path, "The command to explain");
            return Action([path](const Context& context) { return print_help(context, *path); });
          }};
}

}  // namespace isthmus::cli
