// Whether products of many tokens of class `int` go through tiles (kernels/amx/), where the instruction set
// has them. It changes no result, only time, so it is measured; a machine's tiles may be slower than they
// should be (a virtual machine, a shared core). Process-wide; setting it while products run is safe and takes
// effect at the next product.
#pragma once

#include "base/status.h"
#include "kernels/panel_layout.h"
#include "threads/pool.h"

namespace isthmus {

/// Tiles for activations of 8 and of 16 bits. At first both.
struct TilePlan {
  bool int8 = true;
  bool int16 = true;
};
/// What a measurement saw, in 10^9 multiply-accumulates a second over all threads.
struct TileSpeeds {
  double tiles_int8 = 0;
  double vectors_int8 = 0;
  double tiles_int16 = 0;
  double vectors_int16 = 0;
  /// The faster of each two.
  TilePlan plan() const { return {tiles_int8 >= vectors_int8, tiles_int16 >= vectors_int16}; }
};

/// Times products of some tokens with tiles and without; some milliseconds. kFailedPrecondition where the
/// active instruction set has no tile instructions (modelled ones are not timed), kResourceExhausted without
/// memory. The plan stays as it was.
Result<TileSpeeds> measure_tiles(ThreadPool& pool);

TilePlan tile_plan();
void set_tile_plan(const TilePlan& plan);
/// Whether the plan has tiles for activations of that kind.
bool use_int_tiles(Compute compute);

}  // namespace isthmus
