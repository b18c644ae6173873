#include "ops/kv_block.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/float_kernels.h"

namespace isthmus {
namespace {

constexpr std::array<KvTypeInfo, kKvTypes> kInfos = {{
    {KvType::kF32, "f32", 4},
    {KvType::kF16, "f16", 2},
    {KvType::kBF16, "bf16", 2},
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
  const size_t value_bytes = kv_type_info(type).value_bytes;
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
  const size_t value_bytes = kv_type_info(type).value_bytes;
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
  const size_t bytes = dim * kBlockKeys * kv_type_info(type).value_bytes;
  return (bytes + kPartAlign - 1) / kPartAlign * kPartAlign;
}

void kv_write(KvType type, KvPart part, std::byte* block, size_t slot, const float* row, size_t head_dim) {
  kv_write_rows(type, part, block, slot, 1, row, head_dim, head_dim);
}

void kv_write_rows(KvType type, KvPart part, std::byte* block, size_t slot, size_t count, const float* rows,
                   size_t ld, size_t head_dim) {
  if (part == KvPart::kKey) {
    write_keys(type, block, slot, {rows, ld, count}, head_dim);
  } else {
    write_values(type, block, slot, {rows, ld, count}, head_dim);
  }
}

void kv_read(KvType type, KvPart part, const std::byte* block, size_t slot, float* row, size_t head_dim) {
  const size_t value_bytes = kv_type_info(type).value_bytes;
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
