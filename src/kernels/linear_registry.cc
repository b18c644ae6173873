#include "kernels/linear_kernels.h"

namespace isthmus {

const LinearKernels& linear_kernels_for(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx512Vnni:
      return kernels::avx512_linear();
#endif
    default:
      return kernels::scalar_linear();
  }
}

const LinearKernels& linear_kernels() {
  static const LinearKernels& table = [&]() -> const LinearKernels& {
    const auto isa = active_isa();
    return linear_kernels_for(isa.ok() ? isa.value() : Isa::kScalar);
  }();
  return table;
}

}  // namespace isthmus
