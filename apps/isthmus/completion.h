// Shell completion scripts, written from the description of the commands (describe.h).
#pragma once

#include <string>

#include "apps/isthmus/describe.h"
#include "base/status.h"

namespace isthmus::cli {

/// The script for "bash", "zsh" or "fish"; kInvalidArgument for another shell.
Result<std::string> completion_script(const CommandDoc& root, const std::string& shell);

}  // namespace isthmus::cli
