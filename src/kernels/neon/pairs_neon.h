// Dot products of two 16-bit numbers in sixteen lanes on AArch64: two widening multiplications per lane. See
// scalar/pairs_scalar.h for what each name means; all sets give the same integers. Include after
// neon/vec16_neon.h.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace isthmus {
namespace {

constexpr size_t kPairRows = 4;
constexpr size_t kPairVecs = 1;

struct PairCodes {
  int16x8x2_t v[2];  // first and second numbers of eight lanes each
  static ISTHMUS_INLINE PairCodes load(const int32_t* p) {
    const auto* at = reinterpret_cast<const int16_t*>(p);
    return {{vld2q_s16(at), vld2q_s16(at + 16)}};
  }
};
struct PairWord {
  int16x4_t v;  // the pair twice
  static ISTHMUS_INLINE PairWord load(const int32_t* p) { return {vreinterpret_s16_s32(vld1_dup_s32(p))}; }
};

struct PairSum {
  int32x4_t lane[4];

  ISTHMUS_INLINE void start() {
    for (int32x4_t& sum : lane) sum = vdupq_n_s32(0);
  }
  ISTHMUS_INLINE void add(const PairCodes& codes, PairWord word) {
    for (int i = 0; i < 2; ++i) {
      for (int k = 0; k < 2; ++k) {
        const int16x8_t x = codes.v[i].val[k];
        const int16x4_t number = k == 0 ? vdup_lane_s16(word.v, 0) : vdup_lane_s16(word.v, 1);
        lane[2 * i] = vmlal_s16(lane[2 * i], vget_low_s16(x), number);
        lane[2 * i + 1] = vmlal_s16(lane[2 * i + 1], vget_high_s16(x), number);
      }
    }
  }
  ISTHMUS_INLINE Vec16 total() const {
    Vec16 out;
    for (int i = 0; i < 4; ++i) out.v[i] = vcvtq_f32_s32(lane[i]);
    return out;
  }
};

ISTHMUS_INLINE void pack_pairs(Vec16 low, Vec16 high, int32_t* out) {
  for (int i = 0; i < 4; ++i) {
    vst1q_s32(out + 4 * i, vsliq_n_s32(vcvtnq_s32_f32(low.v[i]), vcvtnq_s32_f32(high.v[i]), 16));
  }
}
ISTHMUS_INLINE void pack_weight_pairs(Vec16 a, Vec16 b, int32_t* out) {
  auto* to = reinterpret_cast<int16_t*>(out);
  for (int i = 0; i < 4; ++i) {
    vst1_s16(to + 4 * i, vmovn_s32(vcvtnq_s32_f32(a.v[i])));
    vst1_s16(to + 16 + 4 * i, vmovn_s32(vcvtnq_s32_f32(b.v[i])));
  }
}
constexpr size_t weight_word(size_t pair) { return pair; }

}  // namespace
}  // namespace isthmus
