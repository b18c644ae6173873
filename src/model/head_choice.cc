#include "model/head_choice.h"

namespace isthmus {
namespace {

/// Less is noise.
constexpr double kClearly = 1.05;

/// The newest of about eight steps weigh most.
double blend(double old, double now) { return old == 0 ? now : old + (now - old) / 8; }

}  // namespace

bool HeadPolicy::two_stage() {
  if (figures_.full_steps < kFirstFull) return false;
  if (pause_ > 0) {
    --pause_;
    return false;
  }
  return since_full_ < kCompareEvery;
}

void HeadPolicy::note_full(double seconds) {
  ++figures_.full_steps;
  since_full_ = 0;
  figures_.full_seconds = blend(figures_.full_seconds, seconds);
}

void HeadPolicy::note_two_stage(double seconds, double touched, bool fell_back) {
  ++figures_.two_stage_steps;
  ++since_full_;
  figures_.fallbacks += fell_back ? 1 : 0;
  figures_.touched += touched;
  figures_.two_stage_seconds = trial_ == 0 ? seconds : blend(figures_.two_stage_seconds, seconds);
  if (++trial_ < kTrial || figures_.two_stage_seconds <= kClearly * figures_.full_seconds) return;
  ++figures_.pauses;
  pause_ = kPause;
  trial_ = 0;
}

void HeadChoice::note(double seconds, size_t panels) {
  if (screen == nullptr) return policy.note_full(seconds);
  policy.note_two_stage(seconds, static_cast<double>(scratch->touched_panels()) / static_cast<double>(panels),
                        scratch->outcome() == ScreenOutcome::kFull);
}

}  // namespace isthmus
