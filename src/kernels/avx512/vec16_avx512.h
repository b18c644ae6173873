// Sixteen float32 lanes on AVX-512: one zmm register. See scalar/vec16_scalar.h for what each operation
// means; all sets give the same bits.
#pragma once

// The intrinsics of g++ 12 make "any value" registers by reading an uninitialised variable, and then warn.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define ISTHMUS_INLINE inline __attribute__((always_inline))

namespace isthmus {
namespace {

/// Accumulators that the register file holds beside the operands, in Vec16.
constexpr size_t kVec16Accumulators = 24;
constexpr size_t kVec16Rows = 12;

struct Mask16 {
  __mmask16 m;
  ISTHMUS_INLINE uint32_t bits() const { return m; }
};

struct Vec16 {
  __m512 v;

  static ISTHMUS_INLINE Vec16 zero() { return {_mm512_setzero_ps()}; }
  static ISTHMUS_INLINE Vec16 set1(float x) { return {_mm512_set1_ps(x)}; }
  static ISTHMUS_INLINE Vec16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static ISTHMUS_INLINE Vec16 load_f16(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  static ISTHMUS_INLINE Vec16 set1_f16(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(*p)))};
  }
  static ISTHMUS_INLINE Vec16 load_bf16(const uint16_t* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
  }
  static ISTHMUS_INLINE Vec16 load_i8(const int8_t* p) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
  }
  ISTHMUS_INLINE void store(float* p) const { _mm512_storeu_ps(p, v); }
  ISTHMUS_INLINE void store_f16(uint16_t* p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  ISTHMUS_INLINE void store_bf16(uint16_t* p) const {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i round = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i out = _mm512_srli_epi32(_mm512_mask_blend_epi32(nan, round, quiet), 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(out));
  }
};

ISTHMUS_INLINE Vec16 operator+(Vec16 a, Vec16 b) { return {_mm512_add_ps(a.v, b.v)}; }
ISTHMUS_INLINE Vec16 operator-(Vec16 a, Vec16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
ISTHMUS_INLINE Vec16 operator*(Vec16 a, Vec16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
ISTHMUS_INLINE Vec16 operator/(Vec16 a, Vec16 b) { return {_mm512_div_ps(a.v, b.v)}; }
ISTHMUS_INLINE Vec16 fma(Vec16 a, Vec16 b, Vec16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
ISTHMUS_INLINE Vec16 fnma(Vec16 a, Vec16 b, Vec16 c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
ISTHMUS_INLINE Vec16 max(Vec16 a, Vec16 b) { return {_mm512_max_ps(a.v, b.v)}; }
ISTHMUS_INLINE Vec16 min(Vec16 a, Vec16 b) { return {_mm512_min_ps(a.v, b.v)}; }
ISTHMUS_INLINE Vec16 round_even(Vec16 a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
ISTHMUS_INLINE Vec16 scale2(Vec16 a, Vec16 n) { return {_mm512_scalef_ps(a.v, n.v)}; }
ISTHMUS_INLINE Vec16 add_exponent(Vec16 a, Vec16 n) { return scale2(a, n); }
ISTHMUS_INLINE Vec16 abs(Vec16 a) { return {_mm512_abs_ps(a.v)}; }
ISTHMUS_INLINE Vec16 copy_sign(Vec16 magnitude, Vec16 sign) {
  const __m512 bit = _mm512_set1_ps(-0.0f);
  return {_mm512_or_ps(_mm512_andnot_ps(bit, magnitude.v), _mm512_and_ps(bit, sign.v))};
}
ISTHMUS_INLINE Vec16 swap_pairs(Vec16 a) { return {_mm512_permute_ps(a.v, 0xb1)}; }
ISTHMUS_INLINE Mask16 greater(Vec16 a, Vec16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ)}; }
ISTHMUS_INLINE Mask16 equal(Vec16 a, Vec16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
ISTHMUS_INLINE Vec16 select(Mask16 m, Vec16 yes, Vec16 no) {
  return {_mm512_mask_blend_ps(m.m, no.v, yes.v)};
}
/// Lanes a0 a0 a1 a1 ...; of p[8].
ISTHMUS_INLINE Vec16 load_twice(const float* p) {
  const __m512i index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return {_mm512_permutexvar_ps(index, _mm512_castps256_ps512(_mm256_loadu_ps(p)))};
}

ISTHMUS_INLINE float reduce_add(Vec16 a) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_shuffle_ps(d, d, 1)));
}
ISTHMUS_INLINE float reduce_max(Vec16 a) {
  const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_shuffle_ps(d, d, 1)));
}

ISTHMUS_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

/// Sixteen float64 lanes.
struct Double16 {
  __m512d lo, hi;

  static ISTHMUS_INLINE Double16 zero() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
  static ISTHMUS_INLINE Double16 from(Vec16 x) {
    return {_mm512_cvtps_pd(_mm512_castps512_ps256(x.v)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(x.v, 1))};
  }
};
ISTHMUS_INLINE Double16 operator+(Double16 a, Double16 b) {
  return {_mm512_add_pd(a.lo, b.lo), _mm512_add_pd(a.hi, b.hi)};
}
ISTHMUS_INLINE Double16 operator*(Double16 a, Double16 b) {
  return {_mm512_mul_pd(a.lo, b.lo), _mm512_mul_pd(a.hi, b.hi)};
}
ISTHMUS_INLINE double reduce_add(Double16 a) {
  const __m512d s = _mm512_add_pd(a.lo, a.hi);
  const __m256d h = _mm256_add_pd(_mm512_castpd512_pd256(s), _mm512_extractf64x4_pd(s, 1));
  const __m128d q = _mm_add_pd(_mm256_castpd256_pd128(h), _mm256_extractf128_pd(h, 1));
  return _mm_cvtsd_f64(_mm_add_sd(q, _mm_unpackhi_pd(q, q)));
}

}  // namespace
}  // namespace isthmus
