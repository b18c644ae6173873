// isthmus quantize: writes a model file with other tensor types.
#include <fmt/core.h>

#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "apps/isthmus/command.h"
#include "apps/isthmus/models.h"
#include "apps/isthmus/output.h"
#include "apps/isthmus/progress.h"
#include "base/suggest.h"
#include "format/quantize_model.h"
#include "os/cpu.h"
#include "os/file.h"
#include "tensor/dtype.h"

namespace isthmus::cli {
namespace {

struct QuantizeFlags {
  std::string model;
  std::string output;
  std::string target;
  std::string head;
  std::string embedding;
  StoreFlags store;
  size_t threads = 0;
  bool allow_requantize = false;
  bool force = false;
  bool dry_run = false;
  bool tensors = false;
  bool quiet = false;
};

std::string type_name(DType type) { return std::string(dtype_info(type).name); }

/// The type that an option names; nothing when the option was not given.
Result<std::optional<DType>> type_option(const std::string& flag, const std::string& name) {
  if (name.empty()) return std::optional<DType>();
  const std::optional<DType> type = dtype_from_name(name);
  if (type) return type;
  std::vector<std::string> known;
  for (uint32_t id = 0; id < 64; ++id) {
    if (const DTypeInfo* info = find_dtype(id); info != nullptr && info->computable) {
      known.emplace_back(info->name);
    }
  }
  return invalid_argument(
      fmt::format("{}: no tensor type is called '{}'{}", flag, name, did_you_mean(name, known)));
}

Result<QuantizeWish> read_wish(const QuantizeFlags& options) {
  if (find_quantize_target(options.target) == nullptr) {
    std::vector<std::string> known;
    for (const QuantizeTarget& target : quantize_targets()) known.emplace_back(target.name);
    return invalid_argument(
        fmt::format("no target is called '{}'{}", options.target, did_you_mean(options.target, known)));
  }
  QuantizeWish wish;
  wish.target = options.target;
  wish.allow_requantize = options.allow_requantize;
  ISTHMUS_ASSIGN_OR_RETURN(wish.head, type_option("--head", options.head));
  ISTHMUS_ASSIGN_OR_RETURN(wish.embedding, type_option("--embedding", options.embedding));
  return wish;
}

/// A dry run as a report: decisions without measured errors.
QuantizeReport planned_report(const GgufFile& file, const std::vector<TensorDecision>& decisions) {
  QuantizeReport report;
  report.bytes_from = file.file_bytes();
  uint64_t weights = 0;
  uint64_t bytes = 0;
  for (const TensorDecision& decision : decisions) {
    report.tensors.push_back({decision, 0.0, false});
    bytes += decision.bytes_to;
  }
  for (const GgufTensor& tensor : file.tensors()) weights += tensor.cols() * tensor.rows();
  report.bytes_to = bytes;
  report.bits_per_weight =
      weights == 0 ? 0.0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(weights);
  return report;
}

Result<QuantizeReport> convert(const GgufFile& file, const QuantizeFlags& options, const QuantizeWish& wish,
                               const Context& context) {
  ProgressBar bar(options.quiet);
  QuantizeOptions quantize;
  quantize.wish = wish;
  quantize.threads = options.threads == 0 ? os::usable_cpus() : options.threads;
  quantize.overwrite = options.force;
  quantize.stop.token = context.stop;
  quantize.progress = [&](const QuantizeProgress& progress) {
    bar.show("converting", progress.bytes_done, progress.bytes_total);
  };
  Result<QuantizeReport> report = quantize_model(file, real_file_system(), options.output, quantize);
  bar.finish();
  return report;
}

nlohmann::ordered_json report_json(const QuantizeReport& report, const QuantizeFlags& options) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const TensorReport& tensor : report.tensors) {
    const TensorDecision& decision = tensor.decision;
    nlohmann::ordered_json row = {{"name", decision.name},
                                  {"from", type_name(decision.from)},
                                  {"to", type_name(decision.to)},
                                  {"wanted", type_name(decision.wanted)},
                                  {"reason", std::string(quantize_reason_name(decision.reason))},
                                  {"bytes_from", decision.bytes_from},
                                  {"bytes_to", decision.bytes_to}};
    if (!options.dry_run) row["relative_rms"] = tensor.relative_rms;
    tensors.push_back(row);
  }
  return {{"target", options.target},
          {"output", options.dry_run ? nlohmann::ordered_json() : nlohmann::ordered_json(options.output)},
          {"bytes_from", report.bytes_from},
          {"bytes_to", report.bytes_to},
          {"bits_per_weight", report.bits_per_weight},
          {"tensors", tensors}};
}

