// Dot products of four bytes with four 16-bit numbers in sixteen lanes, as plain loops: the reference for the
// classes of the other instruction sets (avx512/, avx2/, neon/), which define the same names and give the
// same integers. Include after scalar/vec16_scalar.h; everything is in an unnamed namespace.
//
// A *quad* is four numbers that meet in one lane. 32 numbers (eight quads) are kept as 16 words of 32 bits,
// in whatever order and planes of bytes the set multiplies; numbers are within +-32512 + 1, weights not
// negative.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace isthmus {
namespace {

/// Rows and vectors of sixteen lanes that the register file holds sums for.
constexpr size_t kQuadRows = 2;
constexpr size_t kQuadVecs = 1;
/// What the sum of a query's 32 numbers is multiplied with to start a sum over key codes, which have
/// kQ8KeyZero added to them.
constexpr int32_t kQuadStart = 0;  // here the codes lose it as they are loaded

/// Codes of `Bits` bits from bit `Shift` on, of sixteen lanes of four bytes; bytes lose their 128.
template <int Bits, int Shift>
ISTHMUS_INLINE void unpack_codes(const uint8_t* p, int32_t* code) {
  for (int i = 0; i < 64; ++i) code[i] = (p[i] >> Shift & ((1 << Bits) - 1)) - (Bits == 8 ? 128 : 0);
}

/// Sixteen quads of key codes, one per lane; the same of value codes. load() is of kQ8 parts, unpack() of
/// KIVI parts.
struct KeyQuads {
  int32_t code[64];
  static ISTHMUS_INLINE KeyQuads load(const uint8_t* p) {
    KeyQuads out;
    for (int i = 0; i < 64; ++i) out.code[i] = p[i] - 128;
    return out;
  }
  template <int Bits, int Shift>
  static ISTHMUS_INLINE KeyQuads unpack(const uint8_t* p) {
    KeyQuads out;
    unpack_codes<Bits, Shift>(p, out.code);
    return out;
  }
};
struct ValueQuads {
  int32_t code[64];
  static ISTHMUS_INLINE ValueQuads load(const int8_t* p) {
    ValueQuads out;
    // NOLINTNEXTLINE(bugprone-signed-char-misuse): numbers, not characters
    for (int i = 0; i < 64; ++i) out.code[i] = static_cast<int32_t>(p[i]);
    return out;
  }
  template <int Bits, int Shift>
  static ISTHMUS_INLINE ValueQuads unpack(const uint8_t* p) {
    ValueQuads out;
    unpack_codes<Bits, Shift>(p, out.code);
    return out;
  }
};

/// One quad in every lane.
struct QuadWord {
  int16_t x[4];
  static ISTHMUS_INLINE QuadWord load(const int32_t* words, size_t quad) {
    QuadWord out;
    std::memcpy(out.x, words + 2 * quad, sizeof(out.x));
    return out;
  }
};

/// Words of a query's 32 whole numbers.
ISTHMUS_INLINE void pack_query(const int32_t* x, int32_t* words) {
  int16_t narrow[32];
  for (int i = 0; i < 32; ++i) narrow[i] = static_cast<int16_t>(x[i]);
  std::memcpy(words, narrow, sizeof(narrow));
}
/// Words of 32 weights, rounded to nearest even; a NaN gives any number.
ISTHMUS_INLINE void pack_weights(Vec16 a, Vec16 b, int32_t* words) {
  int32_t x[32];
  for (int i = 0; i < 32; ++i) {
    const float weight = i < 16 ? a.lane[i] : b.lane[i - 16];
    x[i] = weight == weight ? static_cast<int32_t>(__builtin_rintf(weight)) : 0;
  }
  pack_query(x, words);
}

/// 32 whole numbers of 16 bits, in whatever order the set keeps them.
struct Narrow {
  int16_t x[32];
  static ISTHMUS_INLINE Narrow from(Vec16 a, Vec16 b) {
    Narrow out;
    int32_t words[16];
    pack_weights(a, b, words);
    std::memcpy(out.x, words, sizeof(out.x));
    return out;
  }
  static ISTHMUS_INLINE Narrow load(const int32_t* words) {
    Narrow out;
    std::memcpy(out.x, words, sizeof(out.x));
    return out;
  }
  ISTHMUS_INLINE void store(int32_t* words) const { std::memcpy(words, x, sizeof(x)); }
  /// (x * y + 2^14) >> 15 of each pair.
  friend ISTHMUS_INLINE Narrow scaled(const Narrow& a, const Narrow& b) {
    Narrow out;
    for (int i = 0; i < 32; ++i) out.x[i] = static_cast<int16_t>((a.x[i] * b.x[i] + (1 << 14)) >> 15);
    return out;
  }
  ISTHMUS_INLINE int32_t sum() const {
    int32_t total = 0;
    for (const int16_t number : x) total += number;
    return total;
  }
  /// Words of a query, and of weights, which are not negative.
  ISTHMUS_INLINE void pack_query_words(int32_t* words) const { store(words); }
  ISTHMUS_INLINE void pack_weight_words(int32_t* words) const { store(words); }
};

/// Sixteen int32 sums. start() is told kQuadStart times the sum of the query.
struct QuadSum {
  int32_t lane[16];

  ISTHMUS_INLINE void start(int32_t value) {
    for (int32_t& sum : lane) sum = value;
  }
  template <class Quads>
  ISTHMUS_INLINE void add(const Quads& codes, const QuadWord& word) {
    for (int i = 0; i < 64; ++i) lane[i / 4] += codes.code[i] * word.x[i % 4];
  }
  ISTHMUS_INLINE Vec16 total() const {
    return Vec16::make([&](int i) { return static_cast<float>(lane[i]); });
  }
};

}  // namespace
}  // namespace isthmus
