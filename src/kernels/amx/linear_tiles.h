// The matrix kernels of class `int` on tiles, over a policy class T with the tile instructions:
// HardwareTiles, or ModelTiles where there are none.
//
// Tokens are the rows of A, weights the columns of B. The eight vectors of an unpacked block, 16 rows x 4
// codes each, already are a B tile of 32 columns; 16 neighbouring records are an A tile for each byte plane.
// So a product of tiles gives the exact sums of a block for 16 tokens x 16 rows, in int32, and the float
// steps on them are those of dot_block() in the same order: the same bits as every other set. A type with a
// scale per 16 columns takes tiles half as deep.
//
// The tiles of one block work while the float steps of the block before run: sums go through two buffers.
#pragma once

#include "kernels/amx/tile_config.h"
#include "kernels/avx512/linear_vec.h"
#include "kernels/generic/linear_dot.h"

namespace isthmus {
namespace {

/// Registers of the products.
enum IntTile : int { kLowSums, kHighSums, kLowPlane, kHighPlane, kCodes };

/// The shapes for products over `cols` columns: a block, or half of one.
constexpr TileConfig int_tiles(size_t cols) {
  const TileShape sums = {16, 64};
  const TileShape plane = {16, static_cast<uint16_t>(cols)};
  const TileShape codes = {static_cast<uint8_t>(cols / 4), 64};
  return tile_config({sums, sums, plane, plane, codes, {0, 0}, {0, 0}, {0, 0}});
}

template <class T, PanelLayout L, Compute C>
struct IntProduct {
  using V = Avx512Vec;
  using R = RecordOf<V, C>;
  static constexpr int kPlanes = C == Compute::kInt16 ? 2 : 1;
  static constexpr size_t kCols = kBlockCols / L.groups;  // of one product
  static constexpr TileConfig kConfig = int_tiles(kCols);

  /// Sums of one product: [plane][token][row].
  struct alignas(64) Sums {
    int32_t of[kPlanes][kStripTokens][kPanelRows];
  };

  /// Starts product `group` of a block for the 16 records at `x`.
  static ISTHMUS_INLINE void multiply(const std::byte* block, const std::byte* x, size_t group, Sums& sums) {
    const size_t col = group * kCols;
    T::template zero<kLowSums>();
    T::template load<kCodes>(block + L.scales_bytes() + col * kPanelRows, kVectorBytes);
    T::template load<kLowPlane>(x + R::kLow + col, R::kSize);
    T::template dot_signed_unsigned<kLowSums, kLowPlane, kCodes>();
    if constexpr (kPlanes == 2) {
      T::template zero<kHighSums>();
      T::template load<kHighPlane>(x + R::kHigh + col, R::kSize);
      T::template dot_signed_unsigned<kHighSums, kHighPlane, kCodes>();
      T::template store<kHighSums>(sums.of[1], kVectorBytes);
    }
    T::template store<kLowSums>(sums.of[0], kVectorBytes);
  }

  /// acc[token] += the float steps on the sums of product `G` of a block.
  template <int G>
  static ISTHMUS_INLINE void add(const std::byte* block, const std::byte* x, const Sums& sums,
                                 __m512 (&acc)[kStripTokens]) {
    constexpr int kSum = L.groups == 1 ? 0 : G + 1;  // index into the record's sums
    const auto scale = load_scale<V, L, G>(block, 0, 0, SuperHead<V>{});
    unroll<kStripTokens>([&](auto t) ISTHMUS_LAMBDA_INLINE {
      const std::byte* side = x + t * R::kSize + R::kSide;
      __m512i sum = _mm512_load_si512(sums.of[0][t]);
      if constexpr (kPlanes == 2) {
        sum = _mm512_add_epi32(sum, _mm512_slli_epi32(_mm512_load_si512(sums.of[1][t]), 8));
      }
      if constexpr (L.zero_shift >= 0) {
        const __m512i nsum = V::broadcast_int(side + offsetof(RecordSide, nsum) + kSum * sizeof(int32_t));
        sum = _mm512_add_epi32(sum, _mm512_slli_epi32(nsum, L.zero_shift < 0 ? 0 : L.zero_shift));
      }
      const auto both = V::mul(scale.scale, V::broadcast(side + offsetof(RecordSide, scale)));
      acc[t] = V::fma(_mm512_cvtepi32_ps(sum), both, acc[t]);
      if constexpr (L.has_min) {
        const auto xs = V::broadcast(side + offsetof(RecordSide, dsum) + kSum * sizeof(float));
        acc[t] = V::fma(scale.min, xs, acc[t]);
      }
    });
  }

