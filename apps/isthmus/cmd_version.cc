// isthmus version: what was built.
#include <fmt/core.h>

#include "apps/isthmus/command.h"
#include "apps/isthmus/output.h"
#include "apps/isthmus/version.h"

namespace isthmus::cli {
namespace {

Status print_version(const Context& context) {
  if (context.json) {
    print_json({{"version", ISTHMUS_VERSION}, {"compiler", ISTHMUS_COMPILER}, {"build", ISTHMUS_BUILD_TYPE}});
  } else {
    fmt::print("isthmus {} ({}, {})\n", ISTHMUS_VERSION, ISTHMUS_COMPILER, ISTHMUS_BUILD_TYPE);
  }
  return ok_status();
}

}  // namespace

Command version_command() {
  return {.name = "version",
          .group = Group::kProgram,
          .summary = "Print the version and how the program was built",
          .json = true,
          .aliases = {},
          .description = "",
          .setup = [](CLI::App&) { return Action(print_version); }};
}

}  // namespace isthmus::cli
