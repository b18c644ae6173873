// Super-blocks of 256 values: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS. Value i of group g is out[g * size + i];
// the loops below run over values in order and pick each one's bits from where quant_blocks.h says they lie.
#include "tensor/half.h"
#include "tensor/quant_impl.h"

namespace isthmus::quant {
namespace {

/// Two bits of value `i` in the layout that Q2_K, Q3_K (qs) and Q6_K (qh) share.
uint32_t two_bits(const uint8_t (&packed)[64], size_t i) {
  const size_t half = i / 128;
  const size_t shift = 2 * (i / 32 % 4);
  return (static_cast<uint32_t>(packed[32 * half + i % 32]) >> shift) & 3u;
}

/// Four bits of value `i` in the layout of Q4_K and Q5_K.
uint32_t four_bits(const uint8_t (&packed)[128], size_t i) {
  const size_t shift = 4 * (i / 32 % 2);
  return (static_cast<uint32_t>(packed[32 * (i / 64) + i % 32]) >> shift) & 15u;
}

/// One bit of value `i` in the layout of Q3_K (hmask) and Q5_K (qh).
uint32_t one_bit(const uint8_t (&packed)[32], size_t i) {
  return (static_cast<uint32_t>(packed[i % 32]) >> (i / 32)) & 1u;
}

}  // namespace

void dequantize(const BlockQ2_K& block, float* out) {
  const float d = f16_to_f32(block.d);
  const float dmin = f16_to_f32(block.dmin);
  for (size_t g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(block.scales[g] & 15);
    const float min = dmin * static_cast<float>(block.scales[g] >> 4);
    for (size_t i = 16 * g; i < 16 * g + 16; ++i) {
      out[i] = scale * static_cast<float>(two_bits(block.qs, i)) - min;
    }
  }
}

void dequantize(const BlockQ3_K& block, float* out) {
  const float d = f16_to_f32(block.d);
  const auto scales = unpack_scales_q3(block.scales);
  for (size_t g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(scales[g] - 32);
    for (size_t i = 16 * g; i < 16 * g + 16; ++i) {
      const int q = static_cast<int>(two_bits(block.qs, i) + 4 * one_bit(block.hmask, i)) - 4;
      out[i] = scale * static_cast<float>(q);
    }
  }
}

void dequantize(const BlockQ4_K& block, float* out) {
  const float d = f16_to_f32(block.d);
  const float dmin = f16_to_f32(block.dmin);
  const auto scales = unpack_scales_k(block.scales);
  for (size_t g = 0; g < 8; ++g) {
    const float scale = d * static_cast<float>(scales.scale[g]);
    const float min = dmin * static_cast<float>(scales.min[g]);
    for (size_t i = 32 * g; i < 32 * g + 32; ++i) {
      out[i] = scale * static_cast<float>(four_bits(block.qs, i)) - min;
    }
  }
}

void dequantize(const BlockQ5_K& block, float* out) {
  const float d = f16_to_f32(block.d);
  const float dmin = f16_to_f32(block.dmin);
  const auto scales = unpack_scales_k(block.scales);
  for (size_t g = 0; g < 8; ++g) {
    const float scale = d * static_cast<float>(scales.scale[g]);
    const float min = dmin * static_cast<float>(scales.min[g]);
    for (size_t i = 32 * g; i < 32 * g + 32; ++i) {
      const uint32_t q = four_bits(block.qs, i) + 16 * one_bit(block.qh, i);
      out[i] = scale * static_cast<float>(q) - min;
    }
  }
}

void dequantize(const BlockQ6_K& block, float* out) {
  const float d = f16_to_f32(block.d);
  for (size_t g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(block.scales[g]);
    for (size_t i = 16 * g; i < 16 * g + 16; ++i) {
      const uint32_t byte = block.ql[64 * (i / 128) + i % 64];
      const uint32_t low = i % 128 < 64 ? byte & 15u : byte >> 4;
      const int q = static_cast<int>(low | (two_bits(block.qh, i) << 4)) - 32;
      out[i] = scale * static_cast<float>(q);
    }
  }
}

void dequantize(const BlockIQ4_XS& block, float* out) {
  const float d = f16_to_f32(block.d);
  const auto scales = unpack_scales_iq4_xs(block);
  for (size_t g = 0; g < 8; ++g) {
    const float scale = d * static_cast<float>(scales[g] - 32);
    const uint8_t* qs = block.qs + 16 * g;
    for (size_t j = 0; j < 16; ++j) {
      out[32 * g + j] = scale * static_cast<float>(kIq4Values[qs[j] & 15]);
      out[32 * g + j + 16] = scale * static_cast<float>(kIq4Values[qs[j] >> 4]);
    }
  }
}

}  // namespace isthmus::quant
