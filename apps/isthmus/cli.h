// The frame of the command line: builds the tree of commands, parses, runs one, and reports what went wrong.
#pragma once

#include <string>
#include <vector>

namespace isthmus::cli {

/// Runs the program with `arguments` (without the program's name) and returns its exit code. Prints to stdout
/// and stderr; lets no exception out.
int run(const std::vector<std::string>& arguments);

}  // namespace isthmus::cli
