// Dot products of two 16-bit numbers in sixteen lanes on AVX-512 VNNI: one vpdpwssd each. See
// scalar/pairs_scalar.h for what each name means; all sets give the same integers. Include after
// avx512/vec16_avx512.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace isthmus {
namespace {

constexpr size_t kPairRows = 12;
constexpr size_t kPairVecs = 2;

struct PairCodes {
  __m512i v;
  static ISTHMUS_INLINE PairCodes load(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
};
struct PairWord {
  __m512i v;
  static ISTHMUS_INLINE PairWord load(const int32_t* p) { return {_mm512_set1_epi32(*p)}; }
};

struct PairSum {
  __m512i v;

  ISTHMUS_INLINE void start() { v = _mm512_setzero_si512(); }
  ISTHMUS_INLINE void add(PairCodes codes, PairWord word) {
    // Written out, since g++ 12 copies the sums around the intrinsic and stores them at every step.
    __asm__("vpdpwssd %2, %1, %0" : "+v"(v) : "v"(codes.v), "v"(word.v));
  }
  ISTHMUS_INLINE Vec16 total() const { return {_mm512_cvtepi32_ps(v)}; }
};

ISTHMUS_INLINE void pack_pairs(Vec16 low, Vec16 high, int32_t* out) {
  const __m512i odd = _mm512_slli_epi32(_mm512_cvtps_epi32(high.v), 16);
  _mm512_storeu_si512(out, _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_cvtps_epi32(low.v), odd));
}
/// Packing works within 128-bit lanes: lane i gets weights 4i to 4i + 3 of `a`, then those of `b`.
ISTHMUS_INLINE void pack_weight_pairs(Vec16 a, Vec16 b, int32_t* out) {
  _mm512_storeu_si512(out, _mm512_packs_epi32(_mm512_cvtps_epi32(a.v), _mm512_cvtps_epi32(b.v)));
}
constexpr size_t weight_word(size_t pair) { return pair % 8 / 2 * 4 + pair / 8 * 2 + pair % 2; }

}  // namespace
}  // namespace isthmus
