#include "kernels/avx512/linear_vec.h"
#include "kernels/generic/screen_impl.h"

namespace isthmus::kernels {

const ScreenKernels& avx512_screen() {
  static constexpr ScreenKernels kTable = screen_table<Avx512Vec>();
  return kTable;
}

}  // namespace isthmus::kernels
