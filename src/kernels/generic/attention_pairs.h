// The attention kernels in 16-bit whole numbers (class `fast`), written once over Vec16 and the dot products
// of pairs_*.h. Part of attention_impl.h, which includes it; nothing else does.
//
// Integer sums are exact whatever their order, so the few float32 steps around them, whose order is fixed,
// decide the bits. No sum can overflow: a query's codes add up to at most 2^17 and a key's are below 2^14;
// 32 weights below 2^15 meet values below 2^11.
#pragma once

namespace isthmus {
namespace {

constexpr float kPairKeyMost = 16383.0f;
constexpr float kPairQuerySum = 130000.0f;  // rounding may add half of kMaxHeadDim
constexpr float kPairQueryMost = 32767.0f;
constexpr float kPairWeightMost = 32767.0f;
constexpr float kPairValueMost = 2047.0f;
// Means beyond these leave a dimension as it is.
constexpr float kPairLeastMean = 1e-6f;
constexpr float kPairMostMean = 1e6f;
constexpr size_t kPairLanes = 8;  // sums of a query's magnitudes; head sizes are multiples of it
constexpr size_t kBlockPairs = kBlockKeys / 2;

/// The sum of |q[n]|: eight chains, then halves onto each other.
ISTHMUS_INLINE float magnitude_sum(const float* q, size_t n) {
  float lane[kPairLanes] = {};
  for (size_t i = 0; i < n; i += kPairLanes) {
    for (size_t l = 0; l < kPairLanes; ++l) lane[l] += __builtin_fabsf(q[i + l]);
  }
  for (size_t half = kPairLanes / 2; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) lane[l] += lane[l + half];
  }
  return lane[0];
}

void query_pairs(const float* q, size_t ldq, size_t rows, size_t head_dim, const float* means, int32_t* out) {
  alignas(kLine) float x[kMaxHeadDim];
  for (size_t r = 0; r < rows; ++r, q += ldq, out += pair_query_words(head_dim)) {
    for (size_t d = 0; d < head_dim; ++d) x[d] = q[d] * means[d];
    const float by_sum = magnitude_sum(x, head_dim) / kPairQuerySum;
    const int32_t top = top_magnitude(x, head_dim);
    const float by_top = __builtin_bit_cast(float, top) / kPairQueryMost;
    const float scale = top < kInfinityBits ? (by_sum > by_top ? by_sum : by_top) : __builtin_nanf("");
    const float inverse = scale > kLeast ? 1.0f / scale : 0.0f;
    for (size_t i = 0; i < head_dim / 2; ++i) {
      const float low = scale > kLeast ? x[2 * i] * inverse : 0.0f;
      const float high = scale > kLeast ? x[2 * i + 1] * inverse : 0.0f;
      out[i] = static_cast<int32_t>((static_cast<uint32_t>(rounded(low)) & 0xffff) |
                                    static_cast<uint32_t>(rounded(high)) << 16);
    }
    out[head_dim / 2] = __builtin_bit_cast(int32_t, scale);
  }
}

/// N 16-bit floats as their bits: without the sign they order as integers, NaN and infinity on top.
template <size_t N>
struct Magnitudes {
  using Bits __attribute__((vector_size(2 * N))) = uint16_t;
  Bits top = {};
  ISTHMUS_INLINE void add(const uint16_t* p) {
    Bits x;
    __builtin_memcpy(&x, p, sizeof(x));
    x &= 0x7fff;
    top = x > top ? x : top;
  }
};

/// Sixteen scales of codes up to `most`, and what makes codes of numbers; where a number is not finite the
/// scale is NaN.
struct PairScales {
  Vec16 scale, inverse;
  ISTHMUS_INLINE PairScales(Vec16 top, float most) {
    const Vec16 zero = Vec16::zero();
    scale = fma(top, zero, top / Vec16::set1(most));
    inverse = select(greater(top, Vec16::set1(kLeast)), Vec16::set1(most) / top, zero);
  }
};

template <class L>
void key_means(const void* part, size_t head_dim, float* means, float* inverses) {
  const auto* k = static_cast<const uint16_t*>(part);
  for (size_t d = 0; d < head_dim; ++d, k += kBlockKeys) {
    const float mean = reduce_add(abs(L::load(k)) + abs(L::load(k + 16))) / static_cast<float>(kBlockKeys);
    means[d] = mean > kPairLeastMean && mean < kPairMostMean ? mean : 1.0f;
    inverses[d] = 1.0f / means[d];
  }
}

template <class L>
void key_pairs(const void* part, size_t head_dim, const float* inverses, int32_t* words, float* scales) {
  const auto* k = static_cast<const uint16_t*>(part);
  alignas(kLine) float even[kMaxHeadDim * kBlockKeys];  // in units of the means
  Vec16 top[kVecsPerBlock] = {Vec16::zero(), Vec16::zero()};
  Vec16 poison[kVecsPerBlock] = {Vec16::zero(), Vec16::zero()};
  for (size_t d = 0; d < head_dim; ++d) {
    const Vec16 inverse = Vec16::set1(inverses[d]);
    for (size_t v = 0; v < kVecsPerBlock; ++v) {
      const size_t at = d * kBlockKeys + 16 * v;
      const Vec16 x = L::load(k + at) * inverse;
      x.store(even + at);
      top[v] = max(abs(x), top[v]);
      poison[v] = fma(x, Vec16::zero(), poison[v]);  // NaN once one is not finite, which max() may miss
    }
  }
  for (size_t v = 0; v < kVecsPerBlock; ++v) {
    const PairScales by(top[v], kPairKeyMost);
    (by.scale + poison[v]).store(scales + 16 * v);
    for (size_t d = 0; d < head_dim; d += 2) {
      const float* x = even + d * kBlockKeys + 16 * v;
      pack_pairs(Vec16::load(x) * by.inverse, Vec16::load(x + kBlockKeys) * by.inverse,
                 words + d / 2 * kBlockKeys + 16 * v);
    }
  }
}

template <class L>
void value_pairs(const void* part, size_t dim, int32_t* words, float* scales) {
  const auto* v = static_cast<const uint16_t*>(part);
  for (size_t d = 0; d < dim; d += 16) {
    Magnitudes<16> magnitudes;
    for (size_t j = 0; j < kBlockKeys; ++j) magnitudes.add(v + j * dim + d);
    uint16_t top[16];
    __builtin_memcpy(top, &magnitudes.top, sizeof(top));
    const PairScales by(L::load(top), kPairValueMost);
    (by.scale * Vec16::set1(1.0f / kPairWeightMost)).store(scales + d);
    for (size_t j = 0; j < kBlockKeys; j += 2) {
      const uint16_t* at = v + j * dim + d;
      pack_pairs(L::load(at) * by.inverse, L::load(at + dim) * by.inverse,
                 words + weight_word(j / 2) * dim + d);
    }
  }
}

template <size_t Rows, size_t Vecs>
ISTHMUS_INLINE void start_sums(PairSum (&sum)[Rows][Vecs]) {
#pragma GCC unroll 16
  for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (size_t v = 0; v < Vecs; ++v) sum[r][v].start();
  }
}

