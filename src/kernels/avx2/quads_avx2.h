// Dot products of four bytes with four 16-bit numbers in sixteen lanes, on AVX2: codes are widened to 16
// bits, those of places 0, 2 of a quad apart from 1, 3, and multiplied by vpmaddwd. See scalar/quads_scalar.h
// for what each name means; all sets give the same integers. Include after avx2/vec16_avx2.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/avx2/computed_here.h"

namespace isthmus {
namespace {

constexpr size_t kQuadRows = 3;
constexpr size_t kQuadVecs = 1;
constexpr int32_t kQuadStart = -128;

/// 16-bit codes of two registers of eight quads.
struct SplitQuads {
  __m256i even[2];  // places 0 and 2 of each quad
  __m256i odd[2];   // places 1 and 3
};
ISTHMUS_INLINE __m256i load_quads(const void* p, int half) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p) + half);
}
/// Codes of `Bits` bits from bit `Shift` on; bytes minus `Zero`.
template <int Bits, int Shift, int Zero>
ISTHMUS_INLINE SplitQuads unpack_codes(const uint8_t* p) {
  const __m256i mask = _mm256_set1_epi16((1 << Bits) - 1);
  const __m256i zero = _mm256_set1_epi16(Zero);
  SplitQuads out;
  for (int i = 0; i < 2; ++i) {
    const __m256i codes = load_quads(p, i);
    out.even[i] = _mm256_and_si256(Shift == 0 ? codes : _mm256_srli_epi16(codes, Shift), mask);
    out.odd[i] = _mm256_srli_epi16(codes, 8 + Shift);
    if constexpr (8 + Shift + Bits < 16) out.odd[i] = _mm256_and_si256(out.odd[i], mask);
    if constexpr (Zero != 0) {
      out.even[i] = _mm256_sub_epi16(out.even[i], zero);
      out.odd[i] = _mm256_sub_epi16(out.odd[i], zero);
    }
  }
  return out;
}
struct KeyQuads : SplitQuads {
  template <int Bits, int Shift>
  static ISTHMUS_INLINE KeyQuads unpack(const uint8_t* p) {
    return {unpack_codes<Bits, Shift, 0>(p)};
  }
  static ISTHMUS_INLINE KeyQuads load(const uint8_t* p) {
    KeyQuads out;
    for (int i = 0; i < 2; ++i) {
      const __m256i codes = load_quads(p, i);
      out.even[i] = _mm256_and_si256(codes, _mm256_set1_epi16(255));
      out.odd[i] = _mm256_srli_epi16(codes, 8);
    }
    return out;
  }
};
struct ValueQuads : SplitQuads {
  template <int Bits, int Shift>
  static ISTHMUS_INLINE ValueQuads unpack(const uint8_t* p) {
    return {unpack_codes < Bits, Shift, Bits == 8 ? 128 : 0 > (p)};
  }
  static ISTHMUS_INLINE ValueQuads load(const int8_t* p) {
    ValueQuads out;
    for (int i = 0; i < 2; ++i) {
      const __m256i codes = load_quads(p, i);
      out.even[i] = _mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 8);
      out.odd[i] = _mm256_srai_epi16(codes, 8);
    }
    return out;
  }
};

/// Words 2 quad and 2 quad + 1: places 0, 2 and 1, 3 as 16-bit numbers.
struct QuadWord {
  __m256i even, odd;
  static ISTHMUS_INLINE QuadWord load(const int32_t* words, size_t quad) {
    return {_mm256_set1_epi32(words[2 * quad]), _mm256_set1_epi32(words[2 * quad + 1])};
  }
};

/// Two quads of int32 per register to their four words.
ISTHMUS_INLINE void pack_quads(__m256i x, int32_t* words) {
  const __m256i order = _mm256_setr_epi8(0, 1, 8, 9, 4, 5, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1,  //
                                         0, 1, 8, 9, 4, 5, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(x, order), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(words), _mm256_castsi256_si128(packed));
}
ISTHMUS_INLINE void pack_query(const int32_t* x, int32_t* words) {
  for (size_t i = 0; i < 4; ++i) pack_quads(load_quads(x, static_cast<int>(i)), words + 4 * i);
}
ISTHMUS_INLINE void pack_weights(Vec16 a, Vec16 b, int32_t* words) {
  pack_quads(_mm256_cvtps_epi32(a.lo), words);
  pack_quads(_mm256_cvtps_epi32(a.hi), words + 4);
  pack_quads(_mm256_cvtps_epi32(b.lo), words + 8);
  pack_quads(_mm256_cvtps_epi32(b.hi), words + 12);
}
/// In the order of words.
struct Narrow {
  __m256i half[2];
  static ISTHMUS_INLINE Narrow from(Vec16 a, Vec16 b) {
    alignas(32) int32_t words[16];
    pack_weights(a, b, words);
    return load(words);
  }
  static ISTHMUS_INLINE Narrow load(const int32_t* words) {
    return {{load_quads(words, 0), load_quads(words, 1)}};
  }
  ISTHMUS_INLINE void store(int32_t* words) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), half[0]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + 8), half[1]);
  }
  friend ISTHMUS_INLINE Narrow scaled(const Narrow& a, const Narrow& b) {
    return {{_mm256_mulhrs_epi16(a.half[0], b.half[0]), _mm256_mulhrs_epi16(a.half[1], b.half[1])}};
  }
  ISTHMUS_INLINE int32_t sum() const {
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i both = _mm256_add_epi32(_mm256_madd_epi16(half[0], ones), _mm256_madd_epi16(half[1], ones));
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
  }
  ISTHMUS_INLINE void pack_query_words(int32_t* words) const { store(words); }
  ISTHMUS_INLINE void pack_weight_words(int32_t* words) const { store(words); }
};

struct QuadSum {
  __m256i half[2];

  ISTHMUS_INLINE void start(int32_t value) { half[0] = half[1] = _mm256_set1_epi32(value); }
  ISTHMUS_INLINE void add(const SplitQuads& codes, QuadWord word) {
    for (int i = 0; i < 2; ++i) {
      half[i] = computed_here(_mm256_add_epi32(half[i], _mm256_madd_epi16(codes.even[i], word.even)));
      half[i] = computed_here(_mm256_add_epi32(half[i], _mm256_madd_epi16(codes.odd[i], word.odd)));
    }
  }
  ISTHMUS_INLINE Vec16 total() const { return {_mm256_cvtepi32_ps(half[0]), _mm256_cvtepi32_ps(half[1])}; }
};

}  // namespace
}  // namespace isthmus
