// isthmus calibrate: what a model bears, measured once and kept in a file.
#include <fmt/core.h>

#include <memory>

#include "apps/isthmus/calibration_file.h"
#include "apps/isthmus/input.h"
#include "apps/isthmus/output.h"
#include "apps/isthmus/prefix_args.h"
#include "apps/isthmus/progress.h"
#include "base/suggest.h"
#include "calibrate/calibration.h"
#include "os/file.h"
#include "os/terminal.h"

namespace isthmus::cli {
namespace {

constexpr double kDefaultBits = 4;

struct CalibrateArgs {
  ModelArgs model;
  std::string task, text, out;
  double mean_bits = kDefaultBits;
  size_t windows = 2;
};

void print_measured(const MeasuredCodec& measured) {
  fmt::print("  {:.2f} bits a value: mean KL {:.2g}, same likeliest token {:.1f} %, perplexity {:.4f}  {}\n",
             measured.held_bits, measured.distance.mean_kl, 100 * measured.distance.same_top1,
             measured.distance.perplexity_ratio, kv_bits_name(measured.codec));
}

Status write_file(const std::string& path, const std::string& text) {
  ISTHMUS_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(real_file_system(), path));
  ISTHMUS_RETURN_IF_ERROR(file.append(std::as_bytes(std::span(text))));
  return file.publish();
}

Status calibrate_kv_bits(const CalibrateArgs& args, const Context& context) {
  if (args.text.empty() || args.out.empty()) {
    return invalid_argument("calibrate kv-bits takes MODEL, TEXT and --output");
  }
  ISTHMUS_ASSIGN_OR_RETURN(ModelOptions options, model_options(args.model));
  if (options.kv_codec.on()) return invalid_argument("--kv-bits: that is what is to be found");
  if (options.eviction.on()) return invalid_argument("--kv-policy: bits are found over all keys");
  TuneKvOptions tune;
  tune.mean_bits = args.mean_bits;
  tune.windows = args.windows;
  tune.residual = options.kv_codec.residual;
  tune.keys = options.kv_codec.keys;
  tune.stop.token = context.stop;
  if (options.context == 0) options.context = tune.window;
  options.step_tokens = options.step_outputs = kScorerStep;
  ISTHMUS_ASSIGN_OR_RETURN(const std::string text, read_input(args.text));
  ISTHMUS_ASSIGN_OR_RETURN(Calibration calibration, open_calibration(args.out));
  ISTHMUS_ASSIGN_OR_RETURN(const std::string path, model_path(args.model.model, args.model.store, context));
  ISTHMUS_ASSIGN_OR_RETURN(const Digest model_hash, model_digest(path, context));
  if (calibration.model != Digest{} && calibration.model != model_hash) {
    return failed_precondition("'" + args.out + "' is the calibration of another model ('" +
                               printable(calibration.label) + "')");
  }
  ISTHMUS_ASSIGN_OR_RETURN(const auto model, load_model(args.model, std::move(options), context));
  const auto tokens = model->tokenizer().encode(text, Specials::kAsText, true);
  ProgressBar bar(context.json || !os::is_terminal(os::Stream::kError));
  tune.progress = [&bar](size_t done, size_t all) { bar.show("measuring", done, all); };
  const auto tuned = tune_kv_bits(model, tokens, tune);
  bar.finish();
  ISTHMUS_RETURN_IF_ERROR(tuned.status());
  calibration.model = model_hash;
  calibration.label = model_label(args.model.model);
  calibration.kv_bits = kv_bits_section(*tuned, tune);
  ISTHMUS_RETURN_IF_ERROR(write_file(args.out, write_calibration(calibration)));
  if (context.json) {
    print_json({{"file", args.out},
                {"bits", kv_bits_name(tuned->chosen.codec)},
                {"held_bits", tuned->chosen.held_bits},
                {"evidence", calibration.kv_bits->evidence}});
    return ok_status();
  }
  fmt::print("{}: --kv-bits asym:{}\n", printable(args.out), printable(args.out));
  print_measured(tuned->chosen);
  fmt::print("beside it:\n");
  for (const MeasuredCodec& other : tuned->others) print_measured(other);
  return ok_status();
}

Status calibrate(const CalibrateArgs& args, const Context& context) {
  if (args.task == "kv-bits") return calibrate_kv_bits(args, context);
  return invalid_argument("no such task: '" + printable(args.task) + "'; known is kv-bits" +
                          did_you_mean(args.task, std::vector<std::string>{"kv-bits"}));
}

}  // namespace

Command calibrate_command() {
  return {
      .name = "calibrate",
      .group = Group::kMeasure,
      .summary = "Measure once what a model bears, and keep it in a file",
      .json = true,
      .aliases = {},
      .description =
          "kv-bits MODEL TEXT -o FILE: which bits the keys and values of each layer bear best when a value "
          "may "
          "take --mean-bits bits. Each layer's keys and values are coded alone with each number of bits; the "
          "plan with the least sum of distances is measured whole, beside the uniform codes that take no "
          "more, and the best of all is written. Use it with --kv-bits asym:FILE.",
      .setup =
          [](CLI::App& app) {
            auto args = std::make_shared<CalibrateArgs>();
            app.add_option("TASK", args->task, "kv-bits")->required();
            add_model_args(app, args->model, false);
            app.add_option("TEXT", args->text,
                           "a text of the kind that the model will read ('-': standard input)");
            app.add_option("-o,--output", args->out, "the calibration to write; what else it holds stays")
                ->type_name("FILE");
            app.add_option("--mean-bits", args->mean_bits,
                           "kv-bits: what a value may take, its share of scale and minimum included")
                ->type_name("N")
                ->capture_default_str();
            app.add_option("--windows", args->windows, "kv-bits: windows of 640 tokens to measure on")
                ->check(CLI::Range(size_t{1}, size_t{64}))
                ->type_name("N")
                ->capture_default_str();
            return [args](const Context& context) { return calibrate(*args, context); };
          },
  };
}

}  // namespace isthmus::cli
