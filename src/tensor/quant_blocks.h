// Byte layouts of the quantised blocks of GGUF, and the packing of their small scales.
//
// Each struct is one block exactly as it lies in a file (little-endian, no padding; the sizes are asserted
// against the facts in dtype.h by the tests). File data may be unaligned, so a block is read with
// load_block() and written with store_block(), never through a cast pointer. Fields named `d`, `m`, `dmin`
// are f16 bits. Pure functions, any thread, no errors: every bit pattern is a valid block.
//
// Words: a *block* shares one f16 scale; in the 256-value types ("super-blocks") each group of 16 or 32
// values has its own small integer scale on top of it. w = d * scale * q  or  w = d * scale * q - dmin * min.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace isthmus {

/// Values in a super-block of the K types and IQ4_XS.
inline constexpr size_t kSuperBlock = 256;
/// Values in a block of the other quantised types.
inline constexpr size_t kSmallBlock = 32;

// ---- 32 values; byte j of qs holds value j in its low and value j + 16 in its high nibble ----

struct BlockQ4_0 {  // w = d * (q - 8)
  uint16_t d;
  uint8_t qs[16];
};
struct BlockQ4_1 {  // w = d * q + m
  uint16_t d;
  uint16_t m;
  uint8_t qs[16];
};
struct BlockQ5_0 {  // w = d * (q - 16); bit j of qh is bit 4 of value j
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};
struct BlockQ5_1 {  // w = d * q + m
  uint16_t d;
  uint16_t m;
  uint8_t qh[4];
  uint8_t qs[16];
};
struct BlockQ8_0 {  // w = d * q
  uint16_t d;
  int8_t qs[32];
};
struct BlockIQ4_NL {  // w = d * kIq4Values[q]
  uint16_t d;
  uint8_t qs[16];
};
struct BlockMXFP4 {  // w = 2^(e - 128) * kMxfp4Values[q]; OCP microscaling FP4 (E2M1) with an E8M0 scale
  uint8_t e;
  uint8_t qs[16];
};

// ---- 256 values ----

struct BlockQ2_K {     // w = d * (scale & 15) * q - dmin * (scale >> 4), 16 groups of 16
  uint8_t scales[16];  // low nibble: scale, high nibble: min
  uint8_t qs[64];      // 2 bits; byte 32 h + l, bits 2 j: value 128 h + 32 j + l
  uint16_t d;
  uint16_t dmin;
};
struct BlockQ3_K {     // w = d * (scale - 32) * q, q in -4..3, 16 groups of 16
  uint8_t hmask[32];   // byte l, bit k: value 32 k + l; a set bit adds 4 to q
  uint8_t qs[64];      // the low 2 bits, as in Q2_K
  uint8_t scales[12];  // 16 scales of 6 bits, see unpack_scales_q3()
  uint16_t d;
};
struct BlockQ4_K {  // w = d * scale * q - dmin * min, 8 groups of 32
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];  // 8 scales and 8 mins of 6 bits, see unpack_scales_k()
  uint8_t qs[128];     // byte 32 c + l: low nibble value 64 c + l, high nibble value 64 c + 32 + l
};
struct BlockQ5_K {  // as Q4_K, with bit 4 in qh
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qh[32];  // byte l, bit k: bit 4 of value 32 k + l
  uint8_t qs[128];
};
struct BlockQ6_K {    // w = d * scale * (q - 32), 16 groups of 16
  uint8_t ql[128];    // low 4 bits; byte 64 h + l, l in 0..63: value 128 h + l (low), 128 h + 64 + l (high)
  uint8_t qh[64];     // upper 2 bits; byte 32 h + l, bits 2 j: value 128 h + 32 j + l
  int8_t scales[16];  // signed
  uint16_t d;
};
struct BlockIQ4_XS {  // w = d * (scale - 32) * kIq4Values[q], 8 groups of 32
  uint16_t d;
  uint16_t scales_h;    // bits 2 g: upper 2 bits of the scale of group g
  uint8_t scales_l[4];  // nibble g: its lower 4 bits
  uint8_t qs[128];      // byte 16 g + j: value 32 g + j (low), 32 g + 16 + j (high)
};

