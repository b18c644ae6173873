// A loaded model: its configuration, packed weights and the forward pass.
//
// A Transformer is immutable after load() and may be shared by threads; each caller of forward() brings a
// Workspace and the KvSequences, and one ThreadPool runs one step at a time. Memory is planned before
// anything is read: plan() says what a context of a given length will take, load() charges the ledger and
// refuses what does not fit.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "base/cancel.h"
#include "base/ledger.h"
#include "base/status.h"
#include "format/gguf.h"
#include "kv/query_record.h"
#include "kv/sequence.h"
#include "model/config.h"
#include "model/family.h"
#include "model/packed_cache.h"
#include "model/weights.h"
#include "ops/screen.h"
#include "threads/pool.h"

namespace isthmus {

using TokenId = int32_t;

/// One sequence's share of a step: `tokens` are appended after what `kv` holds, or computed anew in it.
struct ForwardSequence {
  KvSequence* kv = nullptr;  // must have grow(tokens.size()) room; forward() does not commit
  std::span<const TokenId> tokens;
  /// For a token tree: parent[i] < i is the index of token i's parent among `tokens`, or -1 for a child of
  /// the committed text. Empty: each token follows the one before it.
  std::span<const int32_t> parents;
  /// Sees the queries of layers that may lose keys; null: nobody does. Not with a token tree.
  QueryRecord* queries = nullptr;
  /// Empty: the tokens are the pending ones. Else tokens[i] is token slots[i] of the sequence, ascending:
  /// first committed ones that are computed anew (KvSequence::reopen), seeing what stands before them, then
  /// all pending ones. Not with a token tree, nor with `queries`; keys rotated by absolute positions.
  std::span<const uint32_t> slots = {};
};

/// One forward step over the tokens of one or more sequences.
struct ForwardStep {
  std::span<const ForwardSequence> sequences;
  Compute compute = Compute::kInt8;
  /// Tokens (indices into the concatenation of all sequences' tokens) whose logits are wanted.
  std::span<const uint32_t> outputs;
  /// [outputs][vocab], or null when only hidden states are wanted.
  float* logits = nullptr;
  /// 0: all of them. 1 .. kScreenMostBest, with one output: only the largest `best` logits are wanted; they
  /// are there, exactly as they always are, and any other logit may be -infinity instead.
  size_t best = 0;
  /// [outputs][d_model]: what the output head reads (after the final norm), or null.
  float* hidden = nullptr;
  /// 0: all layers. Else only the first so many are run; there are no outputs then.
  size_t layers = 0;
};

/// Resident bytes at the peak, each arena rounded to the pages that the system gives.
struct MemoryPlan {
  uint64_t weights = 0;  // packed
  uint64_t kv = 0;       // for the context asked for
  uint64_t head = 0;     // the coarse copy of the output head (head_screen.h)
  uint64_t work = 0;  // buffers of a step; at least what packing needs beside the weights before there is KV
  uint64_t total() const { return weights + kv + head + work; }
};

/// What a context costs and how steps are sized.
struct RunShape {
  size_t context = 0;      // tokens the KV pool holds
  size_t max_tokens = 0;   // largest step
  size_t max_outputs = 1;  // most logits rows of a step
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
  /// How keys are stored. Blocks of anything but kAbsolute can move (KvSequence::drop_blocks), but take no
  /// token trees.
  KeyEncoding key_encoding = KeyEncoding::kAbsolute;
  /// What full blocks of each layer become, `residual` tokens at a time; empty: nothing.
  std::vector<KvFormat> coded = {};
  size_t residual = 128;
  /// Formats that single blocks may be given.
  std::vector<KvFormat> levels = {};
  /// Whether a text may be held as written to its end before it is coded.
  bool coding_put_off = false;
};

class Workspace;
class FirstError;

class Transformer {
 public:
  /// Reads the metadata and checks every tensor's shape and type; reads no weights.
  static Result<std::unique_ptr<Transformer>> open(std::shared_ptr<const GgufFile> file, Compute compute,
                                                   size_t context);
  ~Transformer();

