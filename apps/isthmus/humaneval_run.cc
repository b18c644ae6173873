#include "apps/isthmus/humaneval_run.h"

#include <fmt/core.h>

#include <random>

namespace isthmus::cli {
namespace {

/// What the program prints after its last test. It is drawn anew for each run, so that an answer cannot know
/// it.
std::string draw_secret() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

}  // namespace

Result<HumanEvalVerdict> run_humaneval(const HumanEvalProblem& problem, const std::string& answer,
                                       const StopPolicy& stop) {
  const std::string secret = draw_secret();
  SandboxSpec spec;
  spec.argv = {"/usr/bin/python3", "-I", "-"};
  spec.input = humaneval_program(problem, answer) + fmt::format("print('\\n{}')\n", secret);
  ISTHMUS_ASSIGN_OR_RETURN(const SandboxResult run, run_sandboxed(spec, stop));
  const bool finished = run.out.ends_with("\n" + secret + "\n");
  return HumanEvalVerdict{run.end == SandboxEnd::kExited && run.exit_code == 0 && finished, run.end};
}

}  // namespace isthmus::cli
