#include "apps/isthmus/model_args.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <random>

#include "apps/isthmus/calibration_file.h"
#include "apps/isthmus/output.h"
#include "apps/isthmus/prefix_args.h"
#include "apps/isthmus/progress.h"
#include "apps/isthmus/pull_flow.h"
#include "base/suggest.h"
#include "os/file.h"
#include "os/terminal.h"

namespace isthmus::cli {
namespace {

constexpr uint64_t kMaxTemplateBytes = 1 << 20;

Result<Precision> parse_precision(const std::string& text) {
  if (text == "default") return Precision::kDefault;
  if (text == "fast") return Precision::kFast;
  if (text == "bf16") return Precision::kBf16;
  if (text == "f32") return Precision::kReference;
  const std::vector<std::string> known = {"default", "fast", "bf16", "f32"};
  return invalid_argument("--precision is '" + text + "'; known are default, fast, bf16 and f32" +
                          did_you_mean(text, known));
}

Result<HeadMode> parse_head(const std::string& text) {
  if (text == "full") return HeadMode::kFull;
  if (text == "two-stage") return HeadMode::kTwoStage;
  if (text == "auto") return HeadMode::kAuto;
  const std::vector<std::string> known = {"full", "two-stage", "auto"};
  return invalid_argument("--head is '" + text + "'; known are full, two-stage and auto" +
                          did_you_mean(text, known));
}

/// A built-in name, or the text of a file.
Result<std::string> read_template(const std::string& argument) {
  const auto builtin = ChatTemplate::builtin_names();
  const std::vector<std::string> names(builtin.begin(), builtin.end());
  if (argument.empty() || std::find(names.begin(), names.end(), argument) != names.end()) return argument;
  auto text = real_file_system().read(argument, kMaxTemplateBytes);
  if (text.status().code() == Code::kNotFound) {
    return not_found("--template '" + argument + "' is neither a file nor a template of ours" +
                     did_you_mean(argument, names));
  }
  return text;
}

}  // namespace

void add_model_args(CLI::App& app, ModelArgs& args, bool chat) {
  app.add_option("MODEL", args.model, "a catalogue name, a pulled model's name, or the path of a GGUF file")
      ->required();
  add_model_flags(app, args, chat);
}

void add_model_flags(CLI::App& app, ModelArgs& args, bool chat) {
  app.add_option("-t,--threads", args.threads, "threads (default: as many as can run at once)")
      ->check(CLI::Range(size_t{1}, size_t{1024}));
  app.add_option("-c,--ctx", args.context, "tokens of context to hold (default: the model's, at most 4096)")
      ->check(CLI::Range(size_t{1}, size_t{1} << 28));
  app.add_option("--memory", args.memory, "refuse to load when more memory would be needed, as 2GB or 500MB")
      ->type_name("SIZE");
  app.add_option("--kv", args.kv_type, "type of the KV cache: f32, f16, bf16 or q8_0")
      ->type_name("TYPE")
      ->capture_default_str();
  app.add_option("--kv-bits", args.kv_bits,
                 "codes of the KV cache, all approximate: 16 (none), 8, 4, 2, 1, k4v2 (keys, values), one of "
                 "those for each layer with commas between, asym:16/0:4/2 (AsymKV: 4 bits for the keys of "
                 "the first 16 layers and the values of the first 0, 2 for the others) or asym:FILE (what "
                 "calibrate kv-bits found for this model)")
      ->type_name("BITS")
      ->capture_default_str();
  app.add_option("--kv-residual", args.kv_residual,
                 "with --kv-bits: tokens that are coded together; the newest, fewer than that, stay as "
                 "written; a multiple of 32")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--kv-keys", args.kv_keys,
                 "how keys are held and coded: rotated, as attention wants them, or unrotated (slower; codes "
                 "of few bits are somewhat better)")
      ->type_name("KEYS")
      ->capture_default_str();
  app.add_option("--kv-policy", args.kv_policy,
                 "which keys of a prompt stay in the KV cache (all but full are approximate): full, "
                 "window, streaming (a text without end), random, snapkv, pyramidkv, adakv, expected, "
                 "keydiff or kvzip (reads a prompt twice)")
      ->type_name("POLICY")
      ->capture_default_str();
  app.add_option("--kv-budget", args.kv_budget,
                 "with --kv-policy: how many keys stay in each head, as a share of the prompt (0.25) or a "
                 "count (512); "
                 "default 0.5")
      ->type_name("N");
  app.add_option("--precision", args.precision,
                 "arithmetic: default (within 1e-6 of float32), fast (8-bit activations for prompts), bf16 "
                 "(bfloat16 tiles for prompts, needs AMX) or f32 (reference, slow)")
      ->type_name("P")
      ->capture_default_str();
  app.add_option(
         "--head", args.head,
         "how the likeliest tokens are found: full (read the whole output matrix), two-stage (the same "
         "tokens from a coarse copy kept in memory) or auto")
      ->type_name("HEAD")
      ->capture_default_str();
  if (chat) {
    app.add_option("--template", args.chat_template,
                   "chat template: a file, or chatml, llama3, gemma or phi3")
        ->type_name("TEMPLATE");
  }
  app.add_flag("--no-cache", args.no_cache, "pack the weights anew; neither read nor write the packed cache");
  add_store_flags(app, args.store);
}

