// Scalar conversions between float and the two 16-bit float formats: IEEE binary16 ("f16") and bfloat16.
//
// Bits in, bits out: a 16-bit float is carried as uint16_t. Narrowing rounds to nearest, ties to even;
// overflow gives infinity; subnormals are exact; a NaN stays a NaN, quiet, with the upper bits of its payload
// (what F16C and AVX512-BF16 hardware does, so that every instruction set agrees bit for bit). All functions
// are pure, constexpr and safe on any thread; none depends on the rounding or flush-to-zero mode of the CPU.
#pragma once

#include <bit>
#include <cstdint>

namespace isthmus {

/// Exact: every f16 value is a float.
constexpr float f16_to_f32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, a normal float
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  if (exponent == 31) {
    const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

/// Nearest f16, ties to even; |x| >= 65520 becomes infinity.
constexpr uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // below 2^-14: an integer multiple of 2^-24
    const uint32_t exponent = magnitude >> 23;
    if (exponent < 102) return static_cast<uint16_t>(sign);  // below 2^-25: nearer to zero
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t shift = 126 - exponent;  // 14..24
    const uint32_t half_way = (1u << (shift - 1)) - 1;
    const uint32_t rounded = (mantissa + half_way + ((mantissa >> shift) & 1u)) >> shift;
    return static_cast<uint16_t>(sign | rounded);
  }
  const uint32_t rebased = magnitude - (112u << 23);
  const uint32_t rounded = (rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13;
  return static_cast<uint16_t>(sign | rounded);
}

/// Exact: a bfloat16 is the upper half of a float.
constexpr float bf16_to_f32(uint16_t half) { return std::bit_cast<float>(static_cast<uint32_t>(half) << 16); }

/// Nearest bfloat16, ties to even.
constexpr uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace isthmus