  const ModelConfig& config() const { return config_; }
  Compute compute() const { return compute_; }
  /// Bytes of the packed weights.
  uint64_t weight_bytes() const { return binder_.planned_bytes(); }
  /// What weights, one workspace of `shape` and a pool of `pool_tokens` tokens will take.
  MemoryPlan plan(const RunShape& shape, size_t pool_tokens, size_t threads) const;

  /// Charges the weights, and reads them from the packed cache or packs them. Once. A cache file is written
  /// beside what follows; destroying the model waits for it.
  Status load(ThreadPool& pool, Ledger& ledger, const LoadProgress& progress = {},
              const StopPolicy& stop = {}, const PackedCacheOptions& cache = {});
  /// How the output head is packed.
  Result<PackFormat> head_format() const { return pack_format(head_type_, compute_); }
  uint64_t head_bytes() const;
  PackedReport packed_report() const { return cache_ == nullptr ? PackedReport{} : cache_->report(); }
  /// The packed matrices in the order of use, once loaded.
  std::vector<const PackedMatrix*> matrices() const;
  /// A pool of KV blocks that holds `shape.context` tokens of one sequence (or several that share it).
  Result<std::shared_ptr<BlockPool>> make_pool(const RunShape& shape, Ledger& ledger) const;
  KvSequence make_sequence(std::shared_ptr<BlockPool> pool) const;
  /// How keys and queries of a layer are rotated.
  const RopeTable& rope(size_t layer) const { return config_.is_local(layer) ? *rope_local_ : *rope_; }
  /// What scoring and evicting keys needs to know of this model, which must outlive it: layers with a sliding
  /// window keep theirs.
  AttentionGeometry attention_geometry() const;

  /// Runs a step. The sequences' pending tokens get their K and V; the caller commits. kInvalidArgument for a
  /// token outside the vocabulary, too many tokens, or parents that are no tree; kCorrupt when the rows of an
  /// untied embedding cannot be read any more because the model's file was truncated.
  Status forward(const ForwardStep& step, Workspace& workspace, ThreadPool& pool) const;
  /// Lets steps that want the best logits only use `screen` (of matrices().back()), which outlives the model
  /// or the next call; null: never. Any thread.
  void use_screen(const Screen* screen) { screen_.store(screen, std::memory_order_release); }
  const Screen* screen() const { return screen_.load(std::memory_order_acquire); }
  /// logits [n][vocab] of rows hidden [n][d_model] as forward() gave them.
  Status head(const float* hidden, size_t n, Compute compute, float* logits, Workspace& workspace,
              ThreadPool& pool) const;

 private:
  Transformer(std::shared_ptr<const GgufFile> file, Compute compute);
  Status bind(size_t context);
  BlockPoolConfig pool_config(const RunShape& shape) const;
  size_t coded_pool_blocks(const BlockPoolConfig& config, const RunShape& shape, size_t per_stream) const;
  /// `row` holds a row of the embedding as the file stores it: at most d_model floats.
  Status embed(TokenId token, std::byte* row, float* out) const;
  void run(const ForwardStep& step, Workspace& workspace, Worker& worker, FirstError& error) const;
  void choose_head(const ForwardStep& step, Workspace& workspace) const;
  void run_outputs(const ForwardStep& step, Workspace& workspace, Worker& worker) const;
  void run_best(const ForwardStep& step, Workspace& workspace, Worker& worker) const;
  void run_head(const float* rows, size_t n, Compute compute, float* logits, Workspace& workspace,
                Worker& worker) const;

  std::shared_ptr<const GgufFile> file_;
  const Compute compute_;
  const Family* family_ = nullptr;
  ModelConfig config_;
  ModelWeights weights_;
  DType head_type_ = DType::kF32;
  WeightBinder binder_;
  HugeArena arena_;
  std::unique_ptr<PackedCache> cache_;  // reads the arena until it is gone
  Charge charge_;
  std::atomic<const Screen*> screen_{nullptr};
  std::unique_ptr<RopeTable> rope_;
  std::unique_ptr<RopeTable> rope_local_;
};

}  // namespace isthmus
