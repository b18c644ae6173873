// The tasks of `isthmus eval`.
#pragma once

#include <string>

#include "apps/isthmus/model_args.h"
#include "base/suggest.h"
#include "engine/evaluate.h"

namespace isthmus::cli {

struct EvalArgs {
  std::string task;
  ModelArgs model;
  std::string file;
  std::string save;
  std::string samples;
  std::string mode = "window";
  size_t stride = 0;
  size_t windows = SIZE_MAX;
  size_t limit = SIZE_MAX;
  size_t max_tokens = 512;
  size_t tokens = 50'000;
  std::vector<size_t> lengths = {1024};
  std::vector<size_t> needles = {1, 4};
  std::string schema;
  std::vector<std::string> views;    // of modules; empty: all
  std::vector<std::string> places;   // of modules; empty: both
  std::vector<std::string> repairs;  // empty: some of each kind
  size_t sessions = 100;
  size_t session_room = 10;  // sessions that memory holds as written
  size_t switches = 1000;
  std::vector<std::string> session_bits = {"16", "8", "mixed"};
  std::vector<std::string> policies;  // "snapkv:0.5"; empty: all policies at a half and a quarter
};

Status eval_perplexity(const EvalArgs& args, const Context& context);
Status eval_kl(const EvalArgs& args, const Context& context);
Status eval_choice(const EvalArgs& args, const Context& context);
Status eval_humaneval(const EvalArgs& args, const Context& context);
Status eval_stream(const EvalArgs& args, const Context& context);
Status eval_modules(const EvalArgs& args, const Context& context);
Status eval_sessions(const EvalArgs& args, const Context& context);
Status eval_retrieval(const EvalArgs& args, const Context& context);

/// --mode as an enum.
Result<ScoreMode> score_mode(const EvalArgs& args);
/// Loads the model of `args` for scoring windows of `window` tokens.
Result<std::unique_ptr<Scorer>> make_scorer(const EvalArgs& args, size_t window, const Context& context);

}  // namespace isthmus::cli
