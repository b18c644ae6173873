// The tile instructions themselves, as the policy class that the kernels of linear_tiles.h are written over.
//
// Own assembly with exact operands, not the compiler's intrinsics: those of g++ 12 name 8 of the 64 bytes
// that LDTILECFG reads, so that stores to the others may be dropped, and name no memory at all for a load.
//
// use() asks the processor which shapes it has and changes them only when they are others. So a thread is
// configured once, and whatever may have happened to it since (another library with tiles of its own on a
// caller's thread, a fork) is seen. The tiles hold no data between two calls of a kernel.
#pragma once

#include "kernels/amx/tile_config.h"
#include "kernels/generic/inline.h"

namespace isthmus {
namespace {

struct HardwareTiles {
  static void use(const TileConfig& wanted) {
    TileConfig now;
    __asm__ volatile("sttilecfg %0" : "=m"(now));
    if (__builtin_memcmp(&now, &wanted, sizeof(now)) != 0) __asm__ volatile("ldtilecfg %0" : : "m"(wanted));
  }

  template <int kTile>
  static ISTHMUS_INLINE void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  /// Rows `stride` bytes apart.
  template <int kTile>
  static ISTHMUS_INLINE void load(const void* at, size_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(at), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static ISTHMUS_INLINE void store(void* at, size_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(at), "r"(stride), "i"(kTile) : "memory");
  }
  /// C += A B in int32: A signed bytes, B unsigned.
  template <int kC, int kA, int kB>
  static ISTHMUS_INLINE void dot_signed_unsigned() {
    __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }
  /// C += A B in float32, A and B pairs of bfloat16.
  template <int kC, int kA, int kB>
  static ISTHMUS_INLINE void dot_bf16() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }
};

}  // namespace
}  // namespace isthmus
