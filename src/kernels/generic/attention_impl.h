// The attention kernels, written once over Vec16. Include after one vec16_*.h and its quads_*.h
// and pairs_*.h;
// make_attention_kernels() is the table. Everything is in an unnamed namespace and uses no library function:
// this is compiled with each set's flags.
//
// Tiles: `Rows` rows by `Vecs` vectors of accumulators, sized to the register file. The tile never changes a
// result: each accumulator lane is one fma chain in a fixed order.
#pragma once

#include "kernels/generic/attention_kernels.h"
#include "kernels/generic/float_math.h"

namespace isthmus {
namespace {

constexpr size_t kVecsPerBlock = kBlockKeys / 16;
constexpr float kMinusInfinity = -__builtin_inff();

/// How a stored element type is loaded, per KvType.
struct LoadF32 {
  using Value = float;
  static ISTHMUS_INLINE Vec16 load(const float* p) { return Vec16::load(p); }
};
struct LoadF16 {
  using Value = uint16_t;
  static ISTHMUS_INLINE Vec16 load(const uint16_t* p) { return Vec16::load_f16(p); }
};
struct LoadBf16 {
  using Value = uint16_t;
  static ISTHMUS_INLINE Vec16 load(const uint16_t* p) { return Vec16::load_bf16(p); }
};
constexpr size_t at_least_one(size_t n) { return n == 0 ? 1 : n; }
constexpr size_t at_most(size_t n, size_t limit) { return n < limit ? n : limit; }

constexpr size_t kLine = 64;
/// Dimensions or keys between two bursts of prefetches; head sizes are multiples of it.
constexpr size_t kStep = 8;
ISTHMUS_INLINE void prefetch_line(const Prefetch& next, size_t line) {
  prefetch(next.from[line % 4] + line / 4 * next.step);
}
/// Prefetches line after line.
class LinePrefetch {
 public:
  ISTHMUS_INLINE explicit LinePrefetch(const Prefetch* next) : next_(next) {}
  ISTHMUS_INLINE void lines(size_t n) {
    if (next_ == nullptr) return;
    for (size_t i = 0; i < n; ++i) prefetch_line(*next_, line_++);
  }

