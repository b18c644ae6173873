// retrieval: what a policy of the KV cache forgets, asked with numbers hidden in long texts.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/isthmus/eval_tasks.h"
#include "apps/isthmus/input.h"
#include "apps/isthmus/output.h"
#include "apps/isthmus/progress.h"
#include "apps/isthmus/retrieval_text.h"
#include "engine/retrieval_probe.h"

namespace isthmus::cli {
namespace {

constexpr size_t kDefaultTexts = 20;
constexpr size_t kAskTokens = 128;  // of a question and its answer, generously

struct NamedPolicy {
  std::string name;
  EvictionOptions options;
};

Result<std::vector<NamedPolicy>> read_policies(const std::vector<std::string>& list) {
  std::vector<std::string> wanted = list;
  if (wanted.empty()) {
    for (const char* budget : {"0.5", "0.25"}) {
      for (const char* policy :
           {"window", "random", "snapkv", "pyramidkv", "adakv", "expected", "keydiff", "kvzip"}) {
        wanted.push_back(std::string(policy) + ":" + budget);
      }
    }
  }
  std::vector<NamedPolicy> out = {{"full", {}}};
  for (const std::string& text : wanted) {
    const size_t colon = text.find(':');
    const std::string budget = colon == std::string::npos ? "" : text.substr(colon + 1);
    auto options = parse_eviction(text.substr(0, colon), budget);
    if (!options.ok()) return options.status().with_context("--policies");
    if (options->policy == KvPolicy::kStreaming) {
      return invalid_argument("--policies: streaming gives up keys as a text grows; eval stream measures it");
    }
    if (options->on()) out.push_back({text, *options});
  }
  return out;
}

/// Of one policy, kind of text and kind of question.
struct Tally {
  size_t asked = 0;
  size_t right = 0;
  double logprob = 0;
  double kept = 0;
  double bytes = 0;

  void add(const RetrievalProbe::Asked& answer) {
    ++asked;
    right += answer.right ? 1 : 0;
    logprob += answer.logprob;
    kept += answer.kept;
    bytes += static_cast<double>(answer.kv_bytes);
  }
  double mean(double sum) const { return sum / static_cast<double>(asked); }
  double accuracy() const { return mean(static_cast<double>(right)); }
  double error() const { return std::sqrt(accuracy() * (1 - accuracy()) / static_cast<double>(asked)); }
};

class Report {
 public:
  explicit Report(bool json) : json_(json) { table_.align_right({0, 1, 4, 5, 6, 7}); }

  void add(size_t length, size_t needles, bool known, const std::string& policy, const Tally& tally) {
    if (json_) {
      rows_.push_back({{"tokens", length},
                       {"needles", needles},
                       {"question_known", known},
                       {"policy", policy},
                       {"texts", tally.asked},
                       {"right", tally.right},
                       {"accuracy", tally.accuracy()},
                       {"standard_error", tally.error()},
                       {"mean_logprob", tally.mean(tally.logprob)},
                       {"keys_kept", tally.mean(tally.kept)},
                       {"kv_bytes", static_cast<uint64_t>(tally.mean(tally.bytes))}});
      return;
    }
    table_.add({std::to_string(length), std::to_string(needles), known ? "known" : "unknown", policy,
                fmt::format("{:.0f} %", 100 * tally.accuracy()),
                fmt::format("{:.2f}", tally.mean(tally.logprob)),
                fmt::format("{:.0f} %", 100 * tally.mean(tally.kept)),
                human_bytes(static_cast<uint64_t>(tally.mean(tally.bytes)))});
  }
  void print(const EvalArgs& args) const {
    if (json_) {
      print_json({{"model", args.model.model}, {"rows", rows_}});
    } else {
      table_.print();
    }
  }

 private:
  bool json_;
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
  Table table_{{"tokens", "needles", "question", "policy", "right", "log-prob", "keys", "KV"}};
};

}  // namespace

Status eval_retrieval(const EvalArgs& args, const Context& context) {
  ISTHMUS_ASSIGN_OR_RETURN(const auto policies, read_policies(args.policies));
  std::string text;
  if (!args.file.empty()) {
    ISTHMUS_ASSIGN_OR_RETURN(text, read_input(args.file));
  }
  ISTHMUS_ASSIGN_OR_RETURN(ModelOptions options, model_options(args.model));
  if (options.eviction.on())
    return invalid_argument("retrieval compares policies: name them with --policies");
  const size_t longest = *std::max_element(args.lengths.begin(), args.lengths.end());
  options.context = std::max(options.context, longest + longest / 8 + kAskTokens);
  options.sequences = 2;
  options.step_outputs = std::max(options.step_outputs, kProbeOutputs);
  ISTHMUS_ASSIGN_OR_RETURN(const auto model, load_model(args.model, std::move(options), context));
  ISTHMUS_ASSIGN_OR_RETURN(const auto probe, RetrievalProbe::create(model));
  StopPolicy stop;
  stop.token = context.stop;
  const size_t texts = args.limit == SIZE_MAX ? kDefaultTexts : args.limit;
  const size_t all = args.lengths.size() * args.needles.size() * texts;
  size_t done = 0;
  ProgressBar bar(context.json);
  Report report(context.json);
  for (const size_t length : args.lengths) {
    for (const size_t needles : args.needles) {
      Rng rng(length * 100 + needles);
      std::vector<Tally> tallies(2 * policies.size());
      for (size_t i = 0; i < texts; ++i) {
        bar.show_steps("asking", done++, all);
        ISTHMUS_RETURN_IF_ERROR(stop.check());
        const double depth = texts < 2 ? 0.5 : static_cast<double>(i) / static_cast<double>(texts - 1);
        ISTHMUS_ASSIGN_OR_RETURN(const RetrievalTask task,
                                 make_retrieval_task(model->tokenizer(), text, length, needles, depth, rng));
        ISTHMUS_RETURN_IF_ERROR(probe->read(task.context));
        for (size_t p = 0; p < tallies.size(); ++p) {
          ISTHMUS_ASSIGN_OR_RETURN(
              const auto asked, probe->ask(policies[p / 2].options, task.question, task.answer, p % 2 == 0));
          tallies[p].add(asked);
        }
      }
      for (size_t p = 0; p < tallies.size(); ++p)
        report.add(length, needles, p % 2 == 0, policies[p / 2].name, tallies[p]);
    }
  }
  bar.finish();
  report.print(args);
  return ok_status();
}

}  // namespace isthmus::cli
