#include "ops/norm.h"

#include "kernels/float_kernels.h"

namespace isthmus {

void rms_norm_rows(const NormRows& rows, size_t first, size_t last, const float* weight, float eps) {
  const FloatKernels& kernels = float_kernels();
  for (size_t r = first; r < last; ++r) {
    kernels.rms_norm(rows.x + r * rows.ldx, weight, rows.n, eps, rows.out + r * rows.ldo);
  }
}

void rms_norm_heads(const NormRows& rows, size_t first, size_t last, const float* weight, float eps,
                    size_t head_dim) {
  const FloatKernels& kernels = float_kernels();
  for (size_t r = first; r < last; ++r) {
    for (size_t i = 0; i + head_dim <= rows.n; i += head_dim) {
      kernels.rms_norm(rows.x + r * rows.ldx + i, weight, head_dim, eps, rows.out + r * rows.ldo + i);
    }
  }
}

}  // namespace isthmus
