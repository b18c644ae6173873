// The matrix kernels of class `fast` on tiles: weights and activations rounded to bfloat16, sums in float32
// over all columns. Over the policy class T of linear_tiles.h.
//
// A block of 32 columns of a panel becomes a B tile, [16 column pairs][16 rows][2], 1 KiB; a record is 32
// activations of a token, so that a block's records of a strip are an A tile. Each output of a product is the
// tile's own sum (tile_model.h says in which order); blocks ascend, so neither the number of panels and
// strips at once nor a break between two calls changes a bit.
#pragma once

#include "kernels/amx/tile_config.h"
#include "kernels/avx512/linear_vec.h"
#include "kernels/generic/linear_dot.h"

namespace isthmus {
namespace {

// ---- rounding ----

/// bfloat16 in the upper half of each word, the lower half to be cut off: nearest, ties to even.
ISTHMUS_INLINE __m512i round_words(__m512 values) {
  const __m512i bits = _mm512_castps_si512(values);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
}

/// NaN as one that rounding leaves NaN.
ISTHMUS_INLINE __m512 plain_nan(__m512 values) {
  const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
  return _mm512_mask_mov_ps(values, nan, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
}

/// Pairs (even, odd) of bfloat16, one a word.
ISTHMUS_INLINE __m512i pair_words(__m512 even, __m512 odd) {
  const __m512i low = _mm512_srli_epi32(round_words(even), 16);
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
  return _mm512_ternarylogic_epi32(low, round_words(odd), upper, 0xf8);  // low | (odd & upper)
}

/// QuantizeKernel of linear_kernels.h for Compute::kBf16.
inline void round_row(const float* x, size_t cols, std::byte* out, size_t stride) {
  for (size_t k = 0; k < cols; k += kBlockCols, out += stride) {
    for (size_t half = 0; half < 2; ++half) {
      const size_t at = k + 16 * half;
      const size_t rest = at < cols ? cols - at : 0;
      const auto there = static_cast<__mmask16>(rest >= 16 ? 0xffffU : (1U << rest) - 1U);
      const __m512 values = plain_nan(_mm512_maskz_loadu_ps(there, x + at));
      const __m256i words = _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_words(values), 16));
      _mm256_store_si256(reinterpret_cast<__m256i*>(out) + half, words);
    }
  }
}

// ---- weights to tiles ----

/// One group of columns that share a scale: its vectors to two rows of the tile each.
template <PanelLayout L, int G>
ISTHMUS_INLINE void expand_group(const std::byte* unit, int block, const std::byte* codes_at,
                                 const SuperHead<Avx512Vec>& head, std::byte* out) {
  using V = Avx512Vec;
  constexpr int kGroupVectors = static_cast<int>(kVectorsPerBlock) / L.groups;
  const auto scales = load_scale<V, L, G>(unit, block, 0, head);
  const __m512 scale = plain_nan(scales.scale);
  // value = scale * code + offset, in one rounding: a zero point is a power of two, its product exact.
  __m512 offset = _mm512_setzero_ps();
  if constexpr (L.has_min) offset = plain_nan(scales.min);
  if constexpr (L.zero_shift >= 0) {
    offset =
        _mm512_mul_ps(scale, _mm512_set1_ps(-static_cast<float>(1 << (L.zero_shift < 0 ? 0 : L.zero_shift))));
  }
  unroll<kGroupVectors>([&](auto i) ISTHMUS_LAMBDA_INLINE {
    constexpr int kVector = G * kGroupVectors + decltype(i)::kValue;
    const __m512i codes = load_codes<V, L, kVector>(codes_at, 0);
    const __m512i byte = _mm512_set1_epi32(255);
    const auto value = [&](__m512i code) ISTHMUS_LAMBDA_INLINE {
      return _mm512_fmadd_ps(_mm512_cvtepi32_ps(code), scale, offset);
    };
    const __m512 w0 = value(_mm512_and_si512(codes, byte));
    const __m512 w1 = value(_mm512_and_si512(_mm512_srli_epi32(codes, 8), byte));
    const __m512 w2 = value(_mm512_and_si512(_mm512_srli_epi32(codes, 16), byte));
    const __m512 w3 = value(_mm512_srli_epi32(codes, 24));
    _mm512_store_si512(out + size_t{2} * kVector * kVectorBytes, pair_words(w0, w1));
    _mm512_store_si512(out + (size_t{2} * kVector + 1) * kVectorBytes, pair_words(w2, w3));
  });
}

/// ExpandKernel of linear_kernels.h for a quantised format.
template <PanelLayout L>
void expand_blocks(const std::byte* panel, size_t, size_t first, size_t blocks, std::byte* out) {
  constexpr size_t kUnitBlocks = static_cast<size_t>(L.unit_blocks);
  for (size_t b = first; b < first + blocks; ++b, out += kBf16BlockBytes) {
    const std::byte* unit = panel + b / kUnitBlocks * L.unit_bytes();
    const size_t in_unit = b % kUnitBlocks;
    const auto head = load_head<Avx512Vec, L>(unit, 0);
    const std::byte* codes = unit + L.scales_bytes() + in_unit * L.block_bytes();
    unroll<L.groups>([&](auto g) ISTHMUS_LAMBDA_INLINE {
      expand_group<L, decltype(g)::kValue>(unit, static_cast<int>(in_unit), codes, head, out);
    });
  }
}

/// The same for a plain format.
template <PackFormat F>
void expand_plain(const std::byte* panel, size_t cols, size_t first, size_t blocks, std::byte* out) {
  const auto column = [&](size_t k) ISTHMUS_LAMBDA_INLINE {
    return k < cols ? plain_nan(load_plain<Avx512Vec, F>(panel, k, 0)) : _mm512_setzero_ps();
  };
  for (size_t k = first * kBlockCols; k < (first + blocks) * kBlockCols; k += 2, out += kVectorBytes) {
    _mm512_store_si512(out, pair_words(column(k), column(k + 1)));
  }
}

// ---- products ----

enum Bf16Tile : int { kSums, kTokens = 4, kWeights = 6 };  // 4 of sums [panel][strip], 2, 2

/// acc[panel][strip] += kPanels panels times kStrips strips, the tiles of each loaded once. A function of its
/// own, so that its instructions can be counted (tools/kernel_instructions).
template <class T, int kPanels, int kStrips>
__attribute__((noinline)) void multiply_bf16(const TilePanels& w, const TileStrips& x,
                                             const std::byte* weights, const std::byte* records, float* acc) {
  const size_t acc_panel = x.count * kStripTokens * kPanelRows;
  const auto sums = [&](int p, int s) ISTHMUS_LAMBDA_INLINE {
    return acc + static_cast<size_t>(p) * acc_panel + static_cast<size_t>(s) * kStripTokens * kPanelRows;
  };
  unroll<kPanels>([&](auto p) ISTHMUS_LAMBDA_INLINE {
    unroll<kStrips>([&](auto s) ISTHMUS_LAMBDA_INLINE {
      T::template load<kSums + 2 * decltype(p)::kValue + decltype(s)::kValue>(sums(p, s), kVectorBytes);
    });
  });
  for (size_t b = 0; b < w.blocks; ++b, weights += kBf16BlockBytes, records += x.block_stride) {
    unroll<kPanels>([&](auto p) ISTHMUS_LAMBDA_INLINE {
      constexpr int kPanel = decltype(p)::kValue;
      T::template load<kWeights + kPanel>(weights + kPanel * w.stride, kVectorBytes);
      unroll<kStrips>([&](auto s) ISTHMUS_LAMBDA_INLINE {
        constexpr int kStrip = decltype(s)::kValue;
        if constexpr (kPanel == 0) {
          T::template load<kTokens + kStrip>(records + kStrip * x.strip_stride, kBf16RecordBytes);
        }
        T::template dot_bf16<kSums + 2 * kPanel + kStrip, kTokens + kStrip, kWeights + kPanel>();
      });
    });
  }
  unroll<kPanels>([&](auto p) ISTHMUS_LAMBDA_INLINE {
    unroll<kStrips>([&](auto s) ISTHMUS_LAMBDA_INLINE {
      T::template store<kSums + 2 * decltype(p)::kValue + decltype(s)::kValue>(sums(p, s), kVectorBytes);
    });
  });
}

/// TileKernel of linear_kernels.h on expanded panels.
template <class T>
void dot_bf16(const TilePanels& w, const TileStrips& x, float* acc) {
  static constexpr TileShape kFull = {16, 64};
  static constexpr TileConfig kConfig = tile_config({kFull, kFull, kFull, kFull, kFull, kFull, kFull, kFull});
  T::use(kConfig);
  for (size_t strip = 0; strip < x.count; strip += 2) {
    const bool two_strips = strip + 1 < x.count;
    for (size_t p = 0; p < w.count; p += 2) {
      const bool two_panels = p + 1 < w.count;
      const std::byte* weights = w.data + p * w.stride;
      const std::byte* records = x.records + strip * x.strip_stride;
      float* to = acc + (p * x.count + strip) * kStripTokens * kPanelRows;
      if (two_panels && two_strips) {
        multiply_bf16<T, 2, 2>(w, x, weights, records, to);
      } else if (two_panels) {
        multiply_bf16<T, 2, 1>(w, x, weights, records, to);
      } else if (two_strips) {
        multiply_bf16<T, 1, 2>(w, x, weights, records, to);
      } else {
        multiply_bf16<T, 1, 1>(w, x, weights, records, to);
      }
    }
  }
}

template <int kFormat = 0>
constexpr void fill_expands(LinearKernels& table) {
  if constexpr (kFormat < static_cast<int>(kPackFormats)) {
    constexpr auto kPack = static_cast<PackFormat>(kFormat);
    if constexpr (is_quantised(kPack)) {
      table.expand[kFormat] = expand_blocks<panel_layout(kPack)>;
    } else {
      table.expand[kFormat] = expand_plain<kPack>;
    }
    fill_expands<kFormat + 1>(table);
  }
}

template <class T>
void fill_bf16(LinearKernels& table) {
  table.round_bf16 = round_row;
  table.dot_bf16 = dot_bf16<T>;
  fill_expands(table);
}

}  // namespace
}  // namespace isthmus
