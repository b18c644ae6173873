// Sixteen float32 lanes on AVX2 + FMA + F16C: two ymm registers. See scalar/vec16_scalar.h for what each
// operation means; all sets give the same bits.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define ISTHMUS_INLINE inline __attribute__((always_inline))

namespace isthmus {
namespace {

/// Accumulators that the register file holds beside the operands, in Vec16.
constexpr size_t kVec16Accumulators = 6;
constexpr size_t kVec16Rows = 6;

struct Mask16 {
  __m256 lo, hi;
  ISTHMUS_INLINE uint32_t bits() const {
    return static_cast<uint32_t>(_mm256_movemask_ps(lo)) | static_cast<uint32_t>(_mm256_movemask_ps(hi)) << 8;
  }
};

struct Vec16 {
  __m256 lo, hi;

  static ISTHMUS_INLINE Vec16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static ISTHMUS_INLINE Vec16 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static ISTHMUS_INLINE Vec16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static ISTHMUS_INLINE Vec16 load_f16(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  static ISTHMUS_INLINE Vec16 set1_f16(const uint16_t* p) {
    const __m256 x = _mm256_cvtph_ps(_mm_set1_epi16(static_cast<int16_t>(*p)));
    return {x, x};
  }
  static ISTHMUS_INLINE Vec16 load_bf16(const uint16_t* p) {
    const __m256i lo = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i hi = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
  }
  static ISTHMUS_INLINE __m256 widen_i8(const int8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  static ISTHMUS_INLINE Vec16 load_i8(const int8_t* p) { return {widen_i8(p), widen_i8(p + 8)}; }
  ISTHMUS_INLINE void store(float* p) const {
    _mm256_storeu_ps(p, lo);
    _mm256_storeu_ps(p + 8, hi);
  }
  ISTHMUS_INLINE void store_f16(uint16_t* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(hi, _MM_FROUND_TO_NEAREST_INT));
  }
  /// The bfloat16 of 8 lanes in the low half of each 32-bit lane.
  static ISTHMUS_INLINE __m256i to_bf16(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i round = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    const __m256 out = _mm256_blendv_ps(_mm256_castsi256_ps(round), _mm256_castsi256_ps(quiet), nan);
    return _mm256_srli_epi32(_mm256_castps_si256(out), 16);
  }
  ISTHMUS_INLINE void store_bf16(uint16_t* p) const {
    const __m256i packed = _mm256_packus_epi32(to_bf16(lo), to_bf16(hi));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
  }
};

ISTHMUS_INLINE Vec16 operator+(Vec16 a, Vec16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
ISTHMUS_INLINE Vec16 operator-(Vec16 a, Vec16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
ISTHMUS_INLINE Vec16 operator*(Vec16 a, Vec16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
ISTHMUS_INLINE Vec16 operator/(Vec16 a, Vec16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
ISTHMUS_INLINE Vec16 fma(Vec16 a, Vec16 b, Vec16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
ISTHMUS_INLINE Vec16 fnma(Vec16 a, Vec16 b, Vec16 c) {
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
ISTHMUS_INLINE Vec16 max(Vec16 a, Vec16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
ISTHMUS_INLINE Vec16 min(Vec16 a, Vec16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
ISTHMUS_INLINE Vec16 round_even(Vec16 a) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, kMode), _mm256_round_ps(a.hi, kMode)};
}
/// 2^n in two factors, so that a subnormal product is rounded once.
ISTHMUS_INLINE __m256 scale2_half(__m256 a, __m256 n) {
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i first = _mm256_srai_epi32(whole, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256i f1 = _mm256_slli_epi32(_mm256_add_epi32(first, bias), 23);
  const __m256i f2 = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, first), bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(a, _mm256_castsi256_ps(f1)), _mm256_castsi256_ps(f2));
}
ISTHMUS_INLINE Vec16 scale2(Vec16 a, Vec16 n) { return {scale2_half(a.lo, n.lo), scale2_half(a.hi, n.hi)}; }
ISTHMUS_INLINE __m256 add_exponent_half(__m256 a, __m256 n) {
  // A NaN n converts to 0x80000000, which the shift drops.
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(a), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
}
ISTHMUS_INLINE Vec16 add_exponent(Vec16 a, Vec16 n) {
  return {add_exponent_half(a.lo, n.lo), add_exponent_half(a.hi, n.hi)};
}
ISTHMUS_INLINE Vec16 abs(Vec16 a) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(bit, a.lo), _mm256_andnot_ps(bit, a.hi)};
}
ISTHMUS_INLINE Vec16 copy_sign(Vec16 magnitude, Vec16 sign) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(bit, magnitude.lo), _mm256_and_ps(bit, sign.lo)),
          _mm256_or_ps(_mm256_andnot_ps(bit, magnitude.hi), _mm256_and_ps(bit, sign.hi))};
}
ISTHMUS_INLINE Vec16 swap_pairs(Vec16 a) {
  return {_mm256_permute_ps(a.lo, 0xb1), _mm256_permute_ps(a.hi, 0xb1)};
}
ISTHMUS_INLINE Mask16 greater(Vec16 a, Vec16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ)};
}
ISTHMUS_INLINE Mask16 equal(Vec16 a, Vec16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)};
}
ISTHMUS_INLINE Vec16 select(Mask16 m, Vec16 yes, Vec16 no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)};
}
ISTHMUS_INLINE Vec16 load_twice(const float* p) {
  const __m256 x = _mm256_loadu_ps(p);
  return {_mm256_permutevar8x32_ps(x, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
          _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))};
}

