// modules: how far prompts put together of modules are from the same text read as a whole, and how much
// sooner they begin to answer.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/isthmus/eval_rows.h"
#include "apps/isthmus/eval_tasks.h"
#include "apps/isthmus/figures.h"
#include "apps/isthmus/input.h"
#include "apps/isthmus/output.h"
#include "apps/isthmus/progress.h"
#include "apps/isthmus/schema_args.h"

namespace isthmus::cli {
namespace {

using EvalClock = std::chrono::steady_clock;

constexpr size_t kComparedTokens = 32;  // of each answer

double eval_seconds_since(EvalClock::time_point start) {
  return std::chrono::duration<double>(EvalClock::now() - start).count();
}

/// A prompt read as a whole, and what the model says to it.
struct WholePrompt {
  double seconds = 0;
  std::vector<TokenId> answer;
  std::vector<std::vector<double>> rows;  // log-probabilities before each token of it
};

Result<WholePrompt> read_whole(Session& session, std::span<const TokenId> prompt, const StopPolicy& stop) {
  WholePrompt out;
  ISTHMUS_RETURN_IF_ERROR(session.truncate(0));
  const auto start = EvalClock::now();
  ISTHMUS_RETURN_IF_ERROR(session.append(prompt, Purpose::kPrompt, stop));
  out.seconds = eval_seconds_since(start);
  while (out.rows.size() < kComparedTokens) {
    out.rows.push_back(log_probabilities(session.logits()));
    out.answer.push_back(static_cast<TokenId>(likeliest_token(out.rows.back())));
    ISTHMUS_RETURN_IF_ERROR(session.append({&out.answer.back(), 1}, Purpose::kGeneration, stop));
  }
  return out;
}

/// Over the prompts, of one way to put them together.
struct ModulesTally {
  size_t cache = 0;
  ModuleView view = ModuleView::kAnchored;
  ModulePlaces places = ModulePlaces::kPacked;
  RepairOptions repair = {};
  double recomputed = 0;
  double first_kl = 0;
  double kl = 0;
  size_t same = 0;
  std::vector<double> seconds = {};
  std::vector<double> speedups = {};

