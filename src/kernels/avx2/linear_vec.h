// AVX2 policy for generic/linear_dot.h: a part is 8 rows, two parts to a panel.
//
// kInt8 with codes below 128: vpmaddubsw into 16-bit sums, widened before they could overflow. Otherwise
// (kInt16, or 8-bit codes) 16-bit activations and vpmaddwd: the codes of a vector are split into columns 0, 2
// and columns 1, 3, which is the order that the records keep their words in.
#pragma once

#include <immintrin.h>

#include "kernels/generic/linear_dot.h"

namespace isthmus {
namespace {

struct Avx2Vec {
  static constexpr int kLanes = 8;
  static constexpr int kParts = 2;
  static constexpr int kTokensAtOnce = 4;
  static constexpr int kWidePanels = 1;
  using Floats = __m256;
  using Codes = __m256i;

  static constexpr bool byte_records(Compute c) { return c == Compute::kInt8; }
  static constexpr bool word_records(Compute) { return true; }
  template <PanelLayout L, Compute C>
  static constexpr bool kUsesBytes = C == Compute::kInt8&& L.max_code() < 128;

  static ISTHMUS_INLINE Floats zero() { return _mm256_setzero_ps(); }
  static ISTHMUS_INLINE Floats load(const void* at) { return _mm256_load_ps(static_cast<const float*>(at)); }
  static ISTHMUS_INLINE Floats broadcast(const void* at) {
    return _mm256_broadcast_ss(static_cast<const float*>(at));
  }
  static ISTHMUS_INLINE void store(void* at, Floats value) {
    _mm256_store_ps(static_cast<float*>(at), value);
  }
  static ISTHMUS_INLINE Floats load_unaligned(const float* at) { return _mm256_loadu_ps(at); }
  static ISTHMUS_INLINE void store_unaligned(float* at, Floats value) { _mm256_storeu_ps(at, value); }
  static ISTHMUS_INLINE Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static ISTHMUS_INLINE Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static ISTHMUS_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static ISTHMUS_INLINE Floats negate(Floats a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }

  static ISTHMUS_INLINE __m128i bytes(const void* at) {
    return _mm_loadl_epi64(static_cast<const __m128i*>(at));
  }
  static ISTHMUS_INLINE __m128i halves(const void* at) {
    return _mm_load_si128(static_cast<const __m128i*>(at));
  }
  static ISTHMUS_INLINE Floats load_half(const void* at) { return _mm256_cvtph_ps(halves(at)); }
  static ISTHMUS_INLINE Floats load_bf16(const void* at) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves(at)), 16));
  }
  static ISTHMUS_INLINE Floats load_u8(const void* at) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes(at)));
  }
  static ISTHMUS_INLINE Floats load_i8(const void* at) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes(at)));
  }
  static ISTHMUS_INLINE Floats load_low_nibbles(const void* at) {
    return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_cvtepu8_epi32(bytes(at)), _mm256_set1_epi32(15)));
  }
  static ISTHMUS_INLINE Floats load_high_nibbles(const void* at) {
    return _mm256_cvtepi32_ps(_mm256_srli_epi32(_mm256_cvtepu8_epi32(bytes(at)), 4));
  }
  static ISTHMUS_INLINE Floats load_e8m0(const void* at) {
    const __m256i e = _mm256_cvtepu8_epi32(bytes(at));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, is_small));
  }

  static ISTHMUS_INLINE Codes load_codes(const void* at) {
    return _mm256_load_si256(static_cast<const __m256i*>(at));
  }
  template <int kBits, int kIndex>
  static ISTHMUS_INLINE Codes low_plane(const void* at) {
    Codes codes = load_codes(at);
    if constexpr (kIndex > 0) codes = _mm256_srli_epi16(codes, kBits * kIndex);
    if constexpr (kBits < 8) codes = _mm256_and_si256(codes, _mm256_set1_epi8((1 << kBits) - 1));
    return codes;
  }
  template <int kLowBits, int kHighBits, int kIndex>
  static ISTHMUS_INLINE Codes with_high_plane(Codes low, const void* at) {
    constexpr int kShift = kLowBits - kHighBits * kIndex;
    Codes high = load_codes(at);
    if constexpr (kShift > 0) high = _mm256_slli_epi16(high, kShift);
    if constexpr (kShift < 0) high = _mm256_srli_epi16(high, -kShift);
    const Codes mask = _mm256_set1_epi8(static_cast<char>(((1 << kHighBits) - 1) << kLowBits));
    return _mm256_or_si256(low, _mm256_and_si256(high, mask));
  }
  template <CodeTable T>
  static ISTHMUS_INLINE Codes lookup(Codes codes) {
    const __m128i table =
        T == CodeTable::kIq4
            ? _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, static_cast<char>(129), static_cast<char>(141),
                            static_cast<char>(153), static_cast<char>(166), static_cast<char>(181),
                            static_cast<char>(197), static_cast<char>(217), static_cast<char>(241))
            : _mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), codes);
  }
  static ISTHMUS_INLINE void store_codes(void* at, Codes codes) {
    _mm256_store_si256(static_cast<__m256i*>(at), codes);
  }

  struct Split {
    __m256i even;  // columns 0 and 2 as 16-bit values
    __m256i odd;   // columns 1 and 3
  };
  template <PanelLayout L, Compute C>
  static ISTHMUS_INLINE auto prepare(Codes codes) {
    if constexpr (kUsesBytes<L, C>) {
      return codes;
    } else {
      return Split{_mm256_and_si256(codes, _mm256_set1_epi16(255)), _mm256_srli_epi16(codes, 8)};
    }
  }

  static ISTHMUS_INLINE __m256i broadcast_int(const void* at) {
    return _mm256_castps_si256(_mm256_broadcast_ss(static_cast<const float*>(at)));
  }

  template <class R>
  static ISTHMUS_INLINE void write_record(const float* x, std::byte* out) {
    isthmus::write_record<R>(x, out);
  }

  template <PanelLayout L, Compute C>
  struct Accumulator {
    using R = RecordOf<Avx2Vec, C>;
    // Products of two codes and two bytes that a 16-bit sum is sure to hold.
    static constexpr int kFlush = 32767 / (2 * 127 * L.max_code() + 1) > 0
                                      ? 32767 / (2 * 127 * L.max_code() + 1)
                                      : 1;
    __m256i sum;
    __m256i small;  // 16-bit sums not yet in `sum`

    ISTHMUS_INLINE void start(const void* nsum) {
      sum = _mm256_setzero_si256();
      if constexpr (L.zero_shift >= 0) sum = _mm256_slli_epi32(broadcast_int(nsum), L.zero_shift);
    }
    template <int kVector, int kCount>
    ISTHMUS_INLINE void add(Codes codes, const std::byte* record) {
      constexpr int kStep = kVector % kCount % kFlush;
      const __m256i pairs = _mm256_maddubs_epi16(codes, broadcast_int(record + R::kLow + 4 * kVector));
      small = kStep == 0 ? pairs : _mm256_add_epi16(small, pairs);
      if constexpr (kStep == kFlush - 1 || kVector % kCount == kCount - 1) {
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(small, _mm256_set1_epi16(1)));
      }
    }
    template <int kVector, int kCount>
    ISTHMUS_INLINE void add(const Split& codes, const std::byte* record) {
      const std::byte* words = record + R::kWordsAt + 8 * kVector;
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(codes.even, broadcast_int(words)));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(codes.odd, broadcast_int(words + 4)));
    }
    ISTHMUS_INLINE Floats total() const { return _mm256_cvtepi32_ps(sum); }
  };
};

}  // namespace
}  // namespace isthmus
