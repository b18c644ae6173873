// The kernels of 8-bit KV against plain loops over stored codes, bit for bit, on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
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

constexpr float kMost = 32512.0f;
constexpr size_t kDims[] = {8, 24, 32, 40, 64, 72, 80, 96, 128, 256};

/// One K or V part as codes and scales, and as stored bytes.
struct Q8Part {
  Q8Part(size_t d, bool k, uint32_t seed, bool extreme) : dim(d), keys(k) {
    std::mt19937 rng(seed);
    codes.resize(kBlockKeys * dim);
    scales.resize(kBlockKeys * q8_groups(dim));
    for (int& code : codes)
      code = extreme ? (rng() % 2 != 0 ? 127 : -127) : static_cast<int>(rng() % 255) - 127;
    for (uint16_t& scale : scales) scale = f32_to_f16(0.001f + 0.001f * static_cast<float>(rng() % 50));
    bytes.assign(kBlockKeys * dim + scales.size() * sizeof(uint16_t), std::byte{0});
    for (size_t j = 0; j < kBlockKeys; ++j) {
      for (size_t i = 0; i < dim; ++i) {
        const size_t cell = i / kQ8Dims;
        const size_t dims = std::min(kQ8Dims, dim - cell * kQ8Dims);
        const size_t in = i % kQ8Dims;
        const size_t at = keys ? in / 4 * 4 * kBlockKeys + 4 * j + in % 4 : j / 4 * 4 * dims + 4 * in + j % 4;
        bytes[cell * kQ8CellBytes + at] = static_cast<std::byte>(code(j, i) + (keys ? kQ8KeyZero : 0));
        std::memcpy(bytes.data() + cell * kQ8CellBytes + kBlockKeys * dims + j * sizeof(uint16_t),
                    &scales[j * q8_groups(dim) + cell], sizeof(uint16_t));
      }
    }
  }
  int code(size_t key, size_t i) const { return codes[key * dim + i]; }
  float scale(size_t key, size_t cell) const { return f16_to_f32(scales[key * q8_groups(dim) + cell]); }

  size_t dim;
  bool keys;
  std::vector<int> codes;        // [32][dim]
  std::vector<uint16_t> scales;  // [32][groups]
  std::vector<std::byte> bytes;
};

