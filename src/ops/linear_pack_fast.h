// Packing at the speed of memory: whole units of 16 whole rows, by moving 4-byte words and swapping bits in
// them.
//
// Private to the packing of ops/linear.h. The bytes equal those of packing::pack_units() (linear_codes.h),
// the clear version, which also does what is not a whole unit. Pure; the source may have any alignment and
// any value.
#pragma once

#include <cstddef>

#include "kernels/panel_layout.h"

namespace isthmus::packing {

/// Packs one unit: `src` is its first byte in the first of 16 rows that lie `stride` bytes apart; `out` has
/// panel_layout(format).unit_bytes() bytes.
using PackUnit = void (*)(const std::byte* src, size_t stride, std::byte* out);

/// The fast packing of a format, or null where there is none.
PackUnit fast_pack_unit(PackFormat format);

}  // namespace isthmus::packing
