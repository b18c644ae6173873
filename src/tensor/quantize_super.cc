// Super-blocks of 256 values: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS.
//
// Two levels of scales are fitted in turns. First each group by itself, as if its scale could be any number;
// then the group scales are rounded to the small integers that the block has, each integer chosen among its
// neighbours by the error that it really gives; then the outer f16 scales are solved again for those
// integers; and once more.
#include <bit>

#include "tensor/half.h"
#include "tensor/quantize_fit.h"
#include "tensor/quantize_impl.h"

namespace isthmus::quant {
namespace {

constexpr int kRounds = 2;
using SuperCodes = std::array<uint8_t, kSuperBlock>;

// ---- w = d * scale * level ----

template <size_t kGroups>
struct ScaleFit {
  uint16_t d = 0;
  std::array<int, kGroups> scale{};
};

/// The best integer scale of a group, among those near `guess`.
template <class Levels>
int best_scale(const Levels& levels, const float* x, const float* w, size_t n, float d, int guess, int low,
               int high) {
  int best = std::clamp(guess, low, high);
  float best_error = scale_error(levels, x, w, n, d * static_cast<float>(best));
  for (const int candidate : {guess - 1, guess + 1}) {
    if (candidate < low || candidate > high) continue;
    const float error = scale_error(levels, x, w, n, d * static_cast<float>(candidate));
    if (!(error < best_error)) continue;
    best = candidate;
    best_error = error;
  }
  return best;
}

/// The outer scale that suits the integer scales best: sum w x s q / sum w (s q)^2.
template <size_t kGroups, class Levels>
float outer_scale(const Levels& levels, const float* x, const float* w, const ScaleFit<kGroups>& fit) {
  constexpr size_t kGroup = kSuperBlock / kGroups;
  double top = 0.0;
  double bottom = 0.0;
  for (size_t g = 0; g < kGroups; ++g) {
    const auto s = static_cast<float>(fit.scale[g]);
    const float id = inverse(f16_to_f32(fit.d) * s);
    for (size_t i = g * kGroup; i < (g + 1) * kGroup; ++i) {
      const float q = s * levels.nearest(x[i] * id);
      top += static_cast<double>(w[i] * x[i] * q);
      bottom += static_cast<double>(w[i] * q * q);
    }
  }
  return bottom > 0.0 ? static_cast<float>(top / bottom) : f16_to_f32(fit.d);
}

/// Group scales in low .. high; low is the larger side.
template <size_t kGroups, class Levels>
ScaleFit<kGroups> fit_scales(const Levels& levels, const float* x, const float* w, int low, int high,
                             Search search) {
  constexpr size_t kGroup = kSuperBlock / kGroups;
  std::array<float, kGroups> wanted{};
  float extreme = 0.0f;
  for (size_t g = 0; g < kGroups; ++g) {
    wanted[g] = fit_scale(levels, x + g * kGroup, w + g * kGroup, kGroup, search);
    if (std::fabs(wanted[g]) > std::fabs(extreme)) extreme = wanted[g];
  }
  ScaleFit<kGroups> fit;
  fit.d = nonzero_f16(extreme / static_cast<float>(low));
  for (int round = 0; round < kRounds; ++round) {
    const float d = f16_to_f32(fit.d);
    if (d == 0.0f) return {};
    for (size_t g = 0; g < kGroups; ++g) {
      const int guess = static_cast<int>(round_to_even(clamp_or_low(wanted[g] / d, -1e6f, 1e6f)));
      fit.scale[g] = best_scale(levels, x + g * kGroup, w + g * kGroup, kGroup, d, guess, low, high);
    }
    if (round + 1 < kRounds) fit.d = nonzero_f16(outer_scale(levels, x, w, fit));
  }
  return fit;
}

// ---- w = d * scale * code - dmin * min ----

template <size_t kGroups>
struct AffineFit {
  uint16_t d = 0;
  uint16_t dmin = 0;
  std::array<int, kGroups> scale{};
  std::array<int, kGroups> min{};

