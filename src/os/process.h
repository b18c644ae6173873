// Runs another program to its end: no shell, no inherited descriptors, bounded output, cancellable.
//
// The child gets its own process group, so that stopping it stops what it started; standard input is
// /dev/null. Blocking; may be used from several threads at once. A program that ends with a non-zero code is
// a result, not an error. Errors: kNotFound (no such program), kCancelled, kDeadlineExceeded, kIo.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"

namespace isthmus {

struct ProcessSpec {
  std::vector<std::string> argv;                         // argv[0] is looked up on PATH unless it has a '/'
  std::vector<std::pair<std::string, std::string>> env;  // added to, or replacing, our own environment
  std::string folder;                                    // where it runs; empty: here
  size_t max_output = 65536;  // bytes kept of each stream; of more, the end is kept
  StopPolicy stop;            // checked every `poll`
  std::chrono::milliseconds poll{100};
  std::chrono::milliseconds grace{2000};  // between SIGTERM and SIGKILL when stopped
  std::function<void()> on_poll;          // called on this thread every `poll`, may be empty
};

struct ProcessResult {
  int exit_code = 0;  // 128 + signal when killed by one
  int signal = 0;     // 0: ended by itself
  std::string out;
  std::string err;
};

Result<ProcessResult> run_process(const ProcessSpec& spec);

}  // namespace isthmus