  Status add(ModuleCache& modules, const ComposedPrompt& composed, const WholePrompt& whole, Session& session,
             const StopPolicy& stop) {
    ISTHMUS_RETURN_IF_ERROR(modules.prepare(composed, session, stop));
    const auto start = EvalClock::now();
    ISTHMUS_ASSIGN_OR_RETURN(const ComposeFigures figures,
                             session.compose(modules.parts(composed), repair, stop));
    seconds.push_back(eval_seconds_since(start));
    speedups.push_back(whole.seconds / seconds.back());
    recomputed += figures.recomputed;
    for (size_t i = 0; i < kComparedTokens; ++i) {
      const std::vector<double> row = log_probabilities(session.logits());
      const double apart = divergence(whole.rows[i], row);
      kl += apart;
      if (i == 0) first_kl += apart;
      same += likeliest_token(row) == likeliest_token(whole.rows[i]) ? 1 : 0;
      ISTHMUS_RETURN_IF_ERROR(session.append({&whole.answer[i], 1}, Purpose::kGeneration, stop));
    }
    return ok_status();
  }
};

/// What was asked for, or all there is.
std::vector<std::string> or_all(const std::vector<std::string>& wanted, const std::vector<std::string>& all) {
  return wanted.empty() ? all : wanted;
}

/// Each way to put prompts together: views and places, of which each pair has a cache, times repairs.
Result<std::vector<ModulesTally>> read_ways(const EvalArgs& args) {
  std::vector<ModulesTally> out;
  size_t cache = 0;
  for (const std::string& place : or_all(args.places, {"schema", "packed"})) {
    const auto places = parse_module_places(place);
    if (!places.ok()) return places.status().with_context("--module-places");
    for (const std::string& name : or_all(args.views, {"isolated", "anchored", "whole"})) {
      const auto view = parse_module_view(name);
      if (!view.ok()) return view.status().with_context("--modules");
      for (const std::string& text :
           or_all(args.repairs, {"none", "first:8", "first:32", "deviating:0.05", "deviating:0.1", "all"})) {
        const auto repair = parse_repair(text);
        if (!repair.ok()) return repair.status().with_context("--module-repair");
        out.emplace_back();
        out.back().cache = cache;
        out.back().view = *view;
        out.back().places = *places;
        out.back().repair = *repair;
      }
      ++cache;
    }
  }
  return out;
}

/// One prompt on each line that is not empty.
Result<std::vector<SchemaPrompt>> read_prompts(const std::string& path) {
  ISTHMUS_ASSIGN_OR_RETURN(const std::string text, read_input(path));
  std::vector<SchemaPrompt> out;
  std::istringstream lines(text);
  std::string line;
  for (size_t number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto prompt = SchemaPrompt::parse(line);
    if (!prompt.ok())
      return prompt.status().with_context(path + ", prompt on line " + std::to_string(number));
    if (prompt->text.empty()) {
      return invalid_argument(path + ", prompt on line " + std::to_string(number) +
                              ": no text behind the modules");
    }
    out.push_back(std::move(*prompt));
  }
  if (out.empty()) return invalid_argument(path + ": no prompts");
  return out;
}

void print_tallies(const EvalArgs& args, const std::vector<ModulesTally>& tallies,
                   const std::vector<double>& cold, double tokens, bool json) {
  const auto prompts = static_cast<double>(cold.size());
  const double compared = prompts * static_cast<double>(kComparedTokens);
  Table table({"places", "modules", "repair", "recomputed", "TTFT", "sooner", "KL first", "KL", "same top"});
  table.align_right({3, 4, 5, 6, 7, 8});
  auto rows = nlohmann::ordered_json::array();
  for (const ModulesTally& t : tallies) {
    const double sooner = quantile(t.speedups, 0.5);
    rows.push_back({{"places", module_places_name(t.places)},
                    {"modules", module_view_name(t.view)},
                    {"repair", repair_name(t.repair)},
                    {"recomputed", t.recomputed / prompts},
                    {"ttft_ms", 1e3 * quantile(t.seconds, 0.5)},
                    {"sooner", sooner},
                    {"first_kl", t.first_kl / prompts},
                    {"mean_kl", t.kl / compared},
                    {"same_top", static_cast<double>(t.same) / compared}});
    table.add({std::string(module_places_name(t.places)), std::string(module_view_name(t.view)),
               repair_name(t.repair), fmt::format("{:.1f} %", 100 * t.recomputed / prompts),
               fmt::format("{:.0f} ms", 1e3 * quantile(t.seconds, 0.5)), fmt::format("{:.1f}", sooner),
               fmt::format("{:.4f}", t.first_kl / prompts), fmt::format("{:.4f}", t.kl / compared),
               fmt::format("{:.1f} %", 100 * static_cast<double>(t.same) / compared)});
  }
  if (json) {
    print_json({{"model", args.model.model},
                {"prompts", cold.size()},
                {"mean_prompt_tokens", tokens / prompts},
                {"whole_ttft_ms", 1e3 * quantile(cold, 0.5)},
                {"rows", rows}});
    return;
  }
  fmt::print("{} prompts of {:.0f} tokens, read as a whole: TTFT {:.0f} ms\n", cold.size(), tokens / prompts,
             1e3 * quantile(cold, 0.5));
  table.print();
}

}  // namespace

Status eval_modules(const EvalArgs& args, const Context& context) {
  if (args.schema.empty() || args.file.empty()) {
    return invalid_argument("modules needs a --schema and a file with a prompt on each line");
  }
  ISTHMUS_ASSIGN_OR_RETURN(std::vector<ModulesTally> tallies, read_ways(args));
  ISTHMUS_ASSIGN_OR_RETURN(const PromptSchema schema, read_schema(args.schema));
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<SchemaPrompt> prompts, read_prompts(args.file));
  ISTHMUS_ASSIGN_OR_RETURN(ModelOptions options, model_options(args.model));
  ISTHMUS_ASSIGN_OR_RETURN(const auto model, load_model(args.model, std::move(options), context));
  ISTHMUS_ASSIGN_OR_RETURN(const auto session, Session::create(model));
  std::vector<std::unique_ptr<ModuleCache>> caches;
  for (const ModulesTally& tally : tallies) {
    if (tally.cache < caches.size()) continue;
    ModuleCacheOptions module_options;
    module_options.view = tally.view;
    module_options.places = tally.places;
    caches.emplace_back();
    ISTHMUS_ASSIGN_OR_RETURN(caches.back(), ModuleCache::create(model, schema, module_options));
  }
  StopPolicy stop;
  stop.token = context.stop;
  std::vector<double> cold;
  double tokens = 0;
  ProgressBar bar(context.json);
  for (const SchemaPrompt& prompt : prompts) {
    bar.show_steps("prompts", cold.size(), prompts.size());
    WholePrompt whole;
    for (ModulesTally& tally : tallies) {
      ModuleCache& cache = *caches[tally.cache];
      ISTHMUS_ASSIGN_OR_RETURN(ComposedPrompt composed, cache.choose(prompt));
      ISTHMUS_RETURN_IF_ERROR(cache.finish(prompt.text, 0, composed));
      if (whole.rows.empty()) {
        ISTHMUS_ASSIGN_OR_RETURN(whole, read_whole(*session, composed.tokens, stop));
        tokens += static_cast<double>(composed.tokens.size());
        cold.push_back(whole.seconds);
      }
      ISTHMUS_RETURN_IF_ERROR(tally.add(cache, composed, whole, *session, stop));
    }
  }
  bar.finish();
  print_tallies(args, tallies, cold, tokens, context.json);
  return ok_status();
}

}  // namespace isthmus::cli