struct PairScoreCall {
  const int32_t* words;
  const float* scales;
  const int32_t* queries;
  size_t head_dim;
  float* out;
};

template <size_t Rows, size_t Vecs>
ISTHMUS_INLINE void score_pairs_tile(const PairScoreCall& call, size_t first_vec) {
  const size_t stride = pair_query_words(call.head_dim);
  PairSum sum[Rows][Vecs];
  start_sums(sum);
  const int32_t* words = call.words + 16 * first_vec;
  for (size_t i = 0; i < call.head_dim / 2; ++i, words += kBlockKeys) {
    PairCodes key[Vecs];
#pragma GCC unroll 4
    for (size_t v = 0; v < Vecs; ++v) key[v] = PairCodes::load(words + 16 * v);
#pragma GCC unroll 16
    for (size_t r = 0; r < Rows; ++r) {
      const PairWord query = PairWord::load(call.queries + r * stride + i);
#pragma GCC unroll 4
      for (size_t v = 0; v < Vecs; ++v) sum[r][v].add(key[v], query);
    }
  }
#pragma GCC unroll 4
  for (size_t v = 0; v < Vecs; ++v) {
    const Vec16 by_key = Vec16::load(call.scales + 16 * (first_vec + v));
#pragma GCC unroll 16
    for (size_t r = 0; r < Rows; ++r) {
      const int32_t bits = call.queries[r * stride + call.head_dim / 2];
      const Vec16 by_query = Vec16::set1(__builtin_bit_cast(float, bits));
      (sum[r][v].total() * by_key * by_query).store(call.out + r * kScoreStride + 16 * (first_vec + v));
    }
  }
}

