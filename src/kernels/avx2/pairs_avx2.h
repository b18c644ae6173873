// Dot products of two 16-bit numbers in sixteen lanes on AVX2: vpmaddwd and an addition. See
// scalar/pairs_scalar.h for what each name means; all sets give the same integers. Include after
// avx2/vec16_avx2.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/avx2/computed_here.h"

namespace isthmus {
namespace {

constexpr size_t kPairRows = 6;
constexpr size_t kPairVecs = 1;

struct PairCodes {
  __m256i v[2];
  static ISTHMUS_INLINE PairCodes load(const int32_t* p) {
    const auto* at = reinterpret_cast<const __m256i*>(p);
    return {{_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)}};
  }
};
struct PairWord {
  __m256i v;
  static ISTHMUS_INLINE PairWord load(const int32_t* p) { return {_mm256_set1_epi32(*p)}; }
};

struct PairSum {
  __m256i half[2];

  ISTHMUS_INLINE void start() { half[0] = half[1] = _mm256_setzero_si256(); }
  ISTHMUS_INLINE void add(PairCodes codes, PairWord word) {
    for (int i = 0; i < 2; ++i) {
      half[i] = computed_here(_mm256_add_epi32(half[i], _mm256_madd_epi16(codes.v[i], word.v)));
    }
  }
  ISTHMUS_INLINE Vec16 total() const { return {_mm256_cvtepi32_ps(half[0]), _mm256_cvtepi32_ps(half[1])}; }
};

/// Eight pairs.
ISTHMUS_INLINE void pack_half(__m256 low, __m256 high, int32_t* out) {
  const __m256i odd = _mm256_slli_epi32(_mm256_cvtps_epi32(high), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                      _mm256_blend_epi16(_mm256_cvtps_epi32(low), odd, 0xaa));
}
ISTHMUS_INLINE void pack_pairs(Vec16 low, Vec16 high, int32_t* out) {
  pack_half(low.lo, high.lo, out);
  pack_half(low.hi, high.hi, out + 8);
}
/// Packing works within 128-bit lanes, so their quarters change places after it.
ISTHMUS_INLINE void pack_sixteen_weights(Vec16 x, int32_t* out) {
  const __m256i packed = _mm256_packs_epi32(_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permute4x64_epi64(packed, 0xd8));
}
ISTHMUS_INLINE void pack_weight_pairs(Vec16 a, Vec16 b, int32_t* out) {
  pack_sixteen_weights(a, out);
  pack_sixteen_weights(b, out + 8);
}
constexpr size_t weight_word(size_t pair) { return pair; }

}  // namespace
}  // namespace isthmus