Result<EvictionOptions> parse_eviction(const std::string& policy, const std::string& budget) {
  EvictionOptions out;
  const auto known = kv_policy_from_name(policy);
  if (!known) {
    std::vector<std::string> names;
    for (const std::string_view name : kv_policy_list()) names.emplace_back(name);
    return invalid_argument("no such policy: '" + printable(policy) + "'; known are " + kv_policy_names() +
                            did_you_mean(policy, names));
  }
  out.policy = *known;
  if (budget.empty()) return out;
  if (!out.on()) return invalid_argument("a budget of keys needs a policy that gives up keys");
  char* end = nullptr;
  const double value = std::strtod(budget.c_str(), &end);
  const bool number = *end == '\0' && std::isfinite(value) && value > 0 && value < 1e9;
  if (!number || (value > 1 && value != std::floor(value))) {
    return invalid_argument("'" + printable(budget) +
                            "' is neither a share above 0 and up to 1 nor a number of keys");
  }
  out.share = std::min(value, 1.0);
  if (value > 1) out.tokens = static_cast<size_t>(value);
  ISTHMUS_RETURN_IF_ERROR(check_eviction(out));
  return out;
}

constexpr std::string_view kAsymPrefix = "asym:";
/// "asym:" and something that begins with no number of layers.
bool looks_like_calibration(const std::string& bits) {
  return bits.starts_with(kAsymPrefix) && bits.size() > kAsymPrefix.size() &&
         std::isdigit(static_cast<unsigned char>(bits[kAsymPrefix.size()])) == 0;
}

Result<KvCodec> parse_codec(const ModelArgs& args) {
  if (const std::string file = calibration_path(args.kv_bits); !file.empty()) {
    auto calibrated = calibrated_kv_codec(file);
    if (!calibrated.ok()) return calibrated.status().with_context("--kv-bits");
    return calibrated;
  }
  auto out = parse_kv_bits(args.kv_bits);
  if (!out.ok() && looks_like_calibration(args.kv_bits)) {
    return not_found("--kv-bits: no calibration '" + printable(args.kv_bits.substr(kAsymPrefix.size())) +
                     "'; isthmus calibrate kv-bits makes one");
  }
  if (!out.ok()) return out.status().with_context("--kv-bits");
  out->residual = args.kv_residual;
  if (args.kv_keys == "unrotated") {
    out->keys = KeyForm::kUnrotated;
  } else if (args.kv_keys != "rotated") {
    return invalid_argument("--kv-keys is '" + printable(args.kv_keys) +
                            "'; known are rotated and unrotated");
  }
  return out;
}

