// The buffers of a forward step: activations, quantised inputs, attention scratch. Charged to the ledger and
// allocated once for the largest step, so that a step allocates nothing large. One per stream of steps; not
// thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "base/ledger.h"
#include "base/status.h"
#include "model/head_choice.h"
#include "model/layer_run.h"
#include "model/transformer.h"
#include "os/mmap.h"

namespace isthmus {

class Workspace {
 public:
  /// Bytes that create() will charge, for the largest step of `shape` on `threads` threads.
  static uint64_t bytes(const ModelConfig& config, const RunShape& shape, Compute compute, size_t threads);
  static Result<std::unique_ptr<Workspace>> create(const Transformer& model, const RunShape& shape,
                                                   size_t threads, Ledger& ledger);

  const RunShape& shape() const { return shape_; }
  size_t threads() const { return threads_; }
  /// What the steps that wanted the best logits only did so far.
  const HeadFigures& head_figures() const { return head_.policy.figures(); }

 private:
  friend class Transformer;
  friend class StepPlan;
  Workspace(const RunShape& shape, size_t threads) : shape_(shape), threads_(threads) {}

  struct PerThread {
    float* normed = nullptr;    // [kFewTokens][d_model]
    std::byte* acts = nullptr;  // quantised rows of the widest input
  };

  RunShape shape_;
  size_t threads_;
  Charge charge_;
  HugeArena arena_;
  StepState state_;
  std::vector<PerThread> per_thread_;
  float* out_rows_ = nullptr;      // [max_outputs][d_model], after the final norm
  std::byte* out_acts_ = nullptr;  // their quantised form
  uint64_t attention_bytes_ = 0;
  HeadChoice head_;
  // Filled anew for each step; kept here so that their memory is reused.
  std::vector<KvSequence*> sequences_;
  std::vector<QueryRecord*> records_;
  std::vector<uint32_t> slots_;
  std::vector<uint32_t> owner_;
  std::vector<int32_t> positions_;
  std::vector<uint64_t> tree_bits_;
  std::vector<TokenId> tokens_;
};

}  // namespace isthmus
