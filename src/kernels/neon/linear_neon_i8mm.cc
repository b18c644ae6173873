#include "kernels/neon/linear_pairs.h"

namespace isthmus::kernels {

const LinearKernels& neon_i8mm_linear() {
  static const LinearKernels table = [] {
    LinearKernels t = neon_dot_linear();
    t.isa = Isa::kNeonI8mm;
    t.wide_panels = 1;
    fill_pairs(t);
    return t;
  }();
  return table;
}

}  // namespace isthmus::kernels
