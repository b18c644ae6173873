// Sixteen float32 lanes on AArch64 NEON: four q registers. See scalar/vec16_scalar.h for what each operation
// means; all sets give the same bits.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#define ISTHMUS_INLINE inline __attribute__((always_inline))

namespace isthmus {
namespace {

/// Accumulators that the register file holds beside the operands, in Vec16.
constexpr size_t kVec16Accumulators = 6;
constexpr size_t kVec16Rows = 6;

struct Mask16 {
  uint32x4_t v[4];
  ISTHMUS_INLINE uint32_t bits() const {
    const uint32_t weights[4] = {1, 2, 4, 8};
    const uint32x4_t w = vld1q_u32(weights);
    uint32_t out = 0;
    for (int i = 0; i < 4; ++i) out |= vaddvq_u32(vandq_u32(v[i], w)) << (4 * i);
    return out;
  }
};

/// One q register of bfloat16 values from float32, in the low half of each lane.
ISTHMUS_INLINE uint16x4_t to_bf16(float32x4_t x) {
  const uint32x4_t bits = vreinterpretq_u32_f32(x);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t round = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
  return vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), round, quiet), 16);
}

struct Vec16 {
  float32x4_t v[4];

  static ISTHMUS_INLINE Vec16 set1(float x) {
    const float32x4_t q = vdupq_n_f32(x);
    return {{q, q, q, q}};
  }
  static ISTHMUS_INLINE Vec16 zero() { return set1(0.0f); }
  static ISTHMUS_INLINE Vec16 load(const float* p) {
    return {{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
  }
  static ISTHMUS_INLINE float32x4_t widen_f16(uint16x4_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }
  static ISTHMUS_INLINE Vec16 load_f16(const uint16_t* p) {
    return {{widen_f16(vld1_u16(p)), widen_f16(vld1_u16(p + 4)), widen_f16(vld1_u16(p + 8)),
             widen_f16(vld1_u16(p + 12))}};
  }
  static ISTHMUS_INLINE Vec16 set1_f16(const uint16_t* p) {
    const float32x4_t x = widen_f16(vdup_n_u16(*p));
    return {{x, x, x, x}};
  }
  static ISTHMUS_INLINE float32x4_t widen_bf16(uint16x4_t h) {
    return vreinterpretq_f32_u32(vshll_n_u16(h, 16));
  }
  static ISTHMUS_INLINE Vec16 load_bf16(const uint16_t* p) {
    return {{widen_bf16(vld1_u16(p)), widen_bf16(vld1_u16(p + 4)), widen_bf16(vld1_u16(p + 8)),
             widen_bf16(vld1_u16(p + 12))}};
  }
  static ISTHMUS_INLINE Vec16 load_i8(const int8_t* p) {
    const int8x16_t bytes = vld1q_s8(p);
    const int16x8_t lo = vmovl_s8(vget_low_s8(bytes));
    const int16x8_t hi = vmovl_s8(vget_high_s8(bytes));
    return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(lo))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(lo))),
             vcvtq_f32_s32(vmovl_s16(vget_low_s16(hi))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(hi)))}};
  }
  ISTHMUS_INLINE void store(float* p) const {
    for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, v[i]);
  }
  ISTHMUS_INLINE void store_f16(uint16_t* p) const {
    for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(v[i])));
  }
  ISTHMUS_INLINE void store_bf16(uint16_t* p) const {
    for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, to_bf16(v[i]));
  }
};

/// Applies f to the four registers of the arguments.
template <class F, class... A>
ISTHMUS_INLINE Vec16 each(F f, A... a) {
  return {{f(a.v[0]...), f(a.v[1]...), f(a.v[2]...), f(a.v[3]...)}};
}
using Quad = float32x4_t;

