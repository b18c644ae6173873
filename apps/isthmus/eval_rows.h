// Rows of logits as distributions, for evaluations that compare answers.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace isthmus::cli {

/// In float64.
inline std::vector<double> log_probabilities(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - top);
  std::vector<double> out(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) out[i] = logits[i] - top - std::log(sum);
  return out;
}

/// Kullback-Leibler divergence of q from p, both log-probabilities.
inline double divergence(const std::vector<double>& p, const std::vector<double>& q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  return sum;
}

inline size_t likeliest_token(const std::vector<double>& p) {
  return static_cast<size_t>(std::max_element(p.begin(), p.end()) - p.begin());
}

}  // namespace isthmus::cli
