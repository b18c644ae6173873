// A model ready to use: weights, tokenizer, chat template, threads and KV pool under one memory budget.
//
// Immutable after load() and shared by any number of Sessions on any threads: forward steps take turns on the
// model's thread pool. Loading plans the whole memory first and refuses, before reading weights, what exceeds
// the limit. A model file that is truncated while it is read gives kCorrupt with its name.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/cancel.h"
#include "base/ledger.h"
#include "base/status.h"
#include "engine/stream_choice.h"
#include "format/gguf.h"
#include "kv/eviction.h"
#include "kv/kv_codec.h"
#include "model/head_screen.h"
#include "model/transformer.h"
#include "model/workspace.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "threads/pool.h"

namespace isthmus {

/// The arithmetic of a run (docs/accuracy.md has the measured distance of each to float32).
enum class Precision {
  /// Every token in one integer class with 16-bit activations: within 10^-6 of float32 in mean KL, and the
  /// same bits for
  /// any batch, split into steps, thread count and instruction set.
  kDefault,
  /// Prompt tokens with 8-bit activations and attention in 16-bit whole numbers: about twice as fast to read,
  /// mean KL of some 10^-3; generation as above.
  kFast,
  /// Prompt tokens in bfloat16 with float32 sums, on tiles: weights and activations keep 8 bits of precision;
  /// attention as in kFast, generation as above. Needs an instruction set with tiles; loading says so where
  /// there is none.
  kBf16,
  /// float32 weights and activations: slow, four to eight times the memory.
  kReference,
};

/// How the best logits are found where they are all that is asked for (greedy, or top-k without
/// log-probabilities). The tokens are the same; docs/output-head.md.
enum class HeadMode : uint8_t {
  kFull,      // read the whole output matrix
  kTwoStage,  // keep a coarse copy of it in memory and read that, and of the matrix only what is in play
  kAuto,      // two stages where the matrix is a large part of the model and the memory limit allows the copy
};

struct ModelOptions {
  size_t context = 0;    // tokens of KV for one sequence; 0 = the model's, at most kDefaultContext
  size_t sequences = 1;  // how many sequences of that length the KV pool holds
  /// Tokens that the KV pool holds, each sequence in whole blocks; 0 = sequences x context.
  size_t kv_tokens = 0;
  size_t threads = 0;        // 0 = as many as can run at once
  size_t step_tokens = 512;  // prompt tokens per step
  size_t step_outputs = 1;   // most rows of logits per step
  /// Longest draft of speculation (SpeculateOptions::max_draft), at most kMostDraftTokens; 0: no speculation,
  /// and no memory for it.
  size_t draft_tokens = 0;
  Precision precision = Precision::kDefault;
  KvType kv_type = KvType::kF16;
  uint64_t process_bytes = 0;          // planned for the rest of the process: process_bytes(), or 0
  uint64_t memory_limit = UINT64_MAX;  // bytes for everything
  std::string chat_template;           // text or built-in name; empty = the model's own
  LoadProgress progress;
  StopPolicy stop;
  /// Where packed weights are kept for the next start; by default nowhere (standard_packed_cache()).
  PackedCacheOptions packed_cache;
  HeadMode head = HeadMode::kFull;
  /// Which keys sessions give up. Anything but KvPolicy::kFull is approximate.
  EvictionOptions eviction = {};
  /// Codes of full KV blocks. Anything but none is approximate.
  KvCodec kv_codec = {};
  /// Bits (8, 4, 2, 1) to which single blocks may be coded; not beside kv_codec. For SessionStore.
  std::vector<int> kv_levels = {};
};

inline constexpr size_t kDefaultContext = 4096;
inline constexpr size_t kMostDraftTokens = 64;

/// The resident set at its peak, with the context full and steps of the largest size; found without reading
/// weights. tests/e2e/memory holds it within 5 % of what is measured.
struct ModelPlan {
  MemoryPlan memory;
  uint64_t text = 0;     // tokenizer, from the sizes in the file's header
  uint64_t process = 0;  // ModelOptions::process_bytes
  size_t context = 0;
  size_t threads = 0;
  uint64_t total() const { return memory.total() + text + process; }
};

/// What a program that serves one model takes beside it: its resident set now and the code that it will still
/// touch. For ModelOptions::process_bytes, to be asked before the model is opened.
uint64_t process_bytes();

class LanguageModel {
 public:
  static Result<std::shared_ptr<LanguageModel>> load(const std::string& path, ModelOptions options);
  /// Plans without loading. Same errors as load(), except those of the memory limit.
  static Result<ModelPlan> plan(const std::string& path, const ModelOptions& options);

  const ModelConfig& config() const { return transformer_->config(); }
  const Transformer& transformer() const { return *transformer_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  /// The template in use; kFailedPrecondition when the model has none and none was given, saying how to pass
  /// one.
  Result<const ChatTemplate*> chat_template() const;
  const ModelOptions& options() const { return options_; }
  const ModelPlan& memory_plan() const { return plan_; }
  size_t context() const { return plan_.context; }
  /// Where the way in which the weights are walked comes from.
  StreamSource stream_source() const { return streams_; }
  /// The two-stage output head: begins to read or make it; the first generated token does that, too.
  void start_head() { head_->start(); }
  /// Waits until it is ready or has failed.
  void wait_for_head() { head_->wait(); }
  /// Whether the output head is or will be in two stages.
  bool two_stage_head() const { return head_off_.empty(); }
  HeadReport head_report() const { return head_->report(); }
  Ledger& ledger() { return ledger_; }
  ThreadPool& pool() { return *pool_; }
  RunShape run_shape() const;
  /// What full KV blocks of each layer become; empty: nothing.
  const std::vector<KvFormat>& coded_formats() const { return coded_; }
  /// How keys are held.
  KeyEncoding key_encoding() const { return run_shape().key_encoding; }
  Compute prompt_compute() const;
  Compute generation_compute() const;

  KvSequence make_sequence() const { return transformer_->make_sequence(blocks_); }
  /// A pool of its own for one sequence of the model's context whose KV is coded in another way: for who
  /// compares codecs.
  Result<std::shared_ptr<BlockPool>> make_pool(const KvCodec& codec);
  Result<std::unique_ptr<Workspace>> make_workspace();

 private:
  explicit LanguageModel(ModelOptions options)
      : options_(std::move(options)), ledger_(options_.memory_limit) {}
  Status open(const std::string& path);
  Status load_all();
  Status load_text();
  Status read_template();
  Status check_limit() const;
  Status check_streaming() const;
  Status choose_codes();
  void plan_head();
  void make_head();
  RunShape pool_shape() const;

  ModelOptions options_;
  Ledger ledger_;
  std::vector<KvFormat> coded_;
  ModelPlan plan_;
  std::shared_ptr<const GgufFile> file_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  Status template_error_;
  std::unique_ptr<Transformer> transformer_;
  std::unique_ptr<ThreadPool> pool_;
  std::shared_ptr<BlockPool> blocks_;
  Charge text_charge_;
  StreamSource streams_ = StreamSource::kDefault;
  std::string head_off_ = "not asked for";  // why the head is full; empty: it is not
  std::unique_ptr<HeadScreen> head_;        // uses all of the above until it is gone
};

}  // namespace isthmus
