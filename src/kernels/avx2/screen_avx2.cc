#include "kernels/generic/screen_impl.h"
#include "kernels/avx2/linear_vec.h"

namespace isthmus::kernels {

const ScreenKernels& avx2_screen() {
  static constexpr ScreenKernels kTable = screen_table<Avx2Vec>();
  return kTable;
}

}  // namespace isthmus::kernels
