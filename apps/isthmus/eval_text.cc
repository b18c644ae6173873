// ppl and kl.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "apps/isthmus/eval_tasks.h"
#include "apps/isthmus/input.h"
#include "apps/isthmus/output.h"
#include "apps/isthmus/progress.h"
#include "format/logits_distance.h"
#include "format/logits_file.h"
#include "os/file.h"

namespace isthmus::cli {
namespace {

constexpr size_t kDefaultWindow = 512;

size_t window_of(const EvalArgs& args) {
  return args.model.context == 0 ? kDefaultWindow : args.model.context;
}

struct TextWindows {
  std::unique_ptr<Scorer> scorer;
  std::vector<std::vector<TokenId>> windows;
  size_t stride = 0;
};

/// The model and the windows of args.file.
Result<TextWindows> read_windows(const EvalArgs& args, const Context& context) {
  if (args.file.empty()) return invalid_argument("a text file is needed");
  const size_t window = window_of(args);
  TextWindows out;
  out.stride = args.stride == 0 ? window / 2 : args.stride;
  if (window < 2 || out.stride == 0 || out.stride >= window) {
    return invalid_argument("--stride must be at least 1 and below the window of " + std::to_string(window) +
                            " tokens");
  }
  ISTHMUS_ASSIGN_OR_RETURN(const std::string text, read_input(args.file));
  ISTHMUS_ASSIGN_OR_RETURN(out.scorer, make_scorer(args, window, context));
  const Tokenizer& tokenizer = out.scorer->model().tokenizer();
  const auto ids = tokenizer.encode(text, Specials::kAsText, true);
  out.windows = cut_windows(tokenizer, ids, window, args.save.empty() ? out.stride : window, args.windows);
  if (out.windows.empty()) {
    return invalid_argument(args.file + " has " + std::to_string(ids.size()) +
                            " tokens, fewer than one window of " + std::to_string(window));
  }
  return out;
}

Status save_reference(const EvalArgs& args, const Context& context) {
  ISTHMUS_ASSIGN_OR_RETURN(TextWindows text, read_windows(args, context));
  ISTHMUS_ASSIGN_OR_RETURN(const ScoreMode mode, score_mode(args));
  const size_t window = text.windows.front().size();
  const size_t first = window - text.stride - 1;
  LogitsLayout layout;
  layout.vocab = static_cast<uint32_t>(text.scorer->model().config().vocab);
  layout.windows = static_cast<uint32_t>(text.windows.size());
  layout.window_tokens = static_cast<uint32_t>(window);
  layout.first_row = static_cast<uint32_t>(first);
  layout.rows_per_window = static_cast<uint32_t>(text.stride + 1);
  layout.by_token = mode == ScoreMode::kTokenByToken;
  layout.producer = "isthmus, " + args.model.precision;
  for (const auto& w : text.windows) layout.tokens.insert(layout.tokens.end(), w.begin(), w.end());
  const size_t rows = layout.rows();
  ISTHMUS_ASSIGN_OR_RETURN(LogitsWriter writer,
                           LogitsWriter::create(real_file_system(), args.save, std::move(layout)));
  ProgressBar bar(context.json);
  StopPolicy stop;
  stop.token = context.stop;
  for (size_t w = 0; w < text.windows.size(); ++w) {
    bar.show_steps("scoring", w, text.windows.size());
    const auto write = [&](size_t, std::span<float> logits) {
      log_softmax(logits, logits);
      return writer.append_row(logits);
    };
    ISTHMUS_RETURN_IF_ERROR(text.scorer->score(text.windows[w], first, window, mode, stop, write));
  }
  bar.finish();
  ISTHMUS_RETURN_IF_ERROR(writer.publish());
  if (context.json) {
    print_json({{"file", args.save}, {"windows", text.windows.size()}, {"rows", rows}});
  } else {
    fmt::print("{}: {} windows, {} rows\n", args.save, text.windows.size(), rows);
  }
  return ok_status();
}

void print_distance(const EvalArgs& args, const DistanceSummary& d, const Context& context) {
  if (context.json) {
    print_json({{"model", args.model.model},
                {"mode", args.mode},
                {"precision", args.model.precision},
                {"rows", d.rows},
                {"mean_kl", d.mean_kl},
                {"mean_kl_standard_error", d.mean_kl_se},
                {"median_kl", d.median_kl},
                {"p99_kl", d.p99_kl},
                {"max_kl", d.max_kl},
                {"same_top1", d.same_top1},
                {"perplexity", d.perplexity},
                {"perplexity_reference", d.truth_perplexity},
                {"perplexity_ratio", d.perplexity_ratio},
                {"perplexity_ratio_standard_error", d.perplexity_ratio_se}});
    return;
  }
  fmt::print("rows                {}\n", d.rows);
  fmt::print("mean KL             {:.3g} ± {:.1g}\n", d.mean_kl, d.mean_kl_se);
  fmt::print("median, p99, max KL {:.3g}, {:.3g}, {:.3g}\n", d.median_kl, d.p99_kl, d.max_kl);
  fmt::print("same top-1          {:.2f} %\n", 100 * d.same_top1);
  fmt::print("perplexity          {:.4f}, reference {:.4f}, ratio {:.5f} ± {:.5f}\n", d.perplexity,
             d.truth_perplexity, d.perplexity_ratio, d.perplexity_ratio_se);
}

}  // namespace

Result<ScoreMode> score_mode(const EvalArgs& args) {
  if (args.mode == "window") return ScoreMode::kWindow;
  if (args.mode == "token") return ScoreMode::kTokenByToken;
  return invalid_argument("--mode is '" + args.mode + "'; known are window and token");
}

Result<std::unique_ptr<Scorer>> make_scorer(const EvalArgs& args, size_t window, const Context& context) {
  ISTHMUS_ASSIGN_OR_RETURN(ModelOptions options, model_options(args.model));
  options.context = window;
  options.step_tokens = std::min(kScorerStep, window);
  options.step_outputs = options.step_tokens;
  ISTHMUS_ASSIGN_OR_RETURN(auto model, load_model(args.model, std::move(options), context));
  return Scorer::create(std::move(model));
}

Status eval_perplexity(const EvalArgs& args, const Context& context) {
  ISTHMUS_ASSIGN_OR_RETURN(TextWindows text, read_windows(args, context));
  ISTHMUS_ASSIGN_OR_RETURN(const ScoreMode mode, score_mode(args));
  const size_t window = text.windows.front().size();
  StopPolicy stop;
  stop.token = context.stop;
  double nll = 0;
  double nll_squares = 0;
  size_t scored = 0;
  ProgressBar bar(context.json);
  for (size_t w = 0; w < text.windows.size(); ++w) {
    bar.show_steps("scoring", w, text.windows.size());
    const auto& tokens = text.windows[w];
    const auto add = [&](size_t position, std::span<float> logits) {
      log_softmax(logits, logits);
      const double value = -static_cast<double>(logits[static_cast<size_t>(tokens[position + 1])]);
      nll += value;
      nll_squares += value * value;
      ++scored;
      return ok_status();
    };
    ISTHMUS_RETURN_IF_ERROR(
        text.scorer->score(tokens, window - text.stride - 1, window - 1, mode, stop, add));
  }
  bar.finish();
  const auto n = static_cast<double>(scored);
  const double perplexity = std::exp(nll / n);
  const double variance = std::max(0.0, nll_squares / n - (nll / n) * (nll / n));
  const double error = perplexity * std::sqrt(variance / n);  // delta method
  if (context.json) {
    print_json({{"model", args.model.model},
                {"mode", args.mode},
                {"windows", text.windows.size()},
                {"tokens", scored},
                {"perplexity", perplexity},
                {"standard_error", error}});
  } else {
    fmt::print("perplexity {:.4f} ± {:.4f} over {} tokens in {} windows\n", perplexity, error, scored,
               text.windows.size());
  }
  return ok_status();
}

Status eval_kl(const EvalArgs& args, const Context& context) {
  if (!args.save.empty()) return save_reference(args, context);
  if (args.file.empty()) return invalid_argument("a reference file is needed (or --save FILE to make one)");
  ISTHMUS_ASSIGN_OR_RETURN(const ScoreMode mode, score_mode(args));
  ISTHMUS_ASSIGN_OR_RETURN(const LogitsFile reference, LogitsFile::open(args.file));
  const LogitsLayout& shape = reference.layout();
  ISTHMUS_ASSIGN_OR_RETURN(const auto scorer, make_scorer(args, shape.window_tokens, context));
  if (scorer->model().config().vocab != shape.vocab) {
    return invalid_argument(args.file + " is about a vocabulary of " + std::to_string(shape.vocab) +
                            ", the model has " + std::to_string(scorer->model().config().vocab));
  }
  DistanceTally distance;
  std::vector<float> row(shape.vocab);
  StopPolicy stop;
  stop.token = context.stop;
  ProgressBar bar(context.json);
  const size_t windows = std::min<size_t>(shape.windows, args.windows);
  for (size_t w = 0; w < windows; ++w) {
    bar.show_steps("scoring", w, windows);
    const auto compare = [&](size_t position, std::span<float> logits) {
      const size_t at = w * shape.rows_per_window + position - shape.first_row;
      ISTHMUS_RETURN_IF_ERROR(reference.read_row(at, row));
      log_softmax(logits, logits);
      distance.add(row, logits, shape.target(at));
      return ok_status();
    };
    ISTHMUS_RETURN_IF_ERROR(scorer->score(shape.window(w), shape.first_row,
                                          shape.first_row + shape.rows_per_window, mode, stop, compare));
  }
  bar.finish();
  print_distance(args, distance.summary(), context);
  return ok_status();
}

}  // namespace isthmus::cli
