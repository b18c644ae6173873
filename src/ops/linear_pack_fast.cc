// Why this is a matter of words: a vector of the packed layout is 16 rows x 4 columns, so a row's part of it
// is one 32-bit word. The nibble types of 32 values pair column j with column j + 16, as the 4-bit plane
// does, so their words only move. Everything else exchanges bits between words of one row; the 16 rows are 16
// lanes that a compiler turns into vector instructions.
#include "ops/linear_pack_fast.h"

#include <cstdint>
#include <cstring>

#include "tensor/quant_blocks.h"

namespace isthmus::packing {
namespace {

/// One 32-bit word of each row: a vector of the packed layout.
struct Lanes {
  alignas(kVectorBytes) uint32_t at[kPanelRows];
};
static_assert(sizeof(Lanes) == kVectorBytes);

constexpr uint32_t each_byte(uint32_t byte) { return byte * 0x01010101u; }

/// Word i of every row to vector i of `out`.
template <size_t kWords>
void gather(const std::byte* src, size_t stride, std::byte* out) {
  for (size_t r = 0; r < kPanelRows; ++r) {
    for (size_t i = 0; i < kWords; ++i)
      std::memcpy(out + i * kVectorBytes + 4 * r, src + r * stride + 4 * i, 4);
  }
}

template <size_t kWords>
void load(const std::byte* src, size_t stride, Lanes (&out)[kWords]) {
  for (size_t r = 0; r < kPanelRows; ++r) {
    for (size_t i = 0; i < kWords; ++i) std::memcpy(&out[i].at[r], src + r * stride + 4 * i, 4);
  }
}

void store(const Lanes& lanes, std::byte* out) { std::memcpy(out, lanes.at, sizeof(lanes.at)); }

void gather_halves(const std::byte* src, size_t stride, std::byte* out) {
  for (size_t r = 0; r < kPanelRows; ++r) std::memcpy(out + 2 * r, src + r * stride, 2);
}

/// Byte k of the word of every row, to 16 neighbouring bytes.
void store_byte(const Lanes& lanes, int k, std::byte* out) {
  for (size_t r = 0; r < kPanelRows; ++r) out[r] = static_cast<std::byte>(lanes.at[r] >> (8 * k));
}

// ---- Bits inside one word ----

/// Bits whose index has bit `a` set and bit `b` clear.
constexpr uint32_t index_mask(uint32_t a, uint32_t b) {
  uint32_t mask = 0;
  for (uint32_t i = 0; i < 32; ++i) {
    if (((i >> a) & 1) != 0 && ((i >> b) & 1) == 0) mask |= 1u << i;
  }
  return mask;
}

/// Moves the bit at each index to the index with bits kA < kB exchanged ("delta swap"; Knuth, The Art of
/// Computer Programming 4A, 7.1.3).
template <uint32_t kA, uint32_t kB>
uint32_t exchange(uint32_t x) {
  constexpr uint32_t kShift = (1u << kB) - (1u << kA);
  const uint32_t differ = (x ^ (x >> kShift)) & index_mask(kA, kB);
  return x ^ differ ^ (differ << kShift);
}

/// From bit 4 j + c for column c of group j, as the fifth bits lie in a block, to bit 8 c + j.
uint32_t fifth_bits_to_plane(uint32_t x) {
  return exchange<0, 1>(exchange<1, 2>(exchange<0, 3>(exchange<1, 4>(x))));
}

// ---- Bits among words: element k of word j goes to element j of word k ----

/// One stage of the transposition: where `mask` is, the upper element of `a` against the lower one of `b`.
template <int kShift>
void swap_elements(Lanes& a, Lanes& b, uint32_t mask) {
  for (size_t r = 0; r < kPanelRows; ++r) {
    const uint32_t differ = ((a.at[r] >> kShift) ^ b.at[r]) & mask;
    b.at[r] ^= differ;
    a.at[r] ^= differ << kShift;
  }
}

/// Single bits of 8 words, in every byte.
void transpose_bits(Lanes (&w)[8]) {
  for (size_t j = 0; j < 4; ++j) swap_elements<4>(w[j], w[j + 4], each_byte(0x0F));
  for (const size_t j : {0, 1, 4, 5}) swap_elements<2>(w[j], w[j + 2], each_byte(0x33));
  for (const size_t j : {0, 2, 4, 6}) swap_elements<1>(w[j], w[j + 1], each_byte(0x55));
}

/// Pairs of bits of 4 words, in every byte.
void transpose_pairs(Lanes& w0, Lanes& w1, Lanes& w2, Lanes& w3) {
  swap_elements<4>(w0, w2, each_byte(0x0F));
  swap_elements<4>(w1, w3, each_byte(0x0F));
  swap_elements<2>(w0, w1, each_byte(0x33));
  swap_elements<2>(w2, w3, each_byte(0x33));
}

// ---- Types of 32 values ----

enum class Codes { kNibbles, kNibblesAndFifth, kBytes };

template <PackFormat kFormat, class Block, Codes kCodes>
void pack_small(const std::byte* src, size_t stride, std::byte* out) {
  constexpr PanelLayout kLayout = panel_layout(kFormat);
  constexpr auto kBlocks = static_cast<size_t>(kLayout.unit_blocks);
  constexpr size_t kHalves = 2 * kPanelRows;  // bytes of one f16 of each row
  for (size_t b = 0; b < kBlocks; ++b, src += sizeof(Block)) {
    gather_halves(src, stride, out + b * kHalves);
    if constexpr (kLayout.has_min) gather_halves(src + 2, stride, out + (kBlocks + b) * kHalves);
    std::byte* planes = out + kLayout.scales_bytes() + b * kLayout.block_bytes();
    const std::byte* codes = src + offsetof(Block, qs);
    if constexpr (kCodes == Codes::kBytes) {
      gather<8>(codes, stride, planes);
      // Signed to unsigned with the zero point 128.
      for (size_t i = 0; i < 8 * kVectorBytes; ++i) planes[i] ^= std::byte{0x80};
    } else {
      gather<4>(codes, stride, planes);
    }
    if constexpr (kCodes == Codes::kNibblesAndFifth) {
      Lanes bits[1];
      load(src + offsetof(Block, qh), stride, bits);
      for (uint32_t& lane : bits[0].at) lane = fifth_bits_to_plane(lane);
      store(bits[0], planes + 4 * kVectorBytes);
    }
  }
}

// ---- Types of 256 values ----

/// 32 bytes whose low nibbles are the codes of one block and whose high nibbles those of another, to the two
/// low planes.
void split_nibbles(const std::byte* src, size_t stride, std::byte* low, std::byte* high) {
  constexpr uint32_t kLow = each_byte(0x0F);
  Lanes words[8];
  load(src, stride, words);
  for (size_t h = 0; h < 4; ++h) {
    const Lanes &a = words[h], &b = words[h + 4];
    Lanes first, second;
    for (size_t r = 0; r < kPanelRows; ++r) {
      first.at[r] = (a.at[r] & kLow) | ((b.at[r] & kLow) << 4);
      second.at[r] = ((a.at[r] >> 4) & kLow) | (b.at[r] & ~kLow);
    }
    store(first, low + h * kVectorBytes);
    store(second, high + h * kVectorBytes);
  }
}

/// The 6-bit scales and minima of unpack_scales_k(), four bytes at a time.
void pack_scales_of_k(const std::byte* src, size_t stride, std::byte* out) {
  Lanes packed[3];
  load(src, stride, packed);
  Lanes scale[2], min[2];  // blocks 0-3 and 4-7
  for (size_t r = 0; r < kPanelRows; ++r) {
    const uint32_t a = packed[0].at[r], b = packed[1].at[r], c = packed[2].at[r];
    scale[0].at[r] = a & each_byte(63);
    min[0].at[r] = b & each_byte(63);
    scale[1].at[r] = (c & each_byte(15)) | (((a >> 6) & each_byte(3)) << 4);
    min[1].at[r] = ((c >> 4) & each_byte(15)) | (((b >> 6) & each_byte(3)) << 4);
  }
  for (int block = 0; block < 8; ++block, out += 2 * kPanelRows) {
    store_byte(scale[block / 4], block % 4, out);
    store_byte(min[block / 4], block % 4, out + kPanelRows);
  }
}

template <PackFormat kFormat, class Block>
void pack_k(const std::byte* src, size_t stride, std::byte* out) {
  constexpr PanelLayout kLayout = panel_layout(kFormat);
  gather_halves(src + offsetof(Block, d), stride, out);
  gather_halves(src + offsetof(Block, dmin), stride, out + 2 * kPanelRows);
  pack_scales_of_k(src + offsetof(Block, scales), stride, out + kLayout.head_bytes());
  std::byte* blocks = out + kLayout.scales_bytes();
  for (size_t c = 0; c < 4; ++c) {
    std::byte* low = blocks + 2 * c * kLayout.block_bytes();
    split_nibbles(src + offsetof(Block, qs) + 32 * c, stride, low, low + kLayout.block_bytes());
  }
  if constexpr (kFormat == PackFormat::kQ5_K) {
    Lanes bits[8];
    load(src + offsetof(Block, qh), stride, bits);
    transpose_bits(bits);
    for (size_t k = 0; k < 8; ++k) store(bits[k], blocks + k * kLayout.block_bytes() + 4 * kVectorBytes);
  }
}

void pack_q6_k(const std::byte* src, size_t stride, std::byte* out) {
  constexpr PanelLayout kLayout = panel_layout(PackFormat::kQ6_K);
  gather_halves(src + offsetof(BlockQ6_K, d), stride, out);
  std::memset(out + 2 * kPanelRows, 0, 2 * kPanelRows);
  Lanes scales[4];
  load(src + offsetof(BlockQ6_K, scales), stride, scales);
  for (int g = 0; g < 16; ++g) {
    store_byte(scales[g / 4], g % 4, out + kLayout.head_bytes() + static_cast<size_t>(g) * kPanelRows);
  }
  for (size_t half = 0; half < 2; ++half) {
    std::byte* blocks = out + kLayout.scales_bytes() + 4 * half * kLayout.block_bytes();
    for (size_t i = 0; i < 2; ++i) {
      split_nibbles(src + 64 * half + 32 * i, stride, blocks + i * kLayout.block_bytes(),
                    blocks + (i + 2) * kLayout.block_bytes());
    }
    Lanes pairs[8];
    load(src + offsetof(BlockQ6_K, qh) + 32 * half, stride, pairs);
    for (size_t v = 0; v < 2; ++v) {
      transpose_pairs(pairs[v], pairs[v + 2], pairs[v + 4], pairs[v + 6]);
      for (size_t j = 0; j < 4; ++j)
        store(pairs[v + 2 * j], blocks + j * kLayout.block_bytes() + (4 + v) * kVectorBytes);
    }
  }
}

}  // namespace

PackUnit fast_pack_unit(PackFormat format) {
  switch (format) {
    case PackFormat::kQ4_0:
      return pack_small<PackFormat::kQ4_0, BlockQ4_0, Codes::kNibbles>;
    case PackFormat::kQ4_1:
      return pack_small<PackFormat::kQ4_1, BlockQ4_1, Codes::kNibbles>;
    case PackFormat::kQ5_0:
      return pack_small<PackFormat::kQ5_0, BlockQ5_0, Codes::kNibblesAndFifth>;
    case PackFormat::kQ5_1:
      return pack_small<PackFormat::kQ5_1, BlockQ5_1, Codes::kNibblesAndFifth>;
    case PackFormat::kQ8_0:
      return pack_small<PackFormat::kQ8_0, BlockQ8_0, Codes::kBytes>;
    case PackFormat::kIQ4_NL:
      return pack_small<PackFormat::kIQ4_NL, BlockIQ4_NL, Codes::kNibbles>;
    case PackFormat::kQ4_K:
      return pack_k<PackFormat::kQ4_K, BlockQ4_K>;
    case PackFormat::kQ5_K:
      return pack_k<PackFormat::kQ5_K, BlockQ5_K>;
    case PackFormat::kQ6_K:
      return pack_q6_k;
    default:
      return nullptr;
  }
}

}  // namespace isthmus::packing
