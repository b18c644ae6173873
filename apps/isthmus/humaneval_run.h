// Runs an answer to a HumanEval problem against the problem's tests, in a sandbox.
#pragma once

#include <string>

#include "apps/isthmus/humaneval_data.h"
#include "base/cancel.h"
#include "os/sandbox.h"

namespace isthmus::cli {

struct HumanEvalVerdict {
  bool passed = false;
  SandboxEnd end = SandboxEnd::kExited;
};

/// Passed means that the tests were reached and came to their end: a program that leaves early with exit
/// code 0 has not passed. Errors are those of run_sandboxed().
Result<HumanEvalVerdict> run_humaneval(const HumanEvalProblem& problem, const std::string& answer,
                                       const StopPolicy& stop);

}  // namespace isthmus::cli
