// The attention kernels in 16-bit whole numbers against plain loops, bit for bit, on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/generic/attention_kernels.h"
#include "kernels/isa.h"
#include "tensor/half.h"

namespace isthmus {
namespace {

constexpr size_t kPairDims[] = {8, 24, 64, 72, 80, 96, 128, 256};
constexpr size_t kF16 = static_cast<size_t>(KvType::kF16);

/// A stored f16 part, and its values. Keys: [dim][32]; values: [32][padded dim].
struct Part {
  Part(size_t n, uint32_t seed, float spread) : bits(n), value(n) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal(0.0f, spread);
    for (size_t i = 0; i < n; ++i) set(i, normal(rng));
  }
  void set(size_t i, float x) {
    bits[i] = f32_to_f16(x);
    value[i] = f16_to_f32(bits[i]);
  }
  std::vector<uint16_t> bits;
  std::vector<float> value;
};

int code(float x, float inverse) { return static_cast<int>(std::lrint(x * inverse)); }

/// Codes and scale of one query row, by the formula of the declaration.
struct Query {
  Query(const float* row, const std::vector<float>& means) : codes(means.size()) {
    const size_t dim = means.size();
    std::vector<float> q(dim);
    for (size_t d = 0; d < dim; ++d) q[d] = row[d] * means[d];
    float lane[8] = {};
    float top = 0;
    for (size_t d = 0; d < dim; ++d) {
      lane[d % 8] += std::fabs(q[d]);
      top = std::max(top, std::fabs(q[d]));
    }
    const float sum =
        ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
    scale = std::max(sum / 130000.0f, top / 32767.0f);
    for (size_t d = 0; d < dim; ++d) codes[d] = code(q[d], 1.0f / scale);
  }
  std::vector<int> codes;
  float scale = 0;
};

std::vector<float> gaussian_floats(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

/// Means of other keys, the third as if it were out of bounds.
std::vector<float> some_means(size_t dim, uint32_t seed) {
  std::vector<float> means = gaussian_floats(dim, seed);
  for (float& mean : means) mean = std::exp2(3.0f * mean);
  means[2] = 1.0f;
  return means;
}

std::vector<float> expected_scores(const Part& keys, const std::vector<float>& q, size_t rows,
                                   const std::vector<float>& means) {
  const size_t dim = means.size();
  std::vector<float> out(rows * kBlockKeys);
  for (size_t r = 0; r < rows; ++r) {
    const Query query(q.data() + r * dim, means);
    for (size_t j = 0; j < kBlockKeys; ++j) {
      std::vector<float> key(dim);
      float top = 0;
      for (size_t d = 0; d < dim; ++d) {
        key[d] = keys.value[d * kBlockKeys + j] * (1.0f / means[d]);
        top = std::max(top, std::fabs(key[d]));
      }
      int64_t sum = 0;
      for (size_t d = 0; d < dim; ++d) sum += query.codes[d] * code(key[d], 16383.0f / top);
      EXPECT_LT(std::llabs(sum), int64_t{1} << 31);
      out[r * kBlockKeys + j] = static_cast<float>(sum) * (top / 16383.0f) * query.scale;
    }
  }
  return out;
}

std::vector<float> scores_of(const AttentionKernels& kernels, const Part& keys, const std::vector<float>& q,
                             size_t rows, const std::vector<float>& means) {
  const size_t dim = means.size();
  std::vector<int32_t> queries(rows * pair_query_words(dim));
  std::vector<int32_t> words(dim / 2 * kBlockKeys);
  std::vector<float> scales(kBlockKeys), out(rows * kScoreStride), dense(rows * kBlockKeys);
  kernels.query_pairs(q.data(), dim, rows, dim, means.data(), queries.data());
  std::vector<float> inverses(dim);
  for (size_t d = 0; d < dim; ++d) inverses[d] = 1.0f / means[d];
  kernels.key_pairs[kF16](keys.bits.data(), dim, inverses.data(), words.data(), scales.data());
  kernels.scores_pairs(words.data(), scales.data(), queries.data(), rows, dim, out.data());
  for (size_t r = 0; r < rows; ++r) std::copy_n(&out[r * kScoreStride], kBlockKeys, &dense[r * kBlockKeys]);
  return dense;
}

void expect_bits(const std::vector<float>& got, const std::vector<float>& want, size_t dim) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i])) << dim << ' ' << i;
  }
}

TEST(AttentionPairsTest, ScoresAreThePlainLoopOnEverySet) {
  for (const size_t dim : kPairDims) {
    const Part keys(dim * kBlockKeys, static_cast<uint32_t>(dim), 3.0f);
    const auto means = some_means(dim, 3);
    for (const size_t rows : {1u, 2u, 5u, 11u, 12u, 13u, 31u}) {
      const auto q = gaussian_floats(rows * dim, static_cast<uint32_t>(dim + rows));
      const auto want = expected_scores(keys, q, rows, means);
      for (const Isa isa : available_isas()) {
        expect_bits(scores_of(attention_kernels_for(isa), keys, q, rows, means), want, dim);
      }
    }
  }
}

/// All numbers at their largest and of one sign: the sums come closest to 2^31.
TEST(AttentionPairsTest, TheLargestSumsFit) {
  for (const size_t dim : {8u, 64u, 256u, 1024u}) {
    Part keys(dim * kBlockKeys, 1, 1.0f);
    const std::vector<float> ones(dim, 1.0f);
    for (size_t i = 0; i < keys.bits.size(); ++i) keys.set(i, i % kBlockKeys % 2 == 0 ? 65504.0f : -65504.0f);
    for (const float size : {1.0f, 0.7f, 1e30f, 3e-20f}) {
      const std::vector<float> q(dim, size);
      const auto want = expected_scores(keys, q, 1, ones);
      for (const Isa isa : available_isas()) {
        expect_bits(scores_of(attention_kernels_for(isa), keys, q, 1, ones), want, dim);
      }
    }
  }
}

