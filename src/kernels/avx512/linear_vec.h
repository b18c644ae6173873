// AVX-512 VNNI policy for generic/linear_dot.h: a part is the whole panel, one register of 16 rows.
//
// kInt8: one vpdpbusd per 4 columns, activations broadcast by the load. kInt16: two, for the high and the low
// byte plane; the sums are joined as 256 * high + low, exact in int32 (255 * 32640 * 32 < 2^31).
#pragma once

#include <immintrin.h>

#include "kernels/generic/linear_dot.h"

namespace isthmus {
namespace {

struct Avx512Vec {
  static constexpr int kLanes = 16;
  static constexpr int kParts = 1;
  static constexpr int kTokensAtOnce = 8;
  // A load feeds less than one vpdpbusd per cycle where two could run, so many tokens take a tile that uses
  // each loaded register several times: panels x tokens.
  static constexpr int kWidePanels = 4;
  static constexpr size_t kWideChunk = 8;
  static constexpr int wide_tokens(Compute c) { return c == Compute::kInt16 ? 2 : 4; }
  using Floats = __m512;
  using Codes = __m512i;

  static constexpr bool byte_records(Compute) { return true; }
  static constexpr bool word_records(Compute) { return false; }

  static ISTHMUS_INLINE Floats zero() { return _mm512_setzero_ps(); }
  static ISTHMUS_INLINE Floats load(const void* at) { return _mm512_load_ps(at); }
  static ISTHMUS_INLINE Floats broadcast(const void* at) {
    return _mm512_set1_ps(*static_cast<const float*>(at));
  }
  static ISTHMUS_INLINE void store(void* at, Floats value) { _mm512_store_ps(at, value); }
  static ISTHMUS_INLINE Floats load_unaligned(const float* at) { return _mm512_loadu_ps(at); }
  static ISTHMUS_INLINE void store_unaligned(float* at, Floats value) { _mm512_storeu_ps(at, value); }
  static ISTHMUS_INLINE Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static ISTHMUS_INLINE Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static ISTHMUS_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static ISTHMUS_INLINE Floats negate(Floats a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }

