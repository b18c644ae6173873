// The kernels of KIVI parts against plain loops over what the parts say, bit for bit, on every instruction
// set.
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

constexpr KvType kKivi[] = {KvType::kKivi8, KvType::kKivi4, KvType::kKivi2, KvType::kKivi1};
constexpr size_t kKiviDims[] = {8, 24, 32, 40, 64, 80, 128, 256, 320};

std::vector<float> kivi_floats(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

/// A part of random values, and what it says: element e, lane l.
struct KiviPart {
  KiviPart(KvType t, size_t d, bool k, uint32_t seed) : type(t), dim(d), keys(k), bits(kivi_bits(t)) {
    const AttentionKernels& kernels = attention_kernels_for(Isa::kScalar);
    const auto values = kivi_floats(kBlockKeys * dim, seed);
    bytes.resize(kivi_cells(dim) * kivi_cell_bytes(bits));
    (keys ? kernels.encode_keys : kernels.encode_values)[index()](values.data(), dim, bytes.data());
  }
  size_t index() const { return static_cast<size_t>(type); }
  /// Of dimension d and slot j.
  int code(size_t d, size_t j) const {
    const size_t element = keys ? d % 32 : j;
    const size_t lane = keys ? j : d % 32;
    const size_t lanes = keys ? 32 : std::min<size_t>(32, dim - d / 32 * 32);
    const size_t per_byte = 8 / static_cast<size_t>(bits);
    const uint8_t byte = cell(d)[(element / 4 / per_byte * lanes + lane) * 4 + element % 4];
    const int raw = byte >> (element / 4 % per_byte * static_cast<size_t>(bits)) & ((1 << bits) - 1);
    return bits == 8 ? raw - 128 : raw;
  }
  float scale(size_t d, size_t j) const { return number(d, keys ? d % 32 : j); }
  float minimum(size_t d, size_t j) const { return number(d, 32 + (keys ? d % 32 : j)); }

  KvType type;
  size_t dim;
  bool keys;
  int bits;
  std::vector<uint8_t> bytes;

 private:
  const uint8_t* cell(size_t d) const { return bytes.data() + d / 32 * kivi_cell_bytes(bits); }
  float number(size_t d, size_t i) const {
    uint16_t half;
    std::memcpy(&half, cell(d) + kivi_code_bytes(bits) + 2 * i, sizeof(half));
    return f16_to_f32(half);
  }
};

/// The fixed tree of reduce_add() over 16 lanes.
float lane_sum(std::vector<float> lane) {
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lane[i] += lane[i + half];
  }
  return lane[0];
}

constexpr float kMostNumber = 32512.0f;

/// Numbers in 16 bits of x[n], and their unit.
std::pair<std::vector<int64_t>, float> narrow(const std::vector<float>& x) {
  float most = 0;
  for (const float v : x) most = std::max(most, std::fabs(v));
  const float inverse = kMostNumber / std::max(most, 1e-30f);
  std::vector<int64_t> out;
  for (const float v : x) out.push_back(std::lrint(v * inverse));
  return {out, most / kMostNumber};
}
int64_t scaled_product(int64_t a, int64_t b) { return (a * b + (1 << 14)) >> 15; }

std::vector<float> expected_scores(const KiviPart& part, const float* q) {
  std::vector<float> bias(16);
  for (size_t d = 0; d < part.dim; ++d) {
    bias[d % 16] = std::fma(q[d], part.minimum(d, 0), bias[d % 16]);
  }
  std::vector<float> out(kBlockKeys, lane_sum(bias));
  for (size_t first = 0; first < part.dim; first += 32) {
    const size_t end = std::min(part.dim, first + 32);
    std::vector<float> scales;
    for (size_t d = first; d < end; ++d) scales.push_back(part.scale(d, 0));
    const auto [x, query_unit] = narrow({q + first, q + end});
    const auto [s, scale_unit] = narrow(scales);
    for (size_t j = 0; j < kBlockKeys; ++j) {
      int64_t sum = 0;
      for (size_t d = first; d < end; ++d) {
        sum += scaled_product(x[d - first], s[d - first]) * part.code(d, j);
      }
      out[j] = std::fma(static_cast<float>(sum), query_unit * 32768.0f * scale_unit, out[j]);
    }
  }
  return out;
}

