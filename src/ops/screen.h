// The exact two-stage output head: which rows of a large matrix can be among the k best products with one
// vector, found by reading about 0.4 of its bytes, and those rows' products exactly as linear() gives them.
//
// A *screen* is a coarse copy of the matrix in another orthonormal basis: the first `a_cols` directions in 8
// bits, the others in 3. Its product with the rotated vector estimates each row's product; Cauchy-Schwarz on
// what the codes leave out, weighted by direction, bounds the error, and the rounding of every float step is
// accounted for in the bound (docs/output-head.md derives it). Stage 1 computes estimate and bound of all
// rows; the rows with the k best estimates are computed exactly and their k-th best product is a threshold;
// stage 2 computes exactly all panels with a row whose bound reaches it. Any orthonormal basis is right; a
// good one, learnt from vectors of the kind that will come, makes stage 2 small.
//
// A screen is a view over its bytes, immutable and shared by threads; a ScreenScratch belongs to one stream
// of steps. No function here waits but at the barriers of its Worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/screen_kernels.h"
#include "ops/linear.h"

namespace isthmus {

/// Raised whenever a byte of a screen changes its place or meaning.
inline constexpr uint32_t kScreenVersion = 1;
/// Most rows that can be asked for.
inline constexpr size_t kScreenMostBest = 64;

/// At the start of a screen's bytes, followed at multiples of 64 bytes by float column_scale[cols], float
/// weight[cols] (1 / M of the bound), the rotation as a packed F32 matrix [cols, cols] and the panels.
struct ScreenHeader {
  uint32_t version;
  uint32_t a_cols;
  uint64_t rows;
  uint64_t cols;
  float slack_a;  // largest norm of a row's codes times its scale, per group
  float slack_b;
  float reach;  // the least spread is the vector's norm over this: carries the rounding of floats
  uint32_t pad[7];
};
static_assert(sizeof(ScreenHeader) == 64);

class Screen {
 public:
  /// Why there can be no screen for a matrix like this; empty when there can.
  static std::string refusal(PackFormat format, size_t rows, size_t cols);
  /// Columns of the fine group for a matrix of `cols` columns.
  static size_t fine_cols(size_t cols);
  /// Bytes of the screen of a matrix, a multiple of 64.
  static uint64_t bytes(size_t rows, size_t cols);
  /// A view of `data` (64-byte aligned, outlives it) for `matrix`, which also outlives it. kCorrupt when the
  /// bytes are no screen of a matrix of that shape.
  static Result<Screen> view(const PackedMatrix& matrix, std::span<const std::byte> data);

  const PackedMatrix& matrix() const { return matrix_; }
  const ScreenHeader& header() const { return *header_; }
  size_t a_blocks() const { return header_->a_cols / kBlockCols; }
  size_t b_blocks() const { return (matrix_.cols + kBlockCols - 1) / kBlockCols - a_blocks(); }
  const float* column_scale() const { return column_scale_; }
  const float* weight() const { return weight_; }
  const PackedMatrix& rotation() const { return rotation_; }
  const std::byte* panel(size_t i) const { return panels_ + i * panel_bytes_; }
  size_t panel_bytes() const { return panel_bytes_; }

 private:
  Screen() = default;
  PackedMatrix matrix_{};
  PackedMatrix rotation_{};
  const ScreenHeader* header_ = nullptr;
  const float* column_scale_ = nullptr;
  const float* weight_ = nullptr;
  const std::byte* panels_ = nullptr;
  size_t panel_bytes_ = 0;
};

/// Where the parts of a screen lie.
struct ScreenOffsets {
  uint64_t column_scale, weight, rotation, panels, total;
};
ScreenOffsets screen_offsets(size_t rows, size_t cols);

/// What became of one vector.
enum class ScreenOutcome : uint8_t {
  kExact,  // the k best are there
  kFull,   // too many panels were in play, or a value is not finite: all products were computed
};

/// Working memory of screen_best() for one matrix and number of threads.
class ScreenScratch {
 public:
  /// kResourceExhausted when there is no memory.
  static Result<std::unique_ptr<ScreenScratch>> create(size_t rows, size_t cols, size_t threads);
  ~ScreenScratch();

  /// Of the call that all threads have finished.
  ScreenOutcome outcome() const;
  /// Panels that were computed exactly in stage 2.
  size_t touched_panels() const;

 private:
  friend class ScreenRun;
  struct Impl;
  explicit ScreenScratch(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Share of the panels above which all products are computed instead of stage 2.
inline constexpr double kScreenMostTouched = 0.3;

/// products[rows]: the k best products of the screen's matrix with the one token of `x` (Compute::kInt16,
/// quantised) as linear() gives them, ties and all; any other product is either exact too or -infinity. 1 <=
/// k <= kScreenMostBest. Called by every thread of a region; complete after the caller's next barrier.
void screen_best(const Screen& screen, const Activations& x, size_t k, float* products,
                 ScreenScratch& scratch, Worker& worker);

}  // namespace isthmus
