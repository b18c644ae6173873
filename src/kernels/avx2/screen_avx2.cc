#include "kernels/avx2/linear_vec.h"
#include "kernels/generic/screen_impl.h"

namespace isthmus::kernels {

const ScreenKernels& avx2_screen() {
  static constexpr ScreenKernels kTable = screen_table<Avx2Vec>();
  return kTable;
}

}  // namespace isthmus::kernels
