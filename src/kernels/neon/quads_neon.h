// Dot products of four bytes with four 16-bit numbers in sixteen lanes, on AArch64: the numbers are two
// planes of signed bytes, x = 256 high + low; one sdot each where the machine has it, else widening
// multiplies and pairwise sums. See scalar/quads_scalar.h for what each name means; all sets give the same
// integers. Include after neon/vec16_neon.h.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace isthmus {
namespace {

#if defined(__ARM_FEATURE_DOTPROD)
constexpr size_t kQuadRows = 2;
#else
constexpr size_t kQuadRows = 1;
#endif
constexpr size_t kQuadVecs = 1;
constexpr int32_t kQuadStart = 0;  // the codes lose their zero as they are loaded

struct SignedQuads {
  int8x16_t v[4];
};
/// Codes of `Bits` bits from bit `Shift` on; bytes lose their 128.
template <int Bits, int Shift>
ISTHMUS_INLINE SignedQuads unpack_codes(const uint8_t* p) {
  SignedQuads out;
  for (int i = 0; i < 4; ++i) {
    uint8x16_t codes = vld1q_u8(p + 16 * i);
    if constexpr (Bits == 8) {
      codes = veorq_u8(codes, vdupq_n_u8(128));
    } else {
      if constexpr (Shift != 0) codes = vshrq_n_u8(codes, Shift);
      codes = vandq_u8(codes, vdupq_n_u8((1 << Bits) - 1));
    }
    out.v[i] = vreinterpretq_s8_u8(codes);
  }
  return out;
}
struct KeyQuads : SignedQuads {
  template <int Bits, int Shift>
  static ISTHMUS_INLINE KeyQuads unpack(const uint8_t* p) {
    return {unpack_codes<Bits, Shift>(p)};
  }
  static ISTHMUS_INLINE KeyQuads load(const uint8_t* p) {
    KeyQuads out;
    for (int i = 0; i < 4; ++i) {
      out.v[i] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(p + 16 * i), vdupq_n_u8(128)));
    }
    return out;
  }
};
struct ValueQuads : SignedQuads {
  template <int Bits, int Shift>
  static ISTHMUS_INLINE ValueQuads unpack(const uint8_t* p) {
    return {unpack_codes<Bits, Shift>(p)};
  }
  static ISTHMUS_INLINE ValueQuads load(const int8_t* p) {
    ValueQuads out;
    for (int i = 0; i < 4; ++i) out.v[i] = vld1q_s8(p + 16 * i);
    return out;
  }
};

/// The low plane of a quad is word `quad`, its high plane eight words on.
struct QuadWord {
  int8x16_t low, high;
  static ISTHMUS_INLINE QuadWord load(const int32_t* words, size_t quad) {
    return {vreinterpretq_s8_s32(vld1q_dup_s32(words + quad)),
            vreinterpretq_s8_s32(vld1q_dup_s32(words + quad + 8))};
  }
};

