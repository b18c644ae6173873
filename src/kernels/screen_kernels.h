// Kernels of the first stage of the output head (ops/screen.h): a coarse product of every row of a matrix
// with one vector, and an upper bound of what the exact product can be.
//
// A screen panel holds 16 rows, 64-byte aligned: float scale_a[16], float scale_b[16], float spread[16], then
// `a_blocks` blocks of 32 columns as 8-bit codes (value = code - 128), then `b_blocks` blocks as 3-bit codes
// (value = code - 3.5), in the bit planes of panel_layout.h. Activations are records of Compute::kInt16 in
// the set's own layout, one per block, a-blocks first; all blocks of a group share one scale, so that the
// sums over a whole group are exact in int32 (at most kScreenMostA and kScreenMostB columns).
//
// Pure functions over the caller's memory, any thread. The integer sums are the same on every instruction
// set, and so are the floats made from them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"
#include "kernels/panel_layout.h"

namespace isthmus {

inline constexpr PanelLayout kScreenA = {8, 0, 7, 1, false, ScaleKind::kFloat, CodeTable::kNone, 1, 0};
inline constexpr PanelLayout kScreenB = {2, 1, 2, 1, false, ScaleKind::kFloat, CodeTable::kNone, 1, 0};
inline constexpr size_t kScreenHeadBytes = 3 * kPanelRows * sizeof(float);
/// 255 * 32512 * 128 and its zero point's share stay below 2^31; likewise 7 * 32512 * 6144.
inline constexpr size_t kScreenMostA = 128;
inline constexpr size_t kScreenMostB = 6144;
/// Panels that a kernel call reads at once.
inline constexpr size_t kScreenStreams = 4;

constexpr size_t screen_panel_bytes(size_t a_blocks, size_t b_blocks) {
  return kScreenHeadBytes + a_blocks * kScreenA.block_bytes() + b_blocks * kScreenB.block_bytes();
}

/// What a call needs of the vector.
struct ScreenVector {
  const std::byte* records;  // [a_blocks + b_blocks]
  size_t a_blocks;
  size_t b_blocks;
  int32_t nsum_a;  // -(sum of the group's values)
  int32_t nsum_b;
  float scale_a;
  float scale_b;
  float half_b;  // half the sum of group b's values
  float spread;  // what a row's spread is multiplied with
  float slack;   // added to every bound
};

/// estimate[s][16] and bound[s][16] (estimate + its bound) of the panels at panels[s].
using ScreenKernel = void (*)(const std::byte* const panels[kScreenStreams], const ScreenVector& x,
                              float* estimate, float* bound, size_t prefetch);
/// Writes values q[32] as one record.
using ScreenRecordKernel = void (*)(const int32_t* q, std::byte* out);
/// The values that the activations x[cols] have once quantised to Compute::kInt16.
using ScreenRoundKernel = void (*)(const float* x, size_t cols, float* out);

struct ScreenKernels {
  size_t record_bytes;
  ScreenRecordKernel record;
  ScreenRoundKernel round;
  ScreenKernel panels;
};

/// As linear_kernels() and linear_kernels_for().
const ScreenKernels& screen_kernels_for(Isa isa);

namespace kernels {
const ScreenKernels& scalar_screen();
const ScreenKernels& avx2_screen();
const ScreenKernels& avx512_screen();
const ScreenKernels& neon_screen();
const ScreenKernels& neon_dot_screen();
}  // namespace kernels

}  // namespace isthmus
