// For tests only: pseudo-random weights that are the same on every machine (only +, * and a seeded
// generator).
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/rng.h"

namespace isthmus::testing {

/// Nearly normal, mean 0, variance 1: the sum of twelve uniforms.
inline float bell(Rng& rng) {
  double sum = -6.0;
  for (int i = 0; i < 12; ++i) sum += rng.uniform();
  return static_cast<float>(sum);
}

/// Bell-shaped weights of the size that models have.
inline std::vector<float> bell_weights(size_t n, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out(n);
  for (float& x : out) x = 0.02f * bell(rng);
  return out;
}

/// Weights with outliers and a slight offset.
inline std::vector<float> heavy_weights(size_t n, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out(n);
  for (float& x : out) {
    const float size = std::fabs(bell(rng));
    x = 0.02f * bell(rng) * size + 0.001f;
  }
  return out;
}

/// Importances as mean squares of activations: most small, some large.
inline std::vector<float> sample_importance(size_t n, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out(n);
  for (float& x : out) {
    const float a = bell(rng);
    x = a * a + 0.01f;
  }
  return out;
}

/// sqrt(sum w (a - b)^2 / sum w b^2); `w` has one weight per column, or is empty.
inline double relative_rms(const std::vector<float>& a, const std::vector<float>& b,
                           const std::vector<float>& w) {
  double error = 0.0;
  double power = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double weight = w.empty() ? 1.0 : w[i % w.size()];
    const double difference = static_cast<double>(a[i]) - b[i];
    error += weight * difference * difference;
    power += weight * static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(error / power);
}

}  // namespace isthmus::testing
