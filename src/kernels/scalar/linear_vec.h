// The plainest policy for generic/linear_dot.h: one row at a time, in standard C++. Its results are what
// every other set must reproduce.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/generic/linear_dot.h"
#include "tensor/half.h"
#include "tensor/quant_blocks.h"

namespace isthmus {
namespace {

struct ScalarVec {
  static constexpr int kLanes = 1;
  static constexpr int kParts = 16;
  static constexpr int kTokensAtOnce = 1;
  static constexpr int kWidePanels = 0;
  using Floats = float;
  using Codes = uint32_t;  // 4 codes, the first in the lowest byte

  static constexpr bool byte_records(Compute c) { return c == Compute::kInt8; }
  static constexpr bool word_records(Compute c) { return c == Compute::kInt16; }

  template <class T>
  static T read(const void* at) {
    T value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }

  static Floats zero() { return 0.0f; }
  static Floats load(const void* at) { return read<float>(at); }
  static Floats broadcast(const void* at) { return read<float>(at); }
  static void store(void* at, Floats value) { std::memcpy(at, &value, sizeof(value)); }
  static Floats load_unaligned(const float* at) { return *at; }
  static void store_unaligned(float* at, Floats value) { *at = value; }
  static Floats add(Floats a, Floats b) { return a + b; }
  static Floats mul(Floats a, Floats b) { return a * b; }
  static Floats fma(Floats a, Floats b, Floats c) { return std::fma(a, b, c); }
  static Floats negate(Floats a) { return -a; }

  static Floats load_half(const void* at) { return f16_to_f32(read<uint16_t>(at)); }
  static Floats load_bf16(const void* at) { return bf16_to_f32(read<uint16_t>(at)); }
  static Floats load_u8(const void* at) { return static_cast<float>(read<uint8_t>(at)); }
  static Floats load_i8(const void* at) { return static_cast<float>(read<int8_t>(at)); }
  static Floats load_low_nibbles(const void* at) { return static_cast<float>(read<uint8_t>(at) & 15); }
  static Floats load_high_nibbles(const void* at) { return static_cast<float>(read<uint8_t>(at) >> 4); }
  static Floats load_e8m0(const void* at) {
    const uint32_t e = read<uint8_t>(at);
    return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  }

  static constexpr uint32_t every_byte(int mask) { return static_cast<uint32_t>(mask) * 0x01010101u; }

  template <int kBits, int kIndex>
  static Codes low_plane(const void* at) {
    return (read<uint32_t>(at) >> (kBits * kIndex)) & every_byte((1 << kBits) - 1);
  }
  template <int kLowBits, int kHighBits, int kIndex>
  static Codes with_high_plane(Codes low, const void* at) {
    return low | (low_plane<kHighBits, kIndex>(at) << kLowBits);
  }
  template <CodeTable T>
  static Codes lookup(Codes codes) {
    Codes out = 0;
    for (int i = 0; i < 32; i += 8) {
      const uint32_t code = (codes >> i) & 15;
      const int value = T == CodeTable::kIq4 ? kIq4Values[code] + 128 : kMxfp4Values[code] + 16;
      out |= static_cast<uint32_t>(value) << i;
    }
    return out;
  }
  static void store_codes(void* at, Codes codes) { std::memcpy(at, &codes, sizeof(codes)); }
  template <PanelLayout L, Compute C>
  static Codes prepare(Codes codes) {
    return codes;
  }

  template <class R>
  static void write_record(const float* x, std::byte* out) {
    isthmus::write_record<R>(x, out);
  }

  template <PanelLayout L, Compute C>
  struct Accumulator {
    int32_t sum;

    void start(const void* nsum) { sum = L.zero_shift < 0 ? 0 : read<int32_t>(nsum) << L.zero_shift; }
    template <int kVector, int kCount>
    void add(Codes codes, const std::byte* record) {
      constexpr int kOrder[4] = {0, C == Compute::kInt16 ? 2 : 1, C == Compute::kInt16 ? 1 : 2, 3};
      for (int i = 0; i < 4; ++i) {
        const auto code = static_cast<int32_t>((codes >> (8 * i)) & 255);
        const ptrdiff_t at = 4 * kVector + kOrder[i];
        if constexpr (C == Compute::kInt16) {
          sum += code * read<int16_t>(record + 2 * at);
        } else {
          sum += code * read<int8_t>(record + at);
        }
      }
    }
    Floats total() const { return static_cast<float>(sum); }
  };
};

}  // namespace
}  // namespace isthmus
