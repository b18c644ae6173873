// The child's side of the sandbox: three processes that isolate, prepare and become the untrusted program.
//
// keeper (a child of ours) enters the new namespaces and starts init; init is process 1 of the new process
// namespace, builds the new root and starts the program. The keeper kills init when its leash is pulled or
// lost, and with init the kernel kills every process of the namespace. All of it runs between fork and exec
// of a process that may have had threads: only async-signal-safe calls, no allocation, everything prepared in
// ChildPlan before the fork. Failures go through the status pipe as records.
#pragma once

#include <linux/filter.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "os/sandbox.h"

namespace isthmus::sandbox {

/// The steps that can fail, for the parent's message.
enum class Step : int32_t {
  kDescriptors,
  kUser,
  kNamespaces,
  kUserMap,
  kFork,
  kMountPrivate,
  kOpenTree,
  kReadOnly,
  kNewRoot,
  kDirectory,
  kAttach,
  kTmp,
  kPivot,
  kLimits,
  kPrivileges,
  kFilter,
  kExec,
};
const char* step_name(Step step);

/// One record on the status pipe: a failed step (`value` = errno) or the program's end (`value` = wait
/// status).
struct Record {
  enum Kind : int32_t { kFailed = 1, kEnded = 2 };
  int32_t kind = 0;
  Step step{};
  int32_t value = 0;
  int32_t item = -1;  // which bind of the plan, for kOpenTree, kReadOnly and kAttach
  int64_t cpu_microseconds = 0;
  int64_t peak_kib = 0;
};

/// A path to show: `source` of the old root, at `target` (relative to the new root).
struct Bind {
  const char* source;
  const char* target;
  bool directory;
  bool device;
};
struct Link {
  const char* target;
  const char* path;
};

constexpr int kMaxBinds = 64;

struct ChildPlan {
  Isolation isolation{};
  bool root = false;  // our effective user is root
  int input_fd = -1, out_fd = -1, err_fd = -1, status_fd = -1, leash_fd = -1;
  const char* const* argv = nullptr;
  const char* const* env = nullptr;
  const char* uid_map = nullptr;
  const char* gid_map = nullptr;
  const char* tmp_options = nullptr;
  std::vector<const char*> directories;  // relative, parents first
  std::vector<const char*> files;        // relative, empty files to bind over
  std::vector<Link> links;
  std::vector<Bind> binds;
  sock_fprog filter{};
  SandboxLimits limits;
};

/// Runs in the forked child; never returns.
[[noreturn]] void run_keeper(const ChildPlan& plan);

/// Tries `isolation` in a child that then ends: 0, or the errno of the step that failed.
int probe(Isolation isolation, bool root, const char* uid_map, const char* gid_map, Step* step);

/// The system calls that a program in the sandbox may not make, as a seccomp filter.
std::vector<sock_filter> make_filter();

}  // namespace isthmus::sandbox
