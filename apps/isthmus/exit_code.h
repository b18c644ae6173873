// The exit codes of the program and the one place where a Status becomes one. The table for users is
// docs/commands/exit-codes.md; a test keeps the two in step.
#pragma once

#include "base/status.h"

namespace isthmus::cli {

enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,            // the operating system, a wrong moment, or our own bug
  kUsage = 2,             // the command line asks for something that cannot be
  kNotFound = 3,          // no such model, file, tensor or key
  kCorrupt = 4,           // a file breaks its own format or its checksum
  kOutOfResources = 5,    // memory, disk, context or a limit
  kUnsupported = 6,       // valid, but not something that this version does
  kUnavailable = 7,       // a server did not answer as needed
  kDeadlineExceeded = 8,  // a time limit given by the caller has passed
  kInterrupted = 130,     // Ctrl-C or SIGTERM
};

ExitCode exit_code(Code code);

}  // namespace isthmus::cli
