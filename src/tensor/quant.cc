#include "tensor/quant.h"

#include <fmt/format.h>

#include <cstring>

#include "tensor/half.h"
#include "tensor/quant_impl.h"

namespace isthmus {
namespace {

template <class Block>
void expand(const std::byte* row, size_t cols, float* out) {
  const size_t block_elems = sizeof(Block) > sizeof(BlockQ8_0) ? kSuperBlock : kSmallBlock;
  for (size_t b = 0; b < cols / block_elems; ++b) {
    quant::dequantize(load_block<Block>(row, b), out + b * block_elems);
  }
}

template <float (*widen)(uint16_t)>
void expand_half(const std::byte* row, size_t cols, float* out) {
  for (size_t i = 0; i < cols; ++i) out[i] = widen(load_block<uint16_t>(row, i));
}

using ExpandFn = void (*)(const std::byte* row, size_t cols, float* out);

ExpandFn expander(DType type) {
  switch (type) {
    case DType::kF32:
      return
          [](const std::byte* row, size_t cols, float* out) { std::memcpy(out, row, cols * sizeof(float)); };
    case DType::kF16:
      return expand_half<f16_to_f32>;
    case DType::kBF16:
      return expand_half<bf16_to_f32>;
    case DType::kQ4_0:
      return expand<BlockQ4_0>;
    case DType::kQ4_1:
      return expand<BlockQ4_1>;
    case DType::kQ5_0:
      return expand<BlockQ5_0>;
    case DType::kQ5_1:
      return expand<BlockQ5_1>;
    case DType::kQ8_0:
      return expand<BlockQ8_0>;
    case DType::kQ2_K:
      return expand<BlockQ2_K>;
    case DType::kQ3_K:
      return expand<BlockQ3_K>;
    case DType::kQ4_K:
      return expand<BlockQ4_K>;
    case DType::kQ5_K:
      return expand<BlockQ5_K>;
    case DType::kQ6_K:
      return expand<BlockQ6_K>;
    case DType::kIQ4_NL:
      return expand<BlockIQ4_NL>;
    case DType::kIQ4_XS:
      return expand<BlockIQ4_XS>;
    case DType::kMXFP4:
      return expand<BlockMXFP4>;
    default:
      return nullptr;
  }
}

}  // namespace

Status dequantize_row(DType type, const std::byte* row, size_t cols, float* out) {
  const auto& info = dtype_info(type);
  const ExpandFn expand_row = expander(type);
  if (expand_row == nullptr) return unsupported(fmt::format("cannot dequantise type {}", info.name));
  if (cols % info.block_elems != 0) {
    return invalid_argument(fmt::format("a row of {} values is not a whole number of {} blocks of {}", cols,
                                        info.name, info.block_elems));
  }
  expand_row(row, cols, out);
  return ok_status();
}

}  // namespace isthmus
