#include "ops/kv_block.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/float_kernels.h"
#include "tensor/half.h"

namespace isthmus {
namespace {

constexpr std::array<KvTypeInfo, kKvTypes> kInfos = {{
    {KvType::kF32, "f32", 32, true},
    {KvType::kF16, "f16", 16, true},
    {KvType::kBF16, "bf16", 16, true},
    {KvType::kQ8, "q8_0", 8, false},
    {KvType::kKivi8, "kivi8", 8, false},
    {KvType::kKivi4, "kivi4", 4, false},
    {KvType::kKivi2, "kivi2", 2, false},
    {KvType::kKivi1, "kivi1", 1, false},
}};

constexpr size_t kPartAlign = 64;
/// Values of a row that are converted at once, on the stack.
constexpr size_t kChunk = 256;

/// Rounds n <= kChunk floats to the stored type; `out` has room for kChunk values.
void encode(KvType type, const float* x, size_t n, std::byte* out) {
  switch (type) {
    case KvType::kF32:
      std::memcpy(out, x, n * sizeof(float));
      return;
    case KvType::kF16:
      return float_kernels().f32_to_f16(x, n, reinterpret_cast<uint16_t*>(out));
    case KvType::kBF16:
      return float_kernels().f32_to_bf16(x, n, reinterpret_cast<uint16_t*>(out));
    default:
      return;  // not value by value
  }
}

void decode(KvType type, const std::byte* in, size_t n, float* out) {
  switch (type) {
    case KvType::kF32:
      std::memcpy(out, in, n * sizeof(float));
      return;
    case KvType::kF16:
      return float_kernels().f16_to_f32(reinterpret_cast<const uint16_t*>(in), n, out);
    case KvType::kBF16:
      return float_kernels().bf16_to_f32(reinterpret_cast<const uint16_t*>(in), n, out);
    default:
      return;
  }
}

/// One slot of one cell of a kQ8 part.
template <class Byte>
struct Q8Slot {
  Byte* codes;  // of the cell's first four dimensions (keys), or of its first (values)
  Byte* scale;
  size_t dims;
  size_t first;  // dimension of the head

  Q8Slot(Byte* block, KvPart part, size_t slot, size_t head_dim, size_t cell)
      : first(cell * kQ8Dims), part_(part) {
    Byte* at = block + cell * kQ8CellBytes;
    dims = std::min(kQ8Dims, (part == KvPart::kKey ? head_dim : padded_dim(head_dim)) - first);
    codes = part == KvPart::kKey ? at + 4 * slot : at + slot / 4 * 4 * dims + slot % 4;
    scale = at + kBlockKeys * dims + slot * sizeof(uint16_t);
  }
  Byte& code(size_t d) const {
    return part_ == KvPart::kKey ? codes[d / 4 * 4 * kBlockKeys + d % 4] : codes[4 * d];
  }

