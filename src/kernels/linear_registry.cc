#include "kernels/linear_kernels.h"

namespace isthmus {

const LinearKernels& linear_kernels_for(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2:
      return kernels::avx2_linear();
    case Isa::kAvx512Vnni:
      return kernels::avx512_linear();
    case Isa::kAmx:
      return kernels::amx_linear();
    case Isa::kAmxModel:
      return kernels::amx_model_linear();
#elif defined(__aarch64__)
    case Isa::kNeon:
      return kernels::neon_linear();
    case Isa::kNeonDot:
      return kernels::neon_dot_linear();
    case Isa::kNeonI8mm:
      return kernels::neon_i8mm_linear();
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
