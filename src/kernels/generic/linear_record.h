// Activation records (linear_kernels.h): their layout and the quantisation of a row, the same source for
// every instruction set. A record is
//   int8 low or only plane[32]   (kInt8 always; kInt16 when Plan has byte planes: high plane[32], low
//   plane[32]) int16 words[32]              (where Plan asks for them: per 4 columns the order 0, 2, 1, 3)
//   float scale, int32 nsum[3], float dsum[3], pad          (columns 0-31, 0-15, 16-31)
// q = value / scale; nsum = -(sum of q), from which a zero point's share is shifted; dsum = scale * sum of q.
//
// Compiled with each set's flags, hence internal linkage and no library calls; loops are written so that
// compilers vectorise them without reordering any float operation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/generic/inline.h"
#include "kernels/panel_layout.h"

namespace isthmus {
namespace {

struct RecordSide {
  float scale;
  int32_t nsum[3];
  float dsum[3];
  int32_t pad;
};
static_assert(sizeof(RecordSide) == 32);

/// Offsets of a record's parts. `bytes`: it has byte planes; `words`: it has 16-bit values.
template <Compute C, bool kByteParts, bool kWordParts>
struct Record {
  static constexpr Compute kCompute = C;
  static constexpr bool kBytes = kByteParts;
  static constexpr bool kWords = kWordParts;
  static constexpr size_t kPlanes = !kBytes ? 0 : C == Compute::kInt16 ? 2 : 1;
  static constexpr size_t kHigh = 0;                             // kInt16
  static constexpr size_t kLow = kPlanes == 2 ? kBlockCols : 0;  // kInt8: the only plane
  static constexpr size_t kWordsAt = kPlanes * kBlockCols;
  static constexpr size_t kSide = kWordsAt + (kWords ? 2 * kBlockCols : 0);
  static constexpr size_t kSize = kSide + sizeof(RecordSide);
};

/// Blocks whose largest magnitude is below this count as zero, so that the reciprocal of a scale is finite.
constexpr float kLeastMagnitude = 0x1p-100f;

/// The scale of a block from the bits of its largest magnitude, NaN when that is not finite; `inverse` turns
/// a value into codes.
template <Compute C>
ISTHMUS_INLINE float scale_of(int32_t top, float* inverse) {
  *inverse = 0.0f;
  if (top >= 0x7f800000) return __builtin_nanf("");
  const float largest = __builtin_bit_cast(float, top);
  if (largest < kLeastMagnitude) return 0.0f;
  const float scale = largest / (C == Compute::kInt16 ? 32512.0f : 127.0f);
  *inverse = 1.0f / scale;
  return scale;
}

/// scale_of() a block of 32 values.
template <Compute C>
ISTHMUS_INLINE float block_scale(const float* x, float* inverse) {
  int32_t top = 0;  // magnitudes compared as integers: exact, order-free, and NaN and infinity stand out
  for (size_t i = 0; i < kBlockCols; ++i) {
    const int32_t magnitude = __builtin_bit_cast(int32_t, x[i]) & 0x7fffffff;
    top = magnitude > top ? magnitude : top;
  }
  return scale_of<C>(top, inverse);
}

/// Codes of a block: x * inverse, rounded half to even by adding 1.5 * 2^23.
ISTHMUS_INLINE void round_block(const float* x, float inverse, int32_t* q) {
  constexpr float kRoundHalfEven = 12582912.0f;
  if (inverse == 0.0f) {
    for (size_t i = 0; i < kBlockCols; ++i) q[i] = 0;
    return;
  }
  for (size_t i = 0; i < kBlockCols; ++i) {
    const float shifted = x[i] * inverse + kRoundHalfEven;
    q[i] = __builtin_bit_cast(int32_t, shifted) - __builtin_bit_cast(int32_t, kRoundHalfEven);
  }
}

/// `first`, `second`: the sums of columns 0-15 and 16-31.
ISTHMUS_INLINE void write_side(int32_t first, int32_t second, float scale, std::byte* out) {
  const int32_t sum = first + second;
  const RecordSide side = {scale,
                           {-sum, -first, -second},
                           {scale * static_cast<float>(sum), scale * static_cast<float>(first),
                            scale * static_cast<float>(second)},
                           0};
  __builtin_memcpy(out, &side, sizeof(side));
}

/// The byte planes and words of a record, from its codes.
template <class R>
ISTHMUS_INLINE void write_codes(const int32_t* q, std::byte* out) {
  if constexpr (R::kBytes) {
    auto* low = reinterpret_cast<int8_t*>(out + R::kLow);
    for (size_t i = 0; i < kBlockCols; ++i) low[i] = static_cast<int8_t>(q[i]);
    if constexpr (R::kCompute == Compute::kInt16) {  // q = 256 * high + low with both signed
      auto* high = reinterpret_cast<int8_t*>(out + R::kHigh);
      for (size_t i = 0; i < kBlockCols; ++i) high[i] = static_cast<int8_t>((q[i] + 128) >> 8);
    }
  }
  if constexpr (R::kWords) {
    auto* words = reinterpret_cast<int16_t*>(out + R::kWordsAt);
    for (size_t i = 0; i < kBlockCols; i += 4) {
      words[i] = static_cast<int16_t>(q[i]);
      words[i + 1] = static_cast<int16_t>(q[i + 2]);
      words[i + 2] = static_cast<int16_t>(q[i + 1]);
      words[i + 3] = static_cast<int16_t>(q[i + 3]);
    }
  }
}

/// A record from 32 values, in plain C++.
template <class R>
ISTHMUS_INLINE void write_record(const float* x, std::byte* out) {
  alignas(64) int32_t q[kBlockCols];
  float inverse;
  const float scale = block_scale<R::kCompute>(x, &inverse);
  round_block(x, inverse, q);
  write_codes<R>(q, out);
  int32_t first = 0;
  int32_t second = 0;
  for (size_t i = 0; i < kBlockCols / 2; ++i) first += q[i];
  for (size_t i = kBlockCols / 2; i < kBlockCols; ++i) second += q[i];
  write_side(first, second, scale, out + R::kSide);
}

/// QuantizeKernel of linear_kernels.h; V::write_record() is write_record() by the set's own means.
template <class V, class R>
void quantize_row(const float* x, size_t cols, std::byte* out, size_t stride) {
  size_t k = 0;
  for (; k + kBlockCols <= cols; k += kBlockCols, out += stride) V::template write_record<R>(x + k, out);
  if (k < cols) {
    float last[kBlockCols] = {};
    for (size_t i = 0; k + i < cols; ++i) last[i] = x[k + i];
    V::template write_record<R>(last, out);
  }
}

}  // namespace
}  // namespace isthmus