ISTHMUS_INLINE Vec16 operator+(Vec16 a, Vec16 b) {
  return each([](Quad x, Quad y) { return vaddq_f32(x, y); }, a, b);
}
ISTHMUS_INLINE Vec16 operator-(Vec16 a, Vec16 b) {
  return each([](Quad x, Quad y) { return vsubq_f32(x, y); }, a, b);
}
ISTHMUS_INLINE Vec16 operator*(Vec16 a, Vec16 b) {
  return each([](Quad x, Quad y) { return vmulq_f32(x, y); }, a, b);
}
ISTHMUS_INLINE Vec16 operator/(Vec16 a, Vec16 b) {
  return each([](Quad x, Quad y) { return vdivq_f32(x, y); }, a, b);
}
ISTHMUS_INLINE Vec16 fma(Vec16 a, Vec16 b, Vec16 c) {
  return each([](Quad x, Quad y, Quad z) { return vfmaq_f32(z, x, y); }, a, b, c);
}
ISTHMUS_INLINE Vec16 fnma(Vec16 a, Vec16 b, Vec16 c) {
  return each([](Quad x, Quad y, Quad z) { return vfmsq_f32(z, x, y); }, a, b, c);
}
// Not FMAX/FMIN: those treat NaN and signed zeros otherwise than x86 does.
ISTHMUS_INLINE Vec16 max(Vec16 a, Vec16 b) {
  return each([](Quad x, Quad y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }, a, b);
}
ISTHMUS_INLINE Vec16 min(Vec16 a, Vec16 b) {
  return each([](Quad x, Quad y) { return vbslq_f32(vcltq_f32(x, y), x, y); }, a, b);
}
ISTHMUS_INLINE Vec16 round_even(Vec16 a) {
  return each([](Quad x) { return vrndnq_f32(x); }, a);
}
/// 2^n in two factors, so that a subnormal product is rounded once.
ISTHMUS_INLINE Vec16 scale2(Vec16 a, Vec16 n) {
  return each(
      [](Quad x, Quad y) {
        const int32x4_t whole = vcvtq_s32_f32(y);
        const int32x4_t first = vshrq_n_s32(whole, 1);
        const int32x4_t bias = vdupq_n_s32(127);
        const int32x4_t f1 = vshlq_n_s32(vaddq_s32(first, bias), 23);
        const int32x4_t f2 = vshlq_n_s32(vaddq_s32(vsubq_s32(whole, first), bias), 23);
        return vmulq_f32(vmulq_f32(x, vreinterpretq_f32_s32(f1)), vreinterpretq_f32_s32(f2));
      },
      a, n);
}
ISTHMUS_INLINE Vec16 add_exponent(Vec16 a, Vec16 n) {
  return each(
      [](Quad x, Quad y) {
        const int32x4_t shift = vshlq_n_s32(vcvtq_s32_f32(y), 23);
        return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(x), shift));
      },
      a, n);
}
ISTHMUS_INLINE Vec16 abs(Vec16 a) {
  return each([](Quad x) { return vabsq_f32(x); }, a);
}
ISTHMUS_INLINE Vec16 copy_sign(Vec16 magnitude, Vec16 sign) {
  return each([](Quad x, Quad y) { return vbslq_f32(vdupq_n_u32(0x80000000u), y, x); }, magnitude, sign);
}
ISTHMUS_INLINE Vec16 swap_pairs(Vec16 a) {
  return each([](Quad x) { return vrev64q_f32(x); }, a);
}
ISTHMUS_INLINE Mask16 greater(Vec16 a, Vec16 b) {
  return {{vcgtq_f32(a.v[0], b.v[0]), vcgtq_f32(a.v[1], b.v[1]), vcgtq_f32(a.v[2], b.v[2]),
           vcgtq_f32(a.v[3], b.v[3])}};
}
ISTHMUS_INLINE Mask16 equal(Vec16 a, Vec16 b) {
  return {{vceqq_f32(a.v[0], b.v[0]), vceqq_f32(a.v[1], b.v[1]), vceqq_f32(a.v[2], b.v[2]),
           vceqq_f32(a.v[3], b.v[3])}};
}
ISTHMUS_INLINE Vec16 select(Mask16 m, Vec16 yes, Vec16 no) {
  return {{vbslq_f32(m.v[0], yes.v[0], no.v[0]), vbslq_f32(m.v[1], yes.v[1], no.v[1]),
           vbslq_f32(m.v[2], yes.v[2], no.v[2]), vbslq_f32(m.v[3], yes.v[3], no.v[3])}};
}
ISTHMUS_INLINE Vec16 load_twice(const float* p) {
  const Quad a = vld1q_f32(p);
  const Quad b = vld1q_f32(p + 4);
  return {{vzip1q_f32(a, a), vzip2q_f32(a, a), vzip1q_f32(b, b), vzip2q_f32(b, b)}};
}

ISTHMUS_INLINE float reduce_add(Vec16 a) {
  const Quad q = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  const float32x2_t d = vadd_f32(vget_low_f32(q), vget_high_f32(q));
  return vget_lane_f32(d, 0) + vget_lane_f32(d, 1);
}
ISTHMUS_INLINE float reduce_max(Vec16 a) {
  const auto larger = [](Quad x, Quad y) { return vbslq_f32(vcgtq_f32(x, y), x, y); };
  const Quad q = larger(larger(a.v[0], a.v[2]), larger(a.v[1], a.v[3]));
  const float32x2_t lo = vget_low_f32(q);
  const float32x2_t hi = vget_high_f32(q);
  const float32x2_t d = vbsl_f32(vcgt_f32(lo, hi), lo, hi);
  const float x = vget_lane_f32(d, 0);
  const float y = vget_lane_f32(d, 1);
  return x > y ? x : y;
}

ISTHMUS_INLINE void prefetch(const void* p) { __builtin_prefetch(p); }

/// Sixteen float64 lanes, eight q registers.
struct Double16 {
  float64x2_t v[8];

  static ISTHMUS_INLINE Double16 zero() {
    Double16 out;
    for (auto& q : out.v) q = vdupq_n_f64(0.0);
    return out;
  }
  static ISTHMUS_INLINE Double16 from(Vec16 x) {
    Double16 out;
    for (int i = 0; i < 4; ++i) {
      out.v[2 * i] = vcvt_f64_f32(vget_low_f32(x.v[i]));
      out.v[2 * i + 1] = vcvt_high_f64_f32(x.v[i]);
    }
    return out;
  }
};
ISTHMUS_INLINE Double16 operator+(Double16 a, Double16 b) {
  for (int i = 0; i < 8; ++i) a.v[i] = vaddq_f64(a.v[i], b.v[i]);
  return a;
}
ISTHMUS_INLINE Double16 operator*(Double16 a, Double16 b) {
  for (int i = 0; i < 8; ++i) a.v[i] = vmulq_f64(a.v[i], b.v[i]);
  return a;
}
ISTHMUS_INLINE double reduce_add(Double16 a) {
  for (int i = 0; i < 4; ++i) a.v[i] = vaddq_f64(a.v[i], a.v[i + 4]);
  const float64x2_t q = vaddq_f64(vaddq_f64(a.v[0], a.v[2]), vaddq_f64(a.v[1], a.v[3]));
  return vgetq_lane_f64(q, 0) + vgetq_lane_f64(q, 1);
}

}  // namespace
}  // namespace isthmus
