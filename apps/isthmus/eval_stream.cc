// stream: whether a text without end is still understood when only sinks and the newest keys are held.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/isthmus/eval_tasks.h"
#include "apps/isthmus/input.h"
#include "apps/isthmus/output.h"
#include "apps/isthmus/progress.h"
#include "format/logits_file.h"

namespace isthmus::cli {
namespace {

constexpr size_t kStreamStep =
    64;  // tokens that are read at once: what they see is the budget and at most a step more
constexpr size_t kParts = 5;

struct Part {
  size_t first = 0;  // token
  size_t last = 0;
  double streamed = 0;  // sum of -log p
  double anew = 0;
  size_t counted = 0;
};

double minus_log(std::span<float> logits, TokenId next) {
  log_softmax(logits, logits);
  return -double{logits[static_cast<size_t>(next)]};
}

/// Windows of `budget` tokens, each read anew, of which the newer half is scored: losses[token], 0 where none
/// was.
Status score_anew(Scorer& scorer, const std::vector<TokenId>& text, size_t budget, const StopPolicy& stop,
                  std::vector<double>& losses) {
  const size_t half = budget / 2;
  for (size_t at = 0; at + budget < text.size(); at += half) {
    const std::span<const TokenId> window(text.data() + at, budget + 1);
    ISTHMUS_RETURN_IF_ERROR(scorer.score(window, budget - half, budget, ScoreMode::kWindow, stop,
                                         [&](size_t position, std::span<float> logits) {
                                           losses[at + position + 1] =
                                               minus_log(logits, window[position + 1]);
                                           return ok_status();
                                         }));
  }
  return ok_status();
}

void print_parts(const EvalArgs& args, const std::vector<Part>& parts, uint64_t peak_tokens,
                 const Context& context) {
  auto rows = nlohmann::ordered_json::array();
  Table table({"tokens", "streamed", "read anew", "ratio"});
  table.align_right({1, 2, 3});
  for (const Part& part : parts) {
    if (part.counted == 0) continue;
    const double streamed = std::exp(part.streamed / static_cast<double>(part.counted));
    const double anew = std::exp(part.anew / static_cast<double>(part.counted));
    rows.push_back({{"first", part.first},
                    {"last", part.last},
                    {"tokens", part.counted},
                    {"perplexity", streamed},
                    {"perplexity_anew", anew},
                    {"ratio", streamed / anew}});
    table.add({fmt::format("{} to {}", part.first, part.last), fmt::format("{:.3f}", streamed),
               fmt::format("{:.3f}", anew), fmt::format("{:.3f}", streamed / anew)});
  }
  if (context.json) {
    print_json({{"model", args.model.model}, {"most_tokens_held", peak_tokens}, {"parts", rows}});
  } else {
    table.print();
    fmt::print("at most {} tokens held\n", peak_tokens);
  }
}

}  // namespace

Status eval_stream(const EvalArgs& args, const Context& context) {
  if (args.file.empty()) return invalid_argument("a text file is needed");
  ISTHMUS_ASSIGN_OR_RETURN(ModelOptions options, model_options(args.model));
  const size_t budget = options.eviction.tokens;
  if (options.eviction.policy != KvPolicy::kStreaming || budget == 0) {
    return invalid_argument("stream measures --kv-policy streaming with a --kv-budget, as 1024");
  }
  ISTHMUS_ASSIGN_OR_RETURN(const std::string input, read_input(args.file));
  options.context = budget + kBlockKeys + kStreamStep;
  options.step_tokens = kStreamStep;
  options.step_outputs = kStreamStep;
  ISTHMUS_ASSIGN_OR_RETURN(auto model, load_model(args.model, std::move(options), context));
  std::vector<TokenId> text = model->tokenizer().encode(input, Specials::kAsText, true);
  text.resize(std::min(text.size(), args.tokens));
  if (text.size() < 2 * budget) {
    return invalid_argument(args.file + " has " + std::to_string(text.size()) +
                            " tokens; at least twice the budget");
  }
  ISTHMUS_ASSIGN_OR_RETURN(const auto scorer, Scorer::create(model));
  StopPolicy stop;
  stop.token = context.stop;
  std::vector<double> anew(text.size(), 0.0);
  ISTHMUS_RETURN_IF_ERROR(score_anew(*scorer, text, budget, stop, anew));
  // The first part ends at twice the budget, the others are equal.
  std::vector<Part> parts(kParts + 1);
  const size_t begin = 2 * budget;
  for (size_t p = 0; p <= kParts; ++p) {
    parts[p].first = p == 0 ? 0 : begin + (text.size() - begin) * (p - 1) / kParts;
    parts[p].last = begin + (text.size() - begin) * p / kParts;
  }
  ProgressBar bar(context.json);
  ISTHMUS_RETURN_IF_ERROR(scorer->score(text, 0, text.size() - 1, ScoreMode::kWindow, stop,
                                        [&](size_t position, std::span<float> logits) {
                                          const size_t token = position + 1;
                                          if (token % 1024 == 0)
                                            bar.show_steps("streaming", token, text.size());
                                          if (anew[token] == 0.0) return ok_status();
                                          for (Part& part : parts) {
                                            if (token < part.first || token >= part.last) continue;
                                            part.streamed += minus_log(logits, text[token]);
                                            part.anew += anew[token];
                                            ++part.counted;
                                          }
                                          return ok_status();
                                        }));
  bar.finish();
  print_parts(args, parts, budget + kBlockKeys + kStreamStep, context);
  return ok_status();
}

}  // namespace isthmus::cli
