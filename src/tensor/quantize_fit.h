// Private to src/tensor: weighted least-squares fits of small groups of values to a grid of levels.
//
// Words: x are the values, w their weights (>= 0), q the level of a value: one of a few numbers that a code
// stands for. fit_scale() minimises sum w (x - d q)^2, fit_affine() sum w (x - d q + m)^2 with m >= 0 or
// free. Both try a list of inverse scales around the obvious one, solve the linear problem for the codes that
// each gives (the minimum over d, or d and m, is closed), keep the best by its true residual, and repeat code
// -> solve from there. Group sizes are multiples of 8: sums run in 8 lanes, added in one order, so that the
// result does not depend on how the compiler vectorises. Pure functions, any thread, no errors; values must
// be finite.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tensor/half.h"
#include "tensor/quant_blocks.h"

namespace isthmus::quant {

inline constexpr size_t kLanes = 8;

/// Adds 8 lanes in a fixed tree.
inline float add_lanes(const std::array<float, kLanes>& a) {
  return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

/// Nearest integer, ties to even, for |v| < 2^22; vectorises on any machine, unlike std::nearbyint.
inline float round_to_even(float v) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: the sum has no fraction bits left
  return (v + kMagic) - kMagic;
}

/// `v` held in low .. high; low for a NaN (0 times the inverse of a scale too small to invert), so that a
/// cast to an integer is always defined.
inline float clamp_or_low(float v, float low, float high) {
  const float raised = v > low ? v : low;
  return raised < high ? raised : high;
}

/// Equally spaced levels low .. high.
struct UniformLevels {
  float low;
  float high;
  float nearest(float v) const { return round_to_even(clamp_or_low(v, low, high)); }
  /// Replaces 8 values by their levels.
  void nearest_lanes(std::array<float, kLanes>& v) const {
    for (float& value : v) value = nearest(value);
  }
};

/// The sixteen levels of IQ4_NL and IQ4_XS. All middles between neighbours are multiples of one half, so the
/// code of v depends only on ceil(2 v), and a table indexed by that is exact (ties go down).
class Iq4Levels {
 public:
  static constexpr float low = -127.0f;
  static constexpr float high = 113.0f;

  uint32_t code(float v) const { return tables().codes[half_steps(v)]; }
  float nearest(float v) const { return tables().levels[half_steps(v)]; }
  void nearest_lanes(std::array<float, kLanes>& v) const {
    const auto& table = tables().levels;
    for (float& value : v) value = table[half_steps(value)];
  }

 private:
  static constexpr size_t kSteps = 512;  // ceil(2 v) + 256 for v in -128 .. 127.5
  struct Tables {
    std::array<uint8_t, kSteps> codes;
    std::array<float, kSteps> levels;
  };

