// Whether the two-stage output head (ops/screen.h) pays, found by timing both ways; each way gives the same
// logits, so the choice is about time alone. Belongs to one stream of steps; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ops/screen.h"

namespace isthmus {

/// Steps that wanted the best logits only, since the stream began.
struct HeadFigures {
  uint64_t full_steps = 0;       // computed in full, by choice
  uint64_t two_stage_steps = 0;  // those that fell back to the full head included
  uint64_t fallbacks = 0;        // began in two stages and had too many rows in play
  uint64_t pauses = 0;           // times that two stages were given up for a while
  double touched = 0;            // sum over two-stage steps of the share of panels computed exactly
  double full_seconds = 0;       // a step of each kind, lately
  double two_stage_seconds = 0;
};

class HeadPolicy {
 public:
  /// Whether the next step goes in two stages: after a first full step, as long as that is faster; a full
  /// step now and then keeps the comparison honest.
  bool two_stage();
  void note_full(double seconds);
  void note_two_stage(double seconds, double touched, bool fell_back);
  const HeadFigures& figures() const { return figures_; }

 private:
  static constexpr uint64_t kFirstFull = 2;
  static constexpr uint64_t kCompareEvery = 128;
  static constexpr uint64_t kTrial = 8;    // two-stage steps before they are judged
  static constexpr uint64_t kPause = 128;  // full steps after a loss

  HeadFigures figures_;
  uint64_t since_full_ = 0;  // two-stage steps since the last full one
  uint64_t trial_ = 0;       // two-stage steps since the last pause
  uint64_t pause_ = 0;       // full steps to go
};

/// The state of a workspace's output head; filled for each step by Transformer.
struct HeadChoice {
  bool timed = false;              // the step wants the best logits only
  const Screen* screen = nullptr;  // to use in this step, or null
  std::unique_ptr<ScreenScratch> scratch;
  HeadPolicy policy;

  void note(double seconds, size_t panels);
};

}  // namespace isthmus
