// What tests may ask of the modelled tiles behind Isa::kAmxModel. There only where AVX-512 is (the float
// steps of the kernels use it). All of it is about the calling thread.
#pragma once

#include <cstdint>

namespace isthmus::kernels {

struct TileCounts {
  uint64_t config_loads = 0;  // times that the shapes were set
  uint64_t faults = 0;        // instructions that a processor would have refused
};
TileCounts amx_model_counts();

/// What TILERELEASE does: as if another user of the thread's tiles had been there.
void amx_model_release();

}  // namespace isthmus::kernels
