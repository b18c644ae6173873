#include "kernels/avx2/linear_vec.h"
#include "kernels/generic/linear_table.h"

namespace isthmus::kernels {

void avx2_super_formats(LinearKernels& table);

const LinearKernels& avx2_linear() {
  static const LinearKernels table = [] {
    LinearKernels t{};
    t.isa = Isa::kAvx2;
    fill_simple_formats<Avx2Vec>(t);
    avx2_super_formats(t);
    fill_rest<Avx2Vec>(t);
    return t;
  }();
  return table;
}

}  // namespace isthmus::kernels
