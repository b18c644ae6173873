#include "engine/draft_controller.h"

#include <algorithm>

namespace isthmus {
namespace {

/// What one more row costs before it was measured.
constexpr double kPriorRowCost = 0.1;
/// A draft has to promise this much more than plain steps.
constexpr double kMargin = 1.05;
/// The first failures of a run, in plain steps; and how much of earlier savings can be lost again.
constexpr double kGraceSteps = 1.0;
constexpr double kCreditSteps = 8.0;
/// After so many refusals for learnt costs they are learnt anew: the machine may be free again. Doubled each
/// time.
constexpr size_t kForgetAfter = 64;
/// Rows of the first verifying step; later ones may have twice the most rows that were timed.
constexpr size_t kFirstRows = 4;
/// The newest observations count most: some 1 / (1 - kDecay) of them.
constexpr double kDecay = 0.96;
/// What is believed before anything was seen, worth kPriorSeen observations that are forgotten like others.
constexpr std::array<double, 8> kPriorAcceptance = {0.2, 0.35, 0.45, 0.55, 0.65, 0.75, 0.8, 0.85};
constexpr double kPriorSeen = 4;

}  // namespace

void DraftController::Typical::add(double value) {
  values_[next_] = value;
  next_ = (next_ + 1) % kKept;
  count_ = std::min(count_ + 1, kKept);
}

double DraftController::Typical::value() const {
  std::array<double, kKept> sorted{};
  for (size_t i = 0; i < count_; ++i) {
    size_t at = i;
    for (; at > 0 && sorted[at - 1] > values_[i]; --at) sorted[at] = sorted[at - 1];
    sorted[at] = values_[i];
  }
  return sorted[(count_ - 1) / 2];
}

DraftController::DraftController(size_t max_draft)
    : max_draft_(max_draft), costs_(max_draft + 2), buckets_(), forget_after_(kForgetAfter) {
  for (size_t i = 0; i < buckets_.size(); ++i) {
    buckets_[i] = {kPriorAcceptance[i] * kPriorSeen, kPriorSeen};
  }
}

size_t DraftController::bucket_of(size_t match) {
  static constexpr std::array<size_t, 7> kUpTo = {1, 2, 3, 4, 6, 10, 20};
  return static_cast<size_t>(std::lower_bound(kUpTo.begin(), kUpTo.end(), match) - kUpTo.begin());
}

double DraftController::acceptance(size_t match) const {
  const Bucket& bucket = buckets_[bucket_of(match)];
  return bucket.right / bucket.seen;
}

void DraftController::note_token(size_t match, bool right) {
  Bucket& bucket = buckets_[bucket_of(match)];
  bucket.right = bucket.right * kDecay + (right ? 1 : 0);
  bucket.seen = bucket.seen * kDecay + 1;
}

void DraftController::note_plain(double seconds) {
  plain_.add(seconds);
  elapsed_ += seconds;
}

void DraftController::note_verified(size_t rows, size_t gained, double seconds) {
  elapsed_ += seconds;
  if (!plain_.known() || plain_.value() <= 0 || rows >= costs_.size()) return;
  costs_[rows].add(seconds / plain_.value());
  lost_ += seconds - static_cast<double>(gained) * plain_.value();
  lost_ = std::max(lost_, -kCreditSteps * plain_.value());
}

/// Between two measured row counts: on the line through both. Beyond the last: on with its average slope.
double DraftController::relative_cost(size_t rows) const {
  if (rows <= 1) return 1;
  size_t below = 1;
  double below_cost = 1;
  for (size_t n = 2; n < costs_.size(); ++n) {
    if (!costs_[n].known()) continue;
    const double cost = costs_[n].value();
    if (n == rows) return cost;
    if (n > rows) {
      const double share = static_cast<double>(rows - below) / static_cast<double>(n - below);
      return below_cost + (cost - below_cost) * share;
    }
    below = n;
    below_cost = cost;
  }
  const double slope =
      below == 1 ? kPriorRowCost : std::max(0.0, below_cost - 1) / static_cast<double>(below - 1);
  return below_cost + slope * static_cast<double>(rows - below);
}

size_t DraftController::most_rows() const {
  size_t most = kFirstRows / 2;
  for (size_t n = 2; n < costs_.size(); ++n) {
    if (costs_[n].known()) most = std::max(most, n);
  }
  return 2 * most;
}

bool DraftController::may_lose() const {
  return lost_ <= kLossShare * elapsed_ + kGraceSteps * plain_.value();
}

size_t DraftController::best_length(size_t match, size_t available, bool learnt_costs) const {
  size_t best = 0;
  double best_gain = kMargin;
  double tokens = 1;
  double all_right = 1;
  for (size_t k = 1; k <= available; ++k) {
    all_right *= acceptance(match + k - 1);
    tokens += all_right;
    const double cost = learnt_costs ? relative_cost(k + 1) : 1 + kPriorRowCost * static_cast<double>(k);
    if (tokens / cost > best_gain) {
      best_gain = tokens / cost;
      best = k;
    }
  }
  return best;
}

size_t DraftController::choose(size_t match, size_t available) {
  available = std::min({available, max_draft_, most_rows() - 1});
  if (available == 0 || !plain_.known() || !may_lose()) return 0;
  const size_t best = best_length(match, available, true);
  if (best > 0) {
    refused_ = 0;
  } else if (best_length(match, available, false) > 0 && ++refused_ >= forget_after_) {
    for (auto& cost : costs_) cost.forget();
    forget_after_ *= 2;
    refused_ = 0;
  }
  return best;
}

}  // namespace isthmus
