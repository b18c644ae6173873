#include "kernels/avx512/linear_vec.h"
#include "kernels/generic/linear_table.h"

namespace isthmus::kernels {

void avx512_super_formats(LinearKernels& table);

const LinearKernels& avx512_linear() {
  static const LinearKernels table = [] {
    LinearKernels t{};
    t.isa = Isa::kAvx512Vnni;
    fill_simple_formats<Avx512Vec>(t);
    avx512_super_formats(t);
    fill_rest<Avx512Vec>(t);
    return t;
  }();
  return table;
}

}  // namespace isthmus::kernels
