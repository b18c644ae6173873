// Making a screen (ops/screen.h): the basis from the second moments of vectors, the coarse copy of the matrix
// in it, and the constants of its bounds.
//
// The work is about rows * cols^2 multiply-adds, done by all threads of a pool; memory beside the result is
// some cols^2 float64 and 256 rows of float32. Errors: kUnsupported (Screen::refusal), kInternal, what `stop`
// says. The bytes depend on the basis alone, not on threads.
#pragma once

#include <span>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"
#include "ops/screen.h"

namespace isthmus {

/// Second moments of vectors of `cols` values.
class ScreenMoments {
 public:
  explicit ScreenMoments(size_t cols) : cols_(cols), sum_(cols * cols, 0.0F) {}
  /// Adds rows[n][cols]. Rows with values that are not finite are left out.
  void add(const float* rows, size_t n);
  size_t count() const { return count_; }
  size_t cols() const { return cols_; }
  std::vector<double> mean() const;

 private:
  size_t cols_;
  size_t count_ = 0;
  std::vector<float> sum_;  // the lower triangle
};

/// Directions by falling share of the vectors' energy, and those shares.
struct ScreenBasis {
  std::vector<float> directions;  // [cols][cols], a direction in each row
  std::vector<float> energy;      // [cols], > 0
  double defect = 0;              // Frobenius norm of D D' - 1
};
Result<ScreenBasis> screen_basis(const ScreenMoments& moments, const StopPolicy& stop = {});

/// Writes the screen of `matrix`, Screen::bytes() long, to `out` (64-byte aligned).
Status build_screen(const PackedMatrix& matrix, const ScreenBasis& basis, ThreadPool& pool,
                    const StopPolicy& stop, std::span<std::byte> out);

}  // namespace isthmus
