#include "ops/eigen.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace isthmus {
namespace {

constexpr int kMostSweeps = 60;

/// q[i] of the result = sum over rows r of v[r] * m[r][i], for rows and columns from `from` on.
void left_product(const std::vector<double>& m, size_t n, const double* v, size_t from, double* q) {
  std::fill(q + from, q + n, 0.0);
  for (size_t r = from; r < n; ++r) {
    const double factor = v[r];
    const double* row = m.data() + r * n;
    for (size_t i = from; i < n; ++i) q[i] += factor * row[i];
  }
}

/// The tridiagonal form T of a matrix A = Q T Q'.
class Tridiagonal {
 public:
  Tridiagonal(std::vector<double> a, size_t n)
      : n_(n), a_(std::move(a)), diagonal_(n), beside_(n), beta_(n), p_(n) {}

  Status reduce(const StopPolicy& stop) {
    for (size_t k = 0; k + 2 < n_; ++k) {
      if (k % 64 == 0) ISTHMUS_RETURN_IF_ERROR(stop.check());
      reflect(k);
    }
    for (size_t k = 0; k < n_; ++k) diagonal_[k] = a_[k * n_ + k];
    if (n_ >= 2) beside_[n_ - 2] = a_[(n_ - 1) * n_ + n_ - 2];
    return ok_status();
  }

  /// Q', a row for each column of Q.
  std::vector<double> basis() {
    std::vector<double> q(n_ * n_, 0.0);
    for (size_t i = 0; i < n_; ++i) q[i * n_ + i] = 1.0;
    for (size_t k = n_ < 2 ? 0 : n_ - 2; k-- > 0;) {
      const double* v = a_.data() + k * n_;  // where reflect() left it
      left_product(q, n_, v, k + 1, p_.data());
      for (size_t r = k + 1; r < n_; ++r) {
        const double factor = beta_[k] * v[r];
        double* row = q.data() + r * n_;
        for (size_t i = k + 1; i < n_; ++i) row[i] -= factor * p_[i];
      }
    }
    std::vector<double> out(n_ * n_);
    for (size_t r = 0; r < n_; ++r) {
      for (size_t i = 0; i < n_; ++i) out[i * n_ + r] = q[r * n_ + i];
    }
    return out;
  }

  std::vector<double>& diagonal() { return diagonal_; }
  std::vector<double>& beside() { return beside_; }  // [k]: between k and k + 1

 private:
  /// Clears row and column k beyond the neighbour of the diagonal; the reflection's vector stays in row k.
  void reflect(size_t k) {
    double* v = a_.data() + k * n_;
    double norm = 0;
    for (size_t i = k + 1; i < n_; ++i) norm += v[i] * v[i];
    norm = std::sqrt(norm);
    const double head = v[k + 1];
    beside_[k] = head > 0 ? -norm : norm;
    v[k + 1] = head - beside_[k];
    const double square = 2 * (norm * norm - head * beside_[k]);
    beta_[k] = square > 0 ? 2 / square : 0;
    if (beta_[k] == 0) return;
    left_product(a_, n_, v, k + 1, p_.data());
    double along = 0;
    for (size_t i = k + 1; i < n_; ++i) {
      p_[i] *= beta_[k];
      along += p_[i] * v[i];
    }
    for (size_t i = k + 1; i < n_; ++i) p_[i] -= beta_[k] / 2 * along * v[i];
    for (size_t r = k + 1; r < n_; ++r) {
      const double vr = v[r];
      const double pr = p_[r];
      double* row = a_.data() + r * n_;
      for (size_t i = k + 1; i < n_; ++i) row[i] -= vr * p_[i] + pr * v[i];
    }
  }

  const size_t n_;
  std::vector<double> a_;
  std::vector<double> diagonal_, beside_, beta_, p_;
};

void rotate_rows(double* upper, double* lower, size_t n, double c, double s) {
  for (size_t i = 0; i < n; ++i) {
    const double f = lower[i];
    lower[i] = s * upper[i] + c * f;
    upper[i] = c * upper[i] - s * f;
  }
}

/// One implicit QL step on the block [l, m] of the tridiagonal matrix (d, e), rotating the rows of z.
void ql_step(std::vector<double>& d, std::vector<double>& e, size_t l, size_t m, std::vector<double>& z) {
  const size_t n = d.size();
  double g = (d[l + 1] - d[l]) / (2 * e[l]);
  double r = std::hypot(g, 1.0);
  g = d[m] - d[l] + e[l] / (g + std::copysign(r, g));
  double s = 1;
  double c = 1;
  double p = 0;
  for (size_t i = m; i-- > l;) {
    const double f = s * e[i];
    const double b = c * e[i];
    r = std::hypot(f, g);
    e[i + 1] = r;
    if (r == 0) {  // the block falls apart here
      d[i + 1] -= p;
      e[m] = 0;
      return;
    }
    s = f / r;
    c = g / r;
    g = d[i + 1] - p;
    r = (d[i] - g) * s + 2 * c * b;
    p = s * r;
    d[i + 1] = g + p;
    g = c * r - b;
    rotate_rows(z.data() + i * n, z.data() + (i + 1) * n, n, c, s);
  }
  d[l] -= p;
  e[l] = g;
  e[m] = 0;
}

Status ql(std::vector<double>& d, std::vector<double>& e, std::vector<double>& z, const StopPolicy& stop) {
  const size_t n = d.size();
  for (size_t l = 0; l < n; ++l) {
    for (int sweep = 0;; ++sweep) {
      size_t m = l;
      while (m + 1 < n && std::fabs(e[m]) > 1e-16 * (std::fabs(d[m]) + std::fabs(d[m + 1]))) ++m;
      if (m == l) break;
      if (sweep == kMostSweeps) return internal_error("the eigenvalues do not converge");
      ISTHMUS_RETURN_IF_ERROR(stop.check());
      ql_step(d, e, l, m, z);
    }
  }
  return ok_status();
}

}  // namespace

Result<Eigen> symmetric_eigen(std::vector<double> matrix, size_t n, const StopPolicy& stop) {
  if (matrix.size() != n * n) return invalid_argument("the matrix is not square");
  if (!std::all_of(matrix.begin(), matrix.end(), [](double v) { return std::isfinite(v); })) {
    return corrupt("a value of the matrix is not finite");
  }
  Tridiagonal form(std::move(matrix), n);
  ISTHMUS_RETURN_IF_ERROR(form.reduce(stop));
  std::vector<double> z = form.basis();
  std::vector<double>& d = form.diagonal();
  ISTHMUS_RETURN_IF_ERROR(ql(d, form.beside(), z, stop));
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return d[a] > d[b]; });
  Eigen out;
  out.vectors.reserve(n * n);
  for (const size_t i : order) {
    out.values.push_back(d[i]);
    const auto row = z.begin() + static_cast<ptrdiff_t>(i * n);
    out.vectors.insert(out.vectors.end(), row, row + static_cast<ptrdiff_t>(n));
  }
  return out;
}

}  // namespace isthmus
