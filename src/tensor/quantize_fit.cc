#include "tensor/quantize_fit.h"

namespace isthmus::quant {

float affine_error(const float* x, const float* w, size_t n, Affine fit, float high) {
  const float id = inverse(fit.d);
  std::array<float, kLanes> error{};
  for (size_t i = 0; i < n; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      const float rest = x[i + l] - (fit.d * affine_level(x[i + l], id, fit.m, high) - fit.m);
      error[l] += w[i + l] * rest * rest;
    }
  }
  return add_lanes(error);
}

AffineFound solve_affine(const float* x, const float* w, size_t n, Affine codes, float high, bool keep_sign) {
  const float id = inverse(codes.d);
  std::array<float, kLanes> sw{}, sx{}, sq{}, sqq{}, sxq{};
  for (size_t i = 0; i < n; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      const float q = affine_level(x[i + l], id, codes.m, high);
      const float wx = w[i + l] * x[i + l];
      const float wq = w[i + l] * q;
      sw[l] += w[i + l];
      sx[l] += wx;
      sq[l] += wq;
      sqq[l] += wq * q;
      sxq[l] += wx * q;
    }
  }
  // Normal equations in double: the determinant is a difference of nearly equal products.
  const double s_w = add_lanes(sw), s_x = add_lanes(sx), s_q = add_lanes(sq);
  const double s_qq = add_lanes(sqq), s_xq = add_lanes(sxq);
  const double determinant = s_w * s_qq - s_q * s_q;
  if (determinant > 1e-12 * s_w * s_qq) {
    const double d = (s_w * s_xq - s_x * s_q) / determinant;
    const double m = (s_q * s_xq - s_x * s_qq) / determinant;
    if (d > 0 && (m >= 0 || !keep_sign)) {
      return {{static_cast<float>(d), static_cast<float>(m)}, d * s_xq - m * s_x};
    }
  }
  if (!keep_sign || !(s_qq > 0) || !(s_xq > 0)) return {};
  return {{static_cast<float>(s_xq / s_qq), 0.0f}, s_xq * s_xq / s_qq};
}

Affine fit_affine(const float* x, const float* w, size_t n, float high, bool keep_sign, Search search) {
  const auto [low_at, high_at] = std::minmax_element(x, x + n);
  const float low = keep_sign ? std::min(*low_at, 0.0f) : *low_at;
  const float range = *high_at - low;
  if (!(range > 0.0f)) return {0.0f, -low};
  AffineFound best = {{range / high, -low}, -1.0};  // stands when nothing can be solved
  const auto consider = [&](Affine codes) {
    const AffineFound found = solve_affine(x, w, n, codes, high, keep_sign);
    if (!(found.gain > best.gain)) return false;
    best = found;
    return true;
  };
  for (int k = 0; k < search.count; ++k) {
    consider({range / (high + search.first + search.step * static_cast<float>(k)), -low});
  }
  for (int round = 0; round < 4 && consider(best.fit); ++round) {
  }
  return best.fit;
}

void fit_weights(const float* x, const float* importance, size_t n, float* w) {
  if (importance == nullptr) {
    std::fill(w, w + n, 1.0f);
    return;
  }
  float sum = 0.0f;
  for (size_t i = 0; i < n; ++i) sum += x[i] * x[i];
  const float mean = sum / static_cast<float>(n);
  for (size_t i = 0; i < n; ++i) w[i] = importance[i] * std::sqrt(mean + x[i] * x[i]);
}

}  // namespace isthmus::quant