template <size_t Rows>
void score_pairs_rows(const PairScoreCall& call) {
  for (size_t v = 0; v < kVecsPerBlock; v += kPairVecs) score_pairs_tile<Rows, kPairVecs>(call, v);
}

void scores_pairs(const int32_t* words, const float* scales, const int32_t* queries, size_t rows,
                  size_t head_dim, float* out) {
  for (size_t r = 0; r < rows; r += kPairRows) {
    const PairScoreCall call = {words, scales, queries + r * pair_query_words(head_dim), head_dim,
                                out + r * kScoreStride};
    with_rows<kPairRows>(rows - r, [&](auto tag) { score_pairs_rows<decltype(tag)::kValue>(call); });
  }
}

struct PairSumCall {
  const int32_t* words;
  const float* scales;
  const float* p;
  size_t dim;
  float* acc;
};

template <size_t Rows, size_t Vecs>
ISTHMUS_INLINE void sum_pairs_tile(const PairSumCall& call, size_t d,
                                   const int32_t (&weights)[Rows][kBlockPairs]) {
  PairSum sum[Rows][Vecs];
  start_sums(sum);
  const int32_t* words = call.words + d;
#pragma GCC unroll 1
  for (size_t i = 0; i < kBlockPairs; ++i, words += call.dim) {
    PairCodes value[Vecs];
#pragma GCC unroll 4
    for (size_t v = 0; v < Vecs; ++v) value[v] = PairCodes::load(words + 16 * v);
#pragma GCC unroll 16
    for (size_t r = 0; r < Rows; ++r) {
      const PairWord weight = PairWord::load(&weights[r][i]);
#pragma GCC unroll 4
      for (size_t v = 0; v < Vecs; ++v) sum[r][v].add(value[v], weight);
    }
  }
#pragma GCC unroll 4
  for (size_t v = 0; v < Vecs; ++v) {
    const Vec16 scale = Vec16::load(call.scales + d + 16 * v);
#pragma GCC unroll 16
    for (size_t r = 0; r < Rows; ++r) {
      float* acc = call.acc + r * call.dim + d + 16 * v;
      fma(sum[r][v].total(), scale, Vec16::load(acc)).store(acc);
    }
  }
}

template <size_t Rows>
void sum_pairs_rows(const PairSumCall& call) {
  alignas(64) int32_t weights[Rows][kBlockPairs];
  const Vec16 most = Vec16::set1(kPairWeightMost);
  for (size_t r = 0; r < Rows; ++r) {
    const float* p = call.p + r * kScoreStride;
    pack_weight_pairs(Vec16::load(p) * most, Vec16::load(p + 16) * most, weights[r]);
  }
  // The tiles read the words from memory: g++ 12 would take them out of the registers that made them, one by
  // one.
  __asm__ volatile("" ::"r"(weights) : "memory");
  size_t d = 0;
  for (; d + 16 * kPairVecs <= call.dim; d += 16 * kPairVecs) {
    sum_pairs_tile<Rows, kPairVecs>(call, d, weights);
  }
  if constexpr (kPairVecs > 1) {
    if (d < call.dim) sum_pairs_tile<Rows, 1>(call, d, weights);
  }
}

void weighted_sum_pairs(const int32_t* words, const float* scales, const float* p, size_t rows, size_t dim,
                        float* acc) {
  for (size_t r = 0; r < rows; r += kPairRows) {
    const PairSumCall call = {words, scales, p + r * kScoreStride, dim, acc + r * dim};
    with_rows<kPairRows>(rows - r, [&](auto tag) { sum_pairs_rows<decltype(tag)::kValue>(call); });
  }
}

}  // namespace
}  // namespace isthmus
