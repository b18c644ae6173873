#include "kernels/generic/screen_impl.h"
#include "kernels/scalar/linear_vec.h"

namespace isthmus::kernels {

const ScreenKernels& scalar_screen() {
  static constexpr ScreenKernels kTable = screen_table<ScalarVec>();
  return kTable;
}

}  // namespace isthmus::kernels