/// The 16 levels of IQ4_NL and IQ4_XS, ascending.
inline constexpr std::array<int8_t, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};
/// Twice the 16 values of FP4 E2M1 by code; the block's scale carries the half. Code 8 is negative zero in
/// the standard and plain zero here, as every GGUF reader has it.
inline constexpr std::array<int8_t, 16> kMxfp4Values = {0, 1,  2,  3,  4,  6,  8,  12,
                                                        0, -1, -2, -3, -4, -6, -8, -12};

/// Copies block `index` out of a row; `row` may have any alignment.
template <class Block>
Block load_block(const std::byte* row, size_t index) {
  Block block;
  std::memcpy(&block, row + index * sizeof(Block), sizeof(Block));
  return block;
}

template <class Block>
void store_block(std::byte* row, size_t index, const Block& block) {
  std::memcpy(row + index * sizeof(Block), &block, sizeof(Block));
}

struct ScalesK {
  std::array<uint8_t, 8> scale;  // 0..63
  std::array<uint8_t, 8> min;    // 0..63
};

/// The scales of Q4_K and Q5_K. Groups 0-3 keep their 6 bits in bytes g and g + 4; groups 4-7 keep 4 bits of
/// each in byte g + 4 and the upper 2 in the free top bits of bytes g - 4 and g.
constexpr ScalesK unpack_scales_k(const uint8_t (&packed)[12]) {
  ScalesK out{};
  for (size_t g = 0; g < 4; ++g) {
    out.scale[g] = packed[g] & 63;
    out.min[g] = packed[g + 4] & 63;
    out.scale[g + 4] = static_cast<uint8_t>((packed[g + 8] & 15) | ((packed[g] >> 6) << 4));
    out.min[g + 4] = static_cast<uint8_t>((packed[g + 8] >> 4) | ((packed[g + 4] >> 6) << 4));
  }
  return out;
}

/// Inverse of unpack_scales_k(); values above 63 are the caller's error.
constexpr void pack_scales_k(const ScalesK& scales, uint8_t (&packed)[12]) {
  for (size_t g = 0; g < 4; ++g) {
    packed[g] = static_cast<uint8_t>(scales.scale[g] | ((scales.scale[g + 4] >> 4) << 6));
    packed[g + 4] = static_cast<uint8_t>(scales.min[g] | ((scales.min[g + 4] >> 4) << 6));
    packed[g + 8] = static_cast<uint8_t>((scales.scale[g + 4] & 15) | ((scales.min[g + 4] & 15) << 4));
  }
}

/// The 16 scales of Q3_K, 0..63 (subtract 32 to use them): nibble g of bytes 0-7 (low nibbles first), upper 2
/// bits in bytes 8-11.
constexpr std::array<uint8_t, 16> unpack_scales_q3(const uint8_t (&packed)[12]) {
  std::array<uint8_t, 16> out{};
  for (size_t g = 0; g < 16; ++g) {
    const uint32_t low = g < 8 ? packed[g] & 15u : static_cast<uint32_t>(packed[g - 8]) >> 4;
    const uint32_t high = (static_cast<uint32_t>(packed[8 + g % 4]) >> (2 * (g / 4))) & 3u;
    out[g] = static_cast<uint8_t>(low | (high << 4));
  }
  return out;
}

/// Inverse of unpack_scales_q3().
constexpr void pack_scales_q3(const std::array<uint8_t, 16>& scales, uint8_t (&packed)[12]) {
  for (auto& byte : packed) byte = 0;
  for (size_t g = 0; g < 16; ++g) {
    const uint32_t low = (scales[g] & 15u) << (g < 8 ? 0 : 4);
    const uint32_t high = (static_cast<uint32_t>(scales[g]) >> 4) << (2 * (g / 4));
    packed[g % 8] = static_cast<uint8_t>(packed[g % 8] | low);
    packed[8 + g % 4] = static_cast<uint8_t>(packed[8 + g % 4] | high);
  }
}

/// The 8 scales of IQ4_XS, 0..63 (subtract 32 to use them).
constexpr std::array<uint8_t, 8> unpack_scales_iq4_xs(const BlockIQ4_XS& block) {
  std::array<uint8_t, 8> out{};
  for (size_t g = 0; g < 8; ++g) {
    const uint32_t low = (static_cast<uint32_t>(block.scales_l[g / 2]) >> (4 * (g % 2))) & 15u;
    const uint32_t high = (static_cast<uint32_t>(block.scales_h) >> (2 * g)) & 3u;
    out[g] = static_cast<uint8_t>(low | (high << 4));
  }
  return out;
}

}  // namespace isthmus