Result<uint64_t> parse_bytes(const std::string& text) {
  static constexpr std::pair<const char*, double> kUnits[] = {
      {"", 1},         {"B", 1},        {"kB", 1e3},     {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9},
      {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"M", 1e6},  {"G", 1e9}};
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end != text.c_str() && std::isfinite(value) && value > 0) {
    for (const auto& [unit, factor] : kUnits) {
      if (std::string(end) == unit && value * factor < 0x1p62) return static_cast<uint64_t>(value * factor);
    }
  }
  return invalid_argument("'" + text + "' is not a size; write it as 2GB, 500MB or 1.5GiB");
}

Result<std::string> model_path(const std::string& model, const StoreFlags& flags, const Context& context) {
  auto found = find_model(model, flags);
  if (found.ok()) return found->path;
  ISTHMUS_ASSIGN_OR_RETURN(const Catalogue catalogue, load_catalogue());
  if (found.status().code() != Code::kNotFound || catalogue.find(model) == nullptr) return found.status();
  say("{} is not on this machine yet; fetching it.\n", model);
  ISTHMUS_ASSIGN_OR_RETURN(const PullOutcome outcome,
                           pull_showing_progress(model, flags, PullOptions(), context.json, context));
  return outcome.path;
}

Result<ModelOptions> model_options(const ModelArgs& args) {
  ModelOptions options;
  options.process_bytes = process_bytes();
  options.threads = args.threads;
  options.context = args.context;
  ISTHMUS_ASSIGN_OR_RETURN(options.precision, parse_precision(args.precision));
  ISTHMUS_ASSIGN_OR_RETURN(options.head, parse_head(args.head));
  const auto kv = kv_type_from_name(args.kv_type);
  if (!kv) return invalid_argument("--kv is '" + args.kv_type + "'; known are f32, f16, bf16 and q8_0");
  options.kv_type = *kv;
  const auto eviction = parse_eviction(args.kv_policy, args.kv_budget);
  if (!eviction.ok()) return eviction.status().with_context("--kv-policy, --kv-budget");
  options.eviction = *eviction;
  ISTHMUS_ASSIGN_OR_RETURN(options.kv_codec, parse_codec(args));
  if (!args.memory.empty()) {
    const auto limit = parse_bytes(args.memory);
    if (!limit.ok()) return limit.status().with_context("--memory");
    options.memory_limit = *limit;
  }
  if (!args.no_cache) options.packed_cache = standard_packed_cache();
  ISTHMUS_ASSIGN_OR_RETURN(options.chat_template, read_template(args.chat_template));
  return options;
}

Result<std::shared_ptr<LanguageModel>> load_model(const ModelArgs& args, ModelOptions options,
                                                  const Context& context) {
  ISTHMUS_ASSIGN_OR_RETURN(const std::string path, model_path(args.model, args.store, context));
  if (const std::string file = calibration_path(args.kv_bits); !file.empty()) {
    ISTHMUS_ASSIGN_OR_RETURN(const Digest digest, model_digest(path, context));
    ISTHMUS_RETURN_IF_ERROR(check_calibrated_model(file, digest));
  }
  options.stop.token = context.stop;
  ProgressBar bar(context.json || !os::is_terminal(os::Stream::kError));
  options.progress = [&bar](uint64_t done, uint64_t total) { bar.show("loading", done, total); };
  auto model = LanguageModel::load(path, std::move(options));
  bar.finish();
  return model;
}

nlohmann::ordered_json packed_cache_json(const LanguageModel& model) {
  const PackedReport report = model.transformer().packed_report();
  nlohmann::ordered_json out = {{"state", packed_state_name(report.state)}};
  if (!report.reason.empty()) out["reason"] = report.reason;
  return out;
}

