#include "apps/isthmus/command.h"

namespace isthmus::cli {

// commands.inc is written by the build: one line ISTHMUS_COMMAND(verb) for each cmd_verb.cc.
#define ISTHMUS_COMMAND(verb) Command verb##_command();
#include "apps/isthmus/commands.inc"
#undef ISTHMUS_COMMAND

std::vector<Command> all_commands() {
  return {
#define ISTHMUS_COMMAND(verb) verb##_command(),
#include "apps/isthmus/commands.inc"
#undef ISTHMUS_COMMAND
  };
}

}  // namespace isthmus::cli
