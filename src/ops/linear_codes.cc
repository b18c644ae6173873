#include "ops/linear_codes.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tensor/quant_blocks.h"

namespace isthmus::packing {
namespace {

// ---- Small blocks: `b` is the index of the block in the unit, `codes` its 32 codes. ----

void decode_nibbles(const uint8_t (&qs)[16], uint8_t* codes) {
  for (size_t j = 0; j < 16; ++j) {
    codes[j] = qs[j] & 15;
    codes[j + 16] = static_cast<uint8_t>(qs[j] >> 4);
  }
}

void add_fifth_bits(const uint8_t (&qh)[4], uint8_t* codes) {
  uint32_t bits;
  std::memcpy(&bits, qh, sizeof(bits));
  for (size_t j = 0; j < 32; ++j) codes[j] = static_cast<uint8_t>(codes[j] | (((bits >> j) & 1u) << 4));
}

void decode(const BlockQ4_0& block, size_t b, uint8_t* codes, UnitRow* out) {
  out->half[b] = block.d;
  decode_nibbles(block.qs, codes);
}
void decode(const BlockQ4_1& block, size_t b, uint8_t* codes, UnitRow* out) {
  out->half[b] = block.d;
  out->min[b] = block.m;
  decode_nibbles(block.qs, codes);
}
void decode(const BlockQ5_0& block, size_t b, uint8_t* codes, UnitRow* out) {
  out->half[b] = block.d;
  decode_nibbles(block.qs, codes);
  add_fifth_bits(block.qh, codes);
}
void decode(const BlockQ5_1& block, size_t b, uint8_t* codes, UnitRow* out) {
  out->half[b] = block.d;
  out->min[b] = block.m;
  decode_nibbles(block.qs, codes);
  add_fifth_bits(block.qh, codes);
}
void decode(const BlockQ8_0& block, size_t b, uint8_t* codes, UnitRow* out) {
  out->half[b] = block.d;
  for (size_t j = 0; j < 32; ++j) codes[j] = static_cast<uint8_t>(block.qs[j] + 128);
}
void decode(const BlockIQ4_NL& block, size_t b, uint8_t* codes, UnitRow* out) {
  out->half[b] = block.d;
  decode_nibbles(block.qs, codes);
}
void decode(const BlockMXFP4& block, size_t b, uint8_t* codes, UnitRow* out) {
  out->scale[b] = block.e;
  decode_nibbles(block.qs, codes);
}

// ---- Super-blocks: the whole unit at once. The loops follow the bit positions of quant_blocks.h. ----

/// The 2-bit plane of Q2_K, Q3_K and (as upper bits) Q6_K, shifted left by `at` and or-ed into the codes.
void add_bit_pairs(const uint8_t (&packed)[64], int at, uint8_t* codes) {
  for (size_t half = 0; half < 2; ++half) {
    for (int j = 0; j < 4; ++j) {
      uint8_t* to = codes + 128 * half + 32 * static_cast<size_t>(j);
      const uint8_t* from = packed + 32 * half;
      for (size_t i = 0; i < 32; ++i)
        to[i] = static_cast<uint8_t>(to[i] | (((from[i] >> (2 * j)) & 3) << at));
    }
  }
}

/// The 1-bit plane of Q3_K and Q5_K.
void add_bits(const uint8_t (&packed)[32], int at, uint8_t* codes) {
  for (size_t k = 0; k < 8; ++k) {
    uint8_t* to = codes + 32 * k;
    for (size_t i = 0; i < 32; ++i) to[i] = static_cast<uint8_t>(to[i] | (((packed[i] >> k) & 1) << at));
  }
}

/// The nibbles of Q4_K and Q5_K.
void decode_super_nibbles(const uint8_t (&packed)[128], uint8_t* codes) {
  for (size_t c = 0; c < 4; ++c) {
    for (size_t i = 0; i < 32; ++i) {
      codes[64 * c + i] = packed[32 * c + i] & 15;
      codes[64 * c + 32 + i] = static_cast<uint8_t>(packed[32 * c + i] >> 4);
    }
  }
}

void copy_scales_k(const uint8_t (&packed)[12], UnitRow* out) {
  const ScalesK scales = unpack_scales_k(packed);
  std::ranges::copy(scales.scale, out->scale);
  std::ranges::copy(scales.min, out->group_min);
}

void decode(const BlockQ2_K& block, size_t, uint8_t* codes, UnitRow* out) {
  out->half[0] = block.d;
  out->min[0] = block.dmin;
  std::ranges::copy(block.scales, out->scale);
  add_bit_pairs(block.qs, 0, codes);
}
void decode(const BlockQ3_K& block, size_t, uint8_t* codes, UnitRow* out) {
  out->half[0] = block.d;
  const auto scales = unpack_scales_q3(block.scales);
  for (size_t g = 0; g < 16; ++g) out->scale[g] = static_cast<uint8_t>(scales[g] - 32);
  add_bit_pairs(block.qs, 0, codes);
  add_bits(block.hmask, 2, codes);
}
void decode(const BlockQ4_K& block, size_t, uint8_t* codes, UnitRow* out) {
  out->half[0] = block.d;
  out->min[0] = block.dmin;
  copy_scales_k(block.scales, out);
  decode_super_nibbles(block.qs, codes);
}
void decode(const BlockQ5_K& block, size_t, uint8_t* codes, UnitRow* out) {
  out->half[0] = block.d;
  out->min[0] = block.dmin;
  copy_scales_k(block.scales, out);
  decode_super_nibbles(block.qs, codes);
  add_bits(block.qh, 4, codes);
}
void decode(const BlockQ6_K& block, size_t, uint8_t* codes, UnitRow* out) {
  out->half[0] = block.d;
  for (size_t g = 0; g < 16; ++g) out->scale[g] = std::bit_cast<uint8_t>(block.scales[g]);
  for (size_t half = 0; half < 2; ++half) {
    for (size_t i = 0; i < 64; ++i) {
      codes[128 * half + i] = block.ql[64 * half + i] & 15;
      codes[128 * half + 64 + i] = static_cast<uint8_t>(block.ql[64 * half + i] >> 4);
    }
  }
  add_bit_pairs(block.qh, 4, codes);
}
void decode(const BlockIQ4_XS& block, size_t, uint8_t* codes, UnitRow* out) {
  out->half[0] = block.d;
  const auto scales = unpack_scales_iq4_xs(block);
  for (size_t g = 0; g < 8; ++g) {
    out->scale[g] = static_cast<uint8_t>(scales[g] - 32);
    for (size_t j = 0; j < 16; ++j) {
      codes[32 * g + j] = block.qs[16 * g + j] & 15;
      codes[32 * g + 16 + j] = static_cast<uint8_t>(block.qs[16 * g + j] >> 4);
    }
  }
}

template <class Block, size_t kElems>
void decode_blocks(const std::byte* row, size_t cols, size_t unit_cols, size_t unit, UnitRow* out) {
  const size_t per_unit = unit_cols / kElems;
  const size_t first = unit * per_unit;
  const size_t last = std::min(first + per_unit, cols / kElems);
  for (size_t b = first; b < last; ++b) {
    decode(load_block<Block>(row, b), b - first, out->codes + (b - first) * kElems, out);
  }
}

}  // namespace

void decode_unit(PackFormat format, const std::byte* row, size_t cols, size_t unit, UnitRow* out) {
  std::memset(out, 0, sizeof(*out));
  const size_t unit_cols = panel_layout(format).unit_cols();
  switch (format) {
    case PackFormat::kQ4_0:
      return decode_blocks<BlockQ4_0, 32>(row, cols, unit_cols, unit, out);
    case PackFormat::kQ4_1:
      return decode_blocks<BlockQ4_1, 32>(row, cols, unit_cols, unit, out);
    case PackFormat::kQ5_0:
      return decode_blocks<BlockQ5_0, 32>(row, cols, unit_cols, unit, out);
    case PackFormat::kQ5_1:
      return decode_blocks<BlockQ5_1, 32>(row, cols, unit_cols, unit, out);
    case PackFormat::kQ8_0:
      return decode_blocks<BlockQ8_0, 32>(row, cols, unit_cols, unit, out);
    case PackFormat::kIQ4_NL:
      return decode_blocks<BlockIQ4_NL, 32>(row, cols, unit_cols, unit, out);
    case PackFormat::kMXFP4:
      return decode_blocks<BlockMXFP4, 32>(row, cols, unit_cols, unit, out);
    case PackFormat::kQ2_K:
      return decode_blocks<BlockQ2_K, 256>(row, cols, unit_cols, unit, out);
    case PackFormat::kQ3_K:
      return decode_blocks<BlockQ3_K, 256>(row, cols, unit_cols, unit, out);
    case PackFormat::kQ4_K:
      return decode_blocks<BlockQ4_K, 256>(row, cols, unit_cols, unit, out);
    case PackFormat::kQ5_K:
      return decode_blocks<BlockQ5_K, 256>(row, cols, unit_cols, unit, out);
    case PackFormat::kQ6_K:
      return decode_blocks<BlockQ6_K, 256>(row, cols, unit_cols, unit, out);
    case PackFormat::kIQ4_XS:
      return decode_blocks<BlockIQ4_XS, 256>(row, cols, unit_cols, unit, out);
    case PackFormat::kF32:
    case PackFormat::kF16:
    case PackFormat::kBF16:
      return;
  }
}

}  // namespace isthmus::packing
