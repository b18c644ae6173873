// Eigenvectors of a symmetric matrix, for bases learnt from data (ops/screen_build.h).
//
// Householder's reduction to tridiagonal form, then the implicit QL iteration (Golub & Van Loan, Matrix
// Computations, 8.3), in float64: about 8 n^3 operations and three n x n matrices. The result is orthonormal
// to rounding error and as good as the input allows; whoever needs a guarantee measures it. Pure; any thread.
// Errors: kCorrupt when the matrix is not finite, kInternal when the iteration does not end, kCancelled and
// kDeadlineExceeded from `stop`.
#pragma once

#include <cstddef>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"

namespace isthmus {

struct Eigen {
  std::vector<double> values;   // [n], descending
  std::vector<double> vectors;  // [n][n], a vector in each row, in the order of the values
};

/// `matrix` is [n][n], symmetric.
Result<Eigen> symmetric_eigen(std::vector<double> matrix, size_t n, const StopPolicy& stop = {});

}  // namespace isthmus
