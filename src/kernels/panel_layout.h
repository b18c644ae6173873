// How a weight matrix lies in memory once packed: the one layout that every instruction set reads.
//
// A *panel* is 16 rows over all columns; panels follow each other in row order. Inside a panel the columns
// run in *blocks* of 32, and a *unit* is the smallest run of blocks that keeps everything 64-byte aligned (2,
// 4 or 8 blocks), so a panel is one ascending stream of units. A *vector* is 64 bytes: 16 rows x 4
// neighbouring columns, row-major in pieces of 4. Eight vectors ("groups" 0..7) make a block.
//
// Quantised values are stored as unsigned codes in bit planes. A plane of b bits is b vectors per block;
// vector h holds, at bit b * j, group h + b * j, for j in [0, 8 / b). A code has a low plane (2, 4 or 8 bits)
// and for some types a high plane (1 or 2 bits) above it. Its value is (code - zero) or, with a table,
// table[code].
//
// A unit is [scales][blocks]; a block is [low plane][high plane]. The scale area is, in this order:
//   kHalf    f16 scale[blocks][16], then if there is a minimum f16 min[blocks][16]
//   kE8m0    byte exponent[blocks][16], the scale being 2^(e - 128)
//   kSuper*  f16 d[16], f16 dmin[16] (zero where there is no minimum), then bytes per block:
//   scale[groups][16],
//            min[groups][16]; with kSuperNibble one byte holds both: scale in the low, min in the high nibble
// Rows past the matrix and columns past its width are zero codes with zero scales.
//
// Everything here is constexpr arithmetic on small numbers: no errors, any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace isthmus {

/// Raised whenever a packed byte changes its place or meaning: files of packed weights are keyed by it
/// (docs/formats/packed-cache.md).
inline constexpr uint32_t kPanelLayoutVersion = 1;

/// Precision of the activations of a matrix product.
enum class Compute : uint8_t {
  kInt8,   // 8 bits per value, one scale per block of 32
  kInt16,  // two 8-bit planes per value (about 15.9 bits), one scale per block of 32
  kF32,    // weights expanded to float32, float32 activations: the reference
  kBf16,   // both rounded to bfloat16, float32 sums in tiles: class `fast`, only where the set has tiles
};

/// What a packed matrix holds. The quantised ones come first, in the order of kPackFormats.
enum class PackFormat : uint8_t {
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kF32,
  kF16,
  kBF16,
};
inline constexpr size_t kQuantFormats = 13;
inline constexpr size_t kPackFormats = 16;

inline constexpr size_t kPanelRows = 16;
inline constexpr size_t kBlockCols = 32;
inline constexpr size_t kVectorBytes = 64;
inline constexpr size_t kVectorsPerBlock = 8;

enum class ScaleKind : uint8_t { kHalf, kE8m0, kSuperUnsigned, kSuperSigned, kSuperNibble, kFloat };
enum class CodeTable : uint8_t { kNone, kIq4, kMxfp4 };

/// The facts of one quantised format; offsets are in bytes from the start of a unit.
struct PanelLayout {
  int low_bits;     // 2, 4 or 8
  int high_bits;    // 0, 1 or 2
  int zero_shift;   // code - (1 << zero_shift) is the value; -1: the code is the value
  int groups;       // scales per block: 1 (32 columns each) or 2 (16 each)
  bool has_min;     // value = scale * code + min
  ScaleKind scale;  //
  CodeTable table;  // table entries are value + (1 << zero_shift)
  int unit_blocks;  // blocks per unit
  int code_limit;   // largest code when that is not a matter of the bits; 0 = it is

