#include "kernels/amx/bf16_tiles.h"
#include "kernels/amx/linear_tiles.h"
#include "kernels/amx/tile_model.h"
#include "kernels/amx/tile_probe.h"

namespace isthmus::kernels {

const LinearKernels& amx_model_linear() {
  static const LinearKernels table = [] {
    LinearKernels t = avx512_linear();
    t.isa = Isa::kAmxModel;
    fill_tiles<ModelTiles>(t);
    fill_bf16<ModelTiles>(t);
    return t;
  }();
  return table;
}

TileCounts amx_model_counts() {
  return {ModelTiles::machine().config_loads(), ModelTiles::machine().faults()};
}

void amx_model_release() { ModelTiles::machine().release(); }

}  // namespace isthmus::kernels
