// How far one run's distributions are from another's, over many rows: the figures of docs/accuracy.md.
//
// Rows are natural log-probabilities over the same vocabulary. A DistanceTally keeps two numbers a row and
// belongs to one thread; partial tallies are joined in a fixed order with merge(), so a summary does not
// depend on scheduling.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace isthmus {

struct DistanceSummary {
  size_t rows = 0;
  double mean_kl = 0;     // KL(truth || run), nats
  double mean_kl_se = 0;  // standard error of the mean; 0 for fewer than two rows
  double median_kl = 0;
  double p99_kl = 0;
  double max_kl = 0;
  double same_top1 = 0;  // share of rows with the same most likely token (the lower id on a tie)
  size_t scored = 0;     // rows that predict a token of the text
  double truth_perplexity = 0;
  double perplexity = 0;
  double perplexity_ratio = 0;     // perplexity / truth_perplexity
  double perplexity_ratio_se = 0;  // from the paired differences of the log-likelihoods
};

class DistanceTally {
 public:
  /// One row of both runs, and the token that follows in the text, if any (below the row's size).
  void add(std::span<const float> truth, std::span<const float> run, std::optional<int32_t> target);
  void merge(const DistanceTally& later);
  size_t rows() const { return kl_.size(); }
  DistanceSummary summary() const;

 private:
  std::vector<double> kl_;
  std::vector<double> nll_difference_;  // run - truth, of the scored rows
  double truth_nll_ = 0;
  size_t same_ = 0;
};

}  // namespace isthmus