std::vector<float> normal_floats(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

float expected_score(const Q8Part& part, const float* q, size_t key) {
  float top = 0;
  for (size_t d = 0; d < part.dim; ++d) top = std::max(top, std::fabs(q[d]));
  const float scale = top / kMost;
  float acc = 0;
  for (size_t cell = 0; cell < q8_groups(part.dim); ++cell) {
    int64_t sum = 0;
    for (size_t d = cell * kQ8Dims; d < std::min(part.dim, (cell + 1) * kQ8Dims); ++d) {
      sum += std::lrint(q[d] / scale) * part.code(key, d);
    }
    acc = std::fma(static_cast<float>(sum), part.scale(key, cell), acc);
  }
  return acc * scale;
}

TEST(AttentionQ8Test, ScoresAreThePlainLoopOnEverySet) {
  for (const Isa isa : available_isas()) {
    const AttentionKernels& kernels = attention_kernels_for(isa);
    for (const size_t dim : kDims) {
      for (size_t rows = 1; rows <= 13; rows += rows < 8 ? 1 : 5) {
        const bool extreme = rows % 2 == 0;
        const Q8Part part(dim, true, static_cast<uint32_t>(dim + rows), extreme);
        const size_t ld = dim + 3;
        auto q = normal_floats(rows * ld, 9);
        // All codes and queries at their ends: the largest sums there can be.
        if (extreme)
          std::transform(q.begin(), q.end(), q.begin(), [](float x) { return x < 0 ? -2.0f : 2.0f; });
        std::vector<int32_t> codes(rows * q8_query_words(dim));
        kernels.quantize_queries(q.data(), ld, rows, dim, codes.data());
        std::vector<float> got(rows * kScoreStride);
        kernels.scores_q8(part.bytes.data(), codes.data(), rows, dim, got.data(), nullptr);
        for (size_t r = 0; r < rows; ++r) {
          for (size_t j = 0; j < kBlockKeys; ++j) {
            ASSERT_EQ(got[r * kScoreStride + j], expected_score(part, q.data() + r * ld, j))
                << isa_name(isa) << ' ' << dim << ' ' << rows;
          }
        }
      }
    }
  }
}

/// What one row's weights p[32] add to acc[dim].
void expected_sum(const Q8Part& part, const float* p, size_t keys, float* acc) {
  for (size_t cell = 0; cell < q8_groups(part.dim); ++cell) {
    float w[kBlockKeys];
    for (size_t j = 0; j < kBlockKeys; ++j) w[j] = j < keys ? p[j] * part.scale(j, cell) : 0.0f;
    const float most = *std::max_element(w, w + kBlockKeys);
    const float inverse = kMost / std::max(most, 1e-30f);
    for (size_t d = cell * kQ8Dims; d < std::min(part.dim, (cell + 1) * kQ8Dims); ++d) {
      int64_t sum = 0;
      for (size_t j = 0; j < keys; ++j) sum += std::lrint(w[j] * inverse) * part.code(j, d);
      acc[d] = std::fma(static_cast<float>(sum), most / kMost, acc[d]);
    }
  }
}

TEST(AttentionQ8Test, SumsAreThePlainLoopOnEverySet) {
  for (const Isa isa : available_isas()) {
    const AttentionKernels& kernels = attention_kernels_for(isa);
    for (const size_t head_dim : kDims) {
      const size_t dim = padded_dim(head_dim);
      for (size_t rows = 1; rows <= 13; rows += rows < 8 ? 1 : 5) {
        const Q8Part part(dim, false, static_cast<uint32_t>(dim + rows), rows % 2 == 0);
        for (const size_t keys : {1u, 7u, 16u, 19u, 32u}) {
          auto p = normal_floats(rows * kScoreStride, 5);
          for (float& x : p) x = std::exp(-4 * x * x);
          if (keys == 7) std::fill(p.begin(), p.end(), 0.0f);  // no weight at all
          for (size_t r = 0; r < rows; ++r)
            std::fill_n(p.begin() + static_cast<std::ptrdiff_t>(r * kScoreStride + keys), kBlockKeys - keys,
                        0.0f);
          auto stored = part.bytes;
          for (size_t j = keys; j < kBlockKeys; ++j) {  // slots that were never written: NaN scales
            for (size_t cell = 0; cell < q8_groups(dim); ++cell) {
              const size_t dims = std::min(kQ8Dims, dim - cell * kQ8Dims);
              std::memset(stored.data() + cell * kQ8CellBytes + kBlockKeys * dims + 2 * j, 0xff, 2);
            }
          }
          auto got = normal_floats(rows * dim, 6);
          auto want = got;
          kernels.weighted_sum[static_cast<size_t>(KvType::kQ8)](stored.data(), p.data(), rows, keys, dim,
                                                                 got.data(), nullptr);
          for (size_t r = 0; r < rows; ++r)
            expected_sum(part, p.data() + r * kScoreStride, keys, want.data() + r * dim);
          ASSERT_EQ(got, want) << isa_name(isa) << ' ' << dim << ' ' << rows << ' ' << keys;
        }
      }
    }
  }
}

TEST(AttentionQ8Test, WhatIsNotFiniteStaysSo) {
  constexpr size_t kDim = 64;
  for (const Isa isa : available_isas()) {
    const AttentionKernels& kernels = attention_kernels_for(isa);
    std::vector<float> out(kScoreStride);
    std::vector<int32_t> codes(q8_query_words(kDim));
    const Q8Part keys(kDim, true, 1, false);
    for (const float odd :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      auto q = normal_floats(kDim, 2);
      q[40] = odd;
      kernels.quantize_queries(q.data(), kDim, 1, kDim, codes.data());
      kernels.scores_q8(keys.bytes.data(), codes.data(), 1, kDim, out.data(), nullptr);
      for (size_t j = 0; j < kBlockKeys; ++j) EXPECT_TRUE(std::isnan(out[j]));
    }
    Q8Part values(kDim, false, 1, false);
    const uint16_t nan = 0x7e00;
    std::memcpy(values.bytes.data() + kQ8Dims * kBlockKeys + 2 * 3, &nan, sizeof(nan));  // key 3, cell 0
    const std::vector<float> p(kScoreStride, 1.0f);
    std::vector<float> acc(kDim);
    kernels.weighted_sum[static_cast<size_t>(KvType::kQ8)](values.bytes.data(), p.data(), 1, 32, kDim,
                                                           acc.data(), nullptr);
    EXPECT_TRUE(std::isnan(acc[0]));
    EXPECT_TRUE(std::isfinite(acc[32]));
    for (const float tiny : {0.0f, 1e-38f, 3e-41f}) {
      const std::vector<float> q(kDim, tiny);
      kernels.quantize_queries(q.data(), kDim, 1, kDim, codes.data());
      kernels.scores_q8(keys.bytes.data(), codes.data(), 1, kDim, out.data(), nullptr);
      EXPECT_EQ(out[0], 0.0f);
    }
  }
}

}  // namespace
}  // namespace isthmus
