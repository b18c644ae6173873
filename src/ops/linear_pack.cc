// Packing of weight matrices and reading of single rows: the layout of kernels/panel_layout.h.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/checked.h"
#include "ops/linear.h"
#include "ops/linear_codes.h"
#include "ops/linear_pack_fast.h"
#include "tensor/half.h"
#include "tensor/quant.h"
#include "tensor/quant_blocks.h"

namespace isthmus {
namespace {

/// `row_count` rows (1..16) of `stride` bytes to one panel.
void pack_quantised(PackFormat format, DType type, const std::byte* src, size_t stride, size_t row_count,
                    size_t cols, std::byte* out) {
  const PanelLayout layout = panel_layout(format);
  const packing::PackUnit fast = row_count == kPanelRows ? packing::fast_pack_unit(format) : nullptr;
  const size_t whole = fast != nullptr ? cols / layout.unit_cols() : 0;
  const size_t src_bytes = row_bytes(type, layout.unit_cols()).value();
  for (size_t unit = 0; unit < whole; ++unit, out += layout.unit_bytes()) {
    fast(src + unit * src_bytes, stride, out);
  }
  packing::pack_units(format, src, stride, row_count, cols, whole, out);
}

template <class T>
void scatter_plain(const T* values, size_t count, size_t col, size_t row, std::byte* out) {
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(out + ((col + i) * kPanelRows + row) * sizeof(T), values + i, sizeof(T));
  }
}

/// Plain formats; kF32 takes any type, expanding it piece by piece.
Status pack_plain(PackFormat format, DType type, const std::byte* src, size_t stride, size_t row_count,
                  size_t cols, std::byte* out) {
  std::memset(out, 0, panel_bytes(format, cols));
  const auto& info = dtype_info(type);
  constexpr size_t kStep = 256;  // a whole number of blocks of every type
  for (size_t r = 0; r < row_count; ++r) {
    for (size_t col = 0; col < cols; col += kStep) {
      const size_t count = std::min(kStep, cols - col);
      const std::byte* from = src + r * stride + col / info.block_elems * info.block_bytes;
      if (format == PackFormat::kF32) {
        float values[kStep];
        ISTHMUS_RETURN_IF_ERROR(dequantize_row(type, from, count, values));
        scatter_plain(values, count, col, r, out);
      } else {
        uint16_t values[kStep];
        std::memcpy(values, from, count * sizeof(uint16_t));
        scatter_plain(values, count, col, r, out);
      }
    }
  }
  return ok_status();
}

/// Reads one row's fields of one unit back from the packed form.
class UnitReader {
 public:
  UnitReader(const PanelLayout& layout, const std::byte* unit, size_t row)
      : layout_(layout), unit_(unit), row_(row) {}

  float scale(size_t block, size_t group) const {
    switch (layout_.scale) {
      case ScaleKind::kHalf:
        return half(block * kPanelRows + row_);
      case ScaleKind::kE8m0: {
        const auto e = byte_at(block * kPanelRows + row_);
        return std::bit_cast<float>(e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23);
      }
      case ScaleKind::kSuperUnsigned:
        return half(row_) * static_cast<float>(group_byte(block, group));
      case ScaleKind::kSuperSigned:
        return half(row_) * static_cast<float>(std::bit_cast<int8_t>(group_byte(block, group)));
      case ScaleKind::kSuperNibble:
        return half(row_) * static_cast<float>(group_byte(block, group) & 15);
      case ScaleKind::kFloat:
        break;
    }
    return 0.0f;
  }

  float min(size_t block, size_t group) const {
    const auto blocks = static_cast<size_t>(layout_.unit_blocks);
    if (layout_.scale == ScaleKind::kHalf) return half((blocks + block) * kPanelRows + row_);
    const uint8_t factor = layout_.scale == ScaleKind::kSuperNibble
                               ? static_cast<uint8_t>(group_byte(block, group) >> 4)
                               : group_byte(block, static_cast<size_t>(layout_.groups) + group);
    return -(half(kPanelRows + row_) * static_cast<float>(factor));
  }

  int value(size_t block, size_t col) const {
    const size_t group = col / 4;
    const size_t at = layout_.scales_bytes() + block * layout_.block_bytes();
    int code = plane(at, layout_.low_bits, group, col % 4);
    if (layout_.high_bits > 0) {
      const size_t high = at + static_cast<size_t>(layout_.low_bits) * kVectorBytes;
      code |= plane(high, layout_.high_bits, group, col % 4) << layout_.low_bits;
    }
    if (layout_.table == CodeTable::kIq4) return kIq4Values[static_cast<size_t>(code)];
    if (layout_.table == CodeTable::kMxfp4) return kMxfp4Values[static_cast<size_t>(code)];
    return layout_.zero_shift < 0 ? code : code - (1 << layout_.zero_shift);
  }

 private:
  uint8_t byte_at(size_t at) const { return std::to_integer<uint8_t>(unit_[at]); }
  float half(size_t index) const {
    uint16_t bits;
    std::memcpy(&bits, unit_ + 2 * index, sizeof(bits));
    return f16_to_f32(bits);
  }
  uint8_t group_byte(size_t block, size_t group) const {
    return byte_at(layout_.head_bytes() + block * layout_.block_scale_bytes() + group * kPanelRows + row_);
  }
  int plane(size_t at, int bits, size_t group, size_t col) const {
    const auto b = static_cast<size_t>(bits);
    const int byte = byte_at(at + group % b * kVectorBytes + row_ * 4 + col);
    return (byte >> (b * (group / b))) & ((1 << bits) - 1);
  }

