// NEON policy for generic/linear_dot.h: a part is 4 rows, four parts to a panel. With the dot product
// extension (linear_neon_dot.cc) one sdot per 4 columns and byte plane; without it, widening multiplies and
// pairwise sums.
//
// These dot products are signed, so the zero point is taken off the codes and not off the sum: the same
// integer.
#pragma once

#include <arm_neon.h>

#include "kernels/generic/linear_dot.h"

namespace isthmus {
namespace {

struct NeonVec {
  static constexpr int kLanes = 4;
  static constexpr int kParts = 4;
  static constexpr int kTokensAtOnce = 4;
  static constexpr int kWidePanels = 0;
  using Floats = float32x4_t;
  using Codes = uint8x16_t;

  static constexpr bool byte_records(Compute) { return true; }
  static constexpr bool word_records(Compute) { return false; }

  static ISTHMUS_INLINE Floats zero() { return vdupq_n_f32(0.0f); }
  static ISTHMUS_INLINE Floats load(const void* at) { return vld1q_f32(static_cast<const float*>(at)); }
  static ISTHMUS_INLINE Floats broadcast(const void* at) {
    return vld1q_dup_f32(static_cast<const float*>(at));
  }
  static ISTHMUS_INLINE void store(void* at, Floats value) { vst1q_f32(static_cast<float*>(at), value); }
  static ISTHMUS_INLINE Floats load_unaligned(const float* at) { return vld1q_f32(at); }
  static ISTHMUS_INLINE void store_unaligned(float* at, Floats value) { vst1q_f32(at, value); }
  static ISTHMUS_INLINE Floats add(Floats a, Floats b) { return vaddq_f32(a, b); }
  static ISTHMUS_INLINE Floats mul(Floats a, Floats b) { return vmulq_f32(a, b); }
  static ISTHMUS_INLINE Floats fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
  static ISTHMUS_INLINE Floats negate(Floats a) { return vnegq_f32(a); }

  static ISTHMUS_INLINE uint16x4_t halves(const void* at) {
    return vld1_u16(static_cast<const uint16_t*>(at));
  }
  static ISTHMUS_INLINE Floats load_half(const void* at) {
    return vcvt_f32_f16(vreinterpret_f16_u16(halves(at)));
  }
  static ISTHMUS_INLINE Floats load_bf16(const void* at) {
    return vreinterpretq_f32_u32(vshll_n_u16(halves(at), 16));
  }
  /// 4 bytes, widened.
  static ISTHMUS_INLINE uint32x4_t wide_bytes(const void* at) {
    const uint32x2_t four = vld1_dup_u32(static_cast<const uint32_t*>(at));
    return vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(four))));
  }
  static ISTHMUS_INLINE Floats load_u8(const void* at) { return vcvtq_f32_u32(wide_bytes(at)); }
  static ISTHMUS_INLINE Floats load_i8(const void* at) {
    const int32x2_t four = vld1_dup_s32(static_cast<const int32_t*>(at));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(four)))));
  }
  static ISTHMUS_INLINE Floats load_low_nibbles(const void* at) {
    return vcvtq_f32_u32(vandq_u32(wide_bytes(at), vdupq_n_u32(15)));
  }
  static ISTHMUS_INLINE Floats load_high_nibbles(const void* at) {
    return vcvtq_f32_u32(vshrq_n_u32(wide_bytes(at), 4));
  }
  static ISTHMUS_INLINE Floats load_e8m0(const void* at) {
    const uint32x4_t e = wide_bytes(at);
    const uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    const uint32x4_t small = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
    return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), small, normal));
  }

  static ISTHMUS_INLINE Codes load_codes(const void* at) { return vld1q_u8(static_cast<const uint8_t*>(at)); }
  template <int kBits, int kIndex>
  static ISTHMUS_INLINE Codes low_plane(const void* at) {
    Codes codes = load_codes(at);
    if constexpr (kIndex > 0) codes = vshrq_n_u8(codes, kBits * kIndex);
    if constexpr (kBits * (kIndex + 1) < 8) codes = vandq_u8(codes, vdupq_n_u8((1 << kBits) - 1));
    return codes;
  }
  template <int kLowBits, int kHighBits, int kIndex>
  static ISTHMUS_INLINE Codes with_high_plane(Codes low, const void* at) {
    constexpr int kShift = kLowBits - kHighBits * kIndex;
    Codes high = load_codes(at);
    if constexpr (kShift > 0) high = vshlq_n_u8(high, kShift);
    if constexpr (kShift < 0) high = vshrq_n_u8(high, -kShift);
    return vorrq_u8(low, vandq_u8(high, vdupq_n_u8(((1 << kHighBits) - 1) << kLowBits)));
  }
  template <CodeTable T>
  static ISTHMUS_INLINE Codes lookup(Codes codes) {
    static constexpr uint8_t kIq4[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                         129, 141, 153, 166, 181, 197, 217, 241};
    static constexpr uint8_t kMxfp4[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};
    return vqtbl1q_u8(vld1q_u8(T == CodeTable::kIq4 ? kIq4 : kMxfp4), codes);
  }
  static ISTHMUS_INLINE void store_codes(void* at, Codes codes) {
    vst1q_u8(static_cast<uint8_t*>(at), codes);
  }

  template <PanelLayout L, Compute C>
  static ISTHMUS_INLINE int8x16_t prepare(Codes codes) {
    if constexpr (L.zero_shift >= 0) codes = vsubq_u8(codes, vdupq_n_u8(1 << L.zero_shift));
    return vreinterpretq_s8_u8(codes);
  }

