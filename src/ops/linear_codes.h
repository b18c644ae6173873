// From a GGUF block to the numbers that the packed layout stores: one row of one unit, decoded.
//
// Private to the packing of ops/linear.h. Pure; source bytes may have any alignment and any value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/panel_layout.h"

namespace isthmus::packing {

/// One row of one unit (at most 256 columns). Fields that the format does not have stay zero.
struct UnitRow {
  uint8_t codes[256];    // unsigned codes in column order
  uint16_t half[8];      // kHalf: f16 scale per block; super-blocks: half[0] = d
  uint16_t min[8];       // kHalf with a minimum: f16 per block; super-blocks: min[0] = dmin
  uint8_t scale[16];     // kE8m0: exponent per block; super-blocks: byte per scale group
  uint8_t group_min[8];  // kSuperUnsigned: byte per block
};

/// Decodes unit `unit` of the row at `row`, which has `cols` columns (whole GGUF blocks); columns past the
/// end are zero.
void decode_unit(PackFormat format, const std::byte* row, size_t cols, size_t unit, UnitRow* out);

/// Packs the units from `first_unit` to the last one of a panel: `src` is the first of `row_count` rows (1 to
/// 16), `stride` bytes apart; `out` is where the first of these units goes.
void pack_units(PackFormat format, const std::byte* src, size_t stride, size_t row_count, size_t cols,
                size_t first_unit, std::byte* out);

}  // namespace isthmus::packing
