// The contract of the matrix kernels: what one instruction set provides and the driver (ops/linear.h)
// combines.
//
// A kernel works on one panel (panel_layout.h) and up to kMaxTokens tokens, over any run of units; float32
// accumulators come in and go out through memory, so a driver may interleave panels, block the columns and
// batch tokens as it likes without changing a bit. Every set gives the same bits: block sums are exact in
// int32, the float steps and their order are fixed (ops/linear.h).
//
// Activations of a quantised product are *records*, one per token and block of 32 columns, whose inner layout
// is the set's own business. Record (block b, token t) of a tile lies at b * stride + t * record_bytes.
// All functions are pure but for their outputs, check nothing, and are safe on any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"
#include "kernels/panel_layout.h"

namespace isthmus {

/// Tokens in a tile of activations, and the most that one kernel call handles.
inline constexpr size_t kMaxTokens = 8;
/// Tokens of a product of tiles (class TileKernel).
inline constexpr size_t kStripTokens = 16;
/// A record of Compute::kBf16: 32 bfloat16 values.
inline constexpr size_t kBf16RecordBytes = 2 * kBlockCols;
/// A block of an expanded panel: bfloat16 [16 column pairs][16 rows][2].
inline constexpr size_t kBf16BlockBytes = 2 * kBlockCols * kPanelRows;
/// Token counts with a kernel of their own: 1, 2, 3, 4 and kMaxTokens.
inline constexpr size_t kTokenCounts = 5;
/// Index of the kernel for `tokens` (1, 2, 3, 4 or kMaxTokens).
constexpr size_t token_index(size_t tokens) { return tokens == kMaxTokens ? 4 : tokens - 1; }
/// The largest token count with a kernel that does not exceed `tokens` (>= 1).
constexpr size_t kernel_tokens(size_t tokens) {
  return tokens >= kMaxTokens ? kMaxTokens : tokens < 4 ? tokens : 4;
}

/// acc[tokens][16] += the product of `units` units of a panel at `w` and the records at `x`. `prefetch`:
/// bytes ahead of w to ask for, 0 = none. w is 64-byte aligned, acc 64-byte aligned.
using DotKernel = void (*)(const std::byte* w, size_t units, const std::byte* x, size_t x_stride, float* acc,
                           size_t prefetch);
/// The same for a plain panel and float32 activations x[tokens][ldx]: `cols` columns.
using FloatDotKernel = void (*)(const std::byte* w, size_t cols, const float* x, size_t ldx, float* acc,
                                size_t prefetch);
/// acc[wide_panels][kMaxTokens][16] += unpacked panels `panel_stride` bytes apart times kMaxTokens tokens.
using WideKernel = void (*)(const std::byte* w, size_t panel_stride, size_t blocks, const std::byte* x,
                            size_t x_stride, float* acc);
/// Panels of one matrix in scratch, `stride` bytes apart, each of `blocks` >= 1 blocks.
struct TilePanels {
  const std::byte* data;
  size_t stride;
  size_t count;
  size_t blocks;
};
/// Strips of kStripTokens tokens: block b of strip s begins at s * strip_stride + b * block_stride.
struct TileStrips {
  const std::byte* records;
  size_t block_stride;
  size_t count;
  size_t strip_stride;
};
/// acc[panels][strips][kStripTokens][16] += all panels times all strips.
using TileKernel = void (*)(const TilePanels& w, const TileStrips& x, float* acc);
/// Expands units to unpacked blocks (unpacked_layout()): float32 scales and one byte per code. 64-byte
/// aligned.
using UnpackKernel = void (*)(const std::byte* w, size_t units, std::byte* out);
/// Expands blocks [first, first + blocks) of a panel of any format to kBf16BlockBytes each, columns past
/// `cols` to zeros. `first` is a multiple of 8. 64-byte aligned.
using ExpandKernel = void (*)(const std::byte* panel, size_t cols, size_t first, size_t blocks,
                              std::byte* out);
/// One row of `cols` floats to ceil(cols / 32) records, `stride` bytes apart, columns past the end zero.
using QuantizeKernel = void (*)(const float* x, size_t cols, std::byte* out, size_t stride);

/// y[token][16] (row stride ldy) = acc[token][16] + bias[16], or += with `accumulate`; bias may be null. acc
/// is 64-byte aligned.
using StoreKernel = void (*)(const float* acc, size_t tokens, float* y, size_t ldy, const float* bias,
                             bool accumulate);

/// Multiplies as fast as the set can, from registers and the first-level cache; gives the multiply-adds that
/// it did.
using PeakKernel = uint64_t (*)(size_t rounds);

struct LinearKernels {
  Isa isa;
  size_t record_bytes[2];                                  // [Compute]
  QuantizeKernel quantize[2];                              // [Compute]
  DotKernel dot[kQuantFormats][2][kTokenCounts];           // [PackFormat][Compute][token_index]
  DotKernel dot_unpacked[kQuantFormats][2][kTokenCounts];  // on unpacked blocks of that format
  size_t wide_panels;                                      // 0: dot_wide is not there
  WideKernel dot_wide[kQuantFormats][2];                   // [PackFormat][Compute]
  size_t strip_tokens;                                     // records of that many tokens lie together
  TileKernel dot_tiles[kQuantFormats][2];                  // on unpacked blocks; null where no tiles are
  QuantizeKernel round_bf16;                               // of Compute::kBf16; null where no tiles are
  ExpandKernel expand[kPackFormats];                       // the same
  TileKernel dot_bf16;                                     // the same; on expanded panels
  UnpackKernel unpack[kQuantFormats];                      // [PackFormat]
  FloatDotKernel dot_float[3][kTokenCounts];               // [PackFormat - kF32][token_index]
  StoreKernel store;
  PeakKernel peak[3];  // [Compute]
};

/// The table of the active instruction set (scalar when active_isa() reports an error: ask it at start-up).
const LinearKernels& linear_kernels();
/// The table of one instruction set that available_isas() lists; scalar for one that this build does not
/// have.
const LinearKernels& linear_kernels_for(Isa isa);

namespace kernels {
// One per folder; call linear_kernels_for() instead.
const LinearKernels& scalar_linear();
const LinearKernels& avx2_linear();
const LinearKernels& avx512_linear();
const LinearKernels& amx_linear();
const LinearKernels& amx_model_linear();
const LinearKernels& neon_linear();
const LinearKernels& neon_dot_linear();
const LinearKernels& neon_i8mm_linear();
}  // namespace kernels

}  // namespace isthmus
