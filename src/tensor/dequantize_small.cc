// Blocks of 32 values: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4.
#include <bit>

#include "tensor/half.h"
#include "tensor/quant_impl.h"

namespace isthmus::quant {
namespace {

/// Bit 4 of value `i`, in place.
uint32_t high_bit(const uint8_t (&qh)[4], size_t i) {
  return ((static_cast<uint32_t>(qh[i / 8]) >> (i % 8)) & 1u) << 4;
}

/// 2^(e - 128): half of the E8M0 scale, because kMxfp4Values holds doubled values. The two smallest are
/// subnormal.
float mxfp4_scale(uint8_t e) {
  const uint32_t bits = e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23;
  return std::bit_cast<float>(bits);
}

}  // namespace

void dequantize(const BlockQ4_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (size_t j = 0; j < 16; ++j) {
    out[j] = static_cast<float>((block.qs[j] & 15) - 8) * d;
    out[j + 16] = static_cast<float>((block.qs[j] >> 4) - 8) * d;
  }
}

void dequantize(const BlockQ4_1& block, float* out) {
  const float d = f16_to_f32(block.d);
  const float m = f16_to_f32(block.m);
  for (size_t j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(block.qs[j] & 15) * d + m;
    out[j + 16] = static_cast<float>(block.qs[j] >> 4) * d + m;
  }
}

void dequantize(const BlockQ5_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (size_t j = 0; j < 16; ++j) {
    const int low = static_cast<int>((block.qs[j] & 15u) | high_bit(block.qh, j)) - 16;
    const int high =
        static_cast<int>((static_cast<uint32_t>(block.qs[j]) >> 4) | high_bit(block.qh, j + 16)) - 16;
    out[j] = static_cast<float>(low) * d;
    out[j + 16] = static_cast<float>(high) * d;
  }
}

void dequantize(const BlockQ5_1& block, float* out) {
  const float d = f16_to_f32(block.d);
  const float m = f16_to_f32(block.m);
  for (size_t j = 0; j < 16; ++j) {
    const uint32_t low = (block.qs[j] & 15u) | high_bit(block.qh, j);
    const uint32_t high = (static_cast<uint32_t>(block.qs[j]) >> 4) | high_bit(block.qh, j + 16);
    out[j] = static_cast<float>(low) * d + m;
    out[j + 16] = static_cast<float>(high) * d + m;
  }
}

void dequantize(const BlockQ8_0& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (size_t j = 0; j < 32; ++j) out[j] = static_cast<float>(block.qs[j]) * d;
}

void dequantize(const BlockIQ4_NL& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (size_t j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(kIq4Values[block.qs[j] & 15]);
    out[j + 16] = d * static_cast<float>(kIq4Values[block.qs[j] >> 4]);
  }
}

void dequantize(const BlockMXFP4& block, float* out) {
  const float d = mxfp4_scale(block.e);
  for (size_t j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(kMxfp4Values[block.qs[j] & 15]);
    out[j + 16] = d * static_cast<float>(kMxfp4Values[block.qs[j] >> 4]);
  }
}

}  // namespace isthmus::quant