  /// sums[16 tokens][16] += `blocks` >= 1 blocks of a panel.
  static void run(const std::byte* block, size_t blocks, const std::byte* x, size_t x_stride, float* sums) {
    Sums buffers[2];
    __m512 acc[kStripTokens];
    unroll<kStripTokens>([&](auto t) ISTHMUS_LAMBDA_INLINE { acc[t] = V::load(sums + t * kPanelRows); });
    multiply(block, x, 0, buffers[0]);
    for (size_t b = 0; b < blocks; ++b) {
      const std::byte* next = block + L.unit_bytes();
      const std::byte* next_x = x + x_stride;
      if constexpr (L.groups == 2) {
        multiply(block, x, 1, buffers[1]);
        add<0>(block, x, buffers[0], acc);
        if (b + 1 < blocks) multiply(next, next_x, 0, buffers[0]);
        add<1>(block, x, buffers[1], acc);
      } else {
        if (b + 1 < blocks) multiply(next, next_x, 0, buffers[(b + 1) % 2]);
        add<0>(block, x, buffers[b % 2], acc);
      }
      block = next;
      x = next_x;
    }
    unroll<kStripTokens>([&](auto t) ISTHMUS_LAMBDA_INLINE { V::store(sums + t * kPanelRows, acc[t]); });
  }
};

/// TileKernel of linear_kernels.h. The columns go by chunks whose records stay in the first-level cache while
/// the panels pass over them.
template <class T, PanelLayout L, Compute C>
void dot_tiles(const TilePanels& w, const TileStrips& x, float* acc) {
  constexpr size_t kChunk = 16;
  constexpr size_t kSums = kStripTokens * kPanelRows;
  static constexpr TileConfig kConfig = IntProduct<T, L, C>::kConfig;
  T::use(kConfig);
  for (size_t strip = 0; strip < x.count; ++strip) {
    for (size_t first = 0; first < w.blocks; first += kChunk) {
      const size_t count = w.blocks - first < kChunk ? w.blocks - first : kChunk;
      const std::byte* records = x.records + strip * x.strip_stride + first * x.block_stride;
      for (size_t p = 0; p < w.count; ++p) {
        IntProduct<T, L, C>::run(w.data + p * w.stride + first * L.unit_bytes(), count, records,
                                 x.block_stride, acc + (p * x.count + strip) * kSums);
      }
    }
  }
}

template <class T, PackFormat F>
constexpr void fill_tile_format(LinearKernels& table) {
  constexpr PanelLayout kUnpacked = unpacked_layout(panel_layout(F));
  auto& row = table.dot_tiles[static_cast<size_t>(F)];
  row[static_cast<size_t>(Compute::kInt8)] = dot_tiles<T, kUnpacked, Compute::kInt8>;
  row[static_cast<size_t>(Compute::kInt16)] = dot_tiles<T, kUnpacked, Compute::kInt16>;
}

/// Adds the tile kernels to the table of AVX-512, which does what they do not.
template <class T>
void fill_tiles(LinearKernels& table) {
  fill_tile_format<T, PackFormat::kQ4_0>(table);
  fill_tile_format<T, PackFormat::kQ4_1>(table);
  fill_tile_format<T, PackFormat::kQ5_0>(table);
  fill_tile_format<T, PackFormat::kQ5_1>(table);
  fill_tile_format<T, PackFormat::kQ8_0>(table);
  fill_tile_format<T, PackFormat::kQ2_K>(table);
  fill_tile_format<T, PackFormat::kQ3_K>(table);
  fill_tile_format<T, PackFormat::kQ4_K>(table);
  fill_tile_format<T, PackFormat::kQ5_K>(table);
  fill_tile_format<T, PackFormat::kQ6_K>(table);
  fill_tile_format<T, PackFormat::kIQ4_NL>(table);
  fill_tile_format<T, PackFormat::kIQ4_XS>(table);
  fill_tile_format<T, PackFormat::kMXFP4>(table);
  table.strip_tokens = kStripTokens;
}

}  // namespace
}  // namespace isthmus
