// A session's eviction: the policy, the record of its queries, and when keys go.
//
// With every policy but kWindow keys go when evict() is called, as after a prompt; tokens read afterwards
// keep their keys until the next call. kWindow holds its budget while the text grows. One per sequence,
// copied when it is forked; not thread-safe.
#pragma once

#include <memory>

#include "base/cancel.h"
#include "base/ledger.h"
#include "base/status.h"
#include "engine/language_model.h"
#include "kv/eviction.h"
#include "model/transformer.h"

namespace isthmus {

class KvEviction {
 public:
  /// Charges what recording queries takes. kInvalidArgument for options out of range. `model` outlives it.
  static Result<std::unique_ptr<KvEviction>> create(const EvictionOptions& options, const Transformer& model,
                                                    Ledger& ledger);
  Result<std::unique_ptr<KvEviction>> fork() const;

  /// For ForwardSequence::queries; null when the policy asks no queries.
  QueryRecord* record() { return record_.get(); }
  /// A text begins anew: a share of it is not known yet.
  void begin() {
    window_budget_ = options_.policy == KvPolicy::kWindow ? options_.tokens : 0;
    if (endless()) report_ = {};
    gone_ = 0;
  }
  /// The text may be longer than the context.
  bool endless() const { return options_.policy == KvPolicy::kStreaming; }
  /// After each step that committed tokens.
  Status after_step(KvSequence& kv);
  /// Brings the sequence, whose tokens are `text`, down to its budget now (kStreaming does that with each
  /// step). kKvZip reads the text once more for it, with `workspace`.
  Result<EvictionReport> evict(KvSequence& kv, std::span<const TokenId> text, LanguageModel& model,
                               Workspace& workspace, const StopPolicy& stop = {});

  const EvictionOptions& options() const { return options_; }
  /// Of all calls of evict() together; with kStreaming the text's tokens and those whose keys are held.
  const EvictionReport& report() const { return report_; }

 private:
  Result<EvictionReport> choose(KvSequence& kv, std::span<const TokenId> text, LanguageModel& model,
                                Workspace& workspace, const StopPolicy& stop);
  KvEviction(const EvictionOptions& options, const Transformer& model)
      : options_(options),
        model_(&model),
        geometry_(std::make_shared<AttentionGeometry>(model.attention_geometry())) {}

  EvictionOptions options_;
  const Transformer* model_;
  Ledger* ledger_ = nullptr;
  std::shared_ptr<const AttentionGeometry> geometry_;  // the record points to it
  std::unique_ptr<QueryRecord> record_;
  Charge charge_;
  EvictionReport report_;
  uint64_t gone_ = 0;         // kStreaming: tokens whose keys are gone
  size_t window_budget_ = 0;  // keys; 0: not known before the first evict()
};

}  // namespace isthmus
