#include "ops/sampling_math.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/float_kernels.h"

namespace isthmus {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// Larger logit first, then lower id: a total order, since ids differ and NaN never gets in.
bool before(const TokenLogit& a, const TokenLogit& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

/// Fills up with the -infinity (or NaN) tokens of lowest id, which the scan below never sees.
void append_impossible(std::span<const float> logits, size_t k, std::vector<TokenLogit>* out) {
  for (size_t i = 0; i < logits.size() && out->size() < k; ++i) {
    if (!(logits[i] > kMinusInfinity)) out->push_back({static_cast<uint32_t>(i), kMinusInfinity});
  }
}

}  // namespace

void top_k_logits(std::span<const float> logits, size_t k, std::vector<TokenLogit>* out) {
  out->clear();
  k = std::min(k, logits.size());
  if (k == 0) return;
  // Candidates are collected until there are several times k, then cut to the best k, whose least becomes the
  // threshold. Ids ascend, so a later logit that only equals the threshold loses its tie.
  const size_t limit = k > logits.size() / 4 ? logits.size() : std::max<size_t>(4 * k, 1024);
  const FloatKernels& kernels = float_kernels();
  float threshold = kMinusInfinity;
  const auto cut = [&] {
    if (out->size() <= k) return;
    const auto kth = out->begin() + static_cast<std::ptrdiff_t>(k) - 1;
    std::nth_element(out->begin(), kth, out->end(), before);
    threshold = kth->logit;
    out->resize(k);
  };
  const size_t n = logits.size();
  for (size_t i = kernels.find_greater(logits.data(), 0, n, threshold); i < n;
       i = kernels.find_greater(logits.data(), i + 1, n, threshold)) {
    out->push_back({static_cast<uint32_t>(i), logits[i]});
    if (out->size() > limit) cut();
  }
  cut();
  std::sort(out->begin(), out->end(), before);
  append_impossible(logits, k, out);
}

double log_sum_exp(std::span<const float> logits) {
  const FloatKernels& kernels = float_kernels();
  const float largest = kernels.max(logits.data(), logits.size());
  if (!std::isfinite(largest)) return static_cast<double>(largest);
  return static_cast<double>(largest) + std::log(kernels.sum_exp(logits.data(), logits.size(), largest));
}

}  // namespace isthmus