/// One line per kind of conversion, so that a fallback cannot hide among hundreds of tensors.
void print_summary(const QuantizeReport& report, bool measured) {
  struct Sum {
    size_t tensors = 0;
    uint64_t from = 0;
    uint64_t to = 0;
    double worst = 0;
  };
  std::map<std::tuple<std::string, std::string, std::string>, Sum> sums;
  for (const TensorReport& tensor : report.tensors) {
    const TensorDecision& d = tensor.decision;
    const std::string to = d.reason == QuantizeReason::kFallback
                               ? fmt::format("{} (not {})", type_name(d.to), type_name(d.wanted))
                               : type_name(d.to);
    Sum& sum = sums[{type_name(d.from), to, std::string(quantize_reason_name(d.reason))}];
    sum.tensors += 1;
    sum.from += d.bytes_from;
    sum.to += d.bytes_to;
    sum.worst = std::max(sum.worst, tensor.relative_rms);
  }
  std::vector<std::string> heading = {"from", "to", "why", "tensors", "before", "after"};
  if (measured) heading.emplace_back("worst error");
  Table table(heading);
  table.align_right({3, 4, 5, 6});
  for (const auto& [key, sum] : sums) {
    std::vector<std::string> row = {std::get<0>(key),      std::get<1>(key),
                                    std::get<2>(key),      std::to_string(sum.tensors),
                                    human_bytes(sum.from), human_bytes(sum.to)};
    if (measured) row.push_back(sum.worst == 0 ? "-" : fmt::format("{:.2f} %", 100 * sum.worst));
    table.add(row);
  }
  table.print();
}

void print_tensors(const QuantizeReport& report, bool measured) {
  Table table({"tensor", "from", "to", "why", measured ? "error" : ""});
  table.align_right({4});
  for (const TensorReport& tensor : report.tensors) {
    const TensorDecision& d = tensor.decision;
    table.add({printable(d.name), type_name(d.from), type_name(d.to),
               std::string(quantize_reason_name(d.reason)),
               tensor.relative_rms == 0 ? "" : fmt::format("{:.2f} %", 100 * tensor.relative_rms)});
  }
  table.print();
  fmt::print("\n");
}

Status quantize(const Context& context, const QuantizeFlags& options) {
  ISTHMUS_ASSIGN_OR_RETURN(const QuantizeWish wish, read_wish(options));
  ISTHMUS_ASSIGN_OR_RETURN(const ResolvedModel model, find_model(options.model, options.store));
  ISTHMUS_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(model.path));
  ISTHMUS_ASSIGN_OR_RETURN(const std::vector<TensorDecision> plan, plan_quantize(file, wish));
  QuantizeReport report = planned_report(file, plan);
  if (!options.dry_run) {
    ISTHMUS_ASSIGN_OR_RETURN(report, convert(file, options, wish, context));
  }
  if (context.json) {
    print_json(report_json(report, options));
    return ok_status();
  }
  if (options.tensors) print_tensors(report, !options.dry_run);
  print_summary(report, !options.dry_run);
  fmt::print("\n{}: {} -> {}, {:.2f} bits per weight\n",
             options.dry_run ? "planned" : printable(options.output), human_bytes(report.bytes_from),
             human_bytes(report.bytes_to), report.bits_per_weight);
  return ok_status();
}

std::string description() {
  std::string text =
      "Reads MODEL, converts its matrices to TYPE, and publishes OUTPUT when it is complete. Targets, fewest "
      "bits first:\n";
  for (const QuantizeTarget& target : quantize_targets()) {
    text += fmt::format("\n  {:<8} {}", target.name, target.summary);
  }
  return text +
         "\n\nA tensor whose rows do not divide into blocks of the wanted type gets a named alternative; the "
         "summary lists it. The error is sqrt(sum (new - old)^2 / sum old^2).";
}

}  // namespace

Command quantize_command() {
  return {
      .name = "quantize",
      .group = Group::kMeasure,
      .summary = "Write a model with other tensor types",
      .json = true,
      .aliases = {"quantise"},
      .description = description(),
      .setup = [](CLI::App& app) {
        auto options = std::make_shared<QuantizeFlags>();
        app.add_option("MODEL", options->model, "Name of a model or path of a GGUF file")->required();
        app.add_option("OUTPUT", options->output, "File to write")->required();
        app.add_option("TYPE", options->target, "Target, as Q8_0 or Q4_K_M")->required();
        app.add_option("--head", options->head,
                       "Type of the output head (and of an embedding that serves as one)")
            ->type_name("TYPE");
        app.add_option("--embedding", options->embedding, "Type of the token embedding")->type_name("TYPE");
        app.add_flag("--allow-requantize", options->allow_requantize,
                     "Convert tensors that are quantised already; the losses add up");
        app.add_flag("-f,--force", options->force, "Replace OUTPUT when it exists");
        app.add_flag("--dry-run", options->dry_run, "Show the plan and write nothing");
        app.add_flag("--tensors", options->tensors, "List every tensor");
        app.add_option("-t,--threads", options->threads, "Threads (default: as many as can run at once)");
        app.add_flag("-q,--quiet", options->quiet, "Show no progress");
        add_store_flags(app, options->store);
        return Action([options](const Context& context) { return quantize(context, *options); });
      }};
}

}  // namespace isthmus::cli