TEST(AttentionKiviTest, ScoresAreThePlainLoopOnEverySet) {
  for (const Isa isa : available_isas()) {
    const AttentionKernels& kernels = attention_kernels_for(isa);
    for (const KvType type : kKivi) {
      for (const size_t dim : kKiviDims) {
        for (const size_t rows : {1u, 2u, 3u, 4u, 7u, 13u}) {
          const KiviPart part(type, dim, true, static_cast<uint32_t>(dim + rows));
          const size_t ld = dim + 3;
          const auto q = kivi_floats(rows * ld, 9);
          std::vector<float> got(rows * kScoreStride);
          std::vector<int32_t> codes(rows * kivi_query_words(dim));
          kernels.kivi_query_codes(q.data(), ld, rows, dim, codes.data());
          kernels.scores_kivi[part.index()](part.bytes.data(), codes.data(), q.data(), ld, rows, dim,
                                            got.data(), nullptr);
          for (size_t r = 0; r < rows; ++r) {
            const auto want = expected_scores(part, q.data() + r * ld);
            for (size_t j = 0; j < kBlockKeys; ++j) {
              ASSERT_EQ(got[r * kScoreStride + j], want[j])
                  << isa_name(isa) << ' ' << dim << ' ' << part.bits;
            }
          }
        }
      }
    }
  }
}

/// What one row's weights p[32] add to acc[dim].
void expected_kivi_sum(const KiviPart& part, const float* p, size_t keys, float* acc) {
  for (size_t first = 0; first < part.dim; first += 32) {
    std::vector<float> bias(16);
    std::vector<float> scales;
    for (size_t j = 0; j < kBlockKeys; ++j) {
      if (j < keys) bias[j % 16] = std::fma(p[j], part.minimum(first, j), bias[j % 16]);
      scales.push_back(part.scale(first, j));
    }
    const auto [s, unit] = narrow(scales);
    const float offset = lane_sum(bias);
    for (size_t d = first; d < std::min(part.dim, first + 32); ++d) {
      int64_t sum = 0;
      for (size_t j = 0; j < keys; ++j) {
        sum += scaled_product(std::lrint(p[j] * kMostNumber), s[j]) * part.code(d, j);
      }
      acc[d] = std::fma(static_cast<float>(sum), unit * (32768.0f / kMostNumber), acc[d]) + offset;
    }
  }
}

TEST(AttentionKiviTest, SumsAreThePlainLoopOnEverySet) {
  for (const Isa isa : available_isas()) {
    const AttentionKernels& kernels = attention_kernels_for(isa);
    for (const KvType type : kKivi) {
      for (const size_t head_dim : kKiviDims) {
        const size_t dim = padded_dim(head_dim);
        for (const size_t rows : {1u, 2u, 3u, 4u, 7u, 13u}) {
          const KiviPart part(type, dim, false, static_cast<uint32_t>(dim + rows));
          for (const size_t keys : {1u, 19u, 32u}) {
            auto p = kivi_floats(rows * kScoreStride, 5);
            for (float& x : p) x = std::exp(-4 * x * x);
            for (size_t r = 0; r < rows; ++r) {
              std::fill_n(p.begin() + static_cast<std::ptrdiff_t>(r * kScoreStride + keys), kBlockKeys - keys,
                          0.0f);
            }
            auto got = kivi_floats(rows * dim, 6);
            auto want = got;
            std::vector<float> bias(rows * kivi_cells(dim) * kBiasLanes);
            kernels.sum_kivi[part.index()](part.bytes.data(), p.data(), rows, keys, dim, got.data(),
                                           bias.data(), nullptr);
            kernels.add_kivi_bias(bias.data(), rows, dim, got.data());
            for (size_t r = 0; r < rows; ++r) {
              expected_kivi_sum(part, p.data() + r * kScoreStride, keys, want.data() + r * dim);
            }
            ASSERT_EQ(got, want) << isa_name(isa) << ' ' << dim << ' ' << rows << ' ' << part.bits;
          }
        }
      }
    }
  }
}

