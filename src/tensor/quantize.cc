#include "tensor/quantize.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "tensor/half.h"
#include "tensor/quantize_fit.h"
#include "tensor/quantize_impl.h"

namespace isthmus {
namespace {

bool finite_half(uint16_t bits) { return (bits & 0x7c00) != 0x7c00; }

/// MXFP4 scales above this could stand for values beyond float.
constexpr uint8_t kMaxMxfp4Exponent = 251;

/// The scales of a block are such that all its values are finite.
template <class Block>
bool finite_scales(const Block& block) {
  bool finite = true;
  if constexpr (requires { block.d; }) finite = finite && finite_half(block.d);
  if constexpr (requires { block.m; }) finite = finite && finite_half(block.m);
  if constexpr (requires { block.dmin; }) finite = finite && finite_half(block.dmin);
  if constexpr (requires { block.e; }) finite = finite && block.e <= kMaxMxfp4Exponent;
  return finite;
}

Status too_large(DType type, size_t column) {
  return invalid_argument(
      fmt::format("values from column {} on are too large for type {}", column, dtype_info(type).name));
}

template <class Block, DType kType>
Status pack(const float* in, size_t cols, const float* importance, std::byte* out) {
  constexpr size_t kElems = sizeof(Block) > sizeof(BlockQ8_0) ? kSuperBlock : kSmallBlock;
  float weights[kElems];
  for (size_t b = 0; b < cols / kElems; ++b) {
    const float* x = in + b * kElems;
    quant::fit_weights(x, importance == nullptr ? nullptr : importance + b * kElems, kElems, weights);
    Block block;
    quant::quantize(x, weights, block);
    if (!finite_scales(block)) return too_large(kType, b * kElems);
    store_block(out, b, block);
  }
  return ok_status();
}

template <uint16_t (*narrow)(float), DType kType>
Status pack_half(const float* in, size_t cols, const float* /*importance*/, std::byte* out) {
  for (size_t i = 0; i < cols; ++i) {
    const uint16_t half = narrow(in[i]);
    const bool infinite = kType == DType::kF16 ? !finite_half(half) : (half & 0x7f80) == 0x7f80;
    if (infinite) return too_large(kType, i);
    store_block(out, i, half);
  }
  return ok_status();
}

Status pack_plain(const float* in, size_t cols, const float* /*importance*/, std::byte* out) {
  if (cols > 0) std::memcpy(out, in, cols * sizeof(float));
  return ok_status();
}

using PackFn = Status (*)(const float* in, size_t cols, const float* importance, std::byte* out);

PackFn packer(DType type) {
  switch (type) {
    case DType::kF32:
      return pack_plain;
    case DType::kF16:
      return pack_half<f32_to_f16, DType::kF16>;
    case DType::kBF16:
      return pack_half<f32_to_bf16, DType::kBF16>;
    case DType::kQ4_0:
      return pack<BlockQ4_0, DType::kQ4_0>;
    case DType::kQ4_1:
      return pack<BlockQ4_1, DType::kQ4_1>;
    case DType::kQ5_0:
      return pack<BlockQ5_0, DType::kQ5_0>;
    case DType::kQ5_1:
      return pack<BlockQ5_1, DType::kQ5_1>;
    case DType::kQ8_0:
      return pack<BlockQ8_0, DType::kQ8_0>;
    case DType::kQ2_K:
      return pack<BlockQ2_K, DType::kQ2_K>;
    case DType::kQ3_K:
      return pack<BlockQ3_K, DType::kQ3_K>;
    case DType::kQ4_K:
      return pack<BlockQ4_K, DType::kQ4_K>;
    case DType::kQ5_K:
      return pack<BlockQ5_K, DType::kQ5_K>;
    case DType::kQ6_K:
      return pack<BlockQ6_K, DType::kQ6_K>;
    case DType::kIQ4_NL:
      return pack<BlockIQ4_NL, DType::kIQ4_NL>;
    case DType::kIQ4_XS:
      return pack<BlockIQ4_XS, DType::kIQ4_XS>;
    case DType::kMXFP4:
      return pack<BlockMXFP4, DType::kMXFP4>;
    default:
      return nullptr;
  }
}

}  // namespace

bool can_quantize(DType type) { return packer(type) != nullptr; }

Status quantize_row(DType type, const float* in, size_t cols, const float* importance, std::byte* out) {
  const auto& info = dtype_info(type);
  const PackFn pack_row = packer(type);
  if (pack_row == nullptr) return unsupported(fmt::format("cannot write type {}", info.name));
  if (cols % info.block_elems != 0) {
    return invalid_argument(fmt::format("a row of {} values is not a whole number of {} blocks of {}", cols,
                                        info.name, info.block_elems));
  }
  for (size_t i = 0; i < cols; ++i) {
    if (!std::isfinite(in[i]))
      return invalid_argument(fmt::format("the value in column {} is not finite", i));
    if (importance != nullptr && !(importance[i] >= 0.0f && std::isfinite(importance[i]))) {
      return invalid_argument(fmt::format("the importance of column {} is not a finite number >= 0", i));
    }
  }
  return pack_row(in, cols, importance, out);
}

}  // namespace isthmus
