#include "apps/isthmus/humaneval_data.h"

#include <gtest/gtest.h>

namespace isthmus::cli {
namespace {

const HumanEvalProblem kProblem = {"T/0", "import math\n\ndef f(x):\n    \"\"\"doc\"\"\"\n",
                                   "def check(c):\n    assert c(1) == 1", "f"};

TEST(HumanEval, AFencedFunctionReplacesThePrompt) {
  const std::string program =
      humaneval_program(kProblem, "Sure:\n```python\ndef f(x):\n    return x\n```\nDone.");
  EXPECT_EQ(program,
            "import math\n\ndef f(x):\n    return x\n\n\ndef check(c):\n    assert c(1) == 1\ncheck(f)\n");
}

TEST(HumanEval, AContinuationFollowsThePrompt) {
  const std::string program = humaneval_program(kProblem, "    return x\n");
  EXPECT_EQ(program.find(kProblem.prompt + "    return x\n"), 0U);
}

TEST(HumanEval, BadLinesAreNamed) {
  EXPECT_TRUE(parse_humaneval(R"({"task_id":"a","prompt":"b","test":"c","entry_point":"d"})").ok());
  EXPECT_EQ(parse_humaneval("{}\n").status().message(), "line 1: no string 'task_id'");
  EXPECT_EQ(parse_humaneval("nonsense").status().code(), Code::kCorrupt);
  EXPECT_EQ(parse_humaneval("").status().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace isthmus::cli
