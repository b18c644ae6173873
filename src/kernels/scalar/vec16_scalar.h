// Sixteen float32 lanes as a plain array: the reference for the vector classes of the other instruction sets
// (avx512/, avx2/, neon/), which define the same names with the same bits. A translation unit includes
// exactly one of them, then the generic kernels. Everything is in an unnamed namespace, so that no two sets
// share a symbol.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/half.h"

#define ISTHMUS_INLINE inline __attribute__((always_inline))

namespace isthmus {
namespace {

/// Accumulators that the register file holds beside the operands, in Vec16; here only a tile size.
constexpr size_t kVec16Accumulators = 4;
/// Rows that share one load in attention.
constexpr size_t kVec16Rows = 4;

struct Mask16 {
  bool lane[16];
  /// Lane i as bit i.
  ISTHMUS_INLINE uint32_t bits() const {
    uint32_t out = 0;
    for (int i = 0; i < 16; ++i) out |= static_cast<uint32_t>(lane[i]) << i;
    return out;
  }
};

struct Vec16 {
  float lane[16];

  /// Lane i = f(i).
  template <class F>
  static ISTHMUS_INLINE Vec16 make(F f) {
    Vec16 out;
    for (int i = 0; i < 16; ++i) out.lane[i] = f(i);
    return out;
  }
  static ISTHMUS_INLINE Vec16 zero() { return set1(0.0f); }
  static ISTHMUS_INLINE Vec16 set1(float x) {
    return make([=](int) { return x; });
  }
  static ISTHMUS_INLINE Vec16 load(const float* p) {
    return make([=](int i) { return p[i]; });
  }
  static ISTHMUS_INLINE Vec16 load_f16(const uint16_t* p) {
    return make([=](int i) { return f16_to_f32(p[i]); });
  }
  static ISTHMUS_INLINE Vec16 set1_f16(const uint16_t* p) { return set1(f16_to_f32(*p)); }
  static ISTHMUS_INLINE Vec16 load_bf16(const uint16_t* p) {
    return make([=](int i) { return bf16_to_f32(p[i]); });
  }
  static ISTHMUS_INLINE Vec16 load_i8(const int8_t* p) {
    return make([=](int i) { return static_cast<float>(p[i]); });
  }
  ISTHMUS_INLINE void store(float* p) const {
    for (int i = 0; i < 16; ++i) p[i] = lane[i];
  }
  /// Round to nearest even; NaN stays NaN, quiet, with the upper bits of its payload.
  ISTHMUS_INLINE void store_f16(uint16_t* p) const {
    for (int i = 0; i < 16; ++i) p[i] = f32_to_f16(lane[i]);
  }
  ISTHMUS_INLINE void store_bf16(uint16_t* p) const {
    for (int i = 0; i < 16; ++i) p[i] = f32_to_bf16(lane[i]);
  }
};

ISTHMUS_INLINE Vec16 operator+(Vec16 a, Vec16 b) {
  return Vec16::make([&](int i) { return a.lane[i] + b.lane[i]; });
}
ISTHMUS_INLINE Vec16 operator-(Vec16 a, Vec16 b) {
  return Vec16::make([&](int i) { return a.lane[i] - b.lane[i]; });
}
ISTHMUS_INLINE Vec16 operator*(Vec16 a, Vec16 b) {
  return Vec16::make([&](int i) { return a.lane[i] * b.lane[i]; });
}
ISTHMUS_INLINE Vec16 operator/(Vec16 a, Vec16 b) {
  return Vec16::make([&](int i) { return a.lane[i] / b.lane[i]; });
}
/// a b + c, rounded once.
ISTHMUS_INLINE Vec16 fma(Vec16 a, Vec16 b, Vec16 c) {
  return Vec16::make([&](int i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
}
/// -a b + c, rounded once.
ISTHMUS_INLINE Vec16 fnma(Vec16 a, Vec16 b, Vec16 c) {
  return Vec16::make([&](int i) { return __builtin_fmaf(-a.lane[i], b.lane[i], c.lane[i]); });
}
/// a > b ? a : b, so a NaN in either gives b.
ISTHMUS_INLINE Vec16 max(Vec16 a, Vec16 b) {
  return Vec16::make([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
/// a < b ? a : b.
ISTHMUS_INLINE Vec16 min(Vec16 a, Vec16 b) {
  return Vec16::make([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
/// To the nearest whole number, ties to even.
ISTHMUS_INLINE Vec16 round_even(Vec16 a) {
  return Vec16::make([&](int i) { return __builtin_rintf(a.lane[i]); });
}
/// a * 2^n for a whole n in [-252, 254] (or a NaN), rounded once even when the result is subnormal.
ISTHMUS_INLINE Vec16 scale2(Vec16 a, Vec16 n) {
  return Vec16::make([&](int i) {
    const int whole = n.lane[i] == n.lane[i] ? static_cast<int>(n.lane[i]) : 0;
    const int first = whole >> 1;
    const auto power = [](int e) { return std::bit_cast<float>(static_cast<uint32_t>(e + 127) << 23); };
    return a.lane[i] * power(first) * power(whole - first);
  });
}
/// The same for a in [1/2, 2) and a whole n in [-125, 0], where nothing is rounded; a NaN stays one.
ISTHMUS_INLINE Vec16 add_exponent(Vec16 a, Vec16 n) { return scale2(a, n); }
ISTHMUS_INLINE Vec16 abs(Vec16 a) {
  return Vec16::make([&](int i) { return __builtin_fabsf(a.lane[i]); });
}
ISTHMUS_INLINE Vec16 copy_sign(Vec16 magnitude, Vec16 sign) {
  return Vec16::make([&](int i) { return __builtin_copysignf(magnitude.lane[i], sign.lane[i]); });
}
/// Lanes 1 0 3 2 5 4 ...
ISTHMUS_INLINE Vec16 swap_pairs(Vec16 a) {
  return Vec16::make([&](int i) { return a.lane[i ^ 1]; });
}
ISTHMUS_INLINE Mask16 greater(Vec16 a, Vec16 b) {
  Mask16 out;
  for (int i = 0; i < 16; ++i) out.lane[i] = a.lane[i] > b.lane[i];
  return out;
}
ISTHMUS_INLINE Mask16 equal(Vec16 a, Vec16 b) {
  Mask16 out;
  for (int i = 0; i < 16; ++i) out.lane[i] = a.lane[i] == b.lane[i];
  return out;
}
ISTHMUS_INLINE Vec16 select(Mask16 m, Vec16 yes, Vec16 no) {
  return Vec16::make([&](int i) { return m.lane[i] ? yes.lane[i] : no.lane[i]; });
}
/// Lanes p0 p0 p1 p1 ... p7 p7.
ISTHMUS_INLINE Vec16 load_twice(const float* p) {
  return Vec16::make([=](int i) { return p[i / 2]; });
}

/// The fixed tree of all reductions: lane i with i + 8, then + 4, + 2, + 1.
ISTHMUS_INLINE float reduce_add(Vec16 a) {
  for (int step = 8; step >= 1; step /= 2) {
    for (int i = 0; i < step; ++i) a.lane[i] = a.lane[i] + a.lane[i + step];
  }
  return a.lane[0];
}
ISTHMUS_INLINE float reduce_max(Vec16 a) {
  for (int step = 8; step >= 1; step /= 2) {
    for (int i = 0; i < step; ++i) a.lane[i] = a.lane[i] > a.lane[i + step] ? a.lane[i] : a.lane[i + step];
  }
  return a.lane[0];
}

ISTHMUS_INLINE void prefetch(const void* p) { __builtin_prefetch(p); }

/// Sixteen float64 lanes.
struct Double16 {
  double lane[16];

  static ISTHMUS_INLINE Double16 zero() { return from(Vec16::zero()); }
  static ISTHMUS_INLINE Double16 from(Vec16 x) {
    Double16 out;
    for (int i = 0; i < 16; ++i) out.lane[i] = static_cast<double>(x.lane[i]);
    return out;
  }
};
ISTHMUS_INLINE Double16 operator+(Double16 a, Double16 b) {
  for (int i = 0; i < 16; ++i) a.lane[i] += b.lane[i];
  return a;
}
ISTHMUS_INLINE Double16 operator*(Double16 a, Double16 b) {
  for (int i = 0; i < 16; ++i) a.lane[i] *= b.lane[i];
  return a;
}
ISTHMUS_INLINE double reduce_add(Double16 a) {
  for (int step = 8; step >= 1; step /= 2) {
    for (int i = 0; i < step; ++i) a.lane[i] = a.lane[i] + a.lane[i + step];
  }
  return a.lane[0];
}

}  // namespace
}  // namespace isthmus