  Affine group(size_t g) const {
    return {f16_to_f32(d) * static_cast<float>(scale[g]), f16_to_f32(dmin) * static_cast<float>(min[g])};
  }
};

/// Chooses the integers of group `g` among the neighbours of `wanted`.
template <size_t kGroups>
void best_pair(const float* x, const float* w, size_t g, Affine wanted, int limit, float high,
               AffineFit<kGroups>& fit) {
  constexpr size_t kGroup = kSuperBlock / kGroups;
  const auto guess = [](float value, uint16_t unit) {
    const float step = f16_to_f32(unit);
    return step == 0.0f ? 0 : static_cast<int>(round_to_even(clamp_or_low(value / step, 0.0f, 1e6f)));
  };
  const int scale = std::min(guess(wanted.d, fit.d), limit);
  const int min = std::min(guess(wanted.m, fit.dmin), limit);
  float best_error = INFINITY;
  std::pair<int, int> best = {scale, min};
  for (int s = std::max(scale - 1, 0); s <= std::min(scale + 1, limit); ++s) {
    for (int m = std::max(min - 1, 0); m <= std::min(min + 1, limit); ++m) {
      fit.scale[g] = s;
      fit.min[g] = m;
      const float error = affine_error(x + g * kGroup, w + g * kGroup, kGroup, fit.group(g), high);
      if (!(error < best_error)) continue;
      best_error = error;
      best = {s, m};
    }
  }
  fit.scale[g] = best.first;
  fit.min[g] = best.second;
}

/// Solves for d and dmin with the integers and codes held.
template <size_t kGroups>
void refit_outer(const float* x, const float* w, float high, AffineFit<kGroups>& fit) {
  constexpr size_t kGroup = kSuperBlock / kGroups;
  double aa = 0.0, ab = 0.0, bb = 0.0, ax = 0.0, bx = 0.0;  // x ~ d * a - dmin * b
  for (size_t g = 0; g < kGroups; ++g) {
    const Affine stored = fit.group(g);
    const float id = inverse(stored.d);
    const double b = fit.min[g];
    for (size_t i = g * kGroup; i < (g + 1) * kGroup; ++i) {
      const double a = static_cast<double>(affine_level(x[i], id, stored.m, high)) * fit.scale[g];
      aa += w[i] * a * a;
      ab += w[i] * a * b;
      bb += w[i] * b * b;
      ax += w[i] * a * x[i];
      bx += w[i] * b * x[i];
    }
  }
  const double determinant = aa * bb - ab * ab;
  if (!(determinant > 1e-12 * aa * bb)) return;
  const double d = (ax * bb - bx * ab) / determinant;
  const double dmin = (ax * ab - bx * aa) / determinant;
  if (!(d > 0.0 && dmin > 0.0)) return;
  fit.d = nonzero_f16(static_cast<float>(d));
  fit.dmin = nonzero_f16(static_cast<float>(dmin));
}

template <size_t kGroups>
AffineFit<kGroups> fit_affines(const float* x, const float* w, int limit, float high, Search search) {
  constexpr size_t kGroup = kSuperBlock / kGroups;
  std::array<Affine, kGroups> wanted;
  Affine largest;
  for (size_t g = 0; g < kGroups; ++g) {
    wanted[g] = fit_affine(x + g * kGroup, w + g * kGroup, kGroup, high, true, search);
    largest.d = std::max(largest.d, wanted[g].d);
    largest.m = std::max(largest.m, wanted[g].m);
  }
  AffineFit<kGroups> fit;
  fit.d = nonzero_f16(largest.d / static_cast<float>(limit));
  fit.dmin = nonzero_f16(largest.m / static_cast<float>(limit));
  for (int round = 0; round < kRounds; ++round) {
    for (size_t g = 0; g < kGroups; ++g) best_pair(x, w, g, wanted[g], limit, high, fit);
    if (round + 1 < kRounds) refit_outer(x, w, high, fit);
  }
  return fit;
}

/// SuperCodes 0 .. high of all groups.
template <size_t kGroups>
SuperCodes affine_codes(const float* x, const AffineFit<kGroups>& fit, float high) {
  SuperCodes codes;
  for (size_t i = 0; i < kSuperBlock; ++i) {
    const Affine group = fit.group(i / (kSuperBlock / kGroups));
    codes[i] = static_cast<uint8_t>(affine_level(x[i], inverse(group.d), group.m, high));
  }
  return codes;
}

/// SuperCodes above the lowest level of all groups.
template <size_t kGroups>
SuperCodes scale_codes(const UniformLevels& levels, const float* x, const ScaleFit<kGroups>& fit) {
  SuperCodes codes;
  for (size_t i = 0; i < kSuperBlock; ++i) {
    const float d = f16_to_f32(fit.d) * static_cast<float>(fit.scale[i / (kSuperBlock / kGroups)]);
    codes[i] = static_cast<uint8_t>(levels.nearest(x[i] * inverse(d)) - levels.low);
  }
  return codes;
}

// ---- where the bits go: the inverses of dequantize_super.cc ----

void pack_two_bits(const SuperCodes& codes, int shift, uint8_t (&out)[64]) {
  for (auto& byte : out) byte = 0;
  for (size_t i = 0; i < kSuperBlock; ++i) {
    const uint32_t bits = ((static_cast<uint32_t>(codes[i]) >> shift) & 3u) << (2 * (i / 32 % 4));
    out[32 * (i / 128) + i % 32] = static_cast<uint8_t>(out[32 * (i / 128) + i % 32] | bits);
  }
}

void pack_one_bit(const SuperCodes& codes, int shift, uint8_t (&out)[32]) {
  for (auto& byte : out) byte = 0;
  for (size_t i = 0; i < kSuperBlock; ++i) {
    out[i % 32] =
        static_cast<uint8_t>(out[i % 32] | (((static_cast<uint32_t>(codes[i]) >> shift) & 1u) << (i / 32)));
  }
}

/// Q4_K, Q5_K: 64 values in 32 bytes.
void pack_four_bits(const SuperCodes& codes, uint8_t (&out)[128]) {
  for (size_t b = 0; b < 128; ++b) {
    const size_t i = 64 * (b / 32) + b % 32;
    out[b] = static_cast<uint8_t>((codes[i] & 15) | ((codes[i + 32] & 15) << 4));
  }
}

/// Q6_K: 128 values in 64 bytes.
void pack_low_bits_q6(const SuperCodes& codes, uint8_t (&out)[128]) {
  for (size_t b = 0; b < 128; ++b) {
    const size_t i = 128 * (b / 64) + b % 64;
    out[b] = static_cast<uint8_t>((codes[i] & 15) | ((codes[i + 64] & 15) << 4));
  }
}

void store_scales(const AffineFit<8>& fit, uint8_t (&packed)[12]) {
  ScalesK scales{};
  for (size_t g = 0; g < 8; ++g) {
    scales.scale[g] = static_cast<uint8_t>(fit.scale[g]);
    scales.min[g] = static_cast<uint8_t>(fit.min[g]);
  }
  pack_scales_k(scales, packed);
}

}  // namespace

void quantize(const float* x, const float* w, BlockQ2_K& block) {
  const auto fit = fit_affines<16>(x, w, 15, 3.0f, {-0.9f, 0.1f, 19});
  for (size_t g = 0; g < 16; ++g) block.scales[g] = static_cast<uint8_t>(fit.scale[g] | (fit.min[g] << 4));
  pack_two_bits(affine_codes(x, fit, 3.0f), 0, block.qs);
  block.d = fit.d;
  block.dmin = fit.dmin;
}

void quantize(const float* x, const float* w, BlockQ3_K& block) {
  constexpr UniformLevels kLevels = {-4.0f, 3.0f};
  const auto fit = fit_scales<16>(kLevels, x, w, -32, 31, {-1.0f, 0.25f, 9});
  std::array<uint8_t, 16> scales{};
  for (size_t g = 0; g < 16; ++g) scales[g] = static_cast<uint8_t>(fit.scale[g] + 32);
  pack_scales_q3(scales, block.scales);
  const auto codes = scale_codes(kLevels, x, fit);
  pack_two_bits(codes, 0, block.qs);
  pack_one_bit(codes, 2, block.hmask);
  block.d = fit.d;
}

void quantize(const float* x, const float* w, BlockQ4_K& block) {
  const auto fit = fit_affines<8>(x, w, 63, 15.0f, {-1.5f, 0.125f, 22});
  store_scales(fit, block.scales);
  pack_four_bits(affine_codes(x, fit, 15.0f), block.qs);
  block.d = fit.d;
  block.dmin = fit.dmin;
}

void quantize(const float* x, const float* w, BlockQ5_K& block) {
  const auto fit = fit_affines<8>(x, w, 63, 31.0f, {-1.5f, 0.125f, 22});
  store_scales(fit, block.scales);
  const auto codes = affine_codes(x, fit, 31.0f);
  pack_four_bits(codes, block.qs);
  pack_one_bit(codes, 4, block.qh);
  block.d = fit.d;
  block.dmin = fit.dmin;
}

void quantize(const float* x, const float* w, BlockQ6_K& block) {
  constexpr UniformLevels kLevels = {-32.0f, 31.0f};
  const auto fit = fit_scales<16>(kLevels, x, w, -128, 127, {-1.0f, 0.25f, 9});
  for (size_t g = 0; g < 16; ++g) block.scales[g] = static_cast<int8_t>(fit.scale[g]);
  const auto codes = scale_codes(kLevels, x, fit);
  pack_low_bits_q6(codes, block.ql);
  pack_two_bits(codes, 4, block.qh);
  block.d = fit.d;
}

void quantize(const float* x, const float* w, BlockIQ4_XS& block) {
  constexpr Iq4Levels levels;
  const auto fit = fit_scales<8>(levels, x, w, -32, 31, {-20.0f, 4.0f, 10});
  block = {};
  block.d = fit.d;
  for (size_t g = 0; g < 8; ++g) {
    const auto scale = static_cast<uint32_t>(fit.scale[g] + 32);
    block.scales_l[g / 2] = static_cast<uint8_t>(block.scales_l[g / 2] | ((scale & 15u) << (4 * (g % 2))));
    block.scales_h = static_cast<uint16_t>(block.scales_h | ((scale >> 4) << (2 * g)));
    const float id = inverse(f16_to_f32(fit.d) * static_cast<float>(fit.scale[g]));
    for (size_t j = 0; j < 16; ++j) {
      const float* group = x + 32 * g;
      const uint32_t low = levels.code(group[j] * id);
      const uint32_t high = levels.code(group[j + 16] * id);
      block.qs[16 * g + j] = static_cast<uint8_t>(low | (high << 4));
    }
  }
}

}  // namespace isthmus::quant
