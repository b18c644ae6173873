// Prompt modules with KV computed ahead (Prompt Cache, Gim et al. 2024, arXiv 2311.04934): a schema compiled
// for a model, the KV of its runs in memory and, where a tier is given, below it, and prompts made of them.
//
// A run is read once, seeing what ModuleView says, in the arithmetic of prompts; a prompt's text is then
// copies of its runs, and its arguments and question computed behind them (Session::compose). What a run does
// not see makes the result approximate: it is tagged Exactness::kComposed, but for text that sees all before
// it. The KV is kept in a pool of its own, charged as KV when the cache is made. Not thread-safe; the tier
// outlives it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/record_tier.h"
#include "engine/chat.h"
#include "engine/language_model.h"
#include "engine/schema_layout.h"
#include "engine/session.h"
#include "kv/kv_record.h"

namespace isthmus {

struct ModuleCacheOptions {
  ModuleView view = ModuleView::kAnchored;
  ModulePlaces places = ModulePlaces::kPacked;
  RepairOptions repair = {};
  /// Where the KV of runs is kept between processes; null: nowhere. Needs the three that follow.
  RecordTier* tier = nullptr;
  DigestFunction digest = nullptr;
  Digest model{};          // of the model's files
  std::string label = {};  // the model's name, for lists
  std::string salt = {};   // texts of different salts never meet
};

/// What making runs ready has cost so far.
struct ModuleFigures {
  size_t runs = 0;             // ready
  size_t tokens = 0;           // in them
  uint64_t bytes = 0;          // of their KV
  size_t computed_tokens = 0;  // read by the model
  size_t stored_tokens = 0;    // came from the tier
  size_t saved_tokens = 0;     // went there
  double seconds = 0;
  std::string reason;  // why the tier gave or took less than it could have
};

/// What a prompt begins with: its text in the schema.
struct ComposedPrompt {
  std::vector<TokenId> tokens;
  std::vector<SchemaLayout::Part> parts;
  /// Tokens that follow the schema (a prompt's question), added by finish().
  size_t tail = 0;
};

class ModuleCache {
 public:
  /// Places the schema's text; nothing is read yet. Errors: of SchemaLayout::create(), of the chat template
  /// (a schema with a role), kUnsupported when the template changes the text, kFailedPrecondition without a
  /// template, kResourceExhausted when there is no memory for the KV.
  static Result<std::unique_ptr<ModuleCache>> create(std::shared_ptr<LanguageModel> model,
                                                     const PromptSchema& schema, ModuleCacheOptions options);

  const SchemaLayout& layout() const { return layout_; }
  const ModuleCacheOptions& options() const { return options_; }

  /// What `prompt` takes of the schema, without its question. The errors of SchemaLayout::choose().
  Result<ComposedPrompt> choose(const SchemaPrompt& prompt) const;
  /// A conversation that begins with that text (roles system and user). Its first user message is the
  /// question.
  void begin(const ComposedPrompt& composed, Conversation& conversation) const;
  /// Adds the question to a prompt: through the chat template, or as it stands when the schema has no role.
  Status finish(const std::string& question, int64_t now, ComposedPrompt& composed) const;
  /// The first user message that asks `question`.
  std::string first_message(const std::string& question) const;
  bool has_template() const { return role_ != SchemaRole::kRaw; }

  /// Makes the KV of the runs of `composed` ready: from the tier, or read with `session`, which is empty
  /// afterwards.
  Status prepare(const ComposedPrompt& composed, Session& session, const StopPolicy& stop = {});
  /// The same for all runs.
  Status prepare_all(Session& session, const StopPolicy& stop = {});
  /// The parts of a prompt whose runs are ready, valid while it and the cache are. With a tail the last part
  /// is it.
  std::vector<TextPart> parts(const ComposedPrompt& composed) const;

  const ModuleFigures& figures() const { return figures_; }

 private:
  ModuleCache(std::shared_ptr<LanguageModel> model, ModuleCacheOptions options)
      : model_(std::move(model)), options_(std::move(options)) {}
  Result<std::vector<TokenId>> lead(SchemaRole role);
  Status make_pool();
  std::vector<TokenId> encode(std::string_view text) const;
  bool sees_all(size_t run) const;
  Status prepare_timed(const std::vector<size_t>& wanted, Session& session, const StopPolicy& stop);
  Status prepare_runs(const std::vector<size_t>& wanted, Session& session, const StopPolicy& stop);
  Status compute_run(size_t run, Session& session, const StopPolicy& stop);
  size_t own_position(size_t run) const;
  TextPart part_at(size_t run, size_t position) const;
  std::vector<TokenId> padded_tokens(size_t run) const;
  Result<KvSpace> space(size_t run) const;
  Status restore_run(size_t run);
  Status save_run(size_t run);

  std::shared_ptr<LanguageModel> model_;
  ModuleCacheOptions options_;
  SchemaRole role_ = SchemaRole::kRaw;
  std::string known_text_;  // rendered, up to the end of the schema's text
  SchemaLayout layout_;
  std::shared_ptr<BlockPool> pool_;
  std::vector<KvSequence> kv_;  // of each run, in whole blocks; empty: not ready
  ModuleFigures figures_;
};

}  // namespace isthmus