ISTHMUS_INLINE float reduce_add(Vec16 a) {
  const __m256 h = _mm256_add_ps(a.lo, a.hi);
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_shuffle_ps(d, d, 1)));
}
ISTHMUS_INLINE float reduce_max(Vec16 a) {
  const __m256 h = _mm256_max_ps(a.lo, a.hi);
  const __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_shuffle_ps(d, d, 1)));
}

ISTHMUS_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

/// Sixteen float64 lanes, four ymm registers.
struct Double16 {
  __m256d v[4];

  static ISTHMUS_INLINE Double16 zero() {
    const __m256d z = _mm256_setzero_pd();
    return {{z, z, z, z}};
  }
  static ISTHMUS_INLINE Double16 from(Vec16 x) {
    return {{_mm256_cvtps_pd(_mm256_castps256_ps128(x.lo)), _mm256_cvtps_pd(_mm256_extractf128_ps(x.lo, 1)),
             _mm256_cvtps_pd(_mm256_castps256_ps128(x.hi)), _mm256_cvtps_pd(_mm256_extractf128_ps(x.hi, 1))}};
  }
};
ISTHMUS_INLINE Double16 operator+(Double16 a, Double16 b) {
  return {{_mm256_add_pd(a.v[0], b.v[0]), _mm256_add_pd(a.v[1], b.v[1]), _mm256_add_pd(a.v[2], b.v[2]),
           _mm256_add_pd(a.v[3], b.v[3])}};
}
ISTHMUS_INLINE Double16 operator*(Double16 a, Double16 b) {
  return {{_mm256_mul_pd(a.v[0], b.v[0]), _mm256_mul_pd(a.v[1], b.v[1]), _mm256_mul_pd(a.v[2], b.v[2]),
           _mm256_mul_pd(a.v[3], b.v[3])}};
}
ISTHMUS_INLINE double reduce_add(Double16 a) {
  const __m256d h = _mm256_add_pd(_mm256_add_pd(a.v[0], a.v[2]), _mm256_add_pd(a.v[1], a.v[3]));
  const __m128d q = _mm_add_pd(_mm256_castpd256_pd128(h), _mm256_extractf128_pd(h, 1));
  return _mm_cvtsd_f64(_mm_add_sd(q, _mm_unpackhi_pd(q, q)));
}

}  // namespace
}  // namespace isthmus