  static size_t half_steps(float v) {
    const float shifted = 2.0f * clamp_or_low(v, -128.0f, 127.5f) + 256.0f;
    const auto whole = static_cast<int32_t>(shifted);
    return static_cast<size_t>(whole) + (static_cast<float>(whole) < shifted ? 1 : 0);
  }
  static constexpr Tables make_tables() {
    Tables out{};
    for (int step = 0; step < static_cast<int>(kSteps); ++step) {
      size_t code = 0;
      // 2 v > lower neighbour + upper neighbour, whole numbers on both sides
      while (code < 15 && step - 256 > kIq4Values[code] + kIq4Values[code + 1]) ++code;
      out.codes[static_cast<size_t>(step)] = static_cast<uint8_t>(code);
      out.levels[static_cast<size_t>(step)] = kIq4Values[code];
    }
    return out;
  }
  static const Tables& tables() {
    static constexpr Tables kTables = make_tables();
    return kTables;
  }
};

/// A scale as f16. One that would vanish becomes the smallest there is: the codes then say how little is
/// meant, where a zero would make the whole block zero.
inline uint16_t nonzero_f16(float scale) {
  const uint16_t half = f32_to_f16(scale);
  return (half & 0x7fff) == 0 && scale != 0.0f ? static_cast<uint16_t>(half | 1) : half;
}

/// Which inverse scales are tried: extreme level + first, + first + step, ... (count of them), over the
/// extreme value.
struct Search {
  float first;
  float step;
  int count;
};

/// A value divided by a scale; a zero scale stands for all zeros.
inline float inverse(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }

/// sum w (x - d * level(x / d))^2.
template <class Levels>
float scale_error(const Levels& levels, const float* x, const float* w, size_t n, float d) {
  const float id = inverse(d);
  std::array<float, kLanes> error{};
  for (size_t i = 0; i < n; i += kLanes) {
    std::array<float, kLanes> q;
    for (size_t l = 0; l < kLanes; ++l) q[l] = x[i + l] * id;
    levels.nearest_lanes(q);
    for (size_t l = 0; l < kLanes; ++l) {
      const float rest = x[i + l] - d * q[l];
      error[l] += w[i + l] * rest * rest;
    }
  }
  return add_lanes(error);
}

/// A scale and what it gains: the weighted square sum of x minus the weighted error that is left.
struct Scale {
  float d = 0.0f;
  float gain = 0.0f;
};

/// The best d for the levels that inverse scale `id` gives: d = sum w x q / sum w q^2, gain = d * sum w x q.
/// The gain ranks candidates without a second pass; its rounding (some 1e-6 of the sum) is far below what one
/// level makes.
template <class Levels>
Scale solve_scale(const Levels& levels, const float* x, const float* w, size_t n, float id) {
  std::array<float, kLanes> xq{};
  std::array<float, kLanes> qq{};
  for (size_t i = 0; i < n; i += kLanes) {
    std::array<float, kLanes> q;
    for (size_t l = 0; l < kLanes; ++l) q[l] = x[i + l] * id;
    levels.nearest_lanes(q);
    for (size_t l = 0; l < kLanes; ++l) {
      const float wq = w[i + l] * q[l];
      xq[l] += x[i + l] * wq;
      qq[l] += wq * q[l];
    }
  }
  const float top = add_lanes(xq);
  const float bottom = add_lanes(qq);
  if (!(bottom > 0.0f)) return {};
  return {top / bottom, top / bottom * top};
}

/// The scale d of x ~ d * q. May be negative: the levels need not be symmetric.
template <class Levels>
float fit_scale(const Levels& levels, const float* x, const float* w, size_t n, Search search) {
  float extreme = 0.0f;
  for (size_t i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  if (extreme == 0.0f) return 0.0f;
  Scale best = {extreme / levels.low, 0.0f};  // stands when no value has a weight
  const auto consider = [&](float id) {
    const Scale found = solve_scale(levels, x, w, n, id);
    if (!(found.gain > best.gain)) return false;
    best = found;
    return true;
  };
  for (int k = 0; k < search.count; ++k) {
    const float delta = search.first + search.step * static_cast<float>(k);
    consider((levels.low - delta) / extreme);
    consider((levels.high + delta) / extreme);
  }
  for (int round = 0; round < 4 && consider(inverse(best.d)); ++round) {
  }
  return best.d;
}

/// x ~ d * q - m with q in 0 .. high.
struct Affine {
  float d = 0.0f;
  float m = 0.0f;
};

struct AffineFound {
  Affine fit;
  double gain = -1.0;  // as in Scale; below every real one when there is no solution
};

inline float affine_level(float x, float id, float m, float high) {
  return round_to_even(clamp_or_low((x + m) * id, 0.0f, high));
}

/// sum w (x - d * q + m)^2 with the codes that `fit` gives.
float affine_error(const float* x, const float* w, size_t n, Affine fit, float high);

/// The best fit for the codes that `codes` gives. With `keep_sign`, m is held >= 0.
AffineFound solve_affine(const float* x, const float* w, size_t n, Affine codes, float high, bool keep_sign);

Affine fit_affine(const float* x, const float* w, size_t n, float high, bool keep_sign, Search search);

/// Weights of a block of n values: 1 without importance (plain least squares); otherwise importance times
/// sqrt(mean of x^2 + x^2), since an importance is the mean square of the activation that the value is
/// multiplied with, and large values carry more of the product than their share.
void fit_weights(const float* x, const float* importance, size_t n, float* w);

}  // namespace isthmus::quant