nlohmann::ordered_json head_json(const LanguageModel& model, const HeadFigures* figures) {
  static constexpr const char* kModes[] = {"full", "two-stage", "auto"};
  const HeadReport report = model.head_report();
  nlohmann::ordered_json out = {{"mode", kModes[static_cast<size_t>(model.options().head)]},
                                {"state", head_state_name(report.state)}};
  if (!report.reason.empty()) out["reason"] = report.reason;
  if (report.state == HeadState::kOff) return out;
  out["from_file"] = report.from_file;
  out["bytes"] = report.bytes;
  out["seconds"] = report.seconds;
  if (figures == nullptr) return out;
  out["full_steps"] = figures->full_steps;
  out["two_stage_steps"] = figures->two_stage_steps;
  out["fallbacks"] = figures->fallbacks;
  out["pauses"] = figures->pauses;
  const auto steps = static_cast<double>(std::max<uint64_t>(1, figures->two_stage_steps));
  out["touched_share"] = figures->touched / steps;
  out["full_ms"] = figures->full_seconds * 1e3;
  out["two_stage_ms"] = figures->two_stage_seconds * 1e3;
  return out;
}

void add_sampler_args(CLI::App& app, SamplerArgs& args) {
  SamplerParams& p = args.params;
  app.add_flag("--greedy", args.greedy, "always take the most likely token");
  app.add_option("--temperature", p.temperature, "spread of the draws; 0 = greedy")->capture_default_str();
  app.add_option("--top-k", p.top_k, "keep the k most likely tokens; 0 = off")->capture_default_str();
  app.add_option("--top-p", p.top_p, "keep the most likely tokens of this mass; 1 = off")
      ->capture_default_str();
  app.add_option("--min-p", p.min_p, "drop tokens below this share of the best one; 0 = off")
      ->capture_default_str();
  app.add_option("--typical", p.typical, "locally typical sampling; 1 = off")->capture_default_str();
  app.add_option("--repeat-penalty", p.repetition_penalty, "divide the logits of tokens seen before; 1 = off")
      ->capture_default_str();
  app.add_option("--presence-penalty", p.presence_penalty, "subtract from tokens seen before; 0 = off")
      ->capture_default_str();
  app.add_option("--frequency-penalty", p.frequency_penalty, "subtract for each time seen before; 0 = off")
      ->capture_default_str();
  app.add_option("--penalty-window", p.penalty_window, "tokens that penalties look back at; 0 = all")
      ->capture_default_str();
  app.add_option("--logit-bias", args.logit_bias,
                 "add BIAS to the logit of a token id, repeatable; may be -inf")
      ->type_name("TOKEN=BIAS")
      ->allow_extra_args(false);
  app.add_option("--seed", p.seed, "seed of the draws (default: a fresh one)");
}

void add_lookup_args(CLI::App& app, LookupArgs& args) {
  app.add_flag("--lookup", args.lookup,
               "draft tokens from repetitions of the text: the same answer, sooner where it quotes or edits");
  app.add_option("--draft-max", args.draft_max, "most tokens drafted at once, with --lookup")
      ->check(CLI::Range(size_t{1}, kMostDraftTokens))
      ->capture_default_str();
}

Result<size_t> draft_tokens(const CLI::App& app, const LookupArgs& args) {
  if (!args.lookup && app.count("--draft-max") > 0) return invalid_argument("--draft-max needs --lookup");
  return args.lookup ? args.draft_max : 0;
}

Result<SamplerParams> sampler_params(const CLI::App& app, const SamplerArgs& args) {
  SamplerParams p = args.params;
  if (args.greedy && app.count("--temperature") > 0 && p.temperature != 0) {
    return invalid_argument("--greedy and --temperature contradict each other");
  }
  if (args.greedy) p.temperature = 0;
  if (app.count("--seed") == 0) p.seed = std::random_device{}();
  for (const auto& text : args.logit_bias) {
    char* end = nullptr;
    const long token = std::strtol(text.c_str(), &end, 10);
    const bool number = end != text.c_str() && *end == '=' && token >= 0 && token <= INT32_MAX;
    char* tail = nullptr;
    const float bias = number ? std::strtof(end + 1, &tail) : 0;
    if (!number || tail == end + 1 || *tail != '\0') {
      return invalid_argument("--logit-bias '" + text + "': write TOKEN=BIAS, as 50=-2.5");
    }
    p.logit_bias.emplace_back(static_cast<int32_t>(token), bias);
  }
  return p;
}

}  // namespace isthmus::cli
