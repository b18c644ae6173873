// Runs a program that nobody trusts (code that a model wrote) where it can do no harm.
//
// The program sees no network, no process but its own, a read-only /usr and libraries, an empty /proc, a
// private /tmp that vanishes afterwards, and nothing else of the machine: no home, no /etc, no environment.
// It cannot gain privileges or leave: own user, mount, process, network, IPC and host-name namespaces,
// no_new_privs, no capabilities, a filter on the system calls that reach outside. Time, memory, processes,
// file and output sizes are limited; when its first process ends or a limit is hit, everything it started is
// killed before the call returns. There is no weaker fallback: where the kernel offers too little the call
// fails with kUnsupported and says what is missing. Blocking; may be used from several threads at once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"

namespace isthmus {

struct SandboxLimits {
  double wall_seconds = 10;
  uint32_t cpu_seconds = 10;              // RLIMIT_CPU of one process
  uint64_t memory_bytes = 1024ull << 20;  // RLIMIT_AS of one process
  uint32_t processes = 16;                // threads count too
  uint64_t file_bytes = 4ull << 20;       // RLIMIT_FSIZE of one file
  uint64_t tmp_bytes = 16ull << 20;       // all of /tmp
  uint64_t output_bytes = 64ull << 10;    // of standard output and of standard error, each
};

struct SandboxSpec {
  std::vector<std::string> argv;      // argv[0] is an absolute path
  std::string input;                  // standard input
  std::vector<std::string> readable;  // further absolute paths to show, read-only, at the same place
  SandboxLimits limits;
};

enum class SandboxEnd {
  kExited,       // by itself, with exit_code
  kSignalled,    // by `signal`, for example SIGSEGV, or SIGKILL for memory
  kCpuLimit,     // used up cpu_seconds
  kWallLimit,    // killed after wall_seconds
  kOutputLimit,  // killed for writing more than output_bytes
};
std::string_view sandbox_end_name(SandboxEnd end);

struct SandboxResult {
  SandboxEnd end = SandboxEnd::kExited;
  int exit_code = 0;
  int signal = 0;
  std::string out, err;  // at most output_bytes each
  double wall_seconds = 0;
  double cpu_seconds = 0;  // of the program and the children it waited for; 0 when it was killed from outside
  uint64_t peak_bytes = 0;  // resident; 0 when it was killed from outside
};

/// How a program can be isolated on this machine.
enum class Isolation {
  kUserNamespace,  // as an unprivileged user in a user namespace (as nobody when we are root)
  kRootNamespace,  // we are root and user namespaces are forbidden: plain namespaces, then user nobody
};

/// kUnsupported, with the reason, when a program cannot be isolated here.
Result<Isolation> sandbox_isolation();

/// Runs the program to its end. Errors: kUnsupported, kNotFound (argv[0] or a readable path),
/// kInvalidArgument, kCancelled, kDeadlineExceeded (of `stop`; the limits of the spec are results), kIo.
Result<SandboxResult> run_sandboxed(const SandboxSpec& spec, const StopPolicy& stop = {});

}  // namespace isthmus
