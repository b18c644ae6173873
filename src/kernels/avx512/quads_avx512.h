// Dot products of four bytes with four 16-bit numbers in sixteen lanes, on AVX-512 VNNI: the numbers are two
// planes of bytes, one vpdpbusd each. See scalar/quads_scalar.h for what each name means; all sets give the
// same integers. Include after avx512/vec16_avx512.h.
//
// vpdpbusd multiplies unsigned with signed bytes. Key codes are unsigned, so the planes of a query are both
// signed: x = 256 high + low. Value codes are signed, so the planes of weights are both unsigned.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace isthmus {
namespace {

constexpr size_t kQuadRows = 4;
constexpr size_t kQuadVecs = 2;
constexpr int32_t kQuadStart = -128;

/// Codes of `Bits` bits from bit `Shift` on.
template <int Bits, int Shift>
ISTHMUS_INLINE __m512i unpack_codes(const uint8_t* p) {
  const __m512i v = _mm512_loadu_si512(p);
  if constexpr (Bits == 8) {
    return v;
  } else {
    return _mm512_and_si512(_mm512_srli_epi16(v, Shift), _mm512_set1_epi8((1 << Bits) - 1));
  }
}

struct KeyQuads {
  __m512i v;
  template <int Bits, int Shift>
  static ISTHMUS_INLINE KeyQuads unpack(const uint8_t* p) {
    return {unpack_codes<Bits, Shift>(p)};
  }
  static ISTHMUS_INLINE KeyQuads load(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
};
struct ValueQuads {
  __m512i v;
  template <int Bits, int Shift>
  static ISTHMUS_INLINE ValueQuads unpack(const uint8_t* p) {
    const __m512i codes = unpack_codes<Bits, Shift>(p);
    return {Bits == 8 ? _mm512_xor_si512(codes, _mm512_set1_epi8(-128)) : codes};
  }
  static ISTHMUS_INLINE ValueQuads load(const int8_t* p) { return {_mm512_loadu_si512(p)}; }
};

/// Where pack_planes() leaves the low plane of a quad; the high plane is two words on.
constexpr size_t low_word(size_t quad) { return quad % 4 * 4 + quad / 4; }

struct QuadWord {
  __m512i low, high;
  static ISTHMUS_INLINE QuadWord load(const int32_t* words, size_t quad) {
    return {_mm512_set1_epi32(words[low_word(quad)]), _mm512_set1_epi32(words[low_word(quad) + 2])};
  }
};

/// Packing works within 128-bit lanes: lane i gets the low bytes of quads i and 4 + i, then the high bytes.
ISTHMUS_INLINE void pack_planes(__m512i words16, __m512i high, int32_t* out) {
  const __m512i byte = _mm512_set1_epi16(255);
  const __m512i low = _mm512_and_si512(words16, byte);
  _mm512_storeu_si512(out, _mm512_packus_epi16(low, _mm512_and_si512(high, byte)));
}
ISTHMUS_INLINE void pack_signed_words(__m512i narrow, int32_t* words) {
  // The low byte is signed, so the high one makes up for its 256.
  pack_planes(narrow, _mm512_srai_epi16(_mm512_add_epi16(narrow, _mm512_set1_epi16(128)), 8), words);
}
ISTHMUS_INLINE void pack_query(const int32_t* x, int32_t* words) {
  pack_signed_words(_mm512_packs_epi32(_mm512_loadu_si512(x), _mm512_loadu_si512(x + 16)), words);
}
ISTHMUS_INLINE void pack_weights(Vec16 a, Vec16 b, int32_t* words) {
  const __m512i narrow = _mm512_packus_epi32(_mm512_cvtps_epi32(a.v), _mm512_cvtps_epi32(b.v));
  pack_planes(narrow, _mm512_srli_epi16(narrow, 8), words);
}

struct Narrow {
  __m512i v;
  static ISTHMUS_INLINE Narrow from(Vec16 a, Vec16 b) {
    return {_mm512_packs_epi32(_mm512_cvtps_epi32(a.v), _mm512_cvtps_epi32(b.v))};
  }
  static ISTHMUS_INLINE Narrow load(const int32_t* words) { return {_mm512_loadu_si512(words)}; }
  ISTHMUS_INLINE void store(int32_t* words) const { _mm512_storeu_si512(words, v); }
  friend ISTHMUS_INLINE Narrow scaled(Narrow a, Narrow b) { return {_mm512_mulhrs_epi16(a.v, b.v)}; }
  ISTHMUS_INLINE int32_t sum() const {
    return _mm512_reduce_add_epi32(_mm512_madd_epi16(v, _mm512_set1_epi16(1)));
  }
  ISTHMUS_INLINE void pack_query_words(int32_t* words) const { pack_signed_words(v, words); }
  ISTHMUS_INLINE void pack_weight_words(int32_t* words) const {
    pack_planes(v, _mm512_srli_epi16(v, 8), words);
  }
};

struct QuadSum {
  __m512i low, high;

  ISTHMUS_INLINE void start(int32_t value) {
    low = _mm512_set1_epi32(value);
    high = _mm512_setzero_si512();
  }
  ISTHMUS_INLINE void add(KeyQuads codes, QuadWord word) {
    low = _mm512_dpbusd_epi32(low, codes.v, word.low);
    high = _mm512_dpbusd_epi32(high, codes.v, word.high);
  }
  ISTHMUS_INLINE void add(ValueQuads codes, QuadWord word) {
    low = _mm512_dpbusd_epi32(low, word.low, codes.v);
    high = _mm512_dpbusd_epi32(high, word.high, codes.v);
  }
  ISTHMUS_INLINE Vec16 total() const {
    return {_mm512_cvtepi32_ps(_mm512_add_epi32(low, _mm512_slli_epi32(high, 8)))};
  }
};

}  // namespace
}  // namespace isthmus
