#include "kernels/generic/linear_table.h"
#include "kernels/scalar/linear_vec.h"

namespace isthmus::kernels {

const LinearKernels& scalar_linear() {
  static const LinearKernels table = [] {
    LinearKernels t{};
    t.isa = Isa::kScalar;
    fill_simple_formats<ScalarVec>(t);
    fill_super_formats<ScalarVec>(t);
    fill_rest<ScalarVec>(t);
    return t;
  }();
  return table;
}

}  // namespace isthmus::kernels