#if defined(__ARM_FEATURE_DOTPROD)
  /// Sums of 4 rows, over one byte plane.
  struct PlaneSum {
    int32x4_t sum = vdupq_n_s32(0);

    template <int kVector>
    ISTHMUS_INLINE void add(int8x16_t codes, const std::byte* plane) {
      const int8x16_t x = vld1q_s8(reinterpret_cast<const int8_t*>(plane) + kVector / 4 * 16);
      sum = vdotq_laneq_s32(sum, codes, x, kVector % 4);
    }
    ISTHMUS_INLINE int32x4_t total() const { return sum; }
  };
#else
  /// Sums of 4 rows, over one byte plane: two partial sums per row.
  struct PlaneSum {
    int32x4_t first = vdupq_n_s32(0);   // rows 0, 1
    int32x4_t second = vdupq_n_s32(0);  // rows 2, 3

    template <int kVector>
    ISTHMUS_INLINE void add(int8x16_t codes, const std::byte* plane) {
      const auto* at = reinterpret_cast<const int32_t*>(plane) + kVector;
      const int8x8_t x = vreinterpret_s8_s32(vld1_dup_s32(at));
      first = vpadalq_s16(first, vmull_s8(vget_low_s8(codes), x));
      second = vpadalq_s16(second, vmull_s8(vget_high_s8(codes), x));
    }
    ISTHMUS_INLINE int32x4_t total() const { return vpaddq_s32(first, second); }
  };
#endif

  template <class R>
  static ISTHMUS_INLINE void write_record(const float* x, std::byte* out) {
    isthmus::write_record<R>(x, out);
  }

  template <PanelLayout L, Compute C>
  struct Accumulator {
    using R = RecordOf<NeonVec, C>;
    PlaneSum low;
    PlaneSum high;  // kInt16 only

    ISTHMUS_INLINE void start(const void*) {}
    template <int kVector, int kCount>
    ISTHMUS_INLINE void add(int8x16_t codes, const std::byte* record) {
      low.template add<kVector>(codes, record + R::kLow);
      if constexpr (C == Compute::kInt16) high.template add<kVector>(codes, record + R::kHigh);
    }
    ISTHMUS_INLINE Floats total() const {
      if constexpr (C != Compute::kInt16) return vcvtq_f32_s32(low.total());
      return vcvtq_f32_s32(vaddq_s32(low.total(), vshlq_n_s32(high.total(), 8)));
    }
  };
};

}  // namespace
}  // namespace isthmus