TEST(AttentionKiviTest, PartsHaveTheSameBytesAndExpansionOnEverySet) {
  const AttentionKernels& scalar = attention_kernels_for(Isa::kScalar);
  for (const Isa isa : available_isas()) {
    const AttentionKernels& kernels = attention_kernels_for(isa);
    for (const KvType type : kKivi) {
      const auto i = static_cast<size_t>(type);
      for (const size_t dim : kKiviDims) {
        auto values = kivi_floats(kBlockKeys * padded_dim(dim), 3);
        std::fill_n(values.begin(), 40, 0.25f);  // a group without a range
        const size_t bytes = kivi_cells(padded_dim(dim)) * kivi_cell_bytes(kivi_bits(type));
        std::vector<uint8_t> want(bytes), got(bytes);
        std::vector<float> wanted(values.size()), expanded(values.size());
        scalar.encode_keys[i](values.data(), dim, want.data());
        kernels.encode_keys[i](values.data(), dim, got.data());
        ASSERT_EQ(got, want) << isa_name(isa) << ' ' << dim;
        scalar.expand_keys[i](want.data(), dim, wanted.data());
        kernels.expand_keys[i](want.data(), dim, expanded.data());
        ASSERT_EQ(expanded, wanted);
        scalar.encode_values[i](values.data(), padded_dim(dim), want.data());
        kernels.encode_values[i](values.data(), padded_dim(dim), got.data());
        ASSERT_EQ(got, want) << isa_name(isa) << ' ' << dim;
        scalar.expand_values[i](want.data(), padded_dim(dim), wanted.data());
        kernels.expand_values[i](want.data(), padded_dim(dim), expanded.data());
        ASSERT_EQ(expanded, wanted);
      }
    }
  }
}

TEST(AttentionKiviTest, WhatIsNotFiniteStaysSo) {
  constexpr size_t kDim = 64;
  for (const Isa isa : available_isas()) {
    const AttentionKernels& kernels = attention_kernels_for(isa);
    for (const KvType type : kKivi) {
      KiviPart keys(type, kDim, true, 1);
      std::vector<float> out(kScoreStride);
      for (const float odd :
           {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        auto q = kivi_floats(kDim, 2);
        q[40] = odd;
        std::vector<int32_t> codes(kivi_query_words(kDim));
        kernels.kivi_query_codes(q.data(), kDim, 1, kDim, codes.data());
        kernels.scores_kivi[keys.index()](keys.bytes.data(), codes.data(), q.data(), kDim, 1, kDim,
                                          out.data(), nullptr);
        for (size_t j = 0; j < kBlockKeys; ++j) EXPECT_FALSE(std::isfinite(out[j]));
        auto values = kivi_floats(kBlockKeys * kDim, 4);
        values[40] = odd;  // of slot 0, second group
        KiviPart stored(type, kDim, false, 1);
        kernels.encode_values[stored.index()](values.data(), kDim, stored.bytes.data());
        const std::vector<float> p(kScoreStride, 1.0f);
        std::vector<float> acc(kDim);
        std::vector<float> bias(kivi_cells(kDim) * kBiasLanes);
        kernels.sum_kivi[stored.index()](stored.bytes.data(), p.data(), 1, 32, kDim, acc.data(), bias.data(),
                                         nullptr);
        kernels.add_kivi_bias(bias.data(), 1, kDim, acc.data());
        EXPECT_TRUE(std::isnan(acc[32]));
        EXPECT_TRUE(std::isfinite(acc[0]));
      }
      for (const float tiny : {0.0f, 1e-38f, 3e-41f}) {
        const std::vector<float> q(kDim, tiny);
        std::vector<int32_t> codes(kivi_query_words(kDim));
        kernels.kivi_query_codes(q.data(), kDim, 1, kDim, codes.data());
        kernels.scores_kivi[keys.index()](keys.bytes.data(), codes.data(), q.data(), kDim, 1, kDim,
                                          out.data(), nullptr);
        EXPECT_NEAR(out[0], 0.0f, 1e-35f);
      }
    }
  }
}

}  // namespace
}  // namespace isthmus
