// AVX2 policy for generic/linear_dot.h: a part is 8 rows, two parts to a panel.
//
// kInt8 with codes below 128: vpmaddubsw into 16-bit sums, widened before they could overflow. Otherwise
// (kInt16, or 8-bit codes) 16-bit activations and vpmaddwd: the codes of a vector are split into columns 0, 2
// and columns 1, 3, which is the order that the records keep their words in.
#pragma once

#include <immintrin.h>

#include "kernels/avx2/computed_here.h"
#include "kernels/generic/linear_dot.h"

namespace isthmus {
namespace {

struct Avx2Vec {
  static constexpr int kLanes = 8;
  static constexpr int kParts = 2;
  static constexpr int kTokensAtOnce = 4;
  static constexpr int kWidePanels = 1;
  static constexpr size_t kWideChunk = 16;
  static constexpr int wide_tokens(Compute) { return 4; }
  static constexpr int parts_at_once(int tokens) { return tokens <= 2 ? 2 : 1; }
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

  /// Four columns as 16-bit values: codes of 8 rows, or the activations of one token in every lane.
  struct Split {
    __m256i even;  // columns 0 and 2
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

  /// Has the compiler believe that the codes changed, so that chains that multiply the same codes do it each.
  static ISTHMUS_INLINE void forget(Codes& codes) { codes = computed_here(codes); }
  static ISTHMUS_INLINE void forget(Split& codes) {
    codes = {computed_here(codes.even), computed_here(codes.odd)};
  }

  static ISTHMUS_INLINE __m256i broadcast_int(const void* at) {
    return _mm256_castps_si256(_mm256_broadcast_ss(static_cast<const float*>(at)));
  }

  /// write_record() of linear_record.h, by 8 values.
  template <class R>
  static ISTHMUS_INLINE void write_record(const float* x, std::byte* out) {
    static_assert(R::kWords);
    __m256 values[4];
    __m256i top = _mm256_setzero_si256();
    for (size_t i = 0; i < 4; ++i) {
      values[i] = _mm256_loadu_ps(x + 8 * i);
      const __m256i bits = _mm256_castps_si256(values[i]);
      top = _mm256_max_epi32(top, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
    }
    float inverse;
    const float scale = scale_of<R::kCompute>(largest(top), &inverse);
    __m256i q[4] = {};
    if (inverse != 0.0f) {  // else there may be NaN
      for (int i = 0; i < 4; ++i) {
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(values[i], _mm256_set1_ps(inverse)));
      }
    }
    const __m256i words[2] = {pack_in_order(q[0], q[1]), pack_in_order(q[2], q[3])};
    // Per four columns the order 0, 2, 1, 3.
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    for (size_t i = 0; i < 2; ++i) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + R::kWordsAt + 32 * i),
                          _mm256_shuffle_epi8(words[i], order));
    }
    if constexpr (R::kBytes) {
      static_assert(R::kCompute == Compute::kInt8);
      const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi16(words[0], words[1]), 0xd8);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + R::kLow), packed);
    }
    write_side(total_of(_mm256_add_epi32(q[0], q[1])), total_of(_mm256_add_epi32(q[2], q[3])), scale,
               out + R::kSide);
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

    static ISTHMUS_INLINE __m256i load_start(const void* nsum) {
      if constexpr (L.zero_shift < 0) return _mm256_setzero_si256();
      return _mm256_slli_epi32(broadcast_int(nsum), L.zero_shift < 0 ? 0 : L.zero_shift);
    }
    template <int kVector>
    static ISTHMUS_INLINE auto load_word(const std::byte* record) {
      if constexpr (kUsesBytes<L, C>) {
        return broadcast_int(record + R::kLow + 4 * kVector);
      } else {
        const std::byte* words = record + R::kWordsAt + 8 * kVector;
        return Split{broadcast_int(words), broadcast_int(words + 4)};
      }
    }

    ISTHMUS_INLINE void start_at(__m256i start) { sum = start; }
    ISTHMUS_INLINE void start(const void* nsum) { start_at(load_start(nsum)); }
    template <int kVector, int kCount>
    ISTHMUS_INLINE void add_word(Codes codes, __m256i word) {
      constexpr int kStep = kVector % kCount % kFlush;
      const __m256i pairs = _mm256_maddubs_epi16(codes, word);
      small = kStep == 0 ? pairs : computed_here(_mm256_add_epi16(small, pairs));
      if constexpr (kStep == kFlush - 1 || kVector % kCount == kCount - 1) {
        sum = computed_here(_mm256_add_epi32(sum, _mm256_madd_epi16(small, _mm256_set1_epi16(1))));
      }
    }
    template <int, int>
    ISTHMUS_INLINE void add_word(const Split& codes, const Split& word) {
      sum = computed_here(_mm256_add_epi32(sum, _mm256_madd_epi16(codes.even, word.even)));
      sum = computed_here(_mm256_add_epi32(sum, _mm256_madd_epi16(codes.odd, word.odd)));
    }
    template <int kVector, int kCount, class CodesOrSplit>
    ISTHMUS_INLINE void add(const CodesOrSplit& codes, const std::byte* record) {
      add_word<kVector, kCount>(codes, load_word<kVector>(record));
    }
    ISTHMUS_INLINE Floats total() const { return _mm256_cvtepi32_ps(sum); }
  };

 private:
  /// Sixteen values as 16-bit numbers.
  static ISTHMUS_INLINE __m256i pack_in_order(__m256i a, __m256i b) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
  }
  static ISTHMUS_INLINE int32_t largest(__m256i values) {
    __m128i half = _mm_max_epi32(_mm256_castsi256_si128(values), _mm256_extracti128_si256(values, 1));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
  }
  static ISTHMUS_INLINE int32_t total_of(__m256i values) {
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(values), _mm256_extracti128_si256(values, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
  }
};

}  // namespace
}  // namespace isthmus
