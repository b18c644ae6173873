// The clear version of packing: any format, any number of rows, any width; linear_pack_fast.cc is the fast
// one.
#include <algorithm>
#include <cstring>

#include "ops/linear_codes.h"

namespace isthmus::packing {
namespace {

using BlockCodes = uint8_t[kVectorsPerBlock][kVectorBytes];  // [group][row * 4 + column in group]

/// Writes the plane of `bits` bits that starts at bit `from` of the codes: `bits` vectors.
void write_plane(const BlockCodes& codes, int bits, int from, std::byte* out) {
  const uint64_t mask = 0x0101010101010101ull * ((1ull << bits) - 1);
  for (size_t h = 0; h < static_cast<size_t>(bits); ++h, out += kVectorBytes) {
    for (size_t word = 0; word < kVectorBytes; word += 8) {
      uint64_t packed = 0;
      for (size_t j = 0; h + static_cast<size_t>(bits) * j < kVectorsPerBlock; ++j) {
        uint64_t group;
        std::memcpy(&group, codes[h + static_cast<size_t>(bits) * j] + word, sizeof(group));
        packed |= ((group >> from) & mask) << (static_cast<size_t>(bits) * j);
      }
      std::memcpy(out + word, &packed, sizeof(packed));
    }
  }
}

void store_half(std::byte* out, size_t index, uint16_t bits) {
  std::memcpy(out + 2 * index, &bits, sizeof(bits));
}

void write_scales(const PanelLayout& layout, const UnitRow (&rows)[kPanelRows], std::byte* out) {
  const auto blocks = static_cast<size_t>(layout.unit_blocks);
  const auto groups = static_cast<size_t>(layout.groups);
  for (size_t r = 0; r < kPanelRows; ++r) {
    const UnitRow& row = rows[r];
    if (layout.scale == ScaleKind::kHalf) {
      for (size_t b = 0; b < blocks; ++b) {
        store_half(out, b * kPanelRows + r, row.half[b]);
        if (layout.has_min) store_half(out, (blocks + b) * kPanelRows + r, row.min[b]);
      }
      continue;
    }
    if (layout.is_super()) {
      store_half(out, r, row.half[0]);
      store_half(out, kPanelRows + r, row.min[0]);
    }
    std::byte* bytes = out + layout.head_bytes() + r;
    for (size_t b = 0; b < blocks; ++b, bytes += layout.block_scale_bytes()) {
      for (size_t g = 0; g < groups; ++g) bytes[g * kPanelRows] = std::byte{row.scale[b * groups + g]};
      if (layout.scale == ScaleKind::kSuperUnsigned) bytes[groups * kPanelRows] = std::byte{row.group_min[b]};
    }
  }
}

void write_unit(const PanelLayout& layout, const UnitRow (&rows)[kPanelRows], std::byte* out) {
  write_scales(layout, rows, out);
  out += layout.scales_bytes();
  for (size_t b = 0; b < static_cast<size_t>(layout.unit_blocks); ++b, out += layout.block_bytes()) {
    BlockCodes codes;
    for (size_t g = 0; g < kVectorsPerBlock; ++g) {
      for (size_t r = 0; r < kPanelRows; ++r) {
        std::memcpy(codes[g] + 4 * r, rows[r].codes + b * kBlockCols + 4 * g, 4);
      }
    }
    write_plane(codes, layout.low_bits, 0, out);
    if (layout.high_bits > 0) {
      write_plane(codes, layout.high_bits, layout.low_bits,
                  out + static_cast<size_t>(layout.low_bits) * kVectorBytes);
    }
  }
}

}  // namespace

void pack_units(PackFormat format, const std::byte* src, size_t stride, size_t row_count, size_t cols,
                size_t first_unit, std::byte* out) {
  const PanelLayout layout = panel_layout(format);
  UnitRow rows[kPanelRows];
  std::memset(rows, 0, sizeof(rows));
  for (size_t unit = first_unit; unit < panel_units(format, cols); ++unit, out += layout.unit_bytes()) {
    for (size_t r = 0; r < row_count; ++r) decode_unit(format, src + r * stride, cols, unit, &rows[r]);
    write_unit(layout, rows, out);
  }
}

}  // namespace isthmus::packing