 private:
  const Prefetch* next_;
  size_t line_ = 0;
};

/// What the tiles of one call share.
template <class Value>
struct ScoreCall {
  const Value* k;
  const float* q;
  size_t ldq;
  size_t head_dim;
  float* out;
  const Prefetch* next;
};

template <class L, size_t Rows, size_t Vecs>
ISTHMUS_INLINE void score_tile(const ScoreCall<typename L::Value>& call, size_t first_vec) {
  Vec16 acc[Rows][Vecs];
#pragma GCC unroll 16
  for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 16
    for (size_t v = 0; v < Vecs; ++v) acc[r][v] = Vec16::zero();
  }
  LinePrefetch ahead(first_vec == 0 ? call.next : nullptr);
  const auto* k = call.k + first_vec * 16;
  for (size_t first = 0; first < call.head_dim; first += kStep) {
    ahead.lines(kStep * kBlockKeys * sizeof(typename L::Value) / kLine);
    for (size_t d = first; d < first + kStep; ++d, k += kBlockKeys) {
      Vec16 key[Vecs];
#pragma GCC unroll 16
      for (size_t v = 0; v < Vecs; ++v) key[v] = L::load(k + 16 * v);
#pragma GCC unroll 16
      for (size_t r = 0; r < Rows; ++r) {
        const Vec16 query = Vec16::set1(call.q[r * call.ldq + d]);
#pragma GCC unroll 16
        for (size_t v = 0; v < Vecs; ++v) acc[r][v] = fma(query, key[v], acc[r][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 16
    for (size_t v = 0; v < Vecs; ++v) acc[r][v].store(call.out + r * kScoreStride + 16 * (first_vec + v));
  }
}

template <class L, size_t Rows>
void score_rows(const ScoreCall<typename L::Value>& call) {
  constexpr size_t kVecs = at_most(at_least_one(kVec16Accumulators / Rows), kVecsPerBlock);
  for (size_t v = 0; v < kVecsPerBlock; v += kVecs) score_tile<L, Rows, kVecs>(call, v);
}

/// Calls f with std::integral_constant-like Tag<n> for the n in [1, Max] that equals `rows`.
template <size_t N>
struct Tag {
  static constexpr size_t kValue = N;
};
template <size_t Max, class F>
ISTHMUS_INLINE void with_rows(size_t rows, F f) {
  if constexpr (Max > 1) {
    if (rows < Max) return with_rows<Max - 1>(rows, f);
  }
  f(Tag<Max>{});
}

template <class L>
void scores(const void* k, const float* q, size_t ldq, size_t rows, size_t head_dim, float* out,
            const Prefetch* next) {
  using Value = typename L::Value;
  for (size_t r = 0; r < rows; r += kVec16Rows) {
    const ScoreCall<Value> call = {static_cast<const Value*>(k), q + r * ldq, ldq, head_dim,
                                   out + r * kScoreStride,       next};
    with_rows<kVec16Rows>(rows - r, [&](auto tag) { score_rows<L, decltype(tag)::kValue>(call); });
    next = nullptr;
  }
}

template <class Value>
struct SumCall {
  const Value* v;
  const float* p;
  size_t keys;
  size_t dim;
  float* acc;
  const Prefetch* next;
};

template <class L, size_t Rows, size_t Vecs>
ISTHMUS_INLINE void sum_tile(const SumCall<typename L::Value>& call, size_t d) {
  Vec16 acc[Rows][Vecs];
#pragma GCC unroll 16
  for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 16
    for (size_t i = 0; i < Vecs; ++i) acc[r][i] = Vec16::load(call.acc + r * call.dim + d + 16 * i);
  }
  LinePrefetch ahead(d == 0 ? call.next : nullptr);
  const auto* v = call.v + d;
  for (size_t first = 0; first < call.keys; first += kStep) {
    ahead.lines(kStep * call.dim * sizeof(typename L::Value) / kLine);
    const size_t end = at_most(first + kStep, call.keys);
    for (size_t j = first; j < end; ++j, v += call.dim) {
      Vec16 value[Vecs];
#pragma GCC unroll 16
      for (size_t i = 0; i < Vecs; ++i) value[i] = L::load(v + 16 * i);
#pragma GCC unroll 16
      for (size_t r = 0; r < Rows; ++r) {
        const Vec16 weight = Vec16::set1(call.p[r * kScoreStride + j]);
#pragma GCC unroll 16
        for (size_t i = 0; i < Vecs; ++i) acc[r][i] = fma(weight, value[i], acc[r][i]);
      }
    }
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 16
    for (size_t i = 0; i < Vecs; ++i) acc[r][i].store(call.acc + r * call.dim + d + 16 * i);
  }
}

template <class L, size_t Rows>
void sum_rows(const SumCall<typename L::Value>& call) {
  constexpr size_t kFit = kVec16Accumulators / Rows;
  constexpr size_t kVecs = kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;  // head sizes are mostly multiples of 64 or 32
  size_t d = 0;
  for (; d + 16 * kVecs <= call.dim; d += 16 * kVecs) sum_tile<L, Rows, kVecs>(call, d);
  for (; d < call.dim; d += 16) sum_tile<L, Rows, 1>(call, d);
}

template <class L>
void weighted_sum(const void* v, const float* p, size_t rows, size_t keys, size_t dim, float* acc,
                  const Prefetch* next) {
  using Value = typename L::Value;
  for (size_t r = 0; r < rows; r += kVec16Rows) {
    const SumCall<Value> call = {
        static_cast<const Value*>(v), p + r * kScoreStride, keys, dim, acc + r * dim, next};
    with_rows<kVec16Rows>(rows - r, [&](auto tag) { sum_rows<L, decltype(tag)::kValue>(call); });
    next = nullptr;
  }
}

template <class L>
void expand_keys(const void* part, size_t head_dim, float* out) {
  const auto* k = static_cast<const typename L::Value*>(part);
  for (size_t i = 0; i < head_dim * kBlockKeys; i += 16) L::load(k + i).store(out + i);
}

template <class L>
void expand_values(const void* part, size_t dim, float* out) {
  const auto* v = static_cast<const typename L::Value*>(part);
  for (size_t i = 0; i < kBlockKeys * dim; i += 16) L::load(v + i).store(out + i);
}

/// Scores to those of powers of two, capped. Masked ones stay masked.
ISTHMUS_INLINE void cap_scores(float* x, size_t n, float softcap) {
  const Vec16 cap = Vec16::set1(softcap);
  const Vec16 cap2 = Vec16::set1(softcap * kLog2E);
  for (size_t i = 0; i < n; i += 16) {
    const Vec16 score = Vec16::load(x + i);
    const Vec16 capped = cap2 * tanh(score / cap);
    select(equal(score, Vec16::set1(kMinusInfinity)), score, capped).store(x + i);
  }
}

/// The larger of x[n], n a multiple of 32. Two chains: one would wait for itself.
ISTHMUS_INLINE float largest_score(const float* x, size_t n) {
  Vec16 even = Vec16::set1(kMinusInfinity);
  Vec16 odd = even;
  for (size_t i = 0; i < n; i += 32) {
    even = max(Vec16::load(x + i), even);
    odd = max(Vec16::load(x + i + 16), odd);
  }
  return reduce_max(max(even, odd));
}
ISTHMUS_INLINE float weigh_scores(float* x, size_t n, float top) {
  // A row of masked scores alone: less than nothing stays, and 2^-infinity is 0.
  const Vec16 shift = Vec16::set1(top == kMinusInfinity ? 0.0f : top);
  Vec16 even = Vec16::zero();
  Vec16 odd = even;
  for (size_t i = 0; i < n; i += 32) {
    const Vec16 first = exp2_weight(Vec16::load(x + i) - shift);
    const Vec16 second = exp2_weight(Vec16::load(x + i + 16) - shift);
    first.store(x + i);
    second.store(x + i + 16);
    even = even + first;
    odd = odd + second;
  }
  return reduce_add(even + odd);
}

/// First the maxima of all rows, then their weights: no row waits for the end of another one.
void softmax(float* x, size_t rows, size_t n, float softcap, float* max_out, float* sum_out) {
  for (size_t r = 0; r < rows; ++r) {
    if (softcap > 0.0f) cap_scores(x + r * kScoreStride, n, softcap);
    max_out[r] = largest_score(x + r * kScoreStride, n);
  }
  for (size_t r = 0; r < rows; ++r) sum_out[r] = weigh_scores(x + r * kScoreStride, n, max_out[r]);
}

void combine(float* m, float* s, float* a, float m2, float s2, const float* a2, size_t dim) {
  if (m2 == kMinusInfinity) return;
  if (*m == kMinusInfinity) {
    for (size_t i = 0; i < dim; i += 16) Vec16::load(a2 + i).store(a + i);
    *m = m2;
    *s = s2;
    return;
  }
  const Vec16 m_old = Vec16::set1(*m);
  const Vec16 m_add = Vec16::set1(m2);
  const Vec16 m_new = max(m_old, m_add);
  const Vec16 f_old = exp2_weight(m_old - m_new);
  const Vec16 f_add = exp2_weight(m_add - m_new);
  for (size_t i = 0; i < dim; i += 16) {
    fma(Vec16::load(a2 + i), f_add, Vec16::load(a + i) * f_old).store(a + i);
  }
  *m = reduce_max(m_new);
  *s = reduce_max(fma(Vec16::set1(s2), f_add, Vec16::set1(*s) * f_old));
}

void rotate_keys(float* k, const float* c, const float* s, size_t dims, bool interleaved) {
  const size_t half = dims / 2;
  for (size_t i = 0; i < half; ++i) {
    float* a = k + (interleaved ? 2 * i : i) * kBlockKeys;
    float* b = k + (interleaved ? 2 * i + 1 : i + half) * kBlockKeys;
    for (size_t j = 0; j < kBlockKeys; j += 16) {
      const Vec16 x = Vec16::load(a + j);
      const Vec16 y = Vec16::load(b + j);
      const Vec16 cosine = Vec16::load(c + i * kBlockKeys + j);
      const Vec16 sine = Vec16::load(s + i * kBlockKeys + j);
      fnma(y, sine, x * cosine).store(a + j);
      fma(x, sine, y * cosine).store(b + j);
    }
  }
}

}  // namespace
}  // namespace isthmus

#include "kernels/generic/attention_q8.h"
// Use what that one defines.
#include "kernels/generic/attention_kivi.h"
#include "kernels/generic/attention_pairs.h"

namespace isthmus {
namespace {

constexpr AttentionKernels make_attention_kernels() {
  AttentionKernels k{};
  k.max_rows = kVec16Rows;
  k.scores[0] = scores<LoadF32>;
  k.scores[1] = scores<LoadF16>;
  k.scores[2] = scores<LoadBf16>;
  k.weighted_sum[0] = weighted_sum<LoadF32>;
  k.weighted_sum[1] = weighted_sum<LoadF16>;
  k.weighted_sum[2] = weighted_sum<LoadBf16>;
  k.quantize_queries = quantize_queries;
  k.scores_q8 = scores_q8;
  k.weighted_sum[3] = weighted_sum_q8;
  k.expand_keys[0] = expand_keys<LoadF32>;
  k.expand_keys[1] = expand_keys<LoadF16>;
  k.expand_keys[2] = expand_keys<LoadBf16>;
  k.expand_keys[3] = expand_keys_q8;
  k.expand_values[0] = expand_values<LoadF32>;
  k.expand_values[1] = expand_values<LoadF16>;
  k.expand_values[2] = expand_values<LoadBf16>;
  k.expand_values[3] = expand_values_q8;
  k.quantize_q8 = quantize_q8;
  put_kivi_kernels<8>(k, KvType::kKivi8);
  put_kivi_kernels<4>(k, KvType::kKivi4);
  put_kivi_kernels<2>(k, KvType::kKivi2);
  put_kivi_kernels<1>(k, KvType::kKivi1);
  k.kivi_query_codes = kivi_query_codes;
  k.add_kivi_bias = add_kivi_bias;
  k.query_pairs = query_pairs;
  k.key_means[1] = key_means<LoadF16>;
  k.key_means[2] = key_means<LoadBf16>;
  k.key_pairs[1] = key_pairs<LoadF16>;
  k.key_pairs[2] = key_pairs<LoadBf16>;
  k.value_pairs[1] = value_pairs<LoadF16>;
  k.value_pairs[2] = value_pairs<LoadBf16>;
  k.scores_pairs = scores_pairs;
  k.weighted_sum_pairs = weighted_sum_pairs;
  k.softmax = softmax;
  k.combine = combine;
  k.rotate_keys = rotate_keys;
  return k;
}

}  // namespace
}  // namespace isthmus
