// humaneval: pass@1 on the 164 problems of Chen et al. 2021 (arXiv 2107.03374), greedy, one answer per
// problem.
#include <fmt/core.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/isthmus/eval_tasks.h"
#include "apps/isthmus/humaneval_data.h"
#include "apps/isthmus/humaneval_run.h"
#include "apps/isthmus/output.h"
#include "apps/isthmus/progress.h"
#include "engine/chat.h"
#include "engine/generate.h"
#include "os/file.h"
#include "os/sandbox.h"

namespace isthmus::cli {
namespace {

struct Outcome {
  std::string id;
  std::string completion;
  bool passed = false;
  std::string end;  // how the program ended
  size_t tokens = 0;
};

Result<std::string> ask(Session& session, const LanguageModel& model, const HumanEvalProblem& problem,
                        const EvalArgs& args, const Context& context, size_t& tokens) {
  GenerateRequest request;
  ChatRequest chat;
  chat.messages.push_back({{"role", "user"}, {"content", humaneval_question(problem)}});
  if (model.chat_template().ok()) {
    ISTHMUS_ASSIGN_OR_RETURN(request.prompt, encode_chat(model, chat));
  } else {
    request.prompt = model.tokenizer().encode(problem.prompt, Specials::kAsText, true);
    request.stops = {"\ndef ", "\nclass ", "\nif __name__", "\nprint("};
  }
  request.sampler.temperature = 0;
  request.max_tokens = args.max_tokens;
  request.stop.token = context.stop;
  ISTHMUS_ASSIGN_OR_RETURN(const GenerateResult result, generate(session, request));
  if (result.reason == FinishReason::kCancelled) return cancelled("stopped by the user");
  tokens = result.tokens.size();
  return result.text;
}

Result<Outcome> solve(Session& session, const LanguageModel& model, const HumanEvalProblem& problem,
                      const EvalArgs& args, const Context& context) {
  Outcome out;
  out.id = problem.id;
  ISTHMUS_ASSIGN_OR_RETURN(out.completion, ask(session, model, problem, args, context, out.tokens));
  StopPolicy stop;
  stop.token = context.stop;
  ISTHMUS_ASSIGN_OR_RETURN(const HumanEvalVerdict verdict, run_humaneval(problem, out.completion, stop));
  out.passed = verdict.passed;
  out.end = sandbox_end_name(verdict.end);
  return out;
}

Status write_samples(const std::string& path, const std::vector<Outcome>& outcomes) {
  std::string text;
  for (const auto& o : outcomes) {
    const nlohmann::ordered_json line = {{"task_id", o.id},
                                         {"completion", o.completion},
                                         {"passed", o.passed},
                                         {"end", o.end},
                                         {"tokens", o.tokens}};
    text += line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }
  return publish_file(real_file_system(), path, std::as_bytes(std::span(text)));
}

}  // namespace

Status eval_humaneval(const EvalArgs& args, const Context& context) {
  // Before anything long: whether the generated programs can be run at all.
  ISTHMUS_RETURN_IF_ERROR(sandbox_isolation().status());
  ISTHMUS_ASSIGN_OR_RETURN(std::vector<HumanEvalProblem> problems, load_humaneval(args.file, context));
  if (problems.size() > args.limit) problems.resize(args.limit);
  ISTHMUS_ASSIGN_OR_RETURN(ModelOptions options, model_options(args.model));
  ISTHMUS_ASSIGN_OR_RETURN(const auto model, load_model(args.model, std::move(options), context));
  ISTHMUS_ASSIGN_OR_RETURN(const auto session, Session::create(model));
  std::vector<Outcome> outcomes;
  size_t passed = 0;
  size_t tokens = 0;
  ProgressBar bar(context.json);
  for (const auto& problem : problems) {
    bar.show_steps(fmt::format("{} of {} passed", passed, outcomes.size()), outcomes.size(), problems.size());
    ISTHMUS_ASSIGN_OR_RETURN(Outcome outcome, solve(*session, *model, problem, args, context));
    passed += outcome.passed ? 1 : 0;
    tokens += outcome.tokens;
    outcomes.push_back(std::move(outcome));
  }
  bar.finish();
  if (!args.samples.empty()) ISTHMUS_RETURN_IF_ERROR(write_samples(args.samples, outcomes));
  const auto n = static_cast<double>(outcomes.size());
  const double share = static_cast<double>(passed) / n;
  const double error = std::sqrt(share * (1 - share) / n);
  if (context.json) {
    print_json({{"model", args.model.model},
                {"problems", outcomes.size()},
                {"passed", passed},
                {"pass_at_1", share},
                {"standard_error", error},
                {"generated_tokens", tokens}});
  } else {
    fmt::print("{} of {} passed: pass@1 {:.1f} % ± {:.1f}, {} tokens generated\n", passed, outcomes.size(),
               100 * share, 100 * error, tokens);
  }
  return ok_status();
}

}  // namespace isthmus::cli
