#include "kernels/screen_kernels.h"

namespace isthmus {

const ScreenKernels& screen_kernels_for(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx2:
      return kernels::avx2_screen();
    case Isa::kAvx512Vnni:
    case Isa::kAmx:
    case Isa::kAmxModel:
      return kernels::avx512_screen();
#elif defined(__aarch64__)
    case Isa::kNeon:
      return kernels::neon_screen();
    case Isa::kNeonDot:
    case Isa::kNeonI8mm:
      return kernels::neon_dot_screen();
#endif
    default:
      return kernels::scalar_screen();
  }
}

}  // namespace isthmus
