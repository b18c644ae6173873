// Small reads from sysfs for the energy meters. Values are short texts; anything long or malformed is an
// error that names the file. Stateless, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "os/energy.h"

namespace isthmus::sysfs {

/// The file's text without trailing white space. kNotFound, kIo (permission) or kUnavailable (device gone).
Result<std::string> read_text(const std::string& path);
/// The file's text as a decimal number >= 0; kUnavailable when it is not one.
Result<uint64_t> read_uint(const std::string& path);
/// Names in a directory, sorted, without dot files; kNotFound when there is no such directory.
Result<std::vector<std::string>> list(const std::string& dir);

/// "dir/name".
std::string join(const std::string& dir, const std::string& name);

/// The environment's clocks, or the system's.
double wall_seconds(const EnergyEnv& env);
double cpu_seconds(const EnergyEnv& env);

}  // namespace isthmus::sysfs