  static ISTHMUS_INLINE __m128i bytes(const void* at) {
    return _mm_load_si128(static_cast<const __m128i*>(at));
  }
  static ISTHMUS_INLINE __m256i halves(const void* at) {
    return _mm256_load_si256(static_cast<const __m256i*>(at));
  }
  static ISTHMUS_INLINE Floats load_half(const void* at) { return _mm512_cvtph_ps(halves(at)); }
  static ISTHMUS_INLINE Floats load_bf16(const void* at) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves(at)), 16));
  }
  static ISTHMUS_INLINE Floats load_u8(const void* at) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes(at)));
  }
  static ISTHMUS_INLINE Floats load_i8(const void* at) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes(at)));
  }
  static ISTHMUS_INLINE Floats load_low_nibbles(const void* at) {
    return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_cvtepu8_epi32(bytes(at)), _mm512_set1_epi32(15)));
  }
  static ISTHMUS_INLINE Floats load_high_nibbles(const void* at) {
    return _mm512_cvtepi32_ps(_mm512_srli_epi32(_mm512_cvtepu8_epi32(bytes(at)), 4));
  }
  static ISTHMUS_INLINE Floats load_e8m0(const void* at) {
    const __m512i e = _mm512_cvtepu8_epi32(bytes(at));
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    const __mmask16 is_small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_small, small));
  }

  template <int kBits, int kIndex>
  static ISTHMUS_INLINE Codes low_plane(const void* at) {
    Codes codes = _mm512_load_si512(at);
    if constexpr (kIndex > 0) codes = _mm512_srli_epi16(codes, kBits * kIndex);
    if constexpr (kBits < 8) codes = _mm512_and_si512(codes, _mm512_set1_epi8((1 << kBits) - 1));
    return codes;
  }
  template <int kLowBits, int kHighBits, int kIndex>
  static ISTHMUS_INLINE Codes with_high_plane(Codes low, const void* at) {
    constexpr int kShift = kLowBits - kHighBits * kIndex;
    Codes high = _mm512_load_si512(at);
    if constexpr (kShift > 0) high = _mm512_slli_epi16(high, kShift);
    if constexpr (kShift < 0) high = _mm512_srli_epi16(high, -kShift);
    const Codes mask = _mm512_set1_epi8(static_cast<char>(((1 << kHighBits) - 1) << kLowBits));
    return _mm512_ternarylogic_epi32(low, high, mask, 0xf8);  // low | (high & mask)
  }
  template <CodeTable T>
  static ISTHMUS_INLINE Codes lookup(Codes codes) {
    const __m128i table =
        T == CodeTable::kIq4
            ? _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, static_cast<char>(129), static_cast<char>(141),
                            static_cast<char>(153), static_cast<char>(166), static_cast<char>(181),
                            static_cast<char>(197), static_cast<char>(217), static_cast<char>(241))
            : _mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), codes);
  }
  static ISTHMUS_INLINE void store_codes(void* at, Codes codes) { _mm512_store_si512(at, codes); }
  template <PanelLayout L, Compute C>
  static ISTHMUS_INLINE Codes prepare(Codes codes) {
    return codes;
  }

  static ISTHMUS_INLINE __m512i broadcast_int(const void* at) {
    return _mm512_set1_epi32(*static_cast<const int*>(at));
  }

  template <PanelLayout L, Compute C>
  struct Accumulator {
    using R = Record<C, true, false>;
    __m512i low;
    __m512i high;  // kInt16 only

    /// Four activations of a token in every lane, per byte plane.
    struct Word {
      __m512i low;
      __m512i high;
    };
    static ISTHMUS_INLINE __m512i load_start(const void* nsum) {
      if constexpr (L.zero_shift < 0) return _mm512_setzero_si512();
      return _mm512_slli_epi32(broadcast_int(nsum), L.zero_shift < 0 ? 0 : L.zero_shift);
    }
    template <int kVector>
    static ISTHMUS_INLINE Word load_word(const std::byte* record) {
      Word word;
      word.low = broadcast_int(record + R::kLow + 4 * kVector);
      word.high = C == Compute::kInt16 ? broadcast_int(record + R::kHigh + 4 * kVector) : word.low;
      return word;
    }

    ISTHMUS_INLINE void start_at(__m512i start) {
      low = start;
      high = _mm512_setzero_si512();
    }
    ISTHMUS_INLINE void start(const void* nsum) { start_at(load_start(nsum)); }
    template <int, int>
    ISTHMUS_INLINE void add_word(Codes codes, Word word) {
      low = _mm512_dpbusd_epi32(low, codes, word.low);
      if constexpr (C == Compute::kInt16) high = _mm512_dpbusd_epi32(high, codes, word.high);
    }
    template <int kVector, int kCount>
    ISTHMUS_INLINE void add(Codes codes, const std::byte* record) {
      add_word<kVector, kCount>(codes, load_word<kVector>(record));
    }
    ISTHMUS_INLINE Floats total() const {
      if constexpr (C != Compute::kInt16) return _mm512_cvtepi32_ps(low);
      return _mm512_cvtepi32_ps(_mm512_add_epi32(low, _mm512_slli_epi32(high, 8)));
    }
  };

  /// write_record() of linear_record.h, by 16 values.
  template <class R>
  static ISTHMUS_INLINE void write_record(const float* x, std::byte* out) {
    static_assert(R::kBytes && !R::kWords);
    const __m512 x0 = _mm512_loadu_ps(x);
    const __m512 x1 = _mm512_loadu_ps(x + 16);
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    const __m512i top = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(x0), magnitude),
                                         _mm512_and_si512(_mm512_castps_si512(x1), magnitude));
    float inverse;
    const float scale = scale_of<R::kCompute>(_mm512_reduce_max_epi32(top), &inverse);
    __m512i q0 = _mm512_setzero_si512();
    __m512i q1 = _mm512_setzero_si512();
    if (inverse != 0.0f) {  // else there may be NaN
      q0 = _mm512_cvtps_epi32(_mm512_mul_ps(x0, _mm512_set1_ps(inverse)));
      q1 = _mm512_cvtps_epi32(_mm512_mul_ps(x1, _mm512_set1_ps(inverse)));
    }
    store_low_bytes(out + R::kLow, q0, q1);
    if constexpr (R::kCompute == Compute::kInt16) {
      const __m512i half = _mm512_set1_epi32(128);
      store_low_bytes(out + R::kHigh, _mm512_srai_epi32(_mm512_add_epi32(q0, half), 8),
                      _mm512_srai_epi32(_mm512_add_epi32(q1, half), 8));
    }
    write_side(_mm512_reduce_add_epi32(q0), _mm512_reduce_add_epi32(q1), scale, out + R::kSide);
  }

 private:
  /// The low bytes of 32 values.
  static ISTHMUS_INLINE void store_low_bytes(std::byte* at, __m512i q0, __m512i q1) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm512_cvtepi32_epi8(q0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at + 16), _mm512_cvtepi32_epi8(q1));
  }
};

}  // namespace
}  // namespace isthmus
