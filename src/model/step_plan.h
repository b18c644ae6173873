// What a forward step does, worked out before the threads start: each token's sequence, slot, position and
// what it may see.
#pragma once

#include "base/status.h"
#include "model/transformer.h"
#include "model/workspace.h"

namespace isthmus {

class StepPlan {
 public:
  /// `rope_local` is null for models without windowed layers. All arguments outlive the plan.
  StepPlan(const Transformer& model, const RopeTable& rope, const RopeTable* rope_local, Workspace& workspace)
      : model_(model), rope_(rope), rope_local_(rope_local), ws_(workspace) {}

  /// Checks the step and fills the workspace for it; nothing is computed.
  Status prepare(const ForwardStep& step);

 private:
  Status check(const ForwardStep& step) const;
  Status add_sequence(const ForwardSequence& sequence, size_t index);
  Status check_encoding(const ForwardSequence& sequence, size_t index) const;
  Status check_slots(const ForwardSequence& sequence, size_t index) const;
  Result<size_t> position_of(const ForwardSequence& sequence, size_t i, size_t first) const;
  Status place_tokens(const ForwardSequence& sequence, size_t index);
  void fill_views(const ForwardSequence& sequence, size_t first_token);
  void fill_rope_rows();
  void fill_attention(const ForwardStep& step);

  const Transformer& model_;
  const RopeTable& rope_;
  const RopeTable* rope_local_;
  Workspace& ws_;
};

}  // namespace isthmus