/// Four quads: words [0, 4) and [8, 12).
ISTHMUS_INLINE void pack_quads(const int32x4_t* x, int32_t* words) {
  int16x8_t low[2];
  int16x8_t high[2];
  for (int i = 0; i < 2; ++i) {
    low[i] = vcombine_s16(vmovn_s32(x[2 * i]), vmovn_s32(x[2 * i + 1]));
    high[i] = vshrq_n_s16(vaddq_s16(low[i], vdupq_n_s16(128)), 8);
  }
  const int8x16_t low_plane = vcombine_s8(vmovn_s16(low[0]), vmovn_s16(low[1]));
  const int8x16_t high_plane = vcombine_s8(vmovn_s16(high[0]), vmovn_s16(high[1]));
  vst1q_s32(words, vreinterpretq_s32_s8(low_plane));
  vst1q_s32(words + 8, vreinterpretq_s32_s8(high_plane));
}
ISTHMUS_INLINE void pack_query(const int32_t* x, int32_t* words) {
  for (int half = 0; half < 2; ++half) {
    int32x4_t quads[4];
    for (int i = 0; i < 4; ++i) quads[i] = vld1q_s32(x + 16 * half + 4 * i);
    pack_quads(quads, words + 4 * half);
  }
}
ISTHMUS_INLINE void pack_weights(Vec16 a, Vec16 b, int32_t* words) {
  int32x4_t quads[8];
  for (int i = 0; i < 4; ++i) {
    quads[i] = vcvtnq_s32_f32(a.v[i]);
    quads[4 + i] = vcvtnq_s32_f32(b.v[i]);
  }
  pack_quads(quads, words);
  pack_quads(quads + 4, words + 4);
}
struct Narrow {
  int16x8_t v[4];
  static ISTHMUS_INLINE Narrow from(Vec16 a, Vec16 b) {
    Narrow out;
    for (int i = 0; i < 2; ++i) {
      out.v[i] =
          vcombine_s16(vmovn_s32(vcvtnq_s32_f32(a.v[2 * i])), vmovn_s32(vcvtnq_s32_f32(a.v[2 * i + 1])));
      out.v[2 + i] =
          vcombine_s16(vmovn_s32(vcvtnq_s32_f32(b.v[2 * i])), vmovn_s32(vcvtnq_s32_f32(b.v[2 * i + 1])));
    }
    return out;
  }
  static ISTHMUS_INLINE Narrow load(const int32_t* words) {
    Narrow out;
    for (int i = 0; i < 4; ++i) out.v[i] = vreinterpretq_s16_s32(vld1q_s32(words + 4 * i));
    return out;
  }
  ISTHMUS_INLINE void store(int32_t* words) const {
    for (int i = 0; i < 4; ++i) vst1q_s32(words + 4 * i, vreinterpretq_s32_s16(v[i]));
  }
  friend ISTHMUS_INLINE Narrow scaled(const Narrow& a, const Narrow& b) {
    Narrow out;
    for (int i = 0; i < 4; ++i) out.v[i] = vqrdmulhq_s16(a.v[i], b.v[i]);
    return out;
  }
  ISTHMUS_INLINE int32_t sum() const {
    int32_t total = 0;
    for (int i = 0; i < 4; ++i) total += vaddlvq_s16(v[i]);
    return total;
  }
  ISTHMUS_INLINE void pack_query_words(int32_t* words) const {
    for (int half = 0; half < 2; ++half) {
      const int16x8_t* low = v + 2 * half;
      const int16x8_t high[2] = {vshrq_n_s16(vaddq_s16(low[0], vdupq_n_s16(128)), 8),
                                 vshrq_n_s16(vaddq_s16(low[1], vdupq_n_s16(128)), 8)};
      const int8x16_t low_plane = vcombine_s8(vmovn_s16(low[0]), vmovn_s16(low[1]));
      const int8x16_t high_plane = vcombine_s8(vmovn_s16(high[0]), vmovn_s16(high[1]));
      vst1q_s32(words + 4 * half, vreinterpretq_s32_s8(low_plane));
      vst1q_s32(words + 4 * half + 8, vreinterpretq_s32_s8(high_plane));
    }
  }
  ISTHMUS_INLINE void pack_weight_words(int32_t* words) const { pack_query_words(words); }
};

/// Four sums over one byte plane.
struct PlaneSum {
#if defined(__ARM_FEATURE_DOTPROD)
  int32x4_t sum;
  ISTHMUS_INLINE void start(int32_t value) { sum = vdupq_n_s32(value); }
  ISTHMUS_INLINE void add(int8x16_t codes, int8x16_t word) { sum = vdotq_s32(sum, codes, word); }
  ISTHMUS_INLINE int32x4_t total() const { return sum; }
#else
  int32x4_t first;   // lanes 0, 1: two partial sums each
  int32x4_t second;  // lanes 2, 3
  ISTHMUS_INLINE void start(int32_t) { first = second = vdupq_n_s32(0); }
  ISTHMUS_INLINE void add(int8x16_t codes, int8x16_t word) {
    first = vpadalq_s16(first, vmull_s8(vget_low_s8(codes), vget_low_s8(word)));
    second = vpadalq_s16(second, vmull_s8(vget_high_s8(codes), vget_low_s8(word)));
  }
  ISTHMUS_INLINE int32x4_t total() const { return vpaddq_s32(first, second); }
#endif
};

struct QuadSum {
  PlaneSum low[4];
  PlaneSum high[4];

  ISTHMUS_INLINE void start(int32_t) {
    for (int i = 0; i < 4; ++i) {
      low[i].start(0);
      high[i].start(0);
    }
  }
  ISTHMUS_INLINE void add(const SignedQuads& codes, QuadWord word) {
    for (int i = 0; i < 4; ++i) {
      low[i].add(codes.v[i], word.low);
      high[i].add(codes.v[i], word.high);
    }
  }
  ISTHMUS_INLINE Vec16 total() const {
    Vec16 out;
    for (int i = 0; i < 4; ++i) {
      out.v[i] = vcvtq_f32_s32(vaddq_s32(low[i].total(), vshlq_n_s32(high[i].total(), 8)));
    }
    return out;
  }
};

}  // namespace
}  // namespace isthmus
