#include "kernels/generic/screen_impl.h"
#include "kernels/neon/linear_vec.h"

namespace isthmus::kernels {

const ScreenKernels& neon_dot_screen() {
  static constexpr ScreenKernels kTable = screen_table<NeonVec>();
  return kTable;
}

}  // namespace isthmus::kernels