 private:
  KvPart part_;
};

void write_q8(KvPart part, std::byte* block, size_t slot, const float* row, size_t head_dim) {
  int8_t codes[kMaxHeadDim];
  uint16_t scales[q8_groups(kMaxHeadDim)];
  attention_kernels().quantize_q8(row, head_dim, codes, scales);
  std::fill(codes + head_dim, codes + padded_dim(head_dim), int8_t{0});
  const int zero = part == KvPart::kKey ? kQ8KeyZero : 0;
  for (size_t cell = 0; cell < q8_groups(head_dim); ++cell) {
    const Q8Slot<std::byte> to(block, part, slot, head_dim, cell);
    for (size_t d = 0; d < to.dims; ++d) to.code(d) = static_cast<std::byte>(codes[to.first + d] + zero);
    std::memcpy(to.scale, &scales[cell], sizeof(uint16_t));
  }
}

void read_q8(KvPart part, const std::byte* block, size_t slot, float* row, size_t head_dim) {
  for (size_t d = 0; d < head_dim; ++d) {
    const Q8Slot<const std::byte> from(block, part, slot, head_dim, d / kQ8Dims);
    uint16_t scale;
    std::memcpy(&scale, from.scale, sizeof(scale));
    const int stored = std::to_integer<int>(from.code(d - from.first));
    const int code = part == KvPart::kKey ? stored - kQ8KeyZero : static_cast<int8_t>(stored);
    row[d] = static_cast<float>(code) * f16_to_f32(scale);
  }
}

void copy_q8(KvPart part, const std::byte* from, size_t from_slot, std::byte* to, size_t to_slot,
             size_t head_dim) {
  for (size_t cell = 0; cell < q8_groups(head_dim); ++cell) {
    const Q8Slot<const std::byte> source(from, part, from_slot, head_dim, cell);
    const Q8Slot<std::byte> target(to, part, to_slot, head_dim, cell);
    for (size_t d = 0; d < source.dims; ++d) target.code(d) = source.code(d);
    std::memcpy(target.scale, source.scale, sizeof(uint16_t));
  }
}

/// One element and lane of a cell of a KIVI part; see KvType.
float read_cell(const std::byte* cell, int bits, size_t lanes, size_t element, size_t lane) {
  const size_t quads = 8 / static_cast<size_t>(bits);  // per byte
  const size_t quad = element / 4;
  const auto byte = std::to_integer<int>(cell[(quad / quads * lanes + lane) * 4 + element % 4]);
  const int code = byte >> (quad % quads * static_cast<size_t>(bits)) & ((1 << bits) - 1);
  uint16_t scales[2];
  const std::byte* at = cell + kivi_code_bytes(bits) + element * sizeof(uint16_t);
  std::memcpy(&scales[0], at, sizeof(uint16_t));
  std::memcpy(&scales[1], at + kBlockKeys * sizeof(uint16_t), sizeof(uint16_t));
  const int zero = bits == 8 ? kKiviByteZero : 0;
  return std::fma(static_cast<float>(code - zero), f16_to_f32(scales[0]), f16_to_f32(scales[1]));
}

void read_kivi(KvType type, KvPart part, const std::byte* block, size_t slot, float* row, size_t head_dim) {
  const int bits = kivi_bits(type);
  for (size_t d = 0; d < head_dim; ++d) {
    const std::byte* cell = block + d / 32 * kivi_cell_bytes(bits);
    const size_t lanes = std::min<size_t>(32, padded_dim(head_dim) - d / 32 * 32);
    row[d] = part == KvPart::kKey ? read_cell(cell, bits, kBlockKeys, d % 32, slot)
                                  : read_cell(cell, bits, lanes, slot, d % 32);
  }
}

/// Spreads `count` encoded rows (each kChunk values apart) over the columns of a K part: value d of row r
/// goes to [first_d + d][slot + r].
template <class Value>
void scatter(const std::byte* rows, size_t count, size_t n, size_t first_d, size_t slot, std::byte* block) {
  const Value* in = reinterpret_cast<const Value*>(rows);
  Value* out = reinterpret_cast<Value*>(block) + first_d * kBlockKeys + slot;
  for (size_t d = 0; d < n; ++d) {
    for (size_t r = 0; r < count; ++r) out[d * kBlockKeys + r] = in[r * kChunk + d];
  }
}

struct RowSource {
  const float* rows;
  size_t ld;
  size_t count;
};

void write_keys(KvType type, std::byte* block, size_t slot, RowSource source, size_t head_dim) {
  constexpr size_t kRows = 8;  // rows that are transposed together, through the stack
  alignas(64) std::array<std::byte, kRows * kChunk * sizeof(float)> buffer;
  const size_t value_bytes = kv_type_info(type).value_bits / 8;
  for (size_t r = 0; r < source.count; r += kRows) {
    const size_t rows = std::min(kRows, source.count - r);
    for (size_t d = 0; d < head_dim; d += kChunk) {
      const size_t n = std::min(kChunk, head_dim - d);
      for (size_t i = 0; i < rows; ++i) {
        encode(type, source.rows + (r + i) * source.ld + d, n, buffer.data() + i * kChunk * value_bytes);
      }
      if (value_bytes == 2) {
        scatter<uint16_t>(buffer.data(), rows, n, d, slot + r, block);
      } else {
        scatter<uint32_t>(buffer.data(), rows, n, d, slot + r, block);
      }
    }
  }
}

void write_values(KvType type, std::byte* block, size_t slot, RowSource source, size_t head_dim) {
  const size_t value_bytes = kv_type_info(type).value_bits / 8;
  const size_t stride = padded_dim(head_dim) * value_bytes;
  for (size_t r = 0; r < source.count; ++r) {
    std::byte* out = block + (slot + r) * stride;
    encode(type, source.rows + r * source.ld, head_dim, out);
    std::memset(out + head_dim * value_bytes, 0, stride - head_dim * value_bytes);
  }
}

}  // namespace

const KvTypeInfo& kv_type_info(KvType type) { return kInfos[static_cast<size_t>(type)]; }

std::optional<KvType> kv_type_from_name(std::string_view name) {
  for (const KvTypeInfo& info : kInfos) {
    if (info.name == name) return info.type;
  }
  return std::nullopt;
}

size_t kv_part_bytes(KvType type, KvPart part, size_t head_dim) {
  const size_t dim = part == KvPart::kKey ? head_dim : padded_dim(head_dim);
  if (is_kivi(type)) return kivi_cells(dim) * kivi_cell_bytes(kivi_bits(type));
  const size_t scales = type == KvType::kQ8 ? q8_groups(head_dim) * kBlockKeys * sizeof(uint16_t) : 0;
  const size_t bytes = dim * kBlockKeys * kv_type_info(type).value_bits / 8 + scales;
  return (bytes + kPartAlign - 1) / kPartAlign * kPartAlign;
}

void kv_write(KvType type, KvPart part, std::byte* block, size_t slot, const float* row, size_t head_dim) {
  kv_write_rows(type, part, block, slot, 1, row, head_dim, head_dim);
}

void kv_write_rows(KvType type, KvPart part, std::byte* block, size_t slot, size_t count, const float* rows,
                   size_t ld, size_t head_dim) {
  if (type == KvType::kQ8) {
    for (size_t r = 0; r < count; ++r) write_q8(part, block, slot + r, rows + r * ld, head_dim);
  } else if (part == KvPart::kKey) {
    write_keys(type, block, slot, {rows, ld, count}, head_dim);
  } else {
    write_values(type, block, slot, {rows, ld, count}, head_dim);
  }
}

void kv_copy(KvType type, KvPart part, const std::byte* from, size_t from_slot, std::byte* to, size_t to_slot,
             size_t count, size_t head_dim) {
  if (type == KvType::kQ8) {
    for (size_t i = 0; i < count; ++i) copy_q8(part, from, from_slot + i, to, to_slot + i, head_dim);
    return;
  }
  const size_t value = kv_type_info(type).value_bits / 8;
  const size_t row = padded_dim(head_dim) * value;
  if (part == KvPart::kValue) {
    std::memcpy(to + to_slot * row, from + from_slot * row, count * row);
  } else {
    for (size_t d = 0; d < head_dim; ++d) {
      std::memcpy(to + (d * kBlockKeys + to_slot) * value, from + (d * kBlockKeys + from_slot) * value,
                  count * value);
    }
  }
}

void kv_encode(KvType from_type, KvPart part, const std::byte* from, KvType type, std::byte* to,
               size_t head_dim) {
  alignas(64) static thread_local std::array<float, kMaxHeadDim * kBlockKeys> values;
  const AttentionKernels& kernels = attention_kernels();
  const auto source = static_cast<size_t>(from_type);
  const auto target = static_cast<size_t>(type);
  if (part == KvPart::kKey) {
    kernels.expand_keys[source](from, head_dim, values.data());
    kernels.encode_keys[target](values.data(), head_dim, to);
  } else {
    kernels.expand_values[source](from, padded_dim(head_dim), values.data());
    kernels.encode_values[target](values.data(), padded_dim(head_dim), to);
  }
}

void kv_read(KvType type, KvPart part, const std::byte* block, size_t slot, float* row, size_t head_dim) {
  if (type == KvType::kQ8) return read_q8(part, block, slot, row, head_dim);
  if (is_kivi(type)) return read_kivi(type, part, block, slot, row, head_dim);
  const size_t value_bytes = kv_type_info(type).value_bits / 8;
  if (part == KvPart::kValue) {
    return decode(type, block + slot * padded_dim(head_dim) * value_bytes, head_dim, row);
  }
  alignas(64) std::array<std::byte, kChunk * sizeof(float)> buffer;
  for (size_t d = 0; d < head_dim; d += kChunk) {
    const size_t n = std::min(kChunk, head_dim - d);
    for (size_t i = 0; i < n; ++i) {
      std::memcpy(buffer.data() + i * value_bytes, block + ((d + i) * kBlockKeys + slot) * value_bytes,
                  value_bytes);
    }
    decode(type, buffer.data(), n, row + d);
  }
}

}  // namespace isthmus
