// The attention kernels of 8-bit KV, written once over Vec16 and the dot products of quads_*.h. Part of
// attention_impl.h, which includes it; nothing else does.
//
// Products are of integers: key codes with queries in 16 bits, value codes with weights in 15 bits. The
// integer sums are exact whatever their order, so the few float32 steps around them, whose order is fixed,
// decide the bits.
#pragma once

namespace isthmus {
namespace {

constexpr float kQ8Most = 32512.0f;      // 127 * 256: two signed planes of bytes hold it
constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds half to even
constexpr float kLeast = 1e-30f;         // below, quotients would lose bits or overflow
constexpr size_t kQuads = kQ8Dims / 4;
constexpr size_t kQuadLines = 4 * kBlockKeys / kLine;  // of a quad of dimensions in a K part

/// The largest magnitude of x[n] as its bits: compared as integers, exact, order-free, and NaN and infinity
/// stand out as >= kInfinityBits.
constexpr int32_t kInfinityBits = 0x7f800000;
ISTHMUS_INLINE int32_t top_magnitude(const float* x, size_t n) {
  int32_t top = 0;
  for (size_t i = 0; i < n; ++i) {
    const int32_t magnitude = __builtin_bit_cast(int32_t, x[i]) & 0x7fffffff;
    top = magnitude > top ? magnitude : top;
  }
  return top;
}
/// x rounded to a whole number, |x| < 2^22.
ISTHMUS_INLINE int32_t rounded(float x) {
  return __builtin_bit_cast(int32_t, x + kRounder) - __builtin_bit_cast(int32_t, kRounder);
}

void quantize_queries(const float* q, size_t ldq, size_t rows, size_t head_dim, int32_t* out) {
  const size_t groups = q8_groups(head_dim);
  for (size_t r = 0; r < rows; ++r, q += ldq, out += q8_query_words(head_dim)) {
    const int32_t top = top_magnitude(q, head_dim);
    const bool finite = top < kInfinityBits;
    const float scale = finite ? __builtin_bit_cast(float, top) / kQ8Most : __builtin_nanf("");
    for (size_t g = 0; g < groups; ++g) {
      int32_t x[kQ8Dims] = {};
      int32_t sum = 0;
      const size_t n = at_most(head_dim - g * kQ8Dims, kQ8Dims);
      for (size_t i = 0; i < n && scale > kLeast; ++i) {
        x[i] = rounded(q[g * kQ8Dims + i] / scale);
        sum += x[i];
      }
      pack_query(x, out + g * kQ8Words);
      out[groups * kQ8Words + g] = kQuadStart * sum;
    }
    out[groups * (kQ8Words + 1)] = __builtin_bit_cast(int32_t, scale);
  }
}

/// Words are broadcast from memory, which costs a load each; a compiler that keeps them in registers spends
/// two shuffles on every broadcast, and those are scarcer.
template <class Words>
ISTHMUS_INLINE void keep_in_memory(Words& words) {
  asm volatile("" : "+m"(words));
}

struct Q8ScoreCall {
  const uint8_t* k;
  const int32_t* queries;
  size_t head_dim;
  float* out;
  const Prefetch* next;
};

/// Adds one quad of a cell's dimensions.
template <size_t Rows, size_t Vecs>
ISTHMUS_INLINE void add_key_quad(QuadSum (&sum)[Rows][Vecs], const uint8_t* codes, const int32_t* words,
                                 size_t row_words, size_t quad) {
  KeyQuads key[Vecs];
#pragma GCC unroll 4
  for (size_t v = 0; v < Vecs; ++v) key[v] = KeyQuads::load(codes + quad * 4 * kBlockKeys + 64 * v);
#pragma GCC unroll 8
  for (size_t r = 0; r < Rows; ++r) {
    const QuadWord word = QuadWord::load(words + r * row_words, quad);
#pragma GCC unroll 4
    for (size_t v = 0; v < Vecs; ++v) sum[r][v].add(key[v], word);
  }
}

template <size_t Rows, size_t Vecs>
ISTHMUS_INLINE void score_q8_tile(const Q8ScoreCall& call, size_t first_vec) {
  const size_t groups = q8_groups(call.head_dim);
  const size_t row_words = q8_query_words(call.head_dim);
  Vec16 acc[Rows][Vecs];
#pragma GCC unroll 8
  for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (size_t v = 0; v < Vecs; ++v) acc[r][v] = Vec16::zero();
  }
  LinePrefetch ahead(first_vec == 0 ? call.next : nullptr);
  for (size_t g = 0; g < groups; ++g) {
    const uint8_t* cell = call.k + g * kQ8CellBytes;
    const uint8_t* codes = cell + 64 * first_vec;
    const int32_t* words = call.queries + g * kQ8Words;
    const size_t dims = at_most(call.head_dim - g * kQ8Dims, kQ8Dims);
    QuadSum sum[Rows][Vecs];
#pragma GCC unroll 8
    for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (size_t v = 0; v < Vecs; ++v) sum[r][v].start(call.queries[r * row_words + groups * kQ8Words + g]);
    }
    if (dims == kQ8Dims) {
#pragma GCC unroll 8
      for (size_t i = 0; i < kQuads; ++i) {
        ahead.lines(kQuadLines);
        add_key_quad<Rows, Vecs>(sum, codes, words, row_words, i);
      }
    } else {
      for (size_t i = 0; i < dims / 4; ++i) {
        ahead.lines(kQuadLines);
        add_key_quad<Rows, Vecs>(sum, codes, words, row_words, i);
      }
    }
    ahead.lines(1);
    const auto* scales = reinterpret_cast<const uint16_t*>(cell + dims * kBlockKeys) + 16 * first_vec;
#pragma GCC unroll 4
    for (size_t v = 0; v < Vecs; ++v) {
      const Vec16 scale = Vec16::load_f16(scales + 16 * v);
#pragma GCC unroll 8
      for (size_t r = 0; r < Rows; ++r) acc[r][v] = fma(sum[r][v].total(), scale, acc[r][v]);
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < Rows; ++r) {
    const int32_t bits = call.queries[r * row_words + groups * (kQ8Words + 1)];
    const Vec16 scale = Vec16::set1(__builtin_bit_cast(float, bits));
#pragma GCC unroll 4
    for (size_t v = 0; v < Vecs; ++v) {
      (acc[r][v] * scale).store(call.out + r * kScoreStride + 16 * (first_vec + v));
    }
  }
}

template <size_t Rows>
void score_q8_rows(const Q8ScoreCall& call) {
  for (size_t v = 0; v < kVecsPerBlock; v += kQuadVecs) score_q8_tile<Rows, kQuadVecs>(call, v);
}

void scores_q8(const void* k, const int32_t* queries, size_t rows, size_t head_dim, float* out,
               const Prefetch* next) {
  for (size_t r = 0; r < rows; r += kQuadRows) {
    const Q8ScoreCall call = {static_cast<const uint8_t*>(k), queries + r * q8_query_words(head_dim),
                              head_dim, out + r * kScoreStride, next};
    with_rows<kQuadRows>(rows - r, [&](auto tag) { score_q8_rows<decltype(tag)::kValue>(call); });
    next = nullptr;
  }
}

/// Zero for slots from `keys` on.
ISTHMUS_INLINE void keep_slots(size_t keys, Vec16& low, Vec16& high) {
  alignas(kLine) float slot[kBlockKeys];
  for (size_t j = 0; j < kBlockKeys; ++j) slot[j] = static_cast<float>(j);
  const Vec16 end = Vec16::set1(static_cast<float>(keys));
  low = select(greater(end, Vec16::load(slot)), low, Vec16::zero());
  high = select(greater(end, Vec16::load(slot + 16)), high, Vec16::zero());
}

/// The scales of the first `keys` slots, zero for the others.
struct SlotScales {
  Vec16 low, high;
  float poison = 0.0f;  // NaN when one of them is not finite: integers would not show it
  ISTHMUS_INLINE SlotScales(const uint16_t* scales, size_t keys)
      : low(Vec16::load_f16(scales)), high(Vec16::load_f16(scales + 16)) {
    if (keys < kBlockKeys) keep_slots(keys, low, high);
    poison = reduce_add((low + high) * Vec16::zero());
  }
};

/// One cell of values and the weights of some rows.
struct Q8SumCall {
  const int8_t* codes;
  size_t dims;     // of the cell
  const float* p;  // [rows], kScoreStride apart
  float* acc;      // [rows], `stride` apart
  size_t stride;
};

template <size_t Rows, size_t Vecs>
ISTHMUS_INLINE void sum_q8_tile(const Q8SumCall& call, size_t first, const int32_t (&words)[Rows][kQ8Words],
                                const float (&unit)[Rows], LinePrefetch& ahead) {
  QuadSum sum[Rows][Vecs];
#pragma GCC unroll 8
  for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (size_t v = 0; v < Vecs; ++v) sum[r][v].start(0);
  }
#pragma GCC unroll 8
  for (size_t i = 0; i < kQuads; ++i) {
    ahead.lines(Vecs);
    ValueQuads value[Vecs];
#pragma GCC unroll 4
    for (size_t v = 0; v < Vecs; ++v) {
      value[v] = ValueQuads::load(call.codes + (i * call.dims + first + 16 * v) * 4);
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < Rows; ++r) {
      const QuadWord word = QuadWord::load(words[r], i);
#pragma GCC unroll 4
      for (size_t v = 0; v < Vecs; ++v) sum[r][v].add(value[v], word);
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < Rows; ++r) {
    float* acc = call.acc + r * call.stride + first;
#pragma GCC unroll 4
    for (size_t v = 0; v < Vecs; ++v) {
      fma(sum[r][v].total(), Vec16::set1(unit[r]), Vec16::load(acc + 16 * v)).store(acc + 16 * v);
    }
  }
}

template <size_t Rows>
ISTHMUS_INLINE void sum_q8_cell(const Q8SumCall& call, const SlotScales& scales, LinePrefetch& ahead) {
  alignas(64) int32_t words[Rows][kQ8Words];
  float unit[Rows];
#pragma GCC unroll 8
  for (size_t r = 0; r < Rows; ++r) {
    const Vec16 low = Vec16::load(call.p + r * kScoreStride) * scales.low;
    const Vec16 high = Vec16::load(call.p + r * kScoreStride + 16) * scales.high;
    const float most = reduce_max(max(low, high));
    const Vec16 inverse = Vec16::set1(kQ8Most / (kLeast > most ? kLeast : most));
    pack_weights(low * inverse, high * inverse, words[r]);
    unit[r] = most / kQ8Most + scales.poison;
  }
  keep_in_memory(words);
  size_t d = 0;
  for (; d + 16 * kQuadVecs <= call.dims; d += 16 * kQuadVecs) {
    sum_q8_tile<Rows, kQuadVecs>(call, d, words, unit, ahead);
  }
  if constexpr (kQuadVecs > 1) {
    if (d < call.dims) sum_q8_tile<Rows, 1>(call, d, words, unit, ahead);
  }
  ahead.lines(1);
}

void weighted_sum_q8(const void* v, const float* p, size_t rows, size_t keys, size_t dim, float* acc,
                     const Prefetch* next) {
  LinePrefetch ahead(next);
  LinePrefetch nothing(nullptr);
  for (size_t g = 0; g < q8_groups(dim); ++g) {
    const auto* codes = static_cast<const int8_t*>(v) + g * kQ8CellBytes;
    const size_t dims = at_most(dim - g * kQ8Dims, kQ8Dims);
    const SlotScales scales(reinterpret_cast<const uint16_t*>(codes + dims * kBlockKeys), keys);
    for (size_t r = 0; r < rows; r += kQuadRows) {
      const Q8SumCall call = {codes, dims, p + r * kScoreStride, acc + r * dim + g * kQ8Dims, dim};
      with_rows<kQuadRows>(rows - r, [&](auto tag) {
        sum_q8_cell<decltype(tag)::kValue>(call, scales, r == 0 ? ahead : nothing);
      });
    }
  }
}

/// A stored kQ8 part to float32. Keys: [head_dim][32]; values: [32][dim].
void expand_keys_q8(const void* part, size_t head_dim, float* out) {
  for (size_t d = 0; d < head_dim; ++d) {
    const auto* cell = static_cast<const uint8_t*>(part) + d / kQ8Dims * kQ8CellBytes;
    const size_t dims = at_most(head_dim - d / kQ8Dims * kQ8Dims, kQ8Dims);
    const auto* scales = reinterpret_cast<const uint16_t*>(cell + dims * kBlockKeys);
    const size_t quad = d % kQ8Dims / 4;
    const uint8_t* codes = cell + quad * 4 * kBlockKeys + d % 4;
    float code[kBlockKeys];
    for (size_t j = 0; j < kBlockKeys; ++j) code[j] = static_cast<float>(codes[4 * j] - kQ8KeyZero);
    for (size_t j = 0; j < kBlockKeys; j += 16) {
      (Vec16::load(code + j) * Vec16::load_f16(scales + j)).store(out + d * kBlockKeys + j);
    }
  }
}
void expand_values_q8(const void* part, size_t dim, float* out) {
  for (size_t g = 0; g < q8_groups(dim); ++g) {
    const auto* codes = static_cast<const int8_t*>(part) + g * kQ8CellBytes;
    const size_t dims = at_most(dim - g * kQ8Dims, kQ8Dims);
    alignas(64) float scales[kBlockKeys];
    const auto* stored = reinterpret_cast<const uint16_t*>(codes + dims * kBlockKeys);
    for (size_t j = 0; j < kBlockKeys; j += 16) Vec16::load_f16(stored + j).store(scales + j);
    for (size_t j = 0; j < kBlockKeys; ++j) {
      for (size_t d = 0; d < dims; ++d) {
        const int8_t code = codes[j / 4 * 4 * dims + 4 * d + j % 4];
        out[j * dim + g * kQ8Dims + d] = static_cast<float>(code) * scales[j];
      }
    }
  }
}

/// The scale of a group of a kQ8 row, as float16 bits; NaN when a value is not finite.
ISTHMUS_INLINE uint16_t q8_scale(const float* x, size_t n) {
  constexpr float kMost = 127.0f * 65504.0f;
  const int32_t top = top_magnitude(x, n);
  const float largest = __builtin_bit_cast(float, top);
  alignas(kLine) uint16_t bits[16];
  const bool fits = top < kInfinityBits && largest <= kMost;
  Vec16::set1(fits ? largest / 127.0f : __builtin_nanf("")).store_f16(bits);
  return bits[0];
}

void quantize_q8(const float* x, size_t n, int8_t* codes, uint16_t* scales) {
  for (size_t first = 0; first < n; first += kQ8Dims, ++scales) {
    const size_t count = at_most(n - first, kQ8Dims);
    alignas(kLine) uint16_t bits[16];
    for (uint16_t& b : bits) b = q8_scale(x + first, count);
    *scales = bits[0];
    alignas(kLine) float scale[16];
    Vec16::load_f16(bits).store(scale);
    if (!(scale[0] > 0.0f)) {  // zero or NaN
      for (size_t i = 0; i < count; ++i) codes[first + i] = 0;
      continue;
    }
    for (size_t i = 0; i < count; ++i) {
      const int32_t q = rounded(x[first + i] / scale[0]);
      codes[first + i] = static_cast<int8_t>(q > 127 ? 127 : q < -127 ? -127 : q);
    }
  }
}

}  // namespace
}  // namespace isthmus
