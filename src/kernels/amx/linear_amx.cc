#include "kernels/amx/bf16_tiles.h"
#include "kernels/amx/linear_tiles.h"
#include "kernels/amx/tiles_hardware.h"

namespace isthmus::kernels {

const LinearKernels& amx_linear() {
  static const LinearKernels table = [] {
    LinearKernels t = avx512_linear();
    t.isa = Isa::kAmx;
    fill_tiles<HardwareTiles>(t);
    fill_bf16<HardwareTiles>(t);
    return t;
  }();
  return table;
}

}  // namespace isthmus::kernels