  const PanelLayout layout_;
  const std::byte* unit_;
  size_t row_;
};

void unpack_quantised(const PackedMatrix& matrix, const std::byte* panel, size_t row, float* out) {
  const PanelLayout layout = panel_layout(matrix.format);
  const size_t group_cols = kBlockCols / static_cast<size_t>(layout.groups);
  for (size_t col = 0; col < matrix.cols; col += group_cols) {
    const size_t unit = col / layout.unit_cols();
    const size_t block = col % layout.unit_cols() / kBlockCols;
    const size_t first = col % kBlockCols;
    const UnitReader reader(layout, panel + unit * layout.unit_bytes(), row);
    const float scale = reader.scale(block, first / group_cols);
    const float min = layout.has_min ? reader.min(block, first / group_cols) : 0.0f;
    for (size_t i = 0; i < group_cols; ++i) {
      const float product = scale * static_cast<float>(reader.value(block, first + i));
      out[col + i] = layout.has_min ? product + min : product;
    }
  }
}

void unpack_plain(const PackedMatrix& matrix, const std::byte* panel, size_t row, float* out) {
  for (size_t col = 0; col < matrix.cols; ++col) {
    const size_t index = col * kPanelRows + row;
    if (matrix.format == PackFormat::kF32) {
      std::memcpy(out + col, panel + 4 * index, sizeof(float));
      continue;
    }
    uint16_t bits;
    std::memcpy(&bits, panel + 2 * index, sizeof(bits));
    out[col] = matrix.format == PackFormat::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
}

}  // namespace

Result<PackFormat> pack_format(DType type, Compute compute) {
  const auto& info = dtype_info(type);
  if (!info.computable) {
    return unsupported(fmt::format("no kernels for matrices of type {}", info.name));
  }
  if (compute == Compute::kF32) return PackFormat::kF32;
  switch (type) {
    case DType::kF32:
      return PackFormat::kF32;
    case DType::kF16:
      return PackFormat::kF16;
    case DType::kBF16:
      return PackFormat::kBF16;
    case DType::kQ4_0:
      return PackFormat::kQ4_0;
    case DType::kQ4_1:
      return PackFormat::kQ4_1;
    case DType::kQ5_0:
      return PackFormat::kQ5_0;
    case DType::kQ5_1:
      return PackFormat::kQ5_1;
    case DType::kQ8_0:
      return PackFormat::kQ8_0;
    case DType::kQ2_K:
      return PackFormat::kQ2_K;
    case DType::kQ3_K:
      return PackFormat::kQ3_K;
    case DType::kQ4_K:
      return PackFormat::kQ4_K;
    case DType::kQ5_K:
      return PackFormat::kQ5_K;
    case DType::kQ6_K:
      return PackFormat::kQ6_K;
    case DType::kIQ4_NL:
      return PackFormat::kIQ4_NL;
    case DType::kIQ4_XS:
      return PackFormat::kIQ4_XS;
    case DType::kMXFP4:
      return PackFormat::kMXFP4;
    default:
      return unsupported(fmt::format("no kernels for matrices of type {}", info.name));
  }
}

Result<size_t> packed_bytes(DType type, size_t rows, size_t cols, Compute compute) {
  ISTHMUS_ASSIGN_OR_RETURN(const PackFormat format, pack_format(type, compute));
  const auto& info = dtype_info(type);
  if (cols % info.block_elems != 0) {
    return invalid_argument(
        fmt::format("rows of {} values are not whole {} blocks of {}", cols, info.name, info.block_elems));
  }
  // A column takes at most 64 bytes of a panel, and padding is below 256 columns.
  constexpr size_t kMost = (SIZE_MAX >> 8) - 256;
  const auto total = cols > kMost || rows > SIZE_MAX - kPanelRows
                         ? std::nullopt
                         : checked_mul(panel_count(rows), panel_bytes(format, cols));
  if (!total) return invalid_argument(fmt::format("a {} x {} matrix is too large", rows, cols));
  return *total;
}

Status pack_panels(DType type, const std::byte* src_rows, size_t rows, size_t cols, Compute compute,
                   size_t first_panel, size_t last_panel, std::byte* dst) {
  ISTHMUS_ASSIGN_OR_RETURN(const PackFormat format, pack_format(type, compute));
  ISTHMUS_RETURN_IF_ERROR(packed_bytes(type, rows, cols, compute).status());
  if (first_panel > last_panel || last_panel > panel_count(rows)) {
    return invalid_argument(
        fmt::format("panels {} to {} of a matrix of {} rows", first_panel, last_panel, rows));
  }
  const size_t stride = row_bytes(type, cols).value();
  const size_t bytes = panel_bytes(format, cols);
  for (size_t panel = first_panel; panel < last_panel; ++panel) {
    const std::byte* src = src_rows + (panel - first_panel) * kPanelRows * stride;
    const size_t row_count = std::min(kPanelRows, rows - panel * kPanelRows);
    if (is_quantised(format)) {
      pack_quantised(format, type, src, stride, row_count, cols, dst + panel * bytes);
    } else {
      ISTHMUS_RETURN_IF_ERROR(pack_plain(format, type, src, stride, row_count, cols, dst + panel * bytes));
    }
  }
  return ok_status();
}

void unpack_row(const PackedMatrix& matrix, size_t row, float* out) {
  const std::byte* panel = matrix.data + row / kPanelRows * panel_bytes(matrix.format, matrix.cols);
  if (is_quantised(matrix.format)) {
    unpack_quantised(matrix, panel, row % kPanelRows, out);
  } else {
    unpack_plain(matrix, panel, row % kPanelRows, out);
  }
}

}  // namespace isthmus
