// The flags that every command working on a model shares, and loading the model that they describe.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/isthmus/command.h"
#include "apps/isthmus/models.h"
#include "engine/language_model.h"
#include "engine/sampler.h"

namespace isthmus::cli {

struct ModelArgs {
  std::string model;
  size_t threads = 0;
  size_t context = 0;
  std::string memory;  // "2GB"; empty = no limit
  std::string kv_type = "f16";
  std::string precision = "default";
  std::string chat_template;  // file or built-in name
  std::string head = "full";
  std::string kv_policy = "full";
  std::string kv_bits = "16";
  size_t kv_residual = 128;
  std::string kv_keys = "rotated";
  std::string kv_budget;  // "0.5" of the text's keys or "512" of them; empty = 0.5
  bool no_cache = false;
  StoreFlags store;
};

/// --threads, --ctx, --memory, --kv, --kv-bits, --kv-residual, --kv-keys, --kv-policy, --kv-budget,
/// --precision, --head, --no-cache, --models-dir and, with `chat`,
/// --template.
void add_model_flags(CLI::App& app, ModelArgs& args, bool chat);
/// The same with MODEL before them.
void add_model_args(CLI::App& app, ModelArgs& args, bool chat);

/// The path of MODEL: a file, a pulled model, or a catalogue name, which is pulled now (progress on stderr).
Result<std::string> model_path(const std::string& model, const StoreFlags& store, const Context& context);

/// A policy by name and its budget ("0.5", "512", or empty for a half). kInvalidArgument.
Result<EvictionOptions> parse_eviction(const std::string& policy, const std::string& budget);

/// Checks the flags; the caller may change the result before load_model().
Result<ModelOptions> model_options(const ModelArgs& args);

/// Resolves, loads and reports progress on stderr.
Result<std::shared_ptr<LanguageModel>> load_model(const ModelArgs& args, ModelOptions options,
                                                  const Context& context);

/// Where the weights came from and what became of the packed cache: {"state", "reason"}.
nlohmann::ordered_json packed_cache_json(const LanguageModel& model);

/// How the best logits are found: {"mode", "state", …}, with the figures of the steps so far where given.
nlohmann::ordered_json head_json(const LanguageModel& model, const HeadFigures* figures);

struct SamplerArgs {
  SamplerParams params;
  bool greedy = false;
  bool seed_given = false;
  std::vector<std::string> logit_bias;  // "TOKEN=BIAS"
};

/// --greedy, --temperature, --top-k, --top-p, --min-p, --typical, penalties, --logit-bias, --seed.
void add_sampler_args(CLI::App& app, SamplerArgs& args);
/// The parameters; without --seed a fresh one is drawn (and can be shown to repeat the run).
Result<SamplerParams> sampler_params(const CLI::App& app, const SamplerArgs& args);

struct LookupArgs {
  bool lookup = false;
  size_t draft_max = 15;
};

/// --lookup, --draft-max.
void add_lookup_args(CLI::App& app, LookupArgs& args);
/// Tokens to draft, 0 without --lookup; kInvalidArgument for --draft-max alone. The model's options
/// (ModelOptions::draft_tokens) and the request's (SpeculateOptions::max_draft) take the same number.
Result<size_t> draft_tokens(const CLI::App& app, const LookupArgs& args);

/// "2GB", "500MB", "1.5GiB", "1000000": bytes. kInvalidArgument says what is understood.
Result<uint64_t> parse_bytes(const std::string& text);

}  // namespace isthmus::cli
