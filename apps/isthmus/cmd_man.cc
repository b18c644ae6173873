// isthmus man: writes the manual pages. Hidden: `make install` runs it.
#include <fmt/core.h>

#include <memory>

#include "apps/isthmus/command.h"
#include "apps/isthmus/man_page.h"

namespace isthmus::cli {

Command man_command() {
  return {
      .name = "man",
      .group = Group::kHidden,
      .summary = "Write the manual pages of all commands into a folder",
      .json = false,
      .aliases = {},
      .description = "",
      .setup = [](CLI::App& app) {
        auto folder = std::make_shared<std::string>();
        app.add_option("--dir", *folder, "Folder to write to; made when missing")
            ->type_name("DIR")
            ->required();
        return Action([folder](const Context& context) { return write_man_pages(context.root, *folder); });
      }};
}

}  // namespace isthmus::cli
