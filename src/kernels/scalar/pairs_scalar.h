// Dot products of two 16-bit numbers with two others in sixteen lanes, as plain loops: the reference for the
// classes of the other instruction sets (avx512/, avx2/, neon/), which define the same names and give the
// same integers. Include after scalar/vec16_scalar.h; everything is in an unnamed namespace.
//
// A *pair* is two neighbours in one 32-bit word, the first in the low half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace isthmus {
namespace {

/// Rows and vectors of sixteen lanes that the register file holds sums for.
constexpr size_t kPairRows = 2;
constexpr size_t kPairVecs = 1;

/// Sixteen pairs, one per lane.
struct PairCodes {
  int16_t x[32];
  static ISTHMUS_INLINE PairCodes load(const int32_t* p) {
    PairCodes out;
    std::memcpy(out.x, p, sizeof(out.x));
    return out;
  }
};
/// One pair in every lane.
struct PairWord {
  int16_t x[2];
  static ISTHMUS_INLINE PairWord load(const int32_t* p) {
    PairWord out;
    std::memcpy(out.x, p, sizeof(out.x));
    return out;
  }
};

/// Sixteen sums of 32 bits, which wrap.
struct PairSum {
  uint32_t lane[16];

  ISTHMUS_INLINE void start() {
    for (uint32_t& sum : lane) sum = 0;
  }
  ISTHMUS_INLINE void add(const PairCodes& codes, PairWord word) {
    for (int i = 0; i < 32; ++i) lane[i / 2] += static_cast<uint32_t>(codes.x[i] * word.x[i % 2]);
  }
  ISTHMUS_INLINE Vec16 total() const {
    return Vec16::make([&](int i) { return static_cast<float>(static_cast<int32_t>(lane[i])); });
  }
};

/// Rounded to nearest even; a NaN gives 0 or any number.
ISTHMUS_INLINE int16_t short_of(float x) {
  return static_cast<int16_t>(x == x ? static_cast<int32_t>(__builtin_rintf(x)) : 0);
}
/// Stores the pairs (low[i], high[i]), rounded to nearest even.
ISTHMUS_INLINE void pack_pairs(Vec16 low, Vec16 high, int32_t* out) {
  int16_t x[32];
  for (size_t i = 0; i < 16; ++i) {
    x[2 * i] = short_of(low.lane[i]);
    x[2 * i + 1] = short_of(high.lane[i]);
  }
  std::memcpy(out, x, sizeof(x));
}
/// Stores 32 weights as pairs of neighbours, in the set's own order: pair i is word weight_word(i), and so
/// are the pairs of values that it meets.
ISTHMUS_INLINE void pack_weight_pairs(Vec16 a, Vec16 b, int32_t* out) {
  int16_t x[32];
  for (int i = 0; i < 32; ++i) x[i] = short_of(i < 16 ? a.lane[i] : b.lane[i - 16]);
  std::memcpy(out, x, sizeof(x));
}
constexpr size_t weight_word(size_t pair) { return pair; }

}  // namespace
}  // namespace isthmus
