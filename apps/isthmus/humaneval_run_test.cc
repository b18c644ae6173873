#include "apps/isthmus/humaneval_run.h"

#include <gtest/gtest.h>

namespace isthmus::cli {
namespace {

const HumanEvalProblem kAddOne = {"T/0", "def f(x):\n    \"\"\"doc\"\"\"\n",
                                  "def check(c):\n    assert c(1) == 2\n    assert c(2) == 3", "f"};

HumanEvalVerdict verdict(const std::string& answer) {
  auto run = run_humaneval(kAddOne, answer, {});
  EXPECT_TRUE(run.ok()) << run.status().to_string();
  return run.ok() ? *run : HumanEvalVerdict{};
}

TEST(HumanEvalRun, OnlyAnswersThatPassEveryTestPass) {
  EXPECT_TRUE(verdict("```python\ndef f(x):\n    return x + 1\n```").passed);
  EXPECT_TRUE(verdict("    return x + 1\n").passed);
  EXPECT_TRUE(verdict("    print('noise', end='')\n    return x + 1\n").passed);
  EXPECT_FALSE(verdict("    return 2\n").passed);
  EXPECT_FALSE(verdict("    return x +\n").passed) << "a syntax error";
  EXPECT_FALSE(verdict("").passed);
}

TEST(HumanEvalRun, LeavingEarlyIsNotPassing) {
  for (const char* leave : {"import sys\nsys.exit(0)\n", "import os\nos._exit(0)\n", "raise SystemExit\n"}) {
    const HumanEvalVerdict v = verdict(std::string("```python\ndef f(x):\n    return 0\n") + leave + "```");
    EXPECT_FALSE(v.passed) << leave;
    EXPECT_EQ(v.end, SandboxEnd::kExited) << leave;
  }
}

}  // namespace
}  // namespace isthmus::cli