std::vector<float> expected_sum(const Part& values, const std::vector<float>& p, std::vector<float> acc,
                                size_t rows, size_t dim) {
  for (size_t d = 0; d < dim; ++d) {
    float top = 0;
    for (size_t j = 0; j < kBlockKeys; ++j) top = std::max(top, std::fabs(values.value[j * dim + d]));
    for (size_t r = 0; r < rows; ++r) {
      int64_t sum = 0;
      for (size_t j = 0; j < kBlockKeys; ++j) {
        sum += code(p[r * kScoreStride + j], 32767.0f) * code(values.value[j * dim + d], 2047.0f / top);
      }
      EXPECT_LT(std::llabs(sum), int64_t{1} << 31);
      float& to = acc[r * dim + d];
      to = std::fma(static_cast<float>(sum), top / 2047.0f * (1.0f / 32767.0f), to);
    }
  }
  return acc;
}

void expect_sums(const Part& values, const std::vector<float>& p, size_t rows, size_t dim) {
  const auto acc = gaussian_floats(rows * dim, static_cast<uint32_t>(dim));
  const auto want = expected_sum(values, p, acc, rows, dim);
  for (const Isa isa : available_isas()) {
    const AttentionKernels& kernels = attention_kernels_for(isa);
    std::vector<int32_t> words(kBlockKeys / 2 * dim);
    std::vector<float> scales(dim);
    auto got = acc;
    kernels.value_pairs[kF16](values.bits.data(), dim, words.data(), scales.data());
    kernels.weighted_sum_pairs(words.data(), scales.data(), p.data(), rows, dim, got.data());
    expect_bits(got, want, dim);
  }
}

TEST(AttentionPairsTest, WeightedSumsAreThePlainLoopOnEverySet) {
  for (const size_t head : kPairDims) {
    const size_t dim = padded_dim(head);
    const Part values(dim * kBlockKeys, static_cast<uint32_t>(dim), 2.0f);
    for (const size_t rows : {1u, 2u, 5u, 11u, 12u, 13u, 31u}) {
      auto p = gaussian_floats(rows * kScoreStride, static_cast<uint32_t>(rows));
      for (float& x : p) x = std::exp2(-8.0f * std::fabs(x));
      expect_sums(values, p, rows, dim);
    }
  }
  Part largest(64 * kBlockKeys, 1, 1.0f);
  for (size_t i = 0; i < largest.bits.size(); ++i) largest.set(i, i % 2 == 0 ? 65504.0f : -65504.0f);
  expect_sums(largest, std::vector<float>(3 * kScoreStride, 1.0f), 3, 64);
}

TEST(AttentionPairsTest, MeansOfKeysAreTheSameOnEverySet) {
  Part keys(72 * kBlockKeys, 3, 20.0f);
  for (size_t j = 0; j < kBlockKeys; ++j) {
    keys.set(1 * kBlockKeys + j, 0.0f);
    keys.set(2 * kBlockKeys + j, j == 5 ? std::numeric_limits<float>::infinity() : 1.0f);
    keys.set(3 * kBlockKeys + j, j == 5 ? std::numeric_limits<float>::quiet_NaN() : 1.0f);
  }
  std::vector<float> want(72), got(72), inverses(72);
  attention_kernels_for(Isa::kScalar).key_means[kF16](keys.bits.data(), 72, want.data(), inverses.data());
  for (size_t d = 0; d < 72; ++d) {
    double sum = 0;
    for (size_t j = 0; j < kBlockKeys; ++j) sum += std::fabs(keys.value[d * kBlockKeys + j]);
    const double mean = d >= 1 && d <= 3 ? 1.0 : sum / kBlockKeys;
    EXPECT_NEAR(want[d], mean, mean * 1e-6) << d;
  }
  for (const Isa isa : available_isas()) {
    attention_kernels_for(isa).key_means[kF16](keys.bits.data(), 72, got.data(), inverses.data());
    for (size_t d = 0; d < 72; ++d) EXPECT_EQ(inverses[d], 1.0f / got[d]);
    expect_bits(got, want, 72);
  }
}

TEST(AttentionPairsTest, ZerosTinyAndEndlessNumbers) {
  const std::vector<float> ones(64, 1.0f);
  for (const Isa isa : available_isas()) {
    const AttentionKernels& kernels = attention_kernels_for(isa);
    Part zeros(64 * kBlockKeys, 1, 1.0f);
    for (size_t i = 0; i < zeros.bits.size(); ++i) zeros.set(i, 0.0f);
    for (const float v : scores_of(kernels, zeros, gaussian_floats(64, 1), 1, ones)) EXPECT_EQ(v, 0.0f);
    const Part keys(64 * kBlockKeys, 2, 1.0f);
    for (const float v : scores_of(kernels, keys, std::vector<float>(64, 0.0f), 1, ones)) EXPECT_EQ(v, 0.0f);
    for (const float v : scores_of(kernels, keys, std::vector<float>(64, 1e-41f), 1, ones))
      EXPECT_EQ(v, 0.0f);
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      Part broken = keys;
      broken.set(3 * kBlockKeys + 7, -bad);
      const auto scores = scores_of(kernels, broken, gaussian_floats(64, 1), 1, ones);
      for (size_t j = 0; j < kBlockKeys; ++j) EXPECT_EQ(std::isnan(scores[j]), j == 7);
      auto q = gaussian_floats(64, 1);
      q[9] = bad;
      for (const float v : scores_of(kernels, keys, q, 1, ones)) EXPECT_TRUE(std::isnan(v));
    }
  }
}

}  // namespace
}  // namespace isthmus
