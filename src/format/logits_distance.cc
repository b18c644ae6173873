#include "format/logits_distance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace isthmus {
namespace {

size_t most_likely(std::span<const float> row) {
  return static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

// The value below which a share `q` of the sorted values lies, interpolated between neighbours (type 7 of
// Hyndman and Fan 1996, the default of numpy).
double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const size_t low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double standard_error(const std::vector<double>& values, double centre) {
  if (values.size() < 2) return 0;
  double sum = 0;
  for (const double value : values) sum += (value - centre) * (value - centre);
  const auto n = static_cast<double>(values.size());
  return std::sqrt(sum / (n - 1) / n);
}

}  // namespace

void DistanceTally::add(std::span<const float> truth, std::span<const float> run,
                        std::optional<int32_t> target) {
  double kl = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    const double p = truth[i];
    // A token that the truth excludes contributes nothing, whatever the run says of it.
    if (p > -INFINITY) kl += std::exp(p) * (p - static_cast<double>(run[i]));
  }
  kl_.push_back(kl);
  if (most_likely(truth) == most_likely(run)) ++same_;
  if (!target) return;
  const auto token = static_cast<size_t>(*target);
  truth_nll_ -= static_cast<double>(truth[token]);
  nll_difference_.push_back(static_cast<double>(truth[token]) - static_cast<double>(run[token]));
}

void DistanceTally::merge(const DistanceTally& later) {
  kl_.insert(kl_.end(), later.kl_.begin(), later.kl_.end());
  nll_difference_.insert(nll_difference_.end(), later.nll_difference_.begin(), later.nll_difference_.end());
  truth_nll_ += later.truth_nll_;
  same_ += later.same_;
}

DistanceSummary DistanceTally::summary() const {
  DistanceSummary out;
  out.rows = kl_.size();
  out.scored = nll_difference_.size();
  if (out.rows > 0) {
    std::vector<double> sorted = kl_;
    std::sort(sorted.begin(), sorted.end());
    out.mean_kl = mean(kl_);
    out.mean_kl_se = standard_error(kl_, out.mean_kl);
    out.median_kl = quantile(sorted, 0.5);
    out.p99_kl = quantile(sorted, 0.99);
    out.max_kl = sorted.back();
    out.same_top1 = static_cast<double>(same_) / static_cast<double>(out.rows);
  }
  if (out.scored > 0) {
    const double difference = mean(nll_difference_);
    out.truth_perplexity = std::exp(truth_nll_ / static_cast<double>(out.scored));
    out.perplexity_ratio = std::exp(difference);
    out.perplexity_ratio_se = out.perplexity_ratio * standard_error(nll_difference_, difference);
    out.perplexity = out.truth_perplexity * out.perplexity_ratio;
  }
  return out;
}

}  // namespace isthmus
