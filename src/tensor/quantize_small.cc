// Blocks of 32 values: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4.
#include <bit>
#include <cmath>

#include "tensor/half.h"
#include "tensor/quantize_fit.h"
#include "tensor/quantize_impl.h"

namespace isthmus::quant {
namespace {

using SmallCodes = std::array<uint8_t, kSmallBlock>;

/// Nibble j of byte j is value j, the upper nibble value j + 16.
void pack_nibbles(const SmallCodes& codes, uint8_t (&qs)[16]) {
  for (size_t j = 0; j < 16; ++j) {
    qs[j] = static_cast<uint8_t>((codes[j] & 15) | ((codes[j + 16] & 15) << 4));
  }
}

void pack_high_bits(const SmallCodes& codes, uint8_t (&qh)[4]) {
  for (auto& byte : qh) byte = 0;
  for (size_t i = 0; i < kSmallBlock; ++i) {
    qh[i / 8] = static_cast<uint8_t>(qh[i / 8] | (((static_cast<uint32_t>(codes[i]) >> 4) & 1u) << (i % 8)));
  }
}

/// SmallCodes of x ~ d * (code + low).
SmallCodes scale_codes(const UniformLevels& levels, const float* x, float d) {
  const float id = inverse(d);
  SmallCodes codes;
  for (size_t i = 0; i < kSmallBlock; ++i)
    codes[i] = static_cast<uint8_t>(levels.nearest(x[i] * id) - levels.low);
  return codes;
}

SmallCodes affine_codes(const float* x, Affine fit, float high) {
  const float id = inverse(fit.d);
  SmallCodes codes;
  for (size_t i = 0; i < kSmallBlock; ++i)
    codes[i] = static_cast<uint8_t>(affine_level(x[i], id, fit.m, high));
  return codes;
}

/// Fits, and returns the scale as stored.
template <class Levels>
float stored_scale(const Levels& levels, const float* x, const float* w, Search search, uint16_t& d) {
  d = nonzero_f16(fit_scale(levels, x, w, kSmallBlock, search));
  return f16_to_f32(d);
}

Affine stored_affine(const float* x, const float* w, float high, Search search, uint16_t& d, uint16_t& m) {
  const Affine fit = fit_affine(x, w, kSmallBlock, high, false, search);
  d = nonzero_f16(fit.d);
  m = f32_to_f16(-fit.m);
  return {f16_to_f32(d), -f16_to_f32(m)};
}

constexpr Search kScaleSearch = {-1.5f, 0.25f, 10};
constexpr Search kAffineSearch = {-1.5f, 0.125f, 22};

/// 2^(e - 128), see dequantize_small.cc.
float mxfp4_half_scale(int e) { return std::ldexp(1.0f, e - 128); }

/// SmallCodes by value: 0..7 for 0, 1, 2, 3, 4, 6, 8, 12, and 9..15 for their negatives.
uint8_t mxfp4_code(float v) {
  constexpr std::array<float, 7> kMiddles = {0.5f, 1.5f, 2.5f, 3.5f, 5.0f, 7.0f, 10.0f};
  uint32_t code = 0;
  for (const float middle : kMiddles) code += std::fabs(v) > middle ? 1 : 0;
  return static_cast<uint8_t>(v < 0 && code != 0 ? code + 8 : code);
}

float mxfp4_error(const float* x, const float* w, float d) {
  float error = 0.0f;
  for (size_t i = 0; i < kSmallBlock; ++i) {
    const float rest = x[i] - d * static_cast<float>(kMxfp4Values[mxfp4_code(x[i] / d)]);
    error += w[i] * rest * rest;
  }
  return error;
}

}  // namespace

void quantize(const float* x, const float* w, BlockQ4_0& block) {
  constexpr UniformLevels kLevels = {-8.0f, 7.0f};
  pack_nibbles(scale_codes(kLevels, x, stored_scale(kLevels, x, w, kScaleSearch, block.d)), block.qs);
}

void quantize(const float* x, const float* w, BlockQ4_1& block) {
  const Affine fit = stored_affine(x, w, 15.0f, kAffineSearch, block.d, block.m);
  pack_nibbles(affine_codes(x, fit, 15.0f), block.qs);
}

void quantize(const float* x, const float* w, BlockQ5_0& block) {
  constexpr UniformLevels kLevels = {-16.0f, 15.0f};
  const auto codes = scale_codes(kLevels, x, stored_scale(kLevels, x, w, kScaleSearch, block.d));
  pack_nibbles(codes, block.qs);
  pack_high_bits(codes, block.qh);
}

void quantize(const float* x, const float* w, BlockQ5_1& block) {
  const Affine fit = stored_affine(x, w, 31.0f, kAffineSearch, block.d, block.m);
  const auto codes = affine_codes(x, fit, 31.0f);
  pack_nibbles(codes, block.qs);
  pack_high_bits(codes, block.qh);
}

void quantize(const float* x, const float* /*w*/, BlockQ8_0& block) {
  // 255 levels leave a search nothing to win: the largest value maps to 127.
  float largest = 0.0f;
  for (size_t i = 0; i < kSmallBlock; ++i) largest = std::max(largest, std::fabs(x[i]));
  block.d = nonzero_f16(largest / 127.0f);
  constexpr UniformLevels kLevels = {-127.0f, 127.0f};
  const float id = inverse(f16_to_f32(block.d));
  for (size_t i = 0; i < kSmallBlock; ++i) block.qs[i] = static_cast<int8_t>(kLevels.nearest(x[i] * id));
}

void quantize(const float* x, const float* w, BlockIQ4_NL& block) {
  constexpr Search kSearch = {-20.0f, 4.0f, 10};  // in units of a table whose ends are -127 and 113
  constexpr Iq4Levels levels;
  const float id = inverse(stored_scale(levels, x, w, kSearch, block.d));
  SmallCodes codes;
  for (size_t i = 0; i < kSmallBlock; ++i) codes[i] = static_cast<uint8_t>(levels.code(x[i] * id));
  pack_nibbles(codes, block.qs);
}

void quantize(const float* x, const float* w, BlockMXFP4& block) {
  float largest = 0.0f;
  for (size_t i = 0; i < kSmallBlock; ++i) largest = std::max(largest, std::fabs(x[i]));
  int exponent = 0;
  std::frexp(largest, &exponent);  // largest < 2^exponent
  // The largest level is 12: scales from "nothing clipped" down to "the largest value clipped by half".
  const int first = std::clamp(exponent + 128 - 3, 0, 254);
  int best = first;
  float best_error = INFINITY;
  for (int e = std::max(first - 2, 0); e <= std::min(first + 1, 254); ++e) {
    const float error = mxfp4_error(x, w, mxfp4_half_scale(e));
    if (error < best_error) {
      best = e;
      best_error = error;
    }
  }
  if (largest == 0.0f) best = 0;
  block.e = static_cast<uint8_t>(best);
  SmallCodes codes;
  for (size_t i = 0; i < kSmallBlock; ++i) codes[i] = mxfp4_code(x[i] / mxfp4_half_scale(best));
  pack_nibbles(codes, block.qs);
}

}  // namespace isthmus::quant
