#include "kernels/generic/linear_table.h"
#include "kernels/neon/linear_vec.h"

namespace isthmus::kernels {

void neon_super_formats(LinearKernels& table);

const LinearKernels& neon_linear() {
  static const LinearKernels table = [] {
    LinearKernels t{};
    t.isa = Isa::kNeon;
    fill_simple_formats<NeonVec>(t);
    neon_super_formats(t);
    fill_rest<NeonVec>(t);
    return t;
  }();
  return table;
}

}  // namespace isthmus::kernels
