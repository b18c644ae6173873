// choice: the answer whose text the model finds most likely.
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/isthmus/eval_tasks.h"
#include "apps/isthmus/input.h"
#include "apps/isthmus/output.h"
#include "apps/isthmus/progress.h"
#include "format/logits_file.h"

namespace isthmus::cli {
namespace {

constexpr size_t kChoiceContext = 2048;

struct Question {
  std::string text;
  std::vector<std::string> choices;
  size_t answer = 0;
};

Result<Question> parse_question(const std::string& line, size_t number) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  const auto bad = [&](const char* what) { return corrupt("line " + std::to_string(number) + ": " + what); };
  if (!json.is_object()) return bad("not a JSON object");
  Question q;
  if (!json.contains("question") || !json["question"].is_string()) return bad("needs a string 'question'");
  if (!json.contains("choices") || !json["choices"].is_array() || json["choices"].size() < 2) {
    return bad("needs an array 'choices' of two or more");
  }
  for (const auto& choice : json["choices"]) {
    if (!choice.is_string() || choice.get_ref<const std::string&>().empty())
      return bad("a choice is not a text");
    q.choices.push_back(choice);
  }
  if (!json.contains("answer") || !json["answer"].is_number_unsigned()) return bad("needs an index 'answer'");
  q.answer = json["answer"].get<size_t>();
  if (q.answer >= q.choices.size()) return bad("'answer' is not the index of a choice");
  q.text = json["question"];
  return q;
}

/// Sum of log-probabilities of `choice` after `question`, per byte of the choice.
Result<double> score_choice(Scorer& scorer, const std::string& question, const std::string& choice,
                            const StopPolicy& stop) {
  const Tokenizer& tokenizer = scorer.model().tokenizer();
  const auto context = tokenizer.encode(question, Specials::kAsText, true);
  const auto whole = tokenizer.encode(question + choice, Specials::kAsText, true);
  size_t shared = 0;  // a token may span the border: it belongs to the choice then
  while (shared < context.size() && shared < whole.size() && context[shared] == whole[shared]) ++shared;
  if (shared == 0 || shared >= whole.size()) return invalid_argument("a question or a choice without tokens");
  if (whole.size() > scorer.model().context()) {
    return resource_exhausted("a question of " + std::to_string(whole.size()) + " tokens; " +
                              std::to_string(scorer.model().context()) + " fit (--ctx)");
  }
  double sum = 0;
  const auto add = [&](size_t position, std::span<float> logits) {
    log_softmax(logits, logits);
    sum += static_cast<double>(logits[static_cast<size_t>(whole[position + 1])]);
    return ok_status();
  };
  ISTHMUS_RETURN_IF_ERROR(scorer.score(whole, shared - 1, whole.size() - 1, ScoreMode::kWindow, stop, add));
  return sum / static_cast<double>(choice.size());
}

}  // namespace

Status eval_choice(const EvalArgs& args, const Context& context) {
  if (args.file.empty()) return invalid_argument("a file of questions is needed (JSON lines)");
  ISTHMUS_ASSIGN_OR_RETURN(const std::string text, read_input(args.file));
  std::vector<Question> questions;
  std::istringstream lines(text);
  std::string line;
  for (size_t number = 1; std::getline(lines, line) && questions.size() < args.limit; ++number) {
    if (line.empty()) continue;
    ISTHMUS_ASSIGN_OR_RETURN(Question q, parse_question(line, number));
    questions.push_back(std::move(q));
  }
  if (questions.empty()) return corrupt(args.file + ": no questions");
  const size_t window = args.model.context != 0 ? args.model.context : kChoiceContext;
  ISTHMUS_ASSIGN_OR_RETURN(const auto scorer, make_scorer(args, window, context));
  StopPolicy stop;
  stop.token = context.stop;
  size_t right = 0;
  ProgressBar bar(context.json);
  for (size_t i = 0; i < questions.size(); ++i) {
    bar.show_steps("asking", i, questions.size());
    size_t best = 0;
    double best_score = -INFINITY;
    for (size_t c = 0; c < questions[i].choices.size(); ++c) {
      ISTHMUS_ASSIGN_OR_RETURN(const double score,
                               score_choice(*scorer, questions[i].text, questions[i].choices[c], stop));
      if (score > best_score) {
        best_score = score;
        best = c;
      }
    }
    right += best == questions[i].answer ? 1 : 0;
  }
  bar.finish();
  const auto n = static_cast<double>(questions.size());
  const double share = static_cast<double>(right) / n;
  const double error = std::sqrt(share * (1 - share) / n);
  if (context.json) {
    print_json({{"model", args.model.model},
                {"questions", questions.size()},
                {"right", right},
                {"accuracy", share},
                {"standard_error", error}});
  } else {
    fmt::print("{} of {} right: {:.1f} % ± {:.1f}\n", right, questions.size(), 100 * share, 100 * error);
  }
  return ok_status();
}

}  // namespace isthmus::cli
