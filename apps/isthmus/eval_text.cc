// ppl and kl.
#include <fmt/core.h>

#include <algorithm>

#include "apps/isthmus/eval_tasks.h"
#include "apps/isthmus/figures.h"
#include "apps/isthmus/input.h"
#include "apps/isthmus/output.h"
#include "apps/isthmus/progress.h"
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
  LogitsShape shape;
  shape.vocab = static_cast<uint32_t>(text.scorer->model().config().vocab);
  shape.windows = static_cast<uint32_t>(text.windows.size());
  shape.window_tokens = static_cast<uint32_t>(window);
  shape.first_row = static_cast<uint32_t>(first);
  shape.rows = static_cast<uint32_t>(text.stride + 1);
  shape.token_by_token = mode == ScoreMode::kTokenByToken;
  std::vector<int32_t> tokens;
  for (const auto& w : text.windows) tokens.insert(tokens.end(), w.begin(), w.end());
  ISTHMUS_ASSIGN_OR_RETURN(
      const auto writer,
      LogitsWriter::create(real_file_system(), args.save, shape, tokens, "isthmus, " + args.model.precision));
  ProgressBar bar(context.json);
  StopPolicy stop;
  stop.token = context.stop;
  for (size_t w = 0; w < text.windows.size(); ++w) {
    bar.show("scoring", w, text.windows.size());
    ISTHMUS_RETURN_IF_ERROR(
        text.scorer->score(text.windows[w], first, window, mode, stop, [&](size_t, std::span<float> logits) {
          to_log_probabilities(logits);
          return writer->add_row(logits);
        }));
  }
  bar.finish();
  ISTHMUS_RETURN_IF_ERROR(writer->finish());
  if (context.json) {
    print_json({{"file", args.save}, {"windows", shape.windows}, {"rows", shape.windows * shape.rows}});
  } else {
    fmt::print("{}: {} windows, {} rows\n", args.save, shape.windows, shape.windows * shape.rows);
  }
  return ok_status();
}

void print_distance(const EvalArgs& args, const Distance& d, const Context& context) {
  const auto rows = static_cast<double>(d.kl.count());
  const double ratio = d.ours.value() / d.reference.value();
  const double p99 = quantile(d.kl_rows, 0.99);
  const double top1 = static_cast<double>(d.same_top1) / rows;
  if (context.json) {
    print_json({{"model", args.model.model},
                {"mode", args.mode},
                {"precision", args.model.precision},
                {"rows", d.kl.count()},
                {"mean_kl", d.kl.mean()},
                {"mean_kl_standard_error", d.kl.standard_error()},
                {"median_kl", quantile(d.kl_rows, 0.5)},
                {"p99_kl", p99},
                {"max_kl", quantile(d.kl_rows, 1)},
                {"same_top1", top1},
                {"perplexity", d.ours.value()},
                {"perplexity_reference", d.reference.value()},
                {"perplexity_ratio", ratio},
                {"perplexity_ratio_standard_error", ratio * d.nll_difference.standard_error()}});
    return;
  }
  fmt::print("rows                {}\n", d.kl.count());
  fmt::print("mean KL             {:.6f} ± {:.6f}\n", d.kl.mean(), d.kl.standard_error());
  fmt::print("median, p99, max KL {:.6f}, {:.6f}, {:.6f}\n", quantile(d.kl_rows, 0.5), p99,
             quantile(d.kl_rows, 1));
  fmt::print("same top-1          {:.2f} %\n", 100 * top1);
  fmt::print("perplexity          {:.4f}, reference {:.4f}, ratio {:.5f} ± {:.5f}\n", d.ours.value(),
             d.reference.value(), ratio, ratio * d.nll_difference.standard_error());
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
  Perplexity perplexity;
  ProgressBar bar(context.json);
  for (size_t w = 0; w < text.windows.size(); ++w) {
    bar.show("scoring", w, text.windows.size());
    const auto& tokens = text.windows[w];
    ISTHMUS_RETURN_IF_ERROR(text.scorer->score(tokens, window - text.stride - 1, window - 1, mode, stop,
                                               [&](size_t position, std::span<float> logits) {
                                                 to_log_probabilities(logits);
                                                 const auto next = static_cast<size_t>(tokens[position + 1]);
                                                 perplexity.nll.add(-static_cast<double>(logits[next]));
                                                 return ok_status();
                                               }));
  }
  bar.finish();
  if (context.json) {
    print_json({{"model", args.model.model},
                {"mode", args.mode},
                {"windows", text.windows.size()},
                {"tokens", perplexity.nll.count()},
                {"perplexity", perplexity.value()},
                {"standard_error", perplexity.standard_error()}});
  } else {
    fmt::print("perplexity {:.4f} ± {:.4f} over {} tokens in {} windows\n", perplexity.value(),
               perplexity.standard_error(), perplexity.nll.count(), text.windows.size());
  }
  return ok_status();
}

Status eval_kl(const EvalArgs& args, const Context& context) {
  if (!args.save.empty()) return save_reference(args, context);
  if (args.file.empty()) return invalid_argument("a reference file is needed (or --save FILE to make one)");
  ISTHMUS_ASSIGN_OR_RETURN(const ScoreMode mode, score_mode(args));
  ISTHMUS_ASSIGN_OR_RETURN(const LogitsFile reference, LogitsFile::open(args.file));
  const LogitsShape& shape = reference.shape();
  ISTHMUS_ASSIGN_OR_RETURN(const auto scorer, make_scorer(args, shape.window_tokens, context));
  if (scorer->model().config().vocab != shape.vocab) {
    return invalid_argument(args.file + " is about a vocabulary of " + std::to_string(shape.vocab) +
                            ", the model has " + std::to_string(scorer->model().config().vocab));
  }
  Distance distance;
  std::vector<float> row(shape.vocab);
  StopPolicy stop;
  stop.token = context.stop;
  ProgressBar bar(context.json);
  const size_t windows = std::min<size_t>(shape.windows, args.windows);
  for (size_t w = 0; w < windows; ++w) {
    bar.show("scoring", w, windows);
    const auto tokens = reference.tokens(w);
    const auto compare = [&](size_t position, std::span<float> logits) {
      ISTHMUS_RETURN_IF_ERROR(reference.read_row(w, position - shape.first_row, row.data()));
      std::optional<TokenId> next;
      if (position + 1 < tokens.size()) next = tokens[position + 1];
      add_row(row, logits, next, distance);
      return ok_status();
    };
    ISTHMUS_RETURN_IF_ERROR(
        scorer->score(tokens, shape.first_row, shape.first_row + shape.rows, mode, stop, compare));
  }
  bar.finish();
  print_distance(args, distance, context);
  return ok_status();
}

}  // namespace isthmus::cli