  constexpr int max_code() const {
    if (code_limit != 0) return code_limit;
    switch (table) {
      case CodeTable::kIq4:
        return 241;
      case CodeTable::kMxfp4:
        return 28;
      case CodeTable::kNone:
        break;
    }
    return (1 << (low_bits + high_bits)) - 1;
  }
  constexpr bool is_super() const {
    return scale == ScaleKind::kSuperUnsigned || scale == ScaleKind::kSuperSigned ||
           scale == ScaleKind::kSuperNibble;
  }
  constexpr size_t block_bytes() const { return static_cast<size_t>(low_bits + high_bits) * kVectorBytes; }
  /// Scale bytes that belong to one block, without the head of a super-block.
  constexpr size_t block_scale_bytes() const {
    const auto per_group = static_cast<size_t>(groups) * kPanelRows;
    switch (scale) {
      case ScaleKind::kHalf:
        return per_group * 2 * (has_min ? 2 : 1);
      case ScaleKind::kE8m0:
      case ScaleKind::kSuperSigned:
      case ScaleKind::kSuperNibble:
        return per_group;
      case ScaleKind::kSuperUnsigned:
        return per_group * (has_min ? 2 : 1);
      case ScaleKind::kFloat:
        return per_group * 4 * (has_min ? 2 : 1);
    }
    return 0;
  }
  /// f16 d and dmin of the 16 rows.
  constexpr size_t head_bytes() const { return is_super() ? 4 * kPanelRows : 0; }
  constexpr size_t scales_bytes() const {
    return head_bytes() + static_cast<size_t>(unit_blocks) * block_scale_bytes();
  }
  constexpr size_t unit_bytes() const {
    return scales_bytes() + static_cast<size_t>(unit_blocks) * block_bytes();
  }
  constexpr size_t unit_cols() const { return static_cast<size_t>(unit_blocks) * kBlockCols; }
};

/// The layout of a quantised format (not of kF32, kF16, kBF16: those are rows of 16 plain values per column).
constexpr PanelLayout panel_layout(PackFormat format) {
  using enum ScaleKind;
  using enum CodeTable;
  switch (format) {
    case PackFormat::kQ4_0:
      return {4, 0, 3, 1, false, kHalf, kNone, 2, 0};
    case PackFormat::kQ4_1:
      return {4, 0, -1, 1, true, kHalf, kNone, 2, 0};
    case PackFormat::kQ5_0:
      return {4, 1, 4, 1, false, kHalf, kNone, 2, 0};
    case PackFormat::kQ5_1:
      return {4, 1, -1, 1, true, kHalf, kNone, 2, 0};
    case PackFormat::kQ8_0:
      return {8, 0, 7, 1, false, kHalf, kNone, 2, 0};
    case PackFormat::kQ2_K:
      return {2, 0, -1, 2, true, kSuperNibble, kNone, 8, 0};
    case PackFormat::kQ3_K:
      return {2, 1, 2, 2, false, kSuperSigned, kNone, 8, 0};
    case PackFormat::kQ4_K:
      return {4, 0, -1, 1, true, kSuperUnsigned, kNone, 8, 0};
    case PackFormat::kQ5_K:
      return {4, 1, -1, 1, true, kSuperUnsigned, kNone, 8, 0};
    case PackFormat::kQ6_K:
      return {4, 2, 5, 2, false, kSuperSigned, kNone, 8, 0};
    case PackFormat::kIQ4_NL:
      return {4, 0, 7, 1, false, kHalf, kIq4, 2, 0};
    case PackFormat::kIQ4_XS:
      return {4, 0, 7, 1, false, kSuperSigned, kIq4, 8, 0};
    case PackFormat::kMXFP4:
      return {4, 0, 4, 1, false, kE8m0, kMxfp4, 4, 0};
    case PackFormat::kF32:
    case PackFormat::kF16:
    case PackFormat::kBF16:
      break;
  }
  return {8, 0, -1, 1, false, kFloat, kNone, 1, 0};
}

/// The unpacked form of a layout: a block is [float scale[groups][16]][float min[groups][16] if there is one]
/// [8 vectors of codes], codes and zero point as in the packed form.
constexpr PanelLayout unpacked_layout(const PanelLayout& packed) {
  return {8,
          0,
          packed.zero_shift,
          packed.groups,
          packed.has_min,
          ScaleKind::kFloat,
          CodeTable::kNone,
          1,
          packed.max_code()};
}

constexpr bool is_quantised(PackFormat format) { return static_cast<size_t>(format) < kQuantFormats; }

/// Units of a panel for a matrix of `cols` columns; for the plain formats a unit is one pair of columns.
constexpr size_t panel_units(PackFormat format, size_t cols) {
  const size_t unit_cols = is_quantised(format) ? panel_layout(format).unit_cols() : 2;
  return (cols + unit_cols - 1) / unit_cols;
}

/// Bytes of one panel, a multiple of 64.
constexpr size_t panel_bytes(PackFormat format, size_t cols) {
  const size_t units = panel_units(format, cols);
  if (is_quantised(format)) return units * panel_layout(format).unit_bytes();
  return units * 2 * kPanelRows * (format == PackFormat::kF32 ? 4 : 2);
}

constexpr size_t panel_count(size_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }

}  // namespace isthmus
